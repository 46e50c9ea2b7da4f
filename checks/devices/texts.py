"""Programs run as StableHLO text by the reference interpreter, many in one module."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff.errors import AutodiffError
from autodiff.lower import mlir
from autodiff.lower.jax import flat_function, input_dtypes, needs_x64
from autodiff.lower.stablehlo import INTERPRETED, eval_stablehlo
from autodiff.optional import require
from autodiff.program import Program
from autodiff.rounding import cast
from checks.devices.batch import CHUNK, Array, Case


@dataclasses.dataclass(frozen=True)
class Emitted:
    """What a program's StableHLO holds and gives.

    Attributes:
        types: floating element types of its tensors ("f32"; none for an integer program).
        ops: names of its operations, after chlo operations were rewritten.
        results: the flat results, or the UnsupportedError that says why the reference interpreter
            has none.
    """

    types: frozenset[str]
    ops: frozenset[str]
    results: tuple[Array, ...] | Exception


def run_texts(
    cases: Sequence[Case], precision: str, *, chunk: int = CHUNK
) -> list[Emitted | Exception]:
    """Lower programs to StableHLO, verify the text, and run it by the reference interpreter.

    `chunk` programs share one module: each is a function of its own, called by `@main`. Programs
    with operations that the interpreter lacks are run alone in a child process, which may die.

    Args:
        cases: programs without captures, each with its flat arguments.
        precision: "float64", "float32", "bfloat16" or "float16".
        chunk: how many programs to put in a module.

    Returns:
        For each case an `Emitted`, or the exception that lowering it or verifying its text raised.
    """
    require("jax", "jax", "StableHLO")
    results: list[Emitted | Exception] = []
    for start in range(0, len(cases), chunk):
        results += _together(list(cases[start : start + chunk]), precision)
    return results


def _together(cases: list[Case], precision: str) -> list[Emitted | Exception]:
    """Outcomes of cases in one module; halved where it does not verify or does not run."""
    outcomes: dict[int, Emitted | Exception] = {}
    text = _module(cases, precision, outcomes)
    try:
        parts = mlir.functions(text)
        unknown = any(ops - INTERPRETED for ops, _ in parts.values())
        if unknown and len(cases) > 1:
            return _apart(cases, precision, parts, outcomes)
        values: Any = eval_stablehlo(text, _all_arguments(cases, precision), isolated=True)
    except AutodiffError as error:
        if len(cases) > 1:
            middle = len(cases) // 2
            return _together(cases[:middle], precision) + _together(cases[middle:], precision)
        if 0 in outcomes:
            return [outcomes[0]]
        if not isinstance(error, mlir.UnsupportedError):
            return [error]
        ops, types = parts["case0"]
        return [Emitted(types, ops, error)]
    rest = iter(values)
    for i, (program, _) in enumerate(cases):
        if i not in outcomes:
            ops, types = parts[f"case{i}"]
            outcomes[i] = Emitted(types, ops, tuple(next(rest) for _ in program.outputs))
    return [outcomes[i] for i in range(len(cases))]


def _apart(
    cases: list[Case],
    precision: str,
    parts: dict[str, tuple[frozenset[str], frozenset[str]]],
    outcomes: dict[int, Emitted | Exception],
) -> list[Emitted | Exception]:
    """Outcomes where some cases hold operations that the interpreter lacks: those go alone."""
    results: dict[int, Emitted | Exception] = dict(outcomes)
    left = [i for i in range(len(cases)) if i not in outcomes]
    good = [i for i in left if not parts[f"case{i}"][0] - INTERPRETED]
    for i in left:
        if i not in good:
            results |= {i: _together([cases[i]], precision)[0]}
    if good:
        results |= dict(zip(good, _together([cases[i] for i in good], precision), strict=True))
    return [results[i] for i in range(len(cases))]


def _all_arguments(cases: Sequence[Case], precision: str) -> list[Array]:
    return [a for case in cases for a in _arguments(case, precision)]


def _arguments(case: Case, precision: str) -> list[Array]:
    program, args = case
    dtypes = input_dtypes(program, precision)
    return [
        a if a.dtype == d else np.asarray(cast(a, d))
        for a, d in zip(map(np.asarray, args), dtypes, strict=True)
    ]


def _module(cases: Sequence[Case], precision: str, outcomes: dict[int, Emitted | Exception]) -> str:
    """One module of all cases; those that do not lower get their exception as outcome instead."""
    import jax

    def main(groups: list[list[Any]]) -> list[Any]:
        results: list[Any] = []
        for i, ((program, _), group) in enumerate(zip(cases, groups, strict=True)):
            try:
                results.append(_named(program, precision, f"case{i}")(*group))
            except Exception as error:  # the case's outcome
                outcomes[i] = error
        return results

    wide = any(needs_x64(program, precision) for program, _ in cases)
    with jax.enable_x64(wide or jax.config.jax_enable_x64):
        structs = [
            [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in _arguments(case, precision)]
            for case in cases
        ]
        traced = jax.jit(main, keep_unused=True).trace(structs)
        return str(traced.lower(lowering_platforms=("cpu",)).as_text())


def _named(program: Program, precision: str, name: str) -> Any:
    """The program as a jitted function that becomes a function `@name` of the module."""
    import jax

    flat = flat_function(program, precision=precision)

    def function(*arrays: Any) -> tuple[Any, ...]:
        return flat(*arrays)[0]

    function.__name__ = function.__qualname__ = name
    return jax.jit(function, keep_unused=True)
