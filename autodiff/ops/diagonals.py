"""Triangles, diagonals and traces."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import axis_tuple, batch_leading, composite, linear, promote, whole
from autodiff.kernels import linalg as kernels
from autodiff.ops.elementwise import cast
from autodiff.ops.linalg import check_matrix
from autodiff.ops.shape import transpose
from autodiff.program import Spec
from autodiff.trace import bind

__all__ = ["diagonal", "diagonal_matrix", "trace", "triangle", "tril", "triu"]

# --- TRIANGLE ------------------------------------------------------------------------------


def _triangle_spec(x: Spec, *, k: int, lower: bool) -> Spec:
    del k, lower
    check_matrix("TRIANGLE", x, "biufcV")
    return x


def _triangle_transpose(ct: Any, inputs: Any, *, k: int, lower: bool) -> tuple[Any, ...]:
    del inputs
    return (bind("TRIANGLE", ct, k=k, lower=lower),)


linear(
    "TRIANGLE",
    kernels.triangle,
    spec=_triangle_spec,
    transpose=_triangle_transpose,
    batch=batch_leading("TRIANGLE"),
    jax="rules:triangle",
)


def triangle(x: Any, k: int = 0, lower: bool = True) -> Any:
    """One triangle of matrices, zeros elsewhere (also where an unread element is NaN).

    y[..., i, j] = x[..., i, j] where j <= i + k (lower) or j >= i + k (upper), else 0.

    Arguments: x of shape (..., m, n), any dtype; k, the diagonal the triangle ends on.
    Returns x's shape and dtype. Linear; its own adjoint.
    Raises ShapeError for fewer than two axes.
    """
    (x,) = promote(x)
    return bind("TRIANGLE", x, k=whole(k, "k of TRIANGLE"), lower=bool(lower))


def tril(x: Any, k: int = 0) -> Any:
    """The lower triangle: `np.tril`."""
    return triangle(x, k, lower=True)


def triu(x: Any, k: int = 0) -> Any:
    """The upper triangle: `np.triu`."""
    return triangle(x, k, lower=False)


# --- DIAGONAL, DIAGONAL_MATRIX, TRACE ------------------------------------------------------


def diagonal_extent(shape: tuple[int, ...], offset: int) -> int:
    """How many elements the offset-th diagonal of (..., m, n) has."""
    m, n = shape[-2:]
    return max(0, min(m, n - offset) if offset >= 0 else min(m + offset, n))


def _diagonal_spec(x: Spec, *, offset: int) -> Spec:
    check_matrix("DIAGONAL", x, "biufcV")
    return x.with_shape((*x.shape[:-2], diagonal_extent(x.shape, offset)))


def _diagonal_transpose(ct: Any, inputs: Any, *, offset: int) -> tuple[Any, ...]:
    return (bind("DIAGONAL_MATRIX", ct, offset=offset, shape=inputs[0].shape[-2:]),)


linear(
    "DIAGONAL",
    kernels.diagonal,
    spec=_diagonal_spec,
    transpose=_diagonal_transpose,
    batch=batch_leading("DIAGONAL"),
    jax="rules:diagonal",
)


def _diagonal_matrix_spec(x: Spec, *, offset: int, shape: tuple[int, int]) -> Spec:
    if not x.ndim or x.shape[-1] != diagonal_extent(shape, offset):
        raise ShapeError(
            f"{x.shape} does not fit diagonal {offset} of matrices of shape {shape}",
            f"in op DIAGONAL_MATRIX, operand {x}",
            f"pass shape (..., {diagonal_extent(shape, offset)}), or choose another offset",
        )
    return x.with_shape((*x.shape[:-1], *shape))


def _diagonal_matrix_transpose(
    ct: Any, inputs: Any, *, offset: int, shape: tuple[int, int]
) -> tuple[Any, ...]:
    del inputs, shape
    return (bind("DIAGONAL", ct, offset=offset),)


linear(
    "DIAGONAL_MATRIX",
    kernels.diagonal_matrix,
    spec=_diagonal_matrix_spec,
    transpose=_diagonal_matrix_transpose,
    batch=batch_leading("DIAGONAL_MATRIX"),
    jax="rules:diagonal_matrix",
)


def _axes_last(kind: str, x: Any, axis1: int, axis2: int) -> Any:
    """Two axes moved to the end."""
    n = np.ndim(x)
    pair = tuple(axis_tuple(a, n, kind)[0] for a in (axis1, axis2))
    if pair[0] == pair[1]:
        raise ShapeError(
            f"axis1 and axis2 are both {pair[0]}", f"in op {kind}", "name two different axes"
        )
    return transpose(x, (*(i for i in range(n) if i not in pair), *pair))


def diagonal(x: Any, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    """Elements whose indices along two axes differ by `offset`.

    y[..., i] = x[..., i, i + offset] (x[..., i - offset, i] for a negative offset).

    Arguments: x of two axes at least; axis1, axis2, by default the last two (`np.diagonal` has
    the first two). Returns the other axes, then the diagonal. Linear; the adjoint is
    `diagonal_matrix`.
    Raises ShapeError for axes that do not exist or coincide.
    """
    (x,) = promote(x)
    return bind("DIAGONAL", _axes_last("DIAGONAL", x, axis1, axis2), offset=whole(offset, "offset"))


def diagonal_matrix(x: Any, offset: int = 0, shape: tuple[int, int] | None = None) -> Any:
    """Matrices with the vectors x on one diagonal and zeros elsewhere.

    Arguments: x of shape (..., k); offset of the diagonal; shape (m, n) of each matrix, by default
    the square that holds it. Returns shape (..., m, n). Linear; the adjoint is `diagonal`.
    Raises ShapeError where k is not the extent of that diagonal.
    """
    (x,) = promote(x)
    offset = whole(offset, "offset")
    if shape is None:
        n = np.shape(x)[-1] + abs(offset)
        shape = (n, n)
    return bind("DIAGONAL_MATRIX", x, offset=offset, shape=(int(shape[0]), int(shape[1])))


def _trace_spec(x: Spec, *, offset: int) -> Spec:
    del offset
    check_matrix("TRACE", x, "iufcV")
    return x.with_shape(x.shape[:-2])


def _trace_body(x: Any, *, offset: int) -> Any:
    return bind("SUM", bind("DIAGONAL", x, offset=offset), axis=(np.ndim(x) - 2,), keepdims=False)


composite("TRACE", _trace_body, spec=_trace_spec)


def trace(x: Any, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    """Sum of a diagonal: sum_i x[..., i, i + offset].

    Arguments: x of two axes at least; axis1, axis2, by default the last two (`np.trace` has the
    first two). Returns the other axes, of x's dtype; bools and small integers are summed as 64-bit
    integers. Linear. Raises ShapeError for axes that do not exist or coincide.
    """
    (x,) = promote(x)
    if x.dtype.kind in "bu" or (x.dtype.kind == "i" and x.dtype.itemsize < 8):
        x = cast(x, np.uint64 if x.dtype.kind == "u" else np.int64)
    return bind("TRACE", _axes_last("TRACE", x, axis1, axis2), offset=whole(offset, "offset"))
