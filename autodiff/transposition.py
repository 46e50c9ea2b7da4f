"""Transposing linear programs, and cotangent accumulation."""

import dataclasses
import functools
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from autodiff import strong as strength
from autodiff.errors import ShapeError
from autodiff.expansion import linear_expanded
from autodiff.forward import is_inexact
from autodiff.op import Op, get, missing_rule
from autodiff.program import Equation, Literal, Program, Spec, Var
from autodiff.trace import bind, program_of, spec_of


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
        if spec is not var.spec:
            ct = _fitted(ct, spec, var.spec, kind)
        known = self.values.get(var)
        self.values[var] = ct if known is None else bind("ADD", known, ct)

    def pop(self, var: Var) -> Any:
        """Take the finished cotangent of a variable."""
        return self.values.pop(var, None)


def _fitted(ct: Any, spec: Spec, wanted: Spec, kind: str) -> Any:
    """A cotangent at the dtype of its variable; another shape is a rule's fault."""
    if spec.shape != wanted.shape:
        raise ShapeError(
            f"the pullback of {kind} returned shape {spec.shape} for an operand of {wanted}"
        )
    if spec.dtype.kind == "c" and wanted.dtype.kind != "c":
        ct = bind("REAL", ct)
    return ct if spec_of(ct) is wanted else bind("CAST", ct, dtype=wanted.dtype)


def transpose_eval(
    program: Program,
    known: Sequence[Any],
    cotangents: Sequence[Any],
    strong: bool | AbstractSet[Var] = False,
) -> tuple[Any, ...]:
    """Transpose a program that is linear in its last inputs; `known` are the first ones.

    Equations that do not depend on the linear inputs are evaluated; the others are transposed in
    reverse order, by strong products where `strong` is True or holds their results.
    Returns the cotangents of the linear inputs.
    """
    env: dict[Var, Any] = dict(zip(program.inputs, known, strict=False))
    linear, before, tape = _linear_parts(program, len(known))
    for eq in before:
        values = [a.value if isinstance(a, Literal) else env[a] for a in eq.inputs]
        result = bind(eq.op, *values, **eq.params)
        env.update(zip(eq.outputs, result if eq.op.multiple else (result,), strict=True))
    cts = Cotangents()
    for atom, ct in zip(program.outputs, cotangents, strict=True):
        if isinstance(atom, Var) and atom in linear:
            cts.add(atom, ct)
    for eq in reversed(tape):
        out_cts = tuple([cts.pop(v) for v in eq.outputs])
        if all([c is None for c in out_cts]):
            continue
        inputs = tuple(
            [
                a.value
                if isinstance(a, Literal)
                else (Undefined(a.spec) if a in linear else env[a])
                for a in eq.inputs
            ]
        )
        strongly = strong if isinstance(strong, bool) else not strong.isdisjoint(eq.outputs)
        pulled = _transpose_equation(eq, out_cts, inputs, strongly)
        for atom, ct in zip(eq.inputs, pulled, strict=True):
            if isinstance(atom, Var) and atom in linear:
                cts.add(atom, ct, eq.op.kind)
    return tuple(cts.pop(v) for v in program.inputs[len(known) :])


Parts = tuple[frozenset[Var], tuple[Equation, ...], tuple[Equation, ...]]


def _linear_parts(program: Program, known: int) -> Parts:
    """The values that depend on the inputs after the first `known`, the equations of the others,
    and the equations of these; found once for a program, which is transposed many times.
    """
    cached: dict[int, Parts] = program.__dict__.setdefault("_linear_parts", {})
    if known not in cached:
        linear = set(program.inputs[known:])
        before: list[Equation] = []
        tape: list[Equation] = []
        for eq in program.equations:
            if any(a in linear for a in eq.inputs):
                linear.update(eq.outputs)
                tape.append(eq)
            else:
                before.append(eq)
        cached[known] = frozenset(linear), tuple(before), tuple(tape)
    return cached[known]


def _transpose_equation(
    eq: Equation, out_cts: tuple[Any, ...], inputs: tuple[Any, ...], strongly: bool
) -> tuple[Any, ...]:
    op = eq.op
    if op.transpose is None:
        raise missing_rule(op, "transpose", eq.source)
    if strongly and op.kind in strength.STRONG:
        return strong_transpose(op, out_cts[0], inputs, dict(eq.params))
    params = {**eq.params, "strongly": True} if strongly and op.kind in strength.BOTH else eq.params
    pulled: tuple[Any, ...] = op.transpose(out_cts if op.multiple else out_cts[0], inputs, **params)
    return pulled


def strong_transpose(
    op: Op, ct: Any, inputs: Sequence[Any], params: dict[str, Any], zeros: int | None = None
) -> tuple[Any, ...]:
    """The transpose of a product, 0 where the cotangent is 0 whatever the known operands are.

    With `zeros`, the zeros of that known operand win instead of the cotangent's.
    """
    if zeros is None and op.kind in ("MUL", "DIV"):
        twin = get(strength.STRONG[op.kind])
        assert twin.transpose is not None
        swapped = op.kind == "MUL" and not isinstance(inputs[0], Undefined)
        pulled: tuple[Any, ...] = twin.transpose(ct, inputs[::-1] if swapped else inputs)
        return pulled[::-1] if swapped else pulled
    linear = tuple(isinstance(x, Undefined) for x in inputs)
    specs = tuple(x.spec if isinstance(x, Undefined) else spec_of(x) for x in inputs)
    program = _transpose_program(op, spec_of(ct), specs, linear, tuple(sorted(params.items())))
    known = [(i, x) for i, x in enumerate(inputs) if not isinstance(x, Undefined)]
    flags = [i == zeros for i, _ in known]
    args = (*(x for _, x in known), ct)
    results = iter(strength.run_strong(program, args, (*flags, zeros is None)))
    return tuple(next(results) if u else None for u in linear)


@functools.lru_cache(maxsize=1024)
def _transpose_program(
    op: Op,
    ct_spec: Spec,
    in_specs: tuple[Spec, ...],
    linear: tuple[bool, ...],
    params: tuple[tuple[str, Any], ...],
) -> Program:
    """The op's transpose as a program (known operands, cotangent) -> cotangents."""

    def f(*args: Any) -> tuple[Any, ...]:
        known = iter(args[:-1])
        inputs = tuple(
            Undefined(s) if u else next(known) for s, u in zip(in_specs, linear, strict=True)
        )
        assert op.transpose is not None
        pulled = op.transpose(args[-1], inputs, **dict(params))
        return tuple(p for p, u in zip(pulled, linear, strict=True) if u)

    known_specs = [s for s, u in zip(in_specs, linear, strict=True) if not u]
    program = program_of(f, (*known_specs, ct_spec), name=f"transpose_{op.kind.lower()}")
    return linear_expanded(program, len(known_specs))


__all__ = ["Cotangents", "Undefined", "strong_transpose", "transpose_eval"]
