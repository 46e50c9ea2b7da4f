"""A function along a line: one rung of differences, what rounding leaves, an estimate's parts."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from checks.gradients.grain import Grain
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
At = Callable[[float], list[Array]]
Readings = Callable[[list[Array]], Array]
Found = tuple[Array, Array, Array]  # value, how much it moved, round-off


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a ladder says of each reading `(m,)`.

    Arguments:
        value: the central difference, extrapolated.
        moved: its own error estimate; `floor` the round-off at the steps it was made of.
        jump: half the right slope minus the left one, as the step shrinks; 0 where smooth.
        step: the step at which one plain difference is best, and `step_error` its error there.
        rungs: the finest steps of the best block, for a short ladder; `last` how far the plain
            difference at the finest of them lies from `value`.
        blocks: what each block says alone: value, how much it moved, round-off.
        noise: the measured noise of the readings themselves, 0 where it was not measured.
        diverges: the one-sided slopes grow without bound as the step shrinks (a jump).
        left_domain: some step gave NaN or infinity where the centre is finite.
    """

    value: Array
    moved: Array
    floor: Array
    jump: Array
    step: float
    step_error: Array
    rungs: tuple[float, ...]
    last: Array
    blocks: tuple[Found, ...]
    noise: Array
    diverges: Array
    left_domain: bool

    @property
    def error(self) -> Array:
        """The whole error estimate."""
        return np.asarray(self.moved + self.floor)

    @property
    def allowed(self) -> Array:
        """The largest error that the difference itself explains."""
        return np.asarray(explained(self.moved, self.floor))


def explained(moved: Any, floor: Any) -> Any:
    """What an estimate and a round-off floor explain together."""
    return constant("richardson_error_factor") * moved + constant("noise_factor") * floor


@dataclasses.dataclass(frozen=True)
class Rung:
    """One step: the odd and the even part of the readings over the step."""

    step: float
    odd: Array
    even: Array

    @property
    def finite(self) -> bool:
        """Whether both sides stayed in the domain."""
        return bool(np.all(np.isfinite(self.odd)))


@dataclasses.dataclass(frozen=True)
class Line:
    """A function along a line, and how it is read.

    Arguments:
        at: `at(h)` the outputs at `point + h * direction`.
        centre: the outputs at 0.
        readings: a linear map of outputs (or their differences) to a vector `(m,)`.
        size: the magnitude of each reading's terms, for round-off.
        scale: per reading what an error is measured against.
        unit: the unit roundoff of the function's arithmetic.
        clustered: how much larger the moved entries are than the direction; 1 in most cases.
        correction: `correction(h)`: what rounding the moved point to its dtype adds to each
            reading's difference; None where it rounds in float64.
        grain: what is seen of how coarse the results are, where they are real and wide, and
            `weights` of the results in the first reading.
        known: tableaux already read, by their steps, noise apart.
    """

    at: At
    centre: list[Array]
    readings: Readings
    size: Array
    scale: Array
    unit: float
    correction: Callable[[float], Array] | None = None
    clustered: float = 1.0
    grain: Grain | None = None
    weights: Array | None = None
    known: dict[tuple[float, ...], Found] = dataclasses.field(default_factory=dict)

    def rung(self, h: float) -> Rung:
        """Both sides at one step."""
        up, down = self.at(h), self.at(-h)
        if self.grain is not None and not self.grain.fine:
            self.grain.see([np.concatenate([y.ravel() for y in side]) for side in (up, down)])
        odd = self.readings([a - b for a, b in zip(up, down, strict=True)]) / (2 * h)
        even = self.readings(
            [(a - c) + (b - c) for a, b, c in zip(up, down, self.centre, strict=True)]
        ) / (2 * h)
        if self.correction is not None:
            odd = odd - self.correction(h)
        return Rung(h, odd, even)

    def coarseness(self) -> Array:
        """The noise of each reading by the bits that the results are made of."""
        if self.grain is None or self.weights is None:
            return np.zeros_like(self.size)
        each = self.grain.noise()
        first = np.sqrt(np.sum((self.weights * each) ** 2))
        return np.r_[first, each] if self.size.size > 1 else np.array([first])

    def floor(self, h: float, noise: Array) -> Array:
        """The round-off of a difference at one step."""
        smallest = np.finfo(np.float64).smallest_subnormal
        own = constant("roundoff_floor_factor") * (self.unit * self.size + smallest)
        return np.asarray(np.maximum(own, constant("noise_factor") * noise) / h)

    def share(self, found: Found) -> float:
        """The largest explained error, of what each reading is measured against."""
        value, error = found[0], explained(found[1], found[2])
        size = np.maximum(self.scale, np.abs(value))
        if size.size > 1:
            size[1:] = np.max(size[1:])
        smallest = np.finfo(np.float64).tiny
        return float(np.max(error / np.maximum(size, smallest)))

    def is_good(self, found: Found) -> bool:
        """Whether an estimate is as fine as the tolerance wants."""
        return self.share(found) <= constant("gradient_good")


def first_step(unit: float) -> float:
    """About a tenth; larger where the arithmetic has few digits."""
    wanted = max(constant("gradient_first_step"), 4 * math.sqrt(unit))
    return float(2.0 ** math.ceil(math.log2(wanted)))


def smallest_step(unit: float) -> float:
    """Below it, round-off outweighs what a smaller step could gain."""
    return max(4 * math.sqrt(unit), constant("gradient_smallest_step"))
