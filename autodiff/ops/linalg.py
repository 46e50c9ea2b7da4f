"""Triangles, diagonals, linear systems and inverses."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import (
    add_tangents,
    axis_tuple,
    batch_leading,
    batch_stacked,
    composite,
    linear,
    promote,
)
from autodiff.kernels import linalg as kernels
from autodiff.op import Op, define
from autodiff.ops.elementwise import cast
from autodiff.ops.shape import broadcast_to, reshape, transpose
from autodiff.program import Spec
from autodiff.reverse import Undefined
from autodiff.trace import bind

__all__ = [
    "diagonal",
    "diagonal_matrix",
    "inv",
    "solve",
    "trace",
    "triangle",
    "triangular_solve",
    "tril",
    "triu",
]

REAL_KINDS = "fV"
INEXACT_KINDS = "fcV"

# --- helpers of the linear-algebra rules ---------------------------------------------------


def swapped(x: Any) -> Any:
    """The last two axes exchanged."""
    n = np.ndim(x)
    return transpose(x, (*range(n - 2), n - 1, n - 2))


def product(x: Any, y: Any) -> Any:
    """x y of one dtype, in full precision on every device: derivative rules are not at the mercy
    of a TF32 mode."""
    return bind("MATMUL", x, y, algorithm="f32")


def column(x: Any) -> Any:
    """Vectors (..., n) as (..., n, 1)."""
    return reshape(x, (*np.shape(x), 1))


def row(x: Any) -> Any:
    """Vectors (..., n) as (..., 1, n)."""
    return reshape(x, (*np.shape(x)[:-1], 1, np.shape(x)[-1]))


def check_matrix(kind: str, x: Spec, kinds: str = INEXACT_KINDS, square: bool = False) -> None:
    """Raise ShapeError unless x is a stack of (square) matrices of one of the dtype kinds."""
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        what = "square matrices (..., n, n)" if square else "matrices (..., m, n)"
        raise ShapeError(
            f"{kind} takes {what}, got shape {x.shape}",
            f"in op {kind}, operand {x}",
            "put the matrices in the last two axes, a stack of them in the leading ones",
        )
    if x.dtype.kind not in kinds:
        fix = "convert with astype first"
        if x.dtype.kind == "c":
            fix = "write it for the real and imaginary parts (np.real, np.imag)"
        raise ShapeError(f"{kind} is not defined for {x.dtype.name}", f"in op {kind}, operand {x}", fix)


def matrix(kind: str, x: Any, square: bool = False) -> Any:
    """A public function's operand as inexact matrices; a wrong shape is an error naming the op."""
    (x,) = promote(x, inexact=True)
    check_matrix(kind, Spec(np.shape(x), x.dtype), square=square)
    return x


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
    return bind("TRIANGLE", x, k=int(k), lower=bool(lower))


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
    return bind("DIAGONAL", _axes_last("DIAGONAL", x, axis1, axis2), offset=int(offset))


def diagonal_matrix(x: Any, offset: int = 0, shape: tuple[int, int] | None = None) -> Any:
    """Matrices with the vectors x on one diagonal and zeros elsewhere.

    Arguments: x of shape (..., k); offset of the diagonal; shape (m, n) of each matrix, by default
    the square that holds it. Returns shape (..., m, n). Linear; the adjoint is `diagonal`.
    Raises ShapeError where k is not the extent of that diagonal.
    """
    (x,) = promote(x)
    if shape is None:
        n = np.shape(x)[-1] + abs(int(offset))
        shape = (n, n)
    return bind("DIAGONAL_MATRIX", x, offset=int(offset), shape=(int(shape[0]), int(shape[1])))


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
    return bind("TRACE", _axes_last("TRACE", x, axis1, axis2), offset=int(offset))


# --- TRIANGULAR_SOLVE and SOLVE ------------------------------------------------------------


def _check_system(kind: str, a: Spec, b: Spec) -> None:
    check_matrix(kind, a, square=True)
    fits = b.ndim == a.ndim and b.shape[:-1] == a.shape[:-1] and a.dtype == b.dtype
    if not fits:
        raise ShapeError(
            f"{kind} cannot solve {a} x = {b}",
            f"in op {kind}",
            "the right-hand side is (n,) or (..., n, k) for matrices (..., n, n), of one dtype",
        )


def _batch_system(kind: str) -> Any:
    """Batching rule of a x = b: right-hand sides that share one matrix become its columns."""
    stacked = batch_stacked(kind)

    def batch(size: int, args: Any, batched: Any, **params: Any) -> tuple[Any, bool]:
        if batched[0]:
            out: tuple[Any, bool] = stacked(size, args, batched, **params)
            return out
        a, b = args
        n = np.ndim(b)
        *lead, rows, columns = np.shape(b)[1:]
        b = transpose(b, (*range(1, n - 1), 0, n - 1))
        x = bind(kind, a, reshape(b, (*lead, rows, size * columns)), **params)
        x = reshape(x, (*lead, rows, size, columns))
        return transpose(x, (n - 2, *range(n - 2), n - 1)), True

    return batch


def _triangular_spec(a: Spec, b: Spec, *, lower: bool, trans: bool, unit: bool) -> Spec:
    del lower, trans, unit
    _check_system("TRIANGULAR_SOLVE", a, b)
    return b


def _triangular_jvp(
    primals: Any, tangents: Any, x: Any, *, lower: bool, trans: bool, unit: bool
) -> Any:
    a, _ = primals
    ta, tb = tangents
    right = tb
    if ta is not None:
        # what is not read (the other triangle, a unit diagonal) has slope exactly 0
        read = bind("TRIANGLE", ta, k=(-1 if lower else 1) if unit else 0, lower=lower)
        right = add_tangents(tb, -product(swapped(read) if trans else read, x))
    return bind("TRIANGULAR_SOLVE", a, right, lower=lower, trans=trans, unit=unit)


def _triangular_transpose(
    ct: Any, inputs: Any, *, lower: bool, trans: bool, unit: bool
) -> tuple[Any, ...]:
    a, _ = inputs
    return None, bind("TRIANGULAR_SOLVE", a, ct, lower=lower, trans=not trans, unit=unit)


define(
    Op(
        "TRIANGULAR_SOLVE",
        _triangular_spec,
        impl=kernels.triangular_solve,
        jvp=_triangular_jvp,
        transpose=_triangular_transpose,
        batch=_batch_system("TRIANGULAR_SOLVE"),
        jax="rules:triangular_solve",
    )
)


def system(kind: str, a: Any, b: Any) -> tuple[Any, Any, bool]:
    """Operands of a x = b with equal leading axes, and whether b is a single vector."""
    a, b = promote(a, b, inexact=True)
    a = matrix(kind, a, square=True)
    vector = np.ndim(b) == 1
    rows = np.shape(b)[-1:] if vector else np.shape(b)[-2:-1]
    try:
        lead = np.broadcast_shapes(np.shape(a)[:-2], () if vector else np.shape(b)[:-2])
    except ValueError:
        rows = ()
    if rows != np.shape(a)[-1:]:
        raise ShapeError(
            f"{kind} cannot solve matrices {np.shape(a)} for a right-hand side {np.shape(b)}",
            f"in op {kind}",
            "the right-hand side is (n,) or (..., n, k) for matrices (..., n, n); "
            "for a stack of vectors use b[..., None]",
        )
    b = column(b) if vector else b
    return broadcast_to(a, (*lead, *np.shape(a)[-2:])), broadcast_to(b, (*lead, *np.shape(b)[-2:])), vector


def without_column(x: Any, vector: bool) -> Any:
    """The solution for a vector right-hand side without its column axis."""
    return reshape(x, np.shape(x)[:-1]) if vector else x


def triangular_solve(
    a: Any, b: Any, lower: bool = False, trans: int | str = 0, unit_diagonal: bool = False
) -> Any:
    """Solution of T x = b, T one triangle of a: `scipy.linalg.solve_triangular`.

    x = T^-1 b, T^-T b or T^-H b.

    Arguments: a of shape (..., n, n); b of shape (n,) or (..., n, k), leading axes broadcast;
    real or complex, promoted. `lower`: which triangle is read; `trans`: 0 or "N", 1 or "T", 2 or
    "C"; `unit_diagonal`: the diagonal is taken as ones and not read.
    Returns b's shape with the leading axes of both. Elements that are not read have derivative
    exactly 0, whatever they hold. A zero on the diagonal gives IEEE infinities and NaN.
    Raises ShapeError for shapes that do not fit.
    """
    a, b, vector = system("TRIANGULAR_SOLVE", a, b)
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ShapeError(
            f"trans {trans!r} is not one of 0, 1, 2, 'N', 'T', 'C'",
            "in op TRIANGULAR_SOLVE",
            "use 0 for T x = b, 1 for T^T x = b, 2 for T^H x = b",
        )
    if trans in (2, "C") and a.dtype.kind == "c":
        a = bind("CONJ", a)
    params = {"lower": bool(lower), "trans": trans not in (0, "N"), "unit": bool(unit_diagonal)}
    return without_column(bind("TRIANGULAR_SOLVE", a, b, **params), vector)


def _solve_spec(a: Spec, b: Spec) -> Spec:
    _check_system("SOLVE", a, b)
    return b


def _solve_jvp(primals: Any, tangents: Any, x: Any) -> Any:
    a, _ = primals
    ta, tb = tangents
    right = tb if ta is None else add_tangents(tb, -product(ta, x))
    return bind("SOLVE", a, right)


def _solve_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    a, b = inputs
    assert isinstance(b, Undefined)
    return None, bind("SOLVE", swapped(a), ct)


define(
    Op(
        "SOLVE",
        _solve_spec,
        impl=kernels.solve,
        jvp=_solve_jvp,
        transpose=_solve_transpose,
        batch=_batch_system("SOLVE"),
        jax="rules:solve",
    )
)


def solve(a: Any, b: Any) -> Any:
    """Solution of a x = b: `np.linalg.solve`.

    x = a^-1 b; dx = a^-1 (db - da x).

    Arguments: a of shape (..., n, n); b of shape (n,) or (..., n, k), leading axes broadcast; real
    or complex, promoted.
    Returns b's shape with the leading axes of both. Where a pivot is exactly 0 that matrix's
    solution is NaN (NumPy raises for the whole stack), and so is every derivative.
    Raises ShapeError for shapes that do not fit.
    """
    a, b, vector = system("SOLVE", a, b)
    return without_column(bind("SOLVE", a, b), vector)


# --- INV -----------------------------------------------------------------------------------


def _inv_spec(a: Spec) -> Spec:
    check_matrix("INV", a, square=True)
    return a


def _inv_jvp(primals: Any, tangents: Any, y: Any) -> Any:
    del primals
    return -product(y, product(tangents[0], y))


define(
    Op(
        "INV",
        _inv_spec,
        impl=kernels.inv,
        jvp=_inv_jvp,
        batch=batch_leading("INV"),
        jax="rules:inv",
    )
)


def inv(a: Any) -> Any:
    """Inverse of matrices: `np.linalg.inv`.

    da^-1 = -a^-1 da a^-1.

    Arguments: a of shape (..., n, n), real or complex. Returns the same shape. A matrix with a
    pivot of exactly 0 gives NaN, in its own place of the stack alone.
    Raises ShapeError for matrices that are not square.
    """
    return bind("INV", matrix("INV", a, square=True))
