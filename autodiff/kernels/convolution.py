"""Kernels of convolutions: windows gathered into columns, one matrix product per group."""

from typing import Any

import numpy as np

# Elements of one block of columns: larger batches are cut, so that memory stays bounded.
COLUMNS = 1 << 22


def conv(
    x: Any,
    k: Any,
    *,
    stride: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    lhs_dilation: tuple[int, ...],
    rhs_dilation: tuple[int, ...],
    groups: int,
    algorithm: str = "default",
) -> Any:
    """out[n, o, p] = sum_{c, t} k[o, c, t] x[n, c of o's group, p stride + t rhs_dilation - low],
    x dilated by lhs_dilation and 0 outside."""
    del algorithm
    d = len(stride)
    dtype = np.result_type(x, k)
    xp = spread(x, padding, lhs_dilation)
    taps = k.shape[2:]
    reach = [(t - 1) * r + 1 if t else 0 for t, r in zip(taps, rhs_dilation, strict=True)]
    out = [
        max((n - w) // s + 1, 0) for n, w, s in zip(xp.shape[2:], reach, stride, strict=True)
    ]
    batch, features = x.shape[0], k.shape[0]
    places, terms = int(np.prod(out)), int(np.prod(k.shape[1:]))
    result = np.zeros((batch, groups, features // groups, places), dtype)
    if result.size and terms:
        windows = np.lib.stride_tricks.as_strided(
            xp,
            (*xp.shape[:2], *taps, *out),
            (
                *xp.strides[:2],
                *(b * r for b, r in zip(xp.strides[2:], rhs_dilation, strict=True)),
                *(b * s for b, s in zip(xp.strides[2:], stride, strict=True)),
            ),
            writeable=False,
        )
        weights = k.reshape((groups, features // groups, terms))
        step = max(1, COLUMNS // (groups * terms * places))
        for first in range(0, batch, step):
            part = windows[first : first + step]
            columns = part.reshape((part.shape[0], groups, terms, places))
            np.matmul(weights, columns, out=result[first : first + step])
    return result.reshape((batch, features, *out))[(slice(None),) * (2 + d)]


def spread(x: Any, padding: tuple[tuple[int, int], ...], dilation: tuple[int, ...]) -> Any:
    """The array with dilation - 1 zeros between elements of its spatial axes, then padded with
    zeros (cropped where padding is negative)."""
    if not any(p for pair in padding for p in pair) and set(dilation) <= {1}:
        return x
    source, target, extents = [slice(None)] * 2, [slice(None)] * 2, []
    for n, (low, high), gap in zip(x.shape[2:], padding, dilation, strict=True):
        whole = max((n - 1) * gap + 1 if n else 0, 0) + low + high
        first = max(0, -(low // gap))
        last = max(first, min(n, (whole - 1 - low) // gap + 1))
        source.append(slice(first, last))
        start = low + first * gap
        target.append(slice(start, start + (last - first) * gap, gap) if last > first else slice(0))
        extents.append(max(whole, 0))
    out = np.zeros((*x.shape[:2], *extents), x.dtype)
    out[tuple(target)] = x[tuple(source)]
    return out
