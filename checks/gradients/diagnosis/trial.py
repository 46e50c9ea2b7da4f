"""A wrong gradient on trial: differences of its own, by which repairs of it are tested.

A repair counts only if the repaired gradient agrees along fresh random directions (not signs: sizes
between a half and one and a half, so that no two are alike) and along the directions remembered.
"""

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from checks.gradients.diagnosis.pattern import ties
from checks.gradients.evidence import Direction, Evidence, Probe
from checks.gradients.ladder import Estimate
from checks.gradients.locate import Place, alone
from checks.gradients.target import Target, pair, signs, size_of, wide
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
MEASURED = 256
SAMPLED = 64


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """Entries of the true gradient of one point, by differences.

    Arguments:
        true: their values, NaN where not looked at.
        bad: those that the claim gets wrong.
        relevant: those that would show an error: wrong, or right and not 0.
        looked: how many were looked at.
    """

    true: Array
    bad: Array
    relevant: Array
    looked: int

    @property
    def complete(self) -> bool:
        """Whether every entry was looked at."""
        return self.looked == self.true.size


def bends(found: Estimate) -> bool:
    """Whether a ladder stands on a kink or a jump."""
    return bool(found.jump[0]) or bool(found.diverges[0])


@dataclasses.dataclass(eq=False)
class Trial:
    """A claimed gradient, its remembered probes, and fresh ones per point.

    Arguments:
        evidence: a copy whose probes are the diagnosis' own.
        remembered: the probes that the verdict was made of.
        free: per point the entries that may move (others are at kinks or at the domain's end).
        held: per point the ties and zeros held still because a probe bends there.
        bent: points whose probes bend even so: nothing is said of them.
        narrow_claim: the claim was made in float32 or below, the differences are of float64.
        shallow: the costly faults are left out.
        started: when, for the time limit.
    """

    evidence: Evidence
    remembered: list[Probe]
    free: list[Array]
    narrow_claim: bool = False
    shallow: bool = False
    started: float = dataclasses.field(default_factory=time.perf_counter)
    held: dict[int, Array] = dataclasses.field(default_factory=dict)
    bent: set[int] = dataclasses.field(default_factory=set)
    _fresh: dict[tuple[int, int], Probe] = dataclasses.field(default_factory=dict)
    _sizes: dict[int, Array] = dataclasses.field(default_factory=dict)

    @property
    def target(self) -> Target:
        """The function."""
        return self.evidence.target

    @property
    def gradient(self) -> list[Array]:
        """The claim."""
        assert self.evidence.gradient is not None
        return self.evidence.gradient

    @property
    def spent(self) -> bool:
        """Whether the time for more differences is over."""
        return time.perf_counter() - self.started > constant("diagnosis_seconds")

    @property
    def is_narrow(self) -> bool:
        """Whether moved points are rounded to few digits, which the claim itself corrects."""
        return self.target.unit > constant("narrow_unit")

    def fresh(self, point: int, number: int) -> Probe:
        """A careful probe along a random direction that moves one point alone."""
        key = (point, number)
        if key not in self._fresh:
            rng = self.target.rng(f"diagnosis {point} {number}")
            direction = [np.zeros_like(d) for d in self._still()]
            x = self.target.points[point]
            v = signs(rng, x) * self.size(point) * (0.5 + rng.random(x.shape))
            if point in self.target.symmetric_points:
                v = (v + np.swapaxes(v, -1, -2)) / 2
            direction[point] = np.where(self.free[point], v, 0.0)
            self._fresh[key], found = self.evidence.careful(direction)
            if not self.evidence.step and found.step:
                self.evidence.adopt(found)
            if bends(found):
                self._hold(key, x, direction)
        return self._fresh[key]

    def _hold(self, key: tuple[int, int], x: Array, direction: Direction) -> None:
        """Look again with ties and zeros held still."""
        point = key[0]
        mask = (ties(x) | (x == 0)) & self.free[point]
        if point in self.held or not np.any(mask) or not np.any(self.free[point] & ~mask):
            self.bent.add(point)
            return
        self.held[point], self.free[point] = mask, self.free[point] & ~mask
        direction[point] = np.where(mask, 0.0, direction[point])
        self._fresh[key], found = self.evidence.careful(direction)
        if bends(found):
            self.bent.add(point)

    def _still(self) -> Direction:
        return [np.zeros(x.shape, wide(x).dtype) for x in self.target.points]

    def is_wrong(self, point: int) -> bool:
        """Whether the gradient of one point disagrees."""
        probe = self.fresh(point, 0)
        return point not in self.bent and math.isfinite(probe.error) and not probe.agrees

    def explains(self, probe: Probe, gradient: Sequence[Array]) -> bool:
        """Whether another gradient agrees along a probe that the claim is wrong along."""
        if self.is_narrow and np.isfinite(probe.error):
            other = dataclasses.replace(self.evidence, gradient=list(gradient), probes=[])
            rough = abs(pair(gradient, probe.direction) - probe.difference)
            if rough > abs(probe.residual) / 4 + probe.allowed:
                return False
            again, _ = other.careful(probe.direction)
            return again.agrees and again.allowed <= abs(probe.residual) / 4
        other = dataclasses.replace(self.evidence, gradient=list(gradient), probes=[])
        count = sum(int(np.count_nonzero(d)) for d in probe.direction) or 1
        size = max(other.largest(probe.direction), abs(probe.difference) / count**0.5)
        allowed = max(probe.explains, probe.tolerance * size)
        off = abs(pair(gradient, probe.direction) - probe.difference)
        return bool(off <= allowed)

    def repaired(self, point: int, new: Array) -> list[Array]:
        """The claim with the gradient of one point replaced."""
        return [new if k == point else g for k, g in enumerate(self.gradient)]

    def holds(self, point: int, new: Array) -> bool:
        """Whether a new gradient of one point agrees where the claim was seen to be wrong."""
        gradient = self.repaired(point, new)
        if not self.explains(self.fresh(point, 0), gradient):
            return False
        first, second = self.fresh(point, 0), self.fresh(point, 1)
        if max(abs(first.residual), abs(second.residual)) <= 4 * max(
            first.explains, second.explains
        ):
            return False  # too noisy to tell a repair from the fault
        return self.explains(second, gradient)

    def rest_agrees(self, point: int, mask: Array) -> bool:
        """Whether the claim agrees once the entries of a region are held still."""
        base = self.fresh(point, 0)
        direction = self._still()
        direction[point] = np.where(mask, 0.0, base.direction[point])
        if not np.any(direction[point]):
            return False
        probe, found = self.evidence.careful(direction, stop_when_wrong=True)
        if not probe.agrees or probe.allowed > abs(base.residual) / 4:
            return False
        return not bends(found)

    def alone(self, point: int, v: Array) -> Direction:
        """A direction that moves one point alone."""
        direction = self._still()
        direction[point] = v
        return direction

    def along(self, point: int, v: Array) -> Probe:
        """A careful probe along a given direction of one point."""
        return self.evidence.careful(self.alone(point, v))[0]

    def is_as(self, probe: Probe, base: Probe) -> bool:
        """Whether the claim along a base's direction, where it is wrong, is what another probe
        measured, and sharply so.
        """
        off = abs(base.claimed - probe.difference)
        limit = max(probe.explains, self.evidence.tolerance * abs(base.claimed))
        return bool(off <= limit <= abs(base.residual) / 4)

    # --- entries --------------------------------------------------------------------------

    def entry(
        self, point: int, index: tuple[int, ...], sharp: bool = False
    ) -> tuple[complex, float]:
        """The true entry by differences (a ladder, if `sharp`), and the error that they explain."""
        x = self.target.points[point]
        single = self._still()
        if point in self.target.symmetric_points:
            sizes = [self.size(k) for k in range(len(single))]
            single = alone(self.evidence, Place(point, index), sizes)
        else:
            single[point][index] = self.size(point)[index]
        step = float(np.real(single[point][index]))
        step *= np.count_nonzero(single[point])  # a symmetric pair moves together
        probe = self._look(single, sharp)
        if x.dtype.kind != "c":
            return probe.difference / step, probe.allowed / step
        turned = self._look([1j * d for d in single], sharp)
        value = complex(probe.difference, -turned.difference) / step
        return value, (probe.allowed + turned.allowed) / step

    def size(self, point: int) -> Array:
        """What the steps of a point are relative to."""
        if point not in self._sizes:
            self._sizes[point] = size_of(self.target.points[point])
        return self._sizes[point]

    def _look(self, direction: Direction, sharp: bool) -> Probe:
        if self.evidence.step and not sharp:
            return self.evidence.quick(direction)
        return self.evidence.careful(direction)[0]

    def measure(self, point: int, sampled: int = SAMPLED) -> Measured:
        """Every entry of a point, or a sample of them where it is large."""
        x, claim = self.target.points[point], self.gradient[point]
        true = np.full(x.shape, np.nan, claim.dtype)
        allowed = np.zeros(x.shape)
        numbers = np.arange(x.size)
        if x.size > MEASURED:
            numbers = self.target.rng("entries").choice(x.size, sampled, replace=False)
        looked = 0
        for number in numbers:
            index = tuple(int(i) for i in np.unravel_index(number, x.shape))
            if self.spent:
                break
            value, error = self.entry(point, index)
            true[index] = value if true.dtype.kind == "c" else value.real
            allowed[index] = error
            looked += 1
        self._decide(point, true, allowed)
        off = np.abs(claim - true) * self.free[point]
        bad = off > np.maximum(allowed, self.evidence.tolerance * np.abs(true))
        relevant = bad | (np.abs(true) > allowed)
        return Measured(true, bad, relevant, looked)

    def _decide(self, point: int, true: Array, allowed: Array) -> None:
        """Ladders for the entries that plain differences leave open, as long as they do better: a
        direction that crosses kinks blurs all of them.
        """
        claim = self.gradient[point]
        off = np.abs(claim - true) * self.free[point]
        least = constant("factor_sharp") * float(np.nanmax(np.abs(true), initial=0.0))
        for place in np.argwhere((off <= allowed) & (off > least)):
            index = tuple(map(int, place))
            if self.spent:
                return
            value, error = self.entry(point, index, sharp=True)
            if not error < allowed[index] / 4:
                return
            allowed[off <= least] = np.minimum(allowed[off <= least], least)
            true[index] = value if true.dtype.kind == "c" else value.real
            allowed[index] = error
