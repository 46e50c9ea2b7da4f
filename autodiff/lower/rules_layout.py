"""JAX functions of the layout primitives that no single JAX call gives."""

from typing import Any

import jax.numpy as jnp
from jax import lax


def sum_to(x: Any, *, shape: tuple[int, ...]) -> Any:
    """Sum over the axes that broadcasting `shape` to `x.shape` adds or stretches."""
    extra = x.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        extra + i for i, n in enumerate(shape) if n == 1 and x.shape[extra + i] != 1
    )
    if not axes:
        return x
    narrow = x.dtype.itemsize < 4  # jnp sums those in float32
    found = jnp.sum(x, axis=axes) if narrow else lax.reduce_sum(x, axes)
    return lax.reshape(found, shape)
