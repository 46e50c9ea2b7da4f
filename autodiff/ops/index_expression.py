"""NumPy index expressions brought to one static layout and its integer arrays.

A layout has one entry per index: an int (that element), (start, count, step) (a slice), "new"
(an axis of extent 1), "array" (the next of the integer arrays) or "flag" (the next array indexes
an axis of extent 1 put there: a 0-d mask takes the element once or not at all). Ellipses are
written out ("gap" where one stands for no axis: it still separates arrays), masks are replaced by
the positions where they hold.
"""

from typing import Any

import numpy as np

from autodiff.errors import IndexingError
from autodiff.trace import quoted, user_line
from autodiff.tracer import Tracer

Entry = int | str | tuple[int, int, int]
Layout = tuple[Entry, ...]
_ALLOWED = "use integers, slices, ..., None, and integer or boolean arrays"
_MASK_FIX = (
    "use np.where(mask, x, 0), which keeps the shape, or pass the mask as an untraced argument"
)


def parse(shape: tuple[int, ...], index: Any) -> tuple[Layout, tuple[Any, ...]]:
    """The layout of `x[index]` for x of that shape, and its integer arrays (some may be traced).

    Raises IndexingError as NumPy raises IndexError; TracerError for a traced mask without a
    concrete value.
    """
    entries = [_entry(e, shape) for e in (index if isinstance(index, tuple) else (index,))]
    used = sum(_consumed(e) for e in entries)
    ellipses = sum(e is Ellipsis for e in entries)
    if ellipses > 1:
        raise _error("an index can only have a single ellipsis ('...')", shape)
    if used > len(shape):
        raise _error(f"too many indices: array is {len(shape)}-d, but {used} were indexed", shape)
    missing = len(shape) - used
    full: list[Any] = [slice(None)] * missing if missing or not ellipses else ["gap"]
    at = next((i for i, e in enumerate(entries) if e is Ellipsis), len(entries))
    entries = [*entries[:at], *full, *entries[at + 1 :]]
    layout: list[Entry] = []
    arrays: list[Any] = []
    axis = 0
    for entry in entries:
        _place(entry, shape, axis, layout, arrays)
        axis += _consumed(entry)
    return tuple(layout), tuple(arrays)


def _entry(value: Any, shape: tuple[int, ...]) -> Any:
    """One index: None, Ellipsis, a slice, an int, or an integer or boolean array."""
    if value is None or value is Ellipsis or isinstance(value, slice):
        return value
    if isinstance(value, str):
        raise _error(f"{value!r} of type str is not an index", shape)
    if isinstance(value, Tracer):
        if value.dtype.kind == "b":
            return value.decide("a traced boolean mask is used as an index", _MASK_FIX)
        if value.dtype.kind in "iu":
            return value
        raise _error(f"a traced {value.spec} is not an index", shape)
    if isinstance(value, list | tuple) and any(isinstance(v, Tracer) for v in value):
        return np.stack([_traced_int(v, shape) for v in value])
    try:
        array = np.asarray(value)
    except ValueError:
        raise _error(f"{value!r} is not an index", shape) from None
    if array.size == 0 and not isinstance(value, np.ndarray):
        array = array.astype(np.intp)
    if array.dtype.kind not in "iub":
        raise _error(f"{value!r} of type {type(value).__name__} is not an index", shape)
    is_int = array.ndim == 0 and array.dtype.kind != "b"
    return int(array) if is_int else array


def _traced_int(value: Any, shape: tuple[int, ...]) -> Any:
    if np.asarray(getattr(value, "dtype", value)).dtype.kind in "fc":
        raise _error(f"{value!r} is not an index", shape)
    return value


def _consumed(entry: Any) -> int:
    """How many axes an index takes."""
    if entry is None or entry is Ellipsis or isinstance(entry, str):
        return 0
    if isinstance(entry, np.ndarray) and entry.dtype == np.bool_:
        return entry.ndim
    return 1


def _place(
    entry: Any, shape: tuple[int, ...], axis: int, layout: list[Entry], arrays: list[Any]
) -> None:
    """Append the layout entries and arrays of one index that starts at an axis."""
    if entry is None or isinstance(entry, str):
        layout.append(entry or "new")
    elif isinstance(entry, slice):
        span = range(*entry.indices(shape[axis]))
        layout.append((span.start, len(span), span.step))
    elif isinstance(entry, int):
        _check_bounds(entry, entry, shape, axis)
        layout.append(entry % shape[axis])
    elif isinstance(entry, Tracer):
        layout.append("array")
        arrays.append(entry)
    elif entry.dtype == np.bool_:
        _place_mask(entry, shape, axis, layout, arrays)
    else:
        if entry.size:
            _check_bounds(int(entry.min()), int(entry.max()), shape, axis)
        layout.append("array")
        arrays.append(entry.astype(np.intp))


def _place_mask(
    mask: Any, shape: tuple[int, ...], axis: int, layout: list[Entry], arrays: list[Any]
) -> None:
    if mask.ndim == 0:
        layout.append("flag")
        arrays.append(np.zeros(int(mask), np.intp))
        return
    for i, n in enumerate(mask.shape):
        if n != shape[axis + i]:
            raise _error(
                f"boolean index did not match indexed array along axis {axis + i}; size of axis "
                f"is {shape[axis + i]} but size of corresponding boolean axis is {n}",
                shape,
            )
    positions = np.nonzero(mask)
    layout.extend(["array"] * mask.ndim)
    arrays.extend(positions)


def _check_bounds(low: int, high: int, shape: tuple[int, ...], axis: int) -> None:
    n = shape[axis]
    if low < -n or high >= n:
        wrong = low if low < -n else high
        raise _error(f"index {wrong} is out of bounds for axis {axis} with size {n}", shape)


def _error(what: str, shape: tuple[int, ...]) -> IndexingError:
    return IndexingError(
        what, f"indexing an array of shape {shape} {quoted(user_line())}", _ALLOWED
    )
