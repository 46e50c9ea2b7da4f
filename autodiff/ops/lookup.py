"""Look-ups written in gather and scatter: TAKE_ALONG_AXIS EMBEDDING ONE_HOT SEGMENT_SUM."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import composite, whole
from autodiff.ops.elementwise import cast, where
from autodiff.ops.gather import bounded
from autodiff.ops.shape import normal_axes, reshape
from autodiff.program import Spec
from autodiff.trace import bind

__all__ = ["embedding", "one_hot", "segment_sum", "take_along_axis"]

# --- TAKE_ALONG_AXIS -----------------------------------------------------------------------


def _along_spec(x: Spec, indices: Spec, *, axis: int) -> Spec:
    lead = [
        (m, n) for i, (m, n) in enumerate(zip(x.shape, indices.shape, strict=False)) if i != axis
    ]
    fits = x.ndim == indices.ndim > axis and all(m == n or 1 in (m, n) for m, n in lead)
    if not fits or indices.dtype.kind not in "iu":
        raise ShapeError(
            f"cannot take {indices} along axis {axis} of {x}",
            "in op TAKE_ALONG_AXIS",
            "indices are integers of x's rank; their other axes match or are 1",
        )
    shape = [
        n if i == axis else (n if m == 1 else m)
        for i, (m, n) in enumerate(zip(x.shape, indices.shape, strict=True))
    ]
    return x.with_shape(tuple(shape))


def _along_body(x: Any, indices: Any, *, axis: int) -> Any:
    return bind("GATHER", x, *along_indices(np.shape(x), indices, axis), axis=0)


def along_indices(shape: tuple[int, ...], indices: Any, axis: int) -> list[Any]:
    """Index arrays of every axis that pair each index with its own row."""
    rank = len(shape)
    rows = [np.arange(n).reshape((n, *(1,) * (rank - 1 - i))) for i, n in enumerate(shape)]
    return [indices if i == axis else r for i, r in enumerate(rows)]


composite("TAKE_ALONG_AXIS", _along_body, spec=_along_spec)


def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Any:
    """out[..., j, ...] = x[..., indices[..., j, ...], ...]: one index per row, as NumPy's function.

    Arguments: x; indices: integers of x's rank, whose other axes match x's or are 1 (negative ones
    count from the end); axis None flattens x. Linear in x; the adjoint adds into the rows.
    """
    if axis is None:
        x, axis = reshape(x, -1), 0
    (axis,) = normal_axes(axis, np.ndim(x))
    indices = bounded(indices, np.shape(x)[axis], axis, "raise")
    return bind("TAKE_ALONG_AXIS", x, indices, axis=axis)


# --- EMBEDDING -----------------------------------------------------------------------------


def _embedding_spec(table: Spec, ids: Spec, *, padding_index: int | None) -> Spec:
    if table.ndim != 2 or ids.dtype.kind not in "iu":
        raise ShapeError(
            f"cannot look up {ids} in a table {table}",
            "in op EMBEDDING",
            "the table has shape (rows, width), the ids are integers",
        )
    if padding_index is not None and not 0 <= padding_index < table.shape[0]:
        raise ShapeError(
            f"padding index {padding_index} is not a row of a table {table}",
            "in op EMBEDDING",
            f"pass a row between 0 and {table.shape[0] - 1}, or None",
        )
    return table.with_shape((*ids.shape, table.shape[1]))


def _embedding_body(table: Any, ids: Any, *, padding_index: int | None) -> Any:
    rows = bind("GATHER", table, ids, axis=0)
    if padding_index is None:
        return rows
    ids = cast(ids, np.int64)
    own = where(ids < 0, ids + np.int64(np.shape(table)[0]), ids) != np.int64(padding_index)
    return where(reshape(own, (*np.shape(ids), 1)), rows, np.zeros((), table.dtype))


composite("EMBEDDING", _embedding_body, spec=_embedding_spec)


def embedding(table: Any, ids: Any, padding_index: int | None = None) -> Any:
    """Rows of a table by id: out[i..., :] = table[ids[i...], :].

    Rows of `padding_index` are exactly 0, and that row of the table has derivative exactly 0.

    Arguments: table of shape (rows, width), ids integers of any shape. Returns shape
    ids.shape + (width,). Linear in the table; rows taken several times collect all cotangents.
    Raises IndexingError for known ids outside the table.
    """
    ids = bounded(ids, np.shape(table)[0], 0, "raise")
    if padding_index is not None and -np.shape(table)[0] <= padding_index < 0:
        padding_index += np.shape(table)[0]
    return bind("EMBEDDING", table, ids, padding_index=padding_index)


# --- ONE_HOT -------------------------------------------------------------------------------


def _one_hot_spec(ids: Spec, *, depth: int, dtype: np.dtype[Any]) -> Spec:
    if ids.dtype.kind not in "iu" or depth < 0:
        raise ShapeError(
            f"cannot one-hot encode {ids} to depth {depth}",
            "in op ONE_HOT",
            "ids are integers, the depth is not negative",
        )
    return Spec((*ids.shape, depth), dtype)


def _one_hot_body(ids: Any, *, depth: int, dtype: np.dtype[Any]) -> Any:
    # int64: a narrow type may not hold the depth
    wide = cast(reshape(ids, (*np.shape(ids), 1)), np.int64)
    return cast(wide == np.arange(depth), dtype)


composite("ONE_HOT", _one_hot_body, spec=_one_hot_spec, derivative="zero")


def one_hot(ids: Any, depth: int, dtype: Any = np.float64) -> Any:
    """1 at the place of each id along a new last axis of extent `depth`, 0 elsewhere.

    Ids outside 0 ... depth - 1 give rows of zeros. No derivative: ids are integers.
    """
    ids = ids if hasattr(ids, "dtype") else np.asarray(ids, np.int64)
    return bind("ONE_HOT", ids, depth=whole(depth, "depth of ONE_HOT"), dtype=np.dtype(dtype))


# --- SEGMENT_SUM ---------------------------------------------------------------------------


def _segment_spec(data: Spec, ids: Spec, *, num_segments: int) -> Spec:
    if not data.ndim or ids.shape != data.shape[:1] or ids.dtype.kind not in "iu":
        raise ShapeError(
            f"segment ids {ids} do not fit data {data}",
            "in op SEGMENT_SUM",
            "ids are one integer per row of data",
        )
    return data.with_shape((num_segments, *data.shape[1:]))


def _segment_body(data: Any, ids: Any, *, num_segments: int) -> Any:
    zeros = np.zeros((num_segments, *np.shape(data)[1:]), data.dtype)
    return bind("SCATTER_ADD", zeros, data, ids, axis=0)


composite("SEGMENT_SUM", _segment_body, spec=_segment_spec)


def segment_sum(data: Any, ids: Any, num_segments: int) -> Any:
    """Sums of the rows of equal id: out[s] = sum over i with ids[i] = s of data[i].

    Arguments: data of shape (n, ...), ids: n integers (in any order) below num_segments.
    Returns shape (num_segments, ...); a segment without rows is 0. Linear in data.
    Raises IndexingError for known ids out of range.
    """
    ids = bounded(ids, num_segments, 0, "raise")
    return bind("SEGMENT_SUM", data, ids, num_segments=whole(num_segments, "num_segments"))
