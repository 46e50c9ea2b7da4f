"""Parts of arrays and joins of them: SLICE PAD REVERSE CONCAT SPLIT."""

import builtins
import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import axis_tuple, batch_leading, linear, promote, whole, zeros_for
from autodiff.kernels import shape as kernels
from autodiff.op import Op, define
from autodiff.ops.layout import broadcast_to, normal_axes, reshape, sum_to, transpose
from autodiff.program import Spec
from autodiff.reverse import Undefined
from autodiff.trace import bind

__all__ = [
    "broadcast_to",
    "concatenate",
    "normal_axes",
    "pad",
    "reshape",
    "reverse",
    "slice_",
    "split",
    "sum_to",
    "transpose",
]

# --- SLICE and PAD -------------------------------------------------------------------------


def strided_extent(start: int, stop: int, stride: int) -> int:
    """How many elements start, start + stride, ... lie below stop."""
    return max(0, -((start - stop) // stride))


def _slice_spec(
    x: Spec, *, start: tuple[int, ...], stop: tuple[int, ...], stride: tuple[int, ...]
) -> Spec:
    ok = len(start) == len(stop) == len(stride) == x.ndim and all(
        0 <= a <= b <= n and s >= 1 for a, b, s, n in zip(start, stop, stride, x.shape, strict=True)
    )
    if not ok:
        raise ShapeError(
            f"cannot slice {x.shape} from {start} to {stop} by {stride}",
            "in op SLICE",
            "give one start, stop and stride >= 1 per axis, 0 <= start <= stop <= extent",
        )
    return x.with_shape(tuple(map(strided_extent, start, stop, stride)))


def _slice_transpose(
    ct: Any,
    inputs: Any,
    *,
    start: tuple[int, ...],
    stop: tuple[int, ...],
    stride: tuple[int, ...],
) -> tuple[Any, ...]:
    del stop
    high = tuple(
        n - a - (m - 1) * s - 1 if m else n - a
        for n, a, m, s in zip(inputs[0].shape, start, np.shape(ct), stride, strict=True)
    )
    gaps = tuple(s - 1 for s in stride)
    return (bind("PAD", ct, low=start, high=high, interior=gaps, value=0.0),)


def _slice_batch(
    size: int,
    args: Any,
    batched: Any,
    *,
    start: tuple[int, ...],
    stop: tuple[int, ...],
    stride: tuple[int, ...],
) -> Any:
    del batched
    out = bind("SLICE", args[0], start=(0, *start), stop=(size, *stop), stride=(1, *stride))
    return out, True


linear(
    "SLICE",
    kernels.slice_,
    spec=_slice_spec,
    transpose=_slice_transpose,
    batch=_slice_batch,
    jax="rules:slice_",
)


def slice_(x: Any, start: Any, stop: Any, stride: Any = None) -> Any:
    """Elements start, start + stride, ... below stop along every axis.

    out[k] = x[start + k stride].

    Arguments: x of shape (n_1, ..., n_r); start, stop, stride: an int per axis, or one int for all;
    0 <= start <= stop <= n, stride >= 1 (1 by default).
    Returns the elements, of x's dtype. Linear; the adjoint is `pad` with interior gaps.
    Raises ShapeError for bounds outside the array.
    """
    start, stop = per_axis(start, x, "start"), per_axis(stop, x, "stop")
    stride = per_axis(1 if stride is None else stride, x, "stride")
    if start == (0,) * len(start) and stop == np.shape(x) and set(stride) <= {1}:
        return x
    return bind("SLICE", x, start=start, stop=stop, stride=stride)


def per_axis(value: Any, x: Any, what: str) -> tuple[int, ...]:
    """One int per axis of x, from a sequence or from an int for all axes."""
    n = np.ndim(x)
    given = value if isinstance(value, Iterable) else (value,) * n
    result = tuple([whole(v, what) for v in given])
    if len(result) != n:
        raise ShapeError(
            f"{what} {result} has {len(result)} entries for {n} axes",
            f"operand of shape {np.shape(x)}",
            "give one entry per axis, or one int for all",
        )
    return result


def _pad_spec(
    x: Spec,
    *,
    low: tuple[int, ...],
    high: tuple[int, ...],
    interior: tuple[int, ...],
    value: float,
) -> Spec:
    del value
    ok = len(low) == len(high) == len(interior) == x.ndim
    if not ok or min((*low, *high, *interior), default=0) < 0:
        raise ShapeError(
            f"cannot pad {x.shape} by low {low}, high {high}, interior {interior}",
            "in op PAD",
            "give one non-negative width per axis; to remove elements, slice",
        )
    return x.with_shape(
        tuple(
            a + n + max(n - 1, 0) * g + b
            for n, a, b, g in zip(x.shape, low, high, interior, strict=True)
        )
    )


def _pad_jvp(primals: Any, tangents: Any, y: Any, **params: Any) -> Any:
    del primals, y
    return bind("PAD", tangents[0], **{**params, "value": 0.0})


def _pad_transpose(
    ct: Any,
    inputs: Any,
    *,
    low: tuple[int, ...],
    high: tuple[int, ...],
    interior: tuple[int, ...],
    value: float,
) -> tuple[Any, ...]:
    del high, value
    shape = inputs[0].shape
    stride = tuple(g + 1 for g in interior)
    stop = tuple(
        a + (n - 1) * s + 1 if n else a for n, a, s in zip(shape, low, stride, strict=True)
    )
    return (bind("SLICE", ct, start=low, stop=stop, stride=stride),)


def _pad_batch(
    size: int,
    args: Any,
    batched: Any,
    *,
    low: tuple[int, ...],
    high: tuple[int, ...],
    interior: tuple[int, ...],
    value: float,
) -> Any:
    del size, batched
    out = bind("PAD", args[0], low=(0, *low), high=(0, *high), interior=(0, *interior), value=value)
    return out, True


define(
    Op(
        "PAD",
        _pad_spec,
        impl=kernels.pad,
        jvp=_pad_jvp,
        transpose=_pad_transpose,
        batch=_pad_batch,
        jax="rules:pad",
    )
)


def pad(x: Any, low: Any, high: Any, interior: Any = 0, value: Any = 0.0) -> Any:
    """The array with `low` elements put before it, `high` after it and `interior` between any two.

    Arguments: x of shape (n_1, ..., n_r); low, high, interior: an int per axis, or one for all,
    non-negative; value: the number put there, held fixed (converted to x's dtype).
    Returns an array of extents low + n + max(n - 1, 0) interior + high.
    Affine; the adjoint is `slice_` with stride interior + 1. For other modes use `np.pad`.
    Raises ShapeError for negative widths.
    """
    widths = [
        per_axis(w, x, name) for w, name in ((low, "low"), (high, "high"), (interior, "interior"))
    ]
    if not any(w for width in widths for w in width):
        return x
    low, high, interior = widths
    return bind("PAD", x, low=low, high=high, interior=interior, value=scalar(value))


def scalar(value: Any) -> Any:
    """A static number as a plain Python scalar."""
    return value.item() if isinstance(value, np.ndarray | np.generic) else value


# --- REVERSE -------------------------------------------------------------------------------


def _reverse_spec(x: Spec, *, axis: tuple[int, ...]) -> Spec:
    axis_tuple(axis, x.ndim, "REVERSE")
    return x


def _reverse_transpose(ct: Any, inputs: Any, *, axis: tuple[int, ...]) -> tuple[Any, ...]:
    del inputs
    return (bind("REVERSE", ct, axis=axis),)


linear(
    "REVERSE",
    np.flip,
    spec=_reverse_spec,
    transpose=_reverse_transpose,
    batch=batch_leading("REVERSE", shift=("axis",)),
    jax="jnp.flip",
)


def reverse(x: Any, axis: Any = None) -> Any:
    """The order of elements reversed along axes (all by default); its own adjoint."""
    axes = axis_tuple(axis, np.ndim(x), "REVERSE")
    return bind("REVERSE", x, axis=axes) if axes else x


# --- CONCAT and SPLIT ----------------------------------------------------------------------


def _concat_spec(*xs: Spec, axis: int) -> Spec:
    first = xs[0]
    same = all(
        x.dtype == first.dtype
        and x.ndim == first.ndim > axis
        and x.shape[:axis] + x.shape[axis + 1 :] == first.shape[:axis] + first.shape[axis + 1 :]
        for x in xs
    )
    if not same:
        raise ShapeError(
            f"cannot join {', '.join(map(str, xs))} along axis {axis}",
            "in op CONCAT",
            "operands need one dtype and equal extents on every other axis",
        )
    extent = builtins.sum(x.shape[axis] for x in xs)
    return first.with_shape((*first.shape[:axis], extent, *first.shape[axis + 1 :]))


def _concat_jvp(primals: Any, tangents: Any, y: Any, *, axis: int) -> Any:
    del y
    full = [zeros_for(t, p) for t, p in zip(tangents, primals, strict=True)]
    return bind("CONCAT", *full, axis=axis)


def _concat_transpose(ct: Any, inputs: Any, *, axis: int) -> tuple[Any, ...]:
    sizes = tuple(
        np.shape(x)[axis] if not isinstance(x, Undefined) else x.shape[axis] for x in inputs
    )
    wanted = [isinstance(x, Undefined) for x in inputs]
    if builtins.sum(wanted) > 1:
        parts = bind("SPLIT", ct, sizes=sizes, axis=axis)
        return tuple(p if w else None for p, w in zip(parts, wanted, strict=True))
    starts = np.cumsum((0, *sizes))
    return tuple(
        _span(ct, axis, int(a), int(a) + n) if w else None
        for a, n, w in zip(starts, sizes, wanted, strict=False)
    )


def _span(x: Any, axis: int, start: int, stop: int) -> Any:
    """Elements start to stop along one axis."""
    shape = np.shape(x)
    low = tuple(start if i == axis else 0 for i in range(len(shape)))
    high = tuple(stop if i == axis else n for i, n in enumerate(shape))
    return slice_(x, low, high)


def _concat_batch(size: int, args: Any, batched: Any, *, axis: int) -> Any:
    full = [
        a if b else broadcast_to(a, (size, *np.shape(a)))
        for a, b in zip(args, batched, strict=True)
    ]
    return bind("CONCAT", *full, axis=axis + 1), True


define(
    Op(
        "CONCAT",
        _concat_spec,
        impl=kernels.concat,
        jvp=_concat_jvp,
        transpose=_concat_transpose,
        batch=_concat_batch,
        jax="rules:concat",
    )
)


def concatenate(arrays: Any, axis: int | None = 0) -> Any:
    """Arrays joined end to end along an existing axis.

    Arguments: a sequence of at least one array, of equal shapes but for `axis`; axis None ravels
    them first. Dtypes are promoted. Returns one array. The adjoint splits the cotangent.
    Raises ShapeError for shapes that do not fit.
    """
    if not len(arrays):
        raise ShapeError("need at least one array to concatenate", "in op CONCAT", "pass [x]")
    values = list(promote(*arrays))
    if axis is None:
        values, axis = [reshape(v, -1) for v in values], 0
    (normal,) = axis_tuple(axis, np.ndim(values[0]), "CONCAT")
    return values[0] if len(values) == 1 else bind("CONCAT", *values, axis=normal)


def _split_spec(x: Spec, *, sizes: tuple[int, ...], axis: int) -> tuple[Spec, ...]:
    if not 0 <= axis < x.ndim or builtins.sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        raise ShapeError(
            f"cannot split {x.shape} along axis {axis} into parts of {sizes}",
            "in op SPLIT",
            "the sizes must be non-negative and add up to the extent of the axis",
        )
    return tuple(x.with_shape((*x.shape[:axis], n, *x.shape[axis + 1 :])) for n in sizes)


def _split_jvp(primals: Any, tangents: Any, ys: Any, *, sizes: tuple[int, ...], axis: int) -> Any:
    del primals, ys
    return bind("SPLIT", tangents[0], sizes=sizes, axis=axis)


def _split_transpose(
    cts: Any, inputs: Any, *, sizes: tuple[int, ...], axis: int
) -> tuple[Any, ...]:
    (x,) = inputs
    specs = _split_spec(x.spec, sizes=sizes, axis=axis)
    full = [np.zeros(s.shape, s.dtype) if c is None else c for c, s in zip(cts, specs, strict=True)]
    return (concatenate(full, axis),)


define(
    Op(
        "SPLIT",
        _split_spec,
        impl=kernels.split,
        jvp=_split_jvp,
        transpose=_split_transpose,
        batch=batch_leading("SPLIT", shift=("axis",), multiple=True),
        outputs=0,
        jax="rules:split",
    )
)


def split(x: Any, sections: Any, axis: int = 0) -> tuple[Any, ...]:
    """The array cut into parts along an axis; the adjoint joins the cotangents.

    Arguments: sections: the number of equal parts, or the sorted positions to cut at (as
    `np.split`). Returns a tuple of arrays. Raises ShapeError where equal parts do not fit.
    """
    (axis,) = axis_tuple(axis, np.ndim(x), "SPLIT")
    extent = np.shape(x)[axis]
    if isinstance(sections, int | np.integer):
        if sections < 1 or extent % sections:
            raise ShapeError(
                f"cannot split an extent of {extent} into {sections} equal parts",
                f"in op SPLIT, axis {axis} of shape {np.shape(x)}",
                "use np.array_split, or give the positions to cut at",
            )
        sizes: tuple[int, ...] = (extent // int(sections),) * int(sections)
    else:
        cuts = [0, *(slice(None, int(p)).indices(extent)[1] for p in sections), extent]
        if cuts != sorted(cuts):
            return tuple(_span(x, axis, a, max(a, b)) for a, b in itertools.pairwise(cuts))
        sizes = tuple(b - a for a, b in itertools.pairwise(cuts))
    return tuple(bind("SPLIT", x, sizes=sizes, axis=axis))
