"""Sorting and searching: SORT, ARGSORT, TOP_K and SEARCHSORTED."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import axis_tuple, batch_leading, nondiff, promote, whole
from autodiff.kernels import sorting as kernels
from autodiff.op import Op, define
from autodiff.ops.lookup import take_along_axis
from autodiff.ops.shape import broadcast_to, normal_axes, reshape, transpose
from autodiff.program import Spec
from autodiff.trace import bind

__all__ = ["argsort", "searchsorted", "sort", "top_k"]

_INDEX = np.dtype(np.int64)

# --- SORT and ARGSORT ----------------------------------------------------------------------


def _sort_spec(x: Spec, *, axis: int) -> tuple[Spec, Spec]:
    axis_tuple(axis, x.ndim, "SORT")
    return x, x.with_dtype(_INDEX)


def _sort_jvp(primals: Any, tangents: Any, outputs: Any, *, axis: int) -> Any:
    del primals
    return take_along_axis(tangents[0], outputs[1], axis), None


define(
    Op(
        "SORT",
        _sort_spec,
        impl=kernels.sort,
        jvp=_sort_jvp,
        batch=batch_leading("SORT", shift=("axis",), multiple=True),
        outputs=2,
        jax="rules:sort",
    )
)


def sort(x: Any, axis: int | None = -1) -> Any:
    """Values in ascending order along an axis; NaN comes last, equal values keep their order.

    Arguments: x, real, complex (lexicographic) or integer; axis None sorts the flattened array.
    Differentiable: a permutation, held fixed. Where values are equal the derivative is that of the
    stable order: the first of them in x is the first in the result.
    """
    if axis is None:
        x, axis = reshape(x, -1), 0
    (axis,) = axis_tuple(axis, np.ndim(x), "SORT")
    return bind("SORT", x, axis=axis)[0]


def _argsort_spec(x: Spec, *, axis: int) -> Spec:
    axis_tuple(axis, x.ndim, "ARGSORT")
    return x.with_dtype(_INDEX)


nondiff(
    "ARGSORT",
    kernels.argsort,
    spec=_argsort_spec,
    batch=batch_leading("ARGSORT", shift=("axis",)),
    jax="rules:argsort",
)


def argsort(x: Any, axis: int | None = -1) -> Any:
    """Positions (int64) of the values in ascending order; ties and NaN as in `sort`."""
    if axis is None:
        x, axis = reshape(x, -1), 0
    (axis,) = axis_tuple(axis, np.ndim(x), "ARGSORT")
    return bind("ARGSORT", x, axis=axis)


# --- TOP_K ---------------------------------------------------------------------------------


def _top_k_spec(x: Spec, *, k: int) -> tuple[Spec, Spec]:
    if not x.ndim or not 0 <= k <= x.shape[-1]:
        raise ShapeError(
            f"cannot take the {k} largest of {x}",
            "in op TOP_K",
            "k must lie between 0 and the extent of the axis",
        )
    out = x.with_shape((*x.shape[:-1], k))
    return out, out.with_dtype(_INDEX)


def _top_k_jvp(primals: Any, tangents: Any, outputs: Any, *, k: int) -> Any:
    del primals, k
    return take_along_axis(tangents[0], outputs[1], -1), None


define(
    Op(
        "TOP_K",
        _top_k_spec,
        impl=kernels.top_k,
        jvp=_top_k_jvp,
        batch=batch_leading("TOP_K", multiple=True),
        outputs=2,
        jax="rules:top_k",
    )
)


def top_k(x: Any, k: int, axis: int = -1) -> tuple[Any, Any]:
    """The k largest values along an axis, largest first, and their positions (int64).

    NaN counts as the largest value; of equal values the one of lower position comes first.
    Differentiable in the values; the choice is held fixed. Raises ShapeError for k out of range.
    """
    (axis,) = normal_axes(axis, np.ndim(x))
    order = (*(i for i in range(np.ndim(x)) if i != axis), axis)
    back = tuple(int(i) for i in np.argsort(order))
    values, places = bind("TOP_K", transpose(x, order), k=whole(k, "k of TOP_K"))
    return transpose(values, back), transpose(places, back)


# --- SEARCHSORTED --------------------------------------------------------------------------


def _searchsorted_spec(a: Spec, v: Spec, *, side: str) -> Spec:
    if side not in ("left", "right"):
        raise ShapeError(f"side {side!r} is unknown", "in op SEARCHSORTED", "use 'left' or 'right'")
    stacked = a.ndim > 1 and a.shape[:-1] == v.shape[:-1]
    if a.dtype != v.dtype or not (a.ndim == 1 or stacked):
        raise ShapeError(
            f"cannot search {a} for {v}",
            "in op SEARCHSORTED",
            "sorted values are 1-d, or rows (..., n) with values (..., m), of one dtype",
        )
    return v.with_dtype(_INDEX)


def _searchsorted_batch(size: int, args: Any, batched: Any, *, side: str) -> Any:
    (a, v), (a_flag, v_flag) = args, batched
    if not a_flag and np.ndim(a) == 1:
        return bind("SEARCHSORTED", a, v, side=side), True
    a = a if a_flag else broadcast_to(a, (size, *np.shape(a)))
    v = v if v_flag else broadcast_to(v, (size, *np.shape(v)))
    shape = np.shape(v)
    if np.ndim(a) == 2:
        # one sorted row per example, values of any shape
        count = int(np.prod(shape[1:], dtype=np.int64))
        out = bind("SEARCHSORTED", a, reshape(v, (size, count)), side=side)
        return reshape(out, shape), True
    return bind("SEARCHSORTED", a, v, side=side), True


nondiff(
    "SEARCHSORTED",
    kernels.searchsorted,
    spec=_searchsorted_spec,
    batch=_searchsorted_batch,
    jax="rules:searchsorted",
)


def searchsorted(a: Any, v: Any, side: str = "left") -> Any:
    """Positions (int64) at which values would be put into a sorted array to keep its order.

    a[i - 1] < v <= a[i] for side "left", a[i - 1] <= v < a[i] for "right"; NaN sorts last.

    Arguments: a of shape (n,), ascending, and v of any shape; or rows a of shape (..., n) and v of
    shape (..., m). No tangent space.
    """
    return bind("SEARCHSORTED", *promote(a, v), side=side)
