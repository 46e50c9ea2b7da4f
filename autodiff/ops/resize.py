"""Resizing of images by interpolation between pixel centres."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import composite, promote
from autodiff.ops.geometry import per_spatial_axis
from autodiff.program import Spec
from autodiff.trace import bind
from autodiff.widen import widened_body

__all__ = ["resize"]

METHODS = ("bilinear", "nearest")


def _resize_spec(x: Spec, *, shape: tuple[int, ...], method: str, align_corners: bool) -> Spec:
    lead = x.ndim - len(shape)
    where = f"in op RESIZE, x of shape {x.shape}, shape {shape}"
    if method not in METHODS or (align_corners and method == "nearest"):
        raise ShapeError(
            f"there is no method {method!r} with align_corners={align_corners}",
            where,
            "use 'bilinear', or 'nearest' without align_corners",
        )
    if lead < 0 or x.dtype.kind not in "fcV" or 0 in x.shape[lead:]:
        raise ShapeError(
            f"cannot resize {x}", where, "x is floating, (..., n_1, ..., n_r) without extents of 0"
        )
    return x.with_shape((*x.shape[:lead], *shape))


def _coordinates(n: int, m: int, align_corners: bool) -> Any:
    """Where the m results lie between the n elements, in units of these."""
    place = np.arange(m, dtype=np.float64)
    if align_corners:
        return place * ((n - 1) / (m - 1)) if m > 1 else place
    return np.clip((place + 0.5) * (n / m) - 0.5, 0, n - 1)


def _resize_body(x: Any, *, shape: tuple[int, ...], method: str, align_corners: bool) -> Any:
    lead = np.ndim(x) - len(shape)
    for axis, m in enumerate(shape, lead):
        n = np.shape(x)[axis]
        if method == "nearest":
            # whole arithmetic: (2 i + 1) n / (2 m) is often an integer exactly
            at = ((2 * np.arange(m) + 1) * n) // (2 * m)
            x = bind("GATHER", x, at, axis=axis)
            continue
        if n == m:
            continue
        place = _coordinates(n, m, align_corners)
        first = np.minimum(place.astype(np.int64), n - 1)
        weight = (place - first).astype(x.dtype).reshape((m, *(1,) * (np.ndim(x) - 1 - axis)))
        left = bind("GATHER", x, first, axis=axis)
        right = bind("GATHER", x, np.minimum(first + 1, n - 1), axis=axis)
        x = left * (1 - weight) + right * weight
    return x


composite("RESIZE", widened_body(_resize_body), spec=_resize_spec)


def resize(x: Any, shape: Any, method: str = "bilinear", align_corners: bool = False) -> Any:
    """The last axes of an array resized by interpolation between their elements.

    Element i of m lies at (i + 1/2) n / m - 1/2 among the n of x, moved inside at the ends; with
    align_corners at i (n - 1) / (m - 1). "bilinear" interpolates linearly along each axis,
    "nearest" takes the closest element (the later one at ties: PyTorch's "nearest-exact").

    Arguments: x of shape (..., n_1, ..., n_r), integers become float64; shape: r extents.
    Returns (..., *shape). Linear. Nothing is averaged when shrinking (no antialiasing).
    Raises ShapeError for unknown methods and extents of 0.
    """
    (x,) = promote(x, inexact=True)
    extents = per_spatial_axis("RESIZE", "shape", shape, np.size(shape))
    return bind("RESIZE", x, shape=extents, method=method, align_corners=bool(align_corners))
