"""JAX functions of the random primitives: threefry-2x32 in plain operations.

Not `jax.random.bits`: that lowers to a custom call on GPUs, and depends on a configuration flag.
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autodiff.kernels.random import PARITY, ROTATIONS


def _threefry(key: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """Four rounds five times, in a loop: written out, they would be most of many programs."""
    first, second = (lax.slice_in_dim(key, i, i + 1, axis=key.ndim - 1) for i in range(2))
    third = lax.bitwise_xor(lax.bitwise_xor(first, second), np.uint32(PARITY))
    even, odd = (np.asarray(r, np.uint32) for r in ROTATIONS)

    def group(state: Any) -> Any:
        step, x, y, (now, soon, later) = state
        is_even = lax.eq(lax.bitwise_and(step, np.uint32(1)), np.uint32(0))
        for near, far in zip(even, odd, strict=True):
            distance = lax.select(is_even, near, far)
            x = x + y
            y = (y << distance | y >> (np.uint32(32) - distance)) ^ x
        step = lax.add(step, np.uint32(1))
        return step, x + now, y + (soon + step), (soon, later, now)

    def more(state: Any) -> Any:
        return lax.lt(state[0], np.uint32(5))

    start = (np.uint32(0), high + first, low + second, (second, third, first))
    _, x, y, _ = lax.while_loop(more, group, start)
    return x, y


def _encrypted_positions(key: Any, size: int) -> tuple[Any, Any]:
    count = np.arange(size, dtype=np.uint64)
    return _threefry(key, (count >> np.uint64(32)).astype(np.uint32), count.astype(np.uint32))


def rng_bits(key: Any, *, shape: tuple[int, ...], width: int, drop: int) -> Any:
    """Random words of 32 or 64 bits without their `drop` lowest bits, for each key."""
    x, y = _encrypted_positions(key, math.prod(shape))
    if width == 32:
        bits = (x ^ y) >> np.uint32(drop)
    else:
        bits = (x.astype(jnp.uint64) << np.uint64(32) | y) >> np.uint64(drop)
    return bits.reshape((*key.shape[:-1], *shape))


def rng_split(key: Any, *, shape: tuple[int, ...]) -> Any:
    """New keys of the given shape for each key."""
    pair = _encrypted_positions(key, math.prod(shape))
    return jnp.stack(pair, axis=-1).reshape((*key.shape[:-1], *shape, 2))


def rng_fold_in(key: Any, data: Any) -> Any:
    """The key that each pair of a key and a uint32 gives."""
    pair = _threefry(key, jnp.zeros((*data.shape, 1), jnp.uint32), data[..., None])
    return jnp.concatenate(pair, axis=-1)
