"""Faults in how a backward uses its cotangent: not at all, not linearly, in another order, or times
the Jacobian where its transpose is wanted.
"""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from checks.gradients.diagnosis.causes import Fault
from checks.gradients.diagnosis.trial import Trial, bends
from checks.gradients.ladder import climb
from checks.gradients.modes import ModeError, Modes, Pull, UndefinedModeError
from checks.gradients.report import Cause
from checks.gradients.target import Target, wide
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
ORDERS = 12
SCALE = -2.0  # a power of two: what rounds in float16 inside rounds alike


@dataclasses.dataclass(frozen=True)
class Use:
    """How the gradients go with the cotangent: the points whose gradient is the same for another
    one, and those whose gradient is not linear in it. A derivative is linear in it whatever the
    function, so that no difference is needed to say so.
    """

    target: Target
    ignored: tuple[int, ...] = ()
    bent: tuple[int, ...] = ()

    @property
    def sure(self) -> Cause | None:
        """The cause, where the cotangent does not matter."""
        text = "does not depend on the cotangent: the backward does not multiply by it"
        return self._cause(self.ignored, text)

    @property
    def left(self) -> Cause | None:
        """The cause where no other was found."""
        text = "is not linear in the cotangent: the backward clips it, or adds what ignores it"
        return self._cause(self.bent, text)

    def _cause(self, points: Sequence[int], text: str) -> Cause | None:
        paths = [self.target.point_paths[k] for k in points]
        if not paths:
            return None
        of = paths[0] if len(paths) == 1 else f"{', '.join(paths[:-1])} and {paths[-1]}"
        return Cause("cotangent", f"the gradient of {of} {text}")


def use_of(trial: Trial, modes: Modes | None) -> Use:
    """How the gradients go with the cotangent: two calls of the derivative."""
    if modes is None or modes.reverse is None or trial.shallow:
        return Use(trial.target)
    us, pull = list(trial.evidence.cotangents), modes.reverse
    try:
        first, other = (pull(typed(trial, [c * u for u in us])) for c in (1.0, SCALE))
    except (ModeError, UndefinedModeError):  # what made the claim is not what is asked here
        return Use(trial.target)
    ignored, bent = [], []
    for k, (a, b) in enumerate(zip(first, other, strict=True)):
        largest = float(np.max(np.abs(a), initial=0.0))
        if not largest or not (np.all(np.isfinite(a)) and np.all(np.isfinite(b))):
            continue
        near = constant("resolved") * trial.evidence.tolerance * largest
        if np.max(np.abs(b - a)) <= near:
            ignored.append(k)
        elif np.max(np.abs(b - SCALE * a)) > abs(SCALE) * near:
            bent.append(k)
    return Use(trial.target, tuple(ignored), tuple(bent))


def misused(trial: Trial, modes: Modes | None, point: int) -> Fault | None:
    """The cotangent in another order, or through the Jacobian instead of its transpose."""
    found = _untransposed(trial, point)
    if found is None and modes is not None and modes.reverse is not None:
        found = _reordered(trial, modes.reverse, point)
    return found


def _reordered(trial: Trial, pull: Pull, point: int) -> Fault | None:
    """The claim is right for a cotangent in another order: reversed, shifted, transposed."""
    us = list(trial.evidence.cotangents)
    if any(u.dtype.kind == "c" for u in us):
        turned = wide(np.conj(pull(typed(trial, list(map(np.conj, us))))[point]))
        if trial.holds(point, turned):
            text = "is made with the complex conjugate of the true derivative"
            return Fault("conjugated", text, turned)
    tried = 0
    for r, u in enumerate(us):
        name = (
            "the cotangent" if len(us) == 1 else f"the cotangent of result {trial.target.smooth[r]}"
        )
        for kind, text, new in _orders(u):
            tried += 1
            if tried > ORDERS or trial.spent:
                return None
            gradient = pull(typed(trial, [new if k == r else c for k, c in enumerate(us)]))[point]
            if np.all(np.isfinite(gradient)) and trial.holds(point, wide(gradient)):
                return Fault(kind, f"reads {name} {text}", wide(gradient))
    return None


def typed(trial: Trial, us: Sequence[Array]) -> list[Array]:
    """Cotangents in the results' dtypes."""
    return [np.asarray(u, y.dtype) for u, y in zip(us, trial.target.centre, strict=True)]


def _orders(u: Array) -> Iterator[tuple[str, str, Array]]:
    if u.dtype.kind == "c":
        yield "conjugated", "conjugated", np.conj(u)
    if u.ndim >= 2 and u.shape[-1] == u.shape[-2]:
        yield "transposed", "transposed", np.swapaxes(u, -1, -2)
    elif u.ndim == 2:
        yield "transposed", "transposed", u.T.reshape(u.shape)
    for axis, n in enumerate(u.shape):
        if n > 1:
            of = f" along axis {axis}" if u.ndim > 1 else ""
            yield "reversed", f"reversed{of}", np.flip(u, axis)
            yield "shifted", f"shifted by 1{of}", np.roll(u, 1, axis)
            yield "shifted", f"shifted by -1{of}", np.roll(u, -1, axis)


def _untransposed(trial: Trial, point: int) -> Fault | None:
    """The claim is `J u` where it should be `J^T u`: the function itself, moved along `u`."""
    us, x = trial.evidence.cotangents, trial.target.points[point]
    if len(us) != 1 or us[0].size != x.size or x.size < 2 or trial.is_narrow:
        return None
    if "c" in (x.dtype.kind, us[0].dtype.kind) or point in trial.target.symmetric_points:
        return None
    u, claim = us[0].reshape(x.shape), trial.gradient[point]
    size = float(np.median(trial.size(point))) / (float(np.max(np.abs(u))) or 1.0)
    line = trial.evidence.line(trial.alone(point, size * u), sys.maxsize)
    found = climb(line)
    largest = float(np.max(np.abs(claim), initial=0.0))
    true, allowed = found.value[1:] / size, found.allowed[1:] / size
    limit = np.maximum(allowed, trial.evidence.tolerance * largest)
    sharp = float(np.max(limit)) <= constant("factor_blur") * largest
    if bends(found) or not sharp or np.any(np.abs(np.ravel(claim) - true) > limit):
        return None
    off = abs(float(np.sum(claim**2)) / float(np.sum(u**2)) - 1)
    turn = ", of a rotation: the sign of its sin terms" if off <= constant("factor_sharp") else ""
    return Fault("transposed", f"is made with the transposed Jacobian{turn}")
