"""The same elements in another layout: RESHAPE, TRANSPOSE, BROADCAST and its adjoint SUM_TO."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import axis_tuple, linear, unbroadcast, whole
from autodiff.kernels import layout as kernels
from autodiff.program import Spec
from autodiff.trace import bind

__all__ = ["broadcast_to", "reshape", "sum_to", "transpose"]


def normal_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes counted from 0, in the order given; repeated or out of range is an error."""
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    axis_tuple(axes, ndim, "axes")
    return tuple(a % ndim for a in axes)


# --- RESHAPE -------------------------------------------------------------------------------


def _reshape_spec(x: Spec, *, shape: tuple[int, ...]) -> Spec:
    if int(np.prod(shape, dtype=np.int64)) != x.size:
        raise ShapeError(
            f"cannot reshape {x.shape} ({x.size} elements) to {shape}",
            "in op RESHAPE",
            "the number of elements must stay the same",
        )
    return x.with_shape(shape)


def _reshape_transpose(ct: Any, inputs: Any, *, shape: tuple[int, ...]) -> tuple[Any, ...]:
    del shape
    return (bind("RESHAPE", ct, shape=inputs[0].shape),)


def _reshape_batch(size: int, args: Any, batched: Any, *, shape: tuple[int, ...]) -> Any:
    del batched
    return bind("RESHAPE", args[0], shape=(size, *shape)), True


linear(
    "RESHAPE",
    np.reshape,
    spec=_reshape_spec,
    transpose=_reshape_transpose,
    batch=_reshape_batch,
    jax="jnp.reshape",
)


def reshape(x: Any, shape: int | tuple[int, ...]) -> Any:
    """The same elements in C order with another shape; one entry may be -1."""
    extents = shape if isinstance(shape, Iterable) else (shape,)
    shape = tuple(whole(n, "shape of RESHAPE") for n in extents)
    if any(n < -1 for n in shape):
        raise ShapeError(
            f"cannot reshape {np.shape(x)} to {shape}", "in op RESHAPE", "extents are not negative"
        )
    if -1 in shape:
        rest = int(np.prod([n for n in shape if n != -1], dtype=np.int64))
        size = int(np.prod(np.shape(x), dtype=np.int64))
        if shape.count(-1) > 1 or (rest == 0) or size % rest:
            raise ShapeError(
                f"cannot reshape {np.shape(x)} to {shape}",
                "in op RESHAPE",
                "at most one -1, and the other extents must divide the size",
            )
        shape = tuple(size // rest if n == -1 else n for n in shape)
    return x if np.shape(x) == shape else bind("RESHAPE", x, shape=shape)


# --- TRANSPOSE -----------------------------------------------------------------------------


def _transpose_spec(x: Spec, *, axes: tuple[int, ...]) -> Spec:
    if sorted(axes) != list(range(x.ndim)):
        raise ShapeError(
            f"axes {axes} do not permute {x.ndim} axes", "in op TRANSPOSE", "name each axis once"
        )
    return x.with_shape(tuple(x.shape[a] for a in axes))


def _transpose_transpose(ct: Any, inputs: Any, *, axes: tuple[int, ...]) -> tuple[Any, ...]:
    del inputs
    return (bind("TRANSPOSE", ct, axes=tuple(int(a) for a in np.argsort(axes))),)


def _transpose_batch(size: int, args: Any, batched: Any, *, axes: tuple[int, ...]) -> Any:
    del size, batched
    return bind("TRANSPOSE", args[0], axes=(0, *(a + 1 for a in axes))), True


linear(
    "TRANSPOSE",
    np.transpose,
    spec=_transpose_spec,
    transpose=_transpose_transpose,
    batch=_transpose_batch,
    jax="jnp.transpose",
)


def _counted(axes: Any, ndim: int) -> Iterator[int]:
    """Axes counted from 0; those that repeat are left for the spec rule."""
    for a in axes:
        yield axis_tuple(a, ndim, "TRANSPOSE")[0]


def transpose(x: Any, axes: tuple[int, ...] | None = None) -> Any:
    """Axes permuted (reversed by default)."""
    n = np.ndim(x)
    axes = tuple(range(n))[::-1] if axes is None else tuple(_counted(axes, n))
    return x if axes == tuple(range(n)) else bind("TRANSPOSE", x, axes=axes)


# --- BROADCAST and SUM_TO ------------------------------------------------------------------


def _broadcast_spec(x: Spec, *, shape: tuple[int, ...]) -> Spec:
    try:
        ok = np.broadcast_shapes(x.shape, shape) == tuple(shape)
    except ValueError:
        ok = False
    if not ok:
        raise ShapeError(
            f"cannot broadcast {x.shape} to {shape}",
            "in op BROADCAST",
            "extents must be equal or 1, aligned at the last axis",
        )
    return x.with_shape(shape)


def _broadcast_transpose(ct: Any, inputs: Any, *, shape: tuple[int, ...]) -> tuple[Any, ...]:
    del shape
    return (unbroadcast(ct, inputs[0].shape),)


def _broadcast_batch(size: int, args: Any, batched: Any, *, shape: tuple[int, ...]) -> Any:
    del batched
    (x,) = args
    inner = np.shape(x)[1:]
    x = reshape(x, (size, *(1,) * (len(shape) - len(inner)), *inner))
    return bind("BROADCAST", x, shape=(size, *shape)), True


linear(
    "BROADCAST",
    np.broadcast_to,
    spec=_broadcast_spec,
    transpose=_broadcast_transpose,
    batch=_broadcast_batch,
    jax="jnp.broadcast_to",
)


def broadcast_to(x: Any, shape: int | tuple[int, ...]) -> Any:
    """The value stretched to a shape by NumPy's rules."""
    extents = shape if isinstance(shape, Iterable) else (shape,)
    shape = tuple([whole(n, "shape of BROADCAST") for n in extents])
    return x if np.shape(x) == shape else bind("BROADCAST", x, shape=shape)


def _sum_to_spec(x: Spec, *, shape: tuple[int, ...]) -> Spec:
    _broadcast_spec(Spec(shape, x.dtype), shape=x.shape)
    return x.with_shape(shape)


def _sum_to_transpose(ct: Any, inputs: Any, *, shape: tuple[int, ...]) -> tuple[Any, ...]:
    del shape
    return (broadcast_to(ct, inputs[0].shape),)


def _sum_to_batch(size: int, args: Any, batched: Any, *, shape: tuple[int, ...]) -> Any:
    del batched
    (x,) = args
    inner = np.shape(x)[1:]
    # ranks differ inside: keep the summed-away leading axes as extents of 1, then drop them
    padded = (1,) * (len(inner) - len(shape)) + tuple(shape)
    return reshape(bind("SUM_TO", x, shape=(size, *padded)), (size, *shape)), True


linear(
    "SUM_TO",
    kernels.sum_to,
    spec=_sum_to_spec,
    transpose=_sum_to_transpose,
    batch=_sum_to_batch,
    jax="rules:sum_to",
)


def sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    """The adjoint of broadcasting: sums over the axes that a broadcast from `shape` added."""
    return x if np.shape(x) == tuple(shape) else bind("SUM_TO", x, shape=tuple(shape))
