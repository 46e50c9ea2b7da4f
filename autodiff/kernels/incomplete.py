"""Kernels of the incomplete gamma and beta functions and their derivatives in the parameters.

The integrals behind those derivatives are taken over the tail that ends at x on the side away
from the mean, where the first derivative's integrand has one sign: nothing cancels. The variable
is v with t = x e ** -v or x e ** v, and v = L exp(s - e ** -s), after which the trapezoidal rule
converges exponentially (Takahasi and Mori, Publ. RIMS 9, 1974).
"""

import math
from typing import Any

import numpy as np
import scipy.special

STEPS = 0.0625 * np.arange(-64, 73)
POINTS = np.exp(STEPS - np.exp(-STEPS))
WEIGHTS = 0.0625 * (1 + np.exp(-STEPS)) * POINTS


def stirling(a: Any) -> Any:
    """log Gamma(a) less its leading terms, for a >= 16 (DLMF 5.11.1)."""
    z = 1 / (a * a)
    tail = 1 / 1260 - z * (1 / 1680 - z * (1 / 1188 - z * (691 / 360360)))
    return (1 / 12 - z * (1 / 360 - z * tail)) / a


def excess(ratio: Any, d: Any) -> Any:
    """log(ratio) - d for ratio = 1 + d, of which each is exact where it is small."""
    return np.where(d < -0.5, np.log(ratio), np.log1p(d)) - d


def gamma_density(a: Any, x: Any) -> Any:
    """x ** (a - 1) e ** -x / Gamma(a): by powers for small a, by Stirling's series for large."""
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    outside = ~((a > 0) & (x >= 0))
    small = a < 16
    s = np.where(small, a, 1)
    direct = np.power(x, s - 1) * np.exp(-x) * scipy.special.rgamma(s)
    b = np.where(small, 16, a)
    y = np.where((x == 0) | (x == np.inf), 1, x)
    exponent = stirling(b) - b * excess(y / b, (y - b) / b)
    series = np.sqrt(b / (2 * np.pi)) / y * np.exp(-exponent)
    value = np.where(small, direct, np.where(x == 0, 0, series))
    return np.where(outside, np.nan, np.where(x == np.inf, 0, value))


def beta_density(a: Any, b: Any, x: Any) -> Any:
    """x ** (a - 1) (1 - x) ** (b - 1) / B(a, b)."""
    a, b, x = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (a, b, x)))
    small = (a < 16) | (b < 16)
    mid = small & (a + b < 160)
    p, q = np.where(mid, a, 1), np.where(mid, b, 1)
    direct = np.power(x, p - 1) * np.power(1 - x, q - 1) / scipy.special.beta(p, q)
    logs = scipy.special.xlogy(a - 1, x) + scipy.special.xlog1py(b - 1, -x)
    general = np.exp(logs - scipy.special.betaln(a, b))
    p, q = np.where(small, 16, a), np.where(small, 16, b)
    y = np.where((x <= 0) | (x >= 1), 0.5, x)
    n = p + q
    d = y - p / n
    # the terms linear in d cancel
    exponent = p * excess(y * n / p, d * n / p) + q * excess((1 - y) * n / q, -d * n / q)
    exponent = exponent + stirling(n) - stirling(p) - stirling(q)
    series = np.sqrt(p * q / (2 * np.pi * n)) / (y * (1 - y)) * np.exp(exponent)
    series = np.where((x <= 0) | (x >= 1), 0, series)
    value = np.where(mid, direct, np.where(small, general, series))
    return np.where((a > 0) & (b > 0) & (x >= 0) & (x <= 1), value, np.nan)


def bell(first: Any, higher: Any) -> Any:
    """f^(n) / f from the derivatives of log f: the first, and the list of the higher ones."""
    logs = [first, *higher]
    ratios: list[Any] = [1.0]
    for n in range(len(logs)):
        ratios.append(sum(math.comb(n, k) * (logs[k] * ratios[n - k]) for k in range(n + 1)))
    return ratios[-1]


def digammas(order: int, x: Any) -> Any:
    """digamma (order 0) or a derivative of it."""
    return scipy.special.psi(x) if order == 0 else scipy.special.polygamma(order, x)


def igamma_a(a: Any, x: Any, *, order: int) -> Any:
    """The derivative of given order, in a, of the regularised incomplete gamma P(a, x).

    Below the mean t = x e ** -v, above it t = x + v.
    """
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    inside = (x > 0) & (a > 0) & np.isfinite(x)
    p, y = np.where(inside, a, 1.0)[..., None], np.where(inside, x, 0.5)[..., None]
    low = y <= p
    width = np.where(low, 1, np.maximum(1, np.sqrt(y)))
    below = 1 / np.maximum(p - y, np.minimum(p, np.sqrt(p)))
    scale = np.where(low, below, np.minimum(width, y / np.where(low, y, y - p)))
    v = scale * POINTS
    log_t = np.where(low, -v, np.log1p(np.where(low, 0, v) / y))
    exponent = np.where(low, p * log_t - y * np.expm1(np.minimum(log_t, 0)), (p - 1) * log_t - v)
    higher = [-digammas(k, p) for k in range(1, order)]
    ratio = np.exp(exponent) * bell(np.log(y) - digammas(0, p) + log_t, higher)
    total = np.sum(np.where(low, y, -1) * scale * ratio * WEIGHTS, axis=-1)
    value = gamma_density(p[..., 0], y[..., 0]) * total
    outside = (x < 0) | (a <= 0) | np.isnan(x) | np.isnan(a)
    return np.where(inside, value, np.where(outside, np.nan, 0))


def betainc_ab(a: Any, b: Any, x: Any, *, orders: tuple[int, int]) -> Any:
    """The derivative of given orders, in a and b, of the regularised incomplete beta I_x(a, b).

    The tail below x is t = x e ** -v; the one above it is that of I_(1 - x)(b, a).
    """
    a, b, x = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (a, b, x)))
    inside = (x > 0) & (x < 1) & (a > 0) & (b > 0)
    p, q = np.where(inside, a, 1.0)[..., None], np.where(inside, b, 1.0)[..., None]
    y = np.where(inside, x, 0.5)[..., None]
    low = y <= p / (p + q)
    r, s = np.where(low, p, q), np.where(low, q, p)
    near, far = np.where(low, y, 1 - y), np.where(low, 1 - y, y)
    bend = np.maximum(s - 1, 0) * near / far
    scale = 1 / np.maximum(r - bend, np.minimum(r, np.sqrt(bend / far)))
    scale = np.where(bend > 0, scale, 1 / r)
    v = scale * POINTS
    rise = np.log1p(-near * np.expm1(-v) / far)
    log_near, log_far = np.log(near) - v, np.log(far) + rise
    low_full = np.broadcast_to(low, log_near.shape)
    log_t = np.where(low_full, log_near, log_far)
    log_u = np.where(low_full, log_far, log_near)
    ratio = np.exp(-r * v + (s - 1) * rise) * beta_ratio(p, q, log_t, log_u, orders)
    total = np.sum(np.where(low, y, y - 1) * scale * ratio * WEIGHTS, axis=-1)
    value = beta_density(p[..., 0], q[..., 0], y[..., 0]) * total
    outside = (x < 0) | (x > 1) | (a <= 0) | (b <= 0) | np.isnan(a * b * x)
    return np.where(inside, value, np.where(outside, np.nan, 0))


def beta_ratio(a: Any, b: Any, log_t: Any, log_u: Any, orders: tuple[int, int]) -> Any:
    """Derivatives of the beta density in a and b over the density, at log t and log(1 - t)."""

    def log_derivative(i: int, j: int) -> Any:
        both = digammas(i + j - 1, a + b)
        if j == 0:
            return both - digammas(i - 1, a) + (log_t if i == 1 else 0)
        return both - digammas(j - 1, b) + (log_u if j == 1 else 0) if i == 0 else both

    return mixed_bell(log_derivative, orders)


def mixed_bell(log_derivative: Any, orders: tuple[int, int]) -> Any:
    """A mixed derivative of f over f, from the mixed derivatives of log f."""
    ratios: dict[tuple[int, int], Any] = {(0, 0): 1.0}
    for i in range(orders[0] + 1):
        for j in range(orders[1] + 1):
            if i + j:
                m, n, di, dj = (i - 1, j, 1, 0) if i else (0, j - 1, 0, 1)
                ratios[i, j] = sum(
                    math.comb(m, k)
                    * math.comb(n, h)
                    * (log_derivative(k + di, h + dj) * ratios[m - k, n - h])
                    for k in range(m + 1)
                    for h in range(n + 1)
                )
    return ratios[orders]


def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularised incomplete beta function, in float64 throughout (scipy/scipy#22682)."""
    return scipy.special.betainc(*(np.asarray(v, np.float64) for v in (a, b, x)))
