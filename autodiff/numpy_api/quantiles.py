"""NumPy's quantiles, with its methods of interpolation, and those that skip NaN."""

from collections.abc import Callable
from typing import Any

import numpy as np

from autodiff import ops
from autodiff.errors import ShapeError
from autodiff.families import axis_tuple
from autodiff.numpy_api import FUNCTIONS, implements
from autodiff.ops.reduction import inexact, reduced, rows_last

# Hyndman and Fan, "Sample quantiles in statistical packages", The American Statistician 50 (1996):
# the place n q + alpha + q (1 - alpha - beta), counted from 1, between the sorted values
_PLOTTING = {
    "linear": (1.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
    "interpolated_inverted_cdf": (0.0, 1.0),
}
# what becomes of the linear method's place
_CHOSEN: dict[str, Callable[[Any], Any]] = {
    "lower": np.floor,
    "higher": np.ceil,
    "nearest": np.round,
    "midpoint": lambda place: 0.5 * (np.floor(place) + np.ceil(place)),
}


def _place(q: Any, n: Any, method: str) -> Any:
    """Where between sorted values, counted from 0, a quantile lies."""
    alpha, beta = _PLOTTING.get(method, (1.0, 1.0))
    place = n * q + (alpha + q * (1 - alpha - beta)) - 1
    place = np.minimum(np.maximum(place, 0.0), np.maximum(n - 1, 0.0))
    return _CHOSEN[method](place) if method in _CHOSEN else place


def _at(rows: Any, index: Any) -> Any:
    """Elements of each row at the positions index[level, row...]."""
    return ops.take_along_axis(rows[None], index[..., None], -1)[..., 0]


def _between(below: Any, above: Any, part: Any, method: str) -> Any:
    """Interpolation; a median is a mean, which keeps infinities where a difference would not."""
    if method == "mean":
        return ops.where(part > 0, below * (1 - part) + above * part, below)
    return below + (above - below) * part


def _quantile(a: Any, q: Any, axis: Any, keepdims: bool, method: str, skip: bool) -> Any:
    """Quantiles of sorted values; NaN where there is a NaN or, with `skip`, nothing else."""
    a = inexact(a)
    axes = axis_tuple(axis, np.ndim(a), "SORT")
    rows = ops.sort(rows_last(a, axes), -1)  # NaN last
    n = np.shape(rows)[-1]
    if n == 0:
        raise ShapeError(
            "a quantile of no elements has no value",
            f"operand of shape {np.shape(a)}, axis {axis}",
            "keep the axis non-empty",
        )
    levels = np.asarray(q, np.float64)
    kept = np.shape(rows)[:-1]
    each = np.reshape(levels, (-1, *(1,) * len(kept)))
    known = np.logical_not(np.isnan(rows))
    count = ops.sum(ops.cast(known, np.float64), -1) if skip else np.full(kept, float(n))
    place = np.broadcast_to(_place(each, count, method), (levels.size, *kept))
    low = np.floor(place)
    high = np.minimum(low + 1, np.maximum(count - 1, 0.0))
    below, above = (_at(rows, ops.cast(i, np.int64)) for i in (low, high))
    part = ops.cast(place - low, rows.dtype)
    values = _between(below, above, part, method)
    defined = count > 0 if skip else np.all(known, axis=-1)
    values = ops.where(np.broadcast_to(defined, np.shape(values)), values, np.nan)
    return np.reshape(values, (*levels.shape, *reduced(np.shape(a), axes, keepdims)))


def _median(skip: bool) -> Any:
    def function(
        a: Any, axis: Any = None, overwrite_input: bool = False, keepdims: bool = False
    ) -> Any:
        del overwrite_input
        return _quantile(a, 0.5, axis, keepdims, "mean", skip)

    return function


FUNCTIONS[np.median] = _median(skip=False)
FUNCTIONS[np.nanmedian] = _median(skip=True)


def _function(name: str, scale: float, skip: bool) -> Any:
    def function(
        a: Any,
        q: Any,
        axis: Any = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: bool = False,
    ) -> Any:
        del overwrite_input
        levels = np.asarray(q, np.float64) / scale
        known = (*_PLOTTING, *_CHOSEN)
        if method not in known or not np.all((levels >= 0) & (levels <= 1)):
            raise ShapeError(
                f"np.{name} of a traced value with method={method!r}, q={q}",
                f"in np.{name}",
                f"q is a constant in [0, {scale:g}] and method one of {', '.join(known)}",
            )
        y = _quantile(a, levels, axis, keepdims, method, skip)
        weak = isinstance(q, int | float) and not isinstance(q, np.generic)
        return y if weak else ops.cast(y, np.result_type(y.dtype, np.asarray(q).dtype))

    return function


for _name, _scale in (("quantile", 1.0), ("percentile", 100.0)):
    for _prefix in ("", "nan"):
        FUNCTIONS[getattr(np, _prefix + _name)] = _function(_prefix + _name, _scale, bool(_prefix))


# --- covariance ----------------------------------------------------------------------------


@implements(np.cov)
def _cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    x = _variables(m, rowvar)
    if y is not None:
        x = np.concatenate([x, _variables(y, rowvar)], axis=0)
    x = ops.cast(x, np.result_type(x.dtype, np.float64) if dtype is None else dtype)
    ddof = int(not bias) if ddof is None else ddof
    n = np.shape(x)[1]
    weights: Any = None
    for w in (fweights, aweights):
        if w is not None:
            w = inexact(w)
            weights = w if weights is None else weights * w
    total: Any = n if weights is None else np.sum(weights)
    if weights is None or aweights is None or ddof == 0:
        freedom = total - ddof
    else:
        freedom = total - ddof * np.sum(weights * inexact(aweights)) / total
    mean = np.sum(x if weights is None else x * weights, axis=1, keepdims=True) / total
    d = x - mean
    return np.squeeze((d @ np.conj((d if weights is None else d * weights).T)) / freedom)


def _variables(m: Any, rowvar: bool) -> Any:
    """Variables in rows, observations in columns."""
    if np.ndim(m) > 2:
        raise ShapeError(
            f"np.cov takes 1 or 2 axes, got shape {np.shape(m)}",
            "in np.cov",
            "reshape to variables and observations",
        )
    if np.ndim(m) < 2:
        return np.reshape(m, (1, -1))
    return m if rowvar else np.transpose(m)


@implements(np.corrcoef)
def _corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    c = _cov(x, y, rowvar, dtype=dtype)
    if np.ndim(c) == 0:
        return c / c
    deviation = np.sqrt(np.real(np.diagonal(c)))
    return c / deviation[:, None] / deviation[None, :]
