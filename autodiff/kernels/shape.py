"""Kernels of shape primitives."""

from typing import Any

import numpy as np


def slice_(
    x: Any, *, start: tuple[int, ...], stop: tuple[int, ...], stride: tuple[int, ...]
) -> Any:
    """Elements start, start + stride, ... below stop along every axis."""
    return x[tuple(map(slice, start, stop, stride))]


def pad(
    x: Any,
    *,
    low: tuple[int, ...],
    high: tuple[int, ...],
    interior: tuple[int, ...],
    value: Any,
) -> Any:
    """The array inside a constant one, with gaps between its elements."""
    x = np.asarray(x)
    inner = [max(0, n + (n - 1) * g) for n, g in zip(x.shape, interior, strict=True)]
    shape = [a + n + b for a, n, b in zip(low, inner, high, strict=True)]
    out = np.full(shape, value, x.dtype)
    places = zip(low, inner, interior, strict=True)
    out[tuple(slice(a, a + n, g + 1) for a, n, g in places)] = x
    return out


def concat(*arrays: Any, axis: int) -> Any:
    """Arrays joined along an axis."""
    return np.concatenate(arrays, axis)


def split(x: Any, *, sizes: tuple[int, ...], axis: int) -> tuple[Any, ...]:
    """Consecutive parts of the given extents along an axis."""
    bounds = np.cumsum((0, *sizes))
    lead = (slice(None),) * axis
    return tuple(x[(*lead, slice(a, a + n))] for a, n in zip(bounds, sizes, strict=False))
