"""What a failing tensor shows beyond its figures: exact quantiles, worst entries, where it lies.

One pass over both sides: `measure` knows in which bins of its histogram the quantiles lie.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from checks.gates.comparison.measure import Measured, apart_in, pairs
from checks.gates.formats.statistics import Doubles, bins_of
from checks.gates.formats.stored import Stored

WORST, CELLS, POWERS = 5, 64, 64
# Different values of a bin that are kept in memory; of more, the first bits after the point.
_KEPT = 1 << 20
_DROPPED = 29  # of the 52 bits after the point: float32's 23 are left
_BITS = 16
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a tensor on both sides.

    Arguments:
        index: where it is.
        reference, candidate: the values there; a part where complex.
        part: "real" or "imag" where complex, else "".
    """

    index: tuple[int, ...]
    reference: float
    candidate: float
    part: str = ""


@dataclass(frozen=True, slots=True)
class Detail:
    """Where and how a tensor is off; e = candidate - reference over entries finite on both sides.

    Arguments:
        quantiles: the 50th, 90th, 99th and 99.9th percentile of |e|: the smallest value that so
            many entries do not exceed; empty where no entry is finite on both sides.
        worst: the five entries of the largest |e|; first those of which one side is not finite.
        equal: how many entries do not differ.
        power: the exponent of the first count.
        counts: how many |e| lie in [2^(power + n), 2^(power + n + 1)); the first takes those
            below, too.
        strips: for each axis, in at most 64 cells, the mean |e|; where entries disagree in being
            finite, their share instead.
        within: how far below the exact ones the quantiles may lie, relative; 0 where exact.
    """

    quantiles: tuple[float, ...]
    worst: tuple[Entry, ...]
    equal: int
    power: int
    counts: tuple[int, ...]
    strips: tuple[tuple[float, ...], ...]
    within: float = 0.0


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of a pair: the place of its first component, values, |e|; where both are finite, None
    where they are everywhere.
    """

    start: int
    r: Doubles
    c: Doubles
    e: Doubles
    good: npt.NDArray[np.bool_] | None

    @property
    def errors(self) -> Doubles:
        """|e|, zero where a side is not finite."""
        return self.e if self.good is None else np.where(self.good, self.e, 0.0)

    @property
    def odd(self) -> npt.NDArray[np.bool_]:
        """Entries where one side is not finite and the other is not the same."""
        if self.good is None:
            return np.zeros(self.e.size, np.bool_)
        same = (np.isnan(self.r) & np.isnan(self.c)) | (self.r == self.c)
        odd: npt.NDArray[np.bool_] = ~self.good & ~same
        return odd


def detail(reference: Stored, candidate: Stored, measured: Measured) -> Detail:
    """Look at two stored tensors of equal shape again, in one pass and bounded memory.

    Arguments:
        reference, candidate: the pair.
        measured: what `measure` found of it.

    Raises:
        GateError: a file ends early or does not hold what its manifest says.
    """
    shape = reference.tensor.shape
    parts = 2 if _is_complex(reference, candidate) else 1
    worst: list[tuple[float, int, float, float]] = []
    top = np.zeros(1 << _BITS, np.int64)
    bins = {n: _Bin() for n, _ in measured.places}
    strips = _Strips(shape, parts)
    equal = 0
    for block in _blocks(reference, candidate):
        worst = _worst(worst, block)
        bits = _bits(block)
        equal += bits.size - int(np.count_nonzero(bits))
        top += _counted(bits)
        _sorted_in(bins, bits.view(np.float64))
        strips.add(block.start, block.odd if measured.disagreements else block.errors)
    power, counts = _powers(top, equal)
    return Detail(
        quantiles=tuple(bins[n].value(rank) for n, rank in measured.places),
        worst=tuple(_entry(w, shape, parts) for w in worst),
        equal=equal,
        power=power,
        counts=counts,
        strips=strips.means(),
        within=max((b.within for b in bins.values()), default=0.0),
    )


def _is_complex(*stored: Stored) -> bool:
    return any(s.tensor.dtype.startswith("complex") for s in stored)


def _blocks(reference: Stored, candidate: Stored) -> Iterator[_Block]:
    pair = _is_complex(reference, candidate)
    start = 0
    for r, c in pairs(reference, candidate):
        with np.errstate(all="ignore"):
            x, y, d = apart_in(r, c, pair)
            e = np.abs(d)
            whole = math.isfinite(float(e.sum()))
        yield _Block(start, x, y, e, None if whole else np.isfinite(x) & np.isfinite(y))
        start += x.size


# --- the worst entries ---


def _worst(
    found: list[tuple[float, int, float, float]], block: _Block
) -> list[tuple[float, int, float, float]]:
    """The five largest |e| so far; infinite for entries that disagree in being finite."""
    e = block.e
    if block.good is not None:
        e = np.where(block.good, block.e, np.where(block.odd, np.inf, -1.0))
    if len(found) == WORST and e.max(initial=0.0) <= found[-1][0]:
        return found  # of equal ones those before stay
    at = np.argpartition(-e, WORST - 1)[:WORST] if e.size > WORST else np.arange(e.size)
    new = [(float(e[n]), block.start + int(n), float(block.r[n]), float(block.c[n])) for n in at]
    return sorted([*found, *(w for w in new if w[0] > 0)], key=lambda w: (-w[0], w[1]))[:WORST]


def _entry(found: tuple[float, int, float, float], shape: tuple[int, ...], parts: int) -> Entry:
    _, at, r, c = found
    index = tuple(int(n) for n in np.unravel_index(at // parts, shape))
    return Entry(index, r, c, "" if parts == 1 else ("real", "imag")[at % 2])


# --- quantiles: the values in their bins alone ---


def _bits(block: _Block) -> npt.NDArray[np.uint64]:
    good = block.e if block.good is None else block.e[block.good]
    return np.ascontiguousarray(good).view(np.uint64)


def _counted(bits: npt.NDArray[np.uint64]) -> Counts:
    """How often each value of the first 16 bits occurs."""
    digits = bits >> np.uint64(64 - _BITS)
    return np.bincount(digits.astype(np.int64), minlength=1 << _BITS)


@dataclass(slots=True)
class _Bin:
    """The values in one bin of the histogram, each with how often it occurs."""

    parts: list[tuple[Doubles, Counts]] = field(default_factory=list)
    waiting: int = 0
    values: Doubles = field(default_factory=lambda: np.zeros(0))
    counts: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    within: float = 0.0

    def add(self, values: Doubles) -> None:
        """Take values of that bin."""
        times = np.ones(values.size, np.int64)
        if values.size and values.min() == values.max():  # an offset of all entries
            values, times = values[:1], np.array([values.size])
        self.parts.append((values, times))
        self.waiting += values.size
        if self.waiting > _KEPT:
            self._join()

    def value(self, rank: int) -> float:
        """Return the value of a rank, from 1."""
        self._join()
        return float(self.values[np.searchsorted(np.cumsum(self.counts), rank)])

    def _join(self) -> None:
        """Count equal values together; where too many differ, those of equal first bits."""
        parts = [(self.values, self.counts), *self.parts]
        self._count(*(np.concatenate(p) for p in zip(*parts, strict=True)))
        self.parts, self.waiting = [], 0
        if self.values.size > _KEPT and not self.within:
            self.within = 2.0 ** (_DROPPED - 52)
            self._count(self.values, self.counts)

    def _count(self, values: Doubles, counts: Counts) -> None:
        if self.within:
            kept = np.uint64(2**64 - 2**_DROPPED)
            values = (values.view(np.uint64) & kept).view(np.float64)
        self.values, place = np.unique(values, return_inverse=True)
        self.counts = np.bincount(place, counts).astype(np.int64)


def _sorted_in(bins: dict[int, _Bin], values: Doubles) -> None:
    """Give each bin the values that are its own."""
    if bins:
        place = bins_of(values)
        for n, found in bins.items():
            found.add(values[place == n])


def _powers(top: Counts, equal: int) -> tuple[int, tuple[int, ...]]:
    """Counts by power of two, of the sign, exponent and first bits of a float64."""
    by_exponent = top.reshape(-1, 1 << (_BITS - 12)).sum(axis=1)
    by_exponent[0] -= equal
    there = np.flatnonzero(by_exponent)
    if not there.size:
        return 0, ()
    first = max(int(there[0]), int(there[-1]) - POWERS + 1)
    counts = by_exponent[first : int(there[-1]) + 1].copy()
    counts[0] += int(by_exponent[:first].sum())
    return first - 1023, tuple(int(n) for n in counts)


# --- the error along each axis ---


class _Strips:
    """Sums of |e| along each axis, of a tensor that comes in flat blocks."""

    def __init__(self, shape: tuple[int, ...], parts: int) -> None:
        self.shape, self.parts = shape, parts
        self.axes = (*shape, parts)
        self.sums = [np.zeros(min(CELLS, n)) for n in self.axes]

    def add(self, start: int, values: npt.NDArray[Any]) -> None:
        """Take the values of one block, the first of which is component `start`.

        Rows of the last axis are added up first; what is left is shorter by as much.
        """
        for n, size in reversed(list(enumerate(self.axes))):
            cells = self.sums[n].size
            if size > values.size:  # a block within one row, or over the end of one
                place = np.arange(start, start + values.size)
                rows, at = np.divmod(place, size)
                self.sums[n] += np.bincount(at * cells // size, values, cells)
                start = start // size
                values = np.bincount(rows - start, values, 1)
                continue
            ahead = start % size
            whole = np.zeros(-(-(ahead + values.size) // size) * size)
            whole[ahead : ahead + values.size] = values
            table = whole.reshape(-1, size)
            place = np.arange(size) * cells // size
            self.sums[n] += np.bincount(place, table.sum(axis=0), cells)
            start, values = start // size, table.sum(axis=1)

    def means(self) -> tuple[tuple[float, ...], ...]:
        """Return the mean of each cell."""
        total = math.prod(self.axes)
        made = []
        for size, sums in zip(self.shape, self.sums, strict=False):
            cells = np.bincount(np.arange(size) * sums.size // size, minlength=sums.size)
            entries = cells * (total // max(1, size))
            made.append(tuple(float(v) for v in sums / np.maximum(entries, 1)))
        return tuple(made)
