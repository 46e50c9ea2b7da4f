"""NumPy's shape functions."""

import itertools
from typing import Any

import numpy as np

from autodiff import ops
from autodiff.errors import ShapeError
from autodiff.numpy_api import FUNCTIONS, implements
from autodiff.ops.shape import normal_axes


@implements(np.shape)
def _shape(a: Any) -> Any:
    return a.shape


@implements(np.ndim)
def _ndim(a: Any) -> Any:
    return a.ndim


@implements(np.size)
def _size(a: Any, axis: Any = None) -> Any:
    axes = () if axis is None else (axis if isinstance(axis, tuple) else (axis,))
    return a.size if axis is None else int(np.prod([a.shape[i] for i in axes], dtype=np.int64))


# --- one array, other axes -----------------------------------------------------------------


def _wants_columns(order: str) -> bool:
    """Whether elements are read in Fortran order ("A" and "K" are C: traces have no memory)."""
    if order not in ("C", "F", "A", "K"):
        raise ValueError(f"order {order!r} is not one of 'C', 'F', 'A', 'K'")
    return order == "F"


@implements(np.reshape)
def _reshape(
    a: Any, /, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: Any = None
) -> Any:
    del copy
    shape = newshape if shape is None else shape
    if not _wants_columns(order):
        return ops.reshape(a, shape)
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    return ops.transpose(ops.reshape(ops.transpose(a), extents[::-1]))


@implements(np.ravel)
def _ravel(a: Any, order: str = "C") -> Any:
    return ops.reshape(ops.transpose(a) if _wants_columns(order) else a, -1)


@implements(np.transpose)
def _transpose(a: Any, axes: Any = None) -> Any:
    return ops.transpose(a, axes)


@implements(np.matrix_transpose)
def _matrix_transpose(x: Any) -> Any:
    return _swapaxes(x, -1, -2)


@implements(np.swapaxes)
def _swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    order = list(range(a.ndim))
    i, j = _axis(axis1, a.ndim), _axis(axis2, a.ndim)
    order[i], order[j] = j, i
    return ops.transpose(a, tuple(order))


def _axis(axis: Any, ndim: int) -> int:
    (normal,) = normal_axes((axis,), ndim)
    return normal


@implements(np.moveaxis)
def _moveaxis(a: Any, source: Any, destination: Any) -> Any:
    origin = normal_axes(source, a.ndim)
    target = normal_axes(destination, a.ndim)
    if len(origin) != len(target):
        raise ShapeError(
            f"cannot move axes {source} to {destination}",
            "in numpy.moveaxis",
            "give as many destinations as sources",
        )
    order = [i for i in range(a.ndim) if i not in origin]
    for place, axis in sorted(zip(target, origin, strict=True)):
        order.insert(place, axis)
    return ops.transpose(a, tuple(order))


@implements(np.rollaxis)
def _rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    axis = _axis(axis, a.ndim)
    start = start + a.ndim if start < 0 else start
    return _moveaxis(a, axis, start - 1 if axis < start else start)


@implements(np.expand_dims)
def _expand_dims(a: Any, axis: Any) -> Any:
    return ops.expand_dims(a, axis)


@implements(np.squeeze)
def _squeeze(a: Any, axis: Any = None) -> Any:
    return ops.squeeze(a, axis)


def _at_least(count: int) -> Any:
    def reshaped(x: Any) -> Any:
        shape = np.shape(x)
        if len(shape) >= count:
            return x
        if count == 3:
            shape = (1, *shape, 1) if len(shape) == 1 else (*shape, 1) if shape else (1, 1, 1)
        return ops.reshape(x, (1,) * (count - len(shape)) + shape)

    def function(*arys: Any) -> Any:
        values = tuple(reshaped(_valued(x)) for x in arys)
        return values[0] if len(values) == 1 else values

    return function


def _valued(x: Any) -> Any:
    """A traced value or an array."""
    return x if hasattr(x, "dtype") else np.asarray(x)


FUNCTIONS.update(
    {f: _at_least(i + 1) for i, f in enumerate((np.atleast_1d, np.atleast_2d, np.atleast_3d))}
)


@implements(np.broadcast_to)
def _broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    del subok
    return ops.broadcast_to(array, shape)


@implements(np.broadcast_arrays)
def _broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    del subok
    shape = np.broadcast_shapes(*(np.shape(x) for x in args))
    return tuple(ops.broadcast_to(_valued(x), shape) for x in args)


# --- joining and splitting -----------------------------------------------------------------


@implements(np.concatenate)
def _concatenate(arrays: Any, /, axis: Any = 0, *, dtype: Any = None, casting: Any = None) -> Any:
    del casting
    out = ops.concatenate(tuple(arrays), axis)
    return out if dtype is None else ops.cast(out, dtype)


@implements(np.stack)
def _stack(arrays: Any, axis: int = 0, *, dtype: Any = None, casting: Any = None) -> Any:
    del casting
    out = ops.stack(tuple(arrays), axis)
    return out if dtype is None else ops.cast(out, dtype)


@implements(np.unstack)
def _unstack(x: Any, /, *, axis: int = 0) -> Any:
    x = _moveaxis(x, axis, 0)
    return (
        tuple(ops.reshape(part, x.shape[1:]) for part in ops.split(x, x.shape[0]))
        if x.shape[0]
        else ()
    )


@implements(np.vstack)
def _vstack(tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    return _concatenate([np.atleast_2d(x) for x in tup], 0, dtype=dtype, casting=casting)


@implements(np.hstack)
def _hstack(tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    values = [np.atleast_1d(x) for x in tup]
    return _concatenate(values, 0 if values[0].ndim == 1 else 1, dtype=dtype, casting=casting)


@implements(np.dstack)
def _dstack(tup: Any) -> Any:
    return _concatenate([np.atleast_3d(x) for x in tup], 2)


@implements(np.column_stack)
def _column_stack(tup: Any) -> Any:
    values = [_valued(x) for x in tup]
    return _concatenate([x if x.ndim > 1 else ops.reshape(x, (x.size, 1)) for x in values], 1)


@implements(np.block)
def _block(arrays: Any) -> Any:
    depth = _depth(arrays)
    rank = max(depth, *(np.ndim(x) for x in _leaves(arrays)))
    return _joined(arrays, depth, rank)


def _depth(nested: Any) -> int:
    return 1 + _depth(nested[0]) if isinstance(nested, list) else 0


def _leaves(nested: Any) -> list[Any]:
    return [x for part in nested for x in _leaves(part)] if isinstance(nested, list) else [nested]


def _joined(nested: Any, depth: int, rank: int) -> Any:
    if not isinstance(nested, list):
        value = _valued(nested)
        return ops.reshape(value, (1,) * (rank - value.ndim) + np.shape(value))
    return _concatenate([_joined(x, depth - 1, rank) for x in nested], rank - depth)


@implements(np.append)
def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    return _concatenate([_valued(arr), _valued(values)], axis)


@implements(np.split)
def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    return list(ops.split(ary, indices_or_sections, axis))


@implements(np.array_split)
def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    if not isinstance(indices_or_sections, int | np.integer):
        return _split(ary, indices_or_sections, axis)
    each, more = divmod(np.shape(ary)[axis], indices_or_sections)
    sizes = [each + 1] * more + [each] * (indices_or_sections - more)
    return _split(ary, list(itertools.accumulate(sizes))[:-1], axis)


@implements(np.hsplit)
def _hsplit(ary: Any, indices_or_sections: Any) -> Any:
    return _split(ary, indices_or_sections, 1 if ary.ndim > 1 else 0)


@implements(np.vsplit)
def _vsplit(ary: Any, indices_or_sections: Any) -> Any:
    return _split(ary, indices_or_sections, 0)


@implements(np.dsplit)
def _dsplit(ary: Any, indices_or_sections: Any) -> Any:
    return _split(ary, indices_or_sections, 2)


# --- reordering and repeating --------------------------------------------------------------


@implements(np.flip)
def _flip(m: Any, axis: Any = None) -> Any:
    return ops.reverse(m, axis)


@implements(np.fliplr)
def _fliplr(m: Any) -> Any:
    return ops.reverse(m, 1)


@implements(np.flipud)
def _flipud(m: Any) -> Any:
    return ops.reverse(m, 0)


@implements(np.roll)
def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    return ops.roll(a, shift, axis)


@implements(np.rot90)
def _rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    i, j = normal_axes(tuple(axes), m.ndim)
    turns = k % 4
    if turns == 0:
        return m
    if turns == 2:
        return ops.reverse(m, (i, j))
    if turns == 1:
        return _swapaxes(ops.reverse(m, j), i, j)
    return ops.reverse(_swapaxes(m, i, j), j)


@implements(np.tile)
def _tile(A: Any, reps: Any) -> Any:
    return ops.tile(A, reps)


@implements(np.repeat)
def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    return ops.repeat(a, repeats, axis)
