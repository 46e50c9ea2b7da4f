"""JAX functions of the elementwise primitives that no single JAX call gives."""

from typing import Any

import numpy as np
from jax import lax

from autodiff.lower.lean import isnan, spread, where

_COMPARE = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}


def _zero(x: Any) -> Any:
    return np.zeros((), x.dtype)


def _strong(value: Any, x: Any) -> Any:
    """value, and 0 where it is NaN and x is 0."""
    zero = spread(lax.eq(x, _zero(x)), value.shape, np.bool_)
    return where(lax.bitwise_and(isnan(value), zero), 0, value)


def _broadcast(*xs: Any) -> list[Any]:
    shape = xs[0].shape
    if any(x.shape != shape for x in xs):
        shape = np.broadcast_shapes(*(x.shape for x in xs))
    return [spread(x, shape, x.dtype) for x in xs]


def strong_mul(x: Any, y: Any) -> Any:
    """x * y, and 0 where x is 0 whatever y is."""
    return _strong(lax.mul(*_broadcast(x, y)), x)


def strong_div(x: Any, y: Any) -> Any:
    """x / y, and 0 where x is 0 whatever y is."""
    return _strong(lax.div(*_broadcast(x, y)), x)


def dominance(x: Any, y: Any) -> Any:
    """1 where x > y, 1/2 where they are equal, 0 where x < y, NaN where they do not compare."""
    x, y = _broadcast(x, y)
    less = where(lax.lt(x, y), spread(0, x.shape, x.dtype), np.asarray(np.nan, x.dtype))
    return where(lax.gt(x, y), 1, where(lax.eq(x, y), 0.5, less))


def step(x: Any) -> Any:
    """1 where x > 0, 0 elsewhere; NaN stays NaN."""
    return where(isnan(x), x, lax.convert_element_type(lax.gt(x, _zero(x)), x.dtype))


def compare(x: Any, y: Any, *, direction: str) -> Any:
    """Elementwise comparison."""
    return _COMPARE[direction](*_broadcast(x, y))


def rem(x: Any, y: Any) -> Any:
    """The remainder with the sign of x."""
    return lax.rem(*_broadcast(x, y))


def cast(x: Any, *, dtype: Any) -> Any:
    """Convert to a dtype: anything nonzero is True, and a complex value keeps its real part."""
    if dtype == np.bool_:
        return lax.ne(x, _zero(x))
    if x.dtype.kind == "c" and dtype.kind != "c":
        x = lax.real(x)
    return lax.convert_element_type(x, dtype)


def make_complex(x: Any, y: Any) -> Any:
    """x + iy, with infinite and NaN parts kept apart."""
    return lax.complex(*_broadcast(x, y))


def logaddexp(x: Any, y: Any) -> Any:
    """log(e ** x + e ** y)."""
    x, y = _broadcast(x, y)
    gap = where(lax.eq(x, y), 0, lax.neg(lax.abs(lax.sub(x, y))))
    return lax.add(lax.max(x, y), lax.log1p(lax.exp(gap)))


def xlogy(x: Any, y: Any) -> Any:
    """x log(y), 0 where x is 0 and y is not NaN."""
    return _product_with_log(lax.log, x, y)


def xlog1py(x: Any, y: Any) -> Any:
    """x log(1 + y), 0 where x is 0 and y is not NaN."""
    return _product_with_log(lax.log1p, x, y)


def _product_with_log(log: Any, x: Any, y: Any) -> Any:
    x, y = _broadcast(x, y)
    nothing = lax.bitwise_and(lax.eq(x, _zero(x)), lax.eq(y, y))
    return where(nothing, 0, lax.mul(x, log(y)))
