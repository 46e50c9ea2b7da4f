"""Central differences in float64, with relative steps, Richardson extrapolation and an error
estimate.

Steps halve from a tenth of the point's size; each entry takes the tableau element that moved least
(reference: Ridders, Adv. Eng. Software 4(2), 1982), and its estimate never falls below the
round-off of the function values it was made of.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff.native import quiet
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
Flat = Callable[..., Sequence[Any]]
FLOAT64 = np.dtype(np.float64)


@dataclasses.dataclass(frozen=True)
class Difference:
    """A directional derivative of one output: entrywise value and error estimate, and the size of
    the function values it was made of.
    """

    value: Array
    estimate: Array
    evaluations: int
    size: Array


def along(f: Flat, points: Sequence[Array], directions: Sequence[Array]) -> Callable[[float], Any]:
    """h -> f(points + h * directions), outputs in float64 or complex128."""
    moves = [bool(t.any()) for t in directions]

    def at(h: float) -> list[Array]:
        moved = [
            np.asarray(x + h * t) if m else x
            for x, t, m in zip(points, directions, moves, strict=True)
        ]
        return [_wide(y) for y in f(*moved)]

    return at


def _wide(y: Any) -> Array:
    if type(y) is np.ndarray and y.dtype is FLOAT64:
        return y
    y = np.asarray(y)
    return np.asarray(y, np.complex128 if y.dtype.kind == "c" else np.float64)


def directional(
    f: Flat,
    points: Sequence[Array],
    directions: Sequence[Array],
    centre: Sequence[Any] | None = None,
) -> list[Difference]:
    """Central differences of every output of `f` along a direction.

    Arguments: `f(*points) -> sequence of arrays`; points and directions of matching shapes, the
    directions sized like the points; `f(*points)` where it is known. Returns one Difference per
    output. Rungs whose evaluation leaves the domain (NaN or inf where the centre is finite) are
    dropped. The ladder is continued to smaller steps while the estimate is poor; with fewer than
    two rungs it is infinite.
    """
    with quiet():
        at = along(f, points, directions)
        return _directional(at, at(0.0) if centre is None else [_wide(y) for y in centre])


def _directional(at: Callable[[float], Any], centre: Sequence[Array]) -> list[Difference]:
    step, levels = constant("richardson_first_step"), int(constant("richardson_levels"))
    rungs: list[Rung] = []
    for _ in range(int(constant("richardson_ladders"))):
        for _ in range(levels):
            rungs.append((step, at(step), at(-step)))
            step /= 2
        found = [
            _best([(h, up[j], down[j]) for h, up, down in rungs], y) for j, y in enumerate(centre)
        ]
        if all(_is_good(d) for d in found) and _confirmed(at, step, found):
            break
    return found


def _confirmed(at: Callable[[float], Any], step: float, found: Sequence[Difference]) -> bool:
    """Whether a far smaller step agrees: a ladder whose steps are whole periods of `f` converges
    to the slope of another function.
    """
    h = step * constant("alias_step")
    factor, unit = constant("roundoff_floor_factor"), np.finfo(np.float64).eps / 2
    for d, up, down in zip(found, at(h), at(-h), strict=True):
        slope = (up - down) / (2 * h)
        noise = factor * unit * (d.size + np.abs(d.value)) / h
        allowed = 4 * (d.estimate + noise) + constant("alias_error") * np.abs(d.value)
        if np.any(np.abs(slope - d.value) > allowed):
            return False
    return True


Rung = tuple[float, list[Array], list[Array]]


def _is_good(found: Difference) -> bool:
    if not found.value.size:
        return True
    size = float(np.abs(found.value).max())
    worst = float(found.estimate.max())
    noise = constant("noise_limited") * float(found.size.max())
    return bool(
        np.isfinite(worst)
        and worst <= max(constant("good_estimate") * size, noise, np.finfo(np.float64).tiny)
    )


def _best(rungs: Sequence[tuple[float, Array, Array]], centre: Array) -> Difference:
    """The best value of a ladder; ladders start anew below a step that leaves the domain."""
    steps = np.array([h for h, _, _ in rungs])
    up, down = (np.stack([rung[side] for rung in rungs]) for side in (1, 2))
    finite = np.isfinite(centre)
    right = (np.isfinite(up) & np.isfinite(down)) | ~finite
    good = right.reshape(len(rungs), -1).all(axis=1)
    count = 2 * len(rungs) + 1
    if np.count_nonzero(good) < 2:
        nan = np.full(centre.shape, np.nan)
        return Difference(nan, np.full(centre.shape, np.inf), count, np.abs(centre))
    if not good.all():
        steps, up, down = steps[good], up[good], down[good]
    return _ridders(steps.reshape(-1, *(1,) * centre.ndim), up, down, count)


def _ridders(steps: Array, up: Array, down: Array, count: int) -> Difference:
    """The tableau of a ladder, (n, *shape) values at steps (n, 1, ...): per entry the element that
    moved least from its neighbours in the column before.
    """
    size = _finite(np.maximum(np.abs(up), np.abs(down)).max(axis=0))
    first = column = (up - down) / (2 * steps)
    # the round-off floor of each rung, over the step: of the largest function value seen, and of
    # the point itself, which the slope magnifies
    unit, smallest = np.finfo(np.float64).eps / 2, np.finfo(np.float64).smallest_subnormal
    slopes = _finite(np.abs(first))
    noise = constant("roundoff_floor_factor") * (unit * (size + slopes) + smallest) / steps
    values, errors = [], []
    for power in range(1, min(len(steps), int(constant("richardson_levels")) + 1)):
        weight = 4.0**power
        new = (weight * column[1:] - column[:-1]) / (weight - 1)
        moved = np.maximum(np.abs(new - column[1:]), np.abs(new - column[:-1]))
        values.append(new)
        errors.append(moved + noise[power:])
        column = new
    value, error = np.concatenate(values), np.concatenate(errors)
    error[np.isnan(error)] = np.inf
    rows = error.reshape(len(error), -1)
    chosen = rows.argmin(axis=0), np.arange(rows.shape[1])
    estimate = rows[chosen].reshape(size.shape)
    best = value.reshape(rows.shape)[chosen].reshape(size.shape)
    best = np.where(estimate < np.inf, best, first[0])
    # Steps that jump over a kink can agree with one another: where the smallest step says
    # otherwise, it is believed.
    last = first[-1]
    error = np.abs(last - first[-2]) + noise[-1]
    differs = np.abs(best - last) > 4 * (estimate + error)
    if differs.any():
        best, estimate = np.where(differs, last, best), np.where(differs, error, estimate)
    return Difference(best, estimate, count, size)


def _finite(x: Array) -> Array:
    """The array with 0 for what is not finite."""
    finite = np.isfinite(x)
    return x if finite.all() else np.where(finite, x, 0.0)


def one_sided(
    f: Flat, points: Sequence[Array], directions: Sequence[Array]
) -> tuple[list[Array], list[Array], bool]:
    """Slopes from the left and from the right of every output along a direction, by second-order
    extrapolation of one-sided differences at small steps, and whether one diverges (a jump).
    """
    with quiet():
        return _one_sided(along(f, points, directions))


def _one_sided(at: Callable[[float], Any]) -> tuple[list[Array], list[Array], bool]:
    centre = at(0.0)
    sides, jumps = [], False
    for sign in (-1.0, 1.0):
        h = sign * constant("one_sided_step")
        close, near, far = at(h / 2), at(h), at(2 * h)
        slopes = [(4 * a - b - 3 * c) / (2 * h) for a, b, c in zip(near, far, centre, strict=True)]
        finer = [(4 * a - b - 3 * c) / h for a, b, c in zip(close, near, centre, strict=True)]
        # a slope that grows as the step shrinks: 2 for a jump, sqrt(2) for a square root
        grows = constant("divergence")
        jumps |= any(
            bool(np.any(np.abs(b) > grows * np.abs(a))) for a, b in zip(slopes, finer, strict=True)
        )
        sides.append(slopes)
    return sides[0], sides[1], jumps
