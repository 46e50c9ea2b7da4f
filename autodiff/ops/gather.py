"""Gather and scatter: adjacent axes indexed by integer arrays that broadcast together.

GATHER is `x[:, ..., :, i_1, ..., i_k]` with `axis` full slices in front; SCATTER assigns to that
expression and SCATTER_ADD adds to it. Every NumPy index expression comes down to slices and one
of these.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff.errors import IndexingError, ShapeError
from autodiff.families import axis_tuple, promote, zeros_for
from autodiff.kernels import gather as kernels
from autodiff.op import Op, define
from autodiff.ops.elementwise import cast, where
from autodiff.ops.shape import broadcast_to, reshape, transpose
from autodiff.program import Spec
from autodiff.reverse import Undefined
from autodiff.trace import bind

__all__ = ["gather", "scatter"]

# --- GATHER --------------------------------------------------------------------------------


def _gather_spec(x: Spec, *indices: Spec, axis: int) -> Spec:
    return x.with_shape(gathered_shape("GATHER", x.shape, indices, axis))


def gathered_shape(
    kind: str, shape: tuple[int, ...], indices: Sequence[Spec], axis: int
) -> tuple[int, ...]:
    """Shape of x[:, ..., i_1, ..., i_k] with `axis` full slices in front."""
    ok = indices and 0 <= axis and axis + len(indices) <= len(shape)
    if not ok or any(i.dtype.kind not in "iu" for i in indices):
        raise ShapeError(
            f"{kind} cannot index axes {axis} to {axis + len(indices) - 1} of an array of shape "
            f"{shape} by {', '.join(map(str, indices)) or 'nothing'}",
            f"in op {kind}",
            "give integer arrays, one per indexed axis",
        )
    try:
        inner = np.broadcast_shapes(*(i.shape for i in indices))
    except ValueError:
        raise IndexingError(
            f"index arrays do not broadcast: {', '.join(str(i.shape) for i in indices)}",
            f"in op {kind}",
            "reshape them, or use np.ix_ for an outer selection",
        ) from None
    return (*shape[:axis], *inner, *shape[axis + len(indices) :])


def _gather_jvp(primals: Any, tangents: Any, y: Any, *, axis: int) -> Any:
    del y
    return None if tangents[0] is None else bind("GATHER", tangents[0], *primals[1:], axis=axis)


def _gather_transpose(ct: Any, inputs: Any, *, axis: int) -> tuple[Any, ...]:
    x, *indices = inputs
    zeros = np.zeros(x.shape, x.dtype)
    return (bind("SCATTER_ADD", zeros, ct, *indices, axis=axis), *(None,) * len(indices))


def _batched_indices(
    size: int, indices: Sequence[Any], flags: Sequence[bool], rank: int
) -> tuple[Any, ...]:
    """Index arrays with the batch axis leading and aligned, preceded by the batch's own index."""
    row = np.arange(size).reshape((size, *(1,) * rank))
    aligned = [
        reshape(i, (size, *(1,) * (rank - np.ndim(i) + 1), *np.shape(i)[1:])) if f else i
        for i, f in zip(indices, flags, strict=True)
    ]
    return (row, *aligned)


def index_rank(indices: Sequence[Any], flags: Sequence[bool]) -> int:
    """Rank of the broadcast index arrays of one example."""
    return max(np.ndim(i) - f for i, f in zip(indices, flags, strict=True))


def _gather_batch(size: int, args: Any, batched: Any, *, axis: int) -> Any:
    (x, *indices), (x_flag, *flags) = args, batched
    if not any(flags):
        return bind("GATHER", x, *indices, axis=axis + 1), True
    rank = index_rank(indices, flags)
    full = _batched_indices(size, indices, flags, rank)
    if not x_flag:
        # one array for all examples: the batch axis becomes an axis of the index
        out = bind("GATHER", x, *full[1:], axis=axis)
        return _to_front(out, axis), True
    x = _from_front(x, axis)
    out = bind("GATHER", x, *full, axis=axis)
    return _to_front(out, axis), True


def _to_front(x: Any, axis: int) -> Any:
    """Axis `axis` moved to the front."""
    rest = (i for i in range(np.ndim(x)) if i != axis)
    return transpose(x, (axis, *rest))


def _from_front(x: Any, axis: int) -> Any:
    """The first axis moved to position `axis`."""
    order = list(range(1, np.ndim(x)))
    return transpose(x, (*order[:axis], 0, *order[axis:]))


define(
    Op(
        "GATHER",
        _gather_spec,
        impl=kernels.gather,
        jvp=_gather_jvp,
        transpose=_gather_transpose,
        batch=_gather_batch,
        jax="rules:gather",
    )
)

# --- SCATTER and SCATTER_ADD ---------------------------------------------------------------


def _scatter_spec(x: Spec, updates: Spec, *indices: Spec, axis: int) -> Spec:
    shape = gathered_shape("SCATTER", x.shape, indices, axis)
    if updates.shape != shape or updates.dtype != x.dtype:
        raise ShapeError(
            f"updates are {updates}, the indices select {x.with_shape(shape)}",
            "in op SCATTER",
            "broadcast the updates with np.broadcast_to and convert them with astype",
        )
    return x


def _scatter_batch(kind: str) -> Any:
    def batch(size: int, args: Any, batched: Any, *, axis: int) -> Any:
        (x, updates, *indices), (x_flag, u_flag, *flags) = args, batched
        x = x if x_flag else broadcast_to(x, (size, *np.shape(x)))
        updates = updates if u_flag else broadcast_to(updates, (size, *np.shape(updates)))
        if not any(flags):
            return bind(kind, x, updates, *indices, axis=axis + 1), True
        rank = index_rank(indices, flags)
        full = _batched_indices(size, indices, flags, rank)
        out = bind(kind, _from_front(x, axis), _from_front(updates, axis), *full, axis=axis)
        return _to_front(out, axis), True

    return batch


def _scatter_add_jvp(primals: Any, tangents: Any, y: Any, *, axis: int) -> Any:
    del y
    x, _, *indices = primals
    tx, tu, *_ = tangents
    if tu is None:
        return tx
    return bind("SCATTER_ADD", zeros_for(tx, x), tu, *indices, axis=axis)


def _scatter_add_transpose(ct: Any, inputs: Any, *, axis: int) -> tuple[Any, ...]:
    x, updates, *indices = inputs
    left = ct if isinstance(x, Undefined) else None
    right = bind("GATHER", ct, *indices, axis=axis) if isinstance(updates, Undefined) else None
    return (left, right, *(None,) * len(indices))


define(
    Op(
        "SCATTER_ADD",
        _scatter_spec,
        impl=kernels.scatter_add,
        jvp=_scatter_add_jvp,
        transpose=_scatter_add_transpose,
        batch=_scatter_batch("SCATTER_ADD"),
        jax="rules:scatter_add",
    )
)


def _scatter_jvp(primals: Any, tangents: Any, y: Any, *, axis: int) -> Any:
    del y
    x, updates, *indices = primals
    tx, tu, *_ = tangents
    return bind("SCATTER", zeros_for(tx, x), zeros_for(tu, updates), *indices, axis=axis)


def _scatter_transpose(ct: Any, inputs: Any, *, axis: int) -> tuple[Any, ...]:
    x, updates, *indices = inputs
    left = right = None
    if isinstance(x, Undefined):
        nothing = np.zeros(updates.shape, ct.dtype)
        left = bind("SCATTER", ct, nothing, *indices, axis=axis)
    if isinstance(updates, Undefined):
        picked = bind("GATHER", ct, *indices, axis=axis)
        shape, rest = np.shape(ct), np.ndim(ct) - axis - len(indices)
        last = _winners(shape[axis : axis + len(indices)], indices)
        mask = reshape(last, (*np.shape(last), *(1,) * rest))
        right = where(mask, picked, np.zeros((), ct.dtype))
    return (left, right, *(None,) * len(indices))


def _winners(extents: tuple[int, ...], indices: Sequence[Any]) -> Any:
    """Mask of the index tuples that no later equal one overwrites."""
    shape = np.broadcast_shapes(*(np.shape(i) for i in indices))
    order = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)
    blank = np.zeros(extents, np.int64)
    stored = bind("SCATTER", blank, order, *indices, axis=0)
    return bind("COMPARE", bind("GATHER", stored, *indices, axis=0), order, direction="EQ")


define(
    Op(
        "SCATTER",
        _scatter_spec,
        impl=kernels.scatter,
        jvp=_scatter_jvp,
        transpose=_scatter_transpose,
        batch=_scatter_batch("SCATTER"),
        jax="rules:scatter",
    )
)


def gather(x: Any, indices: Any, axis: int = 0, mode: str = "raise") -> Any:
    """Slices of x at integer positions of one axis: `np.take(x, indices, axis)`.

    out[..., j..., ...] = x[..., indices[j...], ...], the axes of `indices` standing in the place of
    `axis`.

    Arguments: x; indices: integers of any shape, traced or not, negative ones counted from the end;
    mode: "raise" refuses others (when evaluated, for traced indices), "clip" moves them to the
    nearest end (negative ones to 0), "wrap" counts around.
    Linear in x; the adjoint is SCATTER_ADD: an element taken twice collects both cotangents.
    Raises IndexingError for known indices outside the axis.
    """
    (axis,) = axis_tuple(axis, np.ndim(x), "GATHER")
    n = np.shape(x)[axis]
    return bind("GATHER", x, bounded(indices, n, axis, mode), axis=axis)


def bounded(indices: Any, n: int, axis: int, mode: str) -> Any:
    """Indices brought into an axis of extent n as the mode says."""
    if not hasattr(indices, "dtype"):
        indices = np.asarray(indices)
        if not indices.size or indices.dtype == np.bool_:  # an empty list is of floats
            indices = indices.astype(np.int64)
    if indices.dtype.kind not in "iu":
        raise IndexingError(
            f"indices are {indices.dtype.name}, not integers",
            "in op GATHER",
            "convert them with astype(int); for a mask use np.where",
        )
    if mode == "clip":
        indices = cast(indices, np.int64)  # n may be beyond the range of a narrow type
        indices = where(indices < 0, np.int64(0), indices)
        return where(indices >= n, np.int64(n - 1), indices)
    if mode == "wrap":
        return cast(indices, np.int64) % np.int64(n)
    if mode != "raise":
        raise IndexingError(f"mode {mode!r} is unknown", "in op GATHER", "use raise, clip or wrap")
    if isinstance(indices, np.ndarray | np.generic) and indices.size:
        low, high = int(np.min(indices)), int(np.max(indices))
        if low < -n or high >= n:
            raise IndexingError(
                f"index {low if low < -n else high} is out of bounds for axis {axis} with size {n}",
                "in op GATHER",
                'pass indices inside the axis, or mode="clip" or "wrap"',
            )
    return indices


def scatter(x: Any, indices: Any, updates: Any, axis: int = 0) -> Any:
    """A copy of x with its slices at integer positions of one axis replaced by `updates`.

    Arguments: as `gather`; updates broadcasts to the shape of `gather(x, indices, axis)`. Of equal
    indices the last one (in C order) counts; overwritten elements and updates have derivative 0.
    Raises IndexingError for known indices outside the axis, ShapeError for updates that do not fit.
    """
    return _put("SCATTER", x, indices, updates, axis)


def _put(kind: str, x: Any, indices: Any, updates: Any, axis: int) -> Any:
    x, updates = promote(x, updates)
    (axis,) = axis_tuple(axis, np.ndim(x), kind)
    indices = bounded(indices, np.shape(x)[axis], axis, "raise")
    shape = (*np.shape(x)[:axis], *np.shape(indices), *np.shape(x)[axis + 1 :])
    return bind(kind, x, broadcast_to(updates, shape), indices, axis=axis)
