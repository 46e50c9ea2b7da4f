"""Variance, standard deviation and norms: far from 0, at 0, near overflow and underflow."""

from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError
from tests.autodiff import softmax_reference as exact

INF, NAN = float("inf"), float("nan")

# --- variance --------------------------------------------------------------------------------


@pytest.mark.parametrize("ddof", [0, 1, 2])
def test_against_numpy(ddof: int):
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    for axis in (None, 0, (0, 2)):
        for keepdims in (False, True):
            kwargs: dict[str, Any] = {"axis": axis, "ddof": ddof, "keepdims": keepdims}
            np.testing.assert_allclose(ops.var(x, **kwargs), np.var(x, **kwargs), rtol=1e-13)
            np.testing.assert_allclose(ops.std(x, **kwargs), np.std(x, **kwargs), rtol=1e-13)


def test_variance_of_values_far_from_zero():
    x = (1e4 + np.random.default_rng(1).normal(size=500)).astype(np.float32)
    want = np.var(x.astype(np.float64))
    for f, value in ((ops.var, want), (ops.std, np.sqrt(want))):
        for road, y in exact.roads(f, x).items():
            assert abs(y / value - 1) <= 1e-6, road
    slope = 2 * (x.astype(np.float64) - np.mean(x.astype(np.float64))) / 500
    for road, g in exact.roads(ad.grad(ops.var), x).items():
        assert np.max(np.abs(g - slope)) <= 1e-6 * np.max(np.abs(slope)), road


def test_too_few_values():
    assert np.isnan(ops.var(np.zeros(0))) and np.isnan(ops.std(np.zeros(0)))
    assert np.isnan(ops.var(np.ones(1), ddof=1))
    assert np.isinf(ops.var(np.asarray([1.0, 2.0]), ddof=3))


def test_standard_deviation_of_equal_values():
    # jax-ml/jax#4177, HIPS/autograd#151
    assert ad.grad(lambda v: 3 * ops.std(v))(np.asarray([-0.83])) == 0
    np.testing.assert_array_equal(ad.grad(ops.std)(np.asarray([1.0, 1.0])), [0.0, 0.0])
    np.testing.assert_array_equal(ad.grad(ops.std)(np.full(3, 0.1)), [0.0, 0.0, 0.0])
    # sqrt(var) has no such convention: the root's slope at 0 is infinite
    assert not np.all(np.isfinite(ad.grad(lambda v: np.sqrt(ops.var(v)))(np.ones(2))))


def test_complex_spread():
    z = np.random.default_rng(2).normal(size=(4, 2)) @ np.asarray([1.0, 1j])
    np.testing.assert_allclose(ops.var(z), np.var(z), rtol=1e-14)
    np.testing.assert_allclose(ops.std(z, ddof=1), np.std(z, ddof=1), rtol=1e-14)


def test_spread_near_overflow_and_underflow():
    x = np.asarray([1.0, -2.0, 4.0])
    for scale in (1e200, 1e-200):
        np.testing.assert_allclose(ops.std(scale * x) / scale, np.std(x), rtol=1e-14)
        g = ad.grad(ops.std)(scale * x)
        np.testing.assert_allclose(g, ad.grad(ops.std)(x), rtol=1e-13)


# --- norms -----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [2, 1, 3, 1.5, 0.5, -1, -2.5, INF, -INF, 0])
def test_norms_against_numpy(order: float):
    x = np.random.default_rng(3).normal(size=(3, 5))
    for axis in (0, -1):
        want = np.linalg.norm(x, order, axis=axis, keepdims=True)
        np.testing.assert_allclose(ops.norm(x, order, axis, keepdims=True), want, rtol=1e-13)
    np.testing.assert_allclose(ops.norm(x, order), np.linalg.norm(x.ravel(), order), rtol=1e-13)


@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(1e200, np.float64), (1e-200, np.float64), (1e30, np.float32), (1e-30, np.float32)],
)
@pytest.mark.parametrize("order", [2, 3])
def test_norms_near_overflow_and_underflow(scale: float, dtype: Any, order: float):
    x = np.asarray([3.0, -4.0, 0.0], dtype)
    big = (x * dtype(scale)).astype(dtype)
    value, gradient = ad.value_and_grad(lambda v: ops.norm(v, order))(big)
    base, slope = ad.value_and_grad(lambda v: ops.norm(v, order))(x)
    rtol = 1e-14 if dtype is np.float64 else 1e-6
    np.testing.assert_allclose(value.astype(np.float64) / scale, base, rtol=rtol)
    np.testing.assert_allclose(gradient, slope, rtol=rtol, atol=0)
    hessian = ad.hessian(lambda v: ops.norm(v, order))(big).astype(np.float64) * scale
    np.testing.assert_allclose(
        hessian, ad.hessian(lambda v: ops.norm(v, order))(x), rtol=rtol, atol=1e-7
    )


@pytest.mark.parametrize("order", [2, 3, 1.5, 1, INF])
def test_subgradient_zero_at_the_origin(order: float):
    # jax-ml/jax#4177, pytorch/pytorch#2421, tensorflow/tensorflow#56830
    g = ad.grad(lambda v: 3 * ops.norm(v, order))(np.zeros(2))
    np.testing.assert_array_equal(g, [0.0, 0.0])
    np.testing.assert_array_equal(ad.grad(lambda v: ops.norm(v, order) ** 2)(np.zeros(2)), [0, 0])


def test_second_derivative_through_a_norm_at_the_origin_is_not_a_plausible_number():
    # pytorch/pytorch#92075: the first derivative is right, the second must not be a finite 0
    a = np.asarray([0.3, -1.2, 0.5])

    def kernel(x: Any, y: Any) -> Any:
        return np.exp(-(ops.norm(x - y) ** 2))

    np.testing.assert_array_equal(ad.grad(kernel)(a, a), np.zeros(3))
    assert not np.all(np.isfinite(ad.jacfwd(ad.grad(kernel), argnums=1)(a, a)))
    assert not np.all(np.isfinite(ad.jacrev(ad.grad(kernel), argnums=1)(a, a)))

    def smooth(x: Any, y: Any) -> Any:
        return np.exp(-np.sum((x - y) ** 2))

    np.testing.assert_allclose(ad.jacfwd(ad.grad(smooth), argnums=1)(a, a), 2 * np.eye(3))


def test_norm_scale_is_an_exact_power_of_two():
    x = np.asarray([[3.0, -7.9], [0.0, 0.0], [INF, 1.0], [5e-324, 0.0], [1.7e308, 0.0]])
    scale = ops.norm_scale(x, axis=1)
    np.testing.assert_array_equal(scale[:3, 0], [4.0, 1.0, 1.0])
    np.testing.assert_array_equal(scale[3:, 0], [5e-324, 2.0**1023])


def test_error_texts():
    with pytest.raises(ShapeError) as caught:
        ad.trace(lambda v: ops.var(v, axis=1), np.ones(3))
    assert str(caught.value).startswith("axis 1 is out of bounds for 1 axes\nin op VAR")
    from autodiff.trace import bind

    with pytest.raises(
        ShapeError, match=r"NORM is not defined for ord=1.0\n.*\nuse autodiff.ops.norm"
    ):
        bind("NORM", np.ones(2), axis=(0,), ord=1.0, keepdims=False)


@pytest.mark.parametrize(("shape", "axis"), [((3, 1), 1), ((), None), ((2, 3), ())])
def test_the_deviation_of_one_value_is_zero_with_all_its_derivatives(shape, axis):
    x, w, v = np.random.default_rng(4).normal(size=(3, *shape))

    def f(x):
        return np.sum((w + x) * (1 + ops.std(x, axis=axis, keepdims=axis == 1)) ** 2)

    slope = ad.grad(f)
    np.testing.assert_array_equal(ops.std(x, axis=axis), np.std(x, axis=axis))
    np.testing.assert_allclose(slope(x), np.ones(shape), rtol=1e-15)
    np.testing.assert_array_equal(ad.jvp(slope, (x,), (v,))[1], np.zeros(shape))
    np.testing.assert_array_equal(ad.grad(lambda x: np.sum(v * slope(x)))(x), np.zeros(shape))
