"""Kernels of convolutions: columns gathered for, or scattered from, one product per group."""

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
    """Convolution over the last axes: one matrix product of kernel and columns for each group.

    out[n, o, p] = sum_{c, t} k[o, c, t] x[n, c of o's group, p stride + t rhs_dilation - low],
    where x is dilated by lhs_dilation and 0 outside.
    """
    del algorithm
    taps, features = k.shape[2:], k.shape[0]
    covered = [(t - 1) * r + 1 if t else 0 for t, r in zip(taps, rhs_dilation, strict=True)]
    inside = [(n - 1) * g + 1 if n else 0 for n, g in zip(x.shape[2:], lhs_dilation, strict=True)]
    rows = zip(inside, padding, covered, stride, strict=True)
    out = tuple(max((n + low + high - w) // s + 1, 0) for n, (low, high), w, s in rows)
    shape = (x.shape[0], groups, features // groups, *out)
    if 0 in (*x.shape, *k.shape, *out):
        return np.zeros((x.shape[0], features, *out), np.result_type(x, k))
    # each element of x meets each tap once: where that is less work, the product comes first
    scatter = set(stride) == {1} and features * x[0, 0].size < x.shape[1] * int(np.prod(out))
    if scatter:
        result = _scattered(x, k, shape, padding, lhs_dilation, rhs_dilation)
    else:
        result = _gathered(spread(x, padding, lhs_dilation), k, shape, stride, rhs_dilation)
    return result.reshape((x.shape[0], features, *out))


def _gathered(
    x: Any, k: Any, shape: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> Any:
    """Product of the kernel with columns of windows; x is padded already."""
    batch, groups, own, *out = shape
    taps, steps = k.shape[2:], x.strides[2:]
    places, terms = int(np.prod(out)), int(np.prod(k.shape[1:]))
    tap_steps = [b * d for b, d in zip(steps, dilation, strict=True)]
    place_steps = [b * s for b, s in zip(steps, stride, strict=True)]
    # the longer rows innermost, so that columns are copied in long runs
    tall = taps[-1] > out[-1]
    x = x.reshape((batch, groups, -1, *x.shape[2:]))
    taken, lead = x.shape[2], x.strides[:3]
    if tall:
        extents, strides = (*out, taken, *taps), (*place_steps, lead[2], *tap_steps)
    else:
        extents, strides = (taken, *taps, *out), (lead[2], *tap_steps, *place_steps)
    windows = np.lib.stride_tricks.as_strided(
        x, (batch, groups, *extents), (*lead[:2], *strides), writeable=False
    )
    weights = k.reshape((groups, own, terms))
    result = np.empty((batch, groups, own, places), np.result_type(x, k))
    step = max(1, COLUMNS // (groups * terms * places))
    for first in range(0, batch, step):
        part = windows[first : first + step]
        if tall:
            columns = part.reshape((len(part), groups, places, terms)).transpose((0, 1, 3, 2))
        else:
            columns = part.reshape((len(part), groups, terms, places))
        np.matmul(weights, columns, out=result[first : first + step])
    return result


def _scattered(
    x: Any,
    k: Any,
    shape: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    lhs_dilation: tuple[int, ...],
    rhs_dilation: tuple[int, ...],
) -> Any:
    """Columns of the products of every element with every tap, added where they belong."""
    batch, groups, own, *out = shape
    taken, *taps = k.shape[1:]
    axes = len(taps)
    weights = k.reshape((groups, own, taken, -1)).transpose((0, 1, 3, 2))
    weights = weights.reshape((groups, -1, taken))
    x = x.reshape((batch, groups, taken, *x.shape[2:]))
    result = np.zeros(shape, np.result_type(x, k))
    step = max(1, COLUMNS // (groups * weights.shape[1] * x[0, 0, 0].size))
    for first in range(0, batch, step):
        part = x[first : first + step]
        columns = np.matmul(weights, part.reshape((*part.shape[:3], -1)))
        columns = columns.reshape((*part.shape[:2], own, *taps, *x.shape[3:]))
        for tap in np.ndindex(*taps):
            source: list[Any] = [slice(None)] * 3 + list(tap)
            target: list[Any] = [slice(None)] * 3
            for i in range(axes):
                start = padding[i][0] - tap[i] * rhs_dilation[i]
                read, write = _overlap(x.shape[3 + i], start, lhs_dilation[i], out[i])
                source.append(read)
                target.append(write)
            result[first : first + step][tuple(target)] += columns[tuple(source)]
    return result


def _overlap(count: int, start: int, step: int, extent: int) -> tuple[slice, slice]:
    """Of `count` elements placed at start, start + step, ... those inside the extent, and where."""
    first = max(0, -(start // step))
    last = max(first, min(count, (extent - 1 - start) // step + 1))
    at = start + first * step
    places = slice(at, at + (last - first) * step, step) if last > first else slice(0)
    return slice(first, last), places


def spread(x: Any, padding: tuple[tuple[int, int], ...], dilation: tuple[int, ...]) -> Any:
    """The array with dilation - 1 zeros between its spatial elements, then padded with zeros.

    Negative padding crops.
    """
    if not any(p for pair in padding for p in pair) and set(dilation) <= {1}:
        return x
    source, target, extents = [slice(None)] * 2, [slice(None)] * 2, []
    for n, (low, high), gap in zip(x.shape[2:], padding, dilation, strict=True):
        extent = max((n - 1) * gap + 1 + low + high, 0)
        read, write = _overlap(n, low, gap, extent)
        source.append(read)
        target.append(write)
        extents.append(extent)
    out = np.zeros((*x.shape[:2], *extents), x.dtype)
    out[tuple(target)] = x[tuple(source)]
    return out
