"""Program to program: dead code, common subexpressions and folded convert pairs."""

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from autodiff.program import Atom, Equation, Literal, Program, Var


def dead_code(program: Program) -> Program:
    """Drop equations whose outputs nobody uses; effects (GUARD, TAP) stay."""
    live: set[Atom] = set(program.outputs)
    kept: list[Equation] = []
    for eq in reversed(program.equations):
        if not live.isdisjoint(eq.outputs) or eq.op.effect:
            kept.append(eq)
            live.update(eq.inputs)
    if len(kept) == len(program.equations):
        return program
    return dataclasses.replace(program, equations=tuple(reversed(kept)))


def substitute(eq: Equation, names: Mapping[Var, Atom]) -> Equation:
    """The equation with operands renamed."""
    if names.keys().isdisjoint(eq.inputs):
        return eq
    inputs = tuple([names.get(a, a) if type(a) is Var else a for a in eq.inputs])
    return with_inputs(eq, inputs)


def with_inputs(eq: Equation, inputs: tuple[Atom, ...]) -> Equation:
    """The equation on other operands."""
    return Equation(eq.op, inputs, eq.params, eq.outputs, eq.source)


def _key(atom: Atom) -> Any:
    if isinstance(atom, Var):
        return atom
    if atom.value.size > 16:
        return id(atom.value)
    return (atom.spec, atom.value.tobytes())


_first = operator.itemgetter(0)


def common_subexpressions(program: Program) -> Program:
    """Compute each distinct (op, operands, params) once; effects and controls stay apart."""
    names: dict[Var, Atom] = {}
    seen: dict[Any, tuple[Var, ...]] = {}
    kept: list[Equation] = []
    for old in program.equations:
        eq = substitute(old, names) if names else old
        if eq.op.effect or eq.op.control:
            kept.append(eq)
            continue
        params = tuple(sorted(eq.params.items(), key=_first)) if eq.params else ()
        key = (eq.op.kind, tuple([a if type(a) is Var else _key(a) for a in eq.inputs]), params)
        if key in seen:
            names.update(zip(eq.outputs, seen[key], strict=True))
        else:
            seen[key] = eq.outputs
            kept.append(eq)
    if not names:  # nothing was found
        return program
    outputs = tuple(names.get(a, a) if isinstance(a, Var) else a for a in program.outputs)
    return dataclasses.replace(program, equations=tuple(kept), outputs=outputs)


def fold_converts(program: Program) -> Program:
    """Drop a narrowing CAST followed by the CAST back: what XLA does on GPUs by default.

    A chain f32 -> bf16 -> f32 becomes the f32 value itself (openxla/xla#41605).
    """
    producers = {v: eq for eq in program.equations for v in eq.outputs}
    names: dict[Var, Atom] = {}
    kept: list[Equation] = []
    for old in program.equations:
        eq = substitute(old, names)
        inner = producers.get(eq.inputs[0]) if eq.inputs and isinstance(eq.inputs[0], Var) else None
        if eq.op.kind == "CAST" and inner is not None and inner.op.kind == "CAST":
            origin = substitute(inner, names).inputs[0]
            wide, narrow = origin.spec.dtype, inner.outputs[0].spec.dtype
            if wide == eq.outputs[0].spec.dtype and is_narrower(narrow, wide):
                names[eq.outputs[0]] = origin
                continue
        kept.append(eq)
    outputs = tuple(names.get(a, a) if isinstance(a, Var) else a for a in program.outputs)
    return dead_code(dataclasses.replace(program, equations=tuple(kept), outputs=outputs))


def is_narrower(a: np.dtype[Any], b: np.dtype[Any]) -> bool:
    """Whether dtype `a` has fewer bytes than `b` and both are floating."""
    return a.itemsize < b.itemsize and not (a.kind in "biu" or b.kind in "biu")


def simplify(program: Program) -> Program:
    """Common subexpressions, then dead code: one pass of each leaves nothing for another."""
    return dead_code(common_subexpressions(program))


__all__ = ["Literal", "common_subexpressions", "dead_code", "fold_converts", "simplify"]
