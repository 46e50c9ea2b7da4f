"""JAX functions of the linear-algebra primitives.

The conventions of the NumPy kernels hold: a matrix without a result makes its own result NaN and
leaves its neighbours alone, and signs of factors follow the same rule. Products are asked for in
full precision. 16-bit operands are computed in float32.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autodiff.kernels.decompositions import TIE
from autodiff.kernels.matrix_functions import PADE, THETA

HIGHEST = lax.Precision.HIGHEST
_product = functools.partial(jnp.matmul, precision=HIGHEST)


def _widened(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Run a rule in float32 on 16-bit operands: XLA's factorisations take no others."""

    @functools.wraps(rule)
    def wide(*arrays: Any, **params: Any) -> Any:
        return rule(*(a.astype(jnp.float32) if _narrow(a) else a for a in arrays), **params)

    return wide


def _narrow(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating)) and x.dtype.itemsize < 4


def _swapped(x: Any) -> Any:
    return jnp.swapaxes(x, -1, -2)


def _only_finite(a: Any) -> tuple[Any, Any]:
    """The matrices, those that are not finite replaced by zeros, and NaN in their places."""
    finite = jnp.isfinite(a).all(axis=(-2, -1), keepdims=True)
    zero = jnp.zeros((), a.dtype)
    return jnp.where(finite, a, zero), jnp.where(finite, zero.real, jnp.nan).astype(zero.real.dtype)


# --- triangles and systems -----------------------------------------------------------------


def triangle(x: Any, *, k: int, lower: bool) -> Any:
    """Elements on and below (lower) or above the k-th diagonal; zeros elsewhere."""
    return jnp.tril(x, k) if lower else jnp.triu(x, k)


def diagonal(x: Any, *, offset: int) -> Any:
    """The elements x[..., i, i + offset]."""
    return jnp.diagonal(x, offset, -2, -1)


def diagonal_matrix(x: Any, *, offset: int, shape: tuple[int, int]) -> Any:
    """Zero matrices with x on their offset-th diagonal."""
    rows = np.arange(x.shape[-1]) + max(0, -offset)
    return jnp.zeros((*x.shape[:-1], *shape), x.dtype).at[..., rows, rows + offset].set(x)


@_widened
def triangular_solve(a: Any, b: Any, *, lower: bool, trans: bool, unit: bool) -> Any:
    """Solution of T x = b (T^T x = b with trans), T the lower or upper triangle of a."""
    if not b.size:
        return b
    return lax.linalg.triangular_solve(
        a, b, left_side=True, lower=lower, transpose_a=trans, unit_diagonal=unit
    )


@_widened
def solve(a: Any, b: Any) -> Any:
    """Solution of a x = b by LU with row exchanges; NaN where a pivot is 0."""
    if not b.size:
        return b
    factors, _, order = lax.linalg.lu(a)
    rows = jnp.take_along_axis(b, order[..., :, None], axis=-2)
    y = triangular_solve(factors, rows, lower=True, trans=False, unit=True)
    x = triangular_solve(factors, y, lower=False, trans=False, unit=False)
    singular = (jnp.diagonal(factors, 0, -2, -1) == 0).any(axis=-1)
    return jnp.where(singular[..., None, None], jnp.nan, x).astype(x.dtype)


def inv(a: Any) -> Any:
    """Inverse by LU with row exchanges; NaN where a pivot is 0."""
    return solve(a, jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape))


# --- determinants --------------------------------------------------------------------------


@_widened
def det(a: Any) -> Any:
    """Determinant; 1 for 0 x 0."""
    return jnp.linalg.det(a)


@_widened
def slogdet(a: Any) -> Any:
    """Sign and logarithm of the absolute value of the determinant."""
    return tuple(jnp.linalg.slogdet(a))


def _oriented_svd(a: Any) -> tuple[Any, Any, Any, Any]:
    a, bad = _only_finite(a)
    u, s, vh = jnp.linalg.svd(a, full_matrices=False)
    sign = jnp.linalg.det(u) * jnp.linalg.det(vh)
    return u, s + bad[..., 0], vh, sign[..., None, None]


def _products_without(s: Any) -> Any:
    """Table of prod_{k != i, j} s_k (prod_{k != i} s_k on the diagonal), without division."""
    n = s.shape[-1]
    index = np.arange(n)
    skipped = (index == index[:, None, None]) | (index == index[None, :, None])
    return jnp.prod(jnp.where(skipped, jnp.ones((), s.dtype), s[..., None, None, :]), axis=-1)


@_widened
def minors(a: Any) -> Any:
    """Matrix of signed minors, by the SVD."""
    if not a.size:
        return a
    u, s, vh, sign = _oriented_svd(a)
    minors = jnp.diagonal(_products_without(s), 0, -2, -1)
    return sign * _product(jnp.conj(u) * minors[..., None, :], jnp.conj(vh))


@_widened
def minors_along(a: Any, *directions: Any) -> Any:
    """Derivative of `minors` at a along all the directions."""
    if not a.size:
        return a
    return _towards(a, *directions) if len(directions) == 1 else _mixed_minors(a, directions)


def _towards(a: Any, t: Any) -> Any:
    u, s, vh, sign = _oriented_svd(a)
    b = _product(_product(jnp.conj(_swapped(u)), t), jnp.conj(_swapped(vh)))
    one = np.eye(s.shape[-1], dtype=s.dtype)
    pairs = _products_without(s) * (1 - one)
    sums = _product(pairs, jnp.diagonal(b, 0, -2, -1)[..., None])
    return sign * _product(_product(jnp.conj(u), sums * one - pairs * _swapped(b)), jnp.conj(vh))


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


@_widened
def cholesky(a: Any) -> Any:
    """Lower factor of the symmetric matrix whose lower triangle is given; NaN where not SPD."""
    return jnp.tril(lax.linalg.cholesky(a, symmetrize_input=False)) if a.size else a


@_widened
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
    lower = jnp.tril(factors[..., :k], -1) + np.eye(m, k, dtype=a.dtype)
    return order, lower, jnp.triu(factors[..., :k, :])


@_widened
def qr(a: Any, *, canonical: bool) -> Any:
    """Reduced q and r; canonical: the diagonal of r is not negative."""
    n = a.shape[-1]
    if not a.size:
        return a, jnp.zeros((*a.shape[:-2], n, n), a.dtype)
    a, bad = _only_finite(a)
    q, r = jnp.linalg.qr(a)
    if canonical:
        sign = jnp.where(jnp.diagonal(r, 0, -2, -1) < 0, -1, 1).astype(a.dtype)
        q, r = q * sign[..., None, :], r * sign[..., :, None]
    return q + bad, r + bad


def _orientation(v: Any) -> Any:
    """-1 or 1 for each column: the sign of its first entry of largest magnitude."""
    magnitude = jnp.abs(v)
    largest = magnitude >= TIE * jnp.max(magnitude, axis=-2, keepdims=True)
    entry = jnp.take_along_axis(v, jnp.argmax(largest, axis=-2)[..., None, :], axis=-2)
    return jnp.where(entry < 0, -1, 1).astype(v.dtype)


@_widened
def eigh(a: Any, *, canonical: bool) -> Any:
    """Eigenvalues in ascending order and eigenvectors, from the lower triangle."""
    if not a.size:
        return jnp.zeros(a.shape[:-1], a.dtype), a
    a, bad = _only_finite(jnp.tril(a))
    v, w = lax.linalg.eigh(a, lower=True, symmetrize_input=False)
    v = v * _orientation(v) if canonical else v
    return w + bad[..., 0], v + bad


@_widened
def svd(a: Any, *, canonical: bool) -> Any:
    """Reduced u, singular values in descending order, and vh."""
    *lead, m, n = a.shape
    if not a.size:
        k = min(m, n)
        shapes = ((*lead, m, k), (*lead, k), (*lead, k, n))
        return tuple(jnp.zeros(s, a.dtype) for s in shapes)
    a, bad = _only_finite(a)
    u, s, vh = jnp.linalg.svd(a, full_matrices=False)
    if canonical:
        sign = _orientation(u)
        u, vh = u * sign, vh * _swapped(sign)
    return u + bad, s + bad[..., 0], vh + bad


# --- matrix functions ----------------------------------------------------------------------


def _one_norm(a: Any) -> Any:
    return jnp.max(jnp.sum(jnp.abs(a), axis=-2), axis=-1)[..., None, None]


def _power_of_two(exponent: Any, dtype: Any) -> Any:
    """2^exponent in two factors, neither of them subnormal (XLA flushes those on CPUs)."""
    half = exponent // 2
    one = jnp.ones((), dtype)
    return jnp.ldexp(one, half), jnp.ldexp(one, exponent - half)


@_widened
def expm(a: Any) -> Any:
    """Matrix exponential by scaling, a [13/13] Padé approximant and squaring."""
    if not a.size:
        return a
    norm = _one_norm(a)
    usable = jnp.isfinite(norm)
    ratio = jnp.where(usable & (norm > THETA), norm, THETA) / THETA
    squarings = jnp.ceil(jnp.log2(ratio)).astype(jnp.int32)
    first, second = _power_of_two(-squarings, norm.dtype)
    a = jnp.where(usable, a * first * second, jnp.eye(a.shape[-1], dtype=a.dtype))

    def squared(step: Any, x: Any) -> Any:
        return jnp.where(step < squarings, _product(x, x), x)

    x = lax.fori_loop(0, jnp.max(squarings), squared, _pade13(a))
    return jnp.where(usable, x, jnp.nan).astype(a.dtype)


def _pade13(a: Any) -> Any:
    c = [jnp.asarray(p / PADE[0], a.real.dtype) for p in PADE]
    one = jnp.eye(a.shape[-1], dtype=a.dtype)
    a2 = _product(a, a)
    a4 = _product(a2, a2)
    a6 = _product(a4, a2)
    odd = _product(a6, c[13] * a6 + c[11] * a4 + c[9] * a2)
    odd = _product(a, odd + c[7] * a6 + c[5] * a4 + c[3] * a2 + c[1] * one)
    even = _product(a6, c[12] * a6 + c[10] * a4 + c[8] * a2)
    even = even + c[6] * a6 + c[4] * a4 + c[2] * a2 + c[0] * one
    return solve(even - odd, even + odd)


@_widened
def expm_frechet(a: Any, t: Any) -> Any:
    """Derivative of the exponential at a in direction t: a block of exp([[a, t], [0, a]])."""
    if not a.size:
        return a
    n = a.shape[-1]
    norm = _one_norm(t)
    exponent = jnp.where(jnp.isfinite(norm) & (norm > 0), jnp.floor(jnp.log2(norm)), 0)
    first, second = _power_of_two(exponent.astype(jnp.int32), norm.dtype)
    top = jnp.concatenate([a, t / first / second], axis=-1)
    bottom = jnp.concatenate([jnp.zeros_like(a), a], axis=-1)
    return expm(jnp.concatenate([top, bottom], axis=-2))[..., :n, n:] * first * second


@_widened
def pinv(a: Any, *, rtol: float) -> Any:
    """Pseudo-inverse; singular values up to rtol times the largest count as 0."""
    if not a.size:
        return _swapped(a)
    a, bad = _only_finite(a)
    u, s, vh = jnp.linalg.svd(a, full_matrices=False)
    # a program traced in float64 may be lowered to float32, whose noise is larger than its rtol
    rtol = max(rtol, max(a.shape[-2:]) * float(jnp.finfo(a.dtype).eps))
    large = s > rtol * jnp.max(s, axis=-1, keepdims=True)
    inverse = jnp.where(large, 1 / jnp.where(large, s, 1), 0)
    return _product(_swapped(vh), inverse[..., :, None] * _swapped(u)) + bad
