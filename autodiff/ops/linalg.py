"""Linear systems and inverses, and what the rules of linear algebra share."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import (
    add_tangents,
    batch_leading,
    batch_stacked,
    promote,
)
from autodiff.kernels import linalg as kernels
from autodiff.op import Op, define
from autodiff.ops.shape import broadcast_to, reshape, transpose
from autodiff.program import Spec
from autodiff.reverse import Undefined
from autodiff.trace import bind
from autodiff.widen import widened_rule

__all__ = [
    "inv",
    "solve",
    "triangular_solve",
]

REAL_KINDS = "fV"
INEXACT_KINDS = "fcV"

# --- helpers of the linear-algebra rules ---------------------------------------------------


def swapped(x: Any) -> Any:
    """The last two axes exchanged."""
    n = np.ndim(x)
    return transpose(x, (*range(n - 2), n - 1, n - 2))


def product(x: Any, y: Any) -> Any:
    """The product of matrices of one dtype, in full precision on every device, TF32 or not."""
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
        raise ShapeError(
            f"{kind} is not defined for {x.dtype.name}", f"in op {kind}, operand {x}", fix
        )


def matrix(kind: str, x: Any, square: bool = False) -> Any:
    """A public function's operand as inexact matrices; a wrong shape is an error naming the op."""
    (x,) = promote(x, inexact=True)
    check_matrix(kind, Spec(np.shape(x), x.dtype), square=square)
    return x


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


def batch_system(kind: str) -> Any:
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
        jvp=widened_rule(_triangular_jvp),
        transpose=_triangular_transpose,
        batch=batch_system("TRIANGULAR_SOLVE"),
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
    return (
        broadcast_to(a, (*lead, *np.shape(a)[-2:])),
        broadcast_to(b, (*lead, *np.shape(b)[-2:])),
        vector,
    )


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
        jvp=widened_rule(_solve_jvp),
        transpose=_solve_transpose,
        batch=batch_system("SOLVE"),
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
        jvp=widened_rule(_inv_jvp),
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
