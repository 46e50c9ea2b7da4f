"""Where a NaN of a gradient comes from: the first number of the backward that is not finite, and
whether a cotangent of 0 met an infinite slope there (a branch that a where does not take).
"""

import dataclasses
import os
import traceback
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

import autodiff as ad
from autodiff.errors import AutodiffError
from autodiff.program import Program, Var
from autodiff.source import quoted
from autodiff.trace import bind
from checks.gradients.diagnosis.cotangent import typed
from checks.gradients.diagnosis.culprit import described
from checks.gradients.diagnosis.trial import Trial
from checks.gradients.modes import Modes
from checks.gradients.report import Cause
from checks.gradients.target import Target

Array = np.ndarray[Any, Any]
OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation of a backward: names of what it reads and writes, the arrays it wrote, what it
    is called, and the user's line.
    """

    reads: tuple[Hashable, ...]
    writes: tuple[Hashable, ...]
    values: tuple[Array, ...]
    name: str
    line: str | None


@dataclasses.dataclass(frozen=True, eq=False)
class Backward:
    """A backward run step by step.

    Arguments:
        origin: the step in which a gradient's NaN begins; None where it is not known.
        undone: the gradients if a cotangent of 0 times anything is 0; None where that was not run.
        selects: whether the function has a where.
    """

    origin: Step | None
    undone: list[Array] | None = None
    selects: bool = False


def origin_of(steps: Iterable[Step], finals: Sequence[Hashable]) -> Step | None:
    """The step in which the numbers of the `finals` that are not finite begin."""
    birth: dict[Hashable, Step] = {}
    for step in steps:
        before = next((birth[r] for r in step.reads if r in birth), step)
        for name, value in zip(step.writes, step.values, strict=True):
            if value.dtype.kind in "fc" and not np.all(np.isfinite(value)):
                birth[name] = before
    return next((birth[f] for f in finals if f in birth), None)


def not_finite(trial: Trial, modes: Modes | None) -> Cause | None:
    """The cause of a gradient that is not finite where the difference is; None where the backward
    cannot be followed.
    """
    target = trial.target
    if modes is None or modes.reverse is None:
        return None
    if target.manual.given:
        return _by_hand(trial, modes)
    found = _followed(target, trial.evidence.cotangents)
    if found is None:
        return None
    place = "" if found.origin is None else _placed(found.origin)
    if found.undone is not None and _repairs(trial, found.undone):
        branch = "the branch of a where that is not taken" if found.selects else "what is not used"
        text = f"NaN is 0 * inf: {branch} has no finite slope here; give it a safe argument "
        text += "by a where of its own, inside (the double where)"
        return Cause("where" if found.selects else "not finite", text, place)
    if found.origin is None:
        return None
    return Cause("not finite", _slope(trial, found.origin), place)


def _slope(trial: Trial, origin: Step) -> str:
    """A slope that is not finite at the point."""
    nan = any(np.any(np.isnan(v)) for v in origin.values)
    of = f"of {origin.name} " if origin.name else ""
    text = f"the slope {of}is {'NaN' if nan else 'infinite'} here"
    if not nan and any(np.any(np.isnan(g)) for g in trial.gradient):
        text += ", and times 0 it is NaN"
    return f"{text}; keep the argument off that point, by a where before it"


def _placed(step: Step) -> str:
    return step.name if step.line is None else quoted(step.line)


def _repairs(trial: Trial, undone: Sequence[Array]) -> bool:
    """Whether gradients are finite, and right wherever a difference can tell."""
    bad = [k for k, g in enumerate(trial.gradient) if not np.all(np.isfinite(g))]
    if not all(np.all(np.isfinite(undone[k])) for k in bad):
        return False
    mended = dataclasses.replace(
        trial.evidence,
        gradient=[undone[k] if k in bad else g for k, g in enumerate(trial.gradient)],
        probes=[],
    )
    other = dataclasses.replace(trial, evidence=mended)
    return not any(other.is_wrong(k) for k in bad)


def _followed(target: Target, cotangents: Sequence[Array]) -> Backward | None:
    """The backward of a framework, run step by step."""
    if target.framework.name == "jax":
        from checks.gradients.diagnosis.notfinite_jax import backward

        return backward(target, cotangents)
    if target.framework.name == "torch":
        from checks.gradients.diagnosis import notfinite_torch

        return notfinite_torch.backward(target, cotangents)
    return _ours(target, cotangents)


def _ours(target: Target, cotangents: Sequence[Array]) -> Backward | None:
    """The engine's own: a cotangent of 0 stays 0 there, so that a slope is what is left."""
    cts = [np.asarray(u, y.dtype) for u, y in zip(cotangents, target.centre, strict=True)]

    def pulled(*arrays: Any) -> Any:
        _, pull = ad.vjp(lambda *given: target.flat(given), *arrays)
        return [g for g in pull(cts) if g is not None]

    try:
        program = ad.trace(pulled, *target.points)
    except (AutodiffError, TypeError, ValueError):  # not written in traceable NumPy
        return None
    if program.captures:
        return None
    steps = _steps(program, target.points)
    return Backward(origin_of(steps, [v for v in program.outputs if isinstance(v, Var)]))


def _steps(program: Program, points: Sequence[Any]) -> Iterable[Step]:
    env: dict[Var, Any] = dict(zip(program.inputs, points, strict=True))
    for eq in program.equations:
        reads = [env[a] if isinstance(a, Var) else a.value for a in eq.inputs]
        result = bind(eq.op, *reads, **eq.params)
        outs = result if eq.op.multiple else (result,)
        env.update(zip(eq.outputs, outs, strict=True))
        names = tuple(a for a in eq.inputs if isinstance(a, Var))
        values = tuple(np.asarray(y) for y in outs)
        yield Step(names, tuple(eq.outputs), values, "", eq.source)


def _by_hand(trial: Trial, modes: Modes) -> Cause | None:
    """The first line of a derivative written by hand that NumPy calls invalid."""
    assert modes.reverse is not None
    us = typed(trial, trial.evidence.cotangents)
    try:
        with np.errstate(divide="raise", invalid="raise", over="raise"):
            modes.reverse(us)
    except FloatingPointError as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if not os.path.abspath(f.filename).startswith(OURS)]
        frame = own[-1] if own else None
        text = f"the derivative has a step that is not finite: {error}"
        if frame is None:
            return Cause("not finite", text)
        where = described(frame.filename, frame.lineno or 0, frame.name)
        return Cause("not finite", text, f"at {where}: `{frame.line}`" if frame.line else where)
    return None
