"""np.pad with what is computed from the array: statistics of its ends, ramps, odd reflections."""

from collections.abc import Callable
from typing import Any

import numpy as np

from autodiff import ops
from autodiff.errors import ShapeError

Pairs = list[tuple[Any, Any]]
_STATISTICS: dict[str, Callable[..., Any]] = {
    "mean": lambda x, axis: np.mean(x, axis=axis, keepdims=True),
    "maximum": lambda x, axis: np.max(x, axis=axis, keepdims=True),
    "minimum": lambda x, axis: np.min(x, axis=axis, keepdims=True),
    "median": lambda x, axis: np.median(x, axis=axis, keepdims=True),
}
COMPUTED = (*_STATISTICS, "linear_ramp")


def computed(x: Any, pad_width: Any, mode: Any, options: dict[str, Any]) -> Any | None:
    """The padded array, axis by axis as NumPy does it; None for another mode or option."""
    known = {"linear_ramp": {"end_values"}, **{m: {"stat_length"} for m in _STATISTICS}}
    known |= {"reflect": {"reflect_type"}, "symmetric": {"reflect_type"}}
    if not isinstance(mode, str) or mode not in known or set(options) - known[mode]:
        return None
    rank = np.ndim(x)
    widths = _pairs(pad_width, rank)
    given = next(iter(options.values()), 0 if mode == "linear_ramp" else None)
    odd = mode in ("reflect", "symmetric")
    if odd and given != "odd":
        return None
    values: Pairs = [("odd", "odd")] * rank if odd else _pairs(given, rank)
    for axis, (width, pair) in enumerate(zip(widths, values, strict=True)):
        if not any(width):
            continue
        if not np.shape(x)[axis]:
            raise ShapeError(
                f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'",
                f"in np.pad, operand of shape {np.shape(x)}",
                "pad with mode='constant'",
            )
        x = (_reflected if odd else _extended)(x, axis, width, pair, mode)
    return x


def _pairs(given: Any, rank: int) -> Pairs:
    """(before, after) for each axis, from NumPy's shorthands."""
    if given is None:
        return [(None, None)] * rank
    if isinstance(given, dict):
        full = dict.fromkeys(range(rank), (0, 0)) | {
            axis % rank: tuple(np.broadcast_to(v, 2)) for axis, v in given.items()
        }
        return [full[axis] for axis in range(rank)]
    return [(a, b) for a, b in np.broadcast_to(np.asarray(given), (rank, 2)).tolist()]


def _extended(x: Any, axis: int, width: Any, pair: Any, mode: str) -> Any:
    parts = []
    for side in (0, 1):
        if mode == "linear_ramp":
            parts.append(_ramp(x, axis, int(width[side]), pair[side], side))
            continue
        n = np.shape(x)[axis]
        taken = n if pair[side] is None else min(int(pair[side]), n)
        if taken < 1:
            raise ShapeError(
                "stat_length of 0 yields no value for padding",
                f"in np.pad, mode={mode!r}",
                "take one element or more: stat_length=1",
            )
        edge = _cut(x, axis, *((0, taken) if side == 0 else (n - taken, n)))
        value = _STATISTICS[mode](edge, axis)
        if x.dtype.kind in "iu" and value.dtype.kind == "f":
            value = ops.cast(ops.round(value), x.dtype)
        shape = (*np.shape(x)[:axis], int(width[side]), *np.shape(x)[axis + 1 :])
        parts.append(np.broadcast_to(value, shape))
    return np.concatenate([parts[0], x, parts[1]], axis=axis)


def _cut(x: Any, axis: int, start: int, stop: int, step: int = 1) -> Any:
    return x[(*(slice(None),) * axis, slice(start, stop, step))]


def _ramp(x: Any, axis: int, width: int, end: Any, side: int) -> Any:
    """Even steps from the end value to the edge, the edge itself left out."""
    n = np.shape(x)[axis]
    edge = _cut(x, axis, *((0, 1) if side == 0 else (n - 1, n)))
    kind = x.dtype if x.dtype.kind not in "iu" else np.dtype(np.float64)
    share = np.arange(width) / max(width, 1)
    share = (share if side == 0 else share[::-1]).reshape(-1, *(1,) * (np.ndim(x) - 1 - axis))
    ramp = end + (edge - end) * share.astype(kind)
    return ops.cast(ops.floor(ramp), x.dtype) if x.dtype.kind in "iu" else ops.cast(ramp, x.dtype)


def _reflected(x: Any, axis: int, width: Any, pair: Any, mode: str) -> Any:
    """2 edge - x mirrored, as often as the width needs."""
    del pair
    before, after = map(int, width)
    skip = 1 if mode == "reflect" else 0
    if np.shape(x)[axis] == 1 and skip:
        one = [(0, 0)] * np.ndim(x)
        one[axis] = (before, after)
        return np.pad(x, one, mode="edge")
    while before or after:
        n = np.shape(x)[axis]
        room = n - skip
        left, right = min(before, room), min(after, room)
        first, last = _cut(x, axis, 0, 1), _cut(x, axis, n - 1, n)
        head = np.flip(_cut(x, axis, skip, skip + left), axis)
        tail = np.flip(_cut(x, axis, n - skip - right, n - skip), axis)
        x = np.concatenate([2 * first - head, x, 2 * last - tail], axis=axis)
        before, after = before - left, after - right
    return x
