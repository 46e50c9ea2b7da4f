"""Kernels of special functions."""

import math
from typing import Any

import numpy as np
import scipy.special

# Gauss-Legendre nodes and weights on (-1, 1)
RULE = np.polynomial.legendre.leggauss(40)


def sinpi(x: Any) -> Any:
    """sin(pi x), exact at multiples of 1/2."""
    r = x - 2 * np.rint(x / 2)
    r = np.where(np.abs(r) > 0.5, np.copysign(1, r) - r, r)
    return np.sin(np.pi * r)


def cospi(x: Any) -> Any:
    """cos(pi x), exact at multiples of 1/2."""
    r = np.abs(x - 2 * np.rint(x / 2))
    return np.where(r < 0.25, np.cos(np.pi * r), np.sin(np.pi * (0.5 - r)))


def sinc(x: Any, *, order: int) -> Any:
    """The derivative of given order of sin(pi x) / (pi x).

    With u = pi x it is pi ** n times the integral over (0, 1) of s ** n cos(u s + n pi / 2), done
    by quadrature where |u| is small, else by u f_n = sin(u + n pi / 2) - n f_(n-1).
    """
    x = np.asarray(x)
    u = np.pi * np.asarray(x, np.float64)
    far = np.abs(u) > 2 + 2 * order
    cut = np.where(far, 1, u)
    nodes, weights = (RULE[0] + 1) / 2, RULE[1] / 2
    wave = (np.cos, np.sin, np.cos, np.sin)[order % 4](cut[..., None] * nodes)
    near = (1, -1, -1, 1)[order % 4] * (wave @ (weights * nodes**order))
    safe = np.where(far, u, 1)
    away = sinpi(x) / safe
    for n in range(1, order + 1):
        away = ((cospi, sinpi)[(n + 1) % 2](x) * (1, 1, -1, -1)[n % 4] - n * away) / safe
    if order == 0:
        safe = np.where(u == 0, 1, u)
        return np.where(u == 0, 1, sinpi(x) / safe)
    return np.pi**order * np.where(far, away, near)


def exprel(x: Any, *, order: int) -> Any:
    """The derivative of given order of (e ** x - 1) / x.

    It is the integral over (0, 1) of s ** n e ** (x s), whose integrand is positive: quadrature
    where |x| is small, else f_n = (e ** x - n f_(n-1)) / x, scaled so that it overflows only
    where f_n does.
    """
    x = np.asarray(x, np.float64)
    far = np.abs(x) > 20 + order
    cut = np.where(far, 0, x)
    nodes, weights = (RULE[0] + 1) / 2, RULE[1] / 2
    if order == 0:
        near = np.where(cut == 0, 1, np.expm1(cut) / np.where(cut == 0, 1, cut))
    else:
        near = np.exp(cut[..., None] * nodes) @ (weights * nodes**order)
    safe = np.where(far, np.minimum(x, 1e4), 1)  # from there on all overflow
    # times e ** -x for positive x
    top = np.where(safe > 0, 1, np.exp(np.minimum(safe, 0)))
    away = np.where(safe > 0, -np.expm1(-np.abs(safe)), np.expm1(np.minimum(safe, 0))) / safe
    for n in range(1, order + 1):
        away = (top - n * away) / safe
    half = np.exp(np.maximum(safe, 0) / 2)
    return np.where(far, away * half * half, near)


def polygamma(x: Any, *, n: int) -> Any:
    """The n-th derivative of digamma, n >= 1; negative x by reflection (DLMF 5.15.6)."""
    x = np.asarray(x, np.float64)
    left = x < 0
    positive = np.where(left, 1 - x, x)
    sign = -1.0 if n % 2 == 0 else 1.0
    value = sign * math.factorial(n) * scipy.special.zeta(n + 1, positive)
    if not np.any(left):
        return value
    # derivatives of cot are polynomials in cot: p' -> -(1 + c ** 2) p'(c)
    p = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(n):
        p = -p.deriv() * np.polynomial.Polynomial([1.0, 0.0, 1.0])
    y = np.where(left, x, 0.5)
    cot = cospi(y) / sinpi(y)
    reflected = -sign * value - np.pi ** (n + 1) * p(cot)
    return np.where(left, reflected, value)


def trigamma(x: Any) -> Any:
    """The first derivative of digamma."""
    return polygamma(x, n=1)


def gaussian(x: Any, *, scale: float) -> Any:
    """exp(-scale x ** 2): x is split so that the square of its leading part is exact."""
    x = np.clip(x, -64, 64)
    top = np.rint(x * 16) / 16
    return np.exp(-scale * top * top) * np.exp(-scale * (x - top) * (x + top))


def sigmoid(x: Any) -> Any:
    """1 / (1 + e ** -x) through e ** -|x|, which neither overflows nor loses the left tail."""
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def erfinv(x: Any) -> Any:
    """The inverse error function, in float64 throughout."""
    return scipy.special.erfinv(np.asarray(x, np.float64))
