"""NumPy's reductions and cumulative functions, with their dtype, initial and where arguments."""

from typing import Any

import numpy as np

from autodiff import ops
from autodiff.errors import ShapeError
from autodiff.families import axis_tuple
from autodiff.numpy_api import FUNCTIONS, implements
from autodiff.ops.reduction import as_array, extent, inexact, reduced
from autodiff.ops.statistics import centred

# --- masks and starting values -------------------------------------------------------------


def typed(x: Any, dtype: Any) -> Any:
    """A value as an array, cast where a dtype is named."""
    x = as_array(x)
    return x if dtype is None else ops.cast(x, dtype)


def _narrowed(y: Any, dtype: Any) -> Any:
    """A sum of small integers, kept small where that was asked for."""
    return y if dtype is None or y.dtype == dtype else ops.cast(y, dtype)


def _filled(x: Any, where: Any, value: Any) -> Any:
    """x where the mask holds, a neutral value elsewhere."""
    if where is True:
        return x
    mask = np.broadcast_to(as_array(where), np.shape(x))
    return ops.where(mask, x, np.full((), value, x.dtype))


def _mask(x: Any, where: Any) -> Any:
    """A `where` argument as a bool array of x's shape."""
    return np.broadcast_to(as_array(where), np.shape(x))


def _count(x: Any, where: Any, axis: Any, keepdims: bool) -> Any:
    """How many elements a masked reduction takes, as values of x's real dtype."""
    real = np.zeros((), x.dtype).real.dtype
    return ops.sum(ops.cast(_mask(x, where), real), axis, keepdims)


@implements(np.sum)
def _sum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Any:
    y = _narrowed(ops.sum(_filled(typed(a, dtype), where, 0), axis, keepdims), dtype)
    return y if initial is None else y + initial


@implements(np.prod)
def _prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Any:
    y = _narrowed(ops.prod(_filled(typed(a, dtype), where, 1), axis, keepdims), dtype)
    return y if initial is None else y * initial


def _extremum(reduction: Any, pairwise: Any, name: str) -> Any:
    def function(
        a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
    ) -> Any:
        a = as_array(a)
        if initial is None:
            if where is not True:
                raise ShapeError(
                    f"np.{name} with where= needs a value for elements left out",
                    f"operand of shape {np.shape(a)}, {a.dtype.name}",
                    f"pass initial=, e.g. np.{name}(x, where=mask, initial=0.0)",
                )
            return reduction(a, axis, keepdims)
        axes = axis_tuple(axis, np.ndim(a), name.upper())
        if extent(np.shape(a), axes) == 0:
            start = np.asarray(initial, a.dtype) if np.isscalar(initial) else initial
            return np.broadcast_to(start, reduced(np.shape(a), axes, keepdims))
        return pairwise(reduction(_filled(a, where, initial), axis, keepdims), initial)

    return function


FUNCTIONS[np.max] = FUNCTIONS[np.amax] = _extremum(ops.max, np.maximum, "max")
FUNCTIONS[np.min] = FUNCTIONS[np.amin] = _extremum(ops.min, np.minimum, "min")


def _logic(reduction: Any, neutral: bool) -> Any:
    def function(
        a: Any, axis: Any = None, keepdims: bool = False, where: Any = True, dtype: Any = None
    ) -> Any:
        del dtype
        return reduction(_filled(ops.cast(as_array(a), np.bool_), where, neutral), axis, keepdims)

    return function


FUNCTIONS[np.all] = _logic(ops.all, True)
FUNCTIONS[np.any] = _logic(ops.any, False)


@implements(np.count_nonzero)
def _count_nonzero(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return ops.sum(ops.cast(as_array(a), np.bool_), axis, keepdims)


@implements(np.ptp)
def _ptp(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return ops.max(a, axis, keepdims) - ops.min(a, axis, keepdims)


@implements(np.argmax)
def _argmax(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return ops.argmax(a, axis, keepdims)


@implements(np.argmin)
def _argmin(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return ops.argmin(a, axis, keepdims)


def _nan_arg(function: Any, worst: float) -> Any:
    """`np.nanargmax` and `np.nanargmin`, which take NaN for the value that loses."""

    def nan_function(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        a = inexact(a)
        return function(_filled(a, np.logical_not(np.isnan(a)), worst), axis, keepdims)

    return nan_function


FUNCTIONS[np.nanargmax] = _nan_arg(ops.argmax, -np.inf)
FUNCTIONS[np.nanargmin] = _nan_arg(ops.argmin, np.inf)


# --- means and variances -------------------------------------------------------------------


@implements(np.mean)
def _mean(
    a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, where: Any = True
) -> Any:
    a = inexact(typed(a, dtype))
    if where is True:
        return ops.mean(a, axis, keepdims)
    return ops.sum(_filled(a, where, 0), axis, keepdims) / _count(a, where, axis, keepdims)


def _deviations(a: Any, axis: Any, where: Any, mean: Any) -> Any:
    """Differences from the mean, 0 where the mask leaves elements out."""
    if mean is None:
        if where is True:
            return centred(a, axis_tuple(axis, np.ndim(a), "VAR"))
        mean = _mean(a, axis, keepdims=True, where=where)
    return _filled(a - mean, where, 0)


def _spread(root: bool) -> Any:
    """`np.var`, or its root."""
    plain = ops.std if root else ops.var

    def function(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        ddof: Any = 0,
        keepdims: bool = False,
        where: Any = True,
        mean: Any = None,
        correction: Any = None,
    ) -> Any:
        a, ddof = inexact(typed(a, dtype)), ddof if correction is None else correction
        if where is True and mean is None:
            return plain(a, axis, ddof, keepdims)
        d = np.abs(_deviations(a, axis, where, mean))
        degrees = np.maximum(_count(a, where, axis, keepdims) - ddof, 0)
        if root:
            return ops.norm(d, 2, axis, keepdims) / np.sqrt(degrees)
        return ops.sum(d * d, axis, keepdims) / degrees

    return function


_var = FUNCTIONS[np.var] = _spread(root=False)
_std = FUNCTIONS[np.std] = _spread(root=True)


@implements(np.average)
def _average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False
) -> Any:
    a = inexact(a)
    axes = axis_tuple(axis, np.ndim(a), "MEAN")
    if weights is None:
        y = ops.mean(a, axes, keepdims)
        scale: Any = np.full(np.shape(y), extent(np.shape(a), axes), y.dtype)
    else:
        weights = as_array(weights)
        if np.shape(weights) != np.shape(a):
            if np.shape(weights) != tuple(np.shape(a)[i] for i in axes):
                raise ShapeError(
                    f"weights of shape {np.shape(weights)} do not fit {np.shape(a)}",
                    f"in np.average over axes {axes}",
                    "give one weight per element, or per element of the averaged axes",
                )
            fitted = [n if i in axes else 1 for i, n in enumerate(np.shape(a))]
            weights = np.broadcast_to(np.reshape(weights, tuple(fitted)), np.shape(a))
        scale = ops.sum(weights, axes, keepdims)
        y = ops.sum(a * weights, axes, keepdims) / scale
    return (y, scale) if returned else y


# --- functions that skip NaN ---------------------------------------------------------------


def _present(a: Any, where: Any) -> Any:
    """The mask of elements that are not NaN (and that `where` takes)."""
    known = np.logical_not(np.isnan(a))
    return known if where is True else np.logical_and(known, _mask(a, where))


def _skipping(function: Any) -> Any:
    """A masked reduction over the elements that are not NaN."""

    def nan_function(a: Any, axis: Any = None, *args: Any, where: Any = True, **kwargs: Any) -> Any:
        if as_array(a).dtype.kind in "biu":
            return function(a, axis, *args, where=where, **kwargs)
        a = inexact(a)
        return function(a, axis, *args, where=_present(a, where), **kwargs)

    return nan_function


FUNCTIONS[np.nansum] = _skipping(_sum)
FUNCTIONS[np.nanprod] = _skipping(_prod)
FUNCTIONS[np.nanmean] = _skipping(_mean)
FUNCTIONS[np.nanvar] = _skipping(_var)
FUNCTIONS[np.nanstd] = _skipping(_std)


def _nan_extremum(name: str, worst: float) -> Any:
    """`np.nanmax` and `np.nanmin`; a slice of NaN alone gives NaN."""

    def function(
        a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
    ) -> Any:
        reduction = FUNCTIONS[getattr(np, name)]
        if as_array(a).dtype.kind in "biu":
            return reduction(a, axis, keepdims, initial=initial, where=where)
        a = inexact(a)
        known = _present(a, where)
        filled = ops.where(known, a, np.full((), worst if initial is None else initial, a.dtype))
        y = reduction(filled, axis, keepdims, initial=initial)
        if initial is not None:
            return y
        return ops.where(ops.any(known, axis, keepdims), y, np.full((), np.nan, a.dtype))

    return function


FUNCTIONS[np.nanmax] = _nan_extremum("max", -np.inf)
FUNCTIONS[np.nanmin] = _nan_extremum("min", np.inf)

# --- cumulative functions ------------------------------------------------------------------


@implements(np.cumsum)
def _cumsum(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    return _narrowed(ops.cumsum(typed(a, dtype), axis), dtype)


@implements(np.cumprod)
def _cumprod(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    return _narrowed(ops.cumprod(typed(a, dtype), axis), dtype)


def _skipping_cumulative(function: Any, neutral: int) -> Any:
    """A cumulative function that takes NaN for a neutral value."""

    def nan_function(a: Any, axis: Any = None, dtype: Any = None) -> Any:
        a = typed(a, dtype)
        return function(_filled(a, np.logical_not(np.isnan(a)), neutral), axis)

    return nan_function


FUNCTIONS[np.nancumsum] = _skipping_cumulative(ops.cumsum, 0)
FUNCTIONS[np.nancumprod] = _skipping_cumulative(ops.cumprod, 1)


def _cumulative(function: Any, first: int) -> Any:
    """`np.cumulative_sum` and `np.cumulative_prod` of the array API standard."""

    def cumulative(
        x: Any, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
    ) -> Any:
        if axis is None and np.ndim(x) != 1:
            raise ShapeError(
                f"a cumulative function of {np.ndim(x)} axes needs an axis",
                f"operand of shape {np.shape(x)}",
                "pass axis=0",
            )
        y = function(typed(x, dtype), 0 if axis is None else axis)
        if not include_initial:
            return y
        (normal,) = axis_tuple(0 if axis is None else axis, np.ndim(y), "CUMSUM")
        low = tuple(int(i == normal) for i in range(np.ndim(y)))
        return ops.pad(y, low, 0, value=first)

    return cumulative


if hasattr(np, "cumulative_sum"):
    FUNCTIONS[np.cumulative_sum] = _cumulative(ops.cumsum, 0)
    FUNCTIONS[np.cumulative_prod] = _cumulative(ops.cumprod, 1)
