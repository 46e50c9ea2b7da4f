"""Slips inside a rule: where they are found in its program, and what they compute."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autodiff.program import Program, Spec
from autodiff.trace import bind, program_of
from checks.power import edits

RNG = np.random.default_rng(5)


def traced(f: Callable[..., Any], *shapes: tuple[int, ...]) -> Program:
    return program_of(f, [Spec(s, np.dtype(np.float64)) for s in shapes])


def slipped(finder: edits.Finder, f: Callable[..., Any], known: int, *args: Any) -> list[Any]:
    """The first result of f under each slip that the finder sees."""
    program = traced(f, *(np.shape(a) for a in args))
    sites = list(finder(program, known))
    return [edits.run_slipped(program, list(args), site)[0] for site in sites]


def test_each_side_of_a_sum_of_linear_terms_is_dropped() -> None:
    x, s, t = RNG.normal(size=(3, 4))
    left, right = slipped(edits.dropped_summands, lambda x, s, t: (x + x) * s + t, 1, x, s, t)
    np.testing.assert_array_equal(left, t)
    np.testing.assert_array_equal(right, 2 * x * s)


def test_a_sum_of_known_values_is_no_site() -> None:
    x, t = RNG.normal(size=(2, 4))
    assert slipped(edits.dropped_summands, lambda x, t: (x + x) * t, 1, x, t) == []


def test_the_last_use_of_a_linear_value_is_lost() -> None:
    x, t = RNG.normal(size=(2, 4))
    (found,) = slipped(edits.lost_uses, lambda x, t: np.sin(x) * t + x * t, 1, x, t)
    np.testing.assert_array_equal(found, np.sin(x) * t)


def test_a_sum_over_broadcast_axes_takes_the_first_entry() -> None:
    t = RNG.normal(size=(2, 3))
    (found,) = slipped(edits.lost_sums, lambda t: bind("SUM_TO", t, shape=(3,)), 0, t)
    np.testing.assert_array_equal(found, t[0])
    (found,) = slipped(edits.lost_sums, lambda t: np.sum(t, axis=1), 0, t)
    np.testing.assert_array_equal(found, t[:, 0])
    assert slipped(edits.lost_sums, lambda t: np.sum(t, axis=0), 0, t[:1]) == []


def test_operands_are_exchanged_where_the_result_keeps_its_shape() -> None:
    x, y = RNG.normal(size=(2, 3)), RNG.normal(size=3)
    (found,) = slipped(edits.exchanged_operands, lambda x, y: x / y, 2, x, y)
    np.testing.assert_array_equal(found, y / x)
    a = RNG.normal(size=(2, 3))
    assert slipped(edits.exchanged_operands, lambda a, b: a @ b, 2, a, a.T) == []
    b, c = RNG.normal(size=(2, 3, 3))
    (found,) = slipped(edits.exchanged_operands, lambda a, b: a @ b, 1, b, c)
    np.testing.assert_array_equal(found, c @ b)


def test_a_quotient_by_a_linear_value_is_never_made() -> None:
    x, t = RNG.normal(size=(2, 3))
    assert slipped(edits.exchanged_operands, lambda x, t: t / x, 1, x, t) == []


def test_constants_are_off_and_zeros_are_something() -> None:
    x = RNG.normal(size=3)
    (found,) = slipped(edits.wrong_constants, lambda x: x * 2.0, 1, x)
    np.testing.assert_array_equal(found, x * 2.5)
    (found,) = slipped(edits.wrong_constants, lambda x: x + 0.0, 1, x)
    np.testing.assert_array_equal(found, x + 0.25)


def test_a_transpose_is_left_out_whatever_the_shape() -> None:
    x = RNG.normal(size=(2, 3))
    (found,) = slipped(edits.missing_transposes, lambda x: x.T, 1, x)
    np.testing.assert_array_equal(found, x.reshape(3, 2))
    (found,) = slipped(edits.missing_transposes, lambda x: x.T, 1, x @ x.T)
    np.testing.assert_array_equal(found, x @ x.T)


def test_a_flip_and_the_direction_of_a_scan_are_lost() -> None:
    x = RNG.normal(size=4)
    (found,) = slipped(edits.identity_permutations, lambda x: x[::-1] * 1.0, 1, x)
    np.testing.assert_array_equal(found, x)
    scan = "CUMSUM"
    (found,) = slipped(
        edits.identity_permutations, lambda x: bind(scan, x, axis=0, reverse=False), 1, x
    )
    np.testing.assert_allclose(found, np.cumsum(x[::-1])[::-1], rtol=1e-15)


def test_an_axis_is_off_by_one_where_the_entries_are_as_many() -> None:
    x = RNG.normal(size=(3, 3))
    (found,) = slipped(edits.wrong_axes, lambda x: np.cumsum(x, axis=0), 1, x)
    np.testing.assert_array_equal(found, np.cumsum(x, axis=1))
    assert slipped(edits.wrong_axes, lambda x: np.sum(x, axis=0), 1, x[:2]) == []
    assert slipped(edits.wrong_axes, lambda x: np.cumsum(x, axis=0), 1, x[0]) == []


@pytest.mark.parametrize(
    ("axis", "step", "expected"), [(0, 1, 1), (2, 1, 0), (0, -1, 2), ((0, 2), 1, (0, 1))]
)
def test_axes_are_shifted_around(axis: Any, step: int, expected: Any) -> None:
    assert edits.shifted_axis({"axis": axis, "k": 1}, 3, step) == {"axis": expected, "k": 1}


def test_axes_that_stay_are_no_shift() -> None:
    assert edits.shifted_axis({"axis": (0, 1)}, 2, 1) is None
    assert edits.shifted_axis({"axis": None}, 2, 1) is None
