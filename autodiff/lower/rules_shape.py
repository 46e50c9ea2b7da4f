"""JAX functions of the shape primitives that no single JAX call gives."""

from typing import Any

import numpy as np
from jax import lax


def slice_(
    x: Any, *, start: tuple[int, ...], stop: tuple[int, ...], stride: tuple[int, ...]
) -> Any:
    """Elements start, start + stride, ... below stop along every axis."""
    return lax.slice(x, start, stop, stride)


def pad(
    x: Any,
    *,
    low: tuple[int, ...],
    high: tuple[int, ...],
    interior: tuple[int, ...],
    value: Any,
) -> Any:
    """The array inside a constant one, with gaps between its elements."""
    return lax.pad(x, np.asarray(value, x.dtype), list(zip(low, high, interior, strict=True)))


def concat(*arrays: Any, axis: int) -> Any:
    """Arrays joined along an axis."""
    return lax.concatenate(arrays, axis)


def split(x: Any, *, sizes: tuple[int, ...], axis: int) -> Any:
    """Consecutive parts of the given extents along an axis."""
    return lax.split(x, sizes, axis)
