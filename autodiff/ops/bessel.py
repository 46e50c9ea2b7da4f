"""Bessel functions of integer order and the Hurwitz zeta function."""

from typing import Any

import scipy.special

from autodiff.errors import ShapeError
from autodiff.families import binary, promote, unary
from autodiff.kernels import bessel as kernels
from autodiff.trace import bind

__all__ = [
    "bessel_i0",
    "bessel_i0e",
    "bessel_i1",
    "bessel_i1e",
    "bessel_iv",
    "bessel_ive",
    "bessel_j0",
    "bessel_j1",
    "bessel_jv",
    "zeta",
    "zeta_s",
]

# The rules use neighbouring orders instead of a division by x: exact at 0, at any order of
# differentiation (DLMF 10.29.1, 10.6.1).

# --- modified Bessel functions -----------------------------------------------------------------


def _order(kind: str, n: Any) -> int:
    if int(n) != n:
        raise ShapeError(
            f"{kind.lower()} of order {n!r}", f"in op {kind}, argument n", "use an integer order"
        )
    return abs(int(n))


def _iv(n: int, x: Any) -> Any:
    n = abs(n)
    return bind(f"BESSEL_I{n}", x) if n < 2 else bind("BESSEL_IV", x, n=n)


def _ive(n: int, x: Any) -> Any:
    n = abs(n)
    return bind(f"BESSEL_I{n}E", x) if n < 2 else bind("BESSEL_IVE", x, n=n)


def _jv(n: int, x: Any) -> Any:
    return bind(f"BESSEL_J{n}", x) if n < 2 else bind("BESSEL_JV", x, n=n)


def _ive_deriv(n: int, x: Any, y: Any) -> Any:
    return 0.5 * (_ive(n - 1, x) + _ive(n + 1, x)) - bind("SIGN", x) * y


bessel_i0 = unary(
    "BESSEL_I0",
    scipy.special.i0,
    deriv=lambda x, y: _iv(1, x),
    kinds="fV",
    jax="rules:bessel_i0",
    doc="The modified Bessel function I_0(x).",
)
bessel_i1 = unary(
    "BESSEL_I1",
    scipy.special.i1,
    deriv=lambda x, y: 0.5 * (_iv(0, x) + _iv(2, x)),
    kinds="fV",
    jax="rules:bessel_i1",
    doc="The modified Bessel function I_1(x).",
)
bessel_i0e = unary(
    "BESSEL_I0E",
    scipy.special.i0e,
    deriv=lambda x, y: _ive(1, x) - bind("SIGN", x) * y,
    kinds="fV",
    jax="lax.bessel_i0e",
    doc="e ** -|x| I_0(x); the derivative at the kink 0 is taken as 0.",
)
bessel_i1e = unary(
    "BESSEL_I1E",
    scipy.special.i1e,
    deriv=lambda x, y: _ive_deriv(1, x, y),
    kinds="fV",
    jax="lax.bessel_i1e",
    doc="e ** -|x| I_1(x).",
)
unary(
    "BESSEL_IV",
    kernels.bessel_iv,
    deriv=lambda x, y, *, n: 0.5 * (_iv(n - 1, x) + _iv(n + 1, x)),
    kinds="fV",
    jax="rules:bessel_iv",
)
unary(
    "BESSEL_IVE",
    kernels.bessel_ive,
    deriv=lambda x, y, *, n: _ive_deriv(n, x, y),
    kinds="fV",
    jax="rules:bessel_ive",
)


def bessel_iv(n: int, x: Any) -> Any:
    """The modified Bessel function I_n(x) of a fixed integer order n.

    Raises:
        ShapeError: the order is not an integer.
    """
    (x,) = promote(x, inexact=True)
    return _iv(_order("BESSEL_IV", n), x)


def bessel_ive(n: int, x: Any) -> Any:
    """e ** -|x| I_n(x) of a fixed integer order n; SIGN(0) = 0 in its derivative at 0.

    Raises:
        ShapeError: the order is not an integer.
    """
    (x,) = promote(x, inexact=True)
    return _ive(_order("BESSEL_IVE", n), x)


# --- Bessel functions of the first kind --------------------------------------------------------

bessel_j0 = unary(
    "BESSEL_J0",
    scipy.special.j0,
    tangent=lambda t, x, y: -t * _jv(1, x),
    kinds="fV",
    jax="rules:bessel_j0",
    doc="The Bessel function J_0(x).",
)
bessel_j1 = unary(
    "BESSEL_J1",
    scipy.special.j1,
    deriv=lambda x, y: 0.5 * (_jv(0, x) - _jv(2, x)),
    kinds="fV",
    jax="rules:bessel_j1",
    doc="The Bessel function J_1(x).",
)
unary(
    "BESSEL_JV",
    kernels.bessel_jv,
    deriv=lambda x, y, *, n: 0.5 * (_jv(n - 1, x) - _jv(n + 1, x)),
    kinds="fV",
    jax="rules:bessel_jv",
)


def bessel_jv(n: int, x: Any) -> Any:
    """The Bessel function J_n(x) of a fixed integer order n.

    Raises:
        ShapeError: the order is not an integer.
    """
    (x,) = promote(x, inexact=True)
    order = _order("BESSEL_JV", n)
    # J_(-n) = (-1) ** n J_n
    return -_jv(order, x) if n < 0 and order % 2 else _jv(order, x)


# --- zeta --------------------------------------------------------------------------------------

zeta = binary(
    "ZETA",
    scipy.special.zeta,
    tangents=(
        lambda t, s, q, y: t * bind("ZETA_S", s, q, order=1),
        lambda t, s, q, y: -t * (s * bind("ZETA", s + 1, q)),
    ),
    kinds="fV",
    jax="rules:zeta",
    doc="The Hurwitz zeta function, the sum of (q + n) ** -s over n >= 0, for s > 1.",
)
binary(
    "ZETA_S",
    kernels.zeta_s,
    tangents=(
        lambda t, s, q, y, *, order: t * bind("ZETA_S", s, q, order=order + 1),
        # d/dq of d^n/ds^n zeta = d^n/ds^n of -s zeta(s + 1, q)
        lambda t, s, q, y, *, order: (
            -t * (s * zeta_s(s + 1, q, order) + order * zeta_s(s + 1, q, order - 1))
        ),
    ),
    kinds="fV",
    jax="rules:zeta_s",
)


def zeta_s(s: Any, q: Any, order: int = 1) -> Any:
    """The derivative of given order of the Hurwitz zeta function in s, for s > 1 and q > 0."""
    s, q = promote(s, q, inexact=True)
    return zeta(s, q) if order == 0 else bind("ZETA_S", s, q, order=int(order))
