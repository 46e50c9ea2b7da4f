"""Faults that the gradient alone does not show: swapped arguments, sums that are missing or over
another axis, uses of an argument that were lost, float32.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from checks.gradients.diagnosis.causes import Fault
from checks.gradients.diagnosis.cotangent import misused, typed
from checks.gradients.diagnosis.entrywise import elsewhere
from checks.gradients.diagnosis.trial import Trial
from checks.gradients.evidence import Evidence, moved_points
from checks.gradients.ladder import Estimate, Line, climb
from checks.gradients.modes import ModeError, Modes, modes_of
from checks.gradients.target import Target, pair, wide
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
SLICES = 256
RESULTS = 16


def swapped(trial: Trial, wrong: Sequence[int]) -> str | None:
    """Gradients of equal shapes that were given for one another."""
    points, paths = trial.target.points, trial.target.point_paths
    if not 2 <= len(wrong) <= 8:
        return None
    for a, b in itertools.combinations(wrong, 2):
        if points[a].shape == points[b].shape and dtype_kind(points[a]) == dtype_kind(points[b]):
            pair_up = [(a, b), (b, a)]
            if all(trial.holds(k, trial.gradient[j]) for k, j in pair_up):
                rest = [k for k in wrong if k not in (a, b)]
                more = f"; {', '.join(paths[k] for k in rest)} wrong too" if rest else ""
                return f"the gradients of {paths[a]} and {paths[b]} are swapped{more}"
    if len(wrong) == 3 and len({points[k].shape for k in wrong}) == 1:
        for turn in (1, 2):
            moved = [wrong[(i + turn) % 3] for i in range(3)]
            if all(trial.holds(k, trial.gradient[j]) for k, j in zip(wrong, moved, strict=True)):
                given = ", ".join(
                    f"{paths[k]} for {paths[j]}" for k, j in zip(wrong, moved, strict=True)
                )
                return f"the gradients are swapped: given is that of {given}"
    return None


def dtype_kind(x: Array) -> str:
    """The letter c for complex arrays, f for all other floating ones."""
    return "c" if x.dtype.kind == "c" else "f"


def structural(trial: Trial, modes: Modes | None, point: int) -> Fault | None:
    """The first of these faults that explains one point's gradient."""
    if trial.spent or trial.shallow:
        return None
    found = _narrow(trial, point) if trial.narrow_claim else None
    found = found or _missing_sum(trial, point) or _expanded(trial, point)
    found = found or misused(trial, modes, point) or elsewhere(trial, point)
    if found is None:
        from checks.gradients.diagnosis.uses import lost_use

        found = lost_use(trial, point)
    return found


# --- a missing sum -------------------------------------------------------------------------


def _missing_sum(trial: Trial, point: int) -> Fault | None:
    """The claim equals the gradient of one slice of a result: the sum over that axis is missing."""
    slices = list(_slices(trial.evidence))
    if not slices or trial.evidence.cotangents is None:
        return None
    chosen: int | None = None
    for number in (0, 1):
        base = trial.fresh(point, number)
        found = _read(trial, base.direction, [masked for _, masked in slices])
        limit = np.maximum(found.allowed, trial.evidence.tolerance * abs(base.claimed))
        fits = (np.abs(found.value - base.claimed) <= limit) & (limit <= abs(base.residual) / 4)
        if chosen is None and np.any(fits):
            chosen = int(np.argmax(fits))
        elif chosen is None or not fits[chosen]:
            return None
    assert chosen is not None
    text = slices[chosen][0]
    return Fault("cotangent" if text.startswith("lacks") else "missing sum", text)


def _slices(evidence: Evidence) -> Iterator[tuple[str, list[Array]]]:
    """Cotangents without those of one result; kept at one index of an axis, others as they are."""
    target, us = evidence.target, list(map(wide, evidence.cotangents))
    for r in range(len(us)) if 1 < len(us) <= RESULTS else ():
        rest = [np.zeros_like(u) if k == r else u for k, u in enumerate(us)]
        text = f"lacks what comes from result {target.smooth[r]}: its cotangent is not used"
        yield text, rest
    made = 0
    for r, u in enumerate(us):
        name = "the result" if len(us) == 1 else f"result {target.smooth[r]}"
        for axis, n in enumerate(u.shape):
            for i in range(n) if 1 < n <= SLICES else ():
                made += 1
                if made > SLICES:
                    return
                kept = np.zeros_like(u)
                at = (slice(None),) * axis + (i,)
                kept[at] = u[at]
                text = f"is that of index {i} of axis {axis} of {name} alone: "
                text += "the sum over that axis is missing"
                yield text, [kept if k == r else v for k, v in enumerate(us)]


def _read(trial: Trial, direction: Sequence[Array], kept: Sequence[Sequence[Array]]) -> Estimate:
    """One ladder along a direction, read by several cotangents."""
    target = trial.target
    centre = [wide(y) for y in target.centre]

    def readings(outs: list[Array]) -> Array:
        return np.array([pair(us, outs) for us in kept])

    size = np.array(
        [
            sum(float(np.sum(np.abs(u * y) ** 2)) for u, y in zip(us, centre, strict=True)) ** 0.5
            for us in kept
        ]
    )
    line = Line(
        at=lambda h: [wide(y) for y in target.outputs(moved_points(target, direction, h))],
        centre=centre,
        readings=readings,
        size=size,
        scale=np.zeros_like(size),
        unit=target.unit,
    )
    return climb(line)


def _expanded(trial: Trial, point: int) -> Fault | None:
    """The claim equals the gradient of one copy of an argument that is broadcast: the function is
    called with the argument repeated along a new axis, and one copy moved.
    """
    target = trial.target
    x = target.points[point]
    if trial.is_narrow:
        return None
    leaves: list[Any] = list(target.leaves)
    lengths = {
        n: f"axis {a} of {path}"
        for path, leaf in reversed(list(zip(target.paths, leaves, strict=True)))
        if isinstance(leaf, np.ndarray)
        for a, n in enumerate(leaf.shape)
        if n > 1 and leaf.size
    }
    for n, text in list(lengths.items())[:4]:
        shapes = [(n, *x.shape)]
        shapes += [(*x.shape[:a], n, *x.shape[a + 1 :]) for a, m in enumerate(x.shape) if m == 1]
        for shape in shapes:
            axis = (
                0
                if len(shape) > x.ndim
                else next(a for a, m in enumerate(x.shape) if m != shape[a])
            )
            if not _takes(target, point, np.broadcast_to(x, shape)):
                continue
            found = _of_copies(trial, point, shape, axis, text)
            if found is not None:
                return found
    return None


def _of_copies(
    trial: Trial, point: int, shape: tuple[int, ...], axis: int, text: str
) -> Fault | None:
    """One copy's gradient, or copies summed over another axis than that of the copies."""
    n, x = shape[axis], trial.target.points[point]
    for i, which in ((0, "first"), (n - 1, "last")):
        at = (slice(None),) * axis + (slice(i, i + 1) if len(shape) == x.ndim else i,)

        def one(v: Array, at: Any = at) -> Array:
            made = np.zeros(shape, v.dtype)
            made[at] = v
            return made

        if _copies_fit(trial, point, shape, one):
            what = f"is that of the {which} of {n} copies alone ({text}): "
            return Fault("missing sum", what + "the sum over a broadcast axis is missing")
    for other, m in enumerate(shape):
        if other == axis or m != n:
            continue

        def turned(v: Array, other: int = other) -> Array:
            return np.swapaxes(np.broadcast_to(v, shape), axis, other)

        if _copies_fit(trial, point, shape, turned):
            what = f"is summed over axis {other} where it should be over axis {axis}, along which "
            return Fault("wrong axis", f"{what}it is repeated {n} times")
    return None


def _takes(target: Target, point: int, value: Array) -> bool:
    """Whether the function takes an argument of another shape and returns the same."""
    try:
        outs = target.outputs([value if k == point else p for k, p in enumerate(target.points)])
    except Exception:  # a function may refuse a shape it was not written for, in its own way
        return False
    centre = target.centre
    return len(outs) == len(centre) and all(
        a.shape == b.shape and np.allclose(a, b, rtol=constant("factor_sharp"), equal_nan=True)
        for a, b in zip(outs, centre, strict=True)
    )


def _copies_fit(
    trial: Trial, point: int, shape: tuple[int, ...], move: Callable[[Array], Array]
) -> bool:
    """Whether the claim is what copies of an argument give that move each in its own way."""
    target = trial.target
    full = wide(np.broadcast_to(target.points[point], shape))
    for number in (0, 1):
        base = trial.fresh(point, number)
        v = move(base.direction[point])

        def outputs(h: float, v: Array = v) -> list[Array]:
            moved = np.asarray(full + h * v, target.points[point].dtype)
            points = [moved if k == point else p for k, p in enumerate(target.points)]
            return [wide(y) for y in target.outputs(points)]

        found = climb(dataclasses.replace(trial.evidence.line(base.direction), at=outputs))
        off = abs(float(found.value[0]) - base.claimed)
        limit = max(float(found.allowed[0]), trial.evidence.tolerance * abs(base.claimed))
        if not off <= limit <= abs(base.residual) / 4:
            return False
    return True


# --- float32 -------------------------------------------------------------------------------


def _narrow(trial: Trial, point: int) -> Fault | None:
    """Right where the same derivative runs at float64."""
    made = modes_of(trial.target, ("reverse",))
    if made.reverse is None:
        return None
    try:
        gradient = wide(made.reverse(typed(trial, trial.evidence.cotangents))[point])
    except ModeError:  # a hand-written derivative that knows float32 alone
        return None
    if not np.all(np.isfinite(gradient)) or not trial.holds(point, gradient):
        return None
    return Fault("float32", "is off in narrow arithmetic only: at float64 it is right", gradient)
