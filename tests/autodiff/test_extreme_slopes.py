"""First and second derivatives at arguments whose squares leave the range."""

import mpmath as mp
import numpy as np
import pytest

import autodiff as ad

ONE = np.float64(1.0)


def slopes(f, x):
    """The first derivative in both modes, the second by all four compositions."""
    gradient = ad.grad(f)

    def along(y):
        return ad.jvp(f, (y,), (ONE,))[1]

    first = (gradient(x), along(x))
    second = (
        ad.jvp(gradient, (x,), (ONE,))[1],
        ad.grad(gradient)(x),
        ad.grad(along)(x),
        ad.jvp(along, (x,), (ONE,))[1],
    )
    return first, second


# function -> its first and second derivative, exactly
FUNCTIONS = {
    "atan": (np.arctan, lambda x: 1 / (1 + x * x), lambda x: -2 * x / (1 + x * x) ** 2),
    "asinh": (np.arcsinh, lambda x: (1 + x * x) ** -0.5, lambda x: -x * (1 + x * x) ** -1.5),
    "acosh": (np.arccosh, lambda x: (x * x - 1) ** -0.5, lambda x: -x * (x * x - 1) ** -1.5),
    "asin": (np.arcsin, lambda x: (1 - x * x) ** -0.5, lambda x: x * (1 - x * x) ** -1.5),
    "acos": (np.arccos, lambda x: -((1 - x * x) ** -0.5), lambda x: -x * (1 - x * x) ** -1.5),
    "atanh": (np.arctanh, lambda x: 1 / (1 - x * x), lambda x: 2 * x / (1 - x * x) ** 2),
    "log1p": (np.log1p, lambda x: 1 / (1 + x), lambda x: -((1 + x) ** -2)),
    "log2": (np.log2, lambda x: 1 / x / mp.log(2), lambda x: -(x**-2) / mp.log(2)),
    "rsqrt": (ad.ops.rsqrt, lambda x: -(x**-1.5) / 2, lambda x: 0.75 * x**-2.5),
    "cbrt": (np.cbrt, lambda x: mp.cbrt(x) / (3 * x), lambda x: -2 * mp.cbrt(x) / (9 * x * x)),
    "reciprocal": (np.reciprocal, lambda x: -(x**-2), lambda x: 2 * x**-3),
    "hypot": (
        lambda x: np.hypot(x, 1.0),
        lambda x: x * (1 + x * x) ** -0.5,
        lambda x: (1 + x * x) ** -1.5,
    ),
    "atan2": (
        lambda x: np.arctan2(1.0, x),
        lambda x: -1 / (1 + x * x),
        lambda x: 2 * x / (1 + x * x) ** 2,
    ),
}
HUGE = (1e154, 1e155, 1e160, 1e200, 1e300, 1e308)
TINY = (1e-155, 1e-160, 1e-200, 1e-300)
OUTSIDE = {"asin": HUGE, "acos": HUGE, "atanh": HUGE, "acosh": TINY, "rsqrt": TINY[1:]}
# curvature of either sign cancels there, or overflows
OUTSIDE |= {"log2": TINY, "cbrt": TINY, "reciprocal": TINY}
CASES = [
    (name, x)
    for name in FUNCTIONS
    for x in (*HUGE, *TINY)
    if x not in OUTSIDE.get(name, ()) and not (name == "hypot" and x in HUGE)
]


@pytest.mark.parametrize(("name", "x"), CASES, ids=lambda v: str(v))
def test_slopes_are_right_where_squares_overflow_or_underflow(name, x):
    function, first, second = FUNCTIONS[name]
    got = slopes(function, np.float64(x))
    with mp.workdps(700):
        want = [float(f(mp.mpf(x))) for f in (first, second)]
    for values, exact in zip(got, want, strict=True):
        # results that underflow may lose digits
        np.testing.assert_allclose(values, exact, rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize("x", [1e155, 1e160, 1e300, 1e308])
@pytest.mark.parametrize(
    ("function", "first"),
    [
        (ad.ops.silu, (0.0, 1.0)),
        (ad.ops.gelu, (0.0, 1.0)),
        (lambda x: ad.ops.gelu(x, approximate="tanh"), (0.0, 1.0)),
        (ad.ops.softplus, (0.0, 1.0)),
        (ad.ops.bessel_i0e, (0.0, 0.0)),
        (ad.ops.bessel_i1e, (0.0, 0.0)),
        (lambda x: np.arctan(x), (0.0, 0.0)),
    ],
    ids=["silu", "gelu", "gelu_tanh", "softplus", "i0e", "i1e", "atan"],
)
def test_flat_tails_have_slopes_of_their_limit(function, first, x):
    for sign, slope in zip((-1.0, 1.0), first, strict=True):
        got = slopes(function, np.float64(sign * x))
        np.testing.assert_allclose(got[0], slope, atol=1e-150)
        np.testing.assert_allclose(got[1], 0.0, atol=1e-90)


@pytest.mark.parametrize("x", [-30.0, -1e3, -1e8, -1e19, -1e160, -1e300])
def test_the_hazard_of_the_normal_tail_neither_cancels_nor_overflows(x):
    first, second = slopes(ad.ops.log_ndtr, np.float64(x))
    u = mp.mpf(-x)
    with mp.workdps(60):
        rest = mp.mpf(0)
        for k in range(60, 0, -1):
            rest = k / (u + rest)
        hazard = u + rest
        curvature = -hazard * rest  # -h (h + x), without the cancellation
    np.testing.assert_allclose(first, float(hazard), rtol=1e-15)
    np.testing.assert_allclose(second, float(curvature), rtol=1e-14)


@pytest.mark.parametrize("x", [1e20, 1e30, 3e38, 1e-20, 1e-30])
@pytest.mark.parametrize("name", ["atan", "asinh", "atan2"])
def test_float32_slopes_are_right_where_squares_overflow(name, x):
    function, first, second = FUNCTIONS[name]
    x = np.float32(x)
    gradient = ad.grad(function)
    with mp.workdps(200):
        want = [float(np.float32(float(f(mp.mpf(float(x)))))) for f in (first, second)]
    for f, exact in zip((gradient, ad.grad(gradient)), want, strict=True):
        got = ad.interpret(ad.trace(f, x), x, precision="float32")
        np.testing.assert_allclose(got, exact, rtol=1e-6, atol=1e-37)


def test_a_logit_next_to_0_has_curvature_of_minus_infinity():
    _, second = slopes(ad.ops.logit, np.float64(1e-160))
    assert all(v == -np.inf for v in second)
