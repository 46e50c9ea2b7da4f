"""NumPy's reductions of traced values: every argument, against NumPy itself."""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff.errors import ShapeError, TracerError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4))
MASK = RNG.random((3, 4)) < 0.6
MASK[:, 0] = True
HOLES = np.where(RNG.random((3, 4)) < 0.25, np.nan, X)
HOLES[0] = X[0]
BOOLS = X > 0
AXES = (None, 0, 1, -1, (0, 1))


def check(f: Callable[..., Any], *args: Any, rtol: float = 1e-13) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = np.asarray(f(*args))
    got = np.asarray(ad.interpret(ad.trace(f, *args), *args))
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-14)


PLAIN = "sum prod max min amax amin mean var std all any ptp count_nonzero median".split()


@pytest.mark.parametrize("name", PLAIN)
def test_axes_and_keepdims(name: str):
    for axis, keepdims in itertools.product(AXES, (False, True)):
        check(lambda x, a=axis, k=keepdims: getattr(np, name)(x, axis=a, keepdims=k), X)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "all", "any"])
def test_where(name: str):
    x = BOOLS if name in ("all", "any") else X
    for axis, keepdims in itertools.product(AXES, (False, True)):
        check(lambda v, a=axis, k=keepdims: getattr(np, name)(v, axis=a, keepdims=k, where=MASK), x)
    check(lambda v: getattr(np, name)(v, axis=0, where=np.asarray([True, False, True, True])), x)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_initial(name: str):
    for axis in AXES:
        check(lambda x, a=axis: getattr(np, name)(x, axis=a, initial=0.3), X)
        check(lambda x, a=axis: getattr(np, name)(x, axis=a, initial=0.3, where=MASK), X)
    check(lambda x: getattr(np, name)(x, axis=1, initial=2.0), np.zeros((2, 0)))


def test_dtypes():
    check(lambda x: np.sum(x, dtype=np.float32), X, rtol=1e-6)
    check(lambda x: np.mean(x, axis=0, dtype=np.float64), X.astype(np.float32))
    check(lambda x: np.sum(x, axis=0), BOOLS)
    check(lambda x: np.max(x, axis=0), BOOLS)
    check(lambda x: np.prod(x.astype(np.int8)), X * 2)
    check(lambda x: np.var(x + 1j * x**2, axis=0) + np.std(x + 1j * x**2, axis=0), X)


@pytest.mark.parametrize("name", "nansum nanprod nanmean nanvar nanstd nanmax nanmin".split())
def test_functions_that_skip_nan(name: str):
    for axis, keepdims in itertools.product(AXES, (False, True)):
        check(lambda x, a=axis, k=keepdims: getattr(np, name)(x, axis=a, keepdims=k), HOLES)
    x = np.asarray([[np.nan, np.nan], [1.0, 2.0]])
    check(lambda v: getattr(np, name)(v, axis=1), x)
    for integers in (np.arange(6).reshape(2, 3), BOOLS):
        check(lambda i: getattr(np, name)(i, axis=0), integers)
    g = ad.grad(lambda v: np.sum(getattr(np, name)(v, axis=1)[1]))(x)
    assert np.all(np.isfinite(g)) and not g[0].any()


def test_spread_arguments():
    check(lambda x: np.var(x, axis=0, ddof=1), X)
    check(lambda x: np.std(x, axis=0, correction=1), X)
    check(lambda x: np.var(x, axis=0, mean=np.mean(x, axis=0, keepdims=True), ddof=1), X)
    check(lambda x: np.std(x, axis=1, where=MASK, ddof=1), X)


def test_averages():
    for axis in (None, 0, 1):
        check(lambda x, a=axis: np.average(x, axis=a, weights=np.abs(x)), X)
        check(lambda x, a=axis: np.average(x, axis=a, returned=True)[1], X)
    check(lambda x: np.average(x, axis=1, weights=np.asarray([1.0, 2, 3, 4])), X)
    with pytest.raises(ShapeError, match=r"weights of shape \(3,\) do not fit \(3, 4\)"):
        ad.trace(lambda x: np.average(x, axis=1, weights=np.ones(3)), X)


def test_quantiles():
    for axis, keepdims in itertools.product(AXES, (False, True)):
        check(lambda x, a=axis, k=keepdims: np.quantile(x, 0.3, axis=a, keepdims=k), X)
        check(lambda x, a=axis, k=keepdims: np.percentile(x, [30, 100.0], axis=a, keepdims=k), X)
        check(lambda x, a=axis, k=keepdims: np.median(x, axis=a, keepdims=k), HOLES)
    g = ad.grad(np.median)(np.asarray([3.0, 1.0, 2.0, 9.0]))
    np.testing.assert_array_equal(g, [0.5, 0, 0.5, 0])
    with pytest.raises(ShapeError, match=r"q is a constant in \[0, 1\] and method one of linear, "):
        ad.trace(lambda x: np.quantile(x, 0.5, method="inverted_cdf"), X)


UFUNCS = (np.add, np.multiply, np.maximum, np.minimum, np.logical_and, np.logical_or)


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda u: u.__name__)
def test_reduce(ufunc: Any):
    for axis, keepdims in itertools.product(AXES, (False, True)):
        check(lambda x, a=axis, k=keepdims: ufunc.reduce(x, axis=a, keepdims=k), X)
    check(lambda x: ufunc.reduce(x), X)


def test_reduce_of_logaddexp():
    for axis in (0, 1, -1):
        check(lambda x, a=axis: np.logaddexp.reduce(x, axis=a), X)
    check(lambda x: np.logaddexp.reduce(x, axis=0, initial=0.5), X)


@pytest.mark.parametrize(
    "ufunc", [np.add, np.multiply, np.maximum, np.minimum, np.logaddexp], ids=lambda u: u.__name__
)
def test_accumulate(ufunc: Any):
    for axis in (0, 1):
        check(lambda x, a=axis: ufunc.accumulate(x, axis=a), X)
    check(lambda x: ufunc.accumulate(x), X)


def test_cumulative_functions():
    for axis in (None, 0, 1):
        check(lambda x, a=axis: np.cumsum(x, axis=a), X)
        check(lambda x, a=axis: np.cumprod(x, axis=a), X)
    for axis in (0, 1):
        check(lambda x, a=axis: np.cumulative_sum(x, axis=a, include_initial=True), X)
        check(lambda x, a=axis: np.cumulative_prod(x, axis=a, include_initial=True), X)
    with pytest.raises(ShapeError, match="needs an axis"):
        ad.trace(lambda x: np.cumulative_sum(x), X)


def test_positions():
    for name, axis in itertools.product(("argmax", "argmin"), (None, 0, 1)):
        check(lambda x, n=name, a=axis: getattr(np, n)(x, axis=a), X)
        check(lambda x, n=name, a=axis: getattr(np, n)(x, axis=a, keepdims=True), X)


def test_methods():
    check(lambda x: x.sum(1) + x.mean(axis=1) + x.std(1, ddof=1) + x.max(1) - x.min(1), X)
    check(lambda x: x.cumsum(0) + x.prod(0) * x.cumprod(1), X)
    check(lambda x: x.any(1) & x.all(1), BOOLS)
    check(lambda x: x.argmax(0) + x.argmin(0), X)


def test_error_texts():
    with pytest.raises(ShapeError) as caught:
        ad.trace(lambda x: np.max(x, where=MASK), X)
    what, where, fix = str(caught.value).splitlines()
    assert what == "np.max with where= needs a value for elements left out"
    assert where.startswith("operand of shape (3, 4), float64, at ") and "MASK), X)`" in where
    assert fix == "pass initial=, e.g. np.max(x, where=mask, initial=0.0)"
    with pytest.raises(TracerError, match="asked to write into an array"):
        ad.trace(lambda x: np.sum(x, out=np.zeros(())), X)
