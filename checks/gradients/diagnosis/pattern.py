"""Which entries of a gradient are wrong, and where they lie in words."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
LISTED = 3


@dataclasses.dataclass(frozen=True, eq=False)
class Region:
    """A set of entries of one array, and what it is called: "row 3", "the diagonal"."""

    text: str
    mask: Array

    @property
    def count(self) -> int:
        """Entries in it."""
        return int(np.count_nonzero(self.mask))


def place(index: Sequence[int] | Array) -> str:
    """An index in brackets; nothing for a scalar."""
    return f"[{', '.join(str(int(i)) for i in index)}]" if len(index) else ""


def axis_name(axis: int, ndim: int) -> str:
    """What one index along an axis picks: an entry, a row, a column, a slice."""
    if ndim == 1:
        return "entry"
    return ("row", "column")[axis] if ndim == 2 else f"slice of axis {axis},"


def regions(x: Array, index: Sequence[int] | None = None, name: str = "x") -> Iterator[Region]:
    """Regions of an array that have a name, special ones first.

    Arguments:
        x: the argument, whose values name some of them.
        index: an entry that every region given must hold; None for no such condition.
        name: of the argument.
    """
    for found in (
        *_by_axis(x.shape, index),
        *_by_shape(x.shape),
        *_by_value(x, name),
        *_periodic(x.shape),
    ):
        if 0 < found.count < x.size and (index is None or found.mask[tuple(index)]):
            yield found


def _grid(shape: tuple[int, ...], axis: int) -> Array:
    return np.broadcast_to(
        np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))]), shape
    )


def _by_axis(shape: tuple[int, ...], index: Sequence[int] | None) -> Iterator[Region]:
    """Rows, columns, slices: hyperplanes at one index of an axis."""
    ndim = len(shape)
    if ndim < 2:
        return
    for axis in range(ndim):
        if shape[axis] > 1:
            for i in range(shape[axis]) if index is None else (index[axis],):
                yield Region(f"{axis_name(axis, ndim)} {i}", _grid(shape, axis) == i)
    if ndim > 2:
        for a, b in itertools.combinations(range(ndim), 2):
            if 1 < shape[a] * shape[b] <= 64:
                for i, j in np.ndindex(shape[a], shape[b]):
                    if index is not None and (i, j) != (index[a], index[b]):
                        continue
                    mask = (_grid(shape, a) == i) & (_grid(shape, b) == j)
                    yield Region(f"index {i} of axis {a} and {j} of axis {b}", mask)


def _by_shape(shape: tuple[int, ...]) -> Iterator[Region]:
    """The diagonal, triangles, the boundary."""
    ndim = len(shape)
    if ndim >= 2:
        i, j = _grid(shape, ndim - 2), _grid(shape, ndim - 1)
        last = "" if ndim == 2 else " of the last two axes"
        yield Region(f"the diagonal{last}", i == j)
        yield Region(f"off the diagonal{last}", i != j)
        yield Region(f"above the diagonal{last}", i < j)
        yield Region(f"below the diagonal{last}", i > j)
        yield Region(f"the diagonal and above{last}", i <= j)
        yield Region(f"the diagonal and below{last}", i >= j)
    edges = [
        (_grid(shape, a) == 0) | (_grid(shape, a) == n - 1) for a, n in enumerate(shape) if n > 2
    ]
    for a, edge in zip([a for a, n in enumerate(shape) if n > 2], edges, strict=True):
        if ndim > 1:
            yield Region(f"both ends of axis {a}", edge)
    if edges:
        border = np.logical_or.reduce(edges)
        ends = "the first and the last entry" if ndim == 1 else "the boundary"
        yield Region(ends, border)
        yield Region("all but the first and the last entry" if ndim == 1 else "inside", ~border)


def _by_value(x: Array, name: str) -> Iterator[Region]:
    """Signs, sizes, equal values."""
    values = x.astype(complex if x.dtype.kind == "c" else float)
    size, own = np.abs(values), f"|{name}|"
    if values.dtype.kind == "c":
        yield Region(f"where {name} is real", values.imag == 0)
    else:
        yield Region(f"where {name} < 0", values < 0)
        yield Region(f"where {name} > 0", values > 0)
        yield Region(f"where {name} <= 0", values <= 0)
        yield Region(f"where {name} >= 0", values >= 0)
    yield Region(f"where {name} = 0", size == 0)
    yield Region(f"where {name} is not 0", size != 0)
    yield Region(f"where {own} > 1", size > 1)
    yield Region(f"where {own} < 1", size < 1)
    if values.dtype.kind != "c":
        yield Region(f"where {name} > 1", values > 1)
        yield Region(f"where {name} < 1", values < 1)
    yield Region("where the entry equals another (ties)", ties(x))


def ties(x: Array) -> Array:
    """Entries that equal another entry of the array."""
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    return np.asarray((counts > 1)[inverse].reshape(x.shape))


def _periodic(shape: tuple[int, ...]) -> Iterator[Region]:
    """Every k-th along an axis, and its ends and halves."""
    for axis, n in enumerate(shape):
        along = _grid(shape, axis)
        what = "entry" if len(shape) == 1 else f"index of axis {axis}"
        for k in (2, 3, 4, 8):
            for start in range(k if n > k else 0):
                name = {2: "2nd", 3: "3rd"}.get(k, f"{k}th")
                yield Region(f"every {name} {what}, from {start}", along % k == start)
        for cut in range(1, n) if n <= 256 else (1, n // 2, n - 1):
            if n > 2:
                yield Region(_span(0, cut, n, what), along < cut)
                yield Region(_span(cut, n, n, what), along >= cut)


def _span(low: int, high: int, n: int, what: str) -> str:
    where = "" if what == "entry" else f" of {what.removeprefix('index of ')}"
    if low == 0:
        if high == n - 1:
            return f"all but the last{where}"
        return f"the first {high}{where}" if high > 1 else f"the first{where}"
    if low == 1:
        return f"all but the first{where}"
    return f"the last {n - low}{where}" if n - low > 1 else f"the last{where}"


def where(bad: Array, relevant: Array, x: Array, path: str) -> str:
    """Where the wrong entries lie.

    Arguments:
        bad: the wrong entries.
        relevant: entries that would show an error: wrong ones, and right ones that are not 0.
        x: the argument, `path` its name.
    """
    count = int(np.count_nonzero(bad))
    if count <= (1 if x.size > 1 else 0):
        return ", ".join(path + place(i) for i in np.argwhere(bad))
    if np.array_equal(bad, relevant):
        return "" if count == x.size else "all whose gradient is not 0"
    for found in regions(x, np.argwhere(bad)[0].tolist(), path):
        if np.array_equal(found.mask & relevant, bad) and _tells(found.mask, bad, relevant):
            return found.text
    found_lines = _several_lines(bad, relevant)
    if found_lines:
        return found_lines
    shown = [path + place(i) for i in np.argwhere(bad)[:LISTED]]
    return ", ".join(shown) + (", ..." if count > LISTED else "")


def _tells(mask: Array, bad: Array, relevant: Array) -> bool:
    """Whether a region says more than a list would: it is mostly made of wrong entries."""
    return bool(2 * np.count_nonzero(mask & bad) > np.count_nonzero(mask))


def _several_lines(bad: Array, relevant: Array) -> str:
    """Two or three rows or columns."""
    if bad.ndim != 2:
        return ""
    for axis in (0, 1):
        held = np.flatnonzero(bad.any(axis=1 - axis))
        mask = np.isin(_grid(bad.shape, axis), held)
        if 1 < held.size <= LISTED and np.array_equal(mask & relevant, bad):
            words = " and ".join(str(i) for i in held[-2:])
            words = ", ".join([*(str(i) for i in held[:-2]), words])
            return f"{axis_name(axis, 2)}s {words}"
    return ""


def words(count: int, total: int, lie: str, path: str, sampled: int = 0) -> str:
    """How many entries of an argument are wrong, and where: "3 of 12 entries of w: row 2"."""
    if sampled:
        share = round(100 * count / sampled)
        text = f"about {share} % of {total:,} entries of {path}, {sampled} sampled"
        text = f"all of {sampled} entries sampled of {total:,} of {path}" if share == 100 else text
    elif total == 1:
        text = f"{path}, its only entry"
    elif count == total == 2:
        text = f"both entries of {path}"
    elif count == total:
        text = f"all {total:,} entries of {path}"
    else:
        text = f"{count:,} of {total:,} entries of {path}"
    return f"{text}: {lie}" if lie and total > 1 else text
