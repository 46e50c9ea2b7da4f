"""Activation functions."""

from typing import Any

import numpy as np

from autodiff.families import promote, unary
from autodiff.kernels import special as kernels
from autodiff.ops.transcendental import exp, expm1, log, log1p
from autodiff.ops.trigonometry import sech2
from autodiff.trace import bind
from autodiff.widen import widened_body

__all__ = [
    "elu",
    "gelu",
    "leaky_relu",
    "log_sigmoid",
    "logit",
    "relu",
    "sigmoid",
    "silu",
    "softplus",
]

# --- sigmoid and its integrals -----------------------------------------------------------------

sigmoid = unary(
    "SIGMOID",
    kernels.sigmoid,
    # sigma(x) sigma(-x) = sech(x / 2) ** 2 / 4; y (1 - y) is 0 from x = 17 in float32
    deriv=lambda x, y: 0.25 * sech2(0.5 * x),
    kinds="fV",
    jax="lax.logistic",
    doc="1 / (1 + e ** -x); derivative sigmoid(x) sigmoid(-x), accurate in both tails.",
)


def _log1p_exp(x: Any) -> Any:
    return log1p(exp(-bind("ABS", x)))


log_sigmoid = unary(
    "LOG_SIGMOID",
    body=lambda x: bind("MINIMUM", x, np.zeros((), x.dtype)) - _log1p_exp(x),
    deriv=lambda x, y: sigmoid(-x),
    kinds="fV",
    doc="log(sigmoid(x)) = min(x, 0) - log1p(e ** -|x|); derivative sigmoid(-x).",
)
_softplus = unary(
    "SOFTPLUS",
    body=lambda x: bind("MAXIMUM", x, np.zeros((), x.dtype)) + _log1p_exp(x),
    deriv=lambda x, y: sigmoid(x),
    kinds="fV",
)


def softplus(x: Any, beta: float = 1.0) -> Any:
    """log(1 + e ** (beta x)) / beta = max(x, 0) + log1p(e ** -|beta x|) / beta.

    The derivative is sigmoid(beta x), 1/2 at 0.
    """
    return _softplus(x) if beta == 1 else _softplus(beta * x) / beta


def _logit_body(x: Any) -> Any:
    # log of a quotient near 1 through log1p: 2 x - 1 is exact there
    central = bind("ABS", x - 0.5) < 0.2
    half = np.asarray(0.5, x.dtype)
    inner = bind("WHERE", central, x, half)
    outer = bind("WHERE", central, half, x)
    near = log1p((2 * inner - 1) / (1 - inner))
    return bind("WHERE", central, near, log(outer / (1 - outer)))


logit = unary(
    "LOGIT",
    body=_logit_body,
    tangent=lambda t, x, y: t / x / (1 - x),
    kinds="fV",
    doc="log(x / (1 - x)), the inverse of sigmoid; +-inf at 1 and 0, NaN outside.",
)

# --- rectifiers --------------------------------------------------------------------------------

relu = unary(
    "RELU",
    # where, not maximum: the derivative at 0 is 0; NaN passes
    body=lambda x: bind("WHERE", x <= 0, np.zeros((), x.dtype), x),
    kinds="fV",
    doc="0 for x <= 0, x above; the derivative at 0 is taken as 0.",
)


def _sloped(kind: str, param: str, low: Any, default: float, doc: str) -> Any:
    """A rectifier whose part below 0 depends on one real parameter."""

    def body(x: Any, **params: Any) -> Any:
        below = x <= 0
        inner = bind("WHERE", below, x, np.zeros((), x.dtype))
        return bind("WHERE", below, low(inner, params[param]), x)

    unary(kind, body=widened_body(body), kinds="fV")

    def function(x: Any, value: float = default) -> Any:
        (x,) = promote(x, inexact=True)
        return bind(kind, x, **{param: float(value)})

    function.__name__ = function.__qualname__ = kind.lower()
    function.__doc__ = doc
    return function


leaky_relu = _sloped(
    "LEAKY_RELU",
    "slope",
    lambda x, slope: slope * x,
    0.01,
    "slope * x for x <= 0, x above; the derivative at 0 is taken as slope (0.01 by default).",
)
elu = _sloped(
    "ELU",
    "alpha",
    lambda x, alpha: alpha * expm1(x),
    1.0,
    "alpha (e ** x - 1) for x <= 0, x above; the derivative at 0 is taken as alpha.",
)

# --- smooth rectifiers ---------------------------------------------------------------------------


def _central(x: Any, limit: float) -> Any:
    """x, and 0 beyond a limit: for terms whose other factor is 0 there (inf * 0, inf / inf)."""
    return bind("WHERE", bind("ABS", x) >= limit, np.zeros((), x.dtype), x)


def _above(x: Any) -> Any:
    """x with -inf replaced by -0.0: the limit of x sigmoid(x), not -inf * 0."""
    return bind("WHERE", x == -np.inf, np.asarray(-0.0, x.dtype), x)


def _silu_deriv(x: Any, y: Any) -> Any:
    del y
    z = _central(x, 1024.0)  # e ** -1024 is 0
    return sigmoid(x) + 0.25 * z * sech2(0.5 * z)


silu = unary(
    "SILU",
    body=lambda x: _above(x) * sigmoid(x),
    deriv=_silu_deriv,
    kinds="fV",
    doc="x sigmoid(x), also called swish; 0 at -inf.",
)


# 2 sqrt(2 / pi); 0.5 (1 + tanh u) = sigmoid(2 u) does not cancel for negative u
_SCALE, _CUBIC = 1.5957691216057308, 0.044715
_DENSITY = 0.3989422804014327  # of the standard normal distribution at 0


def _gelu_body(x: Any, *, approximate: str) -> Any:
    if approximate == "tanh":
        return _above(x) * sigmoid(_SCALE * (x + _CUBIC * (x * x * x)))
    return _above(x) * bind("NDTR", x)


def _gelu_deriv(x: Any, y: Any, *, approximate: str) -> Any:
    del y
    z = _central(x, 64.0)  # both densities are 0 from 40 on
    if approximate == "tanh":
        u = _SCALE * (z + _CUBIC * (z * z * z))
        slope = _SCALE * (1 + 3 * _CUBIC * (z * z))
        return sigmoid(u + 1024 * (x - z)) + 0.25 * z * sech2(0.5 * u) * slope
    return bind("NDTR", x) + _DENSITY * z * bind("GAUSSIAN", z, scale=0.5)


unary("GELU", body=_gelu_body, deriv=_gelu_deriv, kinds="fV")


def gelu(x: Any, approximate: str = "none") -> Any:
    """x Phi(x) with the standard normal distribution function Phi.

    `approximate="tanh"` gives 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x ** 3))), which differs
    by up to 4.8e-4. Both keep relative accuracy in the negative tail, and are 0 at -inf.

    Raises:
        ValueError: another name of an approximation.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate={approximate!r} is not 'none' or 'tanh'")
    (x,) = promote(x, inexact=True)
    return bind("GELU", x, approximate=approximate)
