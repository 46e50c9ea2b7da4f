"""NumPy functions that only move elements, carried out on element numbers.

NumPy itself arranges an array of positions; the result says which element stands where, so its
rules need no second writing. One gather does the rest.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from autodiff import ops
from autodiff.errors import ShapeError
from autodiff.numpy_api import implements
from autodiff.numpy_api.indexing import decided
from autodiff.numpy_api.padding import COMPUTED, computed


def arranged(function: Callable[..., Any], *arrays: Any) -> Any:
    """`function(*arrays)`, which moves elements and computes none, for traced arrays."""
    values = [a if hasattr(a, "dtype") else np.asarray(a) for a in arrays]
    labels, start = [], 0
    for v in values:
        size = int(np.prod(np.shape(v), dtype=np.int64))
        labels.append(np.arange(start, start + size).reshape(np.shape(v)))
        start += size
    places = np.asarray(function(*labels))
    if not places.size:
        return np.zeros(places.shape, np.result_type(*(v.dtype for v in values)))
    flat = ops.concatenate([ops.reshape(v, -1) for v in values])
    return ops.gather(flat, places)


@implements(np.delete)
def _delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    obj = _static(obj, "np.delete")
    return arranged(lambda a: np.delete(a, obj, axis), arr)


@implements(np.insert)
def _insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    obj = _static(obj, "np.insert")
    values = values if hasattr(values, "dtype") else np.asarray(values)
    return arranged(lambda a, v: np.insert(a, obj, v, axis), arr, ops.cast(values, arr.dtype))


def _static(obj: Any, name: str) -> Any:
    return obj if isinstance(obj, slice) else decided(obj, name)


@implements(np.resize)
def _resize(a: Any, new_shape: Any) -> Any:
    return arranged(lambda x: np.resize(x, new_shape), a)


_MOVING = ("edge", "reflect", "symmetric", "wrap")


@implements(np.pad)
def _pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    if mode in _MOVING and kwargs.get("reflect_type", "even") == "even":
        return arranged(lambda x: np.pad(x, pad_width, mode), array)
    padded = computed(array, pad_width, mode, kwargs)
    if padded is not None:
        return padded
    if mode not in ("constant", "empty") or set(kwargs) - {"constant_values"}:
        raise ShapeError(
            f"np.pad with mode={mode!r} and {sorted(kwargs) or 'no'} options is not supported",
            "on a traced value",
            f"use mode 'constant', {', '.join(map(repr, (*_MOVING, *COMPUTED)))}, or concatenate",
        )
    low, high = _widths(pad_width, array)
    constants = kwargs.get("constant_values", 0)
    if np.ndim(constants) == 0 and not hasattr(constants, "ref"):
        return ops.pad(array, low, high, 0, constants)
    return _padded_by_values(array, low, high, constants)


def _widths(pad_width: Any, array: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Widths before and after each axis, by NumPy's own rules."""
    shape = np.shape(array)
    grown = np.pad(np.ones(shape, bool), pad_width)
    lows = []
    for axis in range(len(shape)):
        thin = np.pad(np.ones((1,) * len(shape), bool), pad_width)
        lows.append(int(np.argmax(thin.any(axis=tuple(i for i in range(thin.ndim) if i != axis)))))
    highs = [n - m - a for n, m, a in zip(grown.shape, shape, lows, strict=True)]
    return tuple(lows), tuple(highs)


def _padded_by_values(
    array: Any, low: tuple[int, ...], high: tuple[int, ...], constants: Any
) -> Any:
    """Constants per axis and side, axis after axis as NumPy does it."""
    rank = np.ndim(array)
    pairs = ops.broadcast_to(constants, (rank, 2))
    for axis in range(rank):
        shape = np.shape(array)
        ends = []
        for side, width in ((0, low[axis]), (1, high[axis])):
            part = (*shape[:axis], width, *shape[axis + 1 :])
            value = ops.cast(ops.index(pairs, (axis, side)), array.dtype)
            ends.append(ops.broadcast_to(value, part))
        array = ops.concatenate([ends[0], array, ends[1]], axis)
    return array


@implements(np.lib.stride_tricks.sliding_window_view)
def _sliding_window_view(x: Any, window_shape: Any, axis: Any = None, **kwargs: Any) -> Any:
    del kwargs
    windows = np.lib.stride_tricks.sliding_window_view
    return arranged(lambda v: windows(v, window_shape, axis), x)
