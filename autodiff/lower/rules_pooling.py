"""JAX functions of sliding windows."""

import itertools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

# Windows of more taps are gathered by index, so that the program does not grow with them.
TAPS = 64


def _indices(
    window: tuple[int, ...], places: list[int], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[Any, ...]:
    """Positions of every tap of every window, per axis, as arrays that broadcast."""
    axes = len(window)
    found = []
    for i, (w, m, s, d) in enumerate(zip(window, places, stride, dilation, strict=True)):
        at = np.arange(w)[:, None] * d + np.arange(m) * s
        shape = [1] * (2 * axes)
        shape[i], shape[axes + i] = w, m
        found.append(at.reshape(shape))
    return tuple(found)


def windows(
    x: Any, *, window: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> Any:
    """Every window of the last axes."""
    axes = len(window)
    lead = x.shape[: x.ndim - axes]
    rows = zip(x.shape[len(lead) :], window, stride, dilation, strict=True)
    places = [max((n - (w - 1) * d - 1) // s + 1, 0) for n, w, s, d in rows]
    if 0 in (*x.shape, *places):
        return jnp.zeros((*lead, *window, *places), x.dtype)
    if math.prod(window) > TAPS:
        return x[(..., *_indices(window, places, stride, dilation))]
    parts = []
    for tap in itertools.product(*map(range, window)):
        first = [t * d for t, d in zip(tap, dilation, strict=True)]
        last = [a + (m - 1) * s + 1 for a, m, s in zip(first, places, stride, strict=True)]
        zeros, ones = (0,) * len(lead), (1,) * len(lead)
        parts.append(lax.slice(x, (*zeros, *first), (*lead, *last), (*ones, *stride)))
    stacked = jnp.stack(parts, axis=len(lead))
    return stacked.reshape((*lead, *window, *places))


def fold(
    y: Any, *, shape: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> Any:
    """Windows added back where they came from."""
    axes = len(shape)
    lead = y.shape[: y.ndim - 2 * axes]
    window, places = y.shape[len(lead) : len(lead) + axes], y.shape[len(lead) + axes :]
    out = jnp.zeros((*lead, *shape), y.dtype)
    if 0 in y.shape:
        return out
    if math.prod(window) > TAPS:
        return out.at[(..., *_indices(window, list(places), stride, dilation))].add(y)
    zero = jnp.zeros((), y.dtype)
    for tap in itertools.product(*map(range, window)):
        part = y[(slice(None),) * len(lead) + tap]
        widths = [(0, 0, 0)] * len(lead)
        for t, d, m, s, n in zip(tap, dilation, places, stride, shape, strict=True):
            widths.append((t * d, n - t * d - (m - 1) * s - 1, s - 1))
        out = out + lax.pad(part, zero, widths)
    return out
