"""How far a few tensors of one shape are from each other, in one pass: three sides, or many."""

import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from checks.gates.comparison.measure import BLOCK, floats
from checks.gates.formats.statistics import Doubles
from checks.gates.formats.stored import Array, Stored
from checks.tolerances import constant

_PENDING = 4
Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Apart:
    """Distances between tensors, over entries that are finite in all of them.

    Arguments:
        max_abs, mean_abs, rms: of |a - b|, a symmetric matrix each.
        finite: how many entries those are.
        odd: entries that are not finite in one of them and not the same in all.
    """

    max_abs: Matrix
    mean_abs: Matrix
    rms: Matrix
    finite: int
    odd: int

    def correlation(self, a: int, b: int, base: int = 0) -> float:
        """Return the cosine between the errors of `a` and of `b` against `base`; nan where one
        has none.

        |a - b|^2 = |a - base|^2 + |b - base|^2 - 2 (a - base) (b - base).
        """
        x, y, between = self.rms[base][a], self.rms[base][b], self.rms[a][b]
        if not x or not y:
            return math.nan
        return max(-1.0, min(1.0, (x / y + y / x - (between / x) * (between / y)) / 2))


@dataclass(frozen=True, slots=True)
class ThreeWay:
    """The rms distances of three sides: what is rounding, and whose.

    Arguments:
        own: A, reference from reference64: the reference's own rounding.
        candidate: B, candidate from reference64.
        gap: C, candidate from reference.
    """

    own: float
    candidate: float
    gap: float

    @property
    def ratio(self) -> float:
        """B / A; nan where both are zero."""
        if self.own:
            return self.candidate / self.own
        return math.inf if self.candidate else math.nan

    @property
    def rounding(self) -> bool:
        """Whether the candidate is no farther from reference64 than rounding explains."""
        return not self.ratio > constant("gate_three_way")

    @property
    def shared(self) -> bool:
        """Whether both are equally far from reference64 and near each other: A ~ B, C << B."""
        like = 1 / constant("gate_three_way_like") <= self.ratio <= constant("gate_three_way_like")
        return like and self.gap <= constant("gate_three_way_near") * self.candidate

    @property
    def text(self) -> str:
        """What the three distances say, in a few words."""
        if not self.own and not self.candidate:
            return "all three are equal"
        if not self.rounding:
            return "more than rounding explains"
        if self.shared:
            return "the gap to reference64 is the reference's own rounding, which both share"
        if self.ratio < 1 / constant("gate_three_way"):
            return "the gap is the reference's own rounding: the candidate is nearer to reference64"
        return "rounding: both are about equally far from reference64"


def three_way(reference: Stored, reference64: Stored, candidate: Stored) -> tuple[ThreeWay, int]:
    """Return the distances, and how many entries are left out as not finite on one side alone."""
    found = apart((reference, reference64, candidate))
    return ThreeWay(found.rms[0][1], found.rms[1][2], found.rms[0][2]), found.odd


def apart(tensors: Sequence[Stored]) -> Apart:
    """Measure every pair of stored tensors of equal shape in one pass; a few blocks in memory.

    Raises:
        GateError: a file ends early or does not hold what its manifest says.
    """
    size = len(tensors)
    parts: list[_Part] = []
    with ThreadPoolExecutor(1) as pool:
        waiting: deque[Future[_Part]] = deque()
        for values in zip(*(t.chunks(BLOCK) for t in tensors), strict=True):
            waiting.append(pool.submit(_block, values))
            if len(waiting) >= _PENDING:
                parts.append(waiting.popleft().result())
        parts += [w.result() for w in waiting]
    none = np.zeros((size, size))
    most = np.maximum.reduce([none, *(p.most for p in parts)])
    total = np.sum([none, *(p.total for p in parts)], axis=0)
    squares = np.sum([none, *(p.squares for p in parts)], axis=0)
    finite, odd = sum(p.finite for p in parts), sum(p.odd for p in parts)
    count = max(1, finite)
    return Apart(_rows(most), _rows(total / count), _rows(np.sqrt(squares / count)), finite, odd)


@dataclass(slots=True)
class _Part:
    """What one block adds."""

    most: Doubles
    total: Doubles
    squares: Doubles
    finite: int
    odd: int


def _block(values: Sequence[Array]) -> _Part:
    pair = any(v.dtype.kind == "c" for v in values)
    with np.errstate(all="ignore"):
        x = np.stack([floats(v, pair) for v in values])
        bad = ~np.isfinite(x)
    odd = 0
    if bad.any():
        same = np.isnan(x).all(axis=0) | (x == x[0]).all(axis=0)
        odd = int((bad.any(axis=0) & ~same).sum())
        x = x[:, ~bad.any(axis=0)]
    n = len(values)
    part = _Part(np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n)), x.shape[1], odd)
    for a in range(n):
        for b in range(a):
            with np.errstate(all="ignore"):
                d = np.abs(x[a] - x[b])
                figures = (d.max(initial=0.0), d.sum(), np.dot(d, d))
            for matrix, value in zip((part.most, part.total, part.squares), figures, strict=True):
                matrix[a, b] = matrix[b, a] = value
    return part


def _rows(matrix: Doubles) -> Matrix:
    return tuple(tuple(float(v) for v in row) for row in matrix)
