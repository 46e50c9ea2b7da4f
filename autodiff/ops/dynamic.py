"""Windows at run-time positions: DYNAMIC_SLICE and DYNAMIC_UPDATE_SLICE, clamped as jax.lax."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import promote, zeros_for
from autodiff.kernels import dynamic as kernels
from autodiff.op import Op, define
from autodiff.ops.elementwise import cast, where
from autodiff.ops.shape import broadcast_to, per_axis, reshape
from autodiff.program import Spec
from autodiff.reverse import Undefined
from autodiff.trace import bind

__all__ = ["dynamic_slice", "dynamic_update_slice"]

# --- DYNAMIC_SLICE -------------------------------------------------------------------------


def _check_window(kind: str, x: Spec, sizes: tuple[int, ...], starts: tuple[Spec, ...]) -> None:
    fits = len(sizes) == x.ndim and all(0 <= m <= n for m, n in zip(sizes, x.shape, strict=False))
    if not fits:
        raise ShapeError(
            f"a window of {sizes} does not fit into an array of {x.shape}",
            f"in op {kind}",
            "give one size per axis, at most its extent",
        )
    if len(starts) != x.ndim or any(s.shape != () or s.dtype.kind not in "iu" for s in starts):
        raise ShapeError(
            f"starts are {', '.join(map(str, starts)) or 'missing'} for {x.ndim} axes",
            f"in op {kind}",
            "give one integer scalar per axis",
        )


def _dynamic_slice_spec(x: Spec, *starts: Spec, sizes: tuple[int, ...]) -> Spec:
    _check_window("DYNAMIC_SLICE", x, sizes, starts)
    return x.with_shape(sizes)


def _dynamic_slice_jvp(primals: Any, tangents: Any, y: Any, *, sizes: tuple[int, ...]) -> Any:
    del y
    return bind("DYNAMIC_SLICE", tangents[0], *primals[1:], sizes=sizes)


def _dynamic_slice_transpose(ct: Any, inputs: Any, *, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    del sizes
    x, *starts = inputs
    zeros = np.zeros(x.shape, x.dtype)
    return (bind("DYNAMIC_UPDATE_SLICE", zeros, ct, *starts), *(None,) * len(starts))


def _window_indices(starts: Any, shape: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """Integer arrays that select the clamped windows of one example."""
    rank = len(shape)
    indices = []
    for i, (s, n, m) in enumerate(zip(starts, shape, sizes, strict=True)):
        s = cast(s, np.int64)
        s = where(s < 0, s + np.int64(n), s)
        s = where(s < 0, np.int64(0), s)
        s = where(s > n - m, np.int64(n - m), s)
        indices.append(s + np.arange(m).reshape((m, *(1,) * (rank - 1 - i))))
    return tuple(indices)


def _dynamic_slice_batch(size: int, args: Any, batched: Any, *, sizes: tuple[int, ...]) -> Any:
    (x, *starts), (x_flag, *flags) = args, batched
    if not any(flags):
        start = (np.zeros((), np.int64), *starts)
        return bind("DYNAMIC_SLICE", x, *start, sizes=(size, *sizes)), True
    shape = np.shape(x)[1:] if x_flag else np.shape(x)
    spread = [_spread(s, f, size, len(shape)) for s, f in zip(starts, flags, strict=True)]
    indices = _window_indices(spread, shape, sizes)
    if x_flag:
        indices = (np.arange(size).reshape((size, *(1,) * len(shape))), *indices)
    return bind("GATHER", x, *indices, axis=0), True


def _spread(start: Any, flag: bool, size: int, rank: int) -> Any:
    """A start per example as an array that broadcasts over the window."""
    return reshape(start, (size, *(1,) * rank)) if flag else start


define(
    Op(
        "DYNAMIC_SLICE",
        _dynamic_slice_spec,
        impl=kernels.dynamic_slice,
        jvp=_dynamic_slice_jvp,
        transpose=_dynamic_slice_transpose,
        batch=_dynamic_slice_batch,
        jax="rules:dynamic_slice",
    )
)


def dynamic_slice(x: Any, starts: Any, sizes: Any) -> Any:
    """A window of static size at a position that may be traced.

    out[k] = x[s + k] with s = min(max(start, 0), n - size), where a negative start is first counted
    from the end of its axis: as in `jax.lax.dynamic_slice`, a window that would run past an end is
    moved inside, and the derivative with it.

    Arguments: x of rank r; starts: r integer scalars, traced or not; sizes: r ints.
    Returns an array of shape sizes. Linear in x.
    Raises ShapeError for sizes that do not fit.
    """
    return bind("DYNAMIC_SLICE", x, *_starts(starts), sizes=per_axis(sizes, x, "sizes"))


def _starts(starts: Any) -> list[Any]:
    """Start positions as integer scalars."""
    if hasattr(starts, "shape") and np.ndim(starts) == 1:
        starts = [starts[i] for i in range(np.shape(starts)[0])]
    return [s if hasattr(s, "dtype") else np.asarray(s, np.int64) for s in starts]


# --- DYNAMIC_UPDATE_SLICE ------------------------------------------------------------------


def _dynamic_update_spec(x: Spec, update: Spec, *starts: Spec) -> Spec:
    _check_window("DYNAMIC_UPDATE_SLICE", x, update.shape, starts)
    if x.dtype != update.dtype:
        raise ShapeError(
            f"the update is {update.dtype.name}, the array {x.dtype.name}",
            "in op DYNAMIC_UPDATE_SLICE",
            "convert the update with astype",
        )
    return x


def _dynamic_update_jvp(primals: Any, tangents: Any, y: Any) -> Any:
    del y
    x, update, *starts = primals
    tx, tu, *_ = tangents
    return bind("DYNAMIC_UPDATE_SLICE", zeros_for(tx, x), zeros_for(tu, update), *starts)


def _dynamic_update_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    x, update, *starts = inputs
    left = right = None
    if isinstance(x, Undefined):
        nothing = np.zeros(update.shape, ct.dtype)
        left = bind("DYNAMIC_UPDATE_SLICE", ct, nothing, *starts)
    if isinstance(update, Undefined):
        right = bind("DYNAMIC_SLICE", ct, *starts, sizes=tuple(update.shape))
    return (left, right, *(None,) * len(starts))


def _dynamic_update_batch(size: int, args: Any, batched: Any) -> Any:
    (x, update, *starts), (x_flag, u_flag, *flags) = args, batched
    x = x if x_flag else broadcast_to(x, (size, *np.shape(x)))
    update = update if u_flag else broadcast_to(update, (size, *np.shape(update)))
    if not any(flags):
        return bind("DYNAMIC_UPDATE_SLICE", x, update, np.zeros((), np.int64), *starts), True
    shape = np.shape(x)[1:]
    spread = [_spread(s, f, size, len(shape)) for s, f in zip(starts, flags, strict=True)]
    rows = np.arange(size).reshape((size, *(1,) * len(shape)))
    indices = _window_indices(spread, shape, np.shape(update)[1:])
    return bind("SCATTER", x, update, rows, *indices, axis=0), True


define(
    Op(
        "DYNAMIC_UPDATE_SLICE",
        _dynamic_update_spec,
        impl=kernels.dynamic_update_slice,
        jvp=_dynamic_update_jvp,
        transpose=_dynamic_update_transpose,
        batch=_dynamic_update_batch,
        jax="rules:dynamic_update_slice",
    )
)


def dynamic_update_slice(x: Any, update: Any, starts: Any) -> Any:
    """A copy of x with the window at `starts`, clamped as in `dynamic_slice`, replaced by `update`.

    Linear in x and update: the overwritten elements of x have derivative 0.
    """
    x, update = promote(x, update)
    return bind("DYNAMIC_UPDATE_SLICE", x, update, *_starts(starts))
