"""Elementwise functions at their special points: where, roots, powers, logarithms, the far ends."""

from typing import Any

import numpy as np
import pytest
import scipy.special as special

import autodiff as ad
from autodiff import ops
from tests.public_cases.cases import right
from tests.public_cases.roads import hold, slopes, values

INF = float("inf")


def root_of_minus(x: Any) -> Any:
    return np.where(x >= 0, x, np.sqrt(-x))


def root_where_unused(x: Any) -> Any:
    return np.where(x < 1, x, np.sqrt(x))


def log_of_minus(x: Any) -> Any:
    return np.where(x >= 0, x, np.log(-x))


@pytest.mark.parametrize(
    ("f", "x", "what"),
    [
        (root_of_minus, 1.0, "slope of f1 at 1"),
        (root_where_unused, 0.0, "slope of f2 at 0"),
        (log_of_minus, 1.0, "slope of f3 at 1"),
    ],
)
def test_a01_the_unselected_branch_does_not_count(f: Any, x: float, what: str) -> None:
    hold(slopes(f, x), "A01", what)


def test_a01_second_derivatives_are_clean_too() -> None:
    assert ad.grad(ad.grad(root_of_minus))(1.0) == 0
    assert ad.grad(ad.grad(lambda x: root_where_unused(x) ** 2))(0.0) == 2


def test_a02_squared_norm_is_smooth_at_the_origin() -> None:
    for norm in (np.linalg.norm, ops.norm):
        found = slopes(lambda x, norm=norm: norm(x) ** 2, [0.0, 0.0])
        hold(found, "A02", "gradient of norm squared at 0")


def test_a02_std_of_one_element_is_flat_and_of_equals_has_a_stated_slope() -> None:
    hold(slopes(np.std, [-0.83]), "A02", "gradient of std of one")
    found = slopes(np.std, [1.0, 1.0])
    hold(found, "A02", "gradient of std of equals")
    for slope in found.values():  # t (0.5, -0.5), |t| <= 1
        assert slope[0] == -slope[1] and abs(slope[0]) <= 0.5


def test_a03_slopes_in_the_exponent() -> None:
    found = slopes(lambda a, b: np.sum(a**b), [0.0, 2.0], [1.0, 1.0], argnum=1)
    hold(found, "A03", "slopes in the exponent")


@pytest.mark.parametrize("traced", [False, True], ids=["constant", "traced"])
def test_a03_slope_in_the_base_for_every_kind_of_exponent(traced: bool) -> None:
    for exponent, want in right("A03", "slope in the base, by exponent").value.items():
        e = float(exponent)
        if traced:
            found = slopes(lambda a, b: a**b, 0.0, e)
        else:
            found = slopes(lambda a, e=e: a**e, 0.0)
        for road, slope in found.items():
            assert slope == float(want), (exponent, road, slope)


def test_a05_the_guard_of_x_log_y_is_not_in_its_slope() -> None:
    hold(slopes(special.xlogy, 0.0, 2.0), "A05", "xlogy in x at (0, 2)")
    hold(slopes(special.xlog1py, 0.0, 1.0), "A05", "xlog1py in x at (0, 1)")
    hold(slopes(special.xlogy, 0.0, 2.0, argnum=1), "A05", "xlogy in y at (0, 2)")


def test_a05_the_slope_at_the_corner_is_the_limit() -> None:
    accepted = right("A05", "xlogy in x at (0, 0)").one_of
    assert accepted is not None and "-inf" in accepted  # "undefined" is the other choice
    for road, slope in slopes(special.xlogy, 0.0, 0.0).items():
        assert slope == -INF, road
    for road, slope in slopes(lambda x: special.xlogy(x, x), 0.0).items():
        assert slope == -INF, road


def test_a08_inverse_hyperbolic_slopes_at_the_far_end_of_float32() -> None:
    for f, what in ((np.arcsinh, "arcsinh at 1e22"), (np.arccosh, "arccosh at 1e22")):
        found = slopes(f, np.float32(1e22))
        hold(found, "A08", what)
        assert found["reverse"].dtype == np.float32


@pytest.mark.parametrize(
    "softplus",
    [lambda x: ops.softplus(5.0 * x) / 5.0, lambda x: np.logaddexp(0.0, 5.0 * x) / 5.0],
    ids=["softplus", "logaddexp"],
)
def test_a08_softplus_far_out(softplus: Any) -> None:
    x = np.array([20.0, 50.0, 100.0], np.float32)
    hold(values(softplus, x), "A08", "softplus values")
    diagonals = {road: np.diagonal(j) for road, j in slopes(softplus, x).items()}
    hold(diagonals, "A08", "softplus slopes")


def test_a08_the_spike_slope_by_sigmoid_never_divides_infinities() -> None:
    for z in (-200.0, 200.0):
        for road, slope in slopes(ops.sigmoid, np.float32(z)).items():
            assert np.isfinite(slope) and 0 <= slope <= 1e-30, road
