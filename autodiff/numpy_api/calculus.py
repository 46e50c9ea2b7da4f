"""NumPy's differences, integrals and interpolation."""

from typing import Any

import numpy as np

from autodiff import ops
from autodiff.errors import ShapeError
from autodiff.numpy_api import implements
from autodiff.ops.shape import normal_axes


def _valued(x: Any) -> Any:
    return x if hasattr(x, "dtype") else np.asarray(x)


def _part(x: Any, axis: int, start: int, stop: int | None) -> Any:
    """Elements start to stop along an axis (Python's slice bounds)."""
    return ops.index(x, (*(slice(None),) * axis, slice(start, stop)))


@implements(np.diff)
def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    if n < 0:
        raise ShapeError(f"order must be non-negative but got {n}", "in numpy.diff", "use n >= 0")
    a = _valued(a)
    (axis,) = normal_axes(axis, a.ndim)
    parts = [_end(p, a, axis) for p in (prepend, a, append) if p is not None]
    if n == 0:
        return a
    a = ops.concatenate(parts, axis)
    for _ in range(n):
        late, early = _part(a, axis, 1, None), _part(a, axis, 0, -1)
        a = ops.not_equal(late, early) if a.dtype == np.bool_ else late - early
    return a


def _end(value: Any, a: Any, axis: int) -> Any:
    value = _valued(value)
    if np.ndim(value):
        return value
    return ops.broadcast_to(value, (*a.shape[:axis], 1, *a.shape[axis + 1 :]))


@implements(np.ediff1d)
def _ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    parts = [to_begin, _diff(np.ravel(ary)), to_end]
    kept = [np.ravel(_valued(p)) for p in parts if p is not None]
    return ops.cast(ops.concatenate(kept), ary.dtype)


@implements(np.trapezoid)
def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    y = _valued(y)
    (axis,) = normal_axes(axis, y.ndim)
    if x is None:
        d = dx
    elif np.ndim(x) == 1:
        d = ops.reshape(_diff(x), (-1, *(1,) * (y.ndim - 1 - axis)))
    else:
        d = _diff(x, axis=axis)
    return np.sum(d * (_part(y, axis, 1, None) + _part(y, axis, 0, -1)) / 2.0, axis=axis)


@implements(np.gradient)
def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    f = _valued(f)
    axes = tuple(range(f.ndim)) if axis is None else normal_axes(axis, f.ndim)
    steps = list(varargs) if len(varargs) == len(axes) else list(varargs or (1.0,)) * len(axes)
    if len(varargs) not in (0, 1, len(axes)) or edge_order not in (1, 2):
        raise ShapeError(
            f"gradient of {len(axes)} axes got {len(varargs)} spacings, edge_order {edge_order}",
            "in numpy.gradient",
            "give no, one or one spacing per axis; edge_order is 1 or 2",
        )
    if any(f.shape[a] < edge_order + 1 for a in axes):
        raise ShapeError(
            f"shape {f.shape} is too small to calculate a numerical gradient",
            "in numpy.gradient",
            "at least (edge_order + 1) elements are required along each axis",
        )
    f = f if f.dtype.kind in "fc" else ops.cast(f, np.float64)
    results = [_slope(f, a, h, edge_order) for a, h in zip(axes, steps, strict=True)]
    return results[0] if len(axes) == 1 else tuple(results)


def _slope(f: Any, axis: int, spacing: Any, edge_order: int) -> Any:
    """Central differences along an axis, one-sided at its ends.

    Between unequal steps g and h: (h d_left + g d_right) / (g + h), the slope of the parabola
    through three points.
    """
    n = f.shape[axis]
    if np.ndim(spacing) == 0:
        h = ops.broadcast_to(ops.cast(_valued(spacing), f.dtype), (n - 1,))
    else:
        h = _diff(spacing)
    h = ops.reshape(h, (n - 1, *(1,) * (f.ndim - 1 - axis)))
    d = _diff(f, axis=axis) / h
    if np.ndim(spacing) == 0:
        inner = (_part(f, axis, 2, None) - _part(f, axis, 0, -2)) / (2.0 * spacing)
    else:
        left, right = _part(h, 0, 0, -1), _part(h, 0, 1, None)
        early, late = _part(d, axis, 0, -1), _part(d, axis, 1, None)
        inner = (right * early + left * late) / (left + right)
    first, last = _part(d, axis, 0, 1), _part(d, axis, -1, None)
    if edge_order == 2:
        # the slope at an end of the parabola through three points
        h0, h1, hm, hl = (_part(h, 0, a, b) for a, b in ((0, 1), (1, 2), (-2, -1), (-1, None)))
        second, before = _part(d, axis, 1, 2), _part(d, axis, -2, -1)
        first = first - (second - first) * h0 / (h0 + h1)
        last = last + (last - before) * hl / (hl + hm)
    return ops.concatenate([first, inner, last], axis)


@implements(np.interp)
def _interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """Linear interpolation; at a knot the derivative is that of the piece to its right."""
    x, xp, fp = (_valued(v) for v in (x, xp, fp))
    if period is not None:
        x, xp = x % period, xp % period
        order = ops.argsort(xp)
        xp, fp = ops.gather(xp, order), ops.gather(fp, order)
        xp = ops.concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = ops.concatenate([fp[-1:], fp, fp[:1]])
        left = right = None
    n = np.shape(xp)[0]
    if n == 1:
        inside = ops.broadcast_to(fp[0], np.shape(x))
    else:
        place = ops.searchsorted(xp, x, "right") - 1
        place = np.minimum(np.maximum(place, 0), n - 2)
        x0, x1 = ops.gather(xp, place), ops.gather(xp, place + 1)
        y0, y1 = ops.gather(fp, place), ops.gather(fp, place + 1)
        inside = y0 + (y1 - y0) * ((x - x0) / (x1 - x0))
    below = fp[0] if left is None else left
    above = fp[-1] if right is None else right
    return ops.where(x < xp[0], below, ops.where(x > xp[-1], above, inside))


@implements(np.unwrap)
def _unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: float = 2 * np.pi) -> Any:
    (axis,) = normal_axes(axis, p.ndim)
    steps = _diff(p, axis=axis)
    half = period / 2
    wrapped = np.mod(steps + half, period) - half
    wrapped = ops.where((wrapped == -half) & (steps > 0), half, wrapped)
    jump = wrapped - steps
    limit = half if discont is None else discont
    jump = ops.where(np.abs(steps) < limit, ops.zeros_like(jump), jump)
    rest = _part(p, axis, 1, None) + np.cumsum(jump, axis=axis)
    return ops.concatenate([_part(p, axis, 0, 1), rest], axis)
