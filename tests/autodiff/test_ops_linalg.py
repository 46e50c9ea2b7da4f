"""Linear systems, triangles and determinants: numerics, conventions and public reports."""

import itertools

import numpy as np
import pytest
import scipy.linalg

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError

RNG = np.random.default_rng(11)


def well(*shape):
    return 0.4 * RNG.normal(size=shape) + np.diag(np.linspace(1.0, 2.0, shape[-1]))


# --- systems -------------------------------------------------------------------------------


def test_triangular_solve_sends_no_slope_to_what_it_does_not_read():
    # pymc-devs/pytensor#1230
    a, b = np.array([[2.0, 9.0], [3.0, 5.0]]), np.array([1.0, 2.0])

    def f(a, b):
        return ops.triangular_solve(a, b, lower=True, unit_diagonal=True)

    np.testing.assert_allclose(f(a, b), [1.0, -1.0], rtol=1e-15)
    _, pull = ad.vjp(f, a, b)
    da, db = pull(np.ones(2))
    np.testing.assert_array_equal(da, [[0, 0], [-1, 0]])
    np.testing.assert_array_equal(db, [-2, 1])
    junk = np.array([[np.nan, np.inf], [3.0, np.nan]])
    da, db = ad.vjp(f, junk, b)[1](np.ones(2))
    np.testing.assert_array_equal(da, [[0, 0], [-1, 0]])


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("trans", [0, 1, 2])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_solve_agrees_with_scipy(lower, trans, unit):
    a = well(5, 5) + 0.3j * RNG.normal(size=(5, 5))
    b = RNG.normal(size=(5, 3)) + 0j
    expected = scipy.linalg.solve_triangular(a, b, trans, lower, unit)
    got = ops.triangular_solve(a, b, lower, trans, unit)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
    stacked = ops.triangular_solve(np.stack([a, 2 * a]), b, lower, trans, unit)
    np.testing.assert_allclose(stacked[0], expected, rtol=1e-12, atol=1e-13)


def test_triangular_solve_lets_nan_through_where_blas_would_skip_it():
    a = np.array([[1.0, 0.0], [np.nan, 1.0]])
    assert np.isnan(ops.triangular_solve(a, np.array([0.0, 1.0]), lower=True)[1])


def test_right_hand_sides_that_share_a_matrix_are_solved_together():
    a, b = well(3, 3), RNG.normal(size=(6, 3))
    mapped = ad.vmap(lambda b: ops.solve(a, b))
    np.testing.assert_allclose(mapped(b), np.linalg.solve(a, b.T).T, rtol=1e-13)
    square = RNG.normal(size=(2, 3, 2))
    expected = np.linalg.solve(a, square)
    np.testing.assert_allclose(ad.vmap(lambda b: ops.solve(a, b))(square), expected, rtol=1e-13)
    program = ad.trace(mapped, b)
    (equation,) = [eq for eq in program.equations if eq.op.kind == "SOLVE"]
    assert [a.spec.shape for a in equation.inputs] == [(3, 3), (3, 6)]


@pytest.mark.parametrize("op", [ops.solve, lambda a, b: ops.inv(a) + 0 * b[..., :1]])
def test_singular_item_of_a_stack_leaves_the_others_alone(op):
    a = np.stack([np.ones((2, 2)), well(2, 2), np.full((2, 2), np.nan)])
    out = op(a, RNG.normal(size=(3, 2, 2)))
    assert np.isnan(out[0]).all() and np.isfinite(out[1]).all() and np.isnan(out[2]).all()


def test_solve_has_all_derivatives_of_the_inverse():
    a, b, t = well(4, 4), RNG.normal(size=4), RNG.normal(size=(4, 4))

    def second(a):
        return ad.jvp(lambda a: ad.jvp(lambda a: ops.solve(a, b), (a,), (t,))[1], (a,), (t,))[1]

    y = np.linalg.inv(a)
    np.testing.assert_allclose(second(a), 2 * y @ t @ y @ t @ y @ b, rtol=1e-12)


# --- determinants --------------------------------------------------------------------------


def test_determinant_gradient_at_singular_matrices_is_the_cofactors():
    # tensorflow/tensorflow#119477, also jax-ml/jax#2380
    got = ad.grad(ops.det)(np.array([[1.0, 2.0], [2.0, 4.0]]))
    np.testing.assert_allclose(got, [[4.0, -2.0], [-2.0, 1.0]], rtol=1e-14)
    np.testing.assert_array_equal(ad.grad(ops.det)(np.zeros((4, 4))), np.zeros((4, 4)))


def test_logarithm_of_a_zero_determinant_has_no_gradient():
    a = np.array([[1.0, 2.0], [2.0, 4.0]])
    sign, log = ops.slogdet(a)
    assert (sign, log) == (0, -np.inf)
    assert np.isnan(ad.grad(lambda a: ops.slogdet(a)[1])(a)).all()


def mode_pairs(f, x):
    """The second derivative of a function of one number in all four compositions."""

    def forward(g):
        return lambda t: ad.jvp(g, (t,), (1.0,))[1]

    modes = (forward, ad.grad)
    return [outer(inner(f))(x) for outer, inner in itertools.product(modes, modes)]


def test_second_derivative_of_a_determinant_in_every_mode():
    # pytorch/pytorch#196701
    def d(t):
        return ops.det(np.stack([np.stack([t + 2, 1 + 0 * t]), np.stack([1 + 0 * t, 2 * t + 3])]))

    np.testing.assert_allclose(mode_pairs(d, np.float64(0.7)), 4.0, rtol=1e-12)
    direction = np.eye(3) + np.eye(3, k=1)
    got = mode_pairs(lambda s: ops.det(np.eye(3) + s * direction), np.float64(0.0))
    np.testing.assert_allclose(got, 6.0, rtol=1e-12)


def leibniz(a):
    """The determinant as a sum over permutations, in exact arithmetic for small integers."""
    n = len(a)
    total = 0
    for p in itertools.permutations(range(n)):
        sign = (-1) ** sum(p[i] > p[j] for i in range(n) for j in range(i + 1, n))
        total += sign * np.prod([a[i][p[i]] for i in range(n)])
    return total


@pytest.mark.parametrize("rank", [0, 1, 2, 3, 4])
def test_determinant_derivatives_of_every_order_at_every_rank(rank):
    n = 4
    a = RNG.integers(-2, 3, (n, rank)) @ RNG.integers(-2, 3, (rank, n))
    t = RNG.integers(-2, 3, (n, n))
    # det(a + s t) is a polynomial in s, known exactly from n + 1 integer points
    points = np.arange(n + 1)
    values = [leibniz(a + int(s) * t) for s in points]
    coefficients = np.polynomial.polynomial.polyfit(points, values, n)

    def line(s):
        return ops.det(a + s * t)

    derivative, factorial = line, 1.0
    for order in range(1, n + 1):
        derivative = ad.grad(derivative) if order % 2 else _forward(derivative)
        factorial *= order
        expected = factorial * coefficients[order]
        size = np.max(np.abs(coefficients)) + 1
        got = derivative(np.float64(0.0))
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10 * size)


def _forward(f):
    return lambda s: ad.jvp(f, (s,), (1.0,))[1]


# --- texts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: ops.inv(np.ones((2, 3))),
            "INV takes square matrices (..., n, n), got shape (2, 3)\n"
            "in op INV, operand float64[2,3]\n"
            "put the matrices in the last two axes, a stack of them in the leading ones",
        ),
        (
            lambda: ops.solve(np.eye(2), np.ones((3, 2, 3, 1))),
            "SOLVE cannot solve matrices (2, 2) for a right-hand side (3, 2, 3, 1)\n"
            "in op SOLVE\n"
            "the right-hand side is (n,) or (..., n, k) for matrices (..., n, n); for a stack of "
            "vectors use b[..., None]",
        ),
        (
            lambda: ops.slogdet(1j * np.eye(2)),
            "SLOGDET is not defined for complex128\n"
            "in op SLOGDET, operand complex128[2,2]\n"
            "write it for the real and imaginary parts (np.real, np.imag)",
        ),
        (
            lambda: ops.triangular_solve(np.eye(2), np.ones(2), trans="H"),
            "trans 'H' is not one of 0, 1, 2, 'N', 'T', 'C'\n"
            "in op TRIANGULAR_SOLVE\n"
            "use 0 for T x = b, 1 for T^T x = b, 2 for T^H x = b",
        ),
        (
            lambda: ops.diagonal(np.ones((2, 2)), axis1=1, axis2=-1),
            "axis1 and axis2 are both 1\nin op DIAGONAL\nname two different axes",
        ),
    ],
)
def test_errors_say_what_where_and_the_way_out(call, text):
    with pytest.raises(ShapeError) as caught:
        call()
    assert str(caught.value) == text
