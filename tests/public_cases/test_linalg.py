"""Decompositions, determinants, solves and exponentials where a textbook rule divides by zero."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import autodiff as ad
from autodiff import ops
from tests.public_cases.roads import hold, slopes, values

EQUAL = np.diag([1.0, 1.0, 2.0, 3.0])


def rebuilt_norm(a: Any) -> Any:
    u, s, vh = np.linalg.svd(a)
    return np.linalg.norm((u * s) @ vh)


def test_c01_equal_singular_values_in_a_gauge_free_function() -> None:
    hold(values(rebuilt_norm, EQUAL), "C01", "value")
    found = slopes(rebuilt_norm, EQUAL)
    hold({road: np.diagonal(g) for road, g in found.items()}, "C01", "diagonal of the gradient")
    for road, gradient in found.items():
        off = gradient - np.diag(np.diagonal(gradient))
        assert np.max(np.abs(off)) <= (2e-6 if "float32" in road else 1e-10), road


def test_c01_a_rank_deficient_matrix_and_a_rotation() -> None:
    low = np.diag([0.0, 0.0, 2.0, 3.0])
    np.testing.assert_allclose(ad.grad(rebuilt_norm)(low), low / np.sqrt(13), atol=1e-12)
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    np.testing.assert_allclose(ad.grad(rebuilt_norm)(rotation), rotation / np.sqrt(3), atol=1e-12)


SINGULAR = [[1.0, 2.0], [2.0, 4.0]]


def test_c03_determinant_of_singular_matrices() -> None:
    hold(slopes(np.linalg.det, SINGULAR), "C03", "gradient")
    for size in (3, 4):
        found = slopes(np.linalg.det, np.zeros((size, size)))
        for entry in np.ndindex(size, size):
            hold({road: g[entry] for road, g in found.items()}, "C03", "gradient at zero")


def test_c03_the_log_determinant_has_no_slope_there() -> None:
    def log_determinant(a: Any) -> Any:
        return np.linalg.slogdet(a)[1]

    for road, value in values(log_determinant, SINGULAR).items():
        assert value == -np.inf, road
    for road, gradient in slopes(log_determinant, SINGULAR).items():
        assert not np.any(np.isfinite(gradient)), road


STORED, RHS = [[2.0, 9.0], [3.0, 5.0]], [1.0, 2.0]


def unit_lower(a: Any, b: Any) -> Any:
    return ops.triangular_solve(a, b, lower=True, unit_diagonal=True)


def test_c04_entries_that_are_not_read_have_no_slope() -> None:
    hold(values(unit_lower, STORED, RHS), "C04", "solution")

    def total(a: Any, b: Any) -> Any:
        return np.sum(unit_lower(a, b))

    hold(slopes(total, STORED, RHS), "C04", "gradient in A")
    hold(slopes(total, STORED, RHS, argnum=1), "C04", "gradient in b")


def test_c04_junk_in_the_unread_entries_changes_nothing() -> None:
    junk = np.array([[np.nan, np.inf], [3.0, np.nan]])
    for road, x in values(unit_lower, junk, RHS).items():
        np.testing.assert_array_equal(x, [1.0, -1.0], err_msg=road)
    for road, j in slopes(unit_lower, junk, RHS).items():
        unread = j[:, [0, 0, 1], [0, 1, 1]]
        assert not np.any(unread), road
    expected = scipy.linalg.solve_triangular(STORED, RHS, lower=True, unit_diagonal=True)
    np.testing.assert_array_equal(unit_lower(np.array(STORED), np.array(RHS)), expected)


DEFECTIVE = [[2.0, 1.0], [0.0, 2.0]]


def test_c05_matrix_exponential_at_coinciding_eigenvalues() -> None:
    hold(slopes(lambda j: ops.expm(j * np.eye(2))[0, 0], 1.0), "C05", "slope at the identity")
    hold(values(ops.expm, DEFECTIVE), "C05", "exponential of a defective matrix")
    found = slopes(lambda a: np.sum(ops.expm(a)), DEFECTIVE)
    hold(found, "C05", "gradient at a defective matrix")


WIDE, WEIGHTS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.array([[1.0, 2.0, 3.0], [0.0, 4.0, 5.0]])


def test_c07_qr_of_a_wide_matrix() -> None:
    def signless(a: Any) -> Any:
        return np.sum(WEIGHTS * np.linalg.qr(a)[1] ** 2)

    hold(values(signless, WIDE), "C07", "value")
    hold(slopes(signless, WIDE), "C07", "gradient")


def test_c07_signs_are_fixed_before_factors_are_summed() -> None:
    def positive(a: Any) -> Any:
        q, r = np.linalg.qr(a)
        signs = np.sign(np.diagonal(r))
        return np.sum(q * signs) + np.sum(r * signs[:, None])

    hold(slopes(positive, WIDE), "C07", "gradient with a positive diagonal")


@pytest.mark.parametrize("shape", [(3, 2), (2, 2), (1, 4)])
def test_c07_other_shapes_agree_with_differences(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(len(shape) + shape[0])
    a, weights = rng.normal(size=shape), rng.normal(size=(min(shape), shape[1]))

    def f(x: Any) -> Any:
        return np.sum(weights * np.linalg.qr(x)[1] ** 2)

    h, direction = 1e-5, rng.normal(size=shape)
    difference = (f(a + h * direction) - f(a - h * direction)) / (2 * h)
    np.testing.assert_allclose(np.sum(ad.grad(f)(a) * direction), difference, rtol=1e-7)
