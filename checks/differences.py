"""Central differences in float64, with relative steps, Richardson extrapolation and an error
estimate.

Steps halve from a tenth of the point's size; each entry takes the tableau element that moved least
(reference: Ridders, Adv. Eng. Software 4(2), 1982), and its estimate never falls below the
round-off of the function values it was made of.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from checks.tolerances import constant

Array = np.ndarray[Any, Any]
Flat = Callable[..., Sequence[Any]]


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

    def at(h: float) -> list[Array]:
        moved = [_step(x, h, t) for x, t in zip(points, directions, strict=True)]
        with np.errstate(all="ignore"):
            return [_wide(y) for y in f(*moved)]

    return at


def _step(x: Array, h: float, t: Array) -> Array:
    return np.asarray(x + h * t) if np.any(t) else x


def _wide(y: Any) -> Array:
    y = np.asarray(y)
    return np.asarray(y.astype(np.complex128 if y.dtype.kind == "c" else np.float64))


def directional(f: Flat, points: Sequence[Array], directions: Sequence[Array]) -> list[Difference]:
    """Central differences of every output of `f` along a direction.

    Arguments: `f(*points) -> sequence of arrays`; points and directions of matching shapes, the
    directions sized like the points. Returns one Difference per output. Rungs whose evaluation
    leaves the domain (NaN or inf where the centre is finite) are dropped. The ladder is continued
    to smaller steps while the estimate is poor; with fewer than two rungs it is infinite.
    """
    at = along(f, points, directions)
    centre = at(0.0)
    step, levels = constant("richardson_first_step"), int(constant("richardson_levels"))
    rungs: list[Rung] = []
    for _ in range(int(constant("richardson_ladders"))):
        for _ in range(levels):
            rungs.append((step, at(step), at(-step)))
            step /= 2
        found = [
            _best([(h, up[j], down[j]) for h, up, down in rungs], y) for j, y in enumerate(centre)
        ]
        if all(_is_good(d) for d in found):
            break
    return found


Rung = tuple[float, list[Array], list[Array]]


def _is_good(found: Difference) -> bool:
    size = float(np.max(np.abs(found.value), initial=0.0))
    worst = float(np.max(found.estimate, initial=0.0))
    noise = constant("noise_limited") * float(np.max(found.size, initial=0.0))
    return bool(
        np.isfinite(worst)
        and worst <= max(constant("good_estimate") * size, noise, np.finfo(np.float64).tiny)
    )


def _best(rungs: Sequence[tuple[float, Array, Array]], centre: Array) -> Difference:
    """The best value of a ladder; ladders start anew below a step that leaves the domain."""
    finite = np.isfinite(centre)
    good = [
        (h, up, down)
        for h, up, down in rungs
        if bool(np.all(np.isfinite(up[finite])) and np.all(np.isfinite(down[finite])))
    ]
    count = 2 * len(rungs) + 1
    if len(good) < 2:
        nan = np.full(centre.shape, np.nan)
        return Difference(nan, np.full(centre.shape, np.inf), count, np.abs(centre))
    with np.errstate(all="ignore"):
        return _checked(_ridders(good, count), good)


def _magnitude(good: Sequence[tuple[float, Array, Array]]) -> Array:
    size = np.max([np.maximum(np.abs(up), np.abs(down)) for _, up, down in good], axis=0)
    return np.where(np.isfinite(size), size, 0.0)


def _noise(good: Sequence[tuple[float, Array, Array]]) -> list[Array]:
    """The round-off floor of each rung: of the largest function value seen, over the step."""
    unit, smallest = np.finfo(np.float64).eps / 2, np.finfo(np.float64).smallest_subnormal
    factor = constant("roundoff_floor_factor")
    size = _magnitude(good)
    return [factor * (unit * size + smallest) / h for h, _, _ in good]


def _ridders(good: Sequence[tuple[float, Array, Array]], count: int) -> Difference:
    column = [(up - down) / (2 * h) for h, up, down in good]
    noise = _noise(good)
    best = column[0]
    estimate = np.full(best.shape, np.inf)
    for power in range(1, min(len(good), int(constant("richardson_levels")) + 1)):
        weight = 4.0**power
        new = [(weight * b - a) / (weight - 1) for a, b in itertools.pairwise(column)]
        for i, value in enumerate(new):
            moved = np.maximum(np.abs(value - column[i + 1]), np.abs(value - column[i]))
            error = moved + noise[i + power]
            better = error < estimate
            best = np.where(better, value, best)
            estimate = np.where(better, error, estimate)
        column = new
    return Difference(best, estimate, count, _magnitude(good))


def _checked(found: Difference, good: Sequence[tuple[float, Array, Array]]) -> Difference:
    """Steps that jump over a kink can agree with one another: where the smallest step says
    otherwise, it is believed.
    """
    (h, up, down), (wide, up2, down2) = good[-1], good[-2]
    last, before = (up - down) / (2 * h), (up2 - down2) / (2 * wide)
    error = np.abs(last - before) + _noise(good)[-1]
    differs = np.abs(found.value - last) > 4 * (found.estimate + error)
    return Difference(
        np.where(differs, last, found.value),
        np.where(differs, error, found.estimate),
        found.evaluations,
        found.size,
    )


def one_sided(
    f: Flat, points: Sequence[Array], directions: Sequence[Array]
) -> tuple[list[Array], list[Array], bool]:
    """Slopes from the left and from the right of every output along a direction, by second-order
    extrapolation of one-sided differences at small steps, and whether one diverges (a jump).
    """
    at = along(f, points, directions)
    centre = at(0.0)
    sides, jumps = [], False
    for sign in (-1.0, 1.0):
        h = sign * constant("one_sided_step")
        close, near, far = at(h / 2), at(h), at(2 * h)
        with np.errstate(all="ignore"):
            slopes = [
                (4 * a - b - 3 * c) / (2 * h) for a, b, c in zip(near, far, centre, strict=True)
            ]
            finer = [(4 * a - b - 3 * c) / h for a, b, c in zip(close, near, centre, strict=True)]
        # a slope that grows as the step shrinks: 2 for a jump, sqrt(2) for a square root
        grows = constant("divergence")
        jumps |= any(
            bool(np.any(np.abs(b) > grows * np.abs(a))) for a, b in zip(slopes, finer, strict=True)
        )
        sides.append(slopes)
    return sides[0], sides[1], jumps
