"""JAX functions of Bessel functions of integer order and of zeta's derivatives."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autodiff.kernels import bessel as kernels

# the circle in 192 steps, of which the trapezoidal rule integrates e ** (i x sin) exactly to
# round-off for |x| < 64
_ANGLES = 2 * np.pi * np.arange(192) / 192


def _hankel(n: int, terms: int) -> list[float]:
    """Coefficients a_k(n) of the expansions for large argument (DLMF 10.17.1)."""
    found = [1.0]
    for k in range(1, terms):
        found.append(found[-1] * (4 * n * n - (2 * k - 1) ** 2) / (8 * k))
    return found


def _horner(coefficients: list[float], x: Any) -> Any:
    total = jnp.zeros_like(x)
    for c in coefficients[::-1]:
        total = total * x + jnp.asarray(c, x.dtype)
    return total


def bessel_jv(x: Any, *, n: int) -> Any:
    """J_n(x): Bessel's integral (DLMF 10.9.2) for |x| < 64, Hankel's expansion beyond."""
    size = jnp.abs(x)
    far = size >= 64
    near = jnp.where(far, 0, size)[..., None]
    sines, turns = jnp.asarray(np.sin(_ANGLES), x.dtype), jnp.asarray(n * _ANGLES, x.dtype)
    inner = jnp.mean(jnp.cos(turns - near * sines), axis=-1)
    y = jnp.where(far, size, 64)
    a = _hankel(n, 20)
    signs = [(-1) ** (k // 2) * c for k, c in enumerate(a)]
    w = 1 / (y * y)
    phase = y - jnp.asarray((n / 2 + 0.25) * np.pi, x.dtype)
    wave = jnp.cos(phase) * _horner(signs[0::2], w) - jnp.sin(phase) * _horner(signs[1::2], w) / y
    outer = jnp.sqrt(2 / (np.pi * y)) * wave
    value = jnp.where(far, outer, inner)
    return jnp.where(x < 0, -value, value) if n % 2 else value


def bessel_j0(x: Any) -> Any:
    """The Bessel function J_0."""
    return bessel_jv(x, n=0)


def bessel_j1(x: Any) -> Any:
    """The Bessel function J_1."""
    return bessel_jv(x, n=1)


def bessel_ive(x: Any, *, n: int) -> Any:
    """e ** -|x| I_n(x): the power series for |x| < 20 (DLMF 10.25.2), else 10.40.1."""
    size = jnp.abs(x)
    far = size >= 20
    half = jnp.where(far, 0, size) / 2
    series = [1 / (math.factorial(k) * math.factorial(n + k)) for k in range(60)]
    inner = half**n * _horner(series, half * half) * jnp.exp(-2 * half)
    y = jnp.where(far, size, 20)
    signs = [(-1) ** k * c for k, c in enumerate(_hankel(n, 30))]
    outer = _horner(signs, 1 / y) / jnp.sqrt(2 * np.pi * y)
    value = jnp.where(far, outer, inner)
    return jnp.where(x < 0, -value, value) if n % 2 else value


def bessel_iv(x: Any, *, n: int) -> Any:
    """The modified Bessel function I_n."""
    half = jnp.exp(jnp.abs(x) / 2)
    return bessel_ive(x, n=n) * half * half


def bessel_i0(x: Any) -> Any:
    """The modified Bessel function I_0."""
    half = jnp.exp(jnp.abs(x) / 2)
    return lax.bessel_i0e(x) * half * half


def bessel_i1(x: Any) -> Any:
    """The modified Bessel function I_1."""
    half = jnp.exp(jnp.abs(x) / 2)
    return lax.bessel_i1e(x) * half * half


def zeta_s(s: Any, q: Any, *, order: int) -> Any:
    """The derivative of given order in s of the Hurwitz zeta function."""
    s, q = jnp.broadcast_arrays(s, q)
    inside = (s > 1) & (q > 0)
    s, q = jnp.where(inside, s, 2), jnp.where(inside, q, 1)

    def powers(t: Any) -> list[Any]:
        log_t = jnp.log(t)
        return [jnp.exp(-s * log_t) * (-log_t) ** k / math.factorial(k) for k in range(order + 1)]

    log_t = jnp.log(q[..., None] + jnp.arange(16, dtype=q.dtype))
    head = jnp.exp(-s[..., None] * log_t) * (-log_t) ** order / math.factorial(order)
    total = jnp.sum(head, axis=-1)
    t = q + 16
    rest = powers(t)
    pole = [(-1) ** k / (s - 1) ** (k + 1) for k in range(order + 1)]
    total = total + t * sum(rest[k] * pole[order - k] for k in range(order + 1))
    total = total + rest[order] / 2
    term = [p / t for p in rest]
    for k, factor in enumerate(kernels.BERNOULLI):
        for j in (0,) if k == 0 else (2 * k - 1, 2 * k):
            term = [(s + j) * term[m] + (term[m - 1] if m else 0) for m in range(order + 1)]
        term = term if k == 0 else [v / (t * t) for v in term]
        total = total + factor * term[order]
    return jnp.where(inside, math.factorial(order) * total, jnp.nan)
