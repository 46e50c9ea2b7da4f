"""Exponentials, logarithms, trigonometric and hyperbolic functions."""

from typing import Any

import numpy as np
import scipy.special

from autodiff.families import binary, promote, unary
from autodiff.kernels import special as kernels
from autodiff.trace import bind

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "copysign",
    "cos",
    "cosh",
    "exp",
    "exp2",
    "expm1",
    "exprel",
    "hypot",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "sech2",
    "sin",
    "sinc",
    "sinh",
    "tan",
    "tanh",
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
    "LOG2", np.log2, tangent=lambda t, x, y: t / (LN2 * x), doc="Base-2 logarithm; -inf at 0."
)
log10 = unary(
    "LOG10", np.log10, tangent=lambda t, x, y: t / (LN10 * x), doc="Base-10 logarithm; -inf at 0."
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
# (pytorch/pytorch#80770)
xlogy = binary(
    "XLOGY",
    scipy.special.xlogy,
    tangents=(lambda t, x, y, z: t * log(y), lambda t, x, y, z: t * bind("STRONG_DIV", x, y)),
    kinds="fV",
    jax="rules:xlogy",
    doc="x log(y), 0 where x = 0; derivatives log(y) and x / y, the latter 0 where x = 0.",
)
xlog1py = binary(
    "XLOG1PY",
    scipy.special.xlog1py,
    tangents=(lambda t, x, y, z: t * log1p(y), lambda t, x, y, z: t * bind("STRONG_DIV", x, 1 + y)),
    kinds="fV",
    jax="rules:xlog1py",
    doc="x log(1 + y), 0 where x = 0; derivatives log1p(y) and x / (1 + y), the latter 0 at x = 0.",
)

# --- trigonometric functions -----------------------------------------------------------------


def _tan_tangent(t: Any, x: Any, y: Any) -> Any:
    # 1 + y * y cancels far from the real axis, where tan(x) tends to +-i
    return t * sech2(1j * x) if x.dtype.kind == "c" else t * (1 + y * y)


def _tilt(x: Any) -> Any:
    """sqrt(1 - x ** 2), exact near |x| = 1."""
    return np.sqrt((1 - x) * (1 + x))


sin = unary("SIN", np.sin, deriv=lambda x, y: cos(x), doc="Sine of radians.")
cos = unary("COS", np.cos, tangent=lambda t, x, y: -t * sin(x), doc="Cosine of radians.")
tan = unary("TAN", np.tan, tangent=_tan_tangent, doc="Tangent of radians.")
asin = unary(
    "ASIN",
    np.arcsin,
    tangent=lambda t, x, y: t / _tilt(x),
    doc="Inverse sine in radians; the derivative at +-1 is infinite.",
)
acos = unary(
    "ACOS",
    np.arccos,
    tangent=lambda t, x, y: -t / _tilt(x),
    doc="Inverse cosine in radians; the derivative at +-1 is infinite.",
)
atan = unary(
    "ATAN",
    np.arctan,
    tangent=lambda t, x, y: t / (1 + x * x),
    doc="Inverse tangent in radians.",
)


def _radius(r: Any) -> Any:
    """A radius with 0 replaced by 1, to divide by."""
    return bind("WHERE", r == 0, np.ones((), r.dtype), r)


def _atan2_tangent(operand: int) -> Any:
    def tangent(t: Any, y: Any, x: Any, angle: Any) -> Any:
        # through x / r and y / r, which neither overflow nor underflow
        r = _radius(hypot(x, y))
        return t * (x / r) / r if operand == 0 else -t * (y / r) / r

    return tangent


atan2 = binary(
    "ATAN2",
    np.arctan2,
    tangents=(_atan2_tangent(0), _atan2_tangent(1)),
    kinds="fV",
    doc="Angle of the point (x, y) from its ordinate y and abscissa x, in (-pi, pi]; the "
    "derivative at the origin is taken as 0.",
)
hypot = binary(
    "HYPOT",
    np.hypot,
    tangents=(lambda t, x, y, r: t * (x / _radius(r)), lambda t, x, y, r: t * (y / _radius(r))),
    kinds="fV",
    doc="sqrt(x ** 2 + y ** 2) without overflow; the derivative at the origin is taken as 0.",
)
copysign = binary(
    "COPYSIGN",
    np.copysign,
    tangents=(
        lambda t, x, y, z: t * (bind("SIGN", x) * bind("COPYSIGN", np.ones((), x.dtype), y)),
        lambda t, x, y, z: None,
    ),
    kinds="fV",
    doc="|x| with the sign of y; the derivative in x at 0 is taken as 0, that in y is 0.",
)

# --- hyperbolic functions --------------------------------------------------------------------


def _sech2_body(x: Any) -> Any:
    # 4 e / (1 + e) ** 2 with e = exp(-2 |x|): neither cancels nor overflows, unlike 1 - tanh ** 2
    if x.dtype.kind == "c":
        e = exp(bind("WHERE", bind("REAL", x) < 0, 2 * x, -2 * x))
    else:
        e = exp(-2 * bind("ABS", x))
    return 4 * e / ((1 + e) * (1 + e))


sech2 = unary(
    "SECH2",
    body=_sech2_body,
    deriv=lambda x, y: -2 * (y * tanh(x)),
    doc="1 / cosh(x) ** 2, the derivative of tanh; relative accuracy for every x.",
)
tanh = unary(
    "TANH", np.tanh, deriv=lambda x, y: sech2(x), doc="Hyperbolic tangent; derivative SECH2."
)
sinh = unary("SINH", np.sinh, deriv=lambda x, y: cosh(x), doc="Hyperbolic sine.")
cosh = unary("COSH", np.cosh, deriv=lambda x, y: sinh(x), doc="Hyperbolic cosine.")


def _asinh_tangent(t: Any, x: Any, y: Any) -> Any:
    # sqrt(1 + x * x) overflows at 1e19 in float32 (jax-ml/jax#40634)
    scale = np.sqrt(1 + x * x) if x.dtype.kind == "c" else hypot(np.ones((), x.dtype), x)
    return t / scale


asinh = unary("ASINH", np.arcsinh, tangent=_asinh_tangent, doc="Inverse hyperbolic sine.")
acosh = unary(
    "ACOSH",
    np.arccosh,
    tangent=lambda t, x, y: t / (np.sqrt(x - 1) * np.sqrt(x + 1)),
    doc="Inverse hyperbolic cosine; the derivative at 1 is +inf.",
)
atanh = unary(
    "ATANH",
    np.arctanh,
    tangent=lambda t, x, y: t / ((1 - x) * (1 + x)),
    doc="Inverse hyperbolic tangent.",
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
