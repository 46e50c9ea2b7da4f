"""JAX functions of the reductions that no single JAX call gives."""

from typing import Any

import jax.numpy as jnp
import numpy as np
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
    """The power of two just below the largest magnitude; 1 where that is 0 or not finite.

    It is the number whose bits are the exponent of that magnitude alone (frexp and ldexp are
    lowered to twenty times as much). Subnormal magnitudes are lifted to normal ones first.
    """
    size = jnp.max(jnp.abs(x), axis=axis, keepdims=True, initial=0)
    info = jnp.finfo(size.dtype)
    word = _WORDS[size.dtype.itemsize]
    low = size < info.smallest_normal
    lift = jnp.asarray(2.0**info.nmant, size.dtype)
    bits = lax.bitcast_convert_type(jnp.where(low, size * lift, size), word)
    power = lax.bitcast_convert_type(bits & word(((1 << info.nexp) - 1) << info.nmant), size.dtype)
    power = jnp.where(low, power / lift, power)
    return jnp.where((size > 0) & (size < jnp.inf), power, jnp.ones_like(size))


_WORDS = {2: np.uint16, 4: np.uint32, 8: np.uint64}
