"""Strides, paddings and extents of windows that slide over spatial axes."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import whole

Pairs = tuple[tuple[int, int], ...]


def reach(extents: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[int, ...]:
    """Extents after dilation: (n - 1) d + 1, or 0 for no elements."""
    return tuple((n - 1) * d + 1 if n else 0 for n, d in zip(extents, dilation, strict=True))


def per_spatial_axis(kind: str, name: str, value: Any, axes: int, low: int = 1) -> tuple[int, ...]:
    """One int per spatial axis, at least `low`, from a sequence or from an int for all."""
    several = isinstance(value, Iterable)
    given = value if several else (value,) * axes
    result = tuple(whole(v, f"{name} of {kind}") for v in given)
    if len(result) != axes or min(result) < low:
        raise ShapeError(
            f"{name} is {value!r}",
            f"in op {kind}, {axes} spatial axes",
            f"give an int of at least {low}, or {axes} of them",
        )
    return result


def padding_pairs(
    kind: str,
    padding: Any,
    extents: tuple[int, ...],
    windows: tuple[int, ...],
    stride: tuple[int, ...],
) -> Pairs:
    """Padding as (low, high) pairs.

    "VALID" is none; "SAME" makes ceil(n / stride) results, the odd element at the end; an int
    counts at both ends of every axis; a sequence holds an int or a pair for each axis.
    """
    axes = len(extents)
    if isinstance(padding, str):
        name = padding.upper()
        if name == "VALID":
            return ((0, 0),) * axes
        if name == "SAME":
            rows = zip(extents, windows, stride, strict=True)
            totals = [max((-(-n // s) - 1) * s + w - n, 0) for n, w, s in rows]
            return tuple((t // 2, t - t // 2) for t in totals)
    elif isinstance(padding, int | np.integer):
        return ((int(padding), int(padding)),) * axes
    else:
        each = (p if isinstance(p, Iterable) else (p, p) for p in padding)
        pairs = [tuple(whole(v, f"padding of {kind}") for v in p) for p in each]
        if len(pairs) == axes and all(len(p) == 2 for p in pairs):
            return tuple((p[0], p[1]) for p in pairs)
    raise ShapeError(
        f"padding {padding!r} is not understood",
        f"in op {kind}, {axes} spatial axes",
        f"pass 'VALID', 'SAME', an int, or {axes} ints or (low, high) pairs",
    )
