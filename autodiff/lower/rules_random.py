"""JAX functions of the random primitives: threefry-2x32 in plain operations.

Not `jax.random.bits`: that lowers to a custom call on GPUs, and depends on a configuration flag.
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from autodiff.kernels.random import PARITY, ROTATIONS


def _threefry(key: Any, high: Any, low: Any) -> tuple[Any, Any]:
    keys = [key[..., 0, None], key[..., 1, None]]
    keys.append(keys[0] ^ keys[1] ^ np.uint32(PARITY))
    x, y = high + keys[0], low + keys[1]
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x = x + y
            y = (y << np.uint32(distance) | y >> np.uint32(32 - distance)) ^ x
        x = x + keys[(group + 1) % 3]
        y = y + (keys[(group + 2) % 3] + np.uint32(group + 1))
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
