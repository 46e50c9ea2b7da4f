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

from checks.tolerances import constant

Array = np.ndarray[Any, Any]
Flat = Callable[..., Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class Difference:
    """A directional derivative of one output: entrywise value and error estimate."""

    value: Array
    estimate: Array
    evaluations: int


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
    return y.astype(np.complex128 if y.dtype.kind == "c" else np.float64)


def directional(
    f: Flat, points: Sequence[Array], directions: Sequence[Array]
) -> list[Difference]:
    """Central differences of every output of `f` along a direction.

    Arguments: `f(*points) -> sequence of arrays`; points and directions of matching shapes, the
    directions sized like the points. Returns one Difference per output. Rungs whose evaluation
    leaves the domain (NaN or inf where the centre is finite) are dropped; with fewer than two left
    the estimate is infinite.
    """
    at = along(f, points, directions)
    centre = at(0.0)
    first, levels = constant("richardson_first_step"), int(constant("richardson_levels"))
    rungs = [(first / 2**k, at(first / 2**k), at(-first / 2**k)) for k in range(levels + 1)]
    return [
        _extrapolated([(h, up[j], down[j]) for h, up, down in rungs], y)
        for j, y in enumerate(centre)
    ]


def _extrapolated(rungs: Sequence[tuple[float, Array, Array]], centre: Array) -> Difference:
    finite = np.isfinite(centre)
    good = [
        (h, up, down)
        for h, up, down in rungs
        if bool(np.all(np.isfinite(up[finite])) and np.all(np.isfinite(down[finite])))
    ]
    count = 2 * len(rungs) + 1
    if len(good) < 2:
        nan = np.full(centre.shape, np.nan)
        return Difference(nan, np.full(centre.shape, np.inf), count)
    with np.errstate(all="ignore"):
        return _ridders(good, count)


def _ridders(good: Sequence[tuple[float, Array, Array]], count: int) -> Difference:
    unit = np.finfo(np.float64).eps / 2
    factor = constant("roundoff_floor_factor")
    column = [(up - down) / (2 * h) for h, up, down in good]
    noise = [factor * unit * np.maximum(np.abs(up), np.abs(down)) / h for h, up, down in good]
    best = column[0]
    estimate = np.full(best.shape, np.inf)
    for power in range(1, len(good)):
        weight = 4.0**power
        new = [(weight * b - a) / (weight - 1) for a, b in zip(column, column[1:], strict=False)]
        for i, value in enumerate(new):
            moved = np.maximum(np.abs(value - column[i + 1]), np.abs(value - column[i]))
            error = moved + noise[i + power]
            better = error < estimate
            best = np.where(better, value, best)
            estimate = np.where(better, error, estimate)
        column = new
    return Difference(best, estimate, count)


def one_sided(
    f: Flat, points: Sequence[Array], directions: Sequence[Array]
) -> tuple[list[Array], list[Array]]:
    """Slopes from the left and from the right of every output along a direction, by second-order
    extrapolation of one-sided differences at small steps."""
    at = along(f, points, directions)
    centre = at(0.0)
    sides = []
    for sign in (-1.0, 1.0):
        h = sign * constant("one_sided_step")
        near, far = at(h), at(2 * h)
        with np.errstate(all="ignore"):
            sides.append(
                [(4 * a - b - 3 * c) / (2 * h) for a, b, c in zip(near, far, centre, strict=True)]
            )
    return sides[0], sides[1]
