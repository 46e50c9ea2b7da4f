"""JAX functions of the linear-algebra primitives.

The conventions of the NumPy kernels hold: a matrix without a result makes its own result NaN and
leaves its neighbours alone, and signs of factors follow the same rule. Products are asked for in
full precision. 16-bit operands are computed in float32.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autodiff.kernels.decompositions import TIE
from autodiff.lower.lean import spread, take_along, where
from autodiff.lower.matrices import HIGHEST, only_finite, product, swapped, widened

# --- triangles and systems -----------------------------------------------------------------


def triangle(x: Any, *, k: int, lower: bool) -> Any:
    """Elements on and below (lower) or above the k-th diagonal; zeros elsewhere."""
    shape = x.shape[-2:]
    rows, columns = (lax.broadcasted_iota(np.int32, shape, i) for i in range(2))
    edge = lax.add(rows, np.int32(k)) if k else rows
    kept = lax.ge(edge, columns) if lower else lax.le(edge, columns)
    return where(kept, x, spread(np.zeros((), x.dtype), x.shape, x.dtype))


def diagonal(x: Any, *, offset: int) -> Any:
    """The elements x[..., i, i + offset], which are n + 1 apart in rows of n laid end to end."""
    *lead, m, n = x.shape
    first, count = _diagonal_place(m, n, offset)
    if not count:
        return lax.full((*lead, 0), 0, x.dtype)
    zeros, ones = (0,) * len(lead), (1,) * len(lead)
    last = first + (count - 1) * (n + 1) + 1
    flat = lax.reshape(x, (*lead, m * n))
    return lax.slice(flat, (*zeros, first), (*lead, last), (*ones, n + 1))


def _diagonal_place(m: int, n: int, offset: int) -> tuple[int, int]:
    """Where a diagonal begins in an m x n matrix laid out flat, and how many elements it has."""
    row, column = max(0, -offset), max(0, offset)
    return row * n + column, max(min(m - row, n - column), 0)


def diagonal_matrix(x: Any, *, offset: int, shape: tuple[int, int]) -> Any:
    """Zero matrices with x on their offset-th diagonal."""
    *lead, count = x.shape
    m, n = shape
    if not count:
        return lax.full((*lead, m, n), 0, x.dtype)
    first = _diagonal_place(m, n, offset)[0]
    rest = m * n - first - (count - 1) * (n + 1) - 1
    widths = [(0, 0, 0)] * len(lead) + [(first, rest, n)]
    return lax.reshape(lax.pad(x, np.zeros((), x.dtype), widths), (*lead, m, n))


@widened
def triangular_solve(a: Any, b: Any, *, lower: bool, trans: bool, unit: bool) -> Any:
    """Solution of T x = b (T^T x = b with trans), T the lower or upper triangle of a."""
    if not b.size:
        return b
    return lax.linalg.triangular_solve(
        a, b, left_side=True, lower=lower, transpose_a=trans, unit_diagonal=unit
    )


@widened
def solve(a: Any, b: Any) -> Any:
    """Solution of a x = b by LU with row exchanges; NaN where a pivot is 0."""
    if not b.size:
        return b
    factors, _, order = lax.linalg.lu(a)
    rows = take_along(b, order, -2)
    y = triangular_solve(factors, rows, lower=True, trans=False, unit=True)
    x = triangular_solve(factors, y, lower=False, trans=False, unit=False)
    pivots = diagonal(factors, offset=0)
    singular = lax.reduce_or(lax.eq(pivots, np.zeros((), x.dtype)), (x.ndim - 2,))
    return where(lax.expand_dims(singular, (x.ndim - 2, x.ndim - 1)), np.nan, x)


def inv(a: Any) -> Any:
    """Inverse by LU with row exchanges; NaN where a pivot is 0."""
    return solve(a, spread(np.eye(a.shape[-1], dtype=a.dtype), a.shape, a.dtype))


# --- determinants --------------------------------------------------------------------------


@widened
def det(a: Any) -> Any:
    """Determinant; 1 for 0 x 0."""
    return jnp.linalg.det(a)


@widened
def slogdet(a: Any) -> Any:
    """Sign and logarithm of the absolute value of the determinant."""
    return tuple(jnp.linalg.slogdet(a))


def _unit_determinant(a: Any) -> Any:
    """The determinant of an orthogonal or unitary matrix, whose pivots multiply to size 1."""
    factors, exchanges, _ = lax.linalg.lu(a)
    moved = lax.ne(exchanges, lax.broadcasted_iota(np.int32, exchanges.shape, exchanges.ndim - 1))
    pivots = diagonal(factors, offset=0)
    return lax.reduce_prod(lax.select(moved, lax.neg(pivots), pivots), (a.ndim - 2,))


def _oriented_svd(a: Any) -> tuple[Any, Any, Any, Any]:
    a, bad = only_finite(a)
    u, s, vh = lax.linalg.svd(a, full_matrices=False)
    sign = _unit_determinant(product(u, vh))
    s = lax.add(s, spread(lax.squeeze(bad, (a.ndim - 1,)), s.shape, s.dtype))
    return u, s, vh, lax.expand_dims(sign, (a.ndim - 2, a.ndim - 1))


def _products_without(s: Any) -> Any:
    """Table of prod_{k != i, j} s_k (prod_{k != i} s_k on the diagonal), without division."""
    n = s.shape[-1]
    index = np.arange(n)
    skipped = (index == index[:, None, None]) | (index == index[None, :, None])
    return jnp.prod(jnp.where(skipped, jnp.ones((), s.dtype), s[..., None, None, :]), axis=-1)


@widened
def minors(a: Any) -> Any:
    """Matrix of signed minors, by the SVD."""
    if not a.size:
        return a
    u, s, vh, sign = _oriented_svd(a)
    minors = diagonal(_products_without(s), offset=0)
    return sign * product(jnp.conj(u) * minors[..., None, :], jnp.conj(vh))


@widened
def minors_along(a: Any, *directions: Any) -> Any:
    """Derivative of `minors` at a along all the directions."""
    if not a.size:
        return a
    return _towards(a, *directions) if len(directions) == 1 else _mixed_minors(a, directions)


def _towards(a: Any, t: Any) -> Any:
    u, s, vh, sign = _oriented_svd(a)
    b = product(product(jnp.conj(swapped(u)), t), jnp.conj(swapped(vh)))
    one = np.eye(s.shape[-1], dtype=s.dtype)
    pairs = _products_without(s) * (1 - one)
    sums = product(pairs, diagonal(b, offset=0)[..., None])
    return sign * product(product(jnp.conj(u), sums * one - pairs * swapped(b)), jnp.conj(vh))


def _mixed_minors(a: Any, directions: tuple[Any, ...]) -> Any:
    n, order = a.shape[-1], len(directions)
    sizes = [jnp.max(jnp.abs(t), axis=(-2, -1), keepdims=True) for t in directions]
    units = [t / jnp.where(c > 0, c, 1) for t, c in zip(directions, sizes, strict=True)]
    step = jnp.max(jnp.abs(a), axis=(-2, -1), keepdims=True) * order / max(n - 1 - order, 0.5)
    step = jnp.where(step > 0, step, 1)
    signs = 1 - 2 * (np.arange(2 ** (order - 1))[:, None] >> np.arange(order - 1) & 1)
    signs = np.concatenate([np.ones((len(signs), 1), np.int64), signs], axis=1)
    mixed = jnp.tensordot(signs.astype(a.real.dtype), jnp.stack(units), 1, precision=HIGHEST)
    roots = np.exp(2j * np.pi * np.arange(n) / n).astype(np.result_type(a.dtype, np.complex64))
    points = roots.reshape(n, *(1,) * (a.ndim + 1)) * step * mixed
    weights = np.multiply.outer(roots**-order / n, signs.prod(axis=1) / len(signs))
    out = jnp.tensordot(weights.astype(roots.dtype), minors(a + points), 2, precision=HIGHEST)
    for c in sizes:
        out = out * (c / step)
    return out if jnp.iscomplexobj(a) else out.real


# --- decompositions ------------------------------------------------------------------------


@widened
def cholesky(a: Any) -> Any:
    """Lower factor of the symmetric matrix whose lower triangle is given; NaN where not SPD."""
    if not a.size:
        return a
    return triangle(lax.linalg.cholesky(a, symmetrize_input=False), k=0, lower=True)


@widened
def lu(a: Any) -> Any:
    """Row order p, unit lower factor and upper factor, a[p] = l u."""
    m, n = a.shape[-2:]
    k = min(m, n)
    if not a.size:
        order = jnp.broadcast_to(jnp.arange(m), a.shape[:-1])
        return (
            order,
            jnp.zeros((*a.shape[:-1], k), a.dtype),
            jnp.zeros((*a.shape[:-2], k, n), a.dtype),
        )
    factors, _, order = lax.linalg.lu(a)
    lower = triangle(lax.slice_in_dim(factors, 0, k, axis=a.ndim - 1), k=-1, lower=True)
    upper = triangle(lax.slice_in_dim(factors, 0, k, axis=a.ndim - 2), k=0, lower=False)
    return order, lower + np.eye(m, k, dtype=a.dtype), upper


@widened
def qr(a: Any, *, canonical: bool) -> Any:
    """Reduced q and r; canonical: the diagonal of r is not negative."""
    n = a.shape[-1]
    if not a.size:
        return a, jnp.zeros((*a.shape[:-2], n, n), a.dtype)
    a, bad = only_finite(a)
    q, r = jnp.linalg.qr(a)
    if canonical:
        sign = jnp.where(diagonal(r, offset=0) < 0, -1, 1).astype(a.dtype)
        q, r = q * sign[..., None, :], r * sign[..., :, None]
    return q + bad, r + bad


def _orientation(v: Any) -> Any:
    """-1 or 1 for each column: the sign of its first entry of largest magnitude."""
    magnitude = jnp.abs(v)
    largest = magnitude >= TIE * jnp.max(magnitude, axis=-2, keepdims=True)
    entry = jnp.take_along_axis(v, jnp.argmax(largest, axis=-2)[..., None, :], axis=-2)
    return jnp.where(entry < 0, -1, 1).astype(v.dtype)


@widened
def eigh(a: Any, *, canonical: bool) -> Any:
    """Eigenvalues in ascending order and eigenvectors, from the lower triangle."""
    if not a.size:
        return jnp.zeros(a.shape[:-1], a.dtype), a
    a, bad = only_finite(triangle(a, k=0, lower=True))
    v, w = lax.linalg.eigh(a, lower=True, symmetrize_input=False)
    v = v * _orientation(v) if canonical else v
    return w + bad[..., 0], v + bad


@widened
def svd(a: Any, *, canonical: bool) -> Any:
    """Reduced u, singular values in descending order, and vh."""
    *lead, m, n = a.shape
    if not a.size:
        k = min(m, n)
        shapes = ((*lead, m, k), (*lead, k), (*lead, k, n))
        return tuple(jnp.zeros(s, a.dtype) for s in shapes)
    a, bad = only_finite(a)
    u, s, vh = lax.linalg.svd(a, full_matrices=False)
    if canonical:
        sign = _orientation(u)
        u, vh = u * sign, vh * swapped(sign)
    return u + bad, s + bad[..., 0], vh + bad
