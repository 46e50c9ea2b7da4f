"""JAX functions of Bessel functions of integer order and of zeta's derivatives."""

import math
from typing import Any

import numpy as np
from jax import lax

from autodiff.kernels import bessel as kernels
from autodiff.kernels.incomplete import bell
from autodiff.lower.lean import spread, where
from autodiff.lower.series import SHIFT, along, enough, horner

# the circle in 192 steps, of which the trapezoidal rule integrates e ** (i x sin) exactly to
# round-off for |x| < 64
_ANGLES = 2 * np.pi * np.arange(192) / 192


def _hankel(n: int, terms: int) -> list[float]:
    """Coefficients a_k(n) of the expansions for large argument (DLMF 10.17.1)."""
    found = [1.0]
    for k in range(1, terms):
        found.append(found[-1] * (4 * n * n - (2 * k - 1) ** 2) / (8 * k))
    return found


def bessel_jv(x: Any, *, n: int) -> Any:
    """J_n(x): Bessel's integral (DLMF 10.9.2) for |x| < 64, Hankel's expansion beyond."""
    size = lax.abs(x)
    far = size >= 64
    near = where(far, 0, size)[..., None]
    sines, turns = np.asarray(np.sin(_ANGLES), x.dtype), np.asarray(n * _ANGLES, x.dtype)
    waves = lax.cos(turns - near * sines)
    inner = lax.reduce_sum(waves, (x.ndim,)) / len(_ANGLES)
    y = where(far, size, 64)
    signs = [(-1) ** (k // 2) * c for k, c in enumerate(_hankel(n, 20))]
    w = 1 / (y * y)
    phase = y - np.asarray((n / 2 + 0.25) * np.pi, x.dtype)
    even, odd = (enough(signs[k::2], 64**-2.0, x.dtype, abs(signs[k])) for k in range(2))
    wave = lax.cos(phase) * horner(even, w) - lax.sin(phase) * horner(odd, w) / y
    outer = lax.sqrt(2 / (np.pi * y)) * wave
    value = where(far, outer, inner)
    return where(x < 0, -value, value) if n % 2 else value


def bessel_j0(x: Any) -> Any:
    """The Bessel function J_0."""
    return bessel_jv(x, n=0)


def bessel_j1(x: Any) -> Any:
    """The Bessel function J_1."""
    return bessel_jv(x, n=1)


def bessel_ive(x: Any, *, n: int) -> Any:
    """e ** -|x| I_n(x): the power series for |x| < 20 (DLMF 10.25.2), else 10.40.1."""
    size = lax.abs(x)
    far = size >= 20
    half = where(far, 0, size) / 2
    # in (half / 8) ** 2: the coefficients of half ** 2 would be subnormal
    series = [64.0**k / (math.factorial(k) * math.factorial(n + k)) for k in range(60)]
    bound = (10 / 8) ** 2
    series = enough(series, bound, x.dtype, sum(c * bound**k for k, c in enumerate(series)))
    eighth = half / 8
    inner = lax.integer_pow(half, n) * horner(series, eighth * eighth) * lax.exp(-2 * half)
    y = where(far, size, 20)
    signs = enough([(-1) ** k * c for k, c in enumerate(_hankel(n, 30))], 1 / 20, x.dtype, 1.0)
    outer = horner(signs, 1 / y) / lax.sqrt(2 * np.pi * y)
    value = where(far, outer, inner)
    return where(x < 0, -value, value) if n % 2 else value


def bessel_iv(x: Any, *, n: int) -> Any:
    """The modified Bessel function I_n."""
    half = lax.exp(lax.abs(x) / 2)
    return bessel_ive(x, n=n) * half * half


def bessel_i0(x: Any) -> Any:
    """The modified Bessel function I_0."""
    half = lax.exp(lax.abs(x) / 2)
    return lax.bessel_i0e(x) * half * half


def bessel_i1(x: Any) -> Any:
    """The modified Bessel function I_1."""
    half = lax.exp(lax.abs(x) / 2)
    return lax.bessel_i1e(x) * half * half


def zeta_s(s: Any, q: Any, *, order: int) -> Any:
    """The derivative of given order in s of the Hurwitz zeta function.

    The Euler-Maclaurin sum (DLMF 25.11.28), of which each term is differentiated by its logarithm.
    """
    shape = np.broadcast_shapes(s.shape, q.shape)
    inside = lax.bitwise_and(*(spread(v, shape, np.bool_) for v in (s > 1, q > 0)))
    s, q = where(inside, s, 2), where(inside, q, 1)
    logs = lax.log(along(q, SHIFT))
    head = lax.reduce_sum(lax.exp(-s * logs) * lax.integer_pow(-logs, order), (0,))
    t = q + SHIFT
    log_t = lax.log(t)
    poles = [math.factorial(m - 1) * lax.integer_pow(1 - s, -m) for m in range(1, order + 1)]
    pole = bell(poles[0] - log_t, poles[1:]) * t / (s - 1)
    middle = lax.integer_pow(-log_t, order) / 2
    # term k has the factors (s + j) / t for j = 0 ... 2 k
    steps = 2 * len(kernels.BERNOULLI) - 1
    held = np.arange(steps) <= 2 * np.arange(len(kernels.BERNOULLI))[:, None]
    held = held.reshape(*held.shape, *(1,) * s.ndim)

    def over_factors(reduce: Any, values: Any, start: float) -> Any:
        every = (len(kernels.BERNOULLI), *values.shape)
        taken = where(spread(held, every, np.bool_), spread(values, every, values.dtype), start)
        return reduce(taken, (1,))

    factors = along(s, steps)
    sums = [
        (-1) ** (m - 1)
        * math.factorial(m - 1)
        * over_factors(lax.reduce_sum, lax.integer_pow(factors, -m), 0)
        for m in range(1, order + 1)
    ]
    sizes = np.asarray(kernels.BERNOULLI, s.dtype).reshape(-1, *(1,) * s.ndim)
    terms = over_factors(lax.reduce_prod, factors / t, 1) * bell(sums[0] - log_t, sums[1:])
    rest = pole + middle + lax.reduce_sum(terms * sizes, (0,))
    return where(inside, head + lax.exp(-s * log_t) * rest, np.nan)
