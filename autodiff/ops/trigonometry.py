"""Trigonometric and hyperbolic functions, and the polar form of a point."""

from typing import Any

import numpy as np

from autodiff.families import binary, unary
from autodiff.ops.transcendental import exp
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
    "hypot",
    "sech2",
    "sin",
    "sinh",
    "tan",
    "tanh",
]

# --- trigonometric functions -----------------------------------------------------------------


def _tan_tangent(t: Any, x: Any, y: Any) -> Any:
    # 1 + y * y cancels far from the real axis, where tan(x) tends to +-i
    return t * sech2(1j * x) if x.dtype.kind == "c" else t * (1 + y * y)


def _defect(x: Any) -> Any:
    """1 - x ** 2, exact near |x| = 1, and of exact slope near 0: (1 - x)(1 + x) has none there."""
    return bind("WHERE", bind("ABS", x) < 0.5, 1 - x * x, (1 - x) * (1 + x))


def _tilt(x: Any) -> Any:
    """sqrt(1 - x ** 2)."""
    return np.sqrt(_defect(x))


def _secant(x: Any) -> Any:
    """sqrt(1 + x ** 2); in float32 1 + x * x overflows at 1e19 (jax-ml/jax#40634)."""
    return np.sqrt(1 + x * x) if x.dtype.kind == "c" else hypot(np.ones((), x.dtype), x)


def _atan_tangent(t: Any, x: Any, y: Any) -> Any:
    del y
    return t / (1 + x * x) if x.dtype.kind == "c" else t / _secant(x) / _secant(x)


sin = unary("SIN", np.sin, deriv=lambda x, y: bind("COS", x), doc="Sine of radians.")
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
    tangent=_atan_tangent,
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
    deriv=lambda x, y: -2 * (y * bind("TANH", x)),
    doc="1 / cosh(x) ** 2, the derivative of tanh; relative accuracy for every x.",
)
tanh = unary(
    "TANH", np.tanh, deriv=lambda x, y: sech2(x), doc="Hyperbolic tangent; derivative SECH2."
)
sinh = unary("SINH", np.sinh, deriv=lambda x, y: bind("COSH", x), doc="Hyperbolic sine.")
cosh = unary("COSH", np.cosh, deriv=lambda x, y: sinh(x), doc="Hyperbolic cosine.")


asinh = unary(
    "ASINH",
    np.arcsinh,
    tangent=lambda t, x, y: t / _secant(x),
    doc="Inverse hyperbolic sine.",
)
acosh = unary(
    "ACOSH",
    np.arccosh,
    tangent=lambda t, x, y: t / (np.sqrt(x - 1) * np.sqrt(x + 1)),
    doc="Inverse hyperbolic cosine; the derivative at 1 is +inf.",
)
atanh = unary(
    "ATANH",
    np.arctanh,
    tangent=lambda t, x, y: t / _defect(x),
    doc="Inverse hyperbolic tangent.",
)
