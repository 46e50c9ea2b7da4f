"""Decompositions: CHOLESKY, LU, QR, EIGH, EIGVALSH, SVD.

Factors that are unique only up to signs are normalised by a stated rule (`canonical`), so that
two libraries agree; NumPy's own functions on traced values keep LAPACK's signs.
Quotients by differences of equal eigenvalues count as 0, equal meaning nearer than rounding can
tell: then a function of the eigenvalues alone keeps its derivative, and so do those in which the
lost rotation cancels.
"""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import batch_leading, composite
from autodiff.kernels import decompositions as kernels
from autodiff.op import Op, define
from autodiff.ops.diagonals import tril, triu
from autodiff.ops.elementwise import cast, where
from autodiff.ops.linalg import REAL_KINDS, check_matrix, column, matrix, product, row, swapped
from autodiff.ops.powers import abs as absolute
from autodiff.ops.reduction import max as largest
from autodiff.ops.shape import concatenate, pad, slice_
from autodiff.program import Spec
from autodiff.trace import bind
from autodiff.widen import widened_rule

__all__ = ["cholesky", "eigh", "eigvalsh", "lu", "qr", "svd"]


def symmetrised(x: Any) -> Any:
    """(x + x^T) / 2."""
    return 0.5 * (x + swapped(x))


def triangular(a: Any, b: Any, lower: bool, trans: bool = False, unit: bool = False) -> Any:
    """TRIANGULAR_SOLVE of matrices."""
    return bind("TRIANGULAR_SOLVE", a, b, lower=lower, trans=trans, unit=unit)


def rounding_of(values: Any) -> Any:
    """n eps max|values| with an axis of 1: what eigenvalues are known to at best."""
    n = np.shape(values)[-1]
    dtype = values.dtype if values.dtype.kind == "f" else np.dtype(np.float32)
    return (n * float(np.finfo(dtype).eps)) * largest(absolute(values), -1, keepdims=True)


def safe_reciprocal(x: Any, rounding: Any) -> Any:
    """1 / x, and 0 where x is 0 to rounding."""
    zero = absolute(x) <= rounding
    return where(zero, 0.0, 1.0 / where(zero, 1.0, x))


# --- CHOLESKY ------------------------------------------------------------------------------


def _cholesky_spec(a: Spec) -> Spec:
    check_matrix("CHOLESKY", a, REAL_KINDS, square=True)
    return a


def _cholesky_jvp(primals: Any, tangents: Any, y: Any) -> Any:
    del primals
    # Murray, "Differentiation of the Cholesky decomposition" (2016), eq. 8
    half = triangular(y, symmetrised(tangents[0]), lower=True)
    inner = triangular(y, swapped(half), lower=True)
    return product(y, 0.5 * (tril(inner) + tril(inner, -1)))


define(
    Op(
        "CHOLESKY",
        _cholesky_spec,
        impl=kernels.cholesky,
        jvp=widened_rule(_cholesky_jvp),
        batch=batch_leading("CHOLESKY"),
        jax="rules:cholesky",
    )
)


def cholesky(a: Any) -> Any:
    """Lower triangular l with a = l l^T: `np.linalg.cholesky`.

    dl = l Phi(l^-1 da l^-T), Phi the lower triangle with its diagonal halved.

    Arguments: a of shape (..., n, n), real, symmetric positive definite; the lower triangle is
    read. Returns the same shape. The derivative is that of the symmetrised input: gradients are
    symmetric matrices. Where a matrix is not positive definite its triangle is NaN, in its own
    place of the stack alone (NumPy raises).
    Raises ShapeError for matrices that are not square, or complex.
    """
    return bind("CHOLESKY", matrix("CHOLESKY", a, square=True))


# --- LU ------------------------------------------------------------------------------------


def _lu_spec(a: Spec) -> tuple[Spec, Spec, Spec]:
    check_matrix("LU", a, REAL_KINDS)
    *lead, m, n = a.shape
    k = min(m, n)
    rows = Spec((*lead, m), np.dtype(np.int64))
    return rows, a.with_shape((*lead, m, k)), a.with_shape((*lead, k, n))


def _completed(x: Any, n: int) -> Any:
    """A factor extended to n x n by ones on the diagonal."""
    *lead, rows, columns = np.shape(x)
    extra = np.diag((np.arange(n) >= min(rows, columns)).astype(x.dtype))
    return pad(x, 0, (*(0,) * len(lead), n - rows, n - columns)) + extra


def _corner(x: Any, rows: int, columns: int) -> Any:
    """The upper left rows x columns part of each matrix."""
    return slice_(x, 0, (*np.shape(x)[:-2], rows, columns))


def _lu_jvp(primals: Any, tangents: Any, outs: Any) -> Any:
    p, lower, upper = outs
    (m, k), n = np.shape(lower)[-2:], np.shape(upper)[-1]
    order = cast(column(p) == np.arange(m), primals[0].dtype)
    full_lower, full_upper = _completed(lower, m), _completed(upper, n)
    # a[p] = l u, so l^-1 da[p] u^-1 = l^-1 dl + du u^-1: a strict lower and an upper triangle
    left = triangular(full_lower, product(order, tangents[0]), lower=True, unit=True)
    inner = swapped(triangular(full_upper, swapped(left), lower=False, trans=True))
    lower_dot = product(full_lower, _corner(tril(inner, -1), m, k))
    return None, lower_dot, product(_corner(triu(inner), k, n), full_upper)


define(
    Op(
        "LU",
        _lu_spec,
        impl=kernels.lu,
        jvp=widened_rule(_lu_jvp),
        batch=batch_leading("LU", multiple=True),
        outputs=3,
        jax="rules:lu",
    )
)


def lu(a: Any) -> tuple[Any, Any, Any]:
    """Row order and triangular factors, a[p] = l u, with row exchanges.

    With m = l^-1 da[p] u^-1: dl = l tril(m, -1), du = triu(m) u.

    Arguments: a of shape (..., m, n), real. Returns p (..., m) int64 of row indices, l
    (..., m, k) with unit diagonal and u (..., k, n), k = min(m, n), by partial pivoting
    (`scipy.linalg.lu(p_indices=True)` returns the inverse of p). The row order is held fixed;
    where the leading k x k part of a[p] is singular, derivatives are not finite.
    Raises ShapeError for fewer than two axes, or complex matrices.
    """
    p, lower, upper = bind("LU", matrix("LU", a))
    return p, lower, upper


# --- QR ------------------------------------------------------------------------------------


def _qr_spec(a: Spec, *, canonical: bool) -> tuple[Spec, Spec]:
    del canonical
    check_matrix("QR", a, REAL_KINDS)
    *lead, m, n = a.shape
    if m < n:
        raise ShapeError(
            f"QR takes matrices of at least as many rows as columns, got {a.shape}",
            "in op QR",
            "use autodiff.ops.qr, which factors the leading square part of a wide matrix",
        )
    return a, a.with_shape((*lead, n, n))


def _qr_jvp(primals: Any, tangents: Any, outs: Any, *, canonical: bool) -> Any:
    del primals, canonical
    q, r = outs
    # Walter, Lehmann, Lamour, "On evaluating higher-order derivatives of the QR decomposition of
    # tall matrices" (2012): da r^-1 = dq + q dr r^-1, and q^T dq is skew
    quotient = swapped(triangular(r, swapped(tangents[0]), lower=False, trans=True))
    inner = product(swapped(q), quotient)
    strict = tril(inner, -1)
    skew = strict - swapped(strict)
    return quotient + product(q, skew - inner), product(triu(inner - skew), r)


define(
    Op(
        "QR",
        _qr_spec,
        impl=kernels.qr,
        jvp=widened_rule(_qr_jvp),
        batch=batch_leading("QR", multiple=True),
        outputs=2,
        jax="rules:qr",
    )
)


def qr(a: Any, canonical: bool = True) -> tuple[Any, Any]:
    """Orthonormal q and upper triangular r with a = q r: the reduced `np.linalg.qr`.

    With m = q^T da r^-1 and w = tril(m, -1) - tril(m, -1)^T: dr = (m - w) r,
    dq = da r^-1 + q (w - m).

    Arguments: a of shape (..., m, n), real. `canonical`: the diagonal of r is not negative, which
    makes the factors of a matrix of full rank unique; False keeps LAPACK's signs.
    Returns q (..., m, k) and r (..., k, n), k = min(m, n). A wide matrix is factored by its leading
    m x m part, and r is q^T a. Where that part (or a tall matrix) has not full rank, derivatives
    are not finite. A matrix with NaN or inf gives NaN.
    Raises ShapeError for fewer than two axes, or complex matrices.
    """
    a = matrix("QR", a)
    *lead, m, n = np.shape(a)
    if n <= m:
        q, r = bind("QR", a, canonical=bool(canonical))
        return q, r
    first, rest = (0,) * (len(lead) + 2), (*(0,) * (len(lead) + 1), m)
    q, r = bind("QR", slice_(a, first, (*lead, m, m)), canonical=bool(canonical))
    others = product(swapped(q), slice_(a, rest, (*lead, m, n)))
    return q, concatenate([r, others], axis=-1)


# --- EIGH and EIGVALSH ---------------------------------------------------------------------


def _eigh_spec(a: Spec, *, canonical: bool) -> tuple[Spec, Spec]:
    del canonical
    check_matrix("EIGH", a, REAL_KINDS, square=True)
    return a.with_shape(a.shape[:-1]), a


def _eigh_jvp(primals: Any, tangents: Any, outs: Any, *, canonical: bool) -> Any:
    del primals, canonical
    w, v = outs
    if not np.shape(w)[-1]:
        return w, v
    inner = product(swapped(v), product(symmetrised(tangents[0]), v))
    rotation = safe_reciprocal(row(w) - column(w), row(rounding_of(w))) * inner
    return bind("DIAGONAL", inner, offset=0), product(v, rotation)


define(
    Op(
        "EIGH",
        _eigh_spec,
        impl=kernels.eigh,
        jvp=widened_rule(_eigh_jvp),
        batch=batch_leading("EIGH", multiple=True),
        outputs=2,
        jax="rules:eigh",
    )
)


def eigh(a: Any, canonical: bool = True) -> tuple[Any, Any]:
    """Eigenvalues and orthonormal eigenvectors of symmetric matrices: `np.linalg.eigh`.

    With g = v^T da v: dw_i = g_ii, dv = v (f * g), f_ij = 1 / (w_j - w_i).

    Arguments: a of shape (..., n, n), real; the lower triangle is read. `canonical`: the first
    entry of largest magnitude (ties within 2^-10) of every vector is positive; False keeps LAPACK's
    signs. Returns w (..., n) ascending and v (..., n, n), the vectors in columns.
    The derivative is that of the symmetrised input. Where eigenvalues coincide, to n eps max|w|,
    the vectors have no derivative; the rotation between them is then taken as 0 (f_ij = 0), so
    that symmetric functions of w are right, while functions of v that mix those vectors lose
    that part.
    A matrix with NaN or inf gives NaN.
    Raises ShapeError for matrices that are not square, or complex.
    """
    w, v = bind("EIGH", matrix("EIGH", a, square=True), canonical=bool(canonical))
    return w, v


def _eigvalsh_spec(a: Spec) -> Spec:
    check_matrix("EIGVALSH", a, REAL_KINDS, square=True)
    return a.with_shape(a.shape[:-1])


composite("EIGVALSH", lambda a: bind("EIGH", a, canonical=False)[0], spec=_eigvalsh_spec)


def eigvalsh(a: Any) -> Any:
    """Eigenvalues of symmetric matrices, ascending: `np.linalg.eigvalsh`.

    dw_i = v_i^T da v_i.

    Arguments: a of shape (..., n, n), real; the lower triangle is read. Returns (..., n).
    Of equal eigenvalues only symmetric functions (their sum) have a derivative, and it is right.
    Raises ShapeError for matrices that are not square, or complex.
    """
    return bind("EIGVALSH", matrix("EIGVALSH", a, square=True))


# --- SVD -----------------------------------------------------------------------------------


def _svd_spec(a: Spec, *, canonical: bool) -> tuple[Spec, Spec, Spec]:
    del canonical
    check_matrix("SVD", a, REAL_KINDS)
    *lead, m, n = a.shape
    k = min(m, n)
    return a.with_shape((*lead, m, k)), a.with_shape((*lead, k)), a.with_shape((*lead, k, n))


def _svd_jvp(primals: Any, tangents: Any, outs: Any, *, canonical: bool) -> Any:
    del primals, canonical
    (t,), (u, s, vh) = tangents, outs
    if not np.shape(s)[-1]:
        return u, s, vh
    rounding = row(rounding_of(s))
    right, left = product(t, swapped(vh)), product(swapped(t), u)
    inner = product(swapped(u), right)
    # wu s - s wv is inner off its diagonal, for skew wu = u^T du and wv = v^T dv. Split so that
    # equal singular values lose wu + wv alone: their sum is undetermined, their difference is not
    total = safe_reciprocal(row(s) - column(s), rounding) * (inner + swapped(inner))
    difference = safe_reciprocal(row(s) + column(s), rounding) * (inner - swapped(inner))
    du = product(u, 0.5 * (total + difference))
    dv = product(swapped(vh), 0.5 * (total - difference))
    (m, k), n = np.shape(u)[-2:], np.shape(vh)[-1]
    inverse = safe_reciprocal(row(s), rounding)
    if m > k:
        du = du + (right - product(u, inner)) * inverse
    if n > k:
        dv = dv + (left - product(swapped(vh), swapped(inner))) * inverse
    return du, bind("DIAGONAL", inner, offset=0), swapped(dv)


define(
    Op(
        "SVD",
        _svd_spec,
        impl=kernels.svd,
        jvp=widened_rule(_svd_jvp),
        batch=batch_leading("SVD", multiple=True),
        outputs=3,
        jax="rules:svd",
    )
)


def svd(a: Any, canonical: bool = True) -> tuple[Any, Any, Any]:
    """Singular value decomposition a = u diag(s) vh, reduced: `np.linalg.svd(full_matrices=False)`.

    With p = u^T da v: ds_i = p_ii; u^T du = (e * (p + p^T) + d * (p - p^T)) / 2 and
    v^T dv = (e * (p + p^T) - d * (p - p^T)) / 2, e_ij = 1 / (s_j - s_i), d_ij = 1 / (s_i + s_j).

    Arguments: a of shape (..., m, n), real. `canonical`: the first entry of largest magnitude (ties
    within 2^-10) of every column of u is positive; False keeps LAPACK's signs.
    Returns u (..., m, k), s (..., k) descending and vh (..., k, n), k = min(m, n).
    Where singular values coincide, or vanish in a matrix that is not square, to k eps max(s), the
    vectors have no derivative; the quotients concerned are taken as 0. Symmetric functions of s
    and the polar
    factor u vh keep their derivatives; functions that mix those vectors lose that part
    (jax-ml/jax#8732). A matrix with NaN or inf gives NaN.
    Raises ShapeError for fewer than two axes, or complex matrices.
    """
    u, s, vh = bind("SVD", matrix("SVD", a), canonical=bool(canonical))
    return u, s, vh
