"""Matrix functions: values against references, derivatives of all orders, public reports."""

from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.linalg

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError
from autodiff.program import inline

RNG = np.random.default_rng(3)
HALF: Any = 0.5


def exact_expm(a):
    with mpmath.workdps(60):
        return np.array(mpmath.expm(mpmath.matrix(a.tolist())).tolist(), np.float64)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 5.3, 40.0])
def test_expm_to_rounding(scale):
    a = scale * RNG.normal(size=(4, 4)) / 4
    expected = exact_expm(a)
    size = float(np.linalg.norm(expected, 1))
    assert np.max(np.abs(ops.expm(a) - expected)) <= 1e-15 * size * max(
        1.0, float(np.linalg.norm(a, 1))
    )


@pytest.mark.parametrize("x", [1.99, 2.01, 3.99, 4.01, -7.9, 15.9])
def test_expm_of_a_number_is_exp_to_two_ulp_times_its_size(x):
    eps = np.finfo(np.float64).eps
    np.testing.assert_allclose(ops.expm(np.array([[x]])), np.exp([[x]]), rtol=2 * eps * abs(x))


def test_expm_of_a_stack_scales_every_item_by_itself():
    a = RNG.normal(size=(3, 3))
    stack = np.stack([a, 100 * np.diag([-1.0, -2.0, 0.01]), np.zeros((3, 3))])
    out = ops.expm(stack)
    for item, x in zip(out, stack, strict=True):
        np.testing.assert_allclose(item, ops.expm(x), rtol=1e-14)
    np.testing.assert_allclose(out[1], np.diag(np.exp([-100.0, -200.0, 1.0])), rtol=1e-12)
    np.testing.assert_array_equal(out[2], np.eye(3))


def test_expm_slopes_at_repeated_eigenvalues():
    # Theano/Theano#6379
    got = ad.grad(lambda j: ops.expm(j * np.eye(2))[0, 0])(np.float64(1.0))
    np.testing.assert_allclose(got, np.e, rtol=1e-14)
    a = np.array([[2.0, 1.0], [0.0, 2.0]])
    e2 = np.exp(2.0)
    np.testing.assert_allclose(ops.expm(a), [[e2, e2], [0, e2]], rtol=1e-14, atol=1e-15)
    gradient = ad.grad(lambda a: np.sum(ops.expm(a)))(a)
    # the integral of exp((1 - s) a^T) 1 1^T exp(s a^T), times e^2: [[3/2, 1], [13/6, 3/2]]
    expected = e2 * np.array([[1.5, 1.0], [13 / 6, 1.5]])
    np.testing.assert_allclose(gradient, expected, rtol=1e-13)


def test_expm_frechet_agrees_with_scipy_also_in_huge_and_tiny_directions():
    a, t = RNG.normal(size=(2, 3, 3))
    expected = scipy.linalg.expm_frechet(a, t, compute_expm=False)
    for size in (1.0, 1e150, 1e-150):
        np.testing.assert_allclose(ops.expm_frechet(a, size * t) / size, expected, rtol=1e-12)


def test_second_derivative_of_expm_does_not_depend_on_the_size_of_the_direction():
    a, t, r = RNG.normal(size=(3, 3, 3))

    def second(size):
        return ad.jvp(lambda a: ops.expm_frechet(a, size * t), (a,), (r,))[1] / size

    for size in (1e8, 1e-8):
        np.testing.assert_allclose(second(size), second(1.0), rtol=1e-11, atol=1e-12)


def test_third_derivative_of_expm():
    def line(s):
        return ops.expm(s * np.array([[0.3, 1.0], [-0.5, 0.2]]))[0, 1]

    a = np.array([[0.3, 1.0], [-0.5, 0.2]])
    third = ad.grad(ad.grad(ad.grad(line)))(np.float64(0.7))
    np.testing.assert_allclose(third, (a @ a @ a @ exact_expm(0.7 * a))[0, 1], rtol=1e-12)


def test_expm_is_bounded_by_its_own_result_not_by_squarings():
    # a large negative multiple underflows to 0, a large positive one overflows to inf
    np.testing.assert_array_equal(ops.expm(np.array([[-1e300]])), [[0.0]])
    np.testing.assert_array_equal(ops.expm(np.array([[1e4]])), [[np.inf]])


@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (3, 3)])
def test_pinv_derivative_at_constant_rank(shape):
    u, v = RNG.normal(size=(2, 5))[0][: shape[0]], RNG.normal(size=shape[1])

    def along(s):
        # rank 1 for every s: the pseudo-inverse moves smoothly
        left = u + s * np.arange(shape[0])
        right = v - s * np.arange(shape[1]) ** 2
        return np.outer(left, right), np.outer(np.arange(shape[0]), right) - np.outer(
            left, np.arange(shape[1]) ** 2
        )

    a, t = along(0.0)
    h = 1e-5
    expected = (np.linalg.pinv(along(h)[0]) - np.linalg.pinv(along(-h)[0])) / (2 * h)
    got = ad.jvp(ops.pinv, (a,), (t,))[1]
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-8)


def test_matrix_power_takes_few_products():
    program = inline(ad.trace(lambda a: ops.matrix_power(a, 13), np.eye(2)))
    assert [eq.op.kind for eq in program.equations] == ["MATMUL"] * 5
    a = RNG.normal(size=(3, 3)) / 2
    np.testing.assert_allclose(
        ops.matrix_power(a, 13), np.linalg.matrix_power(a, 13), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_matrix_norms_are_numpys(ord):
    a = RNG.normal(size=(2, 3, 4))
    expected = np.linalg.norm(a, ord, axis=(-2, -1))
    np.testing.assert_allclose(ops.matrix_norm(a, ord), expected, rtol=1e-13)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ops.matrix_norm(np.eye(2), 3), ShapeError, "MATRIX_NORM has no norm '3'\n"),
        (lambda: ops.matrix_power(np.eye(2), HALF), TypeError, "an integer power, got 0.5"),
        (
            lambda: ops.expm_frechet(np.eye(2), np.eye(3)),
            ShapeError,
            "EXPM_FRECHET takes a matrix and a direction of one shape and dtype",
        ),
        (
            lambda: ops.lstsq(np.ones((3, 2)), np.ones(4)),
            ShapeError,
            "LSTSQ cannot fit .*\nin op LSTSQ\nthe right-hand side is",
        ),
    ],
    ids=["norm", "power", "frechet", "lstsq"],
)
def test_errors_name_the_op(call, error, text):
    with pytest.raises(error, match=text):
        call()
