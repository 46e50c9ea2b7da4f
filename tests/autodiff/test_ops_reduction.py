"""Reductions: ties, zeros, no elements, rounding, conventions and error texts."""

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError

INF, NAN = float("inf"), float("nan")

# --- sums and means --------------------------------------------------------------------------


def test_interpreter_sums_are_exact_then_rounded_once():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(1 << 14, 2)).astype(np.float32)
    program = ad.trace(lambda v: ops.sum(v, 0), x)
    got = ad.interpret(program, x, precision="float32")
    np.testing.assert_array_equal(got, np.sum(x.astype(np.float64), 0).astype(np.float32))


def test_wide_sums_are_rounded_once():
    pytest.importorskip("jax")
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(size=(3, 5, 400)) * 1e6, rng.normal(size=(3, 5, 400))], -1)
    x = x.astype(np.float32)
    for axis in ((2,), (0,), (0, 2), (1, 2)):
        want = np.sum(x.astype(np.float64), axis)
        f = functools.partial(ops.wide_sum, axis=axis)
        for y in (f(x), ad.compile(f)(x)):
            np.testing.assert_array_equal(y, want.astype(np.float32), strict=True)
        y = np.asarray(ad.lower_jax(ad.trace(f, x))(x))
        assert y.dtype == np.float32
        assert np.all(np.abs(y - want) <= 1e-7 * (np.max(np.abs(x)) + np.abs(want)))
    assert ops.wide_sum(np.ones(3, ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16
    huge = np.asarray([3e38, -3e38, 1.0], np.float32)  # no room to cut
    assert np.asarray(ad.lower_jax(ad.trace(ops.wide_sum, huge))(huge)) in (0.0, 1.0)


def test_mean_of_float16_does_not_overflow():
    x = np.full(4096, 60.0, np.float16)
    assert ops.mean(x) == 60 and ops.mean(x).dtype == np.float16
    y = np.full(4096, 1.0, ml_dtypes.bfloat16)
    assert ops.mean(y) == 1 and ops.mean(y).dtype == ml_dtypes.bfloat16


def test_nothing_to_reduce():
    empty = np.zeros((2, 0))
    np.testing.assert_array_equal(ops.sum(empty, 1), [0, 0])
    np.testing.assert_array_equal(ops.prod(empty, 1), [1, 1])
    assert np.all(np.isnan(ops.mean(empty, 1)))
    assert bool(ops.all(empty)) and not bool(ops.any(empty))
    assert ad.grad(lambda v: ops.prod(v))(np.zeros(0)).shape == (0,)


def test_small_integers_and_bools_are_summed_wide():
    assert ops.sum(np.full(300, 100, np.int8)) == 30000
    assert ops.sum(np.ones(3, np.bool_)).dtype == np.int64
    assert ops.prod(np.asarray([100, 100], np.uint8)).dtype == np.uint64
    assert ops.mean(np.asarray([1, 2], np.int32)).dtype == np.float64


# --- extrema ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_ties_share_the_cotangent_and_conserve_it(sign: float):
    # pytorch/pytorch#76522
    extremum = ops.max if sign > 0 else ops.min
    v = sign * np.asarray([[3.0, 1.0, 3.0], [2.0, 2.0, 2.0]])
    ct = np.asarray([1.5, -4.0])
    (g,) = ad.vjp(lambda x: extremum(x, 1), v)[1](ct)
    np.testing.assert_allclose(g, [[0.75, 0.0, 0.75], [-4 / 3] * 3], rtol=1e-15)
    np.testing.assert_allclose(g.sum(1), ct)
    t = np.random.default_rng(1).normal(size=v.shape)
    _, dot = ad.jvp(lambda x: extremum(x, 1), (v,), (t,))
    np.testing.assert_allclose(np.sum(ct * dot), np.sum(g * t))


def test_nan_propagates_through_extrema():
    x = np.asarray([1.0, NAN, 3.0])
    assert np.isnan(ops.max(x)) and np.isnan(ops.min(x))
    assert ops.argmax(x) == 1 and ops.argmin(x) == 1
    np.testing.assert_array_equal(ops.argmax_mask(x), [False, True, False])
    y = np.asarray([NAN, 3.0, NAN, 4.0])
    (g,) = ad.vjp(ops.max, y)[1](np.asarray(3.0))
    np.testing.assert_array_equal(g, [1.5, 0.0, 1.5, 0.0])
    assert ad.jvp(ops.max, (y,), (np.asarray([1.0, 7.0, 2.0, 7.0]),))[1] == 1.5


def test_extrema_of_no_elements():
    with pytest.raises(ShapeError) as caught:
        ops.max(np.zeros((2, 0)), axis=1)
    assert str(caught.value).splitlines() == [
        "MAX of no elements has no value",
        "in op MAX, operand float64[2,0], axis (1,)",
        "pass initial= to the NumPy function, or keep the axis non-empty",
    ]
    with pytest.raises(ShapeError, match=r"ARGMIN of no elements has no value"):
        ops.argmin(np.zeros(0))
    assert ops.max(np.zeros((0, 3)), axis=1).shape == (0,)


def test_argmax_mask_takes_the_first_of_ties_over_several_axes():
    x = np.asarray([[[1.0, 5.0], [5.0, 2.0]], [[0.0, -1.0], [-2.0, 0.0]]])
    want = np.zeros(x.shape, bool)
    want[0, 0, 1] = want[1, 0, 0] = True
    np.testing.assert_array_equal(ops.argmax_mask(x, (1, 2)), want)
    assert np.sum(ops.argmax_mask(x, None)) == 1


# --- products --------------------------------------------------------------------------------

ZEROS = ([0.0, 2.0, 3.0], [2.0, 3.0, 0.0], [2.0, 0.0, 0.0, 3.0], [0.0] * 4, [2.0, 3.0, 5.0], [7.0])


def without(x: list[float], *skip: int) -> float:
    return float(np.prod([v for i, v in enumerate(x) if i not in skip]))


@pytest.mark.parametrize("x", ZEROS, ids=str)
def test_product_derivatives_with_zeros(x: list[float]):
    # tensorflow/tensorflow#119430, tinygrad/tinygrad#17404
    n, at = len(x), np.asarray(x)
    np.testing.assert_array_equal(ad.grad(ops.prod)(at), [without(x, i) for i in range(n)])
    second = [[0.0 if i == j else without(x, i, j) for j in range(n)] for i in range(n)]
    np.testing.assert_array_equal(ad.hessian(ops.prod)(at), second)
    for outer in (ad.jacfwd, ad.jacrev):
        for inner in (ad.jacfwd, ad.jacrev):
            np.testing.assert_array_equal(outer(inner(ops.prod))(at), second)


def test_third_derivative_of_a_product():
    x = np.asarray([0.0, 0.0, 0.0, 2.0])
    third = ad.jacfwd(ad.hessian(ops.prod))(x)
    assert third[0, 1, 2] == 2.0 and third[0, 1, 3] == 0.0 and third[0, 0, 1] == 0.0


def test_number_of_equations_grows_with_the_logarithm():
    def equations(n: int) -> int:
        return len(ad.trace(ad.grad(ops.prod), np.ones(n)).equations)

    assert equations(1024) <= 2.2 * equations(32)


# --- batching and arguments ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "argmax", "argmax_mask"])
def test_batching_shifts_axes(name: str):
    x = np.random.default_rng(2).normal(size=(4, 2, 3))
    f = getattr(ops, name)
    for axis in (0, -1):
        got: Any = ad.vmap(lambda v, a=axis: f(v, a))(x)
        np.testing.assert_allclose(got, np.stack([f(v, axis) for v in x]), rtol=1e-14)


def test_error_texts():
    with pytest.raises(ShapeError, match=r"axis 2 is out of bounds for 2 axes\nin op SUM"):
        ops.sum(np.ones((2, 2)), axis=2)
    with pytest.raises(ShapeError, match=r"axes \(0, -2\) repeat an axis\nin op MEAN"):
        ops.mean(np.ones((2, 2)), axis=(0, -2))
    with pytest.raises(ShapeError) as caught:
        ops.argmax(np.ones(2) * 1j)
    assert str(caught.value).splitlines() == [
        "ARGMAX is not defined for complex128",
        "in op ARGMAX, operand complex128[2]",
        "complex numbers have no order: compare np.abs or np.real",
    ]


def test_infinite_factor_of_a_branch_that_is_not_selected():
    c = np.asarray([1.0, np.inf])
    for f in (lambda x: np.where(x > 0, x, c * x), lambda x: np.where(x > 0, x, x * c)):
        g = ad.grad(lambda x, f=f: np.sum(f(x)))(np.ones(2))
        np.testing.assert_array_equal(g, [1.0, 1.0])
