"""Fan-out: the part of a gradient that comes through each use of a value.

Where the function can be traced, a value that several equations read is given to each of them as
an argument of its own; the gradient through one use alone is that argument's.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import autodiff as ad
from autodiff.errors import AutodiffError
from autodiff.forward import is_inexact
from autodiff.program import Program, Var
from autodiff.source import sourced
from autodiff.trace import bind, program_of, spec_of
from checks.gradients.diagnosis.causes import Fault
from checks.gradients.diagnosis.trial import Trial
from checks.gradients.target import Target, wide

Array = np.ndarray[Any, Any]
USES = 16
CUSTOM = ("CUSTOM_VJP", "CUSTOM_JVP")
Parts = list[tuple[str, Array]]


def traced(target: Target) -> Program | None:
    """The program of a NumPy function at its points; None where it cannot be traced."""
    if target.framework.name != "numpy":
        return None

    def flat(*arrays: Any) -> list[Any]:
        return target.flat(arrays)

    try:
        return program_of(flat, [spec_of(p) for p in target.points], target.name)
    except (AutodiffError, TypeError, ValueError):  # not written in traceable NumPy
        return None


def inlined(program: Program) -> Program:
    """A program with the bodies of custom rules in their place: derivatives are then our own."""
    if program.captures or not any(eq.op.kind in CUSTOM for eq in program.equations):
        return program

    def flat(*arrays: Any) -> list[Any]:
        return _run(program, arrays)

    return program_of(flat, program.in_specs, program.name)


def _run(program: Program, arrays: Sequence[Any]) -> list[Any]:
    env: dict[Var, Any] = dict(zip(program.inputs, arrays, strict=True))
    for eq in program.equations:
        reads = [env[a] if isinstance(a, Var) else a.value for a in eq.inputs]
        body = eq.params.get("body") if eq.op.kind in CUSTOM else None
        if isinstance(body, Program) and not body.captures and len(body.inputs) == len(reads):
            outs: Sequence[Any] = _run(body, reads)
        else:
            with sourced(eq.source):
                result = bind(eq.op, *reads, **eq.params)
            outs = result if eq.op.multiple else (result,)
        env.update(zip(eq.outputs, outs, strict=True))
    return [env[a] if isinstance(a, Var) else a.value for a in program.outputs]


def lost_use(trial: Trial, point: int) -> Fault | None:
    """A use that was not accumulated, was accumulated twice, or is the only one left."""
    if trial.is_narrow:
        return None
    found = _of_framework(trial, point)
    claim = trial.gradient[point]
    for name, parts in found:
        for line, part in parts:
            at = f"of {name}{f' ({line})' if line else ''}"
            for text, new in (
                (f"lacks what comes through one use {at}: not accumulated", claim + part),
                (f"has what comes through one use {at} twice: accumulated twice", claim - part),
            ):
                if np.any(part) and trial.holds(point, new):
                    return Fault("accumulation", text, new)
    return None


def _of_framework(trial: Trial, point: int) -> Iterator[tuple[str, Parts]]:
    if trial.target.framework.name == "jax":
        from checks.gradients.diagnosis.uses_jax import contributions

        return contributions(trial, point)
    program = traced(trial.target)
    return iter(()) if program is None else _contributions(trial, inlined(program), point)


def _contributions(trial: Trial, program: Program, point: int) -> Iterator[tuple[str, Parts]]:
    """Per value read more than once: the parts of the gradient of a point through each use."""
    target = trial.target
    for var in [*program.inputs, *(v for eq in program.equations for v in eq.outputs)]:
        sites = [
            (n, i)
            for n, eq in enumerate(program.equations)
            for i, a in enumerate(eq.inputs)
            if a is var
        ]
        if trial.spent:
            return
        if not 2 <= len(sites) <= USES or not is_inexact(var.spec.dtype):
            continue
        parts: Parts = []
        for n, i in sites:
            part = _through(trial, program, point, var, (n, i))
            if part is not None:
                parts.append((program.equations[n].source or "", part))
        if var in program.inputs:
            name = target.point_paths[program.inputs.index(var)]
        else:
            made = next(e for e in program.equations if var in e.outputs)
            name = f"the result of {made.op.kind}"
        yield name, parts


def _through(
    trial: Trial, program: Program, point: int, var: Var, site: tuple[int, int]
) -> Array | None:
    """The gradient through one use: that use reads `var`, all others its value held still."""
    if program.captures:
        return None
    points = [np.asarray(p) for p in trial.target.points]
    env = values_of(program, points)

    def flat(x: Any) -> list[Any]:
        given = [x if k == point else p for k, p in enumerate(points)]
        moving = values_of(program, given, var)[var]
        live: dict[Var, Any] = {}
        for n, eq in enumerate(program.equations):
            touched = n == site[0] or any(isinstance(a, Var) and a in live for a in eq.inputs)
            if not touched:
                continue
            reads = [
                a.value
                if not isinstance(a, Var)
                else moving
                if (n, i) == site
                else live.get(a, env[a])
                for i, a in enumerate(eq.inputs)
            ]
            result = bind(eq.op, *reads, **eq.params)
            live.update(zip(eq.outputs, result if eq.op.multiple else (result,), strict=True))
        return [live.get(a, env[a]) if isinstance(a, Var) else a.value for a in program.outputs]

    cotangents = [
        np.asarray(u, y.dtype)
        for u, y in zip(trial.evidence.cotangents, trial.target.centre, strict=True)
    ]
    _, pull = ad.vjp(flat, points[point])
    (part,) = pull(cotangents)
    return None if part is None else wide(np.asarray(part))


def values_of(program: Program, points: Sequence[Any], until: Var | None = None) -> dict[Var, Any]:
    """The value of every variable at arguments; no further than `until` where it is given."""
    env: dict[Var, Any] = dict(zip(program.inputs, points, strict=True))
    for eq in program.equations:
        if until in env:
            break
        reads = [env[a] if isinstance(a, Var) else a.value for a in eq.inputs]
        result = bind(eq.op, *reads, **eq.params)
        env.update(zip(eq.outputs, result if eq.op.multiple else (result,), strict=True))
    return env
