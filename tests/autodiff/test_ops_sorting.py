"""Sorting and searching: order of ties and NaN, derivatives, mapping, public bug reports."""

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError
from autodiff.lower.jax import lower_jax

RNG = np.random.default_rng(13)
NAN, INF = np.nan, np.inf


def test_sort_along_the_last_axis_mapped_over_axis_one():
    # ml-explore/mlx#4332: the default axis -1 sorted the batch
    x = np.array([[3.0, 1.0], [2.0, 4.0], [0.0, 5.0]])
    w = np.array([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]])
    mapped = ad.vmap(lambda a: np.sort(a, axis=-1), 1, 1)
    np.testing.assert_array_equal(mapped(x), [[0, 1], [2, 4], [3, 5]])
    order = ad.vmap(lambda a: np.argsort(a, axis=-1), 1, 1)(x)
    np.testing.assert_array_equal(order, [[2, 0], [1, 1], [0, 2]])
    bar = ad.grad(lambda x: np.sum(w * mapped(x)))(x)
    np.testing.assert_array_equal(bar, [[100, 2], [10, 20], [1, 200]])


@pytest.mark.parametrize("axis", range(-3, 3))
@pytest.mark.parametrize("in_axis", range(-4, 4))
def test_every_axis_under_every_mapping(axis, in_axis):
    x = RNG.normal(size=(2, 3, 4, 5))

    def f(a):
        values, places = ops.top_k(a, 2, axis)
        low = np.take(np.sort(a, axis), [0, -1], axis)
        return values * low, places + np.take(np.argsort(a, axis), [0, -1], axis)

    count = x.shape[in_axis]
    rows = [f(np.take(x, b, in_axis)) for b in range(count)]
    for got, expected in zip(ad.vmap(f, in_axis, -1)(x), zip(*rows, strict=True), strict=True):
        np.testing.assert_array_equal(got, np.stack(expected, -1))


def test_tangents_of_a_mapped_sort_stay_in_their_rows():
    # ekzhang/jax-js#154: the permutation of a batch was applied to every row
    x, t = RNG.normal(size=(2, 4, 3, 5))
    order = np.argsort(x, axis=-1)
    for f in (np.sort, ad.vmap(np.sort), ad.vmap(ad.vmap(np.sort))):
        _, dot = ad.jvp(f, (x,), (t,))
        np.testing.assert_array_equal(dot, np.take_along_axis(t, order, -1))


def test_equal_values_keep_their_order_in_value_and_derivative():
    x = np.array([1.0, 0.0, 1.0, -0.0, 1.0])
    assert list(ops.argsort(x)) == [1, 3, 0, 2, 4]
    bar = ad.grad(lambda x: np.sort(x) @ np.arange(5.0))(x)
    np.testing.assert_array_equal(bar, [2, 0, 3, 1, 4])
    assert np.signbit(np.sort(x)[1]) == np.signbit(ops.sort(x)[1])


def test_nan_is_last_in_a_sort_and_first_among_the_largest():
    x = np.array([NAN, 1.0, INF, NAN, -INF])
    np.testing.assert_array_equal(ops.sort(x), [-INF, 1, INF, NAN, NAN])
    np.testing.assert_array_equal(ops.argsort(x), [4, 1, 2, 0, 3])
    values, places = ops.top_k(x, 3)
    np.testing.assert_array_equal(values, [NAN, NAN, INF])
    np.testing.assert_array_equal(places, [0, 3, 2])


def test_top_k_prefers_the_lower_position_as_jax_does():
    lax = pytest.importorskip("jax.lax")
    x = RNG.integers(0, 4, (3, 9)).astype(np.float32)
    x[0, 3] = NAN
    for k in range(10):
        ours, theirs = ops.top_k(x, k), lax.top_k(x, k)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_derivative_of_the_largest_is_that_of_the_chosen():
    x, w = RNG.normal(size=(3, 6)), RNG.normal(size=(3, 2))
    bar = ad.grad(lambda x: np.sum(ops.top_k(x, 2)[0] * w))(x)
    expected = np.zeros((3, 6))
    np.put_along_axis(expected, np.argsort(-x, axis=1)[:, :2], w, 1)
    np.testing.assert_array_equal(bar, expected)
    hessian = ad.hessian(lambda v: np.sum(np.sort(v) ** 3 * w[0, 0]))(x[0])
    np.testing.assert_allclose(hessian, np.diag(6 * x[0] * w[0, 0]), rtol=1e-14)


def test_positions_have_no_tangent_space():
    program = ad.trace(lambda x: (np.sort(x).sum(), np.argsort(x)), RNG.normal(size=4))
    assert [s.dtype.kind for s in program.out_specs] == ["f", "i"]
    _, dots = ad.jvp(lambda x: (np.sort(x), np.argsort(x)), (np.ones(3),), (np.ones(3),))
    assert dots[1] is None


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_rows_are_searched_each_in_its_own(side, dtype):
    a = np.sort(RNG.integers(-5, 5, (4, 7)).astype(dtype), axis=1)
    v = RNG.integers(-7, 7, (4, 9)).astype(dtype)
    if dtype == np.float64:
        a[:, -1], v[0, :3], v[1, 0] = NAN, (NAN, INF, -INF), NAN
    expected = [np.searchsorted(r, q, side) for r, q in zip(a, v, strict=True)]
    np.testing.assert_array_equal(ops.searchsorted(a, v, side), expected)
    mapped = ad.vmap(lambda r, q: np.searchsorted(r, q, side))
    np.testing.assert_array_equal(mapped(a, v), expected)
    square = ad.vmap(lambda r: np.searchsorted(r, v, side))(a)
    np.testing.assert_array_equal(square, [np.searchsorted(r, v, side) for r in a])
    program = ad.trace(mapped, a, v)
    np.testing.assert_array_equal(lower_jax(program)(a, v), expected)


def test_interpolation_at_a_knot_takes_the_slope_to_its_right():
    points, values = np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0, 1.0])
    slope = ad.vmap(ad.grad(lambda x: np.interp(x, points, values)))
    np.testing.assert_array_equal(
        slope(np.array([-1.0, 0.0, 1.0, 2.0, 4.0])), [0, 2, -0.5, -0.5, 0]
    )


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: ops.sort(x, 2), "axis 2 is out of bounds for 2 axes"),
        (lambda x: ops.top_k(x, 4), "cannot take the 4 largest"),
        (lambda x: ops.searchsorted(x, x[0]), "cannot search"),
        (lambda x: ops.searchsorted(x[0], x, "middle"), "side 'middle' is unknown"),
    ],
)
def test_errors_have_three_lines(f, message):
    with pytest.raises(ShapeError, match=message) as error:
        ad.trace(f, np.ones((2, 3)))
    assert len(str(error.value).splitlines()) == 3
