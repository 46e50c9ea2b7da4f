"""A failing pair in memory, and the one test that every named cause must pass: undo it."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from checks.gates.contract import Limit
from checks.gates.formats.statistics import Doubles
from checks.gates.formats.stored import Array, Stored
from checks.gates.record import Cause
from checks.tolerances import constant

# Entries a diagnosis holds in memory; of a larger tensor it sees the first rows.
LIMIT = 1 << 22


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
        """The reference in float64, in its shape."""
        return _wide(self.reference)

    @cached_property
    def c(self) -> Doubles:
        """The candidate in float64."""
        return _wide(self.candidate)

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
    return Case(r, c, limit, whole=rows == [None, None])


def _rows(stored: Stored) -> int | None:
    size, shape = stored.tensor.size, stored.tensor.shape
    return None if size <= LIMIT or not shape else max(1, LIMIT * shape[0] // size)


def rms(values: Any) -> float:
    """Return the root of the mean square; 0.0 of nothing."""
    flat = np.asarray(values, np.float64).reshape(-1)
    return math.sqrt(float(np.dot(flat, flat)) / flat.size) if flat.size else 0.0


def _wide(values: Array) -> Doubles:
    if values.dtype.kind == "c":
        pairs: Doubles = np.ascontiguousarray(values.astype(np.complex128)).view(np.float64)
        return pairs
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
