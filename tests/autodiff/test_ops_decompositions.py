"""Decompositions: factors, their derivatives, sign rules, degenerate points and public reports."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError
from autodiff.trace import bind

RNG = np.random.default_rng(5)


def slope(f, x, t, h=1e-4):
    """Derivative of every output of f at x along t, by two central differences, extrapolated."""
    steps = [
        [(a - b) / (2 * s) for a, b in zip(f(x + s * t), f(x - s * t), strict=True)]
        for s in (h, h / 2)
    ]
    return [(4 * fine - coarse) / 3 for coarse, fine in zip(*steps, strict=True)]


def symmetric(n):
    a = RNG.normal(size=(n, n))
    return a + a.T


SHAPES = [(4, 4), (5, 3), (3, 5)]
FACTORISATIONS: dict[str, Callable[..., Any]] = {
    "lu": lambda a: ops.lu(a)[1:],
    "qr": ops.qr,
    "qr_lapack": lambda a: ops.qr(a, canonical=False),
    "svd": ops.svd,
    "svd_lapack": lambda a: ops.svd(a, canonical=False),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FACTORISATIONS)
def test_factors_and_their_own_derivatives(name, shape):
    a, t = RNG.normal(size=shape), RNG.normal(size=shape)
    f = FACTORISATIONS[name]
    for got, expected in zip(ad.jvp(f, (a,), (t,))[1], slope(f, a, t), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
def test_factors_multiply_to_the_matrix(shape):
    a = RNG.normal(size=(2, *shape))
    p, lower, upper = ops.lu(a)
    np.testing.assert_allclose(lower @ upper, np.take_along_axis(a, p[..., None], -2), atol=1e-14)
    q, r = ops.qr(a)
    np.testing.assert_allclose(q @ r, a, atol=1e-14)
    assert (np.diagonal(r, 0, -2, -1) >= 0).all()
    u, s, vh = ops.svd(a)
    np.testing.assert_allclose((u * s[..., None, :]) @ vh, a, atol=1e-14)


@pytest.mark.parametrize(
    "op",
    [ops.eigh, lambda a: ops.eigh(a, canonical=False), lambda a: (ops.cholesky(a),)],
    ids=["eigh", "eigh_lapack", "cholesky"],
)
def test_factors_of_symmetric_matrices_and_their_own_derivatives(op):
    a, t = symmetric(4) + np.diag([6.0, 7.0, 8.0, 9.0]), symmetric(4)
    for got, expected in zip(ad.jvp(op, (a,), (t,))[1], slope(op, a, t), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-8)


def test_cholesky_gradient_is_symmetric_and_reads_the_lower_triangle():
    a = symmetric(3) @ symmetric(3)
    a = a @ a.T + np.eye(3)
    ct = RNG.normal(size=(3, 3))
    (gradient,) = ad.vjp(ops.cholesky, a)[1](ct)
    np.testing.assert_array_equal(gradient, gradient.T)
    junk = np.tril(a) + np.triu(RNG.normal(size=(3, 3)), 1)
    np.testing.assert_array_equal(ops.cholesky(junk), np.linalg.cholesky(a))
    np.testing.assert_array_equal(ad.vjp(ops.cholesky, junk)[1](ct)[0], gradient)


# --- sign rules ----------------------------------------------------------------------------


def test_wide_qr_has_a_gradient_and_a_stated_sign():
    # jax-ml/jax#23533
    a = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    k = np.array([[1.0, 2.0, 3.0], [0.0, 4.0, 5.0]])

    def f(a):
        return np.sum(k * np.linalg.qr(a)[1] ** 2)

    value, gradient = ad.value_and_grad(f)(a)
    np.testing.assert_allclose(value, 215.2941176470588, rtol=1e-12)
    expected = [
        [-10.622837370242214, 10.823529411764707, 23.647058823529413],
        [11.155709342560554, 19.294117647058822, 34.588235294117645],
    ]
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)

    def g(a):
        q, r = ops.qr(a)
        return np.sum(q) + np.sum(r)

    expected = [
        [-2.154287022381546, 1.212678125181665, 1.212678125181665],
        [1.5693481619998015, 0.7276068751089989, 0.7276068751089989],
    ]
    np.testing.assert_allclose(ad.grad(g)(a), expected, rtol=1e-12)


def test_vectors_are_oriented_by_their_first_largest_entry():
    # both entries of each vector are equal but for rounding: the first decides
    _, v = ops.eigh(np.array([[2.0, -1.0], [-1.0, 2.0]]))
    assert (v[0] > 0).all()
    a = RNG.normal(size=(4, 4))
    for factor in (ops.eigh(a + a.T)[1], ops.svd(a)[0]):
        largest = np.argmax(np.abs(factor), axis=0)
        assert (factor[largest, np.arange(4)] > 0).all()
    u, _, vh = ops.svd(-a)
    np.testing.assert_allclose(u, ops.svd(a)[0], atol=1e-13)
    np.testing.assert_allclose(vh, -ops.svd(a)[2], atol=1e-13)


def test_numpys_functions_keep_lapacks_signs():
    a = RNG.normal(size=(4, 3))
    _, r = ad.vmap(np.linalg.qr)(a[None])
    np.testing.assert_array_equal(r[0], np.linalg.qr(a)[1])


# --- degenerate points ---------------------------------------------------------------------


def test_svd_with_equal_singular_values_in_a_function_that_does_not_care():
    # jax-ml/jax#8732
    a = np.diag([1.0, 1.0, 2.0, 3.0])

    def f(a):
        u, s, vh = np.linalg.svd(a, full_matrices=False)
        return np.linalg.norm((u * s) @ vh)

    value, gradient = ad.value_and_grad(f)(a)
    np.testing.assert_allclose(value, 3.872983346207417, rtol=1e-14)
    expected = np.diag([0.2581988897471611, 0.2581988897471611, 0.5163977794943223])
    np.testing.assert_allclose(gradient[:3, :3], expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(gradient[3, 3], 0.7745966692414834, rtol=1e-12)


@pytest.mark.parametrize("n", [2, 3])
def test_polar_factor_of_a_rotation_has_its_derivative(n):
    # all singular values are 1: rotation fitting, where u and v alone have no derivative
    rotation = np.linalg.qr(RNG.normal(size=(n, n)))[0]
    t = RNG.normal(size=(n, n))

    def polar(a):
        u, _, vh = ops.svd(a)
        return (u @ vh,)

    ((got,), (expected,)) = ad.jvp(polar, (rotation,), (t,))[1], slope(polar, rotation, t)
    np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-8)


def test_symmetric_functions_of_equal_eigenvalues_keep_all_derivatives():
    q = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
    a = (q * [2.0, 2.0, 2.0, -1.0]) @ q.T
    a = (a + a.T) / 2
    t = symmetric(4)

    def f(a):
        return np.sum(np.linalg.eigvalsh(a) ** 3)

    # the trace of a^3, whose gradient is 3 a^2
    np.testing.assert_allclose(ad.grad(f)(a), 3 * a @ a, rtol=1e-12, atol=1e-12)
    g = ad.grad(lambda a: np.sum(ops.eigh(2.0 * np.eye(3) * a[0, 0])[0] ** 2))
    np.testing.assert_allclose(g(np.eye(3))[0, 0], 24.0, rtol=1e-13)
    assert np.isfinite(ad.grad(lambda a: np.sum(ops.eigh(a)[1] * t))(2.0 * np.eye(4))).all()


def test_repeated_eigenvalues_lose_the_rotation_between_their_vectors():
    # stated in eigh: v diag(w) v^T at a multiple of the identity keeps its diagonal part alone
    t = symmetric(3)

    def f(a):
        w, v = ops.eigh(a)
        return (v * w) @ np.swapaxes(v, -1, -2)

    got = ad.jvp(f, (2.0 * np.eye(3),), (t,))[1]
    np.testing.assert_allclose(got, np.diag(np.diag(t)), atol=1e-14)


@pytest.mark.parametrize(
    "op",
    [ops.qr, ops.eigh, ops.svd, lambda a: (ops.cholesky(a),), lambda a: (ops.pinv(a),)],
    ids=["qr", "eigh", "svd", "cholesky", "pinv"],
)
def test_nan_stays_in_its_own_item(op):
    good = np.array([[2.0, 0.5], [0.5, 1.0]])
    stack = np.stack([good, np.full((2, 2), np.nan), good])
    for out in op(stack):
        assert np.isnan(out[1]).any() and np.isfinite(out[[0, 2]]).all()


def test_cholesky_of_a_stack_with_an_indefinite_item_matches_lapack_elsewhere():
    good = RNG.normal(size=(5, 5))
    good = good @ good.T + np.eye(5)
    out = ops.cholesky(np.stack([good, -good]))
    np.testing.assert_allclose(out[0], np.linalg.cholesky(good), rtol=1e-13)
    assert np.isnan(out[1][np.tril_indices(5)]).all()
    assert (out[1][np.triu_indices(5, 1)] == 0).all()


def test_wide_matrix_text():
    with pytest.raises(ShapeError, match=r"at least as many rows.*\nin op QR\nuse autodiff.ops.qr"):
        bind("QR", np.ones((2, 3)), canonical=True)
