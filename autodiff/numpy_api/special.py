"""scipy.special's ufuncs."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import scipy.special as sp

from autodiff import ops
from autodiff.errors import TracerError
from autodiff.families import promote
from autodiff.numpy_api import UFUNCS
from autodiff.trace import quoted, user_line
from autodiff.tracer import Tracer

LN10 = 2.302585092994046

UFUNCS.update(
    {
        sp.expit: ops.sigmoid,
        sp.log_expit: ops.log_sigmoid,
        sp.logit: ops.logit,
        sp.softplus: ops.softplus,
        sp.xlogy: ops.xlogy,
        sp.xlog1py: ops.xlog1py,
        sp.exprel: ops.exprel,
        sp.expm1: ops.expm1,
        sp.exp2: ops.exp2,
        sp.exp10: lambda x: ops.exp(LN10 * x),
        sp.log1p: ops.log1p,
        sp.cbrt: ops.cbrt,
        sp.cosm1: lambda x: -2 * ops.square(ops.sin(x / 2)),
        sp.entr: ops.entr,
        sp.erf: ops.erf,
        sp.erfc: ops.erfc,
        sp.erfinv: ops.erfinv,
        sp.erfcinv: lambda x: ops.ndtri(x / 2) * -math.sqrt(0.5),
        sp.ndtr: ops.ndtr,
        sp.log_ndtr: ops.log_ndtr,
        sp.ndtri: ops.ndtri,
        sp.gammaln: ops.lgamma,
        sp.gamma: ops.gamma,
        sp.rgamma: lambda x: _rgamma(*promote(x, inexact=True)),
        sp.betaln: lambda a, b: _betaln(*promote(a, b, inexact=True)),
        sp.psi: ops.digamma,
        sp.gammainc: ops.igamma,
        sp.gammaincc: ops.igammac,
        sp.betainc: ops.betainc,
        sp.betaincc: lambda a, b, x: _betaincc(*promote(a, b, x, inexact=True)),
        sp.i0: ops.bessel_i0,
        sp.i1: ops.bessel_i1,
        sp.i0e: ops.bessel_i0e,
        sp.i1e: ops.bessel_i1e,
        sp.j0: ops.bessel_j0,
        sp.j1: ops.bessel_j1,
        # the ufuncs behind scipy.special.zeta
        sp._ufuncs._zeta: ops.zeta,
        sp._ufuncs._riemann_zeta: lambda s: ops.zeta(s, 1.0),
    }
)


def _rgamma(x: Any) -> Any:
    """1 / Gamma(x), and Gamma(1 - x) sin(pi x) / pi (DLMF 5.5.3) for x < 1/2."""
    low = x < 0.5
    half = np.asarray(0.5, x.dtype)
    z = ops.where(low, x, half)
    turns = ops.round(z)
    sign = 1 - 2 * ops.mod(turns, np.asarray(2.0, x.dtype))
    sine = sign * ops.sin(np.asarray(np.pi, x.dtype) * (z - turns))
    upper = ops.reciprocal(ops.gamma(ops.where(low, half, x)))
    return ops.where(low, ops.gamma(1 - z) * sine / np.asarray(np.pi, x.dtype), upper)


_STIRLING = 10.0  # from here on the series below is right to the last bit of float64
_HALF_LOG_2PI = 0.9189385332046727


def _stirling_rest(x: Any) -> Any:
    """log Gamma(x) - ((x - 1/2) log x - x + log(2 pi) / 2) for x >= 10, DLMF 5.11.1."""
    s = ops.square(1 / x)
    series = 1 / 1188 - s * (691 / 360360 - s / 156)
    return (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * series)))) / x


def _betaln(a: Any, b: Any) -> Any:
    """log B(a, b), in which the logarithms of large gamma functions do not cancel."""
    p, q = ops.minimum(a, b), ops.maximum(a, b)
    plain = ops.lgamma(p) + ops.lgamma(q) - ops.lgamma(p + q)
    ten = np.asarray(_STIRLING, p.dtype)
    inside = (q >= ten) & (p > 0) & (q < np.inf)
    large = ops.where(inside, q, ten)  # the larger one
    other = ops.where(inside, p, ten)
    total = large + other
    rest = _stirling_rest(large) - _stirling_rest(total)
    shared = (0.5 - large) * ops.log1p(other / large)
    one = shared - other * ops.log(total) + other + rest  # log Gamma(q) - log Gamma(p + q)
    both = other >= ten
    safe = ops.where(both, other, ten)
    two = (safe - 0.5) * ops.log(safe / (large + safe)) - 0.5 * ops.log(large + safe)
    two = two + _HALF_LOG_2PI + _stirling_rest(safe) + rest + shared
    return ops.where(inside, ops.where(both, two, ops.lgamma(other) + one), plain)


def _betaincc(a: Any, b: Any, x: Any) -> Any:
    """1 - I_x(a, b); I_{1-x}(b, a) where 1 - x is exact or the difference has nothing left."""
    value = ops.betainc(a, b, x)
    return ops.where((x < 0.5) & (value < 0.999), 1 - value, ops.betainc(b, a, 1 - x))


def _of_integer_order(ufunc: Any, function: Any) -> Any:
    """A Bessel ufunc f(v, x) whose order v is a fixed integer."""

    def bessel(v: Any, x: Any) -> Any:
        if isinstance(v, Tracer) or np.ndim(v) or float(v) != int(v):
            raise TracerError(
                f"scipy.special.{ufunc.__name__} of a traced, array or fractional order",
                quoted(user_line()),
                "the order is a fixed integer: pass a Python int",
            )
        return function(int(v), x)

    return bessel


UFUNCS.update(
    {
        ufunc: _of_integer_order(ufunc, function)
        for ufunc, function in (
            (sp.iv, ops.bessel_iv),
            (sp.ive, ops.bessel_ive),
            (sp.jv, ops.bessel_jv),
        )
    }
)


def _tiny(dtype: Any) -> Any:
    return ml_dtypes.finfo(dtype).tiny  # type: ignore[no-untyped-call]


def _rel_entr(x: Any, y: Any) -> Any:
    x, y = promote(x, y, inexact=True)
    inside = (x > 0) & (y > 0)
    one = np.ones((), x.dtype)
    p, q = ops.where(inside, x, one), ops.where(inside, y, one)
    ratio = p / q
    near = (ratio > 0.5) & (ratio < 2)  # where the rounded quotient loses digits
    normal = (ratio > _tiny(x.dtype)) & (ratio < np.inf)
    far = ops.where(normal, ops.log(ratio), ops.log(p) - ops.log(q))
    value = p * ops.where(near, ops.log1p((p - q) / q), far)
    edge = ops.where((x == 0) & (y >= 0), 0 * one, np.inf * one)
    edge = ops.where((x != x) | (y != y), np.nan * one, edge)
    return ops.where(inside, value, edge)


def _kl_div(x: Any, y: Any) -> Any:
    x, y = promote(x, y, inexact=True)
    near, one = (y > 0.5 * x) & (y < 2 * x), np.ones((), x.dtype)
    p, q = ops.where(near, x, one), ops.where(near, y, one)
    # x log(x / y) - x + y = x (expm1(z) - z) with z = log(y / x), which does not cancel
    close = p * ops.expm1_remainder(ops.log1p((q - p) / p))
    return ops.where(near, close, _rel_entr(x, y) - x + y)


def _huber(delta: Any, r: Any) -> Any:
    size = ops.abs(r)
    outer = delta * (size - 0.5 * delta)
    value = ops.where(size <= delta, 0.5 * ops.square(r), outer)
    return ops.where(delta < 0, np.inf, value)


def _boxcox(x: Any, power: Any) -> Any:
    x, power = promote(x, power, inexact=True)
    return _boxcox_of(ops.log(x), x, power)


def _boxcox1p(x: Any, power: Any) -> Any:
    x, power = promote(x, power, inexact=True)
    return _boxcox_of(ops.log1p(x), 1 + x, power)


def _boxcox_of(log_x: Any, x: Any, power: Any) -> Any:
    # (x ** p - 1) / p, and its limit log(x) at p = 0
    end = (ops.pow(x, power) - 1) / power
    scaled = ops.where(x == 0, np.zeros((), x.dtype), power * log_x)
    return ops.where((x == 0) & (power != 0), end, log_x * ops.exprel(scaled))


UFUNCS.update(
    {
        sp.rel_entr: _rel_entr,
        sp.kl_div: _kl_div,
        sp.huber: lambda delta, r: _huber(*promote(delta, r, inexact=True)),
        sp.boxcox: _boxcox,
        sp.boxcox1p: _boxcox1p,
    }
)
