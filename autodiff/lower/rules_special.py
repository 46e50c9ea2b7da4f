"""JAX functions of the special functions that no single JAX call gives."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from autodiff.lower.lean import isnan, where
from autodiff.lower.series import digammas, horner

_RULE = np.polynomial.legendre.leggauss(40)


def _nodes(dtype: Any, order: int) -> tuple[Any, Any]:
    """Quadrature nodes on (0, 1) and weights for the integral of s ** order f(s)."""
    nodes, weights = (_RULE[0] + 1) / 2, _RULE[1] / 2
    return np.asarray(nodes, dtype), np.asarray(weights * nodes**order, dtype)


def _integral(values: Any, weights: Any) -> Any:
    return lax.reduce_sum(values * weights, (values.ndim - 1,))


def _sinpi(x: Any) -> Any:
    r = x - 2 * jnp.rint(x / 2)
    r = where(lax.abs(r) > 0.5, jnp.copysign(1, r) - r, r)
    return lax.sin(np.asarray(np.pi, x.dtype) * r)


def _cospi(x: Any) -> Any:
    r = lax.abs(x - 2 * jnp.rint(x / 2))
    pi = np.asarray(np.pi, x.dtype)
    return where(r < 0.25, jnp.cos(pi * r), lax.sin(pi * (0.5 - r)))


def sinc(x: Any, *, order: int) -> Any:
    """The derivative of given order of sin(pi x) / (pi x)."""
    u = np.asarray(np.pi, x.dtype) * x
    if order == 0:
        return where(u == 0, 1, _sinpi(x) / where(u == 0, 1, u))
    far = lax.abs(u) > 2 + 2 * order
    nodes, weights = _nodes(x.dtype, order)
    wave = (jnp.cos, jnp.sin, jnp.cos, jnp.sin)[order % 4](where(far, 1, u)[..., None] * nodes)
    near = (1, -1, -1, 1)[order % 4] * _integral(wave, weights)
    safe = where(far, u, 1)
    away = _sinpi(x) / safe
    for n in range(1, order + 1):
        away = ((_cospi, _sinpi)[(n + 1) % 2](x) * (1, 1, -1, -1)[n % 4] - n * away) / safe
    return np.pi**order * where(far, away, near)


def exprel(x: Any, *, order: int) -> Any:
    """The derivative of given order of (e ** x - 1) / x."""
    far = lax.abs(x) > 20 + order
    cut = where(far, 0, x)
    if order == 0:
        near = where(cut == 0, 1, lax.expm1(cut) / where(cut == 0, 1, cut))
    else:
        nodes, weights = _nodes(x.dtype, order)
        near = _integral(lax.exp(cut[..., None] * nodes), weights)
    safe = where(far, x, 1)
    low = jnp.minimum(safe, 0)
    top = where(safe > 0, 1, lax.exp(low))
    away = where(safe > 0, -lax.expm1(-lax.abs(safe)), lax.expm1(low)) / safe
    for n in range(1, order + 1):
        away = (top - n * away) / safe
    half = lax.exp(jnp.maximum(safe, 0) / 2)
    return where(far, away * half * half, near)


def polygamma(x: Any, *, n: int) -> Any:
    """The n-th derivative of digamma, n >= 1; negative x by reflection."""
    left = x < 0
    value = digammas(n, where(left, 1 - x, x))
    p = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(n):
        p = -p.deriv() * np.polynomial.Polynomial([1.0, 0.0, 1.0])
    y = where(left, x, 0.5)
    value_of_p = horner([*p.coef], _cospi(y) / _sinpi(y))
    sign = -1.0 if n % 2 == 0 else 1.0
    return where(left, -sign * value - np.pi ** (n + 1) * value_of_p, value)


def trigamma(x: Any) -> Any:
    """The first derivative of digamma."""
    return polygamma(x, n=1)


def gamma(x: Any) -> Any:
    """The gamma function, with its sign for negative x."""
    odd = (x < 0) & (jnp.floor(x) % 2 != 0)
    return where(odd, lax.full_like(x, -1), 1) * lax.exp(lax.lgamma(x))


def gaussian(x: Any, *, scale: float) -> Any:
    """exp(-scale x ** 2), with x split so that the square of its leading part is exact."""
    x = jnp.clip(x, -64, 64)
    top = jnp.rint(x * 16) / 16
    return lax.exp(-scale * top * top) * lax.exp(-scale * (x - top) * (x + top))


def ndtr(x: Any) -> Any:
    """The standard normal distribution function."""
    return 0.5 * lax.erfc(-x * np.asarray(math.sqrt(0.5), x.dtype))


def ndtri(x: Any) -> Any:
    """The quantile of the standard normal distribution."""
    return jax.scipy.special.ndtri(x)


def entr(x: Any) -> Any:
    """-x log(x), 0 at 0 and -inf below."""
    inside = where(x > 0, x, 1)
    value = where(x == 0, 0, -inside * lax.log(inside))
    return where(isnan(x), x, where(x < 0, -jnp.inf, value))
