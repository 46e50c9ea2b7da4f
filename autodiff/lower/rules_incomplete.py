"""JAX functions of the incomplete gamma and beta functions and their parameter derivatives.

What a formula asks of several arguments (log Gamma of a, b and a + b) is written once, of the
arguments stacked: such functions are a hundred operations each.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autodiff.kernels import incomplete as kernels
from autodiff.lower.lean import isnan, spread, where
from autodiff.lower.series import digammas


def _stacked(*xs: Any) -> Any:
    return lax.concatenate([lax.expand_dims(x, (0,)) for x in xs], 0)


def _each(function: Callable[[Any], Any], *xs: Any) -> list[Any]:
    """A function of several arrays of one shape."""
    values = function(_stacked(*xs))
    return [lax.index_in_dim(values, i, 0, keepdims=False) for i in range(len(xs))]


def _same(*xs: Any) -> list[Any]:
    """Arrays broadcast to one shape."""
    shape = np.broadcast_shapes(*(x.shape for x in xs))
    return [spread(x, shape, x.dtype) for x in xs]


def _stirling(a: Any) -> Any:
    z = 1 / (a * a)
    tail = 1 / 1260 - z * (1 / 1680 - z * (1 / 1188 - z * (691 / 360360)))
    return (1 / 12 - z * (1 / 360 - z * tail)) / a


def _excess(ratio: Any, d: Any) -> Any:
    return where(d < -0.5, lax.log(ratio), lax.log1p(d)) - d


def igamma(a: Any, x: Any) -> Any:
    """The regularised lower incomplete gamma function."""
    return lax.igamma(*_same(a, x))


def igammac(a: Any, x: Any) -> Any:
    """The regularised upper incomplete gamma function."""
    return lax.igammac(*_same(a, x))


def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularised incomplete beta function."""
    return lax.betainc(*_same(a, b, x))


def gamma_density(a: Any, x: Any) -> Any:
    """x ** (a - 1) e ** -x / Gamma(a)."""
    a, x = _same(a, x)
    small = a < 16
    s = where(small, a, 1)
    logs = where(s == 1, 0, (s - 1) * lax.log(x)) - x - lax.lgamma(s)
    direct = lax.exp(logs)
    b = where(small, 16, a)
    y = where((x == 0) | (x == np.inf), 1, x)
    exponent = _stirling(b) - b * _excess(y / b, (y - b) / b)
    series = lax.sqrt(b / (2 * np.pi)) / y * lax.exp(-exponent)
    value = where(small, direct, where(x == 0, 0, series))
    value = where(x == np.inf, 0, value)
    return where((a > 0) & (x >= 0), value, np.nan)


def beta_density(a: Any, b: Any, x: Any) -> Any:
    """x ** (a - 1) (1 - x) ** (b - 1) / B(a, b)."""
    a, b, x = _same(a, b, x)
    small = (a < 16) | (b < 16)
    logs = where(a == 1, 0, (a - 1) * lax.log(x)) + where(b == 1, 0, (b - 1) * lax.log1p(-x))
    of_a, of_b, of_both = _each(lax.lgamma, a, b, a + b)
    general = lax.exp(logs - (of_a + of_b - of_both))
    p, q = where(small, 16, a), where(small, 16, b)
    end = (x <= 0) | (x >= 1)
    y = where(end, 0.5, x)
    n = p + q
    d = y - p / n
    both = _stacked(p, q)
    excess = _excess(_stacked(y, 1 - y) * n / both, _stacked(d, -d) * n / both)
    of_p, of_q, of_n = _each(_stirling, p, q, n)
    exponent = lax.reduce_sum(both * excess, (0,)) + of_n - of_p - of_q
    series = lax.sqrt(p * q / (2 * np.pi * n)) / (y * (1 - y)) * lax.exp(exponent)
    value = where(small, general, where(end, 0, series))
    return where((a > 0) & (b > 0) & (x >= 0) & (x <= 1), value, np.nan)


def _points(dtype: Any) -> tuple[Any, Any]:
    return np.asarray(kernels.POINTS, dtype), np.asarray(kernels.WEIGHTS, dtype)


def _integral(*factors: Any) -> Any:
    """The sum of products over the quadrature's axis, the last one."""
    product = functools.reduce(lambda x, y: x * y, factors)
    return lax.reduce_sum(product, (product.ndim - 1,))


def igamma_a(a: Any, x: Any, *, order: int) -> Any:
    """The derivative of given order in a of the lower incomplete gamma function."""
    a, x = _same(a, x)
    points, weights = _points(x.dtype)
    inside = (x > 0) & (a > 0) & lax.is_finite(x)
    p, y = where(inside, a, 1), where(inside, x, 0.5)
    density = gamma_density(p, y)
    p, y = p[..., None], y[..., None]
    low = y <= p
    root = lax.sqrt(where(low, p, y))
    below = 1 / lax.max(p - y, lax.min(p, root))
    width = lax.max(lax.full_like(y, 1), root)
    scale = where(low, below, lax.min(width, y / where(low, y, y - p)))
    v = scale * points
    log_t = where(low, -v, lax.log1p(where(low, 0, v) / y))
    fall = p * log_t - y * lax.expm1(jnp.minimum(log_t, 0))
    exponent = where(low, fall, (p - 1) * log_t - v)
    higher = [-digammas(k, p) for k in range(1, order)]
    ratio = lax.exp(exponent) * kernels.bell(lax.log(y) - digammas(0, p) + log_t, higher)
    value = density * _integral(where(low, y, -1) * scale * ratio, weights)
    outside = (x < 0) | (a <= 0) | isnan(x) | isnan(a)
    return where(inside, value, where(outside, lax.full_like(x, np.nan), 0))


def betainc_ab(a: Any, b: Any, x: Any, *, orders: tuple[int, int]) -> Any:
    """The derivative of given orders in a and b of the incomplete beta function."""
    a, b, x = _same(a, b, x)
    points, weights = _points(x.dtype)
    inside = (x > 0) & (x < 1) & (a > 0) & (b > 0)
    p, q, y = where(inside, a, 1), where(inside, b, 1), where(inside, x, 0.5)
    density = beta_density(p, q, y)
    p, q, y = p[..., None], q[..., None], y[..., None]
    low = y <= p / (p + q)
    r, s = where(low, p, q), where(low, q, p)
    near, far = where(low, y, 1 - y), where(low, 1 - y, y)
    bend = jnp.maximum(s - 1, 0) * near / far
    scale = 1 / lax.max(r - bend, lax.min(r, lax.sqrt(bend / far)))
    scale = where(bend > 0, scale, 1 / r)
    v = scale * points
    rise = lax.log1p(-near * lax.expm1(-v) / far)
    log_near, log_far = lax.log(near) - v, lax.log(far) + rise
    log_t, log_u = where(low, log_near, log_far), where(low, log_far, log_near)

    @functools.cache
    def gammas(order: int) -> list[Any]:
        return _each(functools.partial(digammas, order), p, q, p + q)

    def log_derivative(i: int, j: int) -> Any:
        in_p, in_q, both = gammas(i + j - 1)
        if i and j:
            return both
        own, log = (in_p, log_t) if i else (in_q, log_u)
        return both - own + (log if i + j == 1 else 0)

    ratio = lax.exp(-r * v + (s - 1) * rise) * kernels.mixed_bell(log_derivative, orders)
    value = density * _integral(where(low, y, y - 1) * scale * ratio, weights)
    outside = (x < 0) | (x > 1) | (a <= 0) | (b <= 0) | isnan(a * b * x)
    return where(inside, value, where(outside, lax.full_like(x, np.nan), 0))


def zeta(s: Any, q: Any) -> Any:
    """The Hurwitz zeta function."""
    return lax.zeta(*_same(s, q))
