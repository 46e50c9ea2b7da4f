"""What a gradient check must judge right: scales, kinks, domains, noise, non-gradients.

The scale and kink cases are the ones at which other checkers alarm or pass wrongly.
"""

from typing import Any

import numpy as np
import pytest

from checks.gradients.check import check_gradients

Array = np.ndarray[Any, Any]

SCALES: dict[str, tuple[Any, float]] = {
    "square at 1e9": (lambda x: x**2, 1e9),
    "log at 1e-7": (np.log, 1e-7),
    "sqrt at 1e-6": (np.sqrt, 1e-6),
    "1e8 + sin at 1": (lambda x: 1e8 + np.sin(x), 1.0),
    "log at 1e-3": (np.log, 1e-3),
    "reciprocal at 1e-3": (lambda x: 1 / x, 1e-3),
    "sin(1e4 x) at 0.3": (lambda x: np.sin(1e4 * x), 0.3),
    "exp at 20": (np.exp, 20.0),
    "cube at 1e-8": (lambda x: x**3, 1e-8),
    "relu at 5e-7": (lambda x: np.maximum(x, 0), 5e-7),
}
KINKS: dict[str, tuple[Any, float]] = {
    "relu at 0": (lambda x: np.maximum(x, 0), 0.0),
    "abs at 0": (np.abs, 0.0),
    "clamp at its limit": (lambda x: np.clip(x, -1, 1), 1.0),
    "floor at 4": (np.floor, 4.0),
}


@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("seed", range(5))
def test_right_gradients_pass_at_every_scale(name: str, seed: int) -> None:
    function, x = SCALES[name]
    report = check_gradients(function, np.array(x), seed=seed)
    assert report.verdict == "PASS", str(report)
    assert report.detectable < 1e-3


@pytest.mark.parametrize("factor", [2.0, -1.0, 0.0, 1.001])
@pytest.mark.parametrize("name", [n for n in SCALES if n != "1e8 + sin at 1"])
def test_wrong_gradients_fail_at_every_scale(name: str, factor: float) -> None:
    function, x = SCALES[name]
    right = check_gradients(function, np.array(x))

    def gradient(value: Array) -> Array:
        import autodiff as ad

        return factor * ad.grad(function)(value)

    report = check_gradients(function, np.array(x), gradient=gradient)
    assert right.ok and report.verdict == "WRONG"
    assert report.worst is not None and report.worst.argument == "x"
    assert report.worst.ratio == pytest.approx(factor, rel=1e-4, abs=1e-4)


def test_the_doubled_gradient_of_a_small_function_is_wrong() -> None:
    report = check_gradients(
        lambda x: 1e-6 * np.sin(x), np.array(1.0), gradient=lambda x: 2e-6 * np.cos(x)
    )
    assert report.verdict == "WRONG"


@pytest.mark.parametrize("name", KINKS)
@pytest.mark.parametrize("seed", range(5))
def test_kinks_are_named_and_fail_unless_allowed(name: str, seed: int) -> None:
    function, x = KINKS[name]
    report = check_gradients(function, np.array(x), seed=seed)
    assert (report.verdict, report.ok) == ("KINK", False)
    assert check_gradients(function, np.array(x), seed=seed, allow=("kinks",)).ok


def test_a_kink_shows_both_slopes_and_the_convention() -> None:
    worst = check_gradients(np.abs, np.array(0.0)).worst
    assert worst is not None
    assert (worst.left, worst.right) == (pytest.approx(-1.0), pytest.approx(1.0))
    assert worst.derivative == 0.0


@pytest.mark.parametrize("slope", [-0.1, 1.2, np.nan])
def test_outside_the_one_sided_slopes_a_kink_is_wrong(slope: float) -> None:
    report = check_gradients(
        lambda x: np.sum(np.maximum(x, 0)),
        np.array([1.0, 0.0, -2.0]),
        gradient=lambda x: np.where(x > 0, 1.0, np.where(x == 0, slope, 0.0)),
        allow=("kinks",),
    )
    assert report.verdict == "WRONG"
    assert report.worst is not None and report.worst.index == (1,)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (1.0, 0.0), (0.25, 0.75)])
def test_shares_of_a_tie_add_up(shares: tuple[float, float]) -> None:
    def gradient(x: Array) -> Array:
        return np.array([0.0, *shares, 0.0])

    x = np.array([1.0, 2.0, 2.0, 1.5])
    assert check_gradients(np.max, x, gradient=gradient, allow=("kinks",)).ok


def test_shares_of_a_tie_that_do_not_add_up_are_wrong() -> None:
    report = check_gradients(
        np.max,
        np.array([1.0, 2.0, 2.0, 1.5]),
        gradient=lambda x: np.array([0.0, 1.0, 1.0, 0.0]),
        allow=("kinks",),
    )
    assert report.verdict == "WRONG"


@pytest.mark.parametrize("x", [1.2, 1.0])
def test_outside_the_domain(x: float) -> None:
    assert check_gradients(np.arcsin, np.array(x)).verdict == "DOMAIN"


def test_the_domains_end_is_judged_from_one_side() -> None:
    def function(x: Array) -> Any:
        return np.sum(np.where(x <= 1.0, (1 - x) ** 2 + 3 * x, np.nan))

    report = check_gradients(function, np.array([0.3, 1.0, -0.5]), vmap=False)
    assert report.verdict == "PASS", str(report)
    assert any("x[1] = 1" in note and "one side" in note for note in report.notes)


def test_a_wrong_gradient_at_the_domains_end_fails() -> None:
    def gradient(x: Array) -> Array:
        return np.where(x == 1.0, -0.3, -1.5 * np.sqrt(np.maximum(1 - x, 0)))

    report = check_gradients(
        lambda x: np.sum(np.sqrt(1 - x) ** 3), np.array([0.3, 1.0, -0.5]), gradient=gradient
    )
    assert report.verdict == "DOMAIN" and not report.ok


def test_dropout_is_nondeterministic() -> None:
    rng = np.random.default_rng(0)
    report = check_gradients(lambda x: x * (rng.random(x.shape) > 0.5), np.ones(20))
    assert report.verdict == "NONDETERMINISTIC"


def test_writing_into_an_argument_is_named() -> None:
    def function(x: Array, n: Array) -> Any:
        n += 1
        return np.sum(x)

    report = check_gradients(function, np.ones(3), np.arange(4), gradient=lambda x, n: np.ones(3))
    assert report.verdict == "MUTATES_INPUT"
    assert "writes into n: 4 of 4" in report.checks[0].detail


def test_the_callers_arrays_are_left_alone() -> None:
    x = np.linspace(1.0, 2.0, 5)
    before = x.copy()

    def function(x: Array) -> Any:
        x *= 2
        return np.sum(x)

    assert check_gradients(function, x, gradient=lambda x: x).verdict == "MUTATES_INPUT"
    assert np.array_equal(x, before)


def test_the_sum_of_a_softmax_is_vacuous() -> None:
    def function(x: Array) -> Any:
        e = np.exp(x - np.max(x))
        return np.sum(e / np.sum(e))

    x = np.random.default_rng(0).normal(size=20)
    report = check_gradients(function, x)
    assert (report.verdict, report.ok) == ("VACUOUS", False)
    assert check_gradients(function, x, allow=("vacuous",)).ok


@pytest.mark.parametrize(
    ("gradient", "verdict"),
    [
        (lambda x: np.ones(4), "WRONG_SHAPE"),
        (lambda x: (np.ones(3), np.ones(3)), "WRONG_SHAPE"),
        (lambda x: np.ones(3, np.float32), "WRONG_DTYPE"),
    ],
    ids=["shape", "count", "dtype"],
)
def test_shape_and_dtype(gradient: Any, verdict: str) -> None:
    assert check_gradients(np.sum, np.ones(3), gradient=gradient).verdict == verdict


def test_an_integer_result_is_not_differentiable() -> None:
    report = check_gradients(lambda x: np.argmax(x), np.array([1.0, 3.0]))
    assert report.verdict == "NOT_DIFFERENTIABLE"


def test_a_pullback_that_writes_into_its_cotangent() -> None:
    def vjp(x: Array, ct: Array) -> tuple[Array]:
        ct *= np.cos(x)
        return (ct,)

    assert check_gradients(np.sin, np.ones(3), vjp=vjp).verdict == "MUTATES_INPUT"


def test_derivatives_that_write_into_their_arguments() -> None:
    def gradient(x: Array) -> Array:
        x *= 2
        return x

    assert check_gradients(lambda x: np.sum(x * x), np.ones(3), gradient=gradient).verdict == (
        "MUTATES_INPUT"
    )

    def vjp(x: Array, ct: Array) -> Array:
        x += 1
        return ct * np.cos(x - 1)

    assert check_gradients(np.sin, np.ones(3), vjp=vjp).verdict == "MUTATES_INPUT"


def test_gradients_that_share_memory_are_noted() -> None:
    def both(x: Array, y: Array, ct: Array) -> tuple[Array, Array]:
        return ct, ct

    report = check_gradients(lambda x, y: x + y, np.ones(3), np.ones(3), vjp=both)
    assert report.ok
    assert "the gradient of y shares memory with that of x: return a copy" in report.notes
    same = check_gradients(lambda x: np.sum(x * x) / 2, np.ones(3), gradient=lambda x: x)
    assert same.ok and any("with the argument x" in note for note in same.notes)


def test_float32_inside_is_no_false_alarm() -> None:
    def function(x: Array) -> Any:
        return np.sum(np.sin(x.astype(np.float32)) ** 2).astype(np.float64)

    for seed in range(10):
        report = check_gradients(function, np.random.default_rng(seed).normal(size=50))
        assert report.verdict in ("PASS", "INCONCLUSIVE"), str(report)


@pytest.mark.parametrize("offset", [1e6, 1e10])
def test_cancellation_is_no_false_alarm(offset: float) -> None:
    for seed in range(10):
        x = np.random.default_rng(seed).normal(size=50)
        report = check_gradients(lambda x: np.sum(np.exp(x)) + offset - offset, x)
        assert report.verdict in ("PASS", "INCONCLUSIVE"), str(report)


def test_noise_that_hides_everything_is_inconclusive() -> None:
    def function(x: Array) -> Any:
        return np.sum(np.sin(x)) * 1e-9 + 1e8

    report = check_gradients(function, np.ones(3), gradient=lambda x: 1e-9 * np.cos(x))
    assert report.verdict in ("INCONCLUSIVE", "VACUOUS") and not report.ok


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.sort(x) ** 2,
        lambda x: np.clip(np.sin(3 * x), -0.5, 0.5),
        lambda x: np.tan(x / 3),
        lambda x: np.max(x.reshape(5, 10), axis=0),
        lambda x: np.sin(100 * x) / x,
        lambda x: np.linalg.inv(x[:49].reshape(7, 7)),
    ],
    ids=["sort", "clip", "tan", "max", "oscillation", "inv"],
)
def test_kinks_between_the_steps_are_no_false_alarm(function: Any) -> None:
    for seed in range(10):
        x = np.random.default_rng(seed).normal(size=50)
        report = check_gradients(function, x, seed=seed, vmap=False)
        assert report.verdict == "PASS", str(report)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_narrow_dtypes_are_held_against_float64(dtype: Any) -> None:
    x = np.random.default_rng(0).normal(size=50).astype(dtype)
    report = check_gradients(lambda x: np.sum(np.sin(x) ** 2), x)
    assert report.verdict == "PASS", str(report)
    assert any("float64" in note for note in report.notes)

    def gradient(x: Array) -> Array:
        return (2.2 * np.sin(x) * np.cos(x)).astype(dtype)

    assert (
        check_gradients(lambda x: np.sum(np.sin(x) ** 2), x, gradient=gradient).verdict == "WRONG"
    )


def test_ordinary_arguments() -> None:
    """Pytrees, 0-d, integers, bools, empty, broadcasting, strides and views in one call."""
    rng = np.random.default_rng(0)

    def function(params: Any, x: Array, count: Array, mask: Array, nothing: Array) -> Any:
        y = np.where(mask, x @ params["w"] + params["b"], 0.0) * count
        return {"y": y, "s": np.sum(nothing) + np.sum(y**2)}

    params = {"w": rng.normal(size=(6, 4))[::2], "b": np.array(0.5)}
    overlapping = np.broadcast_to(rng.normal(size=3), (2, 3))
    mask = np.array([[True, False, True, True]] * 2)
    report = check_gradients(
        function, params, overlapping, np.array(3), mask, np.zeros((0, 2)), order=2
    )
    assert report.ok, str(report)


def test_complex_functions() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=5) + 1j * rng.normal(size=5)
    assert check_gradients(lambda z: np.sin(z) * np.exp(1j), z).ok
    assert check_gradients(lambda z: np.sum(np.abs(z) ** 2), z).ok
    report = check_gradients(lambda z: np.sum(np.abs(z) ** 2), z, gradient=lambda z: 2 * z)
    assert report.verdict == "WRONG"  # the convention here is 2 conj(z)


def test_symmetric_arguments() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(4, 4))
    spd = a @ a.T + 4 * np.eye(4)
    assert check_gradients(np.linalg.cholesky, spd, symmetric=(0,), vmap=False).ok


@pytest.mark.parametrize("offset", [1e4, 1e6, 1e8])
def test_data_with_an_offset(offset: float) -> None:
    """Steps relative to the entries would leave what the function sees: the spread decides."""

    def normalised(v: Array) -> Any:
        c = v - np.mean(v)
        return np.sum(np.arange(1.0, 6.0) * c / np.sqrt(np.mean(c**2)))

    for seed in range(5):
        v = offset + np.random.default_rng(seed).normal(size=5)
        report = check_gradients(normalised, v, seed=seed, vmap=False)
        assert report.verdict == "PASS", str(report)
        assert report.detectable < 1e-2

        def doubled(v: Array) -> Array:
            import autodiff as ad

            return 2 * ad.grad(normalised)(v)

        assert check_gradients(normalised, v, gradient=doubled, seed=seed).verdict == "WRONG"
