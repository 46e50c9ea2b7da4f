"""Kernels of reductions."""

from typing import Any

import numpy as np


def argmax_mask(x: Any, *, axis: tuple[int, ...]) -> Any:
    """True at the first maximum along the axes (in C order), False elsewhere; NaN is a maximum."""
    x = np.asarray(x)
    if x.size == 0:
        return np.zeros(x.shape, np.bool_)
    if len(axis) == 1:
        (a,) = axis
        places = np.arange(x.shape[a]).reshape(-1, *(1,) * (x.ndim - a % x.ndim - 1))
        return np.argmax(x, axis=a, keepdims=True) == places
    last = tuple(range(x.ndim - len(axis), x.ndim))
    moved = np.moveaxis(x, axis, last)
    flat = moved.reshape(*moved.shape[: x.ndim - len(axis)], -1)
    first = np.argmax(flat, axis=-1, keepdims=True) == np.arange(flat.shape[-1])
    return np.moveaxis(first.reshape(moved.shape), last, axis)


def wide_sum(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    """The sum along the axes, of floats narrower than 64 bits in float64 and rounded once."""
    x = np.asarray(x)
    if x.dtype.kind not in "fV" or x.dtype.itemsize >= 8:
        return np.sum(x, axis=axis, keepdims=keepdims)
    return np.sum(x, axis=axis, keepdims=keepdims, dtype=np.float64).astype(x.dtype)


def norm_scale(x: Any, *, axis: tuple[int, ...]) -> Any:
    """The power of two 2^e with 2^e <= max |x| < 2^(e + 1) along the axes.

    The axes stay as extents of 1; 1 where the maximum is 0 or not finite, and for no elements.
    """
    size = np.max(np.abs(x), axis=axis, keepdims=True, initial=0)
    exponent = np.frexp(size)[1] - 1
    scale = np.ldexp(np.ones((), size.dtype), exponent)
    return np.where((size > 0) & (size < np.inf), scale, np.ones((), size.dtype))


def cumsum(x: Any, *, axis: int, reverse: bool) -> Any:
    """Running sums, from the far end with `reverse`."""
    if reverse:
        return np.flip(np.cumsum(np.flip(x, axis), axis=axis), axis)
    return np.cumsum(x, axis=axis)


def cummax(x: Any, *, axis: int) -> Any:
    """Running maxima."""
    return np.maximum.accumulate(x, axis=axis)


def cummin(x: Any, *, axis: int) -> Any:
    """Running minima."""
    return np.minimum.accumulate(x, axis=axis)
