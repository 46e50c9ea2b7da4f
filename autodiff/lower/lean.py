"""What functions of `jax.numpy` do, said in the operations of `jax.lax` they end in.

Most of `jax.numpy` are functions under `jit`. Each call, of NaN tests, selects and operators alike,
is traced and lowered as a private function that is inlined later: several times the work of the
operation alone. `DIRECT` names the ones that programs are full of.
"""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


def spread(x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """x broadcast to a shape, as NumPy does it; a Python number gets the dtype."""
    if not hasattr(x, "ndim"):
        x = np.asarray(x, dtype)
    if x.shape == shape:
        return x
    lead = len(shape) - x.ndim
    kept = [i for i, n in enumerate(x.shape) if n == shape[lead + i]]
    if len(kept) < x.ndim:  # stretched axes of one element go first
        x = lax.reshape(x, tuple(x.shape[i] for i in kept))
    return lax.broadcast_in_dim(x, shape, tuple(lead + i for i in kept))


def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y; two arrays have one dtype, numbers follow the array."""
    dtype = x.dtype if hasattr(x, "ndim") else y.dtype
    shapes = {v.shape for v in (x, y) if hasattr(v, "ndim")} | {condition.shape}
    shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
    if condition.ndim:
        condition = spread(condition, shape, np.bool_)
    return lax.select(condition, spread(x, shape, dtype), spread(y, shape, dtype))


def isnan(x: Any) -> Any:
    """True where x is NaN."""
    return lax.ne(x, x)


def isinf(x: Any) -> Any:
    """True where a real x is infinite."""
    return lax.eq(lax.abs(x), np.asarray(np.inf, x.dtype))


def total(reduce: Callable[..., Any], x: Any, axis: tuple[int, ...], keepdims: bool = False) -> Any:
    """A reduction of `lax` over axes, whose extents become 1 or go."""
    found = reduce(x, axis)
    return lax.expand_dims(found, sorted(a % x.ndim for a in axis)) if keepdims else found


def take_along(x: Any, order: Any, axis: int) -> Any:
    """Slices of x across an axis, at positions inside it for each leading index of `order`."""
    at = axis % x.ndim
    dimensions = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(at + 1, x.ndim)),
        collapsed_slice_dims=(at,),
        start_index_map=(at,),
        operand_batching_dims=tuple(range(at)),
        start_indices_batching_dims=tuple(range(at)),
    )
    sizes = (1,) * (at + 1) + x.shape[at + 1 :]
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return lax.gather(x, lax.expand_dims(order, (order.ndim,)), dimensions, sizes, mode=mode)


def product(x: Any, y: Any, precision: Any) -> Any:
    """The matrix product over the last two axes, of equal leading ones."""
    lead = tuple(range(x.ndim - 2))
    numbers = (((x.ndim - 1,), (y.ndim - 2,)), (lead, lead))
    return lax.dot_general(x, y, numbers, precision=precision)


# --- the functions of jax.numpy that ops name ------------------------------------------------


def _floats(*xs: Any) -> bool:
    """Whether all have one float dtype and ranks that `lax` broadcasts itself."""
    dtype = xs[0].dtype
    ranks = {x.ndim for x in xs} - {0}
    return dtype.kind == "f" and all(x.dtype == dtype for x in xs) and len(ranks) < 2


def _quick(general: Callable[..., Any], direct: Callable[..., Any]) -> Callable[..., Any]:
    """The function of `lax` for floats, that of `jax.numpy` for all else."""

    @functools.wraps(general)
    def rule(*xs: Any) -> Any:
        return direct(*xs) if _floats(*xs) else general(*xs)

    return rule


def _select(condition: Any, x: Any, y: Any) -> Any:
    return where(condition, x, y) if x.dtype == y.dtype else jnp.where(condition, x, y)


def _reduction(general: Callable[..., Any], reduce: Callable[..., Any], kinds: str) -> Any:
    """A reduction by `lax`; sums of 16-bit values are left to `jax.numpy`, which widens them."""

    @functools.wraps(general)
    def rule(x: Any, **params: Any) -> Any:
        plain = x.dtype.kind in kinds and (x.dtype.kind == "b" or x.dtype.itemsize >= 4)
        return total(reduce, x, **params) if plain and params else general(x, **params)

    return rule


def _reshape(x: Any, *, shape: tuple[int, ...]) -> Any:
    return lax.reshape(x, shape)


def _transpose(x: Any, *, axes: tuple[int, ...]) -> Any:
    return lax.transpose(x, axes)


def _broadcast_to(x: Any, *, shape: tuple[int, ...]) -> Any:
    return spread(x, shape, x.dtype)


def _logic(general: Callable[..., Any], direct: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(general)
    def rule(*xs: Any) -> Any:
        same = all(x.dtype == np.bool_ and x.shape == xs[0].shape for x in xs)
        return direct(*xs) if same else general(*xs)

    return rule


def _rint(x: Any) -> Any:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


_ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
    "absolute": lax.abs,
    "add": lax.add,
    "ceil": lax.ceil,
    "cos": lax.cos,
    "divide": lax.div,
    "exp": lax.exp,
    "expm1": lax.expm1,
    "floor": lax.floor,
    "isfinite": lax.is_finite,
    "isinf": isinf,
    "isnan": isnan,
    "log": lax.log,
    "log1p": lax.log1p,
    "maximum": lax.max,
    "minimum": lax.min,
    "multiply": lax.mul,
    "negative": lax.neg,
    "rint": _rint,
    "sign": lax.sign,
    "sin": lax.sin,
    "sqrt": lax.sqrt,
    "square": lax.square,
    "subtract": lax.sub,
    "tanh": lax.tanh,
}

# The functions to call for the names of those of `jax.numpy`.
DIRECT: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **{f"jnp.{n}": _quick(getattr(jnp, n), f) for n, f in _ELEMENTWISE.items()},
        "jnp.all": _reduction(jnp.all, lax.reduce_and, "b"),
        "jnp.any": _reduction(jnp.any, lax.reduce_or, "b"),
        "jnp.broadcast_to": _broadcast_to,
        "jnp.logical_and": _logic(jnp.logical_and, lax.bitwise_and),
        "jnp.logical_or": _logic(jnp.logical_or, lax.bitwise_or),
        "jnp.max": _reduction(jnp.max, lax.reduce_max, "f"),
        "jnp.min": _reduction(jnp.min, lax.reduce_min, "f"),
        "jnp.reshape": _reshape,
        "jnp.sum": _reduction(jnp.sum, lax.reduce_sum, "fc"),
        "jnp.transpose": _transpose,
        "jnp.where": _select,
    }
)
