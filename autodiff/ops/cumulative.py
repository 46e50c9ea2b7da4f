"""Cumulative sums, products and extrema along one axis."""

from collections.abc import Callable
from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import axis_tuple, batch_leading, composite, linear
from autodiff.kernels import reduction as kernels
from autodiff.op import Op, define
from autodiff.ops.reduction import as_array, inexact, widened_integers
from autodiff.ops.shape import concatenate, pad, reshape, slice_
from autodiff.program import Spec
from autodiff.trace import bind
from autodiff.widen import widened_body

__all__ = ["cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum"]


def _check(kind: str, kinds: str, x: Spec, axis: int) -> None:
    axis_tuple(axis, x.ndim, kind)
    if x.dtype.kind not in kinds:
        raise ShapeError(
            f"{kind} is not defined for {x.dtype.name}",
            f"in op {kind}, operand {x}",
            "convert with astype first",
        )


def _along(x: Any, axis: int | None, kind: str) -> tuple[Any, int]:
    """The operand and a non-negative axis; None flattens."""
    if axis is None:
        return reshape(x, -1), 0
    (normal,) = axis_tuple(axis, np.ndim(x), kind)
    return x, normal


def span(x: Any, axis: int, start: int, stop: int) -> Any:
    """Elements start to stop along one axis."""
    shape = np.shape(x)
    low = tuple(start if i == axis else 0 for i in range(len(shape)))
    high = tuple(stop if i == axis else n for i, n in enumerate(shape))
    return slice_(x, low, high)


# --- CUMSUM --------------------------------------------------------------------------------


def _cumsum_spec(x: Spec, *, axis: int, reverse: bool) -> Spec:
    del reverse
    _check("CUMSUM", "iufcV", x, axis)
    return x


def _cumsum_transpose(ct: Any, inputs: Any, *, axis: int, reverse: bool) -> tuple[Any, ...]:
    del inputs
    return (bind("CUMSUM", ct, axis=axis, reverse=not reverse),)


linear(
    "CUMSUM",
    kernels.cumsum,
    spec=_cumsum_spec,
    transpose=_cumsum_transpose,
    batch=batch_leading("CUMSUM", shift=("axis",)),
    jax="lax.cumsum",
)


def cumsum(x: Any, axis: int | None = None, reverse: bool = False) -> Any:
    """Running sums along an axis.

    y_i = sum_{j <= i} x_j; with reverse, sum_{j >= i} x_j.

    Arguments: x, any numeric array; axis, an int, or None for the flattened array. Returns x's
    shape (1-D for None) and dtype; bools and small integers are summed as 64-bit integers. Linear;
    its adjoint is the running sum from the other end.
    """
    x, axis = _along(widened_integers(x), axis, "CUMSUM")
    return bind("CUMSUM", x, axis=axis, reverse=bool(reverse))


# --- CUMPROD -------------------------------------------------------------------------------


def _same_spec(kind: str, kinds: str) -> Callable[..., Any]:
    def spec(x: Spec, *, axis: int) -> Spec:
        _check(kind, kinds, x, axis)
        return x

    return spec


def _cumprod_jvp(primals: Any, tangents: Any, y: Any, *, axis: int) -> Any:
    """The product rule by doubling, without division: zeros are like other numbers.

    The pairs (P, D) of a window of s elements and of the s before it join to (P' P, D' P + P' D).
    """
    del y
    (p,), (dot,) = primals, tangents
    n = np.shape(p)[axis]
    low = [0] * np.ndim(p)
    step = 1
    while step < n:
        low[axis] = step
        before = pad(span(p, axis, 0, n - step), low, 0, value=1.0)
        dot = pad(span(dot, axis, 0, n - step), low, 0) * p + before * dot
        p = before * p
        step *= 2
    return dot


define(
    Op(
        "CUMPROD",
        _same_spec("CUMPROD", "iufcV"),
        impl=np.cumprod,
        jvp=_cumprod_jvp,
        batch=batch_leading("CUMPROD", shift=("axis",)),
        jax="lax.cumprod",
    )
)


def cumprod(x: Any, axis: int | None = None) -> Any:
    """Running products along an axis.

    y_i = prod_{j <= i} x_j.

    Arguments: x, any numeric array; axis, an int, or None for the flattened array. Returns x's
    shape (1-D for None) and dtype; bools and small integers are multiplied as 64-bit integers.
    Derivatives of every order are formed without division: they are right where elements are 0
    (tensorflow/tensorflow#119430, pytorch/pytorch#196701).
    """
    x, axis = _along(widened_integers(x), axis, "CUMPROD")
    return bind("CUMPROD", x, axis=axis)


# --- running extrema -----------------------------------------------------------------------


def _running_jvp(better: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Tangent of the first element that attains the running extremum, found by doubling."""

    def jvp(primals: Any, tangents: Any, y: Any, *, axis: int) -> Any:
        (x,), (dot,) = primals, tangents
        n = np.shape(x)[axis]
        low = [0] * np.ndim(x)
        step = 1
        while step < n:
            low[axis] = step
            before = pad(span(x, axis, 0, n - step), low, 0)
            older = pad(span(dot, axis, 0, n - step), low, 0)
            inside = pad(np.ones((n - step,), np.bool_), step, 0, value=False)
            inside = inside.reshape(n, *(1,) * (np.ndim(x) - axis - 1))
            # NaN stays: an earlier NaN is never beaten
            kept = bind("LAND", inside, bind("NOT", better(x, before)))
            x, dot = bind("WHERE", kept, before, x), bind("WHERE", kept, older, dot)
            step *= 2
        del y
        return dot

    return jvp


def _running(kind: str, impl: Any, better: Callable[[Any, Any], Any], doc: str) -> Any:
    define(
        Op(
            kind,
            _same_spec(kind, "iufV"),
            impl=impl,
            jvp=_running_jvp(better),
            batch=batch_leading(kind, shift=("axis",)),
            jax=f"lax.{kind.lower()}",
        )
    )

    def function(x: Any, axis: int | None = None) -> Any:
        x, axis = _along(as_array(x), axis, kind)
        return bind(kind, x, axis=axis)

    function.__name__ = function.__qualname__ = kind.lower()
    function.__doc__ = doc
    return function


cummax = _running(
    "CUMMAX",
    kernels.cummax,
    lambda x, before: x > before,
    """Running maxima along an axis (None: of the flattened array); NaN stays once met.

    y_i = max_{j <= i} x_j. The tangent is that of the first element that attains the maximum.
    """,
)
cummin = _running(
    "CUMMIN",
    kernels.cummin,
    lambda x, before: x < before,
    """Running minima along an axis (None: of the flattened array); NaN stays once met.

    y_i = min_{j <= i} x_j. The tangent is that of the first element that attains the minimum.
    """,
)

# --- CUMLOGSUMEXP --------------------------------------------------------------------------


def _cumlogsumexp_body(x: Any, *, axis: int) -> Any:
    n = np.shape(x)[axis]
    step = 1
    while step < n:
        older, newer = span(x, axis, 0, n - step), span(x, axis, step, n)
        x = concatenate([span(x, axis, 0, step), np.logaddexp(older, newer)], axis)
        step *= 2
    return x


composite(
    "CUMLOGSUMEXP",
    widened_body(_cumlogsumexp_body),
    spec=_same_spec("CUMLOGSUMEXP", "fV"),
)


def cumlogsumexp(x: Any, axis: int | None = None) -> Any:
    """Running logarithms of sums of exponentials along an axis (None: of the flattened array).

    y_i = log sum_{j <= i} exp(x_j), by doubling with log(exp a + exp b): relative accuracy holds
    for every prefix. Returns x's shape and dtype.
    """
    x, axis = _along(inexact(x), axis, "CUMLOGSUMEXP")
    return bind("CUMLOGSUMEXP", x, axis=axis)
