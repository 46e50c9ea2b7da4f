"""Kernels of Bessel functions of integer order and of the Hurwitz zeta function."""

import math
from typing import Any

import numpy as np
import scipy.special

# B_2k / (2k)! for k = 1 ... 12
BERNOULLI = tuple(
    (-1) ** (k + 1) * 2 * float(scipy.special.zeta(2.0 * k)) / (2 * math.pi) ** (2 * k)
    for k in range(1, 13)
)


def bessel_iv(x: Any, *, n: int) -> Any:
    """The modified Bessel function I_n(x), n >= 2."""
    size = np.abs(x)
    # 0 and inf where the library gives NaN
    value = scipy.special.iv(n, np.where((size < 1e-162) | (size > 1e3), x - x, x))
    return np.where(size > 1e3, np.where(n % 2, np.copysign(np.inf, x), np.inf), value)


def bessel_ive(x: Any, *, n: int) -> Any:
    """e ** -|x| I_n(x), n >= 2; the library gives NaN far out (DLMF 10.40.1) and next to 0."""
    size = np.abs(x)
    far = size > 1e8
    value = scipy.special.ive(n, np.where((size < 1e-162) | far, np.where(far, 0, x - x), x))
    y = np.where(far, size, 1e8)
    outer = (1 - (4 * n * n - 1) / (8 * y)) / (math.sqrt(2 * math.pi) * np.sqrt(y))
    return np.where(far, np.where(n % 2, np.copysign(outer, x), outer), value)


def bessel_jv(x: Any, *, n: int) -> Any:
    """The Bessel function J_n(x)."""
    return scipy.special.jv(n, x)


def zeta_s(s: Any, q: Any, *, order: int) -> Any:
    """The derivative of given order in s of the Hurwitz zeta function, s > 1, q > 0.

    Euler and Maclaurin's sum (DLMF 25.11.28 and 2.10.1), term by term a Taylor series in s.
    """
    s, q = np.broadcast_arrays(np.asarray(s, np.float64), np.asarray(q, np.float64))
    inside = (s > 1) & (q > 0)
    s, q = np.where(inside, s, 2.0), np.where(inside, q, 1.0)

    def powers(t: Any) -> list[Any]:
        top = np.power(t, -s)
        return [top * np.power(-np.log(t), k) / math.factorial(k) for k in range(order + 1)]

    total = 0.0
    for n in range(16):
        total = total + powers(q + n)[order]
    t = q + 16
    rest = powers(t)
    pole = [(-1) ** k / np.power(s - 1, k + 1) for k in range(order + 1)]
    total = total + t * sum(rest[k] * pole[order - k] for k in range(order + 1))
    total = total + rest[order] / 2
    term = [p / t for p in rest]
    for k, factor in enumerate(BERNOULLI):
        if k == 0:
            term = [s * term[m] + (term[m - 1] if m else 0) for m in range(order + 1)]
        else:
            for j in (2 * k - 1, 2 * k):
                term = [(s + j) * term[m] + (term[m - 1] if m else 0) for m in range(order + 1)]
            term = [v / (t * t) for v in term]
        total = total + factor * term[order]
    return np.where(inside, math.factorial(order) * total, np.nan)
