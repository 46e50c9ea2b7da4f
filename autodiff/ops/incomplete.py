"""Incomplete gamma and beta functions, differentiable in their parameters to any order."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from autodiff.errors import ShapeError
from autodiff.families import (
    add_tangents,
    batch_broadcasting,
    binary,
    broadcast_shapes,
    fit,
    promote,
)
from autodiff.kernels import incomplete as kernels
from autodiff.op import Op, define
from autodiff.ops.special import digamma, polygamma
from autodiff.ops.transcendental import log, log1p
from autodiff.program import Spec
from autodiff.trace import bind
from autodiff.widen import widened_rule

__all__ = [
    "beta_density",
    "betainc",
    "betainc_ab",
    "gamma_density",
    "igamma",
    "igamma_a",
    "igammac",
]

# --- incomplete gamma --------------------------------------------------------------------------


def _nonzero(x: Any) -> Any:
    """x with 0 replaced by 1, to divide by or take logs of."""
    return bind("WHERE", x == 0, np.ones((), x.dtype), x)


def _gamma_density_a(order: int, a: Any, x: Any) -> Any:
    """The derivative of given order in a of the gamma density, over the density; 0 at x = 0."""
    first = log(_nonzero(x)) - digamma(a)
    higher = [-polygamma(k, a) for k in range(1, order)]
    return bind("WHERE", x == 0, np.zeros((), x.dtype), kernels.bell(first, higher))


gamma_density = binary(
    "GAMMA_DENSITY",
    kernels.gamma_density,
    tangents=(
        widened_rule(lambda t, a, x, y: t * (y * _gamma_density_a(1, a, x))),
        widened_rule(lambda t, a, x, y: t * (y * ((a - 1) / _nonzero(x) - 1))),
    ),
    kinds="fV",
    jax="rules:gamma_density",
    doc="x ** (a - 1) e ** -x / Gamma(a); at x = 0 the derivative in a is taken as 0 and that in "
    "x as (a - 2) times the value.",
)
igamma = binary(
    "IGAMMA",
    scipy.special.gammainc,
    tangents=(
        lambda t, a, x, y: t * bind("IGAMMA_A", a, x, order=1),
        lambda t, a, x, y: t * bind("GAMMA_DENSITY", a, x),
    ),
    kinds="fV",
    jax="rules:igamma",
    doc="The regularised lower incomplete gamma function P(a, x) (DLMF 8.2.4), a > 0, x >= 0.",
)
igammac = binary(
    "IGAMMAC",
    scipy.special.gammaincc,
    tangents=(
        lambda t, a, x, y: -t * bind("IGAMMA_A", a, x, order=1),
        lambda t, a, x, y: -t * bind("GAMMA_DENSITY", a, x),
    ),
    kinds="fV",
    jax="rules:igammac",
    doc="The regularised upper incomplete gamma function Q(a, x) = 1 - P(a, x) (DLMF 8.2.4).",
)
binary(
    "IGAMMA_A",
    kernels.igamma_a,
    tangents=(
        widened_rule(lambda t, a, x, y, *, order: t * bind("IGAMMA_A", a, x, order=order + 1)),
        widened_rule(
            lambda t, a, x, y, *, order: (
                t * (bind("GAMMA_DENSITY", a, x) * _gamma_density_a(order, a, x))
            )
        ),
    ),
    kinds="fV",
    jax="rules:igamma_a",
)


def igamma_a(a: Any, x: Any, order: int = 1) -> Any:
    """The derivative of given order (1, 2 ...) of P(a, x) in a, for a > 0 and x >= 0.

    Computed by quadrature over the tail on which the integrand of the first derivative has one
    sign: its relative error is about 1e-13 in both tails.
    """
    return bind("IGAMMA_A", *promote(a, x, inexact=True), order=int(order))


# --- incomplete beta ---------------------------------------------------------------------------

Tangent = Callable[..., Any]


def _ternary(kind: str, impl: Any, tangents: tuple[Tangent, Tangent, Tangent], doc: str) -> Op:
    """An elementwise op of three real operands of one dtype, which broadcast."""

    def spec(a: Spec, b: Spec, x: Spec, **params: Any) -> Spec:
        del params
        shape = broadcast_shapes(kind, a, b, x)
        if not a.dtype == b.dtype == x.dtype or x.dtype.kind not in "fV":
            raise ShapeError(
                f"{kind} is not defined for {a.dtype.name}, {b.dtype.name} and {x.dtype.name}",
                f"in op {kind}, operands {a}, {b} and {x}",
                "convert the operands to one floating dtype with astype",
            )
        return Spec(shape, x.dtype)

    def jvp(primals: Any, dots: Any, z: Any, **params: Any) -> Any:
        parts = (
            fit(f(t, *primals, z, **params), np.shape(z))
            for f, t in zip(tangents, dots, strict=True)
            if t is not None
        )
        return add_tangents(*parts)

    return define(
        Op(
            kind,
            spec,
            impl=impl,
            jvp=widened_rule(jvp),
            batch=batch_broadcasting(kind),
            elementwise=True,
            jax=f"rules:{kind.lower()}",
            doc=doc,
        )
    )


def _interior(x: Any) -> tuple[Any, Any, Any]:
    """Whether 0 < x < 1, and x and 1 - x there (1/2 elsewhere)."""
    inside = (x > 0) & (x < 1)
    safe = bind("WHERE", inside, x, np.asarray(0.5, x.dtype))
    return inside, safe, 1 - safe


def _beta_density_ab(i: int, j: int, a: Any, b: Any, x: Any) -> Any:
    """The derivative of orders i, j in a, b of the beta density, over the density; 0 at 0, 1."""
    inside, x, _ = _interior(x)

    def log_derivative(m: int, n: int) -> Any:
        both = polygamma(m + n - 1, a + b)
        if n == 0:
            return both - polygamma(m - 1, a) + (log(x) if m == 1 else 0)
        return both - polygamma(n - 1, b) + (log1p(-x) if n == 1 else 0) if m == 0 else both

    ratio = kernels.mixed_bell(log_derivative, (i, j))
    return bind("WHERE", inside, ratio, np.zeros((), x.dtype))


def _beta_density_x(t: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    inside, p, q = _interior(x)
    slope = bind("WHERE", inside, (a - 1) / p - (b - 1) / q, np.zeros((), x.dtype))
    return t * (y * slope)


_ternary(
    "BETA_DENSITY",
    kernels.beta_density,
    (
        lambda t, a, b, x, y: t * (y * _beta_density_ab(1, 0, a, b, x)),
        lambda t, a, b, x, y: t * (y * _beta_density_ab(0, 1, a, b, x)),
        _beta_density_x,
    ),
    "x ** (a - 1) (1 - x) ** (b - 1) / B(a, b).",
)
_ternary(
    "BETAINC",
    kernels.betainc,
    (
        lambda t, a, b, x, y: t * bind("BETAINC_AB", a, b, x, orders=(1, 0)),
        lambda t, a, b, x, y: t * bind("BETAINC_AB", a, b, x, orders=(0, 1)),
        lambda t, a, b, x, y: t * bind("BETA_DENSITY", a, b, x),
    ),
    "The regularised incomplete beta function.",
)


def _beta_tangent(operand: int) -> Tangent:
    def tangent(t: Any, a: Any, b: Any, x: Any, y: Any, *, orders: tuple[int, int]) -> Any:
        i, j = orders
        if operand == 2:
            return t * (bind("BETA_DENSITY", a, b, x) * _beta_density_ab(i, j, a, b, x))
        more = (i + 1, j) if operand == 0 else (i, j + 1)
        return t * bind("BETAINC_AB", a, b, x, orders=more)

    return tangent


_ternary(
    "BETAINC_AB",
    kernels.betainc_ab,
    (_beta_tangent(0), _beta_tangent(1), _beta_tangent(2)),
    "A derivative of the regularised incomplete beta function in its parameters.",
)


def beta_density(a: Any, b: Any, x: Any) -> Any:
    """x ** (a - 1) (1 - x) ** (b - 1) / B(a, b), the density of the beta distribution.

    At x = 0 and x = 1 its derivatives are taken as 0.
    """
    return bind("BETA_DENSITY", *promote(a, b, x, inexact=True))


def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularised incomplete beta function I_x(a, b) (DLMF 8.17.2), a, b > 0, 0 <= x <= 1.

    Differentiable in a, b and x, to any order; the derivatives in a and b are `betainc_ab`.
    """
    return bind("BETAINC", *promote(a, b, x, inexact=True))


def betainc_ab(a: Any, b: Any, x: Any, orders: tuple[int, int] = (1, 0)) -> Any:
    """The derivative of I_x(a, b) of the given orders in a and b, not both 0.

    Computed by quadrature over the tail of x away from the mean, where the integrand of a first
    derivative has one sign: its relative error is below about 1e-12 in both tails.
    """
    i, j = orders
    return bind("BETAINC_AB", *promote(a, b, x, inexact=True), orders=(int(i), int(j)))
