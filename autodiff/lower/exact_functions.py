"""Exact rules of elementwise ops: one function of `Number`s each, by op kind."""

import math
from collections.abc import Callable
from typing import Any

from autodiff.lower.number import Number, Undecided

Function = Callable[..., Any]
FUNCTIONS: dict[str, Function] = {}


def rule(*kinds: str) -> Callable[[Function], Function]:
    """Decorator: the exact value of these op kinds, element by element."""

    def register(function: Function) -> Function:
        FUNCTIONS.update(dict.fromkeys(kinds, function))
        return function

    return register


def _is_zero(x: Number) -> bool:
    """Whether a real number is exactly 0; a ball around 0 is not."""
    return not x.is_complex and x.exact() == 0


# --- selection and parts -------------------------------------------------------------------

FUNCTIONS.update(
    {
        "STRONG_MUL": lambda x, y: x if _is_zero(x) else x * y,
        "STRONG_DIV": lambda x, y: x if _is_zero(x) else x / y,
        "DOMINANCE": lambda x, y: (1 + x.compare(y.v)) / 2,
        "STEP": lambda x: int(x > 0),
        "REAL": lambda x: x.real,
        "IMAG": lambda x: x.imag,
        "COMPLEX": lambda x, y: type(x)(x.complex_of(x.v, y.v)),
        "ISFINITE": lambda x: x.is_finite(),
        "ISINF": lambda x: _is_infinite(x),
        "ISNAN": lambda x: _is_nan(x),
        "STOP_GRADIENT": lambda x: x,
        "TAP": lambda x, name: x,
    }
)


def _is_infinite(x: Number) -> bool:
    if x.is_finite():
        return False
    return any(p.compare(x.real_of(s * math.inf)) == 0 for p in (x.real, x.imag) for s in (1, -1))


def _is_nan(x: Number) -> bool:
    if x.is_finite() or _is_infinite(x):
        return False
    raise Undecided("whether a value is NaN or infinite")


@rule("SIGN")
def _sign(x: Number) -> Any:
    if x.is_complex:
        return x if x == 0 else x / abs(x)
    return x.compare(x.real_of(0))


@rule("COPYSIGN")
def _copysign(x: Number, y: Number) -> Any:
    return -abs(x) if y < 0 else abs(x)


@rule("REM")
def _rem(x: Number, y: Number) -> Any:
    a, b = x.exact(), y.exact()
    if a is not None and b:
        return x - y * math.trunc(a / b)
    return x - y * (x / y).__trunc__()


# --- exponentials --------------------------------------------------------------------------

FUNCTIONS.update(
    {
        "SIGMOID": lambda x: 1 / (1 + (-x).call("exp")),
        "LOGADDEXP": lambda x, y: (x.call("exp") + y.call("exp")).log(),
        "XLOGY": lambda x, y: x if _is_zero(x) else x * y.log(),
        "XLOG1PY": lambda x, y: x if _is_zero(x) else x * y.call("log1p"),
        "ENTR": lambda x: x if _is_zero(x) else -(x * x.log()),
        "GAUSSIAN": lambda x, scale: (-(x * x * scale)).call("exp"),
        "RSQRT": lambda x: 1 / x.call("sqrt"),
        "RECIPROCAL": lambda x: 1 / x,
    }
)


@rule("EXPREL")
def _exprel(x: Number, order: int) -> Any:
    """f_0 = expm1(x) / x and x f_n = e^x - n f_(n-1), by differentiating x f_0 = e^x - 1."""
    if _is_zero(x):
        return x.of(1) / (order + 1)
    value = x.call("expm1") / x
    for n in range(1, order + 1):
        value = (x.call("exp") - n * value) / x
    return value


@rule("SINC")
def _sinc(x: Number, order: int) -> Any:
    """u = pi x: u f_n = sin(u + n pi / 2) - n f_(n-1), and f_n(0) = cos(n pi / 2) / (n + 1)."""
    scale = x.pi() ** order if order else x.of(1)
    if _is_zero(x):
        return scale * (1, 0, -1, 0)[order % 4] / (order + 1)
    value = x.call("sin_pi") / (x.pi() * x)
    for n in range(1, order + 1):
        wave = (x.call("sin_pi"), x.call("cos_pi"))[n % 2] * (1, 1, -1, -1)[n % 4]
        value = (wave - n * value) / (x.pi() * x)
    return scale * value


# --- gamma and error functions -------------------------------------------------------------

FUNCTIONS.update(
    {
        "GAMMA": lambda x: x.call("gamma"),
        "DIGAMMA": lambda x: x.call("digamma"),
        "TRIGAMMA": lambda x: x.call("polygamma", 1),
        "POLYGAMMA": lambda x, n: x.call("polygamma", n),
        "ERF": lambda x: x.call("erf"),
        "ERFC": lambda x: x.call("erfc"),
        "ERFCX": lambda x: (x * x).call("exp") * x.call("erfc"),
        "NDTR": lambda x: _ndtr(x),
        "LOG_NDTR": lambda x: _ndtr(x).log(),
        "NDTRI": lambda p: x_from_ndtr(p),
    }
)


@rule("LGAMMA")
def _lgamma(x: Number) -> Any:
    """log |Gamma(x)|; by reflection (DLMF 5.5.3) where x < 0."""
    if x > 0:
        return x.call("lgamma")
    return (x.pi() / abs(x.call("sin_pi"))).call("log") - (1 - x).call("lgamma")


@rule("ERFINV")
def _erfinv(x: Number) -> Any:
    return x if _is_zero(x) else x.call("erfinv")


def _ndtr(x: Number) -> Any:
    return (-x / x.of(2).call("sqrt")).call("erfc") / 2


def x_from_ndtr(p: Number) -> Any:
    """The quantile of the normal distribution."""
    return x.of(0) if _is_zero(x := 2 * p - 1) else p.of(2).call("sqrt") * x.call("erfinv")
