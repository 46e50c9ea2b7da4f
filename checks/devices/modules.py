"""Programs lowered once, many in a module.

The text for the reference interpreter and the compiled module for the device come from the same
lowering.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff.lower import mlir
from autodiff.lower.jax import flat_function, input_dtypes, needs_x64
from autodiff.lower.stablehlo import INTERPRETED, UnsupportedError, eval_stablehlo
from autodiff.program import Program
from autodiff.rounding import cast
from checks.devices.batch import Array, Case, Outcome
from checks.devices.environment import OPTIONS
from checks.devices.texts import Emitted

CHUNK = 60


@dataclasses.dataclass(frozen=True)
class Lowered:
    """What one program gave: its text's verdict and results, and the device's results."""

    emitted: Emitted | Exception
    device: Outcome


def run_modules(
    cases: Sequence[Case], device: str, precision: str, *, chunk: int = CHUNK
) -> list[Lowered]:
    """Lower programs to StableHLO, `chunk` of them as functions of one module; verify the text,
    run it by the reference interpreter, and run the compiled module on the device.

    Arguments: programs with their flat arguments; a JAX device profile; "float32" or "float64".
    Returns per case what the interpreter and the device gave, or the exceptions they ended with. A
    module that fails is halved until the programs at fault are alone.
    """
    results: list[Lowered] = []
    for start in range(0, len(cases), chunk):
        results += _together(list(cases[start : start + chunk]), device, precision)
    return results


def run_device(case: Case, device: str, precision: str) -> Outcome:
    """One program in a module of its own, compiled as `run_modules` does and run on the device."""
    import jax

    wide = needs_x64(case[0], precision)
    place = jax.devices(device.removeprefix("jax-"))[0]
    groups = [_arguments(case, precision)]
    try:
        with jax.enable_x64(wide or jax.config.jax_enable_x64), jax.default_device(place):
            lowered = jax.jit(_module([case], precision, {}), keep_unused=True).lower(groups)
            (results,) = _compiled(lowered)(groups)
    except Exception as error:  # the case's outcome
        return error
    return tuple(np.asarray(r) for r in results)


def _together(cases: list[Case], device: str, precision: str) -> list[Lowered]:
    import jax

    failed: dict[int, Exception] = {}
    wide = any(needs_x64(program, precision) for program, _ in cases)
    place = jax.devices(device.removeprefix("jax-"))[0]
    arguments = [_arguments(case, precision) for case in cases]
    try:
        with jax.enable_x64(wide or jax.config.jax_enable_x64), jax.default_device(place):
            lowered = jax.jit(_module(cases, precision, failed), keep_unused=True).lower(arguments)
            compiled = _compiled(lowered)
            raw = compiled(arguments)
        text = str(lowered.as_text())
        parts = mlir.functions(text)
        lacking = _lacking(parts, len(cases))
        if lacking and len(lacking) + len(failed) < len(cases):
            return _apart(cases, lacking, device, precision)
        emitted = _emitted(text, parts, cases, arguments, failed, bool(lacking))
    except Exception as error:  # any backend's error: halving finds whose it is
        if len(cases) == 1:
            return [Lowered(failed.get(0, error), failed.get(0, error))]
        middle = len(cases) // 2
        first = _together(cases[:middle], device, precision)
        return first + _together(cases[middle:], device, precision)
    outcomes: list[Lowered] = []
    rest = iter(raw)
    for i in range(len(cases)):
        if i in failed:
            outcomes.append(Lowered(failed[i], failed[i]))
        else:
            outcomes.append(Lowered(emitted[i], tuple(np.asarray(r) for r in next(rest))))
    return outcomes


Parts = dict[str, tuple[frozenset[str], frozenset[str]]]


def _lacking(parts: Parts, count: int) -> set[int]:
    """Cases with operations that the reference interpreter does not run."""
    return {i for i in range(count) if f"case{i}" in parts and parts[f"case{i}"][0] - INTERPRETED}


def _apart(cases: list[Case], lacking: set[int], device: str, precision: str) -> list[Lowered]:
    """The cases that the interpreter runs in one module, the others in another."""
    good = [i for i in range(len(cases)) if i not in lacking]
    parts = (good, sorted(lacking))
    done: dict[int, Lowered] = {}
    for part in parts:
        done.update(zip(part, _together([cases[i] for i in part], device, precision), strict=True))
    return [done[i] for i in range(len(cases))]


def _module(cases: Sequence[Case], precision: str, failed: dict[int, Exception]) -> Any:
    def main(groups: list[list[Any]]) -> list[Any]:
        results: list[Any] = []
        for i, ((program, _), group) in enumerate(zip(cases, groups, strict=True)):
            try:
                results.append(_named(program, precision, f"case{i}")(*group))
            except Exception as error:  # the case's outcome
                failed[i] = error
        return results

    return main


def _named(program: Program, precision: str, name: str) -> Any:
    """The program as a jitted function, which becomes a function `@name` of the module."""
    import jax

    flat = flat_function(program, precision=precision)

    def function(*arrays: Any) -> tuple[Any, ...]:
        return tuple(flat(*arrays)[0])

    function.__name__ = function.__qualname__ = name
    return jax.jit(function, keep_unused=True)


def _compiled(lowered: Any) -> Any:
    """Compile with the options that `$GRADSWEEP_XLA` names ("quick": an eighth of the time, last
    bits may differ); one that this XLA does not know is dropped.
    """
    settings = dict(OPTIONS[os.environ.get("GRADSWEEP_XLA", "quick")])
    while True:
        try:
            return lowered.compile(compiler_options=settings or None)
        except Exception as error:
            unknown = [k for k in settings if f"No such compile option: '{k}'" in str(error)]
            if not unknown:
                raise
            del settings[unknown[0]]


def _arguments(case: Case, precision: str) -> list[Array]:
    program, args = case
    dtypes = input_dtypes(program, precision)
    return [
        a if a.dtype == d else np.asarray(cast(a, d))
        for a, d in zip(map(np.asarray, args), dtypes, strict=True)
    ]


def _emitted(
    text: str,
    parts: Parts,
    cases: Sequence[Case],
    arguments: Sequence[list[Array]],
    failed: dict[int, Exception],
    lacking: bool,
) -> dict[int, Emitted | Exception]:
    """Per case its element types and the interpreter's results.

    Cases with operations that the interpreter lacks get an UnsupportedError; where the module as a
    whole does not run, all do.
    """
    names = [i for i in range(len(cases)) if i not in failed]
    values: Any = None
    if not lacking:
        try:
            flat = [a for group in arguments for a in group]
            values = iter(eval_stablehlo(text, flat, isolated=True))
        except UnsupportedError:
            values = None
    found: dict[int, Emitted | Exception] = {}
    for i in names:
        ops, types = parts[f"case{i}"]
        if values is None:
            missing = tuple(sorted(ops - INTERPRETED))
            what = f"the interpreter does not run {', '.join(missing) or 'this module'}"
            results: Any = UnsupportedError(what, "", "", ops=missing, reason=what)
        else:
            results = tuple(next(values) for _ in cases[i][0].outputs)
        found[i] = Emitted(types, ops, results)
    return found
