"""Special functions and their derivatives against mpmath, domain ends included."""

import mpmath as mp
import numpy as np
import pytest

import autodiff as ad
from autodiff.errors import ShapeError

INF = np.inf


def mp_ndtri(p):
    return mp.sqrt(2) * mp.erfinv(2 * mp.mpf(p) - 1)


def lgamma_of(x):
    return mp.log(abs(mp.gamma(x)))


UNARY = {
    "lgamma": (ad.ops.lgamma, lgamma_of, [1e-8, 0.3, 1.5, 7.0, 1e3, -0.5, -3.7]),
    "digamma": (ad.ops.digamma, mp.digamma, [1e-6, 0.3, 2.0, 9.0, 1e4, -0.5, -3.7]),
    "trigamma": (ad.ops.trigamma, lambda x: mp.psi(1, x), [1e-5, 0.3, 2.0, 9.0, 1e4, -0.5, -3.7]),
    "polygamma_3": (
        lambda x: ad.ops.polygamma(3, x),
        lambda x: mp.psi(3, x),
        [1e-3, 0.3, 2.0, 9.0, 1e3, -0.5, -3.7],
    ),
    "gamma": (ad.ops.gamma, mp.gamma, [1e-6, 0.5, 3.3, 30.0, 160.0, -0.5, -3.7]),
    "erf": (ad.ops.erf, mp.erf, [-6.0, -1.0, 1e-10, 0.5, 3.0, 9.0]),
    "erfc": (ad.ops.erfc, mp.erfc, [-6.0, -1.0, 1e-10, 0.5, 3.0, 9.3, 26.0]),
    "gaussian": (ad.ops.gaussian, lambda x: mp.exp(-(x**2)), [-26.1, -9.37, 0.01, 1.0, 20.123]),
    "erfinv": (ad.ops.erfinv, mp.erfinv, [-0.999, -0.5, 1e-12, 0.3, 1 - 2.0**-30]),
    "ndtr": (ad.ops.ndtr, mp.ncdf, [-36.7, -9.3, -1.0, 0.2, 5.0]),
    "log_ndtr": (ad.ops.log_ndtr, lambda x: mp.log(mp.ncdf(x)), [-20.0, -9.3, -1.0, 0.2, 5.0]),
    "ndtri": (ad.ops.ndtri, mp_ndtri, [1e-30, 1e-5, 0.3, 0.6, 1 - 2.0**-30]),
    "entr": (ad.ops.entr, lambda x: -x * mp.log(x), [1e-3, 0.2, 0.9, 5.0]),
    "logit": (ad.ops.logit, lambda x: mp.log(x / (1 - x)), [1e-30, 0.2, 0.499, 0.51, 1 - 2.0**-30]),
    "i0": (ad.ops.bessel_i0, lambda x: mp.besseli(0, x), [-30.0, 1e-9, 0.5, 7.0, 100.0]),
    "i1": (ad.ops.bessel_i1, lambda x: mp.besseli(1, x), [-30.0, 1e-9, 0.5, 7.0, 100.0]),
    "i0e": (
        ad.ops.bessel_i0e,
        lambda x: mp.besseli(0, x) * mp.exp(-abs(x)),
        [-30.0, 1e-9, 0.5, 7.0, 100.0],
    ),
    "i1e": (
        ad.ops.bessel_i1e,
        lambda x: mp.besseli(1, x) * mp.exp(-abs(x)),
        [-30.0, 1e-9, 0.5, 7.0, 100.0],
    ),
    "j0": (ad.ops.bessel_j0, lambda x: mp.besselj(0, x), [-30.0, 1e-9, 0.5, 7.0, 100.0]),
    "j1": (ad.ops.bessel_j1, lambda x: mp.besselj(1, x), [-30.0, 1e-9, 0.5, 7.0, 100.0]),
    "jv_3": (
        lambda x: ad.ops.bessel_jv(3, x),
        lambda x: mp.besselj(3, x),
        [-30.0, 1e-3, 0.5, 7.0, 100.0],
    ),
}


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("name", UNARY)
def test_value_and_derivatives(name, order):
    """Relative to the value, or to the size of the terms where a Bessel derivative cancels."""
    function, exact, points = UNARY[name]
    f = function
    for _ in range(order):
        f = ad.grad(f)
    for x in points:
        with mp.workdps(50):
            want = float(mp.diff(exact, mp.mpf(x), order))
            scale = abs(want)
            if name[0] in "ij" and name[1].isdigit():
                scale = max(scale, float(abs(exact(mp.mpf(x)))) if order else 1e-3)
        # LOG_NDTR's second derivative loses about x ** 2 ulp in the negative tail
        allowed = {"log_ndtr": 5e-11, "gamma": 3e-13, "ndtr": 3e-13, "ndtri": 1e-13}.get(
            name, 5e-14
        )
        allowed = max(allowed, 1e-14 * abs(x) if name[0] == "j" else 0)
        assert abs(float(f(np.float64(x))) - want) <= allowed * scale, (x, want)


def finite_difference(f, at, orders):
    """A mixed derivative in the first parameters of a function of mpmath numbers."""
    with mp.workdps(60):
        return float(mp.diff(f, tuple(mp.mpf(v) for v in at), orders))


GAMMA_POINTS = [(0.3, 0.1), (0.3, 2.0), (2.5, 1e-3), (2.5, 2.5), (2.5, 30.0), (60.0, 55.0)]


@pytest.mark.parametrize("orders", [(1, 0), (0, 1), (2, 0), (1, 1), (0, 2)])
def test_incomplete_gamma_in_both_arguments(orders):
    for a, x in GAMMA_POINTS:

        def tail(p, q, low=x <= a):
            sign, ends = (1, (0, q)) if low else (-1, (q, mp.inf))
            return sign * mp.gammainc(p, *ends, regularized=True)

        want = finite_difference(tail, (a, x), orders)
        for f, sign in ((ad.ops.igamma, 1), (ad.ops.igammac, -1)):
            g = f
            for operand, count in enumerate(orders):
                for _ in range(count):
                    g = ad.grad(g, operand)
            got = sign * float(g(np.float64(a), np.float64(x)))
            assert got == pytest.approx(want, rel=3e-12, abs=1e-16), (a, x)


BETA_POINTS = [
    (0.5, 0.5, 0.4),
    (2.0, 3.0, 1e-4),
    (2.0, 3.0, 0.45),
    (2.0, 3.0, 0.999),
    (0.2, 6.0, 0.01),
    (40.0, 30.0, 0.55),
]


@pytest.mark.parametrize(
    "orders", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 0, 0), (1, 1, 0), (0, 1, 1)]
)
def test_incomplete_beta_in_all_arguments(orders):
    for a, b, x in BETA_POINTS:

        def tail(p, q, t, low=x <= a / (a + b)):
            if low:
                return mp.betainc(p, q, 0, t, regularized=True)
            return -mp.betainc(q, p, 0, 1 - t, regularized=True)

        want = finite_difference(tail, (a, b, x), orders)
        g = ad.ops.betainc
        for operand, count in enumerate(orders):
            for _ in range(count):
                g = ad.grad(g, operand)
        got = float(g(*map(np.float64, (a, b, x))))
        assert got == pytest.approx(want, rel=1e-11, abs=1e-15), (a, b, x)


def test_third_derivative_of_the_incomplete_gamma_in_its_shape():
    f = ad.grad(ad.grad(ad.grad(ad.ops.igamma)))
    want = finite_difference(lambda p: mp.gammainc(p, 0, mp.mpf(2), regularized=True), (1.5,), (3,))
    assert float(f(1.5, 2.0)) == pytest.approx(want, rel=1e-11, abs=0)


@pytest.mark.parametrize("orders", [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1)])
def test_hurwitz_zeta_in_both_arguments(orders):
    for s, q in [(1.5, 0.3), (2.0, 1.0), (5.0, 2.5), (12.0, 0.7), (3.0, 40.0)]:
        want = finite_difference(lambda s, q: mp.zeta(s, q), (s, q), orders)
        f = ad.ops.zeta
        for operand, count in enumerate(orders):
            for _ in range(count):
                f = ad.grad(f, operand)
        assert float(f(np.float64(s), np.float64(q))) == pytest.approx(want, rel=1e-13, abs=0)


def test_bessel_functions_at_zero_to_fourth_order():
    """The rules never divide by x: I_0 = 1 + x^2/4 + x^4/64, J_0 with alternating signs."""
    for f, wants in (
        (ad.ops.bessel_i0, [1.0, 0.0, 0.5, 0.0, 0.375]),
        (ad.ops.bessel_j0, [1.0, 0.0, -0.5, 0.0, 0.375]),
        (ad.ops.bessel_i1, [0.0, 0.5, 0.0, 0.375, 0.0]),
        (ad.ops.bessel_j1, [0.0, 0.5, 0.0, -0.375, 0.0]),
    ):
        for want in wants:
            assert float(f(0.0)) == want
            f = ad.grad(f)


def test_ends_of_domains():
    assert ad.ops.erfinv(np.array([-1.0, 1.0])).tolist() == [-INF, INF]
    assert ad.grad(ad.ops.erfinv)(1.0) == INF
    assert ad.grad(ad.ops.ndtri)(0.0) == INF
    assert ad.grad(ad.ops.entr)(0.0) == INF
    assert ad.grad(ad.ops.logit)(0.0) == INF
    assert ad.grad(ad.ops.igamma, (0, 1))(2.0, 0.0) == (0.0, 0.0)
    assert ad.grad(ad.ops.igamma, (0, 1))(2.0, INF) == (0.0, 0.0)
    assert ad.grad(ad.ops.igamma, 1)(1.0, 0.0) == 1.0
    assert ad.grad(ad.ops.betainc, (0, 1, 2))(2.0, 2.0, 1.0) == (0.0, 0.0, 0.0)
    assert np.isnan(ad.grad(ad.ops.igamma)(-1.0, 1.0))
    assert np.isnan(ad.grad(ad.ops.betainc)(1.0, 1.0, 1.5))


def test_errors():
    with pytest.raises(ShapeError, match=r"(?s)polygamma of order 1.5.*POLYGAMMA.*integer n >= 0"):
        ad.ops.polygamma(1.5, 2.0)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"(?s)bessel_iv of order 0.5.*argument n.*integer order"):
        ad.ops.bessel_iv(0.5, 2.0)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"(?s)BETAINC operands do not broadcast"):
        ad.ops.betainc(np.ones(2), np.ones(3), 0.5)
    with pytest.raises(ShapeError, match=r"(?s)BETAINC is not defined for complex128.*astype"):
        ad.ops.betainc(1.0, 1j, 0.5)
