"""scipy.special's ufuncs that are short expressions of other ops."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as sp

from autodiff import ops
from autodiff.errors import TracerError
from autodiff.numpy_api import UFUNCS
from autodiff.numpy_api.distributions import _of
from autodiff.trace import quoted, user_line
from autodiff.tracer import Tracer

# --- gamma functions (DLMF 5.12.1, 5.2.5; 26.3.4) ----------------------------------------------

_BOTH = 16.0  # up to here Gamma of two arguments and of their sum are finite in float32 too


def _sign(x: Any) -> Any:
    """The sign of Gamma(x)."""
    turn = 1 - 2 * ops.mod(ops.floor(x), np.asarray(2.0, x.dtype))
    return ops.where(x > 0, np.ones((), x.dtype), turn)


@_of(sp.beta)
def _beta(a: Any, b: Any) -> Any:
    near = (ops.abs(a) < _BOTH) & (ops.abs(b) < _BOTH)
    one = np.ones((), a.dtype)
    p, q = ops.where(near, a, one), ops.where(near, b, one)
    plain = ops.gamma(p) * ops.gamma(q) * UFUNCS[sp.rgamma](p + q)
    u, v = ops.where(near, one, a), ops.where(near, one, b)
    far = _sign(u) * _sign(v) * _sign(u + v) * ops.exp(UFUNCS[sp.betaln](u, v))
    return ops.where(near, plain, far)


@_of(sp.binom)
def _binom(n: Any, k: Any) -> Any:
    return 1 / ((n + 1) * _beta(n - k + 1, k + 1))


@_of(sp.poch)
def _poch(x: Any, m: Any) -> Any:
    near = (ops.abs(x) < _BOTH) & (ops.abs(m) < _BOTH)
    one = np.ones((), x.dtype)
    p, n = ops.where(near, x, one), ops.where(near, m, one)
    u, v = ops.where(near, one, x), ops.where(near, one, m)
    far = _sign(u + v) * _sign(u) * ops.exp(ops.lgamma(u + v) - ops.lgamma(u))
    return ops.where(near, ops.gamma(p + n) * UFUNCS[sp.rgamma](p), far)


# --- transforms and losses -----------------------------------------------------------------------


@_of(sp.pseudo_huber)
def _pseudo_huber(delta: Any, r: Any) -> Any:
    """delta^2 (sqrt(1 + (r / delta)^2) - 1) = r^2 / (1 + sqrt(1 + (r / delta)^2))."""
    flat = delta == 0
    safe = ops.where(flat, np.ones((), delta.dtype), delta)
    root = ops.hypot(np.ones((), delta.dtype), r / safe)
    value = ops.square(r) / (1 + root)
    value = ops.where(flat, np.zeros((), r.dtype), value)
    return ops.where(delta < 0, np.full((), np.inf, r.dtype), value)


def _scaled_log1p(y: Any, power: Any) -> Any:
    """log1p(power y) / power, and its limit y at 0, where its slope in the power is -y^2 / 2."""
    flat = power == 0
    safe = ops.where(flat, np.ones((), power.dtype), power)
    return ops.where(flat, y - power * ops.square(y) / 2, ops.log1p(safe * y) / safe)


_of(sp.inv_boxcox)(lambda y, power: ops.exp(_scaled_log1p(y, power)))
_of(sp.inv_boxcox1p)(lambda y, power: ops.expm1(_scaled_log1p(y, power)))
_of(sp.powm1)(lambda x, y: ops.where(x > 0, ops.expm1(ops.xlogy(y, x)), ops.pow(x, y) - 1))

# --- elliptic integrals by the arithmetic-geometric mean (DLMF 19.8.1, 19.8.5, 19.8.6) -----------

_STEPS = 9  # the gap is squared at each: from 1e-300 to the last bit


def _mean(a: Any, g: Any) -> tuple[Any, Any]:
    """The arithmetic-geometric mean, and sum 2^(n - 1) c_n^2 of the gaps from n = 1 on."""
    gaps = np.zeros((), a.dtype)
    for n in range(_STEPS):
        c = (a - g) / 2
        a, g = (a + g) / 2, ops.sqrt(a * g)
        gaps = gaps + 2.0**n * ops.square(c)
    return a, gaps


@_of(sp.ellipkm1)
def _ellipkm1(p: Any) -> Any:
    pole, one = p == 0, np.ones((), p.dtype)
    mean = _mean(one, ops.sqrt(ops.where(pole, one, p)))[0]
    return ops.where(pole, np.full((), np.inf, p.dtype), np.asarray(np.pi / 2, p.dtype) / mean)


_of(sp.ellipk)(lambda m: _ellipkm1(1 - m))


@_of(sp.ellipe)
def _ellipe(m: Any) -> Any:
    end = m == 1
    inside = ops.where(end, np.zeros((), m.dtype), m)
    mean, gaps = _mean(np.ones((), m.dtype), ops.sqrt(1 - inside))
    value = np.asarray(np.pi / 2, m.dtype) / mean * (1 - inside / 2 - gaps)
    return ops.where(end, np.ones((), m.dtype), value)


# --- orthogonal polynomials by their recurrences (DLMF 18.9.1) -----------------------------------


def _of_degree(ufunc: Any, second: Callable[[Any], Any], step: Callable[..., Any]) -> None:
    """p_0 = 1, p_1 = second(x), p_{k + 1} = step(k, x, p_k, p_{k - 1}) for a fixed degree."""

    def polynomial(n: Any, x: Any) -> Any:
        if isinstance(n, Tracer) or np.ndim(n) or float(n) != int(n) or n < 0:
            raise TracerError(
                f"scipy.special.{ufunc.__name__} of a traced, array, fractional or negative degree",
                quoted(user_line()),
                "the degree is a fixed integer: pass a Python int of 0 or more",
            )
        x = ops.cast(x, np.float64) if x.dtype.kind in "biu" else x
        before, value = ops.ones_like(x), second(x)
        if n == 0:
            return before
        for k in range(1, int(n)):
            before, value = value, step(k, x, value, before)
        return value

    UFUNCS[ufunc] = polynomial


_of_degree(
    sp.eval_legendre, lambda x: x, lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)
)
_of_degree(sp.eval_chebyt, lambda x: x, lambda k, x, p, q: 2 * x * p - q)
_of_degree(sp.eval_chebyu, lambda x: 2 * x, lambda k, x, p, q: 2 * x * p - q)
_of_degree(sp.eval_hermite, lambda x: 2 * x, lambda k, x, p, q: 2 * x * p - 2 * k * q)
_of_degree(sp.eval_hermitenorm, lambda x: x, lambda k, x, p, q: x * p - k * q)
_of_degree(
    sp.eval_laguerre, lambda x: 1 - x, lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)
)
