"""Kernels of random bits: threefry-2x32 with 20 rounds.

J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from typing import Any

import numpy as np

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def threefry(key: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """The two words that keys (..., 2) encrypt the counters (high, low) to; all uint32.

    Counters have one axis, which follows the keys' leading ones.
    """
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


def encrypted_positions(key: Any, size: int) -> tuple[Any, Any]:
    """Words at the counters 0 ... size - 1."""
    count = np.arange(size, dtype=np.uint64)
    return threefry(key, (count >> np.uint64(32)).astype(np.uint32), count.astype(np.uint32))


def rng_bits(key: Any, *, shape: tuple[int, ...], width: int, drop: int) -> Any:
    """Random words of 32 or 64 bits without their `drop` lowest bits, for each key."""
    key = np.asarray(key)
    x, y = encrypted_positions(key, int(np.prod(shape, dtype=np.int64)))
    if width == 32:
        bits: Any = (x ^ y) >> np.uint32(drop)
    else:
        bits = (x.astype(np.uint64) << np.uint64(32) | y) >> np.uint64(drop)
    return bits.reshape((*key.shape[:-1], *shape))


def rng_split(key: Any, *, shape: tuple[int, ...]) -> Any:
    """New keys of the given shape for each key."""
    key = np.asarray(key)
    pair = encrypted_positions(key, int(np.prod(shape, dtype=np.int64)))
    return np.stack(pair, axis=-1).reshape((*key.shape[:-1], *shape, 2))


def rng_fold_in(key: Any, data: Any) -> Any:
    """The key that each pair of a key and a uint32 gives."""
    key, data = np.asarray(key), np.asarray(data)
    high = np.zeros((*data.shape, 1), np.uint32)
    pair = threefry(key, high, data[..., None])
    return np.concatenate(pair, axis=-1)
