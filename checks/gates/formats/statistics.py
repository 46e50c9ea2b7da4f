"""Figures of a tensor in one pass over its chunks, in float64, with bounded memory."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from checks.gates.formats.manifest import Statistics

Doubles = npt.NDArray[np.float64]

# A bin is the exponent and the first 7 bits after the point of a float32: 0.8 % wide.
_SHIFT, _BINS = 16, 1 << 15
_LARGEST = float(np.finfo(np.float32).max)


def doubles(values: npt.NDArray[Any]) -> Doubles:
    """Return values as a flat float64 array; a complex one as its real and imaginary parts."""
    flat = values.reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    with np.errstate(all="ignore"):
        return flat.astype(np.float64)


def bins_of(magnitudes: Doubles) -> npt.NDArray[np.uint32]:
    """Return the bin of each finite magnitude; a larger one is in no lower bin."""
    with np.errstate(all="ignore"):
        single = np.minimum(magnitudes, _LARGEST).astype(np.float32)
    return single.view(np.uint32) >> np.uint32(_SHIFT)


@dataclass(slots=True)
class Histogram:
    """Magnitudes counted by exponent: quantiles to within 0.8 %, whatever their number."""

    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_BINS, np.int64))

    def add(self, magnitudes: Doubles) -> None:
        """Count finite magnitudes; those beyond float32 as its largest or smallest."""
        self.counts += np.bincount(bins_of(magnitudes), minlength=_BINS)[:_BINS]

    def quantile(self, share: float, largest: float = math.inf) -> float:
        """Return the middle of the bin that holds the quantile, never above `largest`.

        0.0 where nothing was counted.
        """
        bins, sums = self._filled()
        if not bins.size:
            return 0.0
        n = int(bins[np.searchsorted(sums, share * sums[-1])])
        if n == 0:
            return 0.0
        edges = (np.array([n, n + 1], np.uint32) << _SHIFT).view(np.float32).astype(np.float64)
        return min(float(edges[0]) if not np.isfinite(edges[1]) else float(edges.mean()), largest)

    def places(self, shares: Sequence[float]) -> tuple[tuple[int, int], ...]:
        """Return for each quantile (the smallest magnitude that such a share does not exceed) the
        bin that holds it and its rank there, from 1; empty where nothing was counted.
        """
        bins, sums = self._filled()
        if not bins.size:
            return ()
        ranks = [max(1, math.ceil(share * int(sums[-1]))) for share in shares]
        return tuple(
            (int(bins[at]), rank - int(sums[at] - self.counts[bins[at]]))
            for at, rank in zip(np.searchsorted(sums, ranks), ranks, strict=True)
        )

    def _filled(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
        """The bins that hold anything, few of all, and how many lie in each and those below it."""
        bins = np.flatnonzero(self.counts)
        return bins, np.cumsum(self.counts[bins])


@dataclass(slots=True)
class Accumulator:
    """Adds up `Statistics` over chunks."""

    total: float = 0.0
    squares: float = 0.0
    least: float = math.inf
    most: float = -math.inf
    finite: int = 0
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    zero: int = 0
    histogram: Histogram = field(default_factory=Histogram)

    def add(self, chunk: npt.NDArray[Any]) -> None:
        """Take one chunk of any dtype."""
        x = doubles(chunk)
        good = np.isfinite(x)
        if not good.all():
            self.nan += int(np.isnan(x).sum())
            self.posinf += int(np.isposinf(x).sum())
            self.neginf += int(np.isneginf(x).sum())
            x = x[good]
        if not x.size:
            return
        self.finite += x.size
        self.zero += x.size - int(np.count_nonzero(x))
        self.least, self.most = min(self.least, float(x.min())), max(self.most, float(x.max()))
        with np.errstate(over="ignore"):
            self.total += float(x.sum())
            self.squares += float(np.dot(x, x))
        self.histogram.add(np.abs(x))

    def result(self) -> Statistics:
        """Return the figures of all chunks; None for those that overflow float64."""
        counts = {n: getattr(self, n) for n in ("nan", "posinf", "neginf", "zero")}
        if not self.finite:
            return Statistics(**counts)
        largest = max(abs(self.least), abs(self.most))
        return Statistics(
            min=self.least,
            max=self.most,
            mean=_finite(self.total / self.finite),
            rms=_finite(math.sqrt(self.squares / self.finite)),
            p99_abs=self.histogram.quantile(0.99, largest),
            absmax=largest,
            **counts,
        )


def statistics(chunks: Iterable[npt.NDArray[Any]]) -> Statistics:
    """Return the figures of a tensor given in chunks (or as `[array]`)."""
    found = Accumulator()
    for chunk in chunks:
        found.add(chunk)
    return found.result()


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
