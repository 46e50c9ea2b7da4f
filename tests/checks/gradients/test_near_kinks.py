"""Points close to a kink, functions that vary faster than a step: finer steps decide."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from checks.gradients.check import check_gradients

Array = np.ndarray[Any, Any]
GAPS = (1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


def beside(seed: int, gap: float) -> Array:
    return np.append(np.random.default_rng(seed).uniform(-3, 3, 4), 1 + gap)


def with_runner_up(seed: int, gap: float) -> Array:
    x = np.random.default_rng(seed).uniform(0.5, 1, 5)
    x[1] = np.delete(x, 1).max() + gap
    return x


def hinge(x: Array) -> Any:
    return np.sum(np.maximum(x - 1, 0))


def distance(x: Array) -> Any:
    return np.sum(np.abs(x - 1))


CASES: dict[str, tuple[Any, Any]] = {
    "max": (np.max, with_runner_up),
    "relu": (hinge, beside),
    "abs": (distance, beside),
}
SLOPES: dict[str, Any] = {
    "max": lambda x: 1.0 * (x == np.max(x)),
    "relu": lambda x: 1.0 * (x > 1),
    "abs": lambda x: np.sign(x - 1),
}


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("name", CASES)
def test_a_right_gradient_beside_a_kink_passes(name: str, gap: float) -> None:
    function, point = CASES[name]
    for seed in range(3):
        report = check_gradients(function, point(seed, gap), vmap=False, explain=False)
        assert report.verdict == "PASS", str(report)


@pytest.mark.parametrize("gap", [1e-13, 1e-12])
@pytest.mark.parametrize("name", CASES)
def test_nearer_than_any_step_it_is_a_kink(name: str, gap: float) -> None:
    function, point = CASES[name]
    report = check_gradients(function, point(0, gap), vmap=False, explain=False)
    assert report.verdict == "KINK", str(report)
    assert report.worst is not None and report.worst.left is not None
    assert "outside" not in str(report)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("name", CASES)
def test_the_slope_of_the_other_side_is_wrong(name: str, gap: float) -> None:
    function, point = CASES[name]

    def other(x: Array) -> Array:
        found = SLOPES[name](x)
        if name == "max":
            return np.roll(found, np.argsort(x)[-2] - np.argmax(x))
        return np.append(found[:-1], {"relu": 0.0, "abs": -1.0}[name])

    report = check_gradients(function, point(1, gap), gradient=other, vmap=False, explain=False)
    assert report.verdict == "WRONG", str(report)


@pytest.mark.parametrize("frequency", [1e4, 1e5, 1e6, 1e8])
@pytest.mark.parametrize("factor", [1.0, 2.0, -1.0])
def test_functions_faster_than_a_step(frequency: float, factor: float) -> None:
    x = np.random.default_rng(0).normal(size=5)
    report = check_gradients(
        lambda x: np.sum(np.sin(frequency * x)),
        x,
        gradient=lambda x: factor * frequency * np.cos(frequency * x),
        explain=False,
    )
    assert report.verdict == ("PASS" if factor == 1 else "WRONG"), str(report)
    assert report.verdict == "WRONG" or report.detectable < 0.1


@pytest.mark.parametrize("width", [1e-6, 1e-8])
@pytest.mark.parametrize("factor", [1.0, 2.0, 0.0])
def test_features_narrower_than_a_step(width: float, factor: float) -> None:
    def bump(x: Array) -> Any:
        return np.exp(-0.5 * ((x[0] - 1) / width) ** 2)

    def gradient(x: Array) -> Array:
        return np.array([-factor * (x[0] - 1) / width**2 * bump(x)])

    report = check_gradients(bump, np.array([1 + width]), gradient=gradient, explain=False)
    assert report.verdict == ("PASS" if factor == 1 else "WRONG"), str(report)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_fine_steps_lost_to_rounding_inside_prove_nothing(dtype: Any) -> None:
    """Where arithmetic inside is coarse, the finest differences are zero: a zeroed gradient must
    not be taken for right there.
    """
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x, y, w = rng.normal(size=6), rng.normal(size=4), rng.normal(size=6)

        def mixed(x: Array, y: Array, w: Array = w) -> Any:
            inner = np.asarray(np.asarray(x, dtype) * dtype(1.25), np.float64)
            return np.sum(np.sin(inner) * w) + np.sum(np.exp(y))

        report = check_gradients(
            mixed, x, y, gradient=lambda x, y: (0 * x, np.exp(y)), vmap=False, explain=False
        )
        assert report.verdict in ("WRONG", "INCONCLUSIVE"), str(report)


def test_the_dot_test_of_a_function_with_float32_inside_stays_sharp() -> None:
    def single(x: Array) -> Any:
        return np.sum(np.asarray(np.sin(np.asarray(x, np.float32)), np.float64) ** 2)

    report = check_gradients(
        single,
        np.random.default_rng(0).normal(size=6),
        vjp=lambda x, ct: (ct * np.sin(2 * x),),
        jvp=lambda x, t: np.sum(1.0001 * np.sin(2 * x[0]) * t[0]),
        full=False,
        explain=False,
    )
    assert {c.name: c.verdict for c in report.checks}["dot"] == "WRONG", str(report)


@pytest.mark.parametrize("small", [1e-12, 1e-10, 1e-9, 1e-7])
@pytest.mark.parametrize("slope", [-1.0, 0.0, 1.0])
def test_small_arguments_beside_large_ones_are_looked_at_alone(small: float, slope: float) -> None:
    """Steps are relative, so an argument of 1e-9 moves the result little: its share of a direction
    is below the tolerance, its own derivative is not.
    """
    report = check_gradients(
        lambda x: np.sum(np.abs(x)),
        np.array([small, 1.0, -2.0]),
        gradient=lambda x: np.array([slope, 1.0, -1.0]),
        explain=False,
    )
    assert report.verdict == ("PASS" if slope == 1 else "WRONG"), str(report)
    assert slope == 1 or (report.worst is not None and report.worst.index == (0,))


@pytest.mark.parametrize("other", [1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("slope", [-0.5, 0.0, 0.5])
def test_a_kink_at_the_point_stays_one_beside_another(slope: float, other: float) -> None:
    """Fine steps agree on the mean of the slopes, yet the sides differ."""
    report = check_gradients(
        lambda x: np.sum(np.abs(x) + np.abs(x - other)),
        np.array([0.0]),
        gradient=lambda x: np.full_like(x, slope - 1),
        explain=False,
    )
    assert report.verdict == "KINK", str(report)


@pytest.mark.parametrize("gap", [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3])
def test_on_one_of_two_kinks_any_slope_between_its_sides_is_one(gap: float) -> None:
    """|x - 1| + |x - 1 - gap| at 1: -2 on the left, 0 on the right as far as the gap."""
    x = np.array([0.3, 1.0, -2.0])

    def pair(x: Array) -> Any:
        return np.sum(np.abs(x - 1) + np.abs(x - 1 - gap))

    own = check_gradients(pair, x, vmap=False, explain=False)
    assert own.verdict == "KINK", str(own)
    for slope, verdict in ((-2, "KINK"), (-1, "KINK"), (0, "KINK"), (0.5, "WRONG"), (-3, "WRONG")):

        def claimed(x: Array, slope: float = slope) -> Array:
            return np.where(x == 1, slope, np.sign(x - 1) + np.sign(x - 1 - gap))

        report = check_gradients(pair, x, gradient=claimed, vmap=False, explain=False)
        assert report.verdict == verdict, str(report)


@pytest.mark.parametrize("count", [40, 200])
@pytest.mark.parametrize("gap", [1e-9, 1e-6, 1e-4])
def test_the_mean_of_both_slopes_beside_a_kink_does_not_pass_among_many(
    count: int, gap: float
) -> None:
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=count) * 2
        x[3] = 1 + gap

        def mean(x: Array) -> Array:
            return np.where(np.arange(x.size) == 3, 0, np.sign(x - 1))

        report = check_gradients(distance, x, gradient=mean, seed=seed, vmap=False, explain=False)
        assert report.verdict in ("WRONG", "INCONCLUSIVE"), str(report)
        own = check_gradients(distance, x, seed=seed, vmap=False, explain=False)
        assert own.verdict in ("PASS", "INCONCLUSIVE"), str(own)


@pytest.mark.parametrize("count", [5, 40, 200])
def test_entries_far_smaller_than_the_others_are_looked_at_alone(count: int) -> None:
    def claims(slope: float) -> Any:
        return lambda x: np.where(np.arange(x.size) == 3, slope, np.sign(x))

    def verdicts(at: float, slopes: tuple[float, ...]) -> set[str]:
        x = np.random.default_rng(count).normal(size=count)
        x[3] = at
        return {
            check_gradients(
                lambda x: np.sum(np.abs(x)), x, gradient=claims(s), vmap=False, explain=False
            ).verdict
            for s in slopes
        }

    assert verdicts(1e-9, (-1.0, 0.0, 0.5)) == {"WRONG"}
    assert verdicts(1e-9, (1.0,)) == {"PASS"}
    assert verdicts(1e-13, (1.0,)) <= {"KINK", "PASS"}  # nearer than most steps can tell
    assert verdicts(1e-13, (-1.0,)) <= {"KINK", "WRONG"}
    assert verdicts(1e-13, (1.5, -2.0)) == {"WRONG"}


@pytest.mark.parametrize("function", [np.log, np.sqrt, np.sin, np.square, np.tanh, np.exp])
def test_tiny_entries_of_smooth_functions_pass(function: Any) -> None:
    for tiny in (1e-13, 1e-10, 1e-7):
        x = np.abs(np.random.default_rng(0).normal(size=40)) + 0.5
        x[3] = tiny
        report = check_gradients(lambda x: np.sum(function(x)), x, vmap=False, explain=False)
        assert report.verdict == "PASS", str(report)
