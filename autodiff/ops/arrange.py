"""Arrangements written in slices, reshapes and joins: SQUEEZE EXPAND STACK ROLL TILE REPEAT."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import axis_tuple, composite, promote, whole
from autodiff.ops.gather import gather
from autodiff.ops.shape import broadcast_to, concatenate, reshape, slice_
from autodiff.program import Spec
from autodiff.trace import bind

__all__ = ["expand_dims", "repeat", "roll", "squeeze", "stack", "tile"]

# --- SQUEEZE and EXPAND --------------------------------------------------------------------


def _squeeze_spec(x: Spec, *, axis: tuple[int, ...]) -> Spec:
    if any(x.shape[a] != 1 for a in axis):
        raise ShapeError(
            f"cannot drop axes {axis} of shape {x.shape}: not all have extent 1",
            "in op SQUEEZE",
            "name axes of extent 1, or reshape",
        )
    return x.with_shape(tuple(n for i, n in enumerate(x.shape) if i not in axis))


def _squeeze_body(x: Any, *, axis: tuple[int, ...]) -> Any:
    return reshape(x, tuple(n for i, n in enumerate(np.shape(x)) if i not in axis))


def _expand_spec(x: Spec, *, axis: tuple[int, ...]) -> Spec:
    return x.with_shape(_expanded_shape(x.shape, axis))


def _expanded_shape(shape: tuple[int, ...], axis: tuple[int, ...]) -> tuple[int, ...]:
    rest = iter(shape)
    return tuple(1 if i in axis else next(rest) for i in range(len(shape) + len(axis)))


def _expand_body(x: Any, *, axis: tuple[int, ...]) -> Any:
    return reshape(x, _expanded_shape(np.shape(x), axis))


composite("SQUEEZE", _squeeze_body, spec=_squeeze_spec)
composite("EXPAND", _expand_body, spec=_expand_spec)


def squeeze(x: Any, axis: Any = None) -> Any:
    """Axes of extent 1 dropped: the named ones, or all. Raises ShapeError for other extents."""
    if axis is None:
        axis = tuple(i for i, n in enumerate(np.shape(x)) if n == 1)
    axes = axis_tuple(axis, np.ndim(x), "SQUEEZE")
    return bind("SQUEEZE", x, axis=axes) if axes else x


def expand_dims(x: Any, axis: Any) -> Any:
    """Axes of extent 1 put in, so that they stand at the given places of the result."""
    count = len(axis) if isinstance(axis, tuple | list) else 1
    axes = axis_tuple(axis, np.ndim(x) + count, "EXPAND")
    return bind("EXPAND", x, axis=axes) if axes else x


# --- STACK ---------------------------------------------------------------------------------


def _stack_spec(*xs: Spec, axis: int) -> Spec:
    first = xs[0]
    if any(x != first for x in xs):
        raise ShapeError(
            f"cannot stack {', '.join(map(str, xs))}",
            "in op STACK",
            "arrays must have one shape and dtype; to join along an axis use np.concatenate",
        )
    return first.with_shape((*first.shape[:axis], len(xs), *first.shape[axis:]))


def _stack_body(*xs: Any, axis: int) -> Any:
    shape = np.shape(xs[0])
    rows = [reshape(x, (*shape[:axis], 1, *shape[axis:])) for x in xs]
    return concatenate(rows, axis)


composite("STACK", _stack_body, spec=_stack_spec)


def stack(arrays: Any, axis: int = 0) -> Any:
    """Arrays of one shape joined along a new axis; dtypes are promoted.

    Raises ShapeError for an empty sequence or differing shapes.
    """
    values = tuple(arrays)
    if not values:
        raise ShapeError("need at least one array to stack", "in op STACK", "pass [x]")
    values = promote(*values)
    (normal,) = axis_tuple(axis, np.ndim(values[0]) + 1, "STACK")
    return bind("STACK", *values, axis=normal)


# --- ROLL ----------------------------------------------------------------------------------


def _same_spec(x: Spec, *, shift: tuple[int, ...], axis: tuple[int, ...]) -> Spec:
    del shift, axis
    return x


def _roll_body(x: Any, *, shift: tuple[int, ...], axis: tuple[int, ...]) -> Any:
    for by, a in zip(shift, axis, strict=True):
        n = np.shape(x)[a]
        cut = (-by) % n if n else 0
        if cut:
            x = concatenate([_part(x, a, cut, n), _part(x, a, 0, cut)], a)
    return x


def _part(x: Any, axis: int, start: int, stop: int) -> Any:
    shape = np.shape(x)
    low = [start if i == axis else 0 for i in range(len(shape))]
    high = [stop if i == axis else n for i, n in enumerate(shape)]
    return slice_(x, low, high)


composite("ROLL", _roll_body, spec=_same_spec)


def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """Elements moved cyclically: out[(i + shift) mod n] = x[i].

    Arguments: shift and axis: ints or tuples that broadcast together (a repeated axis is moved by
    the sum); axis None rolls the flattened array. The adjoint rolls back.
    """
    if axis is None:
        return reshape(roll(reshape(x, -1), shift, 0), np.shape(x))
    shifts, axes = np.broadcast_arrays(np.asarray(shift), np.asarray(axis))
    total: dict[int, int] = {}
    for s, a in zip(shifts.ravel(), axes.ravel(), strict=True):
        (normal,) = axis_tuple(a, np.ndim(x), "ROLL")
        total[normal] = total.get(normal, 0) + whole(s, "shift of ROLL")
    if not total or 0 in np.shape(x):
        return x
    return bind("ROLL", x, shift=tuple(total.values()), axis=tuple(total))


# --- TILE and REPEAT -----------------------------------------------------------------------


def _tile_spec(x: Spec, *, repeats: tuple[int, ...]) -> Spec:
    if len(repeats) != x.ndim or min(repeats, default=0) < 0:
        raise ShapeError(
            f"cannot tile {x.shape} by {repeats}",
            "in op TILE",
            "give one non-negative count per axis",
        )
    return x.with_shape(tuple(n * r for n, r in zip(x.shape, repeats, strict=True)))


def _tile_body(x: Any, *, repeats: tuple[int, ...]) -> Any:
    shape = np.shape(x)
    split = tuple(e for n in shape for e in (1, n))
    full = tuple(e for n, r in zip(shape, repeats, strict=True) for e in (r, n))
    out = tuple(n * r for n, r in zip(shape, repeats, strict=True))
    return reshape(broadcast_to(reshape(x, split), full), out)


composite("TILE", _tile_body, spec=_tile_spec)


def tile(x: Any, repeats: Any) -> Any:
    """The array put side by side with itself, as `np.tile`; the adjoint sums the copies.

    Arguments: repeats: an int or one count per axis, aligned at the last axis.
    """
    counts = tuple(repeats) if isinstance(repeats, Iterable) else (repeats,)
    counts = tuple(whole(c, "repeats of TILE") for c in counts)
    counts = (1,) * (np.ndim(x) - len(counts)) + counts
    x = reshape(x, (1,) * (len(counts) - np.ndim(x)) + np.shape(x))
    return x if set(counts) <= {1} else bind("TILE", x, repeats=counts)


def _repeat_spec(x: Spec, *, repeats: int | tuple[int, ...], axis: int) -> Spec:
    n = x.shape[axis]
    counts = (repeats,) * n if isinstance(repeats, int) else repeats
    if len(counts) != n or min(counts, default=0) < 0:
        raise ShapeError(
            f"repeats {repeats} do not fit axis {axis} of shape {x.shape}",
            "in op REPEAT",
            "give one non-negative count, or one for each element of the axis",
        )
    return x.with_shape((*x.shape[:axis], sum(counts), *x.shape[axis + 1 :]))


def _repeat_body(x: Any, *, repeats: int | tuple[int, ...], axis: int) -> Any:
    shape = np.shape(x)
    if isinstance(repeats, int):
        split = (*shape[: axis + 1], 1, *shape[axis + 1 :])
        full = (*shape[: axis + 1], repeats, *shape[axis + 1 :])
        out = (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :])
        return reshape(broadcast_to(reshape(x, split), full), out)
    return gather(x, np.repeat(np.arange(shape[axis]), repeats), axis)


composite("REPEAT", _repeat_body, spec=_repeat_spec)


def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """Each element repeated, as `np.repeat`; the adjoint sums the copies.

    Arguments: repeats: a count, or one for each element of the axis; axis None ravels x first.
    """
    if axis is None:
        x, axis = reshape(x, -1), 0
    (axis,) = axis_tuple(axis, np.ndim(x), "REPEAT")
    counts = [whole(c, "repeats of REPEAT") for c in np.asarray(repeats).ravel()]
    static = counts[0] if len(counts) == 1 else tuple(counts)
    return bind("REPEAT", x, repeats=static, axis=axis)
