"""JAX functions of the elementwise primitives that no single JAX call gives."""

from typing import Any

import jax.numpy as jnp
from jax import lax

_COMPARE = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}


def strong_mul(x: Any, y: Any) -> Any:
    """x * y, and 0 where x is 0 whatever y is."""
    return jnp.where(x == 0, jnp.zeros((), x.dtype), x * y)


def strong_div(x: Any, y: Any) -> Any:
    """x / y, and 0 where x is 0 whatever y is."""
    return jnp.where(x == 0, jnp.zeros((), x.dtype), x / y)


def compare(x: Any, y: Any, *, direction: str) -> Any:
    """Elementwise comparison."""
    return _COMPARE[direction](*jnp.broadcast_arrays(x, y))


def cast(x: Any, *, dtype: Any) -> Any:
    """Convert to a dtype: anything nonzero is True, and a complex value keeps its real part."""
    if dtype == jnp.bool_:
        return x != 0
    if jnp.iscomplexobj(x) and dtype.kind != "c":
        x = lax.real(x)
    return lax.convert_element_type(x, dtype)
