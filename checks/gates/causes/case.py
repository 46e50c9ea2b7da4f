"""A failing pair in memory, and the one test that every named cause must pass: undo it."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from checks.gates.comparison.record import Cause
from checks.gates.formats.statistics import Doubles
from checks.gates.formats.stored import Array, Stored
from checks.gates.limits.contract import Limit
from checks.tolerances import constant

# Entries a diagnosis holds in memory; of a larger tensor it sees the first rows.
LIMIT = 1 << 22
# Entries that a fit must explain with each parameter; many slices, and entries in each of them.
_LEAST, _MANY, _EACH = 4, 8, 2


@dataclass(frozen=True)
class Case:
    """One failing pair.

    Arguments:
        reference, candidate: the values as stored.
        limit: what is allowed.
        whole: False where only the first rows of axis 0 are there.
    """

    reference: Array
    candidate: Array
    limit: Limit
    whole: bool = True

    @cached_property
    def r(self) -> Doubles:
        """The reference in float64, in its shape; where complex, a last axis holds both parts."""
        return _wide(self.reference)

    @cached_property
    def c(self) -> Doubles:
        """The candidate in float64."""
        return _wide(self.candidate)

    @property
    def parts(self) -> int | None:
        """The axis of real and imaginary parts; None where the values are real."""
        return self.reference.ndim if self.reference.dtype.kind == "c" else None

    @cached_property
    def rounding(self) -> float:
        """What a few units in the last place are, rms, of the coarser of both dtypes."""
        kinds = [v.dtype for v in (self.reference, self.candidate) if v.dtype.kind not in "biu"]
        eps = max((float(ml_dtypes.finfo(k).eps) for k in kinds), default=0.0)  # type: ignore[no-untyped-call]
        return constant("gate_ladder_width") * eps * rms(self.r)

    @cached_property
    def size(self) -> float:
        """The rms of candidate - reference; of the reference where the shapes differ."""
        if self.r.shape == self.c.shape:
            return rms(self.c - self.r)
        return rms(self.r)

    def left(self, undone: Any, right: Any = None, size: float | None = None) -> float | None:
        """Return the share of the error that is left once a cause is undone, where so little is
        left that the cause explains it; None where it does not.

        Arguments:
            undone: the candidate with the cause undone.
            right: what it should be; the reference where None.
            size: what the share is of, where smaller than the error.
        """
        right = self.r if right is None else right
        size = self.size if size is None else min(size, self.size)
        if undone.shape != right.shape or not right.size or not size:
            return None
        with np.errstate(all="ignore"):
            e = np.abs(undone - right)
            share = rms(e) / size
        if not math.isfinite(share):
            return None
        if share <= constant("gate_undone"):
            return share
        within = self.limit.passes(float(e.max()), float(e.mean()))
        return share if within and share <= constant("gate_undone_better") else None

    def enough(self, parameters: int, axes: tuple[int, ...] | None = None) -> bool:
        """Whether a fit would have to explain several entries with each parameter, in the median
        slice.

        Entries count by their share of the squared error, (sum e^2)^2 / sum e^4: where a few
        dominate, a fit of as many parameters explains anything. Two for each parameter do where
        there are many slices: that a fit leaves a thousandth in all of them is no chance.
        """
        squares = (self.c - self.r) ** 2
        fourth = np.atleast_1d(np.sum(squares**2, axis=axes))
        counted = np.atleast_1d(np.sum(squares, axis=axes) ** 2)
        off = fourth > 0
        least = _LEAST if np.count_nonzero(off) < _MANY else _EACH
        slack = 1 - np.finfo(np.float32).eps
        enough = counted[off] >= least * parameters * fourth[off] * slack
        return bool(enough.size) and bool(np.mean(enough) >= 0.5)

    def cause(self, name: str, text: str, undone: Any, right: Any = None) -> Cause | None:
        """Return the cause where undoing it leaves next to nothing, else None."""
        share = self.left(undone, right)
        return None if share is None else Cause(name, text, share)

    def fit(self, name: str, text: str, model: Any, spread: Any) -> Cause | None:
        """Return the cause where a function fitted to the reference gives the candidate.

        Arguments:
            name: of the cause.
            text: one sentence.
            model: the fitted function of the reference.
            spread: the candidate less what any constant would explain: a fit must explain that too.
        """
        share = self.left(self.c, model, rms(spread))
        return None if share is None else Cause(name, text, share)


def load(reference: Stored, candidate: Stored, limit: Limit) -> Case:
    """Return a pair in memory: whole where it is small, else the first rows of axis 0."""
    rows = [_rows(s) for s in (reference, candidate)]
    if reference.tensor.shape == candidate.tensor.shape:
        rows = [rows[0], rows[0]]
    r, c = reference.load(rows[0]), candidate.load(rows[1])
    if (r.dtype.kind == "c") != (c.dtype.kind == "c"):  # one side alone has imaginary parts
        r, c = r.astype(np.complex128), c.astype(np.complex128)
    return Case(r, c, limit, whole=rows == [None, None])


def _rows(stored: Stored) -> int | None:
    size, shape = stored.tensor.size, stored.tensor.shape
    return None if size <= LIMIT or not shape else max(1, LIMIT * shape[0] // size)


def rms(values: Any) -> float:
    """Return the root of the mean square; 0.0 of nothing."""
    flat = np.asarray(values, np.float64).reshape(-1)
    return math.sqrt(float(np.dot(flat, flat)) / flat.size) if flat.size else 0.0


def lowest(values: Doubles) -> Doubles:
    """Return the least value, where there are more than two axes of each entry of the first."""
    axes = tuple(range(1, values.ndim)) if values.ndim > 2 else None
    least: Doubles = np.asarray(values.min(axis=axes, keepdims=True))
    return least


def _wide(values: Array) -> Doubles:
    if values.dtype.kind == "c":
        pairs: Doubles = np.ascontiguousarray(values.astype(np.complex128)).view(np.float64)
        return pairs.reshape(*values.shape, 2)
    with np.errstate(all="ignore"):
        wide: Doubles = values.astype(np.float64)
    return wide


def figure(value: float) -> str:
    """Return a number of four digits."""
    return f"{value:.4g}"


def listed(numbers: Any, most: int = 8) -> str:
    """Return "0, 1, 2": runs of four and more as "4-9", cut after `most` pieces."""
    runs: list[list[int]] = []
    for n in (int(n) for n in numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    pieces = []
    for first, last in runs:
        whole = range(first, last + 1)
        pieces += [f"{first}-{last}"] if len(whole) > 3 else [str(n) for n in whole]
    return ", ".join(pieces[:most]) + (", ..." if len(pieces) > most else "")
