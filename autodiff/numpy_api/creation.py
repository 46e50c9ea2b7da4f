"""NumPy's creation functions with `like=`, and comparisons that give plain bools."""

import functools
from typing import Any

import numpy as np

from autodiff import ops
from autodiff.numpy_api import FUNCTIONS, implements
from autodiff.numpy_api.indexing import decided
from autodiff.ops.shape import normal_axes
from autodiff.tracer import BRANCH_FIX, Tracer


@implements(np.array, np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray)
def _array(a: Any, dtype: Any = None, *args: Any, ndmin: int = 0, **kwargs: Any) -> Any:
    """`np.array(nested, like=x)`: nested lists may hold traced values, which are stacked."""
    del args, kwargs
    value = _nested(a)
    if dtype is not None:
        value = ops.cast(value, dtype)
    return ops.reshape(value, (1,) * (ndmin - np.ndim(value)) + np.shape(value))


def _nested(a: Any) -> Any:
    if isinstance(a, Tracer):
        return a
    if isinstance(a, list | tuple) and any(_holds_traced(v) for v in a):
        return ops.stack([_nested(v) for v in a])
    return np.asarray(a)


def _holds_traced(a: Any) -> bool:
    if isinstance(a, list | tuple):
        return any(_holds_traced(v) for v in a)
    return isinstance(a, Tracer)


def _constant(function: Any) -> Any:
    """A creation function whose arguments are plain; `like` has done its work."""

    @functools.wraps(function)
    def create(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("like", None)
        return function(*args, **kwargs)

    return create


for _name in ("zeros", "ones", "empty", "arange", "eye", "identity", "tri", "fromfunction"):
    FUNCTIONS[getattr(np, _name)] = _constant(getattr(np, _name))


@implements(np.full)
def _full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", **kwargs: Any) -> Any:
    del order, kwargs
    value = fill_value if isinstance(fill_value, Tracer) else np.asarray(fill_value)
    return ops.broadcast_to(value if dtype is None else ops.cast(value, dtype), shape)


@implements(np.linspace)
def _linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """start (1 - t) + stop t, so that both ends are exact and both derivatives are weights."""
    del device
    start, stop = np.broadcast_arrays(start, stop)
    kind = np.result_type(start.dtype, stop.dtype, np.float32)
    parts = num - 1 if endpoint else num
    t = np.arange(num, dtype=np.finfo(kind).dtype) / max(parts, 1)
    t = t.reshape((num, *(1,) * np.ndim(start)))
    out = start * (1 - t) + stop * t
    (place,) = normal_axes(axis, np.ndim(out))
    out = np.moveaxis(out if dtype is None else ops.cast(out, dtype), 0, place)
    return (out, (stop - start) / parts if parts else np.nan) if retstep else out


@implements(np.logspace)
def _logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    out = np.power(base, _linspace(start, stop, num, endpoint, axis=axis))
    return out if dtype is None else ops.cast(out, dtype)


@implements(np.geomspace)
def _geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Any:
    """start (stop / start)^t, so that negative values of one sign work as well."""
    start, stop = np.broadcast_arrays(start, stop)
    t = np.arange(num) / max(num - 1 if endpoint else num, 1)
    out = start * (stop / start) ** t.reshape((num, *(1,) * np.ndim(start)))
    out = np.moveaxis(out, 0, axis)
    return out if dtype is None else ops.cast(out, dtype)


# --- text, types and plain bools -----------------------------------------------------------


@implements(np.allclose)
def _allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> bool:
    return bool(decided(np.all(np.isclose(a, b, rtol, atol, equal_nan)), "np.allclose", BRANCH_FIX))


@implements(np.array_equal)
def _array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    if np.shape(a1) != np.shape(a2):
        return False
    same = a1 == a2
    if equal_nan:
        same = same | ((a1 != a1) & (a2 != a2))
    return bool(decided(np.all(same), "np.array_equal", BRANCH_FIX))


@implements(np.array_equiv)
def _array_equiv(a1: Any, a2: Any) -> bool:
    try:
        np.broadcast_shapes(np.shape(a1), np.shape(a2))
    except ValueError:
        return False
    return bool(decided(np.all(a1 == a2), "np.array_equiv", BRANCH_FIX))


@implements(np.shares_memory, np.may_share_memory)
def _shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    del a, b, max_work
    return False


@implements(np.array_repr, np.array_str, np.array2string)
def _text(a: Any, *args: Any, **kwargs: Any) -> str:
    del args, kwargs
    return repr(a)


@implements(np.min_scalar_type)
def _min_scalar_type(a: Any) -> Any:
    return a.dtype


@implements(np.einsum_path)
def _einsum_path(subscripts: Any, *operands: Any, **kwargs: Any) -> Any:
    models = [
        np.broadcast_to(np.zeros((), x.dtype), x.shape) if isinstance(x, Tracer) else x
        for x in operands
    ]
    return np.einsum_path(subscripts, *models, **kwargs)


@implements(np.apply_along_axis)
def _apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """`func1d` on every 1-d slice, by `autodiff.vmap`."""
    from autodiff.vmap import vmap

    moved = np.moveaxis(arr, axis, -1)
    rows = ops.reshape(moved, (-1, moved.shape[-1]))
    out = vmap(lambda row: func1d(row, *args, **kwargs))(rows)
    shaped = ops.reshape(out, moved.shape[:-1] + out.shape[1:])
    (place,) = normal_axes(axis, np.ndim(arr))
    inner = tuple(range(moved.ndim - 1, shaped.ndim))
    return np.moveaxis(shaped, inner, tuple(range(place, place + len(inner))))


@implements(np.apply_over_axes)
def _apply_over_axes(func: Any, a: Any, axes: Any) -> Any:
    for axis in normal_axes(axes, np.ndim(a)):
        reduced = func(a, axis)
        a = reduced if np.ndim(reduced) == np.ndim(a) else np.expand_dims(reduced, axis)
    return a
