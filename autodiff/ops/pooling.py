"""Sliding windows and their adjoint, and pooling."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import composite, linear, promote
from autodiff.kernels import pooling as kernels
from autodiff.ops.elementwise import cast
from autodiff.ops.geometry import Pairs, padding_pairs, per_spatial_axis, reach
from autodiff.ops.shape import pad
from autodiff.program import Spec
from autodiff.trace import bind
from autodiff.widen import widened_body, widened_rule

__all__ = ["avgpool2d", "fold", "maxpool2d", "windows"]

Ints = tuple[int, ...]

# --- WINDOWS and FOLD ----------------------------------------------------------------------


def places_of(extents: Ints, window: Ints, stride: Ints, dilation: Ints) -> Ints:
    """How many positions a window has along each axis."""
    rows = zip(extents, reach(window, dilation), stride, strict=True)
    return tuple(max((n - w) // s + 1, 0) for n, w, s in rows)


def _windows_spec(x: Spec, *, window: Ints, stride: Ints, dilation: Ints) -> Spec:
    axes = len(window)
    if x.ndim < axes or len(stride) != axes or len(dilation) != axes or min(window, default=1) < 1:
        raise ShapeError(
            f"cannot slide a window {window} over {x.shape}",
            f"in op WINDOWS, stride {stride}, dilation {dilation}",
            "give a window extent, a stride and a dilation of at least 1 for each of the last axes",
        )
    lead = x.ndim - axes
    places = places_of(x.shape[lead:], window, stride, dilation)
    return x.with_shape((*x.shape[:lead], *window, *places))


def _windows_transpose(
    ct: Any, inputs: Any, *, window: Ints, stride: Ints, dilation: Ints
) -> tuple[Any, ...]:
    shape = inputs[0].shape
    shape = shape[len(shape) - len(window) :]
    return (bind("FOLD", ct, shape=shape, stride=stride, dilation=dilation),)


def _windows_batch(size: int, args: Any, batched: Any, **params: Any) -> Any:
    del size, batched
    return bind("WINDOWS", args[0], **params), True


linear(
    "WINDOWS",
    kernels.windows,
    spec=_windows_spec,
    transpose=_windows_transpose,
    batch=_windows_batch,
    jax="rules:windows",
)


def windows(x: Any, window: Any, stride: Any = 1, dilation: Any = 1) -> Any:
    """All windows of the last axes: y[..., t, p] = x[..., p stride + t dilation].

    Arguments: x of shape (..., n_1, ..., n_r); window: r extents; stride, dilation: an int or r.
    Returns shape (..., window, positions), positions (n - (window - 1) dilation - 1) // stride + 1.
    Linear; the adjoint is `fold`. Raises ShapeError for a window of more axes than x.
    """
    extents = per_spatial_axis("WINDOWS", "window", window, np.size(window))
    axes = len(extents)
    return bind(
        "WINDOWS",
        x if hasattr(x, "dtype") else np.asarray(x),
        window=extents,
        stride=per_spatial_axis("WINDOWS", "stride", stride, axes),
        dilation=per_spatial_axis("WINDOWS", "dilation", dilation, axes),
    )


def _fold_spec(y: Spec, *, shape: Ints, stride: Ints, dilation: Ints) -> Spec:
    axes = len(shape)
    lead = y.ndim - 2 * axes
    window, places = y.shape[lead : lead + axes], y.shape[lead + axes :]
    fits = lead >= 0 and len(stride) == len(dilation) == axes
    if not fits or places_of(shape, window, stride, dilation) != places:
        raise ShapeError(
            f"windows of shape {y.shape} do not come from spatial extents {shape}",
            f"in op FOLD, stride {stride}, dilation {dilation}",
            "pass the extents, stride and dilation that `windows` was given",
        )
    return y.with_shape((*y.shape[:lead], *shape))


def _fold_transpose(
    ct: Any, inputs: Any, *, shape: Ints, stride: Ints, dilation: Ints
) -> tuple[Any, ...]:
    axes = len(shape)
    window = inputs[0].shape[-2 * axes : -axes]
    return (bind("WINDOWS", ct, window=window, stride=stride, dilation=dilation),)


def _fold_batch(size: int, args: Any, batched: Any, **params: Any) -> Any:
    del size, batched
    return bind("FOLD", args[0], **params), True


linear(
    "FOLD",
    kernels.fold,
    spec=_fold_spec,
    transpose=_fold_transpose,
    batch=_fold_batch,
    jax="rules:fold",
)


def fold(y: Any, shape: Any, stride: Any = 1, dilation: Any = 1) -> Any:
    """Windows added back where they came from, the adjoint of `windows`.

    x[..., i] = sum of y[..., t, p] over all t, p with p stride + t dilation = i.

    Arguments: y as `windows` returns; shape: the extents of its last axes; stride, dilation as
    there. Raises ShapeError where y's shape does not follow from these.
    """
    extents = per_spatial_axis("FOLD", "shape", shape, np.size(shape), low=0)
    axes = len(extents)
    return bind(
        "FOLD",
        y if hasattr(y, "dtype") else np.asarray(y),
        shape=extents,
        stride=per_spatial_axis("FOLD", "stride", stride, axes),
        dilation=per_spatial_axis("FOLD", "dilation", dilation, axes),
    )


# --- MAXPOOL2D -----------------------------------------------------------------------------


def _inside(extents: Ints, window: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Any:
    """Constant mask (window, positions): whether a tap of a window lies inside the image."""
    ones = np.pad(np.ones(extents, np.bool_), padding)
    return kernels.windows(ones, window=window, stride=stride, dilation=dilation)


def _pool_spec(kind: str) -> Any:
    def spec(
        x: Spec, *, window: Ints, stride: Ints, padding: Pairs, dilation: Ints, **params: Any
    ) -> Spec:
        del params
        where = f"in op {kind}, x of shape {x.shape}, window {window}, padding {padding}"
        if x.ndim < 2 or x.dtype.kind not in "fV":
            raise ShapeError(
                f"cannot pool {x}", where, "x is a real floating array (..., height, width)"
            )
        padded = tuple(n + low + high for n, (low, high) in zip(x.shape[-2:], padding, strict=True))
        if min(*padding[0], *padding[1]) < 0:
            raise ShapeError(f"padding {padding} is negative", where, "slice x instead")
        covered = reach(window, dilation)
        if any(n < w for n, w in zip(padded, covered, strict=True)):
            raise ShapeError(
                f"the window covers {covered} places, the padded input has {padded}",
                where,
                'pass a smaller window, or padding="SAME"',
            )
        inside = _inside(x.shape[-2:], window, stride, padding, dilation)
        if not inside.any(axis=(0, 1)).all():
            raise ShapeError(
                "a window lies in the padding alone", where, "pad by less than the window"
            )
        return x.with_shape((*x.shape[:-2], *inside.shape[2:]))

    return spec


def _padded(x: Any, padding: Pairs, value: float) -> Any:
    lead = (0,) * (np.ndim(x) - 2)
    low, high = zip(*padding, strict=True)
    return pad(x, (*lead, *low), (*lead, *high), value=value)


def _maxpool_body(x: Any, *, window: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Any:
    taps = bind(
        "WINDOWS", _padded(x, padding, -np.inf), window=window, stride=stride, dilation=dilation
    )
    n = np.ndim(taps)
    return bind("MAX", taps, axis=(n - 4, n - 3), keepdims=False)


def _maxpool_jvp(
    primals: Any,
    tangents: Any,
    y: Any,
    *,
    window: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
) -> Any:
    """The mean of the tangents at a window's maxima: places of the image, never of its padding."""
    (x,), (t,) = primals, tangents
    params = {"window": window, "stride": stride, "dilation": dilation}
    taps = bind("WINDOWS", _padded(x, padding, -np.inf), **params)
    dots = bind("WINDOWS", _padded(t, padding, 0.0), **params)
    n = np.ndim(taps)
    axis = (n - 4, n - 3)
    top = np.reshape(y, (*np.shape(y)[:-2], 1, 1, *np.shape(y)[-2:]))
    # a NaN is a maximum
    hit = (taps == top) | bind("ISNAN", taps)
    if any(p for pair in padding for p in pair):
        hit = hit & _inside(np.shape(x)[-2:], window, stride, padding, dilation)
    count = bind("SUM", cast(hit, t.dtype), axis=axis, keepdims=False)
    kept = bind("WHERE", hit, dots, np.zeros((), t.dtype))
    return bind("SUM", kept, axis=axis, keepdims=False) / count


def _pool_batch(kind: str) -> Any:
    def batch(size: int, args: Any, batched: Any, **params: Any) -> Any:
        del size, batched
        return bind(kind, args[0], **params), True

    return batch


composite(
    "MAXPOOL2D",
    _maxpool_body,
    spec=_pool_spec("MAXPOOL2D"),
    jvp=widened_rule(_maxpool_jvp),
    batch=_pool_batch("MAXPOOL2D"),
)


def _geometry(
    kind: str, x: Any, window: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Any, dict[str, Any]]:
    """The image at a floating dtype, and window parameters per axis."""
    (x,) = promote(x, inexact=True)
    size = per_spatial_axis(kind, "window", window, 2)
    step = size if stride is None else per_spatial_axis(kind, "stride", stride, 2)
    gap = per_spatial_axis(kind, "dilation", dilation, 2)
    pairs = (
        padding_pairs(kind, padding, np.shape(x)[-2:], reach(size, gap), step)
        if np.ndim(x) > 1
        else ()
    )
    return x, {"window": size, "stride": step, "padding": pairs, "dilation": gap}


def maxpool2d(
    x: Any, window: Any, stride: Any = None, padding: Any = "VALID", dilation: Any = 1
) -> Any:
    """The largest element of each window of the last two axes.

    y[..., p] = max_t x[..., p stride + t dilation - low], p, t and low being pairs.

    Arguments: x of shape (..., h, w), real (integers become float64); window: an int or two;
    stride: an int or two, the window by default; padding as in `conv2d`, non-negative; dilation: an
    int or two. Padding never wins: it counts as -inf.
    Returns shape (..., h', w'), h' = (h + low + high - (kh - 1) dilation - 1) // stride + 1. NaN
    propagates.
    Where m places of a window attain its maximum the derivative is 1/m at each of them (NaN counts
    as a maximum): shares are conserved, also for windows of -inf next to padding. Second
    derivatives are 0.
    Raises ShapeError for a window larger than the padded input or in the padding alone.
    """
    x, params = _geometry("MAXPOOL2D", x, window, stride, padding, dilation)
    return bind("MAXPOOL2D", x, **params)


# --- AVGPOOL2D -----------------------------------------------------------------------------


def _avgpool_body(
    x: Any,
    *,
    window: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    count_include_pad: bool,
) -> Any:
    taps = bind(
        "WINDOWS", _padded(x, padding, 0.0), window=window, stride=stride, dilation=dilation
    )
    n = np.ndim(taps)
    sums = bind("SUM", taps, axis=(n - 4, n - 3), keepdims=False)
    if count_include_pad or not any(p for pair in padding for p in pair):
        return sums / (window[0] * window[1])
    inside = _inside(np.shape(x)[-2:], window, stride, padding, dilation)
    return sums / inside.sum(axis=(0, 1)).astype(x.dtype)


composite(
    "AVGPOOL2D",
    widened_body(_avgpool_body),
    spec=_pool_spec("AVGPOOL2D"),
    batch=_pool_batch("AVGPOOL2D"),
)


def avgpool2d(
    x: Any,
    window: Any,
    stride: Any = None,
    padding: Any = "VALID",
    count_include_pad: bool = True,
) -> Any:
    """The mean of each window of the last two axes.

    y[..., p] = sum_t x[..., p stride + t - low] / m, x being 0 in the padding.

    Arguments: as `maxpool2d`. m is the size of the window, padding included; with
    count_include_pad=False it is the number of places inside x.
    Returns shape (..., h', w'). Linear. Raises ShapeError as `maxpool2d`.
    """
    x, params = _geometry("AVGPOOL2D", x, window, stride, padding, 1)
    return bind("AVGPOOL2D", x, **params, count_include_pad=bool(count_include_pad))
