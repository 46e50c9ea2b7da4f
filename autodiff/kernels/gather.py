"""Kernels of indexing primitives."""

from typing import Any

import numpy as np


def gather(x: Any, *indices: Any, axis: int) -> Any:
    """Elements of x at broadcast integer indices of the axes from `axis` on."""
    if len(indices) == 1:
        return np.take(x, indices[0], axis)
    return x[(slice(None),) * axis + indices]


def scatter(x: Any, updates: Any, *indices: Any, axis: int) -> Any:
    """x with the elements at the indices replaced; of equal indices the last in C order counts."""
    out = np.array(x)
    # in memory in C order: NumPy assigns in the order of the index arrays' memory
    places = [np.array(i, order="C") for i in np.broadcast_arrays(*indices)]
    out[(slice(None),) * axis + tuple(places)] = updates
    return out


def scatter_add(x: Any, updates: Any, *indices: Any, axis: int) -> Any:
    """x with the updates added at the indices, one after another; equal indices accumulate."""
    shape, last = x.shape, axis + len(indices)
    flat: Any = np.zeros((), np.int64)
    for i, n in zip(indices, shape[axis:last], strict=True):
        i = i.astype(np.int64)
        if np.any((i < -n) | (i >= n)):
            raise IndexError(f"an index is out of bounds for an axis with size {n}")
        flat = flat * n + np.where(i < 0, i + n, i)
    before, count, rest = (
        int(np.prod(part, dtype=np.int64))
        for part in (shape[:axis], shape[axis:last], shape[last:])
    )
    # places in the flattened array: NumPy adds at one index array several times faster
    lead = np.arange(before)[:, None, None] * count
    places = (lead + flat.reshape((1, -1, 1))) * rest + np.arange(rest)
    out = np.array(x, order="C").reshape(-1)
    np.add.at(out, places.reshape(-1), updates.reshape(-1))
    return out.reshape(shape)
