"""JAX functions of the special functions that no single JAX call gives."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_RULE = np.polynomial.legendre.leggauss(40)


def _nodes(dtype: Any, order: int) -> tuple[Any, Any]:
    """Quadrature nodes on (0, 1) and weights for the integral of s ** order f(s)."""
    nodes, weights = (_RULE[0] + 1) / 2, _RULE[1] / 2
    return jnp.asarray(nodes, dtype), jnp.asarray(weights * nodes**order, dtype)


def _integral(values: Any, weights: Any) -> Any:
    return jnp.sum(values * weights, axis=-1)


def _sinpi(x: Any) -> Any:
    r = x - 2 * jnp.rint(x / 2)
    r = jnp.where(jnp.abs(r) > 0.5, jnp.copysign(1, r) - r, r)
    return jnp.sin(jnp.asarray(np.pi, x.dtype) * r)


def _cospi(x: Any) -> Any:
    r = jnp.abs(x - 2 * jnp.rint(x / 2))
    pi = jnp.asarray(np.pi, x.dtype)
    return jnp.where(r < 0.25, jnp.cos(pi * r), jnp.sin(pi * (0.5 - r)))


def sinc(x: Any, *, order: int) -> Any:
    """The derivative of given order of sin(pi x) / (pi x)."""
    u = jnp.asarray(np.pi, x.dtype) * x
    if order == 0:
        return jnp.where(u == 0, 1, _sinpi(x) / jnp.where(u == 0, 1, u))
    far = jnp.abs(u) > 2 + 2 * order
    nodes, weights = _nodes(x.dtype, order)
    wave = (jnp.cos, jnp.sin, jnp.cos, jnp.sin)[order % 4](jnp.where(far, 1, u)[..., None] * nodes)
    near = (1, -1, -1, 1)[order % 4] * _integral(wave, weights)
    safe = jnp.where(far, u, 1)
    away = _sinpi(x) / safe
    for n in range(1, order + 1):
        away = ((_cospi, _sinpi)[(n + 1) % 2](x) * (1, 1, -1, -1)[n % 4] - n * away) / safe
    return np.pi**order * jnp.where(far, away, near)


def exprel(x: Any, *, order: int) -> Any:
    """The derivative of given order of (e ** x - 1) / x."""
    far = jnp.abs(x) > 20 + order
    cut = jnp.where(far, 0, x)
    if order == 0:
        near = jnp.where(cut == 0, 1, jnp.expm1(cut) / jnp.where(cut == 0, 1, cut))
    else:
        nodes, weights = _nodes(x.dtype, order)
        near = _integral(jnp.exp(cut[..., None] * nodes), weights)
    safe = jnp.where(far, x, 1)
    low = jnp.minimum(safe, 0)
    top = jnp.where(safe > 0, 1, jnp.exp(low))
    away = jnp.where(safe > 0, -jnp.expm1(-jnp.abs(safe)), jnp.expm1(low)) / safe
    for n in range(1, order + 1):
        away = (top - n * away) / safe
    half = jnp.exp(jnp.maximum(safe, 0) / 2)
    return jnp.where(far, away * half * half, near)


def polygamma(x: Any, *, n: int) -> Any:
    """The n-th derivative of digamma, n >= 1; negative x by reflection."""
    left = x < 0
    sign = -1.0 if n % 2 == 0 else 1.0
    order = jnp.full(x.shape, n + 1, x.dtype)
    tail = lax.zeta(order, jnp.where(left, 1 - x, x))
    value = sign * math.factorial(n) * jnp.where(x == jnp.inf, 0, tail)
    p = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(n):
        p = -p.deriv() * np.polynomial.Polynomial([1.0, 0.0, 1.0])
    y = jnp.where(left, x, 0.5)
    cot = _cospi(y) / _sinpi(y)
    value_of_p = jnp.zeros_like(x)
    for c in p.coef[::-1]:
        value_of_p = value_of_p * cot + jnp.asarray(c, x.dtype)
    return jnp.where(left, -sign * value - np.pi ** (n + 1) * value_of_p, value)


def trigamma(x: Any) -> Any:
    """The first derivative of digamma."""
    return polygamma(x, n=1)


def gamma(x: Any) -> Any:
    """The gamma function, with its sign for negative x."""
    odd = (x < 0) & (jnp.floor(x) % 2 != 0)
    return jnp.where(odd, -1, 1) * jnp.exp(lax.lgamma(x))


def gaussian(x: Any, *, scale: float) -> Any:
    """exp(-scale x ** 2), with x split so that the square of its leading part is exact."""
    x = jnp.clip(x, -64, 64)
    top = jnp.rint(x * 16) / 16
    return jnp.exp(-scale * top * top) * jnp.exp(-scale * (x - top) * (x + top))


def ndtr(x: Any) -> Any:
    """The standard normal distribution function."""
    return 0.5 * lax.erfc(-x * jnp.asarray(math.sqrt(0.5), x.dtype))


def ndtri(x: Any) -> Any:
    """The quantile of the standard normal distribution."""
    return jax.scipy.special.ndtri(x)


def entr(x: Any) -> Any:
    """-x log(x), 0 at 0 and -inf below."""
    inside = jnp.where(x > 0, x, 1)
    value = jnp.where(x == 0, 0, -inside * jnp.log(inside))
    return jnp.where(jnp.isnan(x), x, jnp.where(x < 0, -jnp.inf, value))
