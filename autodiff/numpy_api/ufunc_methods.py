"""Methods of NumPy's ufuncs: reduce and accumulate, and arguments that all ufuncs take."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff import ops
from autodiff.errors import ShapeError
from autodiff.families import axis_tuple
from autodiff.numpy_api import ACCUMULATES, FUNCTIONS, REDUCES, UFUNCS
from autodiff.numpy_api.indexing import decided
from autodiff.numpy_api.reductions import typed
from autodiff.ops.reduction import as_array, reduced, rows_last
from autodiff.ops.scan import scan


def loop_dtypes(ufunc: Any, dtypes: Sequence[Any], dtype: Any, reduction: bool = False) -> Any:
    """The dtypes in which NumPy evaluates a ufunc: of its operands and its result."""
    signature = (*(None,) * ufunc.nin, None if dtype is None else np.dtype(dtype))
    found: tuple[Any, ...] = ufunc.resolve_dtypes(
        (*dtypes, None), signature=signature, reduction=reduction, casting="unsafe"
    )
    return found


# --- those that are ops --------------------------------------------------------------------


def _logsumexp(
    a: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    y = ops.logsumexp(typed(a, dtype), axis, where, keepdims=keepdims)
    return y if initial is None else np.logaddexp(y, initial)


def _typed_reduce(function: Any) -> Any:
    def reduce(a: Any, axis: Any = 0, dtype: Any = None, **kwargs: Any) -> Any:
        return function(typed(a, dtype), axis, **kwargs)

    return reduce


def _running(function: Any) -> Any:
    def accumulate(a: Any, axis: Any = 0, dtype: Any = None) -> Any:
        y = function(typed(a, dtype), axis)
        return y if dtype is None or y.dtype == dtype else ops.cast(y, dtype)

    return accumulate


REDUCES.update(
    {
        np.add: FUNCTIONS[np.sum],
        np.multiply: FUNCTIONS[np.prod],
        np.maximum: _typed_reduce(FUNCTIONS[np.max]),
        np.minimum: _typed_reduce(FUNCTIONS[np.min]),
        np.logical_and: FUNCTIONS[np.all],
        np.logical_or: FUNCTIONS[np.any],
        np.logaddexp: _logsumexp,
    }
)
ACCUMULATES.update(
    {
        np.add: _running(ops.cumsum),
        np.multiply: _running(ops.cumprod),
        np.maximum: _running(ops.cummax),
        np.minimum: _running(ops.cummin),
        np.logaddexp: _running(ops.cumlogsumexp),
    }
)

# --- any other -----------------------------------------------------------------------------


def _operand(ufunc: Any, a: Any, dtype: Any) -> Any:
    """An operand in the dtype that partial results have."""
    a = as_array(a)
    return ops.cast(a, loop_dtypes(ufunc, (None, a.dtype), dtype, reduction=True)[-1])


def fold(
    ufunc: Any,
    a: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Any:
    """`ufunc.reduce` by a scan, from the first element to the last as NumPy does."""
    a = _operand(ufunc, a, dtype)
    axes = axis_tuple(axis, np.ndim(a), ufunc.__name__)
    try:  # NumPy's own word on how many axes, and whether elements may be left out
        kwargs = {} if initial is None else {"initial": 1}
        ufunc.reduce(np.ones((1,) * np.ndim(a), a.dtype), axes, where=where is True, **kwargs)
    except ValueError as error:
        raise ShapeError(
            str(error), f"in np.{ufunc.__name__}.reduce", "name one axis, or pass initial="
        ) from None
    rows = np.moveaxis(rows_last(a, axes), -1, 0)
    start = ufunc.identity if initial is None and (where is not True or not len(rows)) else initial
    if start is None and not len(rows):
        raise ShapeError(
            f"np.{ufunc.__name__}.reduce of no elements has no value",
            f"operand of shape {np.shape(a)}, axis {axis}",
            "keep the axis non-empty, or pass initial=",
        )
    if start is None:
        carry, rows = rows[0], rows[1:]
    else:
        carry = np.broadcast_to(ops.cast(as_array(start), a.dtype), np.shape(rows)[1:])
    if where is True:
        y, _ = scan(lambda c, x: (UFUNCS[ufunc](c, x), None), carry, rows)
    else:
        mask = np.broadcast_to(as_array(where), np.shape(a))
        masks = np.moveaxis(rows_last(mask, axes), -1, 0)
        y, _ = scan(
            lambda c, x: (ops.where(x[1], UFUNCS[ufunc](c, x[0]), c), None), carry, (rows, masks)
        )
    return np.reshape(y, reduced(np.shape(a), axes, keepdims))


def running(ufunc: Any, a: Any, axis: Any = 0, dtype: Any = None) -> Any:
    """`ufunc.accumulate` by a scan."""
    a = _operand(ufunc, a, dtype)
    (axis,) = axis_tuple(axis, np.ndim(a), ufunc.__name__)
    if not np.shape(a)[axis]:
        return a
    rows = np.moveaxis(a, axis, 0)

    def step(c: Any, x: Any) -> Any:
        y = UFUNCS[ufunc](c, x)
        return y, y

    _, rest = scan(step, rows[0], rows[1:])
    return np.moveaxis(np.concatenate([rows[:1], rest]), 0, axis)


# --- arguments -----------------------------------------------------------------------------


def converted(ufunc: Any, inputs: Sequence[Any], dtype: Any) -> tuple[Any, ...]:
    """Operands in the dtypes of the loop that gives a result of `dtype`."""
    weak = (int, float, complex)
    kinds = [type(x) if type(x) in weak else as_array(x).dtype for x in inputs]
    loop = loop_dtypes(ufunc, kinds, dtype)
    return tuple(ops.cast(as_array(x), d) for x, d in zip(inputs, loop, strict=False))


def with_axes(ufunc: Any, inputs: Sequence[Any], axes: Any) -> Any:
    """A product such as `np.matmul` along the axes named for operands and result."""
    cores = re.findall(r"\(([^)]*)\)", ufunc.signature)  # e.g. (n),(n)->()
    ranks = [len(core.split(",")) if core else 0 for core in cores]
    if len(axes) == len(inputs):  # a result without core axes may be left out
        axes = [*axes, ()]
    named = [(a,) if isinstance(a, int) else tuple(a) for a in axes]
    moved = [
        np.moveaxis(x, a, tuple(range(-r, 0)))
        for x, a, r in zip(inputs, named, ranks, strict=False)
    ]
    out = UFUNCS[ufunc](*moved)
    return np.moveaxis(out, tuple(range(-ranks[-1], 0)), named[-1]) if ranks[-1] else out


def parts(ufunc: Any, a: Any, indices: Any, axis: int = 0) -> Any:
    """`ufunc.reduceat`: each part from one index to the next; the element where that is not after.

    The indices are fixed integers. NumPy's own function says what is out of range.
    """
    places = decided(indices, f"np.{ufunc.__name__}.reduceat")
    places = np.asarray(places, np.int64)
    (axis,) = axis_tuple(axis, np.ndim(a), f"{ufunc.__name__}.reduceat")
    n = np.shape(a)[axis]
    if places.ndim != 1 or np.any((places < 0) | (places >= n)):
        raise ShapeError(
            f"np.{ufunc.__name__}.reduceat takes a vector of indices from 0 to {n - 1}",
            f"in np.{ufunc.__name__}.reduceat, operand of shape {np.shape(a)}, axis {axis}",
            "the last part ends with the axis: leave its end out",
        )
    ends = [*places[1:].tolist(), n]
    lead = (slice(None),) * axis
    found = [
        ufunc.reduce(a[(*lead, slice(start, stop if stop > start else start + 1))], axis=axis)
        for start, stop in zip(places.tolist(), ends, strict=True)
    ]
    return np.stack(found, axis=axis)
