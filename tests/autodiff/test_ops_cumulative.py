"""Cumulative functions: zeros among factors, all pairs of modes, ties, prefixes."""

from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("x", "gradient"),
    [
        ([0.0, 2.0, 3.0], [9.0, 0.0, 0.0]),
        ([2.0, 3.0, 0.0], [4.0, 2.0, 6.0]),
        ([2.0, 0.0, 0.0, 3.0], [1.0, 2.0, 0.0, 0.0]),
        ([2.0, 0.0, 3.0, 4.0], [1.0, 32.0, 0.0, 0.0]),
    ],
)
def test_cumulative_products_with_zeros(x: list[float], gradient: list[float]):
    # tensorflow/tensorflow#119430, pymc-devs/pytensor#1911
    got = ad.grad(lambda v: np.sum(ops.cumprod(v)))(np.asarray(x))
    np.testing.assert_array_equal(got, gradient)
    by_columns = ad.jacfwd(lambda v: np.sum(ops.cumprod(v)))(np.asarray(x))
    np.testing.assert_array_equal(by_columns, gradient)


W = np.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def weighted(t: Any) -> Any:
    rows = np.stack([np.stack([t, t + 1, 2 - t]), np.stack([t - 1, 2 * t + 1, t + 3])])
    return np.sum(W * ops.cumprod(rows, axis=1))


def derivative(f: Any, mode: str) -> Any:
    if mode == "reverse":
        return ad.grad(f)
    return lambda t: ad.jvp(f, (t,), (np.ones(()),))[1]


@pytest.mark.parametrize("outer", ["forward", "reverse"])
@pytest.mark.parametrize("inner", ["forward", "reverse"])
def test_second_derivative_in_every_pair_of_modes(outer: str, inner: str):
    # pytorch/pytorch#196701: 68 by nested forward mode
    t = np.asarray(1.0)
    assert weighted(t) == 11
    first = derivative(weighted, inner)
    assert first(t) == 101
    assert derivative(first, outer)(t) == 144


def test_jacobian_of_cumprod():
    x = np.asarray([2.0, 0.0, 3.0, -1.0, 0.5])
    got = ad.jacrev(ops.cumprod)(x)
    want = [
        [np.prod(np.delete(x[: i + 1], j)) if j <= i else 0.0 for j in range(5)] for i in range(5)
    ]
    np.testing.assert_allclose(got, want, atol=0)


def test_cumsum_from_either_end():
    x = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_array_equal(ops.cumsum(x, 1), np.cumsum(x, 1))
    np.testing.assert_array_equal(ops.cumsum(x, 0, reverse=True), np.cumsum(x[::-1], 0)[::-1])
    ct = np.random.default_rng(1).normal(size=(3, 4))
    (g,) = ad.vjp(lambda v: ops.cumsum(v, 1), x)[1](ct)
    np.testing.assert_allclose(g, np.cumsum(ct[:, ::-1], 1)[:, ::-1], rtol=1e-14)
    assert ops.cumsum(np.ones(3, np.bool_)).dtype == np.int64


@pytest.mark.parametrize(("f", "sign"), [(ops.cummax, 1.0), (ops.cummin, -1.0)])
def test_running_extrema(f: Any, sign: float):
    x = np.random.default_rng(2).integers(-2, 3, size=(6, 7)).astype(float)
    accumulate = np.maximum.accumulate if sign > 0 else np.minimum.accumulate
    np.testing.assert_array_equal(f(x, 1), accumulate(x, 1))
    ct = np.random.default_rng(3).normal(size=x.shape)
    (g,) = ad.vjp(lambda v: f(v, 1), x)[1](ct)
    want = np.zeros_like(x)
    for i in range(6):
        for j in range(7):
            first = int(np.argmax(sign * x[i, : j + 1]))
            want[i, first] += ct[i, j]
    np.testing.assert_allclose(g, want, atol=1e-15)
    np.testing.assert_array_equal(f(np.asarray([1.0, NAN, 9.0, -9.0])), [1.0, NAN, NAN, NAN])


def test_cumlogsumexp_of_every_prefix():
    x = np.asarray([-50.0, 2.0, -INF, 40.0, 39.0, -700.0])
    want = [ops.logsumexp(x[: i + 1]) for i in range(6)]
    np.testing.assert_allclose(ops.cumlogsumexp(x), want, rtol=1e-15)
    y = x[[0, 1, 3, 4]]
    jac = ad.jacrev(ops.cumlogsumexp)(y)
    for i in range(4):
        np.testing.assert_allclose(jac[i, : i + 1], ops.softmax(y[: i + 1]), rtol=1e-13)


def test_equation_count_grows_with_the_logarithm():
    def equations(f: Any, n: int) -> int:
        return len(ad.trace(ad.grad(lambda v: np.sum(f(v))), np.ones(n)).equations)

    for f in (ops.cumprod, ops.cummax, ops.cumlogsumexp):
        assert equations(f, 1024) <= 2.5 * equations(f, 32)
