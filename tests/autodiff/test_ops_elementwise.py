"""Numerics and conventions of the elementwise ops, against mpmath and public bug reports."""

from typing import Any

import mpmath as mp
import numpy as np
import pytest

import autodiff as ad
from autodiff.errors import ShapeError

INF, NAN = np.inf, np.nan


def derivative(f, x, order=1):
    """The derivative of a function of one number."""
    for _ in range(order):
        f = ad.grad(f)
    return float(f(np.float64(x)))


def derivatives_in_float32(f, points):
    """The derivatives at float32 points by the F32 interpreter: one rounding per primitive."""
    program = ad.trace(ad.vmap(ad.grad(f)), np.asarray(points))
    return np.asarray(ad.interpret(program, np.asarray(points), precision="float32"), np.float64)


def near(want, rel=1e-13):
    """pytest.approx without its absolute tolerance of 1e-12, which takes 0 for 1e-22."""
    return pytest.approx(want, rel=rel, abs=0)


def worst(got, want):
    """The largest relative error, entry by entry."""
    want = np.asarray([float(w) for w in want])
    return float(np.max(np.abs(np.asarray(got) - want) / np.abs(want)))


TAILS = np.array([-80.0, -40.0, -17.0, -9.0, -5.0, 0.25, 5.0, 9.0, 17.0, 40.0, 80.0])


def mp_sigmoid(x):
    return 1 / (1 + mp.exp(-x))


# --- derivatives that must not cancel ------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (ad.ops.sigmoid, lambda x: mp_sigmoid(x) * mp_sigmoid(-x)),
        (ad.ops.log_sigmoid, lambda x: mp_sigmoid(-x)),
        (ad.ops.softplus, mp_sigmoid),
        (np.tanh, lambda x: mp.sech(x) ** 2),
    ],
)
def test_tails_of_float32_derivatives_keep_relative_accuracy(function, exact):
    points = TAILS / (2 if function is np.tanh else 1)
    with mp.workdps(60):
        want = [exact(mp.mpf(float(x))) for x in points]

    assert worst(derivatives_in_float32(function, points), want) < 5e-7


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("function, exact", [(np.tanh, mp.tanh), (ad.ops.sigmoid, mp_sigmoid)])
def test_higher_derivatives_of_sigmoids_keep_relative_accuracy(function, exact, order):
    points = [-300.0, -40.0, -9.0, 0.7, 9.0, 40.0, 300.0]
    got = [derivative(function, x, order) for x in points]
    with mp.workdps(400):
        want = [mp.diff(exact, mp.mpf(x), order) for x in points]

    assert worst(got, want) < 1e-13


def test_gelu_float32_derivative_in_the_negative_tail():
    points = np.array([-12.0, -10.0, -8.0, -5.0, -3.0])
    with mp.workdps(60):
        want = [mp.diff(lambda x: x * mp.ncdf(x), mp.mpf(x)) for x in points]

    assert worst(derivatives_in_float32(ad.ops.gelu, points), want) < 2e-6


def test_gelu_forms_are_the_two_known_ones():
    # chelsea0x3b/dfdx#804: twins that differ by at most 4.73e-4
    x = np.array([-5.0, -2.0, -1.0, 0.0, 1.0, 2.0, 5.0])
    with mp.workdps(40):
        exact = [float(mp.mpf(v) * mp.ncdf(mp.mpf(v))) for v in x]
        slopes = [float(mp.ncdf(mp.mpf(v)) + mp.mpf(v) * mp.npdf(mp.mpf(v))) for v in x]
        root = mp.sqrt(2 / mp.pi)
        form = [float(v / 2 * (1 + mp.tanh(root * (v + 0.044715 * mp.mpf(v) ** 3)))) for v in x]
    grid = np.linspace(-6, 6, 20001)
    gap = np.max(np.abs(ad.ops.gelu(grid) - ad.ops.gelu(grid, approximate="tanh")))

    assert np.allclose(ad.ops.gelu(x), exact, rtol=1e-14, atol=0)
    assert np.allclose(ad.ops.gelu(x, approximate="tanh"), form, rtol=1e-12, atol=0)
    assert np.allclose(ad.vmap(ad.grad(ad.ops.gelu))(x), slopes, rtol=1e-13, atol=0)
    assert gap == pytest.approx(0.0004732355, rel=1e-5)


def test_gelu_refuses_an_unknown_approximation():
    with pytest.raises(ValueError, match="approximate='erf' is not 'none' or 'tanh'"):
        ad.ops.gelu(np.float64(1.0), approximate="erf")


def test_smooth_functions_with_kinked_pieces_at_zero():
    # jax-ml/jax#2107: conventions of max and abs at 0 must not add up to a wrong slope
    assert derivative(ad.ops.softplus, 0.0) == 0.5
    assert derivative(ad.ops.softplus, 0.0, 2) == 0.25
    assert derivative(np.arcsinh, 0.0) == 1.0
    assert derivative(lambda x: np.logaddexp(x, 0.0), 0.0) == 0.5
    assert derivative(lambda x: np.logaddexp(x, 0.0), 0.0, 2) == 0.25
    assert derivative(np.tanh, 0.0, 3) == -2.0


def test_softplus_with_a_scale_does_not_overflow():
    # jeshraghian/snntorch#433
    x = np.array([20.0, 50.0, 100.0], np.float32)

    assert np.array_equal(ad.ops.softplus(x, beta=5.0), x)
    slopes = ad.vmap(ad.grad(lambda v: ad.ops.softplus(v, beta=5.0)))(x)
    assert np.array_equal(slopes, np.ones(3, np.float32))


@pytest.mark.parametrize("function", [np.arcsinh, np.arccosh])
def test_inverse_hyperbolic_slopes_at_large_arguments(function):
    # jax-ml/jax#40634: x * x overflows float32 above 1.8e19
    assert ad.grad(function)(np.float32(1e22)) == near(1e-22, rel=1e-6)
    assert derivative(function, 1e200) == near(1e-200, rel=1e-14)
    assert derivative(function, 1e100, 2) == near(-1e-200, rel=1e-13)


def test_division_by_large_and_tiny_denominators():
    grad = ad.grad(lambda y: 1.0 / y)

    assert grad(np.float32(2e18)) == near(-2.5e-37, rel=1e-6)
    assert ad.grad(lambda y: np.float32(1e20) / y)(np.float32(1e20)) == near(-1e-20, rel=1e-6)
    assert ad.grad(lambda y: 1e-20 / y)(1e-200) == near(-1e-20 / 1e-200 / 1e-200)


def test_hypot_and_atan2_do_not_overflow():
    assert ad.grad(np.hypot, (0, 1))(3e200, 4e200) == near((0.6, 0.8))
    assert ad.grad(np.hypot, (0, 1))(3e-200, 4e-200) == near((0.6, 0.8))
    assert ad.grad(np.arctan2, (0, 1))(3e200, 4e200) == near((1.6e-201, -1.2e-201))
    assert ad.grad(lambda y: np.angle(4e200 + 1j * y))(3e200) == near(1.6e-201)
    assert ad.grad(np.hypot, (0, 1))(0.0, 0.0) == (0.0, 0.0)


def test_log1p_slope_next_to_its_pole():
    x = np.nextafter(-1.0, 0.0)
    assert derivative(np.log1p, x) == 2.0**53


def test_tangent_and_tanh_far_from_the_real_axis():
    # 1 + tan ** 2 cancels to 0 there
    z = 0.3 + 20j
    _, slope = ad.jvp(np.tan, (z,), (1.0 + 0j,))
    with mp.workdps(50):
        want = complex(mp.sec(mp.mpc(0.3, 20)) ** 2)
    assert abs(complex(slope) - want) < 1e-13 * abs(want)


# --- quotients with a removable singularity --------------------------------------------------

NEAR = [1e-300, 1e-8, -1e-8, 1e-5, -1e-3, 0.03, -0.2, 0.5, -1.0, 1.0, 3.0, -7.5, 12.5, -25.0]


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_exprel_and_its_derivatives_near_zero(order):
    got = [derivative(ad.ops.exprel, x, order) if order else float(ad.ops.exprel(x)) for x in NEAR]
    with mp.workdps(60):
        want = [mp.quad(lambda s, x=x: s**order * mp.exp(mp.mpf(x) * s), [0, 1]) for x in NEAR]

    assert worst(got, want) < 1e-13
    assert derivative(ad.ops.exprel, 0.0, 2) == pytest.approx(1 / 3, rel=1e-15)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_sinc_and_its_derivatives_near_zero(order):
    points = [1e-8, -1e-5, 1e-3, 0.03, -0.2, 0.4, 0.55]
    got = [derivative(np.sinc, x, order) if order else float(ad.ops.sinc(x)) for x in points]

    def term(s, x):
        return (mp.pi * s) ** order * mp.cos(mp.pi * mp.mpf(x) * s + order * mp.pi / 2)

    with mp.workdps(60):
        want = [mp.quad(lambda s, x=x: term(s, x), [0, 1]) for x in points]

    assert worst(got, want) < 1e-13
    assert derivative(np.sinc, 0.0, 2) == pytest.approx(-(np.pi**2) / 3, rel=1e-15)
    assert derivative(np.sinc, 0.0, 1) == 0.0
    assert derivative(np.sinc, 1e-300, 1) == near(-(np.pi**2) / 3 * 1e-300)


def test_sinc_far_out():
    points = [2.5, -7.25, 20.0, 40.125]
    got = [derivative(np.sinc, x, 2) for x in points]
    with mp.workdps(40):
        want = [mp.diff(mp.sincpi, mp.mpf(x), 2) for x in points]

    assert np.allclose(got, [float(w) for w in want], rtol=1e-13, atol=1e-15)


# --- powers --------------------------------------------------------------------------------------


def test_power_slopes_at_base_zero():
    # pytorch/pytorch#27134, EnzymeAD/Enzyme#2855
    table = {2.0: 0.0, 1.875: 0.0, 1.0: 1.0, 0.5: INF, 0.0: 0.0, -1.0: -INF}
    for exponent, slope in table.items():
        assert ad.grad(lambda a, e=exponent: a**e)(0.0) == slope
        assert ad.grad(np.power)(0.0, exponent) == slope
    assert np.allclose(
        ad.grad(lambda b: np.sum(np.power([0.0, 2.0], b)))(np.ones(2)), [0, 2 * np.log(2)]
    )


@pytest.mark.parametrize("base", [-2.0, -0.5, 0.0, 1.5])
def test_integer_powers_at_any_base_and_order(base):
    coefficients = [(4, 3), (12, 2), (24, 1), (24, 0)]
    for order, (factor, power) in enumerate(coefficients, 1):
        assert derivative(lambda x: x**4, base, order) == pytest.approx(factor * base**power)
        assert derivative(lambda x: x**4.0, base, order) == pytest.approx(factor * base**power)
    assert derivative(lambda x: x**2, base, 2) == 2.0
    assert derivative(lambda x: x**4, base, 5) == 0.0


def test_negative_base_gives_no_nan():
    slope, in_exponent = ad.grad(np.power, (0, 1))(-2.0, 3.0)
    assert (slope, in_exponent) == (12.0, 0.0)
    assert ad.grad(lambda x: x**0.0)(-2.0) == 0.0
    _, dot = ad.jvp(lambda x: x**3, (-2.0,), (1.0,))
    assert dot == 12.0


def test_mixed_second_derivative_of_power_at_exponent_zero():
    # d2/dx dy of x ** y = x ** (y - 1) (1 + y log x)
    hessian = ad.hessian(lambda v: v[0] ** v[1])(np.array([2.0, 0.0]))
    assert np.allclose(hessian, [[0, 0.5], [0.5, np.log(2.0) ** 2]])


# --- safe selection ------------------------------------------------------------------------------


def test_unselected_branches_do_not_poison():
    # HIPS/autograd#802, jax-ml/jax#347, tensorflow/tensorflow#2540
    functions = [
        (lambda x: np.where(x >= 0, x, np.sqrt(-x)), 1.0),
        (lambda x: np.where(x < 1, x, np.sqrt(x)), 0.0),
        (lambda x: np.where(x >= 0, x, np.log(-x)), 1.0),
        (lambda x: np.where(x > 0, x, 1 / x), 0.5),
    ]
    for f, x in functions:
        assert ad.grad(f)(x) == 1.0
        assert ad.jvp(f, (x,), (1.0,))[1] == 1.0
        assert derivative(f, x, 2) == 0.0


def test_xlogy_slope_in_x_at_zero():
    # pytorch/pytorch#80770
    from scipy.special import xlog1py, xlogy

    assert ad.grad(xlogy, (0, 1))(0.0, 2.0) == pytest.approx((np.log(2.0), 0.0))
    assert ad.grad(xlog1py, (0, 1))(0.0, 1.0) == pytest.approx((np.log(2.0), 0.0))
    assert ad.grad(xlogy, (0, 1))(0.0, 0.0) == (-INF, 0.0)


def test_logaddexp_of_equal_infinities():
    for value in (-INF, INF):
        assert ad.grad(np.logaddexp, (0, 1))(value, value) == (0.5, 0.5)
    hessian = ad.hessian(lambda v: np.logaddexp(v[0], v[1]))(np.array([-INF, -INF]))
    assert np.all(np.isfinite(hessian))


def test_ties_conserve_the_total():
    # pytorch/pytorch#76522
    x, low, high = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]), np.full(5, -1.0), np.full(5, 1.0)
    spellings = [
        lambda x, lo, hi: np.sum(np.clip(x, lo, hi)),
        lambda x, lo, hi: np.sum(np.minimum(np.maximum(x, lo), hi)),
    ]
    for f in spellings:
        slopes = np.array(ad.grad(f, (0, 1, 2))(x, low, high))
        assert np.array_equal(slopes[0], [0, 0.5, 1, 0.5, 0])
        assert np.array_equal(slopes.sum(axis=0), np.ones(5))


def test_nan_propagates_through_extrema_and_rectifiers():
    for f in (lambda x: np.maximum(x, 0.0), lambda x: np.minimum(0.0, x), ad.ops.relu, ad.ops.elu):
        assert np.isnan(f(np.float64(NAN)))
    assert np.isnan(ad.grad(lambda x: np.maximum(x, 0.0))(NAN))
    assert np.fmax(NAN, 1.0) == ad.ops.fmax(NAN, 1.0) == 1.0
    assert ad.grad(ad.ops.fmin, (0, 1))(NAN, 2.0) == (0.0, 1.0)


def test_remainder_uses_the_true_quotient():
    # 1 = 9 * 0.1 + rest in float64 although 1 / 0.1 == 10
    assert ad.grad(np.remainder, 1)(1.0, 0.1) == -9.0
    assert ad.grad(np.fmod, (0, 1))(-7.0, 3.0) == (1.0, 2.0)
    assert ad.grad(np.remainder, (0, 1))(-7.0, 3.0) == (1.0, 3.0)


# --- complex -------------------------------------------------------------------------------------


def test_two_spellings_of_the_modulus_agree():
    # jax-ml/jax#979
    z = np.complex128(1 + 0.5j)
    spellings: list[Any] = [
        np.abs,
        lambda z: np.hypot(z.real, z.imag),
        lambda z: np.sqrt(np.real(z * np.conj(z))),
    ]
    for f in spellings:
        assert complex(ad.grad(f)(z)) == pytest.approx(0.8944271909999159 - 0.4472135954999579j)
        along = [float(ad.jvp(f, (z,), (d,))[1]) for d in (1 + 0j, 1j)]
        assert along == pytest.approx([0.8944271909999159, 0.4472135954999579])
    assert complex(ad.grad(lambda z: z.real**2 + z.imag**2)(3 + 4j)) == 6 - 8j


def test_cast_and_parts_pair_without_conjugation():
    rng = np.random.default_rng(1)
    z = rng.normal(size=3) + 1j * rng.normal(size=3)
    u = rng.normal(size=3) + 1j * rng.normal(size=3)
    v = rng.normal(size=3) + 1j * rng.normal(size=3)
    f = lambda z: np.conj(z) * np.angle(z) + 1j * z.real + np.abs(z) * np.sign(z)  # noqa: E731
    _, dot = ad.jvp(f, (z,), (v,))
    (pulled,) = ad.vjp(f, z)[1](u)

    assert np.sum(u * dot).real == pytest.approx(np.sum(pulled * v).real, rel=1e-13)


# --- errors --------------------------------------------------------------------------------------


def test_errors_name_the_op_the_operands_and_a_fix():
    with pytest.raises(ShapeError, match=r"(?s)HYPOT.*complex128.*in op HYPOT.*astype"):
        ad.ops.hypot(np.complex128(1), np.complex128(1))
    with pytest.raises(
        ShapeError, match=r"(?s)ADD operands do not broadcast: \(2,\), \(3,\).*in op ADD"
    ):
        ad.ops.add(np.ones(2), np.ones(3))
    with pytest.raises(ShapeError, match=r"(?s)CLAMP is not defined for complex128.*in op CLAMP"):
        ad.ops.clamp(np.complex128(1), 0, 1)
    with pytest.raises(ShapeError, match=r"(?s)FLOOR is not defined for complex128.*in op FLOOR"):
        ad.ops.floor(np.complex128(1))
    with pytest.raises(TypeError, match=r"exp\(\) takes 1 arrays, got 2"):
        ad.ops.exp(1.0, 2.0)
