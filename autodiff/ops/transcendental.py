"""Exponentials, logarithms and quotients with a removable singularity."""

from typing import Any

import numpy as np
import scipy.special

from autodiff.families import binary, promote, unary
from autodiff.kernels import special as kernels
from autodiff.trace import bind

__all__ = [
    "exp",
    "exp2",
    "expm1",
    "exprel",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "sinc",
    "xlog1py",
    "xlogy",
]

LN2 = 0.6931471805599453
LN10 = 2.302585092994046

# --- exponentials and logarithms -------------------------------------------------------------

exp = unary("EXP", np.exp, deriv=lambda x, y: y, doc="e ** x.")
exp2 = unary("EXP2", np.exp2, deriv=lambda x, y: LN2 * y, doc="2 ** x.")
expm1 = unary("EXPM1", np.expm1, deriv=lambda x, y: exp(x), doc="e ** x - 1, exact near 0.")
log = unary("LOG", np.log, tangent=lambda t, x, y: t / x, doc="Natural logarithm; -inf at 0.")
log2 = unary(
    "LOG2", np.log2, tangent=lambda t, x, y: t / LN2 / x, doc="Base-2 logarithm; -inf at 0."
)
log10 = unary(
    "LOG10", np.log10, tangent=lambda t, x, y: t / LN10 / x, doc="Base-10 logarithm; -inf at 0."
)
log1p = unary(
    "LOG1P", np.log1p, tangent=lambda t, x, y: t / (1 + x), doc="log(1 + x), exact near 0."
)


def _logaddexp_difference(x: Any, y: Any) -> Any:
    """x - y, and 0 for two equal infinities."""
    tied = (x == y) & bind("ISINF", x)
    zero = np.zeros((), x.dtype)
    return bind("WHERE", tied, zero, x) - bind("WHERE", tied, zero, y)


logaddexp = binary(
    "LOGADDEXP",
    np.logaddexp,
    tangents=(
        lambda t, x, y, z: t * bind("SIGMOID", _logaddexp_difference(x, y)),
        lambda t, x, y, z: t * bind("SIGMOID", _logaddexp_difference(y, x)),
    ),
    kinds="fV",
    jax="rules:logaddexp",
    doc="log(e ** x + e ** y); two equal infinities share the tangent.",
)
# x may be 0 where log(y) or 1 / y is infinite: the slope in y is 0 there, that in x is log(y)
# (pytorch/pytorch#80770). A tangent of 0 stays 0 where log(y) is infinite, as x does: else one zero
# of q log(q) makes every forward slope NaN (google-deepmind/optax#1786).
xlogy = binary(
    "XLOGY",
    scipy.special.xlogy,
    tangents=(
        lambda t, x, y, z: bind("STRONG_MUL", t, log(y)),
        lambda t, x, y, z: t * bind("STRONG_DIV", x, y),
    ),
    kinds="fV",
    jax="rules:xlogy",
    doc="x log(y), 0 where x = 0; derivatives log(y) and x / y, the latter 0 where x = 0.",
)
xlog1py = binary(
    "XLOG1PY",
    scipy.special.xlog1py,
    tangents=(
        lambda t, x, y, z: bind("STRONG_MUL", t, log1p(y)),
        lambda t, x, y, z: t * bind("STRONG_DIV", x, 1 + y),
    ),
    kinds="fV",
    jax="rules:xlog1py",
    doc="x log(1 + y), 0 where x = 0; derivatives log1p(y) and x / (1 + y), the latter 0 at x = 0.",
)

# --- quotients with a removable singularity -----------------------------------------------------


def _ordered(kind: str, impl: Any, doc: str) -> Any:
    """A function of one operand whose param `order` says how often it is differentiated."""
    unary(
        kind,
        impl,
        tangent=lambda t, x, y, *, order: t * bind(kind, x, order=order + 1),
        kinds="fV",
        jax=f"rules:{kind.lower()}",
    )

    def function(x: Any, order: int = 0) -> Any:
        (x,) = promote(x, inexact=True)
        return bind(kind, x, order=int(order))

    function.__name__ = function.__qualname__ = kind.lower()
    function.__doc__ = doc
    return function


sinc = _ordered(
    "SINC",
    kernels.sinc,
    "sin(pi x) / (pi x), 1 at 0, or its derivative of the given order; exact at and near 0.",
)
exprel = _ordered(
    "EXPREL",
    kernels.exprel,
    "(e ** x - 1) / x, 1 at 0, or its derivative of the given order; exact at and near 0.",
)
