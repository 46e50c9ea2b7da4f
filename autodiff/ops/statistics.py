"""Variance, standard deviation and vector norms."""

import builtins
from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import (
    add_tangents,
    axis_tuple,
    batch_leading,
    binary,
    composite,
    fit,
    promote,
)
from autodiff.kernels import reduction as kernels
from autodiff.op import Op, define
from autodiff.ops.elementwise import cast
from autodiff.ops.reduction import Axis, expand, extent, inexact, max, min, reduced, sum, total
from autodiff.program import Spec
from autodiff.trace import bind
from autodiff.widen import widened_body, widened_rule

__all__ = ["norm", "norm_scale", "norm_slope", "std", "var"]

# --- pieces --------------------------------------------------------------------------------


def centred(x: Any, axis: tuple[int, ...]) -> Any:
    """Minus the mean along axes, in two passes.

    The mean of values far from 0 is rounded to their ulp; what that leaves behind is taken out by
    the second pass.
    """
    n = extent(np.shape(x), axis)
    c = x - total(x, axis) / n
    return c - total(c, axis) / n


def _scale_spec(x: Spec, *, axis: tuple[int, ...]) -> Spec:
    axis_tuple(axis, x.ndim, "NORM_SCALE")
    return x.with_shape(reduced(x.shape, axis, True))


define(
    Op(
        "NORM_SCALE",
        _scale_spec,
        impl=kernels.norm_scale,
        batch=batch_leading("NORM_SCALE", shift=("axis",)),
        derivative="zero",
        jax="rules:norm_scale",
        doc="The power of two just below the largest magnitude (1 for 0 and inf): dividing by it "
        "is exact, and what is computed from the quotients does not depend on it.",
    )
)


def norm_scale(x: Any, axis: Axis = None) -> Any:
    """The power of two just below the largest magnitude along axes, which stay as extents of 1.

    s = 2^floor(log2 max_i |x_i|); 1 where that maximum is 0, infinite or NaN, and of no elements.

    Arguments: x, real floating; axis as in `sum`. Dividing by s is exact and brings squares into
    range. The derivative is 0.
    """
    x = inexact(x)
    return bind("NORM_SCALE", x, axis=axis_tuple(axis, np.ndim(x), "NORM_SCALE"))


# --- NORM ----------------------------------------------------------------------------------


def _slope_body(x: Any, r: Any, *, ord: float) -> Any:
    """sign(x) (|x| / r)^(ord - 1): the derivative of the norm r; 0 where r is 0."""
    none = r == 0
    zero = np.zeros((), x.dtype)
    ratio = x / bind("WHERE", none, np.ones((), x.dtype), r)
    if ord != 2:
        # where r is 0 every x is 0 (for ord > 0): 1 keeps 0 ** (ord - 1) finite there
        size = bind("WHERE", none, np.ones((), x.dtype), np.abs(ratio))
        ratio = np.sign(x) * size ** (ord - 1)
    return bind("WHERE", none, zero, ratio)


def _slope_jvp(primals: Any, tangents: Any, u: Any, *, ord: float) -> Any:
    """(ord - 1) ((|x| / r)^(ord - 2) x' - u r') / r.

    By IEEE division: a second derivative of the norm at the origin is infinite or NaN, never a
    plausible number (pytorch/pytorch#92075).
    """
    (x, r), (tx, tr) = primals, tangents
    if tx is not None and ord != 2:
        tx = tx * np.abs(x / r) ** (ord - 2)
    part = add_tangents(fit(tx, np.shape(u)), None if tr is None else -(u * tr))
    return part / r if ord == 2 else (ord - 1) * (part / r)


binary("NORM_SLOPE", body=widened_body(_slope_body), jvp=widened_rule(_slope_jvp), kinds="fV")


def norm_slope(x: Any, r: Any, ord: float = 2) -> Any:
    """The derivative of a p-norm r in the elements: sign(x) (|x| / r)^(ord - 1), 0 where r is 0.

    Arguments: x and r, real, which broadcast; ord, finite and not 0. Returns the broadcast shape.
    Its own derivatives where r is 0 are infinite or NaN.
    """
    return bind("NORM_SLOPE", *promote(x, r, inexact=True), ord=float(ord))


def _norm_spec(x: Spec, *, axis: tuple[int, ...], ord: float, keepdims: bool) -> Spec:
    axis_tuple(axis, x.ndim, "NORM")
    if x.dtype.kind not in "fV":
        raise ShapeError(
            f"NORM is not defined for {x.dtype.name}",
            f"in op NORM, operand {x}",
            "use autodiff.ops.norm, which takes np.abs of complex values",
        )
    if ord in (0, 1) or not np.isfinite(ord):
        raise ShapeError(
            f"NORM is not defined for ord={ord}",
            f"in op NORM, operand {x}",
            "use autodiff.ops.norm, which writes these as sums and extrema of |x|",
        )
    return x.with_shape(reduced(x.shape, axis, keepdims))


def _norm_body(x: Any, *, axis: tuple[int, ...], ord: float, keepdims: bool) -> Any:
    scale = bind("NORM_SCALE", x, axis=axis)
    z = x / scale
    r = np.sqrt(total(z * z, axis)) if ord == 2 else total(np.abs(z) ** ord, axis) ** (1 / ord)
    return np.reshape(scale * r, reduced(np.shape(x), axis, keepdims))


def _norm_jvp(
    primals: Any, tangents: Any, y: Any, *, axis: tuple[int, ...], ord: float, keepdims: bool
) -> Any:
    (x,), (t,) = primals, tangents
    slope = bind("NORM_SLOPE", x, expand(y, np.shape(x), axis), ord=ord)
    return bind("SUM", slope * t, axis=axis, keepdims=keepdims)


composite(
    "NORM",
    widened_body(_norm_body),
    spec=_norm_spec,
    jvp=widened_rule(_norm_jvp),
    batch=batch_leading("NORM", shift=("axis",)),
)


def norm(x: Any, ord: float = 2, axis: Axis = None, keepdims: bool = False) -> Any:
    """The p-norm of vectors along axes.

    y = (sum_i |x_i|^p)^(1/p) for p = ord; max |x_i| for inf, min |x_i| for -inf, the number of
    nonzero elements for 0.

    Arguments: x, numeric (integers become float64); ord, any real number or +-inf; axis as in
    `sum` (several axes, and None for all, are read as one vector). Returns x's shape without the
    axes, real. Scaled by a power of two: it neither overflows nor underflows before its result
    does. The norm of no elements is 0 (ShapeError for +-inf).
    Derivative sign(x_i) (|x_i| / y)^(p - 1); at the origin the subgradient 0, and second
    derivatives are NaN or infinite there.
    """
    x = inexact(x)
    if x.dtype.kind == "c":
        x = np.abs(x)
    if ord == 0:
        return sum(cast(x != 0, x.dtype), axis, keepdims)
    if ord == 1:
        return sum(np.abs(x), axis, keepdims)
    if np.isinf(ord):
        return (max if ord > 0 else min)(np.abs(x), axis, keepdims)
    axes = axis_tuple(axis, np.ndim(x), "NORM")
    return bind("NORM", x, axis=axes, ord=float(ord), keepdims=bool(keepdims))


# --- VAR and STD ---------------------------------------------------------------------------


def _var_spec(kind: str) -> Any:
    def spec(x: Spec, *, axis: tuple[int, ...], ddof: float, keepdims: bool) -> Spec:
        del ddof
        axis_tuple(axis, x.ndim, kind)
        if x.dtype.kind not in "fV":
            raise ShapeError(
                f"{kind} is not defined for {x.dtype.name}",
                f"in op {kind}, operand {x}",
                "convert with astype first",
            )
        return x.with_shape(reduced(x.shape, axis, keepdims))

    return spec


def _degrees(x: Any, axis: tuple[int, ...], ddof: float) -> float:
    return builtins.max(extent(np.shape(x), axis) - ddof, 0)


def _var_body(x: Any, *, axis: tuple[int, ...], ddof: float, keepdims: bool) -> Any:
    c = centred(x, axis)
    return bind("SUM", c * c, axis=axis, keepdims=keepdims) / _degrees(x, axis, ddof)


composite("VAR", widened_body(_var_body), spec=_var_spec("VAR"))


def var(x: Any, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """Variance along axes, by two passes over the centred values.

    y = sum_i |x_i - mean|^2 / (n - ddof).

    Arguments: x, numeric (integers become float64; complex gives a real result); axis as in `sum`;
    ddof, the degrees of freedom taken off. Returns x's shape without the axes.
    n <= ddof gives NaN or inf. Smooth; the derivative is 2 (x_i - mean) / (n - ddof).
    """
    x = inexact(x)
    if x.dtype.kind == "c":
        return var(np.real(x), axis, ddof, keepdims) + var(np.imag(x), axis, ddof, keepdims)
    axes = axis_tuple(axis, np.ndim(x), "VAR")
    return bind("VAR", x, axis=axes, ddof=ddof, keepdims=bool(keepdims))


def _std_body(x: Any, *, axis: tuple[int, ...], ddof: float, keepdims: bool) -> Any:
    c = centred(x, axis)
    if extent(np.shape(x), axis) == 1:  # zero for every x, which the norm's kink does not show
        return bind("SUM", c * c, axis=axis, keepdims=keepdims) / _degrees(x, axis, ddof)
    size = bind("NORM", c, axis=axis, ord=2.0, keepdims=keepdims)
    return size / float(np.sqrt(_degrees(x, axis, ddof)))


composite("STD", widened_body(_std_body), spec=_var_spec("STD"))


def std(x: Any, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """Standard deviation along axes: the norm of the centred values over sqrt(n - ddof).

    y = sqrt(sum_i |x_i - mean|^2 / (n - ddof)).

    Arguments and result as in `var`; no square overflows or underflows on the way.
    Derivative (x_i - mean) / ((n - ddof) y); where all values are equal the least-norm subgradient
    0 is given, and second derivatives are NaN or infinite there (jax-ml/jax#4177). Of one value it
    is zero everywhere, and so are all its derivatives.
    """
    x = inexact(x)
    if x.dtype.kind == "c":
        parts = [std(part(x), axis, ddof, keepdims) for part in (np.real, np.imag)]
        return norm(np.stack(parts, axis=-1), axis=-1)
    axes = axis_tuple(axis, np.ndim(x), "STD")
    return bind("STD", x, axis=axes, ddof=ddof, keepdims=bool(keepdims))
