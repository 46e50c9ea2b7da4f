"""Reductions: sums, products, means, extrema and their positions, logic."""

from collections.abc import Callable
from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import (
    axis_tuple,
    batch_leading,
    composite,
    is_array,
    linear,
    nondiff,
    promote,
)
from autodiff.kernels import reduction as kernels
from autodiff.op import Op, define
from autodiff.ops.elementwise import cast
from autodiff.ops.shape import pad, reshape, slice_, transpose
from autodiff.program import Spec
from autodiff.trace import bind
from autodiff.widen import widened_body

__all__ = [
    "all",
    "any",
    "argmax",
    "argmax_mask",
    "argmin",
    "max",
    "mean",
    "min",
    "prod",
    "sum",
    "wide_sum",
]

Axis = int | tuple[int, ...] | list[int] | None

# --- shapes --------------------------------------------------------------------------------


def reduced(shape: tuple[int, ...], axis: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """The shape left after reducing axes."""
    if keepdims:
        return tuple(1 if i in axis else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axis)


def expand(x: Any, shape: tuple[int, ...], axis: tuple[int, ...]) -> Any:
    """A reduced value with its reduced axes put back as extents of 1."""
    return reshape(x, reduced(shape, axis, True))


def restore(x: Any, shape: tuple[int, ...], axis: tuple[int, ...], keepdims: bool) -> Any:
    """A reduced value broadcast back to the operand's shape."""
    if not keepdims:
        x = expand(x, shape, axis)
    return np.broadcast_to(x, shape)


def extent(shape: tuple[int, ...], axis: tuple[int, ...]) -> int:
    """How many elements each result of a reduction is made of."""
    return int(np.prod([shape[a] for a in axis], dtype=np.int64))


def total(x: Any, axis: tuple[int, ...]) -> Any:
    """The sum along axes, which stay as extents of 1."""
    return bind("SUM", x, axis=axis, keepdims=True)


def wide_total(x: Any, axis: tuple[int, ...]) -> Any:
    """`total` without the errors of partial sums."""
    return bind("WIDE_SUM", x, axis=axis, keepdims=True)


def as_array(x: Any) -> Any:
    """A traced value or array as it is; anything else as an array."""
    return x if is_array(x) else np.asarray(x)


def inexact(x: Any) -> Any:
    """Integers and bools as float64, other values as they are."""
    return promote(x, inexact=True)[0]


def _reduction_spec(kind: str, kinds: str, out: str = "same", empty: bool = True) -> Any:
    """Spec rule of a reduction; `empty`: whether no elements have a result."""

    def spec(x: Spec, *, axis: tuple[int, ...], keepdims: bool) -> Spec:
        axis_tuple(axis, x.ndim, kind)
        if x.dtype.kind not in kinds:
            raise ShapeError(
                f"{kind} is not defined for {x.dtype.name}",
                f"in op {kind}, operand {x}",
                "convert with astype first",
            )
        if not empty and extent(x.shape, axis) == 0:
            raise _no_elements(kind, x, axis)
        return Spec(
            reduced(x.shape, axis, keepdims), np.dtype(np.bool_) if out == "bool" else x.dtype
        )

    return spec


def _no_elements(kind: str, x: Spec, axis: Any) -> ShapeError:
    return ShapeError(
        f"{kind} of no elements has no value",
        f"in op {kind}, operand {x}, axis {axis}",
        "pass initial= to the NumPy function, or keep the axis non-empty",
    )


def widened_integers(x: Any) -> Any:
    """Bools and small integers as (u)int64, as NumPy's sums and products compute them."""
    x = as_array(x)
    if x.dtype.kind in "bu" or (x.dtype.kind == "i" and x.dtype.itemsize < 8):
        return cast(x, np.uint64 if x.dtype.kind == "u" else np.int64)
    return x


# --- SUM and MEAN --------------------------------------------------------------------------


def _sum_transpose(ct: Any, inputs: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return (restore(ct, inputs[0].shape, axis, keepdims),)


linear(
    "SUM",
    np.sum,
    spec=_reduction_spec("SUM", "iufcV"),
    transpose=_sum_transpose,
    batch=batch_leading("SUM", shift=("axis",)),
    jax="jnp.sum",
)


def sum(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum of the elements along axes.

    y = sum_i x_i.

    Arguments: x, any numeric array; axis, an int, several, or None for all axes.
    Returns x's shape without the axes (extents of 1 with keepdims), of x's dtype; bools and small
    integers are summed as 64-bit integers. The sum of no elements is 0. Linear.
    Raises ShapeError for axes that do not exist or repeat.
    """
    x = widened_integers(x)
    return bind("SUM", x, axis=axis_tuple(axis, np.ndim(x), "SUM"), keepdims=bool(keepdims))


linear(
    "WIDE_SUM",
    kernels.wide_sum,
    spec=_reduction_spec("WIDE_SUM", "fV"),
    transpose=_sum_transpose,
    batch=batch_leading("WIDE_SUM", shift=("axis",)),
    exact="impl",
    jax="rules:wide_sum",
    doc="The sum along axes, right to an ulp of the largest element.",
)


def wide_sum(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum of real elements along axes, right to an ulp of the largest of them.

    y = sum_i x_i, in float64 for narrower floats and rounded once; on a device that has no float64
    to spend, as two sums of parts that are cut so that the larger one has no error.

    Arguments: x, real (integers become float64); axis and keepdims as in `sum`.
    Returns what `sum` returns, NaN and infinities too. Linear.
    Raises ShapeError for axes that do not exist or repeat.
    """
    x = inexact(x)
    return bind(
        "WIDE_SUM", x, axis=axis_tuple(axis, np.ndim(x), "WIDE_SUM"), keepdims=bool(keepdims)
    )


def _mean_body(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return bind("SUM", x, axis=axis, keepdims=keepdims) / extent(np.shape(x), axis)


composite("MEAN", widened_body(_mean_body), spec=_reduction_spec("MEAN", "fcV"))


def mean(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The arithmetic mean along axes.

    y = sum_i x_i / n.

    Arguments: x, any numeric array (integers become float64); axis as in `sum`.
    Returns x's shape without the axes, floating. The mean of no elements is NaN. Linear.
    """
    x = inexact(x)
    return bind("MEAN", x, axis=axis_tuple(axis, np.ndim(x), "MEAN"), keepdims=bool(keepdims))


# --- MAX and MIN ---------------------------------------------------------------------------


def _extremum_jvp(
    primals: Any, tangents: Any, y: Any, *, axis: tuple[int, ...], keepdims: bool
) -> Any:
    """Equal extrema share the tangent: its mean over them. A NaN is the extremum of its slice."""
    (x,), (t,) = primals, tangents
    hit = bind("LOR", x == expand(y, np.shape(x), axis), x != x)
    count = bind("SUM", cast(hit, t.dtype), axis=axis, keepdims=keepdims)
    zero = np.zeros((), t.dtype)
    return bind("SUM", bind("WHERE", hit, t, zero), axis=axis, keepdims=keepdims) / count


def _extremum(kind: str, impl: Callable[..., Any], doc: str) -> Callable[..., Any]:
    define(
        Op(
            kind,
            _reduction_spec(kind, "biufV", empty=False),
            impl=impl,
            jvp=_extremum_jvp,
            batch=batch_leading(kind, shift=("axis",)),
            jax=f"jnp.{kind.lower()}",
        )
    )

    def function(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
        x = as_array(x)
        return bind(kind, x, axis=axis_tuple(axis, np.ndim(x), kind), keepdims=bool(keepdims))

    function.__name__ = function.__qualname__ = kind.lower()
    function.__doc__ = doc
    return function


max = _extremum(
    "MAX",
    np.max,
    """The largest element along axes.

    y = max_i x_i.

    Arguments: x, real, integer or bool; axis as in `sum`. Returns x's dtype; NaN propagates.
    Where m elements attain the maximum the derivative is 1/m at each of them (the least-norm
    subgradient: it is conserved, and symmetric); where there are NaNs, they attain it.
    Raises ShapeError where there are no elements.
    """,
)
min = _extremum(
    "MIN",
    np.min,
    """The smallest element along axes: `max` with the order reversed; y = min_i x_i.

    Where m elements attain the minimum the derivative is 1/m at each of them.
    """,
)


# --- positions -----------------------------------------------------------------------------


def _position_spec(kind: str) -> Any:
    def spec(x: Spec, *, axis: int, keepdims: bool) -> Spec:
        axis_tuple(axis, x.ndim, kind)
        if x.dtype.kind not in "biufV":
            raise ShapeError(
                f"{kind} is not defined for {x.dtype.name}",
                f"in op {kind}, operand {x}",
                "complex numbers have no order: compare np.abs or np.real",
            )
        if x.shape[axis] == 0:
            raise _no_elements(kind, x, axis)
        return Spec(reduced(x.shape, (axis,), keepdims), np.dtype(np.int64))

    return spec


def _position(kind: str, impl: Callable[..., Any], doc: str) -> Callable[..., Any]:
    nondiff(
        kind,
        impl,
        spec=_position_spec(kind),
        batch=batch_leading(kind, shift=("axis",)),
        jax=f"jnp.{kind.lower()}",
    )

    def function(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
        x = as_array(x)
        if axis is None:
            index = bind(kind, reshape(x, -1), axis=0, keepdims=False)
            return reshape(index, (1,) * np.ndim(x)) if keepdims else index
        (normal,) = axis_tuple(axis, np.ndim(x), kind)
        return bind(kind, x, axis=normal, keepdims=bool(keepdims))

    function.__name__ = function.__qualname__ = kind.lower()
    function.__doc__ = doc
    return function


argmax = _position(
    "ARGMAX",
    np.argmax,
    """The position of the first largest element along an axis (None: of the flattened array).

    Returns int64; a NaN counts as largest. No tangent space. Raises ShapeError for no elements.
    """,
)
argmin = _position(
    "ARGMIN",
    np.argmin,
    """The position of the first smallest element along an axis (None: of the flattened array).

    Returns int64; a NaN counts as smallest. No tangent space. Raises ShapeError for no elements.
    """,
)


def _mask_spec(x: Spec, *, axis: tuple[int, ...]) -> Spec:
    axis_tuple(axis, x.ndim, "ARGMAX_MASK")
    return x.with_dtype(np.bool_)


nondiff(
    "ARGMAX_MASK",
    kernels.argmax_mask,
    spec=_mask_spec,
    batch=batch_leading("ARGMAX_MASK", shift=("axis",)),
    jax="rules:argmax_mask",
    doc="True at the first maximum along the axes, False elsewhere.",
)


def argmax_mask(x: Any, axis: Axis = -1) -> Any:
    """A bool mask that is True at the first largest element along axes (in C order) alone.

    Returns x's shape; a NaN counts as largest. No tangent space.
    """
    x = as_array(x)
    return bind("ARGMAX_MASK", x, axis=axis_tuple(axis, np.ndim(x), "ARGMAX_MASK"))


# --- PROD ----------------------------------------------------------------------------------


def rows_last(x: Any, axis: tuple[int, ...]) -> Any:
    """The axes moved to the end and joined into one."""
    kept = tuple(i for i in range(np.ndim(x)) if i not in axis)
    moved = transpose(x, (*kept, *axis))
    n = extent(np.shape(x), axis)
    return reshape(moved, (*(np.shape(x)[i] for i in kept), n))


def _halves(x: Any, n: int) -> tuple[Any, Any]:
    """The first and the last n of the 2 n elements of the last axis."""
    lead = np.shape(x)[:-1]
    start = (0,) * len(lead)
    return (
        slice_(x, (*start, 0), (*lead, n)),
        slice_(x, (*start, n), (*lead, 2 * n)),
    )


def _prod_jvp(primals: Any, tangents: Any, y: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    """The product rule up a tree of pairs: no division, so zeros are like other numbers.

    (a, a') (b, b') = (a b, a' b + a b'), padded with (1, 0) to a power of two.
    """
    (x,), (t,) = primals, tangents
    p, dot = rows_last(x, axis), rows_last(t, axis)
    n = np.shape(p)[-1]
    if n == 0:
        return None
    size = 1 << (n - 1).bit_length()
    high = (0,) * (np.ndim(p) - 1) + (size - n,)
    p, dot = pad(p, 0, high, value=1.0), pad(dot, 0, high)
    while size > 1:
        size //= 2
        (a, b), (da, db) = _halves(p, size), _halves(dot, size)
        p, dot = a * b, da * b + a * db
    return reshape(dot, np.shape(y))


define(
    Op(
        "PROD",
        _reduction_spec("PROD", "iufcV"),
        impl=np.prod,
        jvp=_prod_jvp,
        batch=batch_leading("PROD", shift=("axis",)),
        jax="jnp.prod",
    )
)


def prod(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The product of the elements along axes.

    y = prod_i x_i, dy/dx_i = prod_{j != i} x_j.

    Arguments: x, any numeric array; axis as in `sum`. Returns x's dtype; bools and small integers
    are multiplied as 64-bit integers. The product of no elements is 1.
    Differentiable everywhere; derivatives of every order are formed without division, so they are
    right where elements are 0 (tensorflow/tensorflow#119430).
    """
    x = widened_integers(x)
    return bind("PROD", x, axis=axis_tuple(axis, np.ndim(x), "PROD"), keepdims=bool(keepdims))


# --- ALL and ANY ---------------------------------------------------------------------------


def _logic(kind: str, impl: Callable[..., Any], doc: str) -> Callable[..., Any]:
    nondiff(
        kind,
        impl,
        spec=_reduction_spec(kind, "b", "bool"),
        batch=batch_leading(kind, shift=("axis",)),
        jax=f"jnp.{kind.lower()}",
    )

    def function(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
        x = cast(as_array(x), np.bool_)
        return bind(kind, x, axis=axis_tuple(axis, np.ndim(x), kind), keepdims=bool(keepdims))

    function.__name__ = function.__qualname__ = kind.lower()
    function.__doc__ = doc
    return function


all = _logic("ALL", np.all, "Whether every element along axes is nonzero; True of no elements.")
any = _logic("ANY", np.any, "Whether some element along axes is nonzero; False of no elements.")
