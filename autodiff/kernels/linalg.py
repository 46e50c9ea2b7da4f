"""Kernels of linear systems, determinants and triangles.

All take matrices in the last two axes, with any leading axes, and never loop over these. A matrix
without a result (singular, not finite) makes its own result NaN and leaves its neighbours alone,
where NumPy would raise for the whole stack.
"""

from typing import Any

import numpy as np
from scipy.linalg import blas


def triangle(x: Any, *, k: int, lower: bool) -> Any:
    """Elements on and below (lower) or above the k-th diagonal; zeros elsewhere."""
    return np.tril(x, k) if lower else np.triu(x, k)


def diagonal(x: Any, *, offset: int) -> Any:
    """The elements x[..., i, i + offset]."""
    return np.diagonal(x, offset, -2, -1)


def diagonal_matrix(x: Any, *, offset: int, shape: tuple[int, int]) -> Any:
    """Zero matrices with x on their offset-th diagonal."""
    x = np.asarray(x)
    out = np.zeros((*x.shape[:-1], *shape), x.dtype)
    rows = np.arange(x.shape[-1]) + max(0, -offset)
    out[..., rows, rows + offset] = x
    return out


def triangular_solve(a: Any, b: Any, *, lower: bool, trans: bool, unit: bool) -> Any:
    """Solution of T x = b (T^T x = b with trans), T the lower or upper triangle of a."""
    a, b = np.asarray(a), np.asarray(b)
    if a.ndim == 2 and b.size and is_plain_triangle(a, lower, unit):
        trsm = blas.get_blas_funcs("trsm", (a, b))
        return trsm(1.0, a, b, lower=lower, trans_a=int(trans), diag=int(unit))
    if trans:
        a, lower = np.swapaxes(a, -1, -2), not lower
    return forward(a, b, unit) if lower else backward(a, b, unit)


def is_plain_triangle(a: Any, lower: bool, unit: bool) -> bool:
    """Whether BLAS is safe: it skips products with zeros, and would lose a NaN or inf."""
    triangle = np.tril(a, -int(unit)) if lower else np.triu(a, int(unit))
    return bool(np.isfinite(triangle).all()) and (unit or bool(np.diagonal(a).all()))


def forward(a: Any, b: Any, unit: bool) -> Any:
    """Forward substitution, row by row."""
    x = np.empty_like(b)
    for i in range(a.shape[-1]):
        row = b[..., i, :] - (a[..., i : i + 1, :i] @ x[..., :i, :])[..., 0, :]
        x[..., i, :] = row if unit else row / a[..., i, i, None]
    return x


def backward(a: Any, b: Any, unit: bool) -> Any:
    """Backward substitution, from the last row up."""
    x = np.empty_like(b)
    for i in range(a.shape[-1])[::-1]:
        row = b[..., i, :] - (a[..., i : i + 1, i + 1 :] @ x[..., i + 1 :, :])[..., 0, :]
        x[..., i, :] = row if unit else row / a[..., i, i, None]
    return x


def solve(a: Any, b: Any) -> Any:
    """Solution of a x = b by LU with row exchanges; NaN where a pivot is 0."""
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        singular = np.linalg.slogdet(a)[0][..., None, None] == 0
        regular = np.where(singular, np.eye(a.shape[-1], dtype=a.dtype), a)
        return np.where(singular, np.nan, np.linalg.solve(regular, b))


def inv(a: Any) -> Any:
    """Inverse by LU with row exchanges; NaN where a pivot is 0."""
    try:
        return np.linalg.inv(a)
    except np.linalg.LinAlgError:
        singular = np.linalg.slogdet(a)[0][..., None, None] == 0
        regular = np.where(singular, np.eye(a.shape[-1], dtype=a.dtype), a)
        return np.where(singular, np.nan, np.linalg.inv(regular))


def slogdet(a: Any) -> Any:
    """Sign and logarithm of the absolute value of the determinant."""
    return tuple(np.linalg.slogdet(a))


def oriented_svd(a: Any) -> Any:
    """u, s, vh and det(u) det(vh); matrices that are not finite become NaN."""
    finite = np.isfinite(a).all(axis=(-2, -1), keepdims=True)
    u, s, vh = np.linalg.svd(np.where(finite, a, np.zeros((), a.dtype)))
    sign = np.linalg.det(u) * np.linalg.det(vh)
    return u, np.where(finite[..., 0], s, np.nan), vh, sign[..., None, None]


def products_without(s: Any) -> Any:
    """Table of prod_{k != i, j} s_k (prod_{k != i} s_k on the diagonal), without division."""
    n = s.shape[-1]
    ones = np.ones((*s.shape[:-1], n + 1), s.dtype)
    before = ones.copy()
    before[..., 1:] = np.cumprod(s, axis=-1)
    after = ones.copy()
    after[..., :-1] = np.cumprod(s[..., ::-1], axis=-1)[..., ::-1]
    out = np.empty((*s.shape, n), s.dtype)
    for i in range(n):
        out[..., i, i] = before[..., i] * after[..., i + 1]
        between = ones[..., i + 1 : n].copy()
        between[..., 1:] = np.cumprod(s[..., i + 1 : n - 1], axis=-1)
        row = before[..., i, None] * between * after[..., i + 2 :]
        out[..., i, i + 1 :] = out[..., i + 1 :, i] = row
    return out


def minors(a: Any) -> Any:
    """Matrix of signed minors by the SVD.

    For a = u s v^H it is det(u) det(v^H) conj(u) diag(prod_{k != i} s_k) v^T.
    """
    u, s, vh, sign = oriented_svd(a)
    without = np.diagonal(products_without(s), 0, -2, -1)
    return sign * ((np.conj(u) * without[..., None, :]) @ np.conj(vh))


def minors_along(a: Any, *directions: Any) -> Any:
    """Derivative of `minors` at a along all the directions, at any rank."""
    if len(directions) == 1:
        return minors_towards(a, *directions)
    return mixed_minors(a, directions)


def minors_towards(a: Any, t: Any) -> Any:
    """Derivative of `minors` at a in direction t.

    With b = u^H t v and p_ij = prod_{k != i, j} s_k, the diagonal matrix of `minors` becomes
    m_jj = sum_{i != j} p_ij b_ii and m_ij = -p_ij b_ji: the second-order terms of det(s + b).
    """
    u, s, vh, sign = oriented_svd(a)
    b = np.conj(np.swapaxes(u, -1, -2)) @ t @ np.conj(np.swapaxes(vh, -1, -2))
    one = np.eye(s.shape[-1], dtype=s.dtype)
    pairs = products_without(s) * (1 - one)
    sums = pairs @ np.diagonal(b, 0, -2, -1)[..., None]
    return sign * (np.conj(u) @ (sums * one - pairs * np.swapaxes(b, -1, -2)) @ np.conj(vh))


def mixed_minors(a: Any, directions: tuple[Any, ...]) -> Any:
    """Derivative of `minors` at a along two or more directions t_1, ..., t_m.

    minors(a + z t) is a polynomial of degree n - 1 in z: its coefficient of z^m is a mean over n
    complex roots of unity, exact but for rounding, and the mixed derivative follows from those
    along t_1 +- t_2 +- ... (polarisation).
    """
    n, order = a.shape[-1], len(directions)
    sizes = [np.max(np.abs(t), axis=(-2, -1), keepdims=True, initial=0) for t in directions]
    units = [t / np.where(c > 0, c, 1) for t, c in zip(directions, sizes, strict=True)]
    # the radius at which rounding of the sampled values weighs least
    step = (
        np.max(np.abs(a), axis=(-2, -1), keepdims=True, initial=0) * order / max(n - 1 - order, 0.5)
    )
    step = np.where(step > 0, step, 1)
    signs = 1 - 2 * (np.arange(2 ** (order - 1))[:, None] >> np.arange(order - 1) & 1)
    signs = np.concatenate([np.ones((len(signs), 1), np.int64), signs], axis=1)
    mixed = np.tensordot(signs.astype(a.real.dtype), np.stack(units), 1)
    roots = np.exp(2j * np.pi * np.arange(n) / max(n, 1)).astype(np.result_type(a, np.complex64))
    points = roots.reshape(n, *(1,) * (a.ndim + 1)) * step * mixed
    weights = np.multiply.outer(roots**-order / max(n, 1), signs.prod(axis=1) / len(signs))
    out = np.tensordot(weights.astype(roots.dtype), minors(a + points), 2)
    for c in sizes:
        out = out * (c / step)
    return out if a.dtype.kind == "c" else out.real
