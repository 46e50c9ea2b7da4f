"""JAX functions of sorting and searching."""

from typing import Any

import jax
import jax.numpy as jnp


def sort(x: Any, *, axis: int) -> tuple[Any, Any]:
    """Sorted values and the positions they came from."""
    order = argsort(x, axis=axis)
    return jnp.take_along_axis(x, order, axis), order


def argsort(x: Any, *, axis: int) -> Any:
    """Positions in sorted order, stable, NaN last."""
    return jnp.argsort(x, axis=axis, stable=True)


def top_k(x: Any, *, k: int) -> tuple[Any, Any]:
    """The k largest values of the last axis, largest first, and their positions."""
    order = x.shape[-1] - 1 - jnp.argsort(x[..., ::-1], axis=-1, stable=True)
    order = order[..., ::-1][..., :k]
    return jnp.take_along_axis(x, order, -1), order


def searchsorted(a: Any, v: Any, *, side: str) -> Any:
    """Positions in sorted rows at which values keep the order."""
    search = jnp.searchsorted
    for _ in range(a.ndim - 1):
        search = jax.vmap(search, in_axes=(0, 0, None))
    return search(a, v, side)
