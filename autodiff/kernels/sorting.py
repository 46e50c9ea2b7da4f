"""Kernels of sorting and searching."""

from typing import Any

import numpy as np


def sort(x: Any, *, axis: int) -> tuple[Any, Any]:
    """Sorted values and the positions they came from; equal values keep their order, NaN last."""
    order = np.argsort(x, axis=axis, kind="stable")
    return np.take_along_axis(x, order, axis), order


def argsort(x: Any, *, axis: int) -> Any:
    """Positions in sorted order; equal values keep their order, NaN last."""
    return np.argsort(x, axis=axis, kind="stable")


def top_k(x: Any, *, k: int) -> tuple[Any, Any]:
    """The k largest values of the last axis, largest first, and their positions.

    NaN counts as the largest; of equal values the one of lower position comes first.
    """
    # sorted backwards, so that of equal values the first stays first when the order is turned
    order = np.argsort(x[..., ::-1], axis=-1, kind="stable")
    order = (x.shape[-1] - 1 - order)[..., ::-1][..., :k]
    return np.take_along_axis(x, order, -1), order


def searchsorted(a: Any, v: Any, *, side: Any) -> Any:
    """Positions in sorted rows `a` (..., n) at which values `v` (..., m) keep the order."""
    if a.ndim == 1:
        return np.searchsorted(a, v, side)
    low = np.zeros(v.shape, np.int64)
    high = np.full(v.shape, a.shape[-1], np.int64)
    # NaN is the largest value, as in np.sort
    for _ in range(int(a.shape[-1]).bit_length()):
        middle = np.minimum((low + high) // 2, a.shape[-1] - 1)
        element = np.take_along_axis(a, middle, -1)
        if side == "left":
            right = (element < v) | (np.isnan(v) & ~np.isnan(element))
        else:
            right = (element <= v) | np.isnan(v)
        open_ = low < high
        low = np.where(open_ & right, middle + 1, low)
        high = np.where(open_ & ~right, middle, high)
    return low
