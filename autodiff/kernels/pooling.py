"""Kernels of sliding windows."""

from typing import Any

import numpy as np


def windows(
    x: Any, *, window: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> Any:
    """out[..., t, p] = x[..., p stride + t dilation] over the last axes."""
    lead, steps = x.shape[: x.ndim - len(window)], x.strides[x.ndim - len(window) :]
    rows = zip(x.shape[len(lead) :], window, stride, dilation, strict=True)
    out = [max((n - (w - 1) * d - 1) // s + 1, 0) for n, w, s, d in rows]
    if 0 in (*x.shape, *out):
        return np.zeros((*lead, *window, *out), x.dtype)
    view = np.lib.stride_tricks.as_strided(
        x,
        (*lead, *window, *out),
        (
            *x.strides[: len(lead)],
            *(b * d for b, d in zip(steps, dilation, strict=True)),
            *(b * s for b, s in zip(steps, stride, strict=True)),
        ),
        writeable=False,
    )
    return view.copy()


def fold(
    y: Any, *, shape: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> Any:
    """out[..., i] = sum of y[..., t, p] over p stride + t dilation = i."""
    axes = len(shape)
    lead = y.ndim - 2 * axes
    window, places = y.shape[lead : lead + axes], y.shape[lead + axes :]
    out = np.zeros((*y.shape[:lead], *shape), y.dtype)
    for tap in np.ndindex(*window):
        rows = zip(tap, dilation, places, stride, strict=True)
        target: tuple[Any, ...] = tuple(slice(t * d, t * d + m * s, s) for t, d, m, s in rows)
        source: tuple[Any, ...] = (*tap, *(slice(None),) * axes)
        out[(..., *target)] += y[(..., *source)]
    return out
