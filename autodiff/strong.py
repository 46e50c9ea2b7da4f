"""What was not selected never poisons a derivative: 0 * inf is 0 where the cotangent is 0.

A select (WHERE, IF, MAXIMUM ...) hands exact zeros to what it did not choose, and further back
they meet slopes that are infinite or NaN there. Equations upstream of a select are therefore
pulled back by *strong* products, 0 where the cotangent is 0 whatever the other factor is. They
are ops of their own with derivatives (a `where` around a plain product would have none where the
cotangent is 0 by chance), so that it holds at any order. A cotangent that is not 0 meets NaN as
ever.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from autodiff.expansion import expands_linear, needs_expansion
from autodiff.forward import is_inexact
from autodiff.op import Op, body_program
from autodiff.program import Equation, Program, Var
from autodiff.trace import bind

# The strong twin of each op that multiplies a cotangent by known values.
STRONG = {
    "MUL": "STRONG_MUL",
    "DIV": "STRONG_DIV",
    "MATMUL": "STRONG_MATMUL",
    "DOT_GENERAL": "STRONG_DOT_GENERAL",
    "CONV": "STRONG_CONV",
    "CONVOLVE": "STRONG_CONVOLVE",
    "SOLVE": "STRONG_SOLVE",
    "TRIANGULAR_SOLVE": "STRONG_TRIANGULAR_SOLVE",
    "EXPM_FRECHET": "STRONG_EXPM_FRECHET",
    "COFACTOR_TANGENT": "STRONG_COFACTOR_TANGENT",
}
TWINS = frozenset(STRONG.values())
# The operand whose zeros win, where it is always the same one; else the param `zeros` names it.
ZEROS = {
    "STRONG_MUL": 0,
    "STRONG_DIV": 0,
    "STRONG_SOLVE": 1,
    "STRONG_TRIANGULAR_SOLVE": 1,
    "STRONG_EXPM_FRECHET": 1,
}
# Twins whose transpose in the factor takes `strongly`: there zeros of the new cotangent win as well
# as those of the old one.
BOTH = frozenset({"STRONG_MUL", "STRONG_MATMUL", "STRONG_DOT_GENERAL", "STRONG_CONV"})
BOTH |= {"STRONG_CONVOLVE"}
# Operands of which an op passes on some elements and gives the others a cotangent of 0.
SELECTS = {"WHERE": (1, 2), "MAXIMUM": (0, 1), "MINIMUM": (0, 1), "MAX": (0,), "MIN": (0,)}
# Control ops that may use none of an operand: the branch not taken, a loop of no steps.
SKIPPING = frozenset({"IF", "WHILE"})

# --- what is upstream of a select ----------------------------------------------------------


def protection(program: Program, outputs: Sequence[bool] = ()) -> set[Var]:
    """The variables whose values reach a select.

    `outputs` says which outputs reach one further on (none by default).
    """
    reach = {a for a, f in zip(program.outputs, outputs, strict=False) if f and isinstance(a, Var)}
    for eq in reversed(program.equations):
        if eq.op.derivative != "rule":
            continue
        hit = any(v in reach for v in eq.outputs)
        chosen = range(len(eq.inputs)) if hit else _chosen_from(eq)
        atoms = (eq.inputs[i] for i in chosen)
        reach.update(a for a in atoms if isinstance(a, Var) and is_inexact(a.spec.dtype))
    return reach


def _chosen_from(eq: Equation) -> Sequence[int]:
    """Operands that the equation itself selects from.

    The factor of a strong product counts as one: it stems from a select, one order below.
    """
    kind = eq.op.kind
    if kind in TWINS:
        zeros = eq.params.get("zeros", ZEROS.get(kind))
        return [i for i in range(len(eq.inputs)) if i != zeros]
    if eq.op.control and (kind in SKIPPING or any(map(_selects, _programs(eq.params)))):
        return range(len(eq.inputs))
    return SELECTS.get(kind, ())


def _selects(program: Program) -> bool:
    """Whether a select occurs in a program, its composites and sub-programs included."""
    for eq in program.equations:
        if _chosen_from(eq):
            return True
        if needs_expansion(eq.op):
            body = body_program(eq.op, tuple(a.spec for a in eq.inputs), eq.params)
            if _selects(body):
                return True
    return False


def _programs(params: Any) -> Iterator[Program]:
    """Sub-programs among a control op's params; a user's rule, once it has been traced."""
    for value in params.values():
        for part in value if isinstance(value, tuple) else (value,):
            part = vars(part).get("program", part) if hasattr(part, "label") else part
            if isinstance(part, Program):
                yield part


# --- strong products -----------------------------------------------------------------------


def bind_strong(
    op: Op, values: Sequence[Any], depends: Sequence[bool], params: dict[str, Any]
) -> Any:
    """Apply an op; a product with one operand that depends on a cotangent, by its strong twin."""
    twin = STRONG.get(op.kind)
    if twin is None or sum(depends) != 1:
        return bind(op, *values, **params)
    at = list(depends).index(True)
    if op.kind == "MUL":
        return bind(twin, values[at], values[1 - at])
    if twin in ZEROS:  # linear in that operand alone
        return bind(twin if at == ZEROS[twin] else op, *values, **params)
    return bind(twin, *values, zeros=at, **params)


def run_strong(program: Program, args: Sequence[Any], flags: Sequence[bool]) -> tuple[Any, ...]:
    """Apply a program with strong products of what depends on the flagged inputs."""
    env: dict[Any, Any] = dict(zip(program.inputs, args, strict=True))
    linear: set[Any] = {v for v, f in zip(program.inputs, flags, strict=True) if f}
    for eq in program.equations:
        values = [env[a] if isinstance(a, Var) else a.value for a in eq.inputs]
        depends = [a in linear for a in eq.inputs]
        if any(depends):
            linear.update(eq.outputs)
        if any(depends) and expands_linear(eq.op):
            body = body_program(eq.op, tuple(a.spec for a in eq.inputs), eq.params)
            result: Any = run_strong(body, values, depends)
        else:
            result = bind_strong(eq.op, values, depends, dict(eq.params))
            result = result if eq.op.multiple else (result,)
        env.update(zip(eq.outputs, result, strict=True))
    return tuple(env[a] if isinstance(a, Var) else a.value for a in program.outputs)


__all__ = ["SELECTS", "STRONG", "bind_strong", "protection", "run_strong"]
