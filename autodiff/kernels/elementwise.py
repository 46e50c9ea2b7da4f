"""Kernels of elementwise primitives."""

from typing import Any

import numpy as np

from autodiff import rounding

COMPARE = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def strong_mul(x: Any, y: Any) -> Any:
    """x * y, and 0 where x is 0 whatever y is."""
    product = x * y
    return np.where(np.isnan(product) & (x == 0), np.zeros((), x.dtype), product)


def strong_div(x: Any, y: Any) -> Any:
    """x / y, and 0 where x is 0 whatever y is."""
    quotient = x / y
    return np.where(np.isnan(quotient) & (x == 0), np.zeros((), x.dtype), quotient)


def dominance(x: Any, y: Any) -> Any:
    """1 where x > y, 1/2 where they are equal, 0 where x < y, NaN where they do not compare."""
    dtype = np.result_type(x, y)
    weight = np.where(x == y, np.asarray(0.5, dtype), np.asarray(x > y, dtype))
    return np.where(np.isnan(x) | np.isnan(y), np.asarray(np.nan, dtype), weight)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return 1 / np.sqrt(x)


def reciprocal(x: Any) -> Any:
    """1 / x."""
    return 1 / x


def step(x: Any) -> Any:
    """1 where x > 0, 0 elsewhere; NaN stays NaN."""
    return np.heaviside(x, 0)


def compare(x: Any, y: Any, *, direction: str) -> Any:
    """Elementwise comparison."""
    return COMPARE[direction](x, y)


def cast(x: Any, *, dtype: Any) -> Any:
    """Convert to a dtype; a complex value converted to a real dtype keeps its real part."""
    x = np.asarray(x)
    dtype = np.dtype(dtype)
    if dtype.kind == "V" and x.dtype.itemsize > 4:
        # straight from float64: ml_dtypes rounds by way of float32, that is twice
        x = rounding.round_to(x, dtype)
    return (x.real if x.dtype.kind == "c" and dtype.kind not in "cb" else x).astype(dtype)


def make_complex(x: Any, y: Any) -> Any:
    """x + iy, with infinite and NaN parts kept apart."""
    z = np.empty(np.broadcast_shapes(np.shape(x), np.shape(y)), np.result_type(x, y, np.complex64))
    z.real, z.imag = x, y
    return z
