"""Two tensors of one shape, side by side in one pass: float64 sums, memory that never grows."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from checks.gates.formats.statistics import Doubles, Histogram
from checks.gates.formats.stored import Array, Stored, crc32

SHARES = (0.5, 0.9, 0.99, 0.999)  # quantiles that a failing tensor is asked for
BLOCK = 1 << 17  # entries a step: 1 MiB of float64
SAMPLE = 1 << 18  # entries kept for the eta statistic
BINS, LEAST_BINS, LEAST_IN_A_BIN = 256, 8, 8
_PENDING = 4


@dataclass(frozen=True, slots=True)
class Measured:
    """What one pass over a pair found; e = candidate - reference over entries finite on both sides.

    Arguments:
        count: entries of either side (components, where complex).
        differing: entries that are not equal, NaN in the same place apart.
        max_abs, mean_abs, rms: of |e|; nan where an entry of one side alone is not finite.
        p99_abs: the 99th percentile of |e|, to 0.8 %.
        worst: the entry of the largest |e| (of the first disagreement in finiteness).
        disagreements: entries where one side is not finite and the other is not the same.
        nonfinite: entries that are not finite, on the reference and on the candidate.
        sums: sum of r, c, r^2, c^2, r c and e^2 over entries finite on both sides.
        finite: how many those are.
        eta: the share of sum e^2 that the reference's value explains; None where nothing differs.
        eta_noise: what pure noise would give.
        crc: crc32 of the reference's and of the candidate's bytes.
        places: for each of `SHARES` the bin of the histogram of |e| that holds the quantile, and
            its rank there; none where nothing differs, nor of what is read of a report.
    """

    count: int
    differing: int
    max_abs: float
    mean_abs: float
    rms: float
    p99_abs: float
    worst: tuple[int, ...] | None
    disagreements: int
    nonfinite: tuple[int, int]
    sums: tuple[float, float, float, float, float, float]
    finite: int
    eta: float | None
    eta_noise: float
    crc: tuple[int, int]
    places: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    @property
    def relative_rms(self) -> float:
        """sqrt(sum e^2 / sum r^2); inf where the reference is zero and the candidate is not; nan
        where a square is beyond float64.
        """
        error, size = self.sums[5], self.sums[2]
        if not (math.isfinite(error) and math.isfinite(size)) or (
            not error and self.differing > self.disagreements
        ):
            return math.nan
        return _ratio(error, size)

    @property
    def cosine(self) -> float:
        """sum r c / (|r| |c|); nan where one is zero."""
        size = math.sqrt(self.sums[2]) * math.sqrt(self.sums[3])
        return self.sums[4] / size if 0 < size < math.inf else math.nan


@dataclass(slots=True)
class _Part:
    """What one block adds."""

    start: int
    entries: int
    finite: int
    differing: int
    largest: float
    at: int
    means: tuple[float, float]
    sums: tuple[float, ...]
    counts: npt.NDArray[np.int64] | None
    disagreements: int
    first: int
    nonfinite: tuple[int, int]
    sample: tuple[Doubles, Doubles]


def measure(reference: Stored, candidate: Stored) -> Measured:
    """Compare two stored tensors of equal shape in one pass.

    One thread reads and takes the crc of both sides, another one computes; at most a few blocks
    are in memory.

    Raises:
        GateError: a file ends early or does not hold what its manifest says.
    """
    parts: list[_Part] = []
    histogram = Histogram()
    crc = [0, 0]
    share = min(1.0, SAMPLE / max(1, reference.tensor.size))
    with _worker(reference.tensor.size) as pool:
        waiting: deque[Future[_Part]] = deque()
        start = 0
        for r, c in pairs(reference, candidate):
            crc = [crc32(r, crc[0]), crc32(c, crc[1])]
            waiting.append(pool.submit(_block, r, c, start, share))
            start += r.size
            if len(waiting) >= _PENDING:
                parts.append(_counted(waiting.popleft().result(), histogram))
        parts += [_counted(w.result(), histogram) for w in waiting]
    per_entry = 2 if reference.tensor.dtype.startswith("complex") else 1
    return _joined(parts, histogram, reference.tensor.shape, per_entry, (crc[0], crc[1]))


def _counted(part: _Part, histogram: Histogram) -> _Part:
    """The part without its counts: kept for each block they would grow with the tensor."""
    if part.counts is not None:
        histogram.counts += part.counts
        part.counts = None
    return part


def _worker(size: int) -> "ThreadPoolExecutor | _Here":
    """A thread for a tensor of several blocks; one block is done sooner than a thread starts."""
    return ThreadPoolExecutor(1) if size > BLOCK else _Here()


class _Here:
    """Computes at once, where it is asked to."""

    def submit(self, call: Callable[..., _Part], *given: Any) -> Future[_Part]:
        done: Future[_Part] = Future()
        done.set_result(call(*given))
        return done

    def __enter__(self) -> "_Here":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def pairs(reference: Stored, candidate: Stored) -> Iterator[tuple[Array, Array]]:
    """Yield both sides' values, a block at a time."""
    return zip(reference.chunks(BLOCK), candidate.chunks(BLOCK), strict=True)


def floats(values: Array, complex_pair: bool) -> Doubles:
    """Return values in float64; complex ones as real and imaginary parts in turn."""
    if complex_pair:
        return values.astype(np.complex128, copy=False).view(np.float64)
    return values.astype(np.float64)


def apart_in(r: Array, c: Array, complex_pair: bool) -> tuple[Doubles, Doubles, Doubles]:
    """Return both sides in float64 and c - r, where 64-bit integers keep what float64 takes."""
    x, y = floats(r, complex_pair), floats(c, complex_pair)
    d = y - x
    if not complex_pair:
        for values, high, sign in ((r, x, -1.0), (c, y, 1.0)):
            if values.dtype.kind in "iu" and values.itemsize == 8:
                d += sign * _rest(values, high)
    return x, y, d


def _rest(values: Array, high: Doubles) -> Doubles:
    """Integers less their float64: beyond 2^53 it cannot tell neighbours apart."""
    wrapped = np.where(high >= 2.0**63, high - 2.0**64, high).astype(np.int64)
    rest: Doubles = (values.view(np.int64) - wrapped).astype(np.float64)
    return rest


def _block(r: Array, c: Array, start: int, share: float) -> _Part:
    pair = "c" in (r.dtype.kind, c.dtype.kind)
    with np.errstate(all="ignore"):
        x, y, d = apart_in(r, c, pair)
        e = np.abs(d)
        largest = float(e.max()) if e.size else 0.0
    disagreements, first, nonfinite = 0, -1, (0, 0)
    index = None
    differing = int(np.count_nonzero(e))
    if not math.isfinite(largest):
        bad_x, bad_y = ~np.isfinite(x), ~np.isfinite(y)
        same = (np.isnan(x) & np.isnan(y)) | (x == y)
        wrong = (bad_x | bad_y) & ~same
        disagreements = int(wrong.sum())
        first = int(np.argmax(wrong)) if disagreements else -1
        nonfinite = int(bad_x.sum()), int(bad_y.sum())
        index = np.flatnonzero(~(bad_x | bad_y))
        x, y, d, e = x[index], y[index], d[index], e[index]
        differing = int(np.count_nonzero(e)) + disagreements
    at = int(np.argmax(e)) if e.size else -1
    largest = float(e[at]) if e.size else 0.0
    return _Part(
        start=start * (2 if pair else 1),
        entries=r.size * (2 if pair else 1),
        finite=x.size,
        differing=differing,
        largest=largest,
        at=at if index is None or at < 0 else int(index[at]),
        means=_means_of(e) if differing else (0.0, 0.0),
        sums=_sums(x, y, d),
        counts=_counts(e) if differing else None,
        disagreements=disagreements,
        first=first,
        nonfinite=nonfinite,
        sample=_sample(x, d, start, share),
    )


def _sums(x: Doubles, y: Doubles, d: Doubles) -> tuple[float, ...]:
    with np.errstate(all="ignore"):
        dots = np.dot(x, x), np.dot(y, y), np.dot(x, y), np.dot(d, d)
        return (float(x.sum()), float(y.sum()), *(float(v) for v in dots))


def _counts(e: Doubles) -> npt.NDArray[np.int64]:
    histogram = Histogram()
    histogram.add(e)
    return histogram.counts


def _sample(x: Doubles, d: Doubles, start: int, share: float) -> tuple[Doubles, Doubles]:
    """Entries drawn at random: a fixed stride could meet the same column in every row."""
    if share >= 1:
        return x, d
    count = math.ceil(share * x.size)
    if not count:
        return x, d
    at = np.random.default_rng(start).integers(0, x.size, count)
    return x[at], d[at]


def _joined(
    parts: list[_Part],
    histogram: Histogram,
    shape: tuple[int, ...],
    per_entry: int,
    crc: tuple[int, int],
) -> Measured:
    finite = sum(p.finite for p in parts)
    disagreements = sum(p.disagreements for p in parts)
    sums = tuple(_added([p.sums[n] for p in parts]) for n in range(6))
    differing = sum(p.differing for p in parts)
    measured = [p for p in parts if p.at >= 0]
    top = max(measured, key=lambda p: (p.largest, -p.start), default=None)
    largest = top.largest if top else 0.0
    worst = top.start + top.at if top and largest > 0 else None
    if disagreements:
        worst = next(p.start + p.first for p in parts if p.disagreements)
    missing = max(0, finite - int(histogram.counts.sum()))
    histogram.counts[0] += missing  # blocks without a difference were not counted
    eta, noise = _eta(parts)
    place = None
    if worst is not None:
        place = tuple(int(i) for i in np.unravel_index(worst // per_entry, shape))
    return Measured(
        count=sum(p.entries for p in parts),
        differing=differing,
        max_abs=math.nan if disagreements else largest,
        mean_abs=_mean(parts, finite) if not disagreements else math.nan,
        rms=math.sqrt(sums[5] / finite) if finite else 0.0,
        p99_abs=histogram.quantile(0.99, largest),
        worst=place,
        disagreements=disagreements,
        nonfinite=(sum(p.nonfinite[0] for p in parts), sum(p.nonfinite[1] for p in parts)),
        sums=sums,  # type: ignore[arg-type]
        finite=finite,
        eta=eta,
        eta_noise=noise,
        crc=crc,
        places=histogram.places(SHARES) if differing else (),
    )


def _means_of(e: Doubles) -> tuple[float, float]:
    """The sum of |e|, and their mean, which may be finite where the sum is not."""
    with np.errstate(over="ignore"):
        total = float(e.sum())
    return total, 0.0 if math.isfinite(total) else float((e / e.size).sum())


def _mean(parts: list[_Part], finite: int) -> float:
    if not finite:
        return 0.0
    total = _added([p.means[0] for p in parts])
    if math.isfinite(total):
        return total / finite
    means = [p.means[1] or p.means[0] / max(1, p.finite) for p in parts]
    return _added([m * (p.finite / finite) for m, p in zip(means, parts, strict=True)])


def _added(values: list[float]) -> float:
    if all(math.isfinite(v) for v in values):
        return math.fsum(values)
    return sum(values)


def _ratio(error: float, size: float) -> float:
    if not error:
        return 0.0
    return math.sqrt(error / size) if size else math.inf


def _eta(parts: list[_Part]) -> tuple[float | None, float]:
    if not parts:
        return None, 0.0
    x = np.concatenate([p.sample[0] for p in parts])
    d = np.concatenate([p.sample[1] for p in parts])
    return eta(x, d)


def eta(values: Any, errors: Any) -> tuple[float | None, float]:
    """Return the share of the squared error that the reference's value explains, and what noise
    alone would give.

    The correlation ratio (K. Pearson, 1905), about zero instead of the mean, so that a bias
    counts: over bins of equally many entries by value, sum n (mean e)^2 / sum e^2.

    Arguments:
        values: the reference, flat float64.
        errors: candidate - reference, flat float64.

    Returns:
        eta, None where nothing differs or there are too few entries; and bins / entries.
    """
    bins = min(BINS, values.size // LEAST_IN_A_BIN)
    with np.errstate(over="ignore"):
        size = float(np.dot(errors, errors)) if values.size else 0.0
    if bins < LEAST_BINS or not size or not math.isfinite(size):
        return None, 0.0
    ordered = errors[np.argsort(values, kind="stable")]
    edges = np.linspace(0, values.size, bins + 1).astype(np.int64)
    sums = np.add.reduceat(ordered, edges[:-1])
    found = float(np.sum(sums**2 / np.diff(edges))) / size
    return min(found, 1.0), bins / values.size
