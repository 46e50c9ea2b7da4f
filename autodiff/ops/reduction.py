"""Reductions: sums, products, extrema, means and norms."""

from typing import Any

import numpy as np

from autodiff.families import axis_tuple, batch_leading, linear
from autodiff.program import Spec
from autodiff.trace import bind


def reduced(shape: tuple[int, ...], axis: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """The shape left after reducing axes."""
    if keepdims:
        return tuple(1 if i in axis else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axis)


def restore(x: Any, shape: tuple[int, ...], axis: tuple[int, ...], keepdims: bool) -> Any:
    """A reduced value broadcast back to the operand's shape."""
    if not keepdims:
        x = np.reshape(x, reduced(shape, axis, True))
    return np.broadcast_to(x, shape)


def _sum_spec(x: Spec, *, axis: tuple[int, ...], keepdims: bool) -> Spec:
    return x.with_shape(reduced(x.shape, axis, keepdims))


def _sum_transpose(ct: Any, inputs: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return (restore(ct, inputs[0].shape, axis, keepdims),)


linear(
    "SUM",
    np.sum,
    spec=_sum_spec,
    transpose=_sum_transpose,
    batch=batch_leading("SUM", shift=("axis",)),
    jax="jnp.sum",
)


def sum(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Sum over axes (all by default); bool and small integers are summed as int64."""
    axes = axis_tuple(axis, np.ndim(x), "SUM")
    if x.dtype.kind in "bu" or (x.dtype.kind == "i" and x.dtype.itemsize < 8):
        x = bind("CAST", x, dtype=np.dtype(np.uint64 if x.dtype.kind == "u" else np.int64))
    return bind("SUM", x, axis=axes, keepdims=bool(keepdims))
