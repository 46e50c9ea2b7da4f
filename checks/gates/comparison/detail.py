"""What a failing tensor shows beyond its figures: exact quantiles, worst entries, where it lies."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from checks.gates.comparison.measure import apart_in, pairs
from checks.gates.formats.statistics import Doubles
from checks.gates.formats.stored import Stored

SHARES = (0.5, 0.9, 0.99, 0.999)
WORST, CELLS, POWERS = 5, 64, 64
# Entries that are sorted in memory for a quantile; of more, the bits are counted once again.
_SORTED = 1 << 20
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
        quantiles: the exact 50th, 90th, 99th and 99.9th percentile of |e|: the smallest value
            that so many entries do not exceed.
        worst: the five entries of the largest |e|; first those of which one side is not finite.
        equal: how many entries do not differ.
        power: the exponent of the first count.
        counts: how many |e| lie in [2^(power + n), 2^(power + n + 1)); the first takes those
            below, too.
        strips: for each axis, in at most 64 cells, the mean |e|; where entries disagree in being
            finite, their share instead.
    """

    quantiles: tuple[float, ...]
    worst: tuple[Entry, ...]
    equal: int
    power: int
    counts: tuple[int, ...]
    strips: tuple[tuple[float, ...], ...]


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


def detail(reference: Stored, candidate: Stored, disagreements: int = 0) -> Detail:
    """Look at two stored tensors of equal shape again, in a few passes and bounded memory.

    Arguments:
        reference, candidate: the pair.
        disagreements: how many entries of it disagree in being finite.

    Raises:
        GateError: a file ends early or does not hold what its manifest says.
    """
    shape = reference.tensor.shape
    parts = 2 if _is_complex(reference, candidate) else 1
    worst: list[tuple[float, int, float, float]] = []
    top = np.zeros(1 << _BITS, np.int64)
    strips = _Strips(shape, parts)
    equal = 0
    for block in _blocks(reference, candidate):
        worst = _worst(worst, block)
        bits = _bits(block)
        equal += bits.size - int(np.count_nonzero(bits))
        top += _counted(bits, 0)
        strips.add(block.start, block.odd if disagreements else block.errors)
    power, counts = _powers(top, equal)
    return Detail(
        quantiles=_quantiles(reference, candidate, top),
        worst=tuple(_entry(w, shape, parts) for w in worst),
        equal=equal,
        power=power,
        counts=counts,
        strips=strips.means(),
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


# --- exact quantiles: a radix selection over the bits, which order floats >= 0 as they are ---


def _bits(block: _Block) -> npt.NDArray[np.uint64]:
    good = block.e if block.good is None else block.e[block.good]
    return np.ascontiguousarray(good).view(np.uint64)


def _counted(bits: npt.NDArray[np.uint64], level: int) -> Counts:
    """How often each value of the 16 bits of one level occurs."""
    digits = (bits >> np.uint64(64 - _BITS * (level + 1))) & np.uint64((1 << _BITS) - 1)
    return np.bincount(digits.astype(np.int64), minlength=1 << _BITS)


def _quantiles(reference: Stored, candidate: Stored, top: Counts) -> tuple[float, ...]:
    total = int(top.sum())
    if not total:
        return ()
    ranks = [max(1, math.ceil(share * total)) for share in SHARES]
    found = [_digit(top, rank) for rank in ranks]
    for level in range(1, 64 // _BITS):
        prefixes = sorted({prefix for prefix, _, _ in found})
        if sum({prefix: size for prefix, _, size in found}.values()) <= _SORTED:
            return _picked(reference, candidate, found, level)
        counts = _refined(reference, candidate, prefixes, level)
        deeper = [(_digit(counts[p], rank), p) for p, rank, _ in found]
        found = [((p << _BITS) | digit, rest, size) for (digit, rest, size), p in deeper]
    return tuple(float(np.array([p], np.uint64).view(np.float64)[0]) for p, _, _ in found)


def _digit(counts: Counts, rank: int) -> tuple[int, int, int]:
    """The digit in which the entry of a rank (from 1) falls, its rank and their number there."""
    sums = np.cumsum(counts)
    digit = int(np.searchsorted(sums, rank))
    return digit, rank - int(sums[digit] - counts[digit]), int(counts[digit])


def _refined(
    reference: Stored, candidate: Stored, prefixes: Sequence[int], level: int
) -> Mapping[int, Counts]:
    counts = {p: np.zeros(1 << _BITS, np.int64) for p in prefixes}
    for block in _blocks(reference, candidate):
        bits = _bits(block)
        head = bits >> np.uint64(64 - _BITS * level)
        for p in prefixes:
            counts[p] += _counted(bits[head == np.uint64(p)], level)
    return counts


def _picked(
    reference: Stored, candidate: Stored, found: Sequence[tuple[int, int, int]], level: int
) -> tuple[float, ...]:
    """The quantiles, once so few entries share their first bits that they are sorted."""
    kept: dict[int, list[Any]] = {p: [] for p, _, _ in found}
    for block in _blocks(reference, candidate):
        bits = _bits(block)
        head = bits >> np.uint64(64 - _BITS * level)
        for p, parts in kept.items():
            parts.append(bits[head == np.uint64(p)])
    ordered = {p: np.sort(np.concatenate(parts)) for p, parts in kept.items()}
    return tuple(float(ordered[p].view(np.float64)[rank - 1]) for p, rank, _ in found)


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
