"""One wrong entry among many is caught and named, in at most forty calls of the function."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from checks.gradients.check import check_gradients

Array = np.ndarray[Any, Any]
FAULTS = {"sign": -1.0, "zero": 0.0, "double": 2.0, "0.1 % off": 1.001}
COUNT = 1000


def _softmax(x: Array) -> Array:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def _cases() -> dict[str, tuple[Callable[..., Any], tuple[Array, ...]]]:
    rng = np.random.default_rng(1)
    left, image = rng.normal(size=(8, 31)), rng.normal(size=(1, 4, 12, 12))
    inputs = rng.normal(size=(4, 21))
    weights = [rng.normal(size=s) / s[0] ** 0.5 for s in ((21, 21), (21, 21), (21, 4))]
    return {
        "elementwise": (np.sin, (rng.normal(size=COUNT),)),
        "matmul": (lambda w: left @ w, (rng.normal(size=(31, 32)),)),
        "softmax": (_softmax, (rng.normal(size=(10, 100)),)),
        "convolution": (lambda w: ad.ops.conv2d(image, w), (rng.normal(size=(27, 4, 3, 3)),)),
        "mlp": (lambda a, b, c: np.tanh(np.tanh(inputs @ a) @ b) @ c, tuple(weights)),
    }


CASES = _cases()


def _faulty(function: Callable[..., Any], place: tuple[int, int], factor: float) -> Any:
    def vjp(*args: Any) -> tuple[Array, ...]:
        *primals, ct = args
        gradients = [np.array(g) for g in ad.vjp(function, *primals)[1](ct)]
        gradients[place[0]].flat[place[1]] *= factor
        return tuple(gradients)

    return vjp


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", CASES)
def test_a_single_wrong_entry_is_named(name: str, fault: str) -> None:
    function, args = CASES[name]
    rng = np.random.default_rng(0)
    for seed in range(5):
        point = int(rng.integers(len(args)))
        number = int(rng.integers(args[point].size))
        vjp = _faulty(function, (point, number), FAULTS[fault])
        report = check_gradients(function, *args, vjp=vjp, modes=("reverse",), seed=seed)
        assert report.verdict == "WRONG"
        assert report.worst is not None
        assert report.worst.index == np.unravel_index(number, args[point].shape)
        assert report.evaluations <= 40
        assert report.worst.ratio == pytest.approx(FAULTS[fault], rel=1e-3, abs=1e-3)


def test_a_place_that_truncation_moved_is_looked_for_beside_it() -> None:
    x = np.random.default_rng(1).normal(size=100_000)
    vjp = _faulty(np.sin, (0, 67871), 0.0)
    report = check_gradients(np.sin, x, vjp=vjp, modes=("reverse",), seed=9, explain=False)
    assert report.worst is not None and report.worst.index == (67871,)
    assert report.evaluations <= 40


def test_a_wrong_entry_of_forward_mode_is_named() -> None:
    def jvp(primals: tuple[Array], tangents: tuple[Array]) -> Array:
        (x,), (t,) = primals, tangents
        dot = np.cos(x) * t
        dot[17] *= 1.01
        return dot

    report = check_gradients(np.sin, np.random.default_rng(0).normal(size=200), jvp=jvp)
    assert report.verdict == "WRONG" and report.worst is not None
    assert (report.worst.index, report.worst.output) == ((17,), "result 0[17]")


def test_a_right_gradient_of_many_entries_needs_few_calls() -> None:
    x = np.random.default_rng(0).normal(size=10_000)
    report = check_gradients(np.sin, x, vmap=False)
    assert report.ok and report.evaluations <= 20
