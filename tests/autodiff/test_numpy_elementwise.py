"""NumPy's and scipy.special's elementwise functions mean the same on traced values."""

from typing import Any

import numpy as np
import pytest
import scipy.special as sp

import autodiff as ad
from autodiff import numpy_api
from autodiff.errors import TracerError

numpy_api._fill_tables()
RNG = np.random.default_rng(5)
X = RNG.uniform(0.1, 0.9, (2, 3))
INTEGERS = RNG.integers(1, 6, (2, 3))
BOOLS = np.array([[True, False, True], [False, False, True]])
COMPLEX = X + 1j * RNG.uniform(-1, 1, (2, 3))
# domains that (0.1, 0.9) is outside of, and integer orders
OPERANDS = {
    np.arccosh: (1 + X,),
    np.ldexp: (X, INTEGERS),
    np.invert: (INTEGERS,),
    np.bitwise_and: (INTEGERS, INTEGERS[::-1]),
    np.bitwise_or: (INTEGERS, INTEGERS[::-1]),
    np.bitwise_xor: (INTEGERS, INTEGERS[::-1]),
    sp.iv: (2, X),
    np.left_shift: (INTEGERS, np.abs(INTEGERS) % 5),
    np.right_shift: (INTEGERS, np.abs(INTEGERS) % 5),
    **{
        getattr(sp, f"eval_{name}"): (3, X)
        for name in ("legendre", "chebyt", "chebyu", "hermite", "hermitenorm", "laguerre")
    },
    sp.ive: (0, X),
    sp.jv: (-3, X),
    sp._ufuncs._zeta: (1 + X, X),
    sp._ufuncs._riemann_zeta: (1 + X,),
}
ELEMENTWISE = [f for f in numpy_api.UFUNCS if isinstance(f, np.ufunc) and f.signature is None]


def through_trace(f, *args):
    """The result of a function run on traced values, from the program it leaves."""
    return ad.interpret(ad.trace(f, *args), *args)


def same(got, want, exact=False):
    for g, w in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, want)), strict=True):
        g, w = np.asarray(g), np.asarray(w)
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        if exact or w.dtype.kind in "biu":
            assert np.array_equal(g, w, equal_nan=True)
        else:
            assert np.allclose(g, w, rtol=1e-13, atol=1e-15, equal_nan=True)


def name_of(ufunc):
    return (
        ufunc.__name__
        if hasattr(np, ufunc.__name__) and getattr(np, ufunc.__name__) is ufunc
        else f"sp.{ufunc.__name__}"
    )


@pytest.mark.parametrize("ufunc", ELEMENTWISE, ids=name_of)
def test_every_ufunc_of_the_table_gives_numpys_values(ufunc):
    args = OPERANDS.get(ufunc, (X, X[::-1] + 0.05, X[:, ::-1])[: ufunc.nin])
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    fixed = args[: len(args) - len(arrays)]

    same(through_trace(lambda *v: ufunc(*fixed, *v), *arrays), ufunc(*args))


@pytest.mark.parametrize(
    "name",
    "add multiply power maximum negative absolute sign square floor ceil trunc remainder "
    "floor_divide fmod less equal sqrt exp true_divide logical_and logical_not isfinite "
    "conjugate".split(),
)
def test_integers_are_promoted_as_numpy_does(name):
    ufunc = getattr(np, name)
    args = (INTEGERS, INTEGERS[::-1])[: ufunc.nin]

    same(through_trace(ufunc, *args), ufunc(*args), exact=ufunc not in (np.exp, np.sqrt))


@pytest.mark.parametrize(
    "name",
    "add multiply true_divide absolute exp log sin tan tanh sqrt square reciprocal power "
    "conjugate sign isnan expm1".split(),
)
def test_complex_values(name):
    ufunc = getattr(np, name)
    args = (COMPLEX, COMPLEX[::-1])[: ufunc.nin]

    same(through_trace(ufunc, *args), ufunc(*args))


ODD = np.array([np.nan, np.inf, -np.inf, 1.5, -2.25])
CALLS: dict[str, tuple[Any, Any]] = {
    "where": (lambda x: np.where(x > 0.5, x, 0), X),
    "clip": (lambda x: np.clip(x, 0.3, None), X),
    "clip_keywords": (lambda x: np.clip(x, max=0.6), X),
    "clip_method": (lambda x: x.clip(0.3, 0.6), X),
    "round": (lambda x: np.round(x, 1), X),
    "round_negative": (lambda x: np.round(100 * x, -1), X),
    "round_method": (lambda x: x.round(), X),
    "fix": (np.fix, 5 * X - 2),
    "sinc": (np.sinc, X),
    "i0": (np.i0, X),
    "angle": (lambda z: np.angle(z, deg=True), COMPLEX),
    "angle_real": (np.angle, X - 0.5),
    "real": (np.real, COMPLEX),
    "real_attribute": (lambda z: z.real - z.imag, COMPLEX),
    "imag_of_real": (np.imag, X),
    "conj_method": (lambda z: z.conj(), COMPLEX),
    "nan_to_num": (np.nan_to_num, ODD),
    "nan_to_num_given": (lambda x: np.nan_to_num(x, nan=1.0, posinf=2.0, neginf=-3.0), ODD),
    "isclose": (lambda x: np.isclose(x, x + np.array([0, 0, 0, 1e-9, 1.0]), equal_nan=True), ODD),
    "isclose_strict": (lambda x: np.isclose(x, x[::-1]), ODD),
    "isposinf": (np.isposinf, ODD),
    "isneginf": (np.isneginf, ODD),
    "isreal": (np.isreal, COMPLEX),
    "iscomplex": (np.iscomplex, COMPLEX),
    "zeros_like": (lambda x: np.zeros_like(x) + x, X),
    "ones_like": (lambda x: np.ones_like(x, dtype=int) + x, X),
    "full_like": (lambda x: np.full_like(x, x[0, 0]), X),
    "full_like_shape": (lambda x: np.full_like(x, 2, shape=(4,)) * x[0, 0], X),
    "astype": (lambda x: x.astype(np.float32), X),
    "astype_function": (lambda x: np.astype(x, np.int32), 5 * X),
    "integers_to_the_2.0": (lambda i: i**2.0, np.array([100], np.int8)),
    "integers_to_the_2": (lambda i: i**2, np.array([9], np.int8)),
    "bools_to_the_2.0": (lambda b: b**2.0, BOOLS),
    "modf_infinite": (lambda x: tuple(map(np.abs, np.modf(x))), ODD),
    "ldexp_wide": (
        lambda x: np.ldexp(x, np.array([2097, -2070, -3000, 3])),
        np.array([5e-324, 2.0**1000, np.inf, 1.5]),
    ),
    "exprel_ends": (sp.exprel, np.array([-np.inf, np.inf, 1e5, np.nan])),
    "rel_entr_extreme": (
        lambda x: sp.rel_entr(x, x[::-1]),
        np.array([1e-310, 1e-300, 1e300, 2.0]),
    ),
    "boxcox_ends": (
        lambda x: sp.boxcox(x, np.array([2.0, 0.5, 0.0, -1.0])),
        np.zeros(4),
    ),
    "boxcox1p_ends": (
        lambda x: sp.boxcox1p(x, np.array([2.0, 0.5, 0.0, -1.0])),
        np.full(4, -1.0),
    ),
    "heaviside": (lambda x: np.heaviside(x, 0.5), np.array([-1.0, 0.0, 2.0, np.nan])),
    "logical_not": (lambda x: ~(x > 0.5), X),
    "mixed_masks": (lambda x: (x > 0.2) & BOOLS | np.logical_xor(BOOLS, x), X),
    "positive": (lambda x: +x, X),
    "divmod": (lambda x: divmod(x, 0.3), X),
    "reflected": (lambda x: 2 - x + 1 / x + 2**x + 7 // x + 7 % x, X),
    "rel_entr": (lambda x: sp.rel_entr(x, np.array([0.5, 1.0, 0.0])), np.array([0.0, 0.5, 0.5])),
    "huber": (lambda x: sp.huber(1.0, x), 3 * X - 1),
    "boxcox_at_0": (lambda x: sp.boxcox(x, np.zeros(3)), X),
    "zeta": (lambda x: sp.zeta(x, 1.5), 1 + X),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_give_numpys_values(name):
    f, x = CALLS[name]

    same(through_trace(f, x), f(x))


def test_float32_stays_float32():
    x, n = np.array([1e-45, 2.0**100], np.float32), np.array([276, -240])
    same(ad.compile(np.ldexp)(x, n), np.ldexp(x, n), exact=True)
    x = np.array([709.0, 3.0, 1e-3], np.float32)
    for f in (sp.rel_entr, sp.kl_div):
        got, want = ad.compile(f)(x, x + 1), f(*map(np.float64, (x, x + 1)))
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=3e-6)


def test_dtypes_are_numpys():
    x, i = np.array([0.5, 2.0], np.float32), np.array([0, 1], np.int8)
    for f in (lambda x, i: np.heaviside(i, x), lambda x, i: np.float_power(x, i)):
        (spec,) = ad.trace(f, x, i).out_specs
        assert spec.dtype == f(x, i).dtype


def test_kl_div_of_near_arguments_does_not_cancel():
    x, d = 3.0, 2.0**-30
    want = 3.0 * d**2 * (0.5 - d / 3)  # x (d - log1p(d))
    got = through_trace(sp.kl_div, x, x * (1 + d))
    np.testing.assert_allclose(got, want, rtol=1e-12)
    np.testing.assert_allclose(ad.grad(sp.kl_div, 1)(x, x * (1 + d)), d, rtol=1e-8)


def test_python_scalars_are_weak():
    for f in (lambda x: x * 2 + 1.5, lambda x: np.where(x > 0.5, x, 0), lambda x: x**2 % 0.1):
        (spec,) = ad.trace(f, X.astype(np.float32)).out_specs
        assert spec.dtype == f(X.astype(np.float32)).dtype == np.float32


def test_dtypes_of_traced_values_are_known():
    seen: list[Any] = []

    def f(x):
        seen.append(np.result_type(x, np.float32))
        seen.append(np.can_cast(x.dtype, np.float32))
        seen.append((np.iscomplexobj(x), np.isrealobj(x), np.common_type(x, X)))
        return x

    ad.trace(f, COMPLEX)
    assert seen == [np.dtype(np.complex128), False, (True, False, np.complex128)]


def test_derivative_of_rel_entr_and_boxcox():
    assert ad.grad(lambda x: sp.rel_entr(x, 0.5))(0.25) == pytest.approx(np.log(0.5) + 1)
    assert ad.grad(sp.rel_entr, 1)(0.0, 0.0) == 0.0
    assert ad.grad(sp.boxcox, 1)(2.0, 0.0) == pytest.approx(np.log(2.0) ** 2 / 2)
    # at the end of the domain x ** (p - 1) and 1 / p ** 2
    assert ad.grad(sp.boxcox)(0.0, 2.0) == 0.0 and ad.grad(sp.boxcox, 1)(0.0, 2.0) == 0.25
    assert ad.grad(sp.boxcox1p)(-1.0, 0.5) == np.inf


def test_order_of_a_bessel_function_must_be_a_fixed_integer():
    with pytest.raises(
        TracerError, match=r"(?s)iv of a traced, array or fractional order.*Python int"
    ):
        ad.grad(lambda x: sp.iv(0.5, x))(1.0)


def test_real_if_close_depends_on_values():
    with pytest.raises(TypeError, match=r"use np\.real"):
        ad.grad(lambda z: np.abs(np.real_if_close(z)))(1 + 1j)
