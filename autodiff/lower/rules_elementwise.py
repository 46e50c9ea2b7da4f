"""JAX functions of the elementwise primitives that no single JAX call gives."""

from typing import Any

import jax.numpy as jnp
from jax import lax

_COMPARE = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}


def strong_mul(x: Any, y: Any) -> Any:
    """x * y, and 0 where x is 0 whatever y is."""
    product = x * y
    return jnp.where(jnp.isnan(product) & (x == 0), jnp.zeros((), x.dtype), product)


def strong_div(x: Any, y: Any) -> Any:
    """x / y, and 0 where x is 0 whatever y is."""
    quotient = x / y
    return jnp.where(jnp.isnan(quotient) & (x == 0), jnp.zeros((), x.dtype), quotient)


def dominance(x: Any, y: Any) -> Any:
    """1 where x > y, 1/2 where they are equal, 0 where x < y, NaN where they do not compare."""
    weight = jnp.where(x == y, jnp.asarray(0.5, x.dtype), (x > y).astype(x.dtype))
    return jnp.where(jnp.isnan(x) | jnp.isnan(y), jnp.asarray(jnp.nan, x.dtype), weight)


def step(x: Any) -> Any:
    """1 where x > 0, 0 elsewhere; NaN stays NaN."""
    return jnp.where(jnp.isnan(x), x, (x > 0).astype(x.dtype))


def compare(x: Any, y: Any, *, direction: str) -> Any:
    """Elementwise comparison."""
    return _COMPARE[direction](*jnp.broadcast_arrays(x, y))


def rem(x: Any, y: Any) -> Any:
    """The remainder with the sign of x."""
    return lax.rem(*jnp.broadcast_arrays(x, y))


def cast(x: Any, *, dtype: Any) -> Any:
    """Convert to a dtype: anything nonzero is True, and a complex value keeps its real part."""
    if dtype == jnp.bool_:
        return x != 0
    if jnp.iscomplexobj(x) and dtype.kind != "c":
        x = lax.real(x)
    return lax.convert_element_type(x, dtype)


def make_complex(x: Any, y: Any) -> Any:
    """x + iy, with infinite and NaN parts kept apart."""
    return lax.complex(*jnp.broadcast_arrays(x, y))


def logaddexp(x: Any, y: Any) -> Any:
    """log(e ** x + e ** y)."""
    top = jnp.maximum(x, y)
    gap = jnp.where(x == y, jnp.zeros((), x.dtype), -jnp.abs(x - y))
    return top + jnp.log1p(jnp.exp(gap))


def xlogy(x: Any, y: Any) -> Any:
    """x log(y), 0 where x is 0 and y is not NaN."""
    return jnp.where((x == 0) & ~jnp.isnan(y), jnp.zeros((), x.dtype), x * jnp.log(y))


def xlog1py(x: Any, y: Any) -> Any:
    """x log(1 + y), 0 where x is 0 and y is not NaN."""
    return jnp.where((x == 0) & ~jnp.isnan(y), jnp.zeros((), x.dtype), x * jnp.log1p(y))
