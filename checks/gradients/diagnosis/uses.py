"""Fan-out: the part of a gradient that comes through each use of a value.

Where the function can be traced, every use of a value that several equations read has a zero of its
own added: one pullback gives the cotangent `c` of each use, one jvp along a direction `d` the
tangent `v'` of each value, and `<c, v'>` is what comes through that use along `d`.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import autodiff as ad
from autodiff.errors import AutodiffError
from autodiff.forward import is_inexact
from autodiff.program import Program, Var
from autodiff.source import sourced
from autodiff.trace import bind, program_of, spec_of
from checks.gradients.diagnosis.causes import Fault
from checks.gradients.diagnosis.cotangent import typed
from checks.gradients.diagnosis.factors import named
from checks.gradients.diagnosis.trial import Trial
from checks.gradients.evidence import Probe
from checks.gradients.target import Target, pair

Array = np.ndarray[Any, Any]
USES = 16
CUSTOM = ("CUSTOM_VJP", "CUSTOM_JVP")


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


@dataclasses.dataclass(frozen=True)
class Use:
    """One use of a value: the value's name, the line of the use, and what comes through it along
    each direction.
    """

    name: str
    line: str | None
    through: tuple[float, ...]


def lost_use(trial: Trial, point: int) -> Fault | None:
    """A use that was not accumulated, was accumulated twice, or by a factor of its own."""
    if trial.is_narrow:
        return None
    probes = [trial.fresh(point, number) for number in (0, 1)]
    scaled: Fault | None = None
    for use in _uses(trial, [p.direction for p in probes]):
        share = _share(use, probes)
        if share is None:
            continue
        at = f"what comes through one use of {use.name}{f' ({use.line})' if use.line else ''}"
        value, error = share
        for k, text in (
            (0.0, f"lacks {at}: not accumulated"),
            (2.0, f"has {at} twice: accumulated twice"),
            (-1.0, f"has {at} with the wrong sign"),
        ):
            if abs(value - k) <= error:
                return Fault("accumulation", text)
        factor = named(trial.target, value, error)
        if factor.is_told and scaled is None:
            by = factor.phrase.removeprefix("is ").replace("the true one", at)
            scaled = Fault("accumulation", f"has {by}")
    return scaled


def _share(use: Use, probes: Sequence[Probe]) -> tuple[float, float] | None:
    """How often a use counts in the claim, and the error of that number; None where no number
    explains both directions.
    """
    (first, second), (a, b) = probes, use.through
    if not abs(a) > first.allowed:
        return None
    value, error = 1 + first.residual / a, first.allowed / abs(a)
    limit = second.allowed + error * abs(b)
    off = abs(second.residual - (value - 1) * b)
    return (value, error) if off <= limit <= abs(second.residual) / 4 else None


def _uses(trial: Trial, directions: Sequence[Sequence[Array]]) -> Iterator[Use]:
    target, cotangents = trial.target, typed(trial, trial.evidence.cotangents)
    if target.framework.name == "jax":
        from checks.gradients.diagnosis.uses_jax import uses

        return uses(target, cotangents, directions)
    if target.framework.name == "torch":
        from checks.gradients.diagnosis import uses_torch

        return uses_torch.uses(target, cotangents, directions)
    program = traced(target)
    if program is None:
        return iter(())
    return _of_program(inlined(program), target, cotangents, directions)


def _of_program(
    program: Program,
    target: Target,
    cotangents: Sequence[Array],
    directions: Sequence[Sequence[Array]],
) -> Iterator[Use]:
    """The uses of every value that is read more than once."""
    if program.captures:
        return
    sites = _sites(program)
    values = list(dict.fromkeys(var for var, _ in sites))
    places = {place: k for k, (_, place) in enumerate(sites)}
    points = tuple(np.asarray(p) for p in target.points)

    def spread(*zeros: Any) -> list[Any]:
        env = _run_with(program, points, {p: zeros[k] for p, k in places.items()})
        return [env[a] if isinstance(a, Var) else a.value for a in program.outputs]

    def every(*given: Any) -> list[Any]:
        env = _run_with(program, given, {})
        return [env[v] for v in values]

    try:
        _, pull = ad.vjp(spread, *(np.zeros(v.spec.shape, v.spec.dtype) for v, _ in sites))
        bars = pull(cotangents)
        dots = [ad.jvp(every, points, _dots(points, d))[1] for d in directions]
    except AutodiffError:  # a value without a derivative of one of the modes
        return
    makers = {v: eq.op.kind for eq in program.equations for v in eq.outputs}
    inputs = dict(zip(program.inputs, target.point_paths, strict=True))
    for (var, (n, _)), bar in zip(sites, bars, strict=True):
        name = inputs.get(var) or f"the result of {makers[var]}"
        k = values.index(var)
        through = tuple(pair([bar], [d[k]]) for d in dots)
        yield Use(name, program.equations[n].source, through)


Site = tuple[Var, tuple[int, int]]


def _sites(program: Program) -> list[Site]:
    """The uses of values that are read more than once: value, equation and place."""
    found: dict[Var, list[tuple[int, int]]] = {}
    for n, eq in enumerate(program.equations):
        for i, a in enumerate(eq.inputs):
            if isinstance(a, Var) and is_inexact(a.spec.dtype):
                found.setdefault(a, []).append((n, i))
    return [(v, p) for v, places in found.items() if 2 <= len(places) <= USES for p in places]


def _dots(points: Sequence[Array], direction: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(np.asarray(d, p.dtype) for p, d in zip(points, direction, strict=True))


def _run_with(
    program: Program, points: Sequence[Any], more: Mapping[tuple[int, int], Any]
) -> dict[Var, Any]:
    """The value of every variable, with something added to what some equations read."""
    env: dict[Var, Any] = dict(zip(program.inputs, points, strict=True))
    for n, eq in enumerate(program.equations):
        reads = [env[a] if isinstance(a, Var) else a.value for a in eq.inputs]
        reads = [r + more[n, i] if (n, i) in more else r for i, r in enumerate(reads)]
        with sourced(eq.source):
            result = bind(eq.op, *reads, **eq.params)
        env.update(zip(eq.outputs, result if eq.op.multiple else (result,), strict=True))
    return env
