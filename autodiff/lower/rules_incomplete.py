"""JAX functions of the incomplete gamma and beta functions and their parameter derivatives."""

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autodiff.kernels import incomplete as kernels


def _digammas(order: int, x: Any) -> Any:
    """digamma (order 0) or a derivative of it, for x > 0: no reflection."""
    if order == 0:
        return lax.digamma(x)
    tail = lax.zeta(jnp.full(x.shape, order + 1, x.dtype), x)
    return (-1) ** (order + 1) * math.factorial(order) * jnp.where(x == jnp.inf, 0, tail)


def _stirling(a: Any) -> Any:
    z = 1 / (a * a)
    tail = 1 / 1260 - z * (1 / 1680 - z * (1 / 1188 - z * (691 / 360360)))
    return (1 / 12 - z * (1 / 360 - z * tail)) / a


def _excess(ratio: Any, d: Any) -> Any:
    return jnp.where(d < -0.5, jnp.log(ratio), jnp.log1p(d)) - d


def _log_beta(a: Any, b: Any) -> Any:
    return lax.lgamma(a) + lax.lgamma(b) - lax.lgamma(a + b)


def igamma(a: Any, x: Any) -> Any:
    """The regularised lower incomplete gamma function."""
    return lax.igamma(*jnp.broadcast_arrays(a, x))


def igammac(a: Any, x: Any) -> Any:
    """The regularised upper incomplete gamma function."""
    return lax.igammac(*jnp.broadcast_arrays(a, x))


def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularised incomplete beta function."""
    return lax.betainc(*jnp.broadcast_arrays(a, b, x))


def gamma_density(a: Any, x: Any) -> Any:
    """x ** (a - 1) e ** -x / Gamma(a)."""
    a, x = jnp.broadcast_arrays(a, x)
    small = a < 16
    s = jnp.where(small, a, 1)
    logs = jnp.where(s == 1, 0, (s - 1) * jnp.log(x)) - x - lax.lgamma(s)
    direct = jnp.exp(logs)
    b = jnp.where(small, 16, a)
    y = jnp.where((x == 0) | (x == jnp.inf), 1, x)
    exponent = _stirling(b) - b * _excess(y / b, (y - b) / b)
    series = jnp.sqrt(b / (2 * np.pi)) / y * jnp.exp(-exponent)
    value = jnp.where(small, direct, jnp.where(x == 0, 0, series))
    value = jnp.where(x == jnp.inf, 0, value)
    return jnp.where((a > 0) & (x >= 0), value, jnp.nan)


def beta_density(a: Any, b: Any, x: Any) -> Any:
    """x ** (a - 1) (1 - x) ** (b - 1) / B(a, b)."""
    a, b, x = jnp.broadcast_arrays(a, b, x)
    small = (a < 16) | (b < 16)
    logs = jnp.where(a == 1, 0, (a - 1) * jnp.log(x)) + jnp.where(
        b == 1, 0, (b - 1) * jnp.log1p(-x)
    )
    general = jnp.exp(logs - _log_beta(a, b))
    p, q = jnp.where(small, 16, a), jnp.where(small, 16, b)
    end = (x <= 0) | (x >= 1)
    y = jnp.where(end, 0.5, x)
    n = p + q
    d = y - p / n
    exponent = p * _excess(y * n / p, d * n / p) + q * _excess((1 - y) * n / q, -d * n / q)
    exponent = exponent + _stirling(n) - _stirling(p) - _stirling(q)
    series = jnp.sqrt(p * q / (2 * np.pi * n)) / (y * (1 - y)) * jnp.exp(exponent)
    value = jnp.where(small, general, jnp.where(end, 0, series))
    return jnp.where((a > 0) & (b > 0) & (x >= 0) & (x <= 1), value, jnp.nan)


def _points(dtype: Any) -> tuple[Any, Any]:
    return jnp.asarray(kernels.POINTS, dtype), jnp.asarray(kernels.WEIGHTS, dtype)


def igamma_a(a: Any, x: Any, *, order: int) -> Any:
    """The derivative of given order in a of the lower incomplete gamma function."""
    a, x = jnp.broadcast_arrays(a, x)
    points, weights = _points(x.dtype)
    inside = (x > 0) & (a > 0) & jnp.isfinite(x)
    p, y = jnp.where(inside, a, 1)[..., None], jnp.where(inside, x, 0.5)[..., None]
    low = y <= p
    width = jnp.where(low, 1, jnp.maximum(1, jnp.sqrt(y)))
    below = 1 / jnp.maximum(p - y, jnp.minimum(p, jnp.sqrt(p)))
    scale = jnp.where(low, below, jnp.minimum(width, y / jnp.where(low, y, y - p)))
    v = scale * points
    log_t = jnp.where(low, -v, jnp.log1p(jnp.where(low, 0, v) / y))
    fall = p * log_t - y * jnp.expm1(jnp.minimum(log_t, 0))
    exponent = jnp.where(low, fall, (p - 1) * log_t - v)
    higher = [-_digammas(k, p) for k in range(1, order)]
    ratio = jnp.exp(exponent) * kernels.bell(jnp.log(y) - lax.digamma(p) + log_t, higher)
    total = jnp.sum(jnp.where(low, y, -1) * scale * ratio * weights, axis=-1)
    value = gamma_density(p[..., 0], y[..., 0]) * total
    outside = (x < 0) | (a <= 0) | jnp.isnan(x) | jnp.isnan(a)
    return jnp.where(inside, value, jnp.where(outside, jnp.nan, 0))


def betainc_ab(a: Any, b: Any, x: Any, *, orders: tuple[int, int]) -> Any:
    """The derivative of given orders in a and b of the incomplete beta function."""
    a, b, x = jnp.broadcast_arrays(a, b, x)
    points, weights = _points(x.dtype)
    inside = (x > 0) & (x < 1) & (a > 0) & (b > 0)
    p, q = jnp.where(inside, a, 1)[..., None], jnp.where(inside, b, 1)[..., None]
    y = jnp.where(inside, x, 0.5)[..., None]
    low = y <= p / (p + q)
    r, s = jnp.where(low, p, q), jnp.where(low, q, p)
    near, far = jnp.where(low, y, 1 - y), jnp.where(low, 1 - y, y)
    bend = jnp.maximum(s - 1, 0) * near / far
    scale = 1 / jnp.maximum(r - bend, jnp.minimum(r, jnp.sqrt(bend / far)))
    v = jnp.where(bend > 0, scale, 1 / r) * points
    rise = jnp.log1p(-near * jnp.expm1(-v) / far)
    log_near, log_far = jnp.log(near) - v, jnp.log(far) + rise
    log_t, log_u = jnp.where(low, log_near, log_far), jnp.where(low, log_far, log_near)

    @functools.cache
    def log_derivative(i: int, j: int) -> Any:
        both = _digammas(i + j - 1, p + q)
        if j == 0:
            return both - _digammas(i - 1, p) + (log_t if i == 1 else 0)
        return both - _digammas(j - 1, q) + (log_u if j == 1 else 0) if i == 0 else both

    ratio = jnp.exp(-r * v + (s - 1) * rise) * kernels.mixed_bell(log_derivative, orders)
    scale = jnp.where(bend > 0, scale, 1 / r)
    total = jnp.sum(jnp.where(low, y, y - 1) * scale * ratio * weights, axis=-1)
    value = beta_density(p[..., 0], q[..., 0], y[..., 0]) * total
    outside = (x < 0) | (x > 1) | (a <= 0) | (b <= 0) | jnp.isnan(a * b * x)
    return jnp.where(inside, value, jnp.where(outside, jnp.nan, 0))


def zeta(s: Any, q: Any) -> Any:
    """The Hurwitz zeta function."""
    return lax.zeta(*jnp.broadcast_arrays(s, q))
