"""Which entry is wrong: index-weighted probes whose ratio to the plain one gives its place.

With one wrong entry k the residual along v is e_k v_k, and along w * v it is w_k e_k v_k; weights
that grow with the index give k to the accuracy of the difference, and the interval of places that
is left is weighted anew. Where several entries are wrong the larger half is followed.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from checks.gradients.evidence import Direction, Evidence, Probe
from checks.gradients.fine import kink_at
from checks.gradients.ladder import Estimate
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
Signal = Callable[[Probe], float]
ROUNDS = 24
NEIGHBOURS = (1, -1, 2, -2)
WIDER = 8


@dataclasses.dataclass(frozen=True)
class Place:
    """One entry of the points: which point, and its index there."""

    point: int
    index: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One entry looked at alone: the claim and the difference, both per unit of the entry."""

    place: Place
    probe: Probe
    estimate: Estimate
    step: float

    @property
    def derivative(self) -> float:
        """The claimed entry (along its phase, for a complex one)."""
        return self.probe.claimed / self.step

    @property
    def difference(self) -> float:
        """The entry by differences."""
        return self.probe.difference / self.step

    @property
    def error(self) -> float:
        """The difference's own error."""
        return self.probe.error / self.step

    @property
    def jump(self) -> float:
        """Half the right slope minus the left one."""
        return float(self.estimate.jump[0]) / self.step

    @property
    def sides(self) -> tuple[float, float]:
        """The slopes from the left and from the right."""
        return self.difference - self.jump, self.difference + self.jump

    @property
    def is_kink(self) -> bool:
        """Whether the one-sided slopes differ, or one grows without bound."""
        return bool(self.jump) or bool(self.estimate.diverges[0])

    @property
    def is_inside(self) -> bool:
        """Whether the claim lies between the one-sided slopes."""
        slack = self.probe.allowed / self.step + constant("kink_slack") * abs(self.jump)
        low, high = sorted(self.sides)
        return low - slack <= self.derivative <= high + slack


def residual(probe: Probe) -> float:
    """The signal of a wrong entry."""
    return probe.residual


def kink(probe: Probe) -> float:
    """The signal of a kink."""
    return probe.even


def numbers(evidence: Evidence) -> list[Array]:
    """A number for each entry of the points; both entries of a symmetric pair have one."""
    made, start = [], 0
    for k, x in enumerate(evidence.target.points):
        ids = np.arange(start, start + x.size).reshape(x.shape)
        if k in evidence.target.symmetric_points:
            ids = np.minimum(ids, np.swapaxes(ids, -1, -2))
        made.append(ids)
        start += x.size
    return made


def place_of(evidence: Evidence, number: int) -> Place:
    """The entry with a number."""
    for k, x in enumerate(evidence.target.points):
        if number < x.size:
            return Place(k, tuple(int(i) for i in np.unravel_index(number, x.shape)))
        number -= x.size
    raise AssertionError(number)


def alone(evidence: Evidence, place: Place, direction: Sequence[Array]) -> Direction:
    """A direction that moves one entry (one symmetric pair) alone."""
    ids = numbers(evidence)
    chosen = ids[place.point][place.index]
    return [
        np.where(i == chosen, d, 0.0) if k == place.point else np.zeros_like(d)
        for k, (i, d) in enumerate(zip(ids, direction, strict=True))
    ]


def look(
    evidence: Evidence, place: Place, direction: Sequence[Array], confirm: bool = False
) -> Entry:
    """A ladder on one entry alone; `confirm`ed where it disagrees, as it is wherever it bends."""
    single = alone(evidence, place, direction)
    probe, estimate = evidence.careful(single, stop_when_wrong=True)
    if estimate.jump[0] or estimate.diverges[0] or (confirm and not probe.agrees):
        probe, estimate = evidence.confirmed(probe, estimate)
    return Entry(place, probe, estimate, float(np.abs(single[place.point][place.index])) or 1.0)


def kinked(evidence: Evidence, entry: Entry) -> Entry:
    """An entry that disagrees with one-sided slopes from far finer steps, where those say that it
    lies on a kink; else as it is.
    """
    probe, line = entry.probe, evidence.line(entry.probe.direction)
    gap = max(abs(probe.residual), abs(float(entry.estimate.jump[0])))
    found = kink_at(line, entry.estimate, gap)
    if found is None:
        return entry
    new = dataclasses.replace(
        probe,
        difference=float(found.value[0]),
        error=float(found.error[0]),
        explains=float(found.allowed[0]),
    )
    return dataclasses.replace(entry, probe=new, estimate=found)


def locate(
    evidence: Evidence, probe: Probe, signal: Signal = residual, step: float | None = None
) -> Place | None:
    """The entry that a probe's signal comes from; None where it cannot be told.

    With one such entry two or three further differences name it; each costs two calls.
    """
    hunt = Hunt(evidence, probe.direction, numbers(evidence), signal, step)
    left = Left(0, sum(i.size for i in hunt.ids), signal(probe), probe.error)
    for _ in range(ROUNDS):
        if left.high - left.low <= 1:
            return place_of(evidence, left.low)
        found = _narrow(hunt, left)
        if found is None:
            return None
        left = found
    return None


@dataclasses.dataclass(frozen=True)
class Hunt:
    """What stays the same while the places are narrowed down."""

    evidence: Evidence
    direction: Direction
    ids: Sequence[Array]
    signal: Signal
    step: float | None

    def measured(self, weights: Sequence[Array], value: float) -> Probe:
        """A weighted difference at the given step, or one as sharp as the signal needs."""
        weighted = [d * w for d, w in zip(self.direction, weights, strict=True)]
        if self.step:
            return self.evidence.quick(weighted, self.step)
        return self.evidence.sharp(weighted, value)


@dataclasses.dataclass(frozen=True)
class Left:
    """The places that are left `[low, high)`, the signal of what is in them, and its error; whether
    a ratio says so, which truncation may have put beside the place.
    """

    low: int
    high: int
    value: float
    noise: float
    by_ratio: bool = False


def _narrow(hunt: Hunt, left: Left) -> Left | None:
    """Fewer places, by a difference whose weights grow with the number."""
    low, high, value = left.low, left.high, left.value
    middle, half = (low + high - 1) / 2, max((high - low - 1) / 2, 0.5)
    weights = [
        np.where((i >= low) & (i < high), 1 + 0.5 * (i - middle) / half, 0.0) for i in hunt.ids
    ]
    new = hunt.measured(weights, value)
    if not value or not math.isfinite(hunt.signal(new)):
        return None
    if left.by_ratio and abs(hunt.signal(new)) <= min(4 * (new.error + left.noise), abs(value) / 4):
        return _wider(hunt, left)
    ratio = hunt.signal(new) / value
    blur = (4 * new.error + abs(ratio) * left.noise) / abs(value)
    at, slack = middle + 2 * half * (ratio - 1), 2 * half * blur + 0.5
    first, last = max(low, math.floor(at - slack + 0.5)), min(high, math.ceil(at + slack + 0.5))
    if first < last and last - first <= 0.7 * (high - low) and abs(ratio - 1) <= 0.5 + blur:
        return dataclasses.replace(left, low=first, high=last, by_ratio=True)
    return _half(hunt, left)


def _wider(hunt: Hunt, left: Left) -> Left:
    """More places on both sides: the signal is not in the ones that a ratio left."""
    more, count = WIDER * (left.high - left.low), sum(i.size for i in hunt.ids)
    low, high = max(left.low - more, 0), min(left.high + more, count)
    return dataclasses.replace(left, low=low, high=high, by_ratio=False)


def _half(hunt: Hunt, left: Left) -> Left | None:
    """The half of the places with the larger signal."""
    cut = (left.low + left.high) // 2
    probe = hunt.measured(
        [np.where((i >= left.low) & (i < cut), 1.0, 0.0) for i in hunt.ids], left.value
    )
    first = hunt.signal(probe)
    rest, noise = left.value - first, probe.error + left.noise
    if not math.isfinite(first) or max(abs(first), abs(rest)) <= 2 * noise:
        return None
    if abs(first) >= abs(rest):
        return Left(left.low, cut, first, probe.error)
    return Left(cut, left.high, rest, noise)


def search(evidence: Evidence, probe: Probe) -> Entry | None:
    """The wrong entry, or one at a kink, looked at alone; its neighbours where the first guess is
    right after all.
    """
    place = locate(evidence, probe)
    if place is None:
        return None
    entry = look(evidence, place, probe.direction)
    if entry.is_kink or not entry.probe.agrees:
        return entry
    ids = numbers(evidence)
    number, count = int(ids[place.point][place.index]), sum(i.size for i in ids)
    for offset in NEIGHBOURS:
        if 0 <= number + offset < count:
            near = place_of(evidence, number + offset)
            if not evidence.sharp(alone(evidence, near, probe.direction), probe.residual).agrees:
                return look(evidence, near, probe.direction)
    return None
