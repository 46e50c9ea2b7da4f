"""Products with exact zeros, and ties of clip and max."""

from typing import Any

import numpy as np
import pytest

from autodiff import ops
from tests.public_cases.roads import hold, slopes

LOW, HIGH = -1.0, 1.0
POINTS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("x", "what"),
    [
        ([0.0, 2.0, 3.0], "cumprod, first zero"),
        ([2.0, 3.0, 0.0], "cumprod, last zero"),
        ([2.0, 0.0, 0.0, 3.0], "cumprod, two zeros"),
        ([2.0, 0.0, 3.0, 4.0], "cumprod, middle zero"),
    ],
)
def test_a06_cumprod_with_exact_zeros(x: Any, what: str) -> None:
    hold(slopes(lambda v: np.sum(np.cumprod(v)), x), "A06", what)


def test_a06_prod_with_exact_zeros() -> None:
    hold(slopes(np.prod, [0.0, 2.0, 3.0]), "A06", "prod, first zero")
    for road, slope in slopes(np.prod, [0.0, 2.0, 0.0]).items():
        assert not np.any(slope), road


def composed(x: Any, low: Any, high: Any) -> Any:
    return np.minimum(np.maximum(x, low), high)


@pytest.mark.parametrize("clip", [np.clip, ops.clip, composed], ids=["numpy", "ops", "composed"])
def test_a10_clip_at_its_bounds_stays_between_the_one_sided_slopes(clip: Any) -> None:
    bounds = np.full(5, LOW), np.full(5, HIGH)
    by_argument = [
        {
            road: j.sum(axis=0)  # elementwise: column sums are the diagonal
            for road, j in slopes(clip, POINTS, *bounds, argnum=n).items()
        }
        for n in range(3)
    ]
    hold(by_argument[0], "A10", "clip in x")
    moved = {road: sum(found[road] for found in by_argument) for road in by_argument[0]}
    hold(moved, "A10", "clip moved as a whole")


def test_a10_two_spellings_of_clip_share_one_convention() -> None:
    def constant_bounds(x: Any) -> Any:
        return np.sum(np.clip(x, LOW, HIGH))

    expected = [0.0, 0.5, 1.0, 0.5, 0.0]  # the tie is shared, as in ARCHITECTURE.md
    for f in (constant_bounds, lambda x: np.sum(composed(x, LOW, HIGH))):
        for road, slope in slopes(f, POINTS).items():
            np.testing.assert_array_equal(slope, expected, err_msg=road)


@pytest.mark.parametrize(
    "largest", [np.max, ops.max, np.maximum.reduce], ids=["numpy", "ops", "reduce"]
)
def test_a10_max_shares_its_tie_and_the_total_is_one(largest: Any) -> None:
    found = slopes(largest, [3.0, 1.0, 3.0])
    hold(found, "A10", "max")
    hold({road: slope.sum() for road, slope in found.items()}, "A10", "max moved as a whole")
