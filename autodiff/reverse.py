"""Reverse mode: pullbacks derived by transposing jvps, and cotangent accumulation.

The pullback of an equation is the transpose of its op's jvp, unless the op gives a `vjp` where
the transposed rule would lose digits. Equations upstream of a WHERE branch use the products
STRONG_MUL and STRONG_DIV, which are 0 where the cotangent is 0, so that a branch that was not
selected never poisons a derivative (0 * inf), at any order.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.forward import is_inexact
from autodiff.interpret import run
from autodiff.op import Op, body_program, missing_rule
from autodiff.program import Equation, Literal, Program, Spec, Var
from autodiff.trace import bind, mark, mark_as, program_of, sourced, spec_of

STRONG = {"MUL": "STRONG_MUL", "DIV": "STRONG_DIV"}


@dataclasses.dataclass(frozen=True)
class Undefined:
    """A linear operand in a transpose rule: its value is not known, only its spec."""

    spec: Spec

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the operand."""
        return self.spec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the operand."""
        return self.spec.dtype


class Cotangents:
    """Accumulated cotangents by variable; None stands for zero. Accumulation lives only here."""

    def __init__(self) -> None:
        self.values: dict[Var, Any] = {}

    def add(self, var: Any, ct: Any, kind: str = "output") -> None:
        """Add a contribution, fitted to the variable's spec."""
        if ct is None or not isinstance(var, Var) or not is_inexact(var.spec.dtype):
            return
        spec = spec_of(ct)
        if spec.shape != var.spec.shape:
            raise ShapeError(
                f"the pullback of {kind} returned shape {spec.shape} for an operand of {var.spec}"
            )
        if spec.dtype != var.spec.dtype:
            if spec.dtype.kind == "c" and var.spec.dtype.kind != "c":
                ct = bind("REAL", ct)
            if spec_of(ct).dtype != var.spec.dtype:
                ct = bind("CAST", ct, dtype=var.spec.dtype)
        known = self.values.get(var)
        self.values[var] = ct if known is None else bind("ADD", known, ct)

    def pop(self, var: Var) -> Any:
        """Take the finished cotangent of a variable."""
        return self.values.pop(var, None)


def needs_expansion(op: Op) -> bool:
    """Whether reverse mode goes through the op's body: a composite without a rule of its own."""
    return op.body is not None and op.jvp is None and op.vjp is None and op.derivative == "rule"


def expanded(program: Program) -> Program:
    """The program with composites that lack derivative rules replaced by their bodies."""
    if not any(needs_expansion(eq.op) for eq in program.equations):
        return program
    n = len(program.captures)
    specs = tuple(v.spec for v in (*program.captures, *program.inputs))
    flat = program_of(
        lambda *a: run(program, a[n:], a[:n], expand=needs_expansion), specs, program.name
    )
    return dataclasses.replace(flat, captures=flat.inputs[:n], inputs=flat.inputs[n:])


def upstream_of_where(program: Program) -> frozenset[int]:
    """Indices of equations whose outputs reach a branch operand of a WHERE.

    The factor of a STRONG product counts as one: it stems from such a branch, one order below.
    """
    marked: set[Var] = set()
    found: set[int] = set()
    for number in range(len(program.equations) - 1, -1, -1):
        eq = program.equations[number]
        if any(v in marked for v in eq.outputs):
            found.add(number)
            marked.update(a for a in eq.inputs if isinstance(a, Var))
        elif eq.op.kind == "WHERE" or eq.op.kind in STRONG.values():
            marked.update(a for a in eq.inputs[1:] if isinstance(a, Var))
    return frozenset(found)


def vjp_eval(
    program: Program,
    primals: Sequence[Any],
    captures: Sequence[Any] = (),
    wanted: Sequence[bool] | None = None,
) -> tuple[tuple[Any, ...], Callable[[Sequence[Any]], tuple[Any, ...]]]:
    """Outputs, and the pullback from output cotangents (None: zero) to input cotangents.

    `wanted` says which inputs need a cotangent; captures' cotangents follow the inputs'.
    """
    program = expanded(program)
    env: dict[Var, Any] = dict(zip(program.captures, captures, strict=True))
    env.update(zip(program.inputs, primals, strict=True))
    parameters = (*program.inputs, *program.captures)
    mask = list(wanted) if wanted is not None else [True] * len(parameters)
    mask += [True] * (len(parameters) - len(mask))
    active = {v for v, w in zip(parameters, mask, strict=True) if w and is_inexact(v.spec.dtype)}
    tape: list[int] = []
    residuals: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for number, eq in enumerate(program.equations):
            values = [a.value if isinstance(a, Literal) else env[a] for a in eq.inputs]
            taped = eq.op.derivative == "rule" and any(a in active for a in eq.inputs)
            with sourced(eq.source):
                if taped and eq.op.residual is not None:
                    result, residuals[number] = eq.op.residual(tuple(values), **eq.params)
                else:
                    result = bind(eq.op, *values, **eq.params)
            results = result if eq.op.multiple else (result,)
            env.update(zip(eq.outputs, results, strict=True))
            mark_as(eq.outputs, results, env)
            if taped:
                active.update(v for v in eq.outputs if is_inexact(v.spec.dtype))
                tape.append(number)
    outputs = tuple(a.value if isinstance(a, Literal) else env[a] for a in program.outputs)
    strong = upstream_of_where(program)

    def pullback(cotangents: Sequence[Any]) -> tuple[Any, ...]:
        cts = Cotangents()
        with np.errstate(all="ignore"):
            for atom, ct in zip(program.outputs, cotangents, strict=True):
                cts.add(atom, ct)
            for number in reversed(tape):
                eq = program.equations[number]
                with sourced(eq.source, "bar"):
                    _pull_equation(eq, env, active, cts, number in strong, residuals.get(number))
            for v in parameters:
                mark("bar", env[v], cts.values.get(v))
            return tuple(cts.pop(v) if v in active else None for v in parameters)

    return outputs, pullback


def _pull_equation(
    eq: Equation,
    env: dict[Var, Any],
    active: set[Var],
    cts: Cotangents,
    strong: bool,
    residuals: Any = None,
) -> None:
    out_cts = tuple(cts.pop(v) for v in eq.outputs)
    if all(c is None for c in out_cts):
        return
    values = tuple(a.value if isinstance(a, Literal) else env[a] for a in eq.inputs)
    outs = tuple(env[v] for v in eq.outputs)
    for out, ct in zip(outs, out_cts, strict=True):
        mark("bar", out, ct)
    mask = tuple(isinstance(a, Var) and a in active for a in eq.inputs)
    if eq.op.control:
        pulled = _pull_control(eq, values, outs, out_cts, mask, residuals)
    else:
        pulled = pull(eq, values, outs, out_cts, mask, strong)
    for atom, ct in zip(eq.inputs, pulled, strict=True):
        if isinstance(atom, Var) and atom in active:
            cts.add(atom, ct, eq.op.kind)


def _pull_control(
    eq: Equation,
    values: tuple[Any, ...],
    outs: tuple[Any, ...],
    out_cts: tuple[Any, ...],
    mask: tuple[bool, ...],
    residuals: Any,
) -> tuple[Any, ...]:
    if eq.op.vjp is None:
        raise missing_rule(eq.op, "vjp", eq.source)
    extra = {} if eq.op.residual is None else {"residuals": residuals}
    return tuple(eq.op.vjp(out_cts, values, outs, wanted=mask, **extra, **eq.params))


def pull(
    eq: Equation,
    values: tuple[Any, ...],
    outs: tuple[Any, ...],
    out_cts: tuple[Any, ...],
    mask: tuple[bool, ...],
    strong: bool,
) -> tuple[Any, ...]:
    """Cotangents of an equation's operands (None where zero or not wanted)."""
    op = eq.op
    if op.vjp is not None:
        if strong:
            return _strong_vjp(eq, values, outs, out_cts)
        bare = out_cts if op.multiple else out_cts[0]
        results: tuple[Any, ...] = op.vjp(
            bare, values, outs if op.multiple else outs[0], **eq.params
        )
        return results
    if op.jvp is None:
        raise missing_rule(op, "jvp", eq.source)
    if op.transpose is not None and not strong and sum(mask) == len(mask) == 1:
        inputs = (Undefined(eq.inputs[0].spec),)
        linear: tuple[Any, ...] = op.transpose(
            out_cts if op.multiple else out_cts[0], inputs, **eq.params
        )
        return linear
    linear_program, nonzero = _tangent_program(
        op,
        tuple(a.spec for a in eq.inputs),
        tuple(v.spec for v in eq.outputs),
        tuple(sorted(eq.params.items())),
        mask,
    )
    wanted_cts = [c for c, nz in zip(out_cts, nonzero, strict=True) if nz]
    known = (*values, *outs)
    pulled = iter(transpose_eval(linear_program, known, wanted_cts, strong=strong))
    return tuple(next(pulled) if m else None for m in mask)


@functools.lru_cache(maxsize=4096)
def _tangent_program(
    op: Op,
    in_specs: tuple[Spec, ...],
    out_specs: tuple[Spec, ...],
    params: tuple[tuple[str, Any], ...],
    mask: tuple[bool, ...],
) -> tuple[Program, tuple[bool, ...]]:
    """The op's jvp as a program (primals, outputs, tangents) -> tangents, linear in the last."""
    n, m = len(in_specs), len(out_specs)
    nonzero: list[bool] = []

    def f(*args: Any) -> tuple[Any, ...]:
        primals, outs, rest = args[:n], args[n : n + m], iter(args[n + m :])
        tangents = tuple(next(rest) if b else None for b in mask)
        assert op.jvp is not None
        dots = op.jvp(primals, tangents, outs if op.multiple else outs[0], **dict(params))
        dots = tuple(dots) if op.multiple else (dots,)
        dots = tuple(
            d if is_inexact(s.dtype) else None for d, s in zip(dots, out_specs, strict=True)
        )
        nonzero[:] = [d is not None for d in dots]
        return tuple(d for d in dots if d is not None)

    tangent_specs = [s for s, b in zip(in_specs, mask, strict=True) if b]
    program = program_of(f, (*in_specs, *out_specs, *tangent_specs), name=f"jvp_{op.kind.lower()}")
    return linear_expanded(program, n + m), tuple(nonzero)


def linear_expanded(program: Program, known: int) -> Program:
    """The program with its composites in the linear inputs (those after the first `known`)
    replaced by their bodies; composites of known values stay, with their own derivative rules.
    """
    linear = set(program.inputs[known:])
    needed = False
    for eq in program.equations:
        if any(a in linear for a in eq.inputs):
            linear.update(eq.outputs)
            needed = needed or _expands(eq.op)
    if not needed:
        return program
    flags = [i >= known for i in range(len(program.inputs))]
    return program_of(
        lambda *a: _run_expanded(program, a, flags)[0], program.in_specs, program.name
    )


def _expands(op: Op) -> bool:
    return op.body is not None and op.transpose is None


def _run_expanded(
    program: Program, args: Sequence[Any], flags: Sequence[bool]
) -> tuple[tuple[Any, ...], list[bool]]:
    """Apply a program, expanding composites of linear operands; which outputs are linear."""
    env: dict[Any, Any] = dict(zip(program.inputs, args, strict=True))
    linear: set[Any] = {v for v, f in zip(program.inputs, flags, strict=True) if f}
    for eq in program.equations:
        values = [env[a] if isinstance(a, Var) else a.value for a in eq.inputs]
        depends = [a in linear for a in eq.inputs]
        outputs = [any(depends)] * len(eq.outputs)
        with sourced(eq.source):
            if any(depends) and _expands(eq.op):
                body = body_program(eq.op, tuple(a.spec for a in eq.inputs), eq.params)
                result, outputs = _run_expanded(body, values, depends)
            else:
                result = bind(eq.op, *values, **eq.params)
                result = result if eq.op.multiple else (result,)
        env.update(zip(eq.outputs, result, strict=True))
        mark_as(eq.outputs, result, env)
        linear.update(v for v, f in zip(eq.outputs, outputs, strict=True) if f)
    results = tuple(env[a] if isinstance(a, Var) else a.value for a in program.outputs)
    return results, [a in linear for a in program.outputs]


def transpose_eval(
    program: Program, known: Sequence[Any], cotangents: Sequence[Any], strong: bool = False
) -> tuple[Any, ...]:
    """Transpose a program that is linear in its last inputs; `known` are the first ones.

    Equations that do not depend on the linear inputs are evaluated; the others are transposed in
    reverse order. Returns the cotangents of the linear inputs.
    """
    env: dict[Var, Any] = dict(zip(program.inputs, known, strict=False))
    linear: set[Var] = set(program.inputs[len(known) :])
    tape: list[Equation] = []
    for eq in program.equations:
        if any(isinstance(a, Var) and a in linear for a in eq.inputs):
            linear.update(eq.outputs)
            tape.append(eq)
            continue
        values = [a.value if isinstance(a, Literal) else env[a] for a in eq.inputs]
        result = bind(eq.op, *values, **eq.params)
        env.update(zip(eq.outputs, result if eq.op.multiple else (result,), strict=True))
    cts = Cotangents()
    for atom, ct in zip(program.outputs, cotangents, strict=True):
        if isinstance(atom, Var) and atom in linear:
            cts.add(atom, ct)
    for eq in reversed(tape):
        out_cts = tuple(cts.pop(v) for v in eq.outputs)
        if all(c is None for c in out_cts):
            continue
        inputs = tuple(
            a.value if isinstance(a, Literal) else (Undefined(a.spec) if a in linear else env[a])
            for a in eq.inputs
        )
        op = eq.op
        if strong and op.kind in STRONG:
            from autodiff.op import get

            op = get(STRONG[op.kind])
        if op.transpose is None:
            raise missing_rule(op, "transpose", eq.source)
        # a strong product is 0 where its first operand is: the cotangent, not the known factor
        strengthened = op.kind == "STRONG_MUL" and eq.op.kind == "MUL"
        swapped = strengthened and not isinstance(inputs[0], Undefined)
        given = inputs[::-1] if swapped else inputs
        pulled = op.transpose(out_cts if op.multiple else out_cts[0], given, **eq.params)
        pulled = pulled[::-1] if swapped else pulled
        for atom, ct in zip(eq.inputs, pulled, strict=True):
            if isinstance(atom, Var) and atom in linear:
                cts.add(atom, ct, op.kind)
    return tuple(cts.pop(v) for v in program.inputs[len(known) :])


def _strong_vjp(
    eq: Equation, values: tuple[Any, ...], outs: tuple[Any, ...], out_cts: tuple[Any, ...]
) -> tuple[Any, ...]:
    """An op's own vjp with its cotangent products replaced by strong ones."""
    present = tuple(c is not None for c in out_cts)
    program, mask = _vjp_program(
        eq.op,
        tuple(a.spec for a in eq.inputs),
        tuple(v.spec for v in eq.outputs),
        tuple(sorted(eq.params.items())),
        present,
    )
    given = [c for c in out_cts if c is not None]
    env: dict[Var, Any] = dict(zip(program.inputs, (*values, *outs, *given), strict=True))
    linear = set(program.inputs[len(values) + len(outs) :])
    for inner in program.equations:
        args = [a.value if isinstance(a, Literal) else env[a] for a in inner.inputs]
        depends = [isinstance(a, Var) and a in linear for a in inner.inputs]
        op: Any = inner.op
        if any(depends):
            linear.update(inner.outputs)
        if inner.op.kind == "MUL" and sum(depends) == 1:
            op, args = "STRONG_MUL", args if depends[0] else args[::-1]
        elif inner.op.kind == "DIV" and depends == [True, False]:
            op = "STRONG_DIV"
        result = bind(op, *args, **inner.params)
        env.update(zip(inner.outputs, result if inner.op.multiple else (result,), strict=True))
    results = iter(a.value if isinstance(a, Literal) else env[a] for a in program.outputs)
    return tuple(next(results) if m else None for m in mask)


@functools.lru_cache(maxsize=1024)
def _vjp_program(
    op: Op,
    in_specs: tuple[Spec, ...],
    out_specs: tuple[Spec, ...],
    params: tuple[tuple[str, Any], ...],
    present: tuple[bool, ...],
) -> tuple[Program, tuple[bool, ...]]:
    """The op's vjp as a program (primals, outputs, cotangents) -> operand cotangents."""
    n, m = len(in_specs), len(out_specs)
    mask: list[bool] = []

    def f(*args: Any) -> tuple[Any, ...]:
        rest = iter(args[n + m :])
        cts = tuple(next(rest) if p else None for p in present)
        outs = args[n : n + m]
        assert op.vjp is not None
        bare_cts, bare_outs = (cts, outs) if op.multiple else (cts[0], outs[0])
        pulled = op.vjp(bare_cts, args[:n], bare_outs, **dict(params))
        mask[:] = [p is not None for p in pulled]
        return tuple(p for p in pulled if p is not None)

    ct_specs = [s for s, p in zip(out_specs, present, strict=True) if p]
    program = program_of(f, (*in_specs, *out_specs, *ct_specs), name=f"vjp_{op.kind.lower()}")
    return linear_expanded(program, n + m), tuple(mask)


@functools.lru_cache(maxsize=1024)
def vjp_program(
    program: Program, wanted: tuple[bool, ...], present: tuple[bool, ...]
) -> tuple[Program, tuple[bool, ...]]:
    """The program (inputs, present output cotangents) -> wanted input cotangents, and which of
    them are not identically zero (those alone are returned).
    """
    n = len(program.inputs)
    mask: list[bool] = []

    def f(*args: Any) -> tuple[Any, ...]:
        _, pullback = vjp_eval(program, args[:n], wanted=wanted)
        rest = iter(args[n:])
        pulled = pullback([next(rest) if p else None for p in present])
        mask[:] = [p is not None for p in pulled]
        return tuple(p for p in pulled if p is not None)

    ct_specs = [s for s, p in zip(program.out_specs, present, strict=True) if p]
    traced = program_of(f, (*program.in_specs, *ct_specs), name=f"vjp_{program.name}")
    return traced, tuple(mask)


__all__ = ["Undefined", "body_program", "transpose_eval", "vjp_eval", "vjp_program"]
