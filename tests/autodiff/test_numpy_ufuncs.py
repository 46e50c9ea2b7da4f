"""Methods and arguments of ufuncs, quantiles and covariance of traced values, against NumPy."""

import numpy as np
import pytest

import autodiff as ad
from autodiff.errors import ShapeError, TracerError
from tests.autodiff.test_numpy_arrays import compare

RNG = np.random.default_rng(11)
X, Y = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
MASK = RNG.random((3, 4)) < 0.6
MASK[:, 0] = True
KNOWN = MASK.copy()
KNOWN[:, 3] = True

FOLDS = {
    "subtract": lambda x: np.subtract.reduce(x, axis=1),
    "subtract_keepdims": lambda x: np.subtract.reduce(x, axis=-1, keepdims=True),
    "subtract_masked": lambda x: np.subtract.reduce(x, axis=0, where=MASK, initial=1.5),
    "subtract_of_one": lambda x: np.subtract.reduce(x[:, :1], axis=1),
    "divide": lambda x: np.divide.reduce(x, axis=1, initial=2.0),
    "hypot_all": lambda x: np.hypot.reduce(x, axis=None),
    "hypot_masked": lambda x: np.hypot.reduce(x, axis=(0, 1), initial=2.0, where=MASK),
    "hypot_of_none": lambda x: np.hypot.reduce(x[:, :0], axis=1),
    "logaddexp2": lambda x: np.logaddexp2.reduce(x, axis=0),
    "fmax": lambda x: np.fmax.reduce(x, axis=(-1, 0)),
    "fmin_masked": lambda x: np.fmin.reduce(x, axis=1, where=MASK, initial=0.2),
    "logical_xor": lambda x: np.logical_xor.reduce(x > 0, axis=(0, 1)),
    "bitwise_and": lambda x: np.bitwise_and.reduce((9 * x).astype(np.int8), axis=0),
    "subtract_accumulate": lambda x: np.subtract.accumulate(x, axis=1),
    "atan2_accumulate": lambda x: np.arctan2.accumulate(x),
    "accumulate_none": lambda x: np.subtract.accumulate(x[:0]),
    "vecdot_axis": lambda x: np.vecdot(x, Y, axis=0),
    "vecdot_axes": lambda x: np.vecdot(x, Y.T, axes=[0, 1, ()]),
    "matmul_axes": lambda x: np.matmul(x, Y, axes=[(0, 1), (1, 0), (0, 1)]),
}


@pytest.mark.parametrize("name", FOLDS)
def test_any_ufunc_folds_as_numpy_does(name):
    compare(FOLDS[name], X, exact=False)


@pytest.mark.parametrize("name", ["subtract", "hypot_masked", "subtract_accumulate", "vecdot_axis"])
def test_folds_of_a_batch(name):
    rows = np.stack([X, 2 * X, -X])
    want = np.stack([FOLDS[name](r) for r in rows])
    np.testing.assert_allclose(ad.vmap(FOLDS[name])(rows), want, rtol=1e-14)


def test_a_fold_has_as_many_equations_for_any_length():
    def count(n):
        return len(ad.trace(np.hypot.reduce, np.ones((n, 2))).equations)

    assert count(3) == count(300)


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: np.subtract.reduce(x, axis=None), "is not reorderable"),
        (lambda x: np.subtract.reduce(x, axis=1, where=MASK), "does not have an identity"),
        (lambda x: np.subtract.reduce(x[:, :0], axis=1), "of no elements has no value"),
        (lambda x: np.subtract.accumulate(x, axis=2), "out of bounds"),
    ],
    ids=["two_axes", "mask", "empty", "axis"],
)
def test_what_numpy_cannot_fold(f, words):
    with pytest.raises(ShapeError, match=words) as caught:
        ad.trace(f, X)
    assert len(str(caught.value).splitlines()) == 3


def test_a_dtype_is_that_of_the_computation():
    x = np.full((2, 3), 100, np.int8)
    for f in (
        lambda v: np.multiply(v, v, dtype=np.int64),
        lambda v: np.multiply.outer(v, v, dtype=np.int32),
        lambda v: np.add.reduce(v, axis=0, dtype=np.int8),
        lambda v: np.add.accumulate(v, axis=1, dtype=np.int16),
        lambda v: np.cumprod(v, axis=1, dtype=np.int16),
        lambda v: np.maximum.reduce(v, axis=0, dtype=np.int32),
    ):
        compare(f, x)
    y = X.astype(np.float32)
    for f in (
        lambda v: np.add(v, 1, dtype=np.float64),
        lambda v: np.power.outer(np.abs(v), [1, 2], dtype=np.float64),
        lambda v: np.maximum.reduce(v, axis=0, dtype=np.float64),
        lambda v: np.less(v, 0, dtype=bool),
    ):
        got, want = ad.compile(f)(y), f(y)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-15)


def test_writes_at_indices_name_the_op_to_use():
    with pytest.raises(TracerError, match="autodiff.ops.scatter_add"):
        ad.grad(lambda x: np.add.at(x, [0], 1.0))(X)
    with pytest.raises(TracerError, match="autodiff.ops.index_update"):
        ad.grad(lambda x: np.multiply.at(np.zeros(3), [0], x[0, 0]))(X)


# --- quantiles -----------------------------------------------------------------------------

METHODS = (
    "linear lower higher nearest midpoint hazen weibull median_unbiased normal_unbiased "
    "interpolated_inverted_cdf"
).split()


@pytest.mark.parametrize("q", [0.0, 0.3, 0.5, 1.0, [0.1, 0.9]], ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_methods_of_quantiles(method, q):
    compare(lambda x: np.quantile(x, q, axis=1, method=method), X, exact=False)
    compare(lambda x: np.percentile(x, 100 * np.asarray(q), method=method), X, exact=False)


@pytest.mark.parametrize("q", [0.0, 0.3, 1.0, [0.1, 0.9]], ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_quantiles_that_skip_nan(method, q):
    """What is NaN has derivative 0, and the others that of the quantile of the others."""

    def f(x):
        return np.nanquantile(np.where(KNOWN, x, np.nan), q, axis=1, method=method)

    np.testing.assert_allclose(ad.interpret(ad.trace(f, X), X), f(X), rtol=1e-14, atol=1e-15)
    got = ad.jacrev(f)(X)
    for row in range(3):
        want = ad.jacrev(lambda v: np.quantile(v, q, method=method))(X[row, KNOWN[row]])
        np.testing.assert_array_equal(got[..., row, row, :][..., KNOWN[row]], want)
    assert not got[..., ~KNOWN].any()


def test_medians_of_nan_and_infinities():
    x = np.array([[1.0, np.inf, np.inf], [np.nan, 2.0, 4.0], [np.nan, np.nan, np.nan]])
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        want = np.nanmedian(x, axis=1)
    np.testing.assert_array_equal(ad.vmap(np.nanmedian)(x), want)
    np.testing.assert_array_equal(ad.vmap(np.median)(x), np.median(x, axis=1))
    np.testing.assert_array_equal(ad.grad(np.nanmedian)(x[1]), [0.0, 0.5, 0.5])
    np.testing.assert_array_equal(
        ad.grad(np.median)(np.array([1.0, 2.0, 2.0, 5.0])), [0, 0.5, 0.5, 0]
    )


def test_float32_levels_and_values():
    x = X.astype(np.float32)
    for q in (0.3, [0.3], np.float64(0.3), np.float32(0.3)):
        assert ad.compile(lambda v, q=q: np.quantile(v, q))(x).dtype == np.quantile(x, q).dtype


OTHERS = {
    "cov": lambda x: np.cov(x),
    "cov_columns": lambda x: np.cov(x, rowvar=False, bias=True),
    "cov_two": lambda x: np.cov(x, Y, ddof=0),
    "cov_vectors": lambda x: np.cov(x[0], x[1]),
    "cov_weights": lambda x: np.cov(x, fweights=[1, 2, 1, 1], aweights=[1.0, 2.0, 3.0, 4.0]),
    "cov_counts": lambda x: np.cov(x, fweights=[1, 2, 3, 4]),
    "cov_one": lambda x: np.cov(x[0]),
    "corrcoef": lambda x: np.corrcoef(x),
    "corrcoef_two": lambda x: np.corrcoef(x[0], x[1]),
    "nancumsum": lambda x: np.nancumsum(np.where(MASK, x, np.nan), axis=1),
    "nancumprod": lambda x: np.nancumprod(np.where(MASK, x, np.nan)),
    "nanargmax": lambda x: np.nanargmax(np.where(KNOWN, x, np.nan), axis=0, keepdims=True),
    "nanargmin": lambda x: np.nanargmin(np.where(KNOWN, x, np.nan)),
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, axis=1),
    "windows_2d": lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 3)),
    "apply_over_axes": lambda x: np.apply_over_axes(np.sum, x, [0, -1]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions_equal_numpy(name):
    compare(OTHERS[name], X, exact=False)
