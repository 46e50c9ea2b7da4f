"""Differences: steps that are blind to a function, and round-off of the points themselves."""

from typing import Any

import numpy as np

from checks.differences import directional


def test_a_ladder_of_whole_periods_is_not_believed() -> None:
    """Steps of 144, 72, 36 ... periods see the slope of the part that does not oscillate."""
    x, period = np.array([1e4]), 2 * np.pi
    along = np.array([1440.0 * period])

    def f(v: Any) -> Any:
        return [np.cos(v) + 1e-3 * v]

    (found,) = directional(f, [x], [along])
    want = along * (1e-3 - np.sin(x))
    assert abs(found.value - want)[0] <= 20 * found.estimate[0]
    assert found.estimate[0] < 1e-5 * abs(want[0])


def test_a_smooth_function_needs_no_second_ladder() -> None:
    calls = []

    def f(v: Any) -> Any:
        calls.append(v)
        return [np.exp(v)]

    (found,) = directional(f, [np.array([0.5])], [np.array([0.5])])
    assert len(calls) <= 15
    assert abs(found.value - 0.5 * np.exp(0.5))[0] <= 20 * found.estimate[0] < 1e-9


def test_the_estimate_knows_that_points_are_rounded() -> None:
    """Near 1e6 the difference of two entries moves by multiples of 1e-10."""
    rng = np.random.default_rng(3)
    x = 1e6 + rng.normal(size=5)
    for _ in range(200):
        t, w = 1e6 * rng.normal(size=5), rng.normal(size=5)

        def f(v: Any) -> Any:
            centred = v - np.mean(v)
            return [np.sum(w * centred / np.sqrt(np.mean(centred**2)))]  # noqa: B023

        (found,) = directional(f, [x], [t])
        c = x - np.mean(x)
        s = np.sqrt(np.mean(c**2))
        ct = t - np.mean(t)
        want = np.sum(w * (ct / s - c * np.mean(c * ct) / s**3))
        assert abs(found.value - want) <= 20 * found.estimate
