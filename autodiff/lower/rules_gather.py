"""JAX functions of the gather and scatter primitives."""

from typing import Any

import jax.numpy as jnp


def gather(x: Any, *indices: Any, axis: int) -> Any:
    """Elements at broadcast integer indices.

    Positions outside the array, at which NumPy raises, give NaN or the least integer.
    """
    return x.at[(slice(None),) * axis + indices].get(mode="fill")


def scatter(x: Any, updates: Any, *indices: Any, axis: int) -> Any:
    """x with the elements at the indices replaced; of equal indices the last one counts.

    XLA leaves the order of equal indices open, so the updates that lose are sent outside the array
    and dropped: the winner of a position is the largest of the update numbers put there.
    """
    extents = x.shape[axis : axis + len(indices)]
    shape = jnp.broadcast_shapes(*(i.shape for i in indices))
    wide = [i.astype(jnp.int32) if i.dtype.itemsize < 4 else i for i in indices]
    full = [
        jnp.broadcast_to(jnp.where(i < 0, i + n, i), shape)
        for i, n in zip(wide, extents, strict=True)
    ]
    order = jnp.arange(_size(shape)).reshape(shape)
    last = jnp.full(extents, -1).at[tuple(full)].max(order, mode="drop")
    wins = last.at[tuple(full)].get(mode="fill", fill_value=-1) == order
    kept = [jnp.where(wins, full[0], extents[0]), *full[1:]]
    return x.at[(slice(None),) * axis + tuple(kept)].set(updates, mode="drop")


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def scatter_add(x: Any, updates: Any, *indices: Any, axis: int) -> Any:
    """x with the updates added at the indices."""
    return x.at[(slice(None),) * axis + indices].add(updates, mode="drop")
