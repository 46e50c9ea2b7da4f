"""Kernels of matrix decompositions.

All take matrices in the last two axes, with any leading axes, and never loop over these. A matrix
without a decomposition (not finite, not positive definite) makes its own result NaN and leaves its
neighbours alone, where NumPy would raise for the whole stack.
"""

from typing import Any

import numpy as np
import scipy.linalg

TIE = 1 - 2.0**-10


def cholesky(a: Any) -> Any:
    """Lower factor of the symmetric matrix whose lower triangle is given; NaN where not SPD."""
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return cholesky_by_columns(np.asarray(a))


def cholesky_by_columns(a: Any) -> Any:
    """Cholesky factor column by column; the triangle is NaN where a pivot is not positive."""
    out = np.zeros_like(a)
    for j in range(a.shape[-1]):
        known = out[..., j:, :j] @ out[..., j, :j, None]
        column = a[..., j:, j] - known[..., 0]
        pivot = np.where(column[..., :1] > 0, column[..., :1], np.nan)
        out[..., j:, j] = column / np.sqrt(pivot)
    failed = np.isnan(out).any(axis=(-2, -1), keepdims=True)
    return np.tril(np.where(failed, np.nan, out))


def lu(a: Any) -> Any:
    """Row order p, unit lower factor and upper factor, a[p] = l u, with partial pivoting."""
    *lead, m, n = np.shape(a)
    rank = min(m, n)
    if not np.size(a):
        rows = np.broadcast_to(np.arange(m), (*lead, m))
        return rows, np.zeros((*lead, m, rank), a.dtype), np.zeros((*lead, rank, n), a.dtype)
    p, lower, upper = scipy.linalg.lu(a, p_indices=True, check_finite=False)
    # SciPy's p says where each row went: a = (l u)[p]
    return np.argsort(p, axis=-1), lower, upper


def only_finite(a: Any) -> Any:
    """The matrices with those that are not finite replaced by zeros, and NaN in their places."""
    finite = np.isfinite(a).all(axis=(-2, -1))
    zero = np.zeros((), a.dtype)
    return np.where(finite[..., None, None], a, zero), np.where(finite, zero, np.nan)[
        ..., None, None
    ]


def qr(a: Any, *, canonical: bool) -> Any:
    """Reduced q and r; canonical: the diagonal of r is not negative."""
    a, bad = only_finite(np.asarray(a))
    q, r = np.linalg.qr(a)
    if canonical:
        diagonal = np.diagonal(r, 0, -2, -1)
        sign = np.where(diagonal < 0, -1, 1).astype(a.dtype)
        q, r = q * sign[..., None, :], r * sign[..., :, None]
    return q + bad, r + bad


def orientation(v: Any) -> Any:
    """-1 or 1 for each column: the sign of its first entry of largest magnitude.

    Magnitudes within 2^-10 of the largest are ties, so that rounding does not choose.
    """
    magnitude = np.abs(v)
    largest = magnitude >= TIE * np.max(magnitude, axis=-2, keepdims=True)
    entry = np.take_along_axis(v, np.argmax(largest, axis=-2)[..., None, :], axis=-2)
    return np.where(entry < 0, -1, 1).astype(v.dtype)


def eigh(a: Any, *, canonical: bool) -> Any:
    """Eigenvalues in ascending order and eigenvectors, from the lower triangle."""
    a, bad = only_finite(np.tril(a))
    w, v = np.linalg.eigh(a)
    if canonical and v.size:
        v = v * orientation(v)
    return w + bad[..., 0], v + bad


def svd(a: Any, *, canonical: bool) -> Any:
    """Reduced u, singular values in descending order, and vh."""
    a, bad = only_finite(np.asarray(a))
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    if canonical and u.size and vh.size:
        sign = orientation(u)
        u, vh = u * sign, vh * np.swapaxes(sign, -1, -2)
    return u + bad, s + bad[..., 0], vh + bad
