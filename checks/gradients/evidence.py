"""What is known of one claimed gradient: its values, and differences along directions."""

import dataclasses
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from checks.gradients.fine import is_unsure, settled
from checks.gradients.grain import Grain, grain
from checks.gradients.ladder import (
    Estimate,
    Found,
    Line,
    Rung,
    climb,
    explained,
    first_step,
    short_ladder,
    smallest_step,
)
from checks.gradients.target import Target, pair, wide
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
Direction = list[Array]
FEW = 4096


@dataclasses.dataclass(frozen=True, eq=False)
class Probe:
    """A direction, what the gradient claims along it, and what the difference says.

    Arguments:
        direction, claimed, difference: `v`, `<c, v>`, and the central difference along `v`.
        error: of the difference, by its own estimate; `explains` the residual that it explains.
        size: the largest single term of the claim, or the difference where that is larger.
        tolerance: relative to `size`.
        even: half the right slope minus the left one at the probe's step, curvature included.
        doubtful: differences at other steps contradict this one: noise.
    """

    direction: Direction
    claimed: float
    difference: float
    error: float
    explains: float
    size: float
    tolerance: float
    even: float = 0.0
    doubtful: bool = False

    @property
    def residual(self) -> float:
        """Claim minus difference."""
        return self.claimed - self.difference

    @property
    def allowed(self) -> float:
        """The residual that rounding and the difference itself explain."""
        return max(self.explains, self.tolerance * self.size)

    @property
    def agrees(self) -> bool:
        """Whether claim and difference agree; NaN never does."""
        return abs(self.residual) <= self.allowed


@dataclasses.dataclass(eq=False)
class Evidence:
    """A gradient under test: of `Re sum(u * f)` for cotangents `u`, claimed for every point.

    Arguments:
        target: the function.
        cotangents: `u`.
        gradient: the claimed gradient, one float64 (complex128) array per point; None where only
            `push` is known.
        push: `push(direction)`: forward mode, the tangents of the smooth results.
        probes: directions looked at so far.
        step: the step of plain differences, `spread` the error of one there.
        rungs: the steps of a short ladder.
        tolerance: relative to the largest term along a direction.
    """

    target: Target
    cotangents: list[Array]
    gradient: list[Array] | None
    push: Callable[[Direction], list[Array]] | None = None
    probes: list[Probe] = dataclasses.field(default_factory=list)
    step: float = 0.0
    spread: float = 0.0
    rungs: tuple[float, ...] = ()
    tolerance: float = dataclasses.field(default_factory=lambda: constant("gradient_tolerance"))

    def claimed(self, direction: Sequence[Array]) -> float:
        """What the derivative says along a direction."""
        if self.gradient is not None:
            return pair(self.gradient, direction)
        assert self.push is not None
        return pair(self.cotangents, self.push(list(direction)))

    def largest(self, direction: Sequence[Array]) -> float:
        """The largest term of the claim along a direction, where the terms are known."""
        if self.gradient is None:
            return 0.0
        return max(
            (
                float(np.max(np.abs(g * d), initial=0.0))
                for g, d in zip(self.gradient, direction, strict=True)
            ),
            default=0.0,
        )

    def read(self, outputs: Sequence[Array]) -> float:
        """`Re sum(u * y)`."""
        return pair(self.cotangents, outputs)

    def quick(self, direction: Direction, step: float | None = None) -> Probe:
        """One plain central difference: two calls of the function. Remembered."""
        h = step or self.step
        up, down, moved = both_sides(self.target, direction, h)
        difference = self.read([a - b for a, b in zip(up, down, strict=True)]) / (2 * h)
        even = self.read(
            [(a - c) + (b - c) for a, b, c in zip(up, down, self.target.centre, strict=True)]
        ) / (2 * h)
        floor = constant("roundoff_floor_factor") * self.target.unit * self.size_of(up) / h
        claimed = self.claimed(moved)
        whole = explained(self.spread, floor)
        return self._kept(direction, (claimed, difference, self.spread + floor, whole), even)

    def sharp(self, direction: Direction, signal: float) -> Probe:
        """As good a difference as resolves a signal: one step, or a short ladder."""
        single = len(self.rungs) < 2 or self.spread * constant("resolved") <= abs(signal)
        return self.quick(direction) if single else self.short(direction)

    def short(self, direction: Direction) -> Probe:
        """A short ladder at the steps that served the first one. Remembered."""
        found = short_ladder(self.line(direction), self.rungs)
        numbers = (float(found.value[0]), float(found.error[0]), float(found.allowed[0]))
        return self._kept(direction, (self.claimed(direction), *numbers))

    def adopt(self, found: Estimate) -> None:
        """Take the steps that served a ladder for the differences to come."""
        self.step, self.rungs = found.step, found.rungs
        self.spread = float(np.nan_to_num(found.step_error[0]))

    def careful(
        self, direction: Direction, stop_when_wrong: bool = False, witness: Rung | None = None
    ) -> tuple[Probe, Estimate]:
        """A whole ladder along a direction; it may stop where it disagrees for sure. Remembered."""
        claimed = self.claimed(direction)

        def enough(found: Found) -> bool:
            value, moved, floor = (float(part[0]) for part in found)
            sure = constant("resolved") * (moved + floor + self.tolerance * abs(claimed))
            return stop_when_wrong and abs(claimed - value) > sure

        found = climb(self.line(direction), enough, witness)
        value, error = float(found.value[0]), float(found.error[0])
        numbers = (claimed, value, error, float(found.allowed[0]))
        return self._kept(direction, numbers), found

    def confirmed(
        self, probe: Probe, found: Estimate, gaps: Array | None = None
    ) -> tuple[Probe, Estimate]:
        """A ladder that something is to be held against, looked at again at a fine step.

        Where that says otherwise, the whole deep ladder instead: something lies between the steps
        (a kink, a pole), or noise may explain the `gaps` between claims and differences. Where
        the deep one is contradicted too, its probe is `doubtful`.
        """
        gaps = self._gaps(probe, found, gaps)
        finer = self._finer(probe, found, gaps)
        if finer is not None:
            return finer
        witness, stands = self._stands(probe, found, gaps)
        if stands:
            return probe, found
        if probe in self.probes:
            self.probes.remove(probe)
        deep, estimate = self.careful(probe.direction, witness=witness)
        unsure = not deep.agrees or bool(np.any(estimate.jump))
        # the two finest blocks alone: a coarse one may have jumped over a kink or a period
        fine = dataclasses.replace(estimate, blocks=estimate.blocks[:2])
        if unsure and not self._stands(deep, fine, self._gaps(deep, fine))[1]:
            self.probes.remove(deep)
            deep = dataclasses.replace(deep, doubtful=True)
        return deep, estimate

    def _finer(self, probe: Probe, found: Estimate, gaps: Array) -> tuple[Probe, Estimate] | None:
        """The same by far finer steps, where only they settle."""
        line = self.line(probe.direction)
        if not is_unsure(found, gaps):
            return None
        fine = settled(line, found, gaps)
        if fine is None:
            return None
        deep = climb(line, witness=line.rung(constant("witness_step") * fine.step))
        apart = np.abs(deep.value - fine.value) > deep.allowed + fine.allowed
        if deep.allowed[0] < fine.allowed[0] and not (apart[0] or deep.jump[0] or deep.diverges[0]):
            fine = deep
        if probe in self.probes:
            self.probes.remove(probe)
        numbers = (float(fine.value[0]), float(fine.error[0]), float(fine.allowed[0]))
        return self._kept(probe.direction, (probe.claimed, *numbers)), fine

    def _gaps(self, probe: Probe, found: Estimate, gaps: Array | None = None) -> Array:
        gaps = np.zeros_like(found.value) if gaps is None else gaps
        gaps[0] = max(gaps[0], abs(probe.residual))
        return gaps

    def _stands(self, probe: Probe, found: Estimate, gaps: Array) -> tuple[Rung, bool]:
        """A rung at a fine step, no power of two (numbers of coarse arithmetic then do not agree by
        chance), and whether it and all blocks of the ladder bear an estimate out.

        A wrong claim is off by the same amount at every step; noise is not.
        """
        line = self.line(probe.direction)
        finest = found.rungs[-1] if found.rungs else 1.0
        step = max(first_step(line.unit) / 1024, smallest_step(line.unit))
        step = constant("witness_step") * min(step, finest)
        fine = line.rung(step)
        judged, same = gaps > found.allowed, constant("same_at_every_step")
        off = np.abs(fine.odd - found.value)
        floor = constant("noise_factor") * line.floor(step, found.noise)
        slack = np.where(judged, same * gaps, constant("confirmed") * np.abs(found.value))
        good = off <= found.allowed + floor + slack + found.last * min(step / finest, 1.0) ** 2
        for value, moved, own in found.blocks:  # finest first
            apart = np.abs(value - found.value) > explained(moved, own) + same * gaps
            good &= ~(judged & apart)
        straight = np.abs(fine.even - found.jump) <= same * np.abs(found.jump) + floor
        good &= straight | (found.jump == 0)
        return fine, fine.finite and bool(np.all(good)) and not found.diverges.any()

    def _kept(
        self, direction: Direction, numbers: tuple[float, float, float, float], even: float = 0.0
    ) -> Probe:
        claimed, difference, error, whole = numbers
        count = sum(int(np.count_nonzero(d)) for d in direction) or 1
        size = max(self.largest(direction), abs(difference) / count**0.5)
        size = size if np.isfinite(size) else 0.0
        probe = Probe(direction, claimed, difference, error, whole, size, self.tolerance, even)
        self.probes.append(probe)
        return probe

    def line(self, direction: Direction, few: int = FEW) -> Line:
        """The ladder's view: `Re sum(u * y)`, then the results themselves where they are few."""
        target, centre = self.target, [wide(y) for y in self.target.centre]
        narrow = target.unit > constant("narrow_unit")
        each = entries(centre) if sum(y.size for y in centre) <= few else np.zeros(0)

        def readings(outs: list[Array]) -> Array:
            first = np.array([self.read(outs)])
            return np.concatenate([first, entries(outs)]) if each.size else first

        size = np.concatenate([[self.size_of(centre)], np.abs(each)])
        move = mover(target, direction)
        return Line(
            at=lambda h: [wide(y) for y in target.outputs(move(h))],
            centre=centre,
            readings=readings,
            size=size,
            scale=np.r_[self._scale(direction), np.zeros(each.size)],
            unit=target.unit,
            clustered=clustering(target, direction),
            correction=(lambda h: self.correction(direction, h, each.size)) if narrow else None,
            grain=None if narrow else self._grain(centre),
            weights=np.concatenate([np.ravel(wide(u)) for u in self.cotangents]),
        )

    def _scale(self, direction: Direction) -> float:
        """The largest term of the claim; 0 where that is not a number."""
        size = self.largest(direction)
        return size if np.isfinite(size) else 0.0

    def _grain(self, centre: Sequence[Array]) -> Grain | None:
        """The target's record of its results, for one more line."""
        size = sum(y.size for y in centre)
        if any(y.dtype.kind == "c" for y in centre) or not size:
            return None
        record: Grain = self.target.__dict__.setdefault("grain", grain(size))
        record.begin()
        return record

    def ladder(self, direction: Direction) -> Estimate:
        """A ladder that no claim is held against; every result is a reading."""
        return climb(dataclasses.replace(self.line(direction, sys.maxsize), correction=None))

    def correction(self, direction: Direction, h: float, more: int = 0) -> Array:
        """What the rounding of moved points adds to a difference, by the claim itself (to the
        first reading alone).
        """
        up, down = (moved_points(self.target, direction, s * h) for s in (1.0, -1.0))
        extra = [
            (wide(a) - wide(b)) / (2 * h) - d for a, b, d in zip(up, down, direction, strict=True)
        ]
        claimed = self.claimed(extra)
        return np.concatenate([[claimed if np.isfinite(claimed) else 0.0], np.zeros(more)])

    def size_of(self, outputs: Sequence[Array]) -> float:
        """The size of what is summed in `read`: roundings of its terms add in quadrature."""
        return float(
            np.sqrt(
                sum(
                    float(np.sum(np.abs(wide(u) * wide(y)) ** 2))
                    for u, y in zip(self.cotangents, outputs, strict=True)
                )
            )
        )


def entries(outs: Sequence[Array]) -> Array:
    """All entries of the results in one real vector, imaginary parts after the real ones."""
    parts = [
        np.r_[y.real.ravel(), y.imag.ravel()] if y.dtype.kind == "c" else y.ravel() for y in outs
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


Sides = tuple[list[Array], list[Array], Direction]


def clustering(target: Target, direction: Sequence[Array]) -> float:
    """How much larger the moved points are than a direction; 1 where they are alike."""
    most = 1.0
    for x, d in zip(target.points, direction, strict=True):
        moved = np.abs(d) > 0
        if moved.any():
            most = max(most, float(np.max(np.abs(wide(x))[moved] / np.abs(d)[moved])))
    return most if math.isfinite(most) and most > constant("clustered") else 1.0


def mover(target: Target, direction: Sequence[Array]) -> Callable[[float], list[Array]]:
    """h -> the points moved by `h * direction`, rounded to their dtypes; unmoved ones as are."""
    parts = [
        (x, wide(x), d if np.any(d) else None)
        for x, d in zip(target.points, direction, strict=True)
    ]
    return lambda h: [x if d is None else np.asarray(w + h * d, x.dtype) for x, w, d in parts]


def moved_points(target: Target, direction: Sequence[Array], h: float) -> list[Array]:
    """The points moved by `h * direction`."""
    return mover(target, direction)(h)


def both_sides(target: Target, direction: Direction, h: float) -> Sides:
    """Outputs on both sides in float64, and the direction that rounding left."""
    plus, minus = (moved_points(target, direction, s * h) for s in (1.0, -1.0))
    up, down = ([wide(y) for y in target.outputs(p)] for p in (plus, minus))
    if target.unit <= constant("narrow_unit"):
        return up, down, direction
    kept = [(wide(a) - wide(b)) / (2 * h) for a, b in zip(plus, minus, strict=True)]
    return up, down, kept
