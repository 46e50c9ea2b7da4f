"""JAX functions of the reductions that no single JAX call gives."""

from typing import Any

import jax.numpy as jnp
from jax import lax


def argmax_mask(x: Any, *, axis: tuple[int, ...]) -> Any:
    """True at the first maximum along the axes (in C order); NaN is a maximum."""
    if x.size == 0:
        return jnp.zeros(x.shape, jnp.bool_)
    last = tuple(range(x.ndim - len(axis), x.ndim))
    moved = jnp.moveaxis(x, axis, last)
    flat = moved.reshape(*moved.shape[: x.ndim - len(axis)], -1)
    where = jnp.argmax(flat, axis=-1, keepdims=True).astype(jnp.int32)
    first = lax.broadcasted_iota(jnp.int32, flat.shape, flat.ndim - 1) == where
    return jnp.moveaxis(first.reshape(moved.shape), last, axis)


def norm_scale(x: Any, *, axis: tuple[int, ...]) -> Any:
    """The power of two just below the largest magnitude; 1 where that is 0 or not finite."""
    size = jnp.max(jnp.abs(x), axis=axis, keepdims=True, initial=0)
    usable = (size > 0) & (size < jnp.inf)
    exponent = jnp.frexp(jnp.where(usable, size, 1))[1] - 1
    return jnp.where(usable, jnp.ldexp(jnp.ones_like(size), exponent), jnp.ones_like(size))
