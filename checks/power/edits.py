"""Slips inside a rule: one equation of the program it traces to, computed otherwise.

A *site* is an equation and what it computes instead; each function here lists the sites of one
kind of slip in a program whose last inputs (from `known` on) enter linearly.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from autodiff.forward import is_inexact
from autodiff.program import Equation, Literal, Program, Spec, Var
from autodiff.trace import bind, spec_of

Override = Callable[[Equation, list[Any]], tuple[Any, ...]]
CONSTANT = 1.25
EXCHANGED = frozenset({"SUB", "DIV", "POW", "ATAN2", "MATMUL", "STRONG_DIV", "REM"})
PRODUCTS = frozenset({"MATMUL"})


@dataclasses.dataclass(frozen=True, eq=False)
class Site:
    """Where a slip may happen: the equation's number and what it computes instead."""

    equation: int
    override: Override


Finder = Callable[[Program, int], Iterator[Site]]


def run_slipped(program: Program, values: list[Any], site: Site) -> tuple[Any, ...]:
    """The program on values, traced or concrete, with the slip."""
    env: dict[Any, Any] = dict(zip(program.inputs, values, strict=True))
    for number, eq in enumerate(program.equations):
        args = [env[a] if isinstance(a, Var) else a.value for a in eq.inputs]
        results = site.override(eq, args) if number == site.equation else _apply(eq, args)
        env.update(zip(eq.outputs, results, strict=True))
    return tuple(env[a] if isinstance(a, Var) else a.value for a in program.outputs)


def _apply(eq: Equation, args: list[Any], **changed: Any) -> tuple[Any, ...]:
    result = bind(eq.op, *args, **{**eq.params, **changed})
    return tuple(result) if eq.op.multiple else (result,)


def linear_values(program: Program, known: int) -> set[Any]:
    """The variables that depend on the linear inputs."""
    linear: set[Any] = set(program.inputs[known:])
    for eq in program.equations:
        if any(a in linear for a in eq.inputs):
            linear.update(eq.outputs)
    return linear


def _zeros(value: Any) -> Any:
    spec = spec_of(value)
    return np.zeros(spec.shape, spec.dtype)


# --- terms ---------------------------------------------------------------------------------


def dropped_summands(program: Program, known: int) -> Iterator[Site]:
    """Each side of each sum of two linear terms, lost."""
    linear = linear_values(program, known)
    for number, eq in enumerate(program.equations):
        if eq.op.kind in ("ADD", "SUB") and all(a in linear for a in eq.inputs):
            yield Site(number, _without(0))
            yield Site(number, _without(1))


def _without(side: int) -> Override:
    def override(eq: Equation, args: list[Any]) -> tuple[Any, ...]:
        return _apply(eq, [_zeros(a) if i == side else a for i, a in enumerate(args)])

    return override


def lost_uses(program: Program, known: int) -> Iterator[Site]:
    """The last use of a linear value that is used more than once, lost."""
    linear = linear_values(program, known)
    uses: dict[Any, list[tuple[int, int]]] = {}
    for number, eq in enumerate(program.equations):
        for position, a in enumerate(eq.inputs):
            if a in linear and is_inexact(a.spec.dtype):
                uses.setdefault(a, []).append((number, position))
    for places in uses.values():
        if len(places) > 1 and program.equations[places[-1][0]].op.kind not in ("ADD", "SUB"):
            number, position = places[-1]
            yield Site(number, _without(position))


def lost_sums(program: Program, known: int) -> Iterator[Site]:
    """A sum over axes that took the first entry only."""
    linear = linear_values(program, known)
    for number, eq in enumerate(program.equations):
        if eq.op.kind in ("SUM_TO", "SUM", "WIDE_SUM") and eq.inputs[0] in linear:
            if eq.inputs[0].spec.size != eq.outputs[0].spec.size:
                yield Site(number, _first_entry)


def _first_entry(eq: Equation, args: list[Any]) -> tuple[Any, ...]:
    (x,), spec, target = args, eq.inputs[0].spec, eq.outputs[0].spec
    if eq.op.kind in ("SUM", "WIDE_SUM"):
        summed = set(eq.params["axis"])
    else:
        own = (1,) * (spec.ndim - target.ndim) + target.shape
        summed = {i for i, (n, m) in enumerate(zip(spec.shape, own, strict=True)) if n != m}
    if not spec.size:
        return _apply(eq, args)
    stop = tuple(1 if i in summed else n for i, n in enumerate(spec.shape))
    first = bind("SLICE", x, start=(0,) * spec.ndim, stop=stop, stride=(1,) * spec.ndim)
    return (bind("RESHAPE", first, shape=target.shape),)


def exchanged_operands(program: Program, known: int) -> Iterator[Site]:
    """The operands of an equation that does not commute, exchanged where the shapes allow it."""
    linear = linear_values(program, known)
    for number, eq in enumerate(program.equations):
        if eq.op.kind not in EXCHANGED or eq.inputs[0] is eq.inputs[1]:
            continue
        sides = [a in linear for a in eq.inputs]
        reversed_specs = tuple(a.spec for a in eq.inputs[::-1])
        fits = specs_or_none(eq, eq.params, reversed_specs) == (eq.outputs[0].spec,)
        if fits and (sides[0] == sides[1] or eq.op.kind in PRODUCTS):
            yield Site(number, lambda eq, args: _apply(eq, args[::-1]))


# --- constants -----------------------------------------------------------------------------


def wrong_constants(program: Program, known: int) -> Iterator[Site]:
    """A floating constant of the rule, off by a quarter."""
    del known
    for number, eq in enumerate(program.equations):
        for position, a in enumerate(eq.inputs):
            if isinstance(a, Literal) and is_inexact(a.spec.dtype) and a.value.size:
                yield Site(number, _off(position))


def _off(position: int) -> Override:
    def override(eq: Equation, args: list[Any]) -> tuple[Any, ...]:
        value = np.asarray(args[position])
        wrong = np.where(value == 0, CONSTANT - 1, value * CONSTANT).astype(value.dtype)
        return _apply(eq, [wrong if i == position else a for i, a in enumerate(args)])

    return override


# --- order of entries ----------------------------------------------------------------------


def missing_transposes(program: Program, known: int) -> Iterator[Site]:
    """A transpose, a transposed solve or a conjugation left out."""
    del known
    for number, eq in enumerate(program.equations):
        if eq.op.kind == "TRANSPOSE" and eq.params["axes"] != tuple(range(eq.inputs[0].spec.ndim)):
            yield Site(number, _reshaped)
        elif "trans" in eq.params:
            yield Site(number, lambda eq, a: _apply(eq, a, trans=not eq.params["trans"]))
        elif eq.op.kind == "CONJ":
            yield Site(number, lambda eq, a: tuple(a))


def _reshaped(eq: Equation, args: list[Any]) -> tuple[Any, ...]:
    """The operand in its own order of entries, of the shape that is due."""
    target = eq.outputs[0].spec.shape
    same = eq.inputs[0].spec.shape == target
    return (args[0] if same else bind("RESHAPE", args[0], shape=target),)


def identity_permutations(program: Program, known: int) -> Iterator[Site]:
    """The identity in place of a flip or a permutation, a scan in the other direction."""
    linear = linear_values(program, known)
    for number, eq in enumerate(program.equations):
        flag = eq.params.get("reverse")
        same = eq.inputs and eq.inputs[0].spec == eq.outputs[0].spec
        if eq.op.kind == "REVERSE":
            yield Site(number, lambda eq, a: (a[0],))
        elif isinstance(flag, bool) and not eq.op.control:
            yield Site(number, lambda eq, a: _apply(eq, a, reverse=not eq.params["reverse"]))
        elif same and eq.op.kind in ("GATHER", "TAKE_ALONG_AXIS", "ROLL"):
            if eq.inputs[0] in linear or not known:
                yield Site(number, lambda eq, a: (a[0],))


def wrong_axes(program: Program, known: int) -> Iterator[Site]:
    """An axis off by one, where the result keeps its number of entries."""
    del known
    for number, eq in enumerate(program.equations):
        if "axis" not in eq.params or not eq.inputs:
            continue
        for step in (1, -1):
            params = shifted_axis(eq.params, max(eq.inputs[0].spec.ndim, 1), step)
            if params is not None and _fits(eq, params):
                yield Site(number, _with_params(params))
                break


def shifted_axis(params: Mapping[str, Any], ndim: int, step: int) -> dict[str, Any] | None:
    """The params with their axis moved by one, or None where that is the same axis."""
    axis = params.get("axis")
    if isinstance(axis, int):
        moved: Any = (axis + step) % ndim
    elif isinstance(axis, tuple) and axis:
        moved = tuple(sorted((a + step) % ndim for a in axis))
    else:
        return None
    return None if moved == axis else {**params, "axis": moved}


def _fits(eq: Equation, params: Mapping[str, Any]) -> bool:
    specs = specs_or_none(eq, params)
    if specs is None:
        return False
    due = [v.spec for v in eq.outputs]
    return [s.size for s in specs] == [s.size for s in due]


def specs_or_none(
    eq: Equation, params: Mapping[str, Any], operands: tuple[Spec, ...] | None = None
) -> tuple[Spec, ...] | None:
    """Specs of an equation's results under other params or operands; None where the op refuses."""
    try:
        return eq.op.out_specs(operands or tuple(a.spec for a in eq.inputs), params)
    except (ValueError, IndexError, TypeError):  # ShapeError is a ValueError
        return None


def _with_params(params: Mapping[str, Any]) -> Override:
    def override(eq: Equation, args: list[Any]) -> tuple[Any, ...]:
        results = _apply(eq, args, **params)
        due = [v.spec.shape for v in eq.outputs]
        return tuple(
            r if np.shape(r) == s else bind("RESHAPE", r, shape=s)
            for r, s in zip(results, due, strict=True)
        )

    return override
