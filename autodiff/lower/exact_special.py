"""Exact rules of Bessel, zeta and incomplete gamma and beta functions, and of their parameters."""

from collections.abc import Callable, Iterator
from typing import Any

from autodiff.kernels.incomplete import bell, mixed_bell
from autodiff.lower.exact_functions import FUNCTIONS, rule
from autodiff.lower.number import Number, Undecided

TERMS = 20000


def _integer_order(function: str) -> Callable[..., Any]:
    return lambda x, n: x.call(function, x.of(n))


def _scaled(x: Number, n: int) -> Any:
    return (-abs(x)).call("exp") * x.call("bessel_i", x.of(n))


FUNCTIONS.update(
    {
        "BESSEL_JV": _integer_order("bessel_j"),
        "BESSEL_IV": _integer_order("bessel_i"),
        "BESSEL_IVE": _scaled,
        "BESSEL_J0": lambda x: x.call("bessel_j", x.of(0)),
        "BESSEL_J1": lambda x: x.call("bessel_j", x.of(1)),
        "BESSEL_I0": lambda x: x.call("bessel_i", x.of(0)),
        "BESSEL_I1": lambda x: x.call("bessel_i", x.of(1)),
        "BESSEL_I0E": lambda x: _scaled(x, 0),
        "BESSEL_I1E": lambda x: _scaled(x, 1),
        "BESSEL_K0": lambda x: x.call("bessel_k", x.of(0)),
        "BESSEL_K1": lambda x: x.call("bessel_k", x.of(1)),
        "EXPI": lambda x: x.call("ei"),
        "SPENCE": lambda x: (1 - x).call("polylog", x.of(2)),
        "ZETA": lambda s, q: s.call("zeta", q),
        "ZETA_S": lambda s, q, order: s.zeta_derivative(q, order),
        "IGAMMA": lambda a, x: _at_zero(x, 0) or x.call("gamma_lower", a, 1),
        "IGAMMAC": lambda a, x: _at_zero(x, 1) or x.call("gamma_upper", a, 1),
        "BETAINC": lambda a, b, x: _at_zero(x, 0) or x.call("beta_lower", a, b, 1),
    }
)


def _at_zero(x: Number, value: int) -> Number | None:
    """The value at x = 0 exactly, where the functions have a branch point; else None."""
    return x.of(value) if x.exact() == 0 else None


# --- densities -----------------------------------------------------------------------------


@rule("GAMMA_DENSITY")
def _gamma_density(a: Number, x: Number) -> Any:
    return x ** (a - 1) * (-x).call("exp") * a.call("rgamma")


@rule("BETA_DENSITY")
def _beta_density(a: Number, b: Number, x: Number) -> Any:
    total = (a + b).call("gamma") * a.call("rgamma") * b.call("rgamma")
    return x ** (a - 1) * (1 - x) ** (b - 1) * total


# --- derivatives in the parameters ---------------------------------------------------------


def _polygammas(x: Number, orders: int) -> Iterator[list[Any]]:
    """psi_n at x, x + 1, ... for n < orders: psi_n(x + 1) = psi_n(x) + (-1)^n n! / x^(n+1)."""
    values = [x.call("digamma"), *(x.call("polygamma", n) for n in range(1, orders))]
    at: Any = x
    while True:
        yield values
        factor = 1 / at
        term, grown = factor, []
        for n, value in enumerate(values):
            grown.append(value + term)
            term = -term * (n + 1) * factor
        values, at = grown, at + 1


def _summed(terms: Iterator[tuple[Any, Any]], ratio: Callable[[int], float], bits: int) -> Any:
    """Sum of the terms of (size, term) pairs, and a bound of what is left out.

    It stops where sizes shrink by 0.9 or faster. A term is its size times a product of at most
    four logarithms or polygammas, below 4096 together; with the geometric series of 0.95 what
    follows is below 2^17 sizes. That is held against the largest size, whose rounding the total
    has in it: a sum that cancels, to 0 maybe, never gets small against itself.
    """
    total: Any = 0
    largest: Any = None
    for k, (size, term) in enumerate(terms):
        total = total + term
        magnitude = size.magnitude()
        largest = magnitude if largest is None or magnitude > largest else largest
        if not total.is_finite():
            return total
        bound = magnitude * 2**17
        if k > 8 and ratio(k) < 0.9 and bound * 2**bits <= largest:
            return total.widened(bound)
        if k > TERMS:
            break
    raise Undecided(f"a series of more than {TERMS} terms")


@rule("IGAMMA_A")
def _igamma_a(a: Number, x: Number, order: int) -> Any:
    """P(a, x) = sum_k x^(a+k) e^-x / Gamma(a+k+1) (DLMF 8.7.1), differentiated term by term."""
    if x.exact() == 0:
        return x.of(0)

    def terms() -> Iterator[tuple[Any, Any]]:
        size = x**a * (-x).call("exp") * (a + 1).call("rgamma")
        log, at = x.call("log"), a + 1
        for psi in _polygammas(a + 1, order):
            yield size, size * bell(log - psi[0], [-p for p in psi[1:]])
            size, at = size * x / at, at + 1

    growth = float(x.approximate())
    start = float(a.approximate())
    return _summed(terms(), lambda k: growth / (start + k), x.working_bits() + 8)


@rule("BETAINC_AB")
def _betainc_ab(a: Number, b: Number, x: Number, orders: tuple[int, int]) -> Any:
    """I_x(a, b) = sum_k x^(a+k) (1-x)^b Gamma(a+b+k) / (Gamma(b) Gamma(a+k+1)) (DLMF 8.17.8)."""
    if x.exact() in (0, 1):
        return x.of(0)
    if x.approximate() > 0.5:  # I_x(a, b) = 1 - I_(1-x)(b, a)
        return -_betainc_ab(b, a, 1 - x, orders[::-1])
    depth = sum(orders)
    fixed = next(_polygammas(b, depth))

    def terms() -> Iterator[tuple[Any, Any]]:
        size = x**a * (1 - x) ** b * (a + b).call("gamma")
        size = size * b.call("rgamma") * (a + 1).call("rgamma")
        logs, top, bottom = (x.call("log"), (-x).call("log1p")), a + b, a + 1
        pairs = zip(_polygammas(top, depth), _polygammas(bottom, depth), strict=False)
        for both, below in pairs:

            def log_derivative(i: int, j: int, both: Any = both, below: Any = below) -> Any:
                value = both[i + j - 1]
                if j == 0:
                    return value - below[i - 1] + (logs[0] if i == 1 else 0)
                return value - fixed[j - 1] + (logs[1] if j == 1 else 0) if i == 0 else value

            yield size, size * mixed_bell(log_derivative, orders)
            size = size * x * top / bottom
            top, bottom = top + 1, bottom + 1

    growth, start, first = (float(v.approximate()) for v in (x, a, b))
    ratio = lambda k: growth * max(1.0, (start + first + k) / (start + 1 + k))  # noqa: E731
    return _summed(terms(), ratio, x.working_bits() + 8)
