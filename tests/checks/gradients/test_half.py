"""float16 and bfloat16: right functions are never accused, wrong ones not excused."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from checks.gradients.check import check_gradients

Array = np.ndarray[Any, Any]
HALVES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
QUICK: dict[str, Any] = {"vmap": False, "explain": False}
FRAMEWORKS = ("numpy", "jax", "torch")


def cast(framework: str, name: str) -> Callable[[Any], Any]:
    """x -> x in a dtype of a framework."""
    if framework == "numpy":
        dtype = HALVES.get(name, name)
        return lambda x: x.astype(dtype)
    if framework == "jax":
        return lambda x: x.astype(name)
    torch = pytest.importorskip("torch")
    return lambda x: x.to(getattr(torch, name))


def library(framework: str) -> Any:
    if framework == "numpy":
        return np
    return pytest.importorskip("torch" if framework == "torch" else "jax.numpy")


def gelu(xp: Any, x: Any) -> Any:
    return 0.5 * x * (1 + xp.tanh(x + 0.045 * x * x * x))


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x)
    return e / xp.sum(e, -1)[..., None]


def deviation(xp: Any, x: Any) -> Any:
    off = x - xp.sum(x, -1)[..., None] / x.shape[-1]
    return off / xp.sqrt(xp.sum(off * off, -1)[..., None] + 0.01)


def product(xp: Any, x: Any) -> Any:
    return x @ x.T


def given(framework: str, values: Array, name: str) -> Any:
    if framework == "numpy":
        return values.astype(HALVES.get(name, name))
    if framework == "torch":
        torch = pytest.importorskip("torch")
        return torch.tensor(values, dtype=getattr(torch, name))
    import jax

    with jax.enable_x64(True):
        return jax.numpy.asarray(values, name)


FUNCTIONS = {f.__name__: f for f in (gelu, softmax, deviation, product)}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_half_precision_inside_accuses_nobody(name: str, framework: str, half: str) -> None:
    xp, down = library(framework), cast(framework, half)
    up = cast(framework, "float64")

    def function(x: Any) -> Any:
        return up(FUNCTIONS[name](xp, down(x)))

    for seed in range(4):
        x = given(framework, np.random.default_rng(seed).normal(size=(3, 4)), "float64")
        report = check_gradients(function, x, seed=seed, framework=framework, **QUICK)
        assert report.verdict in ("PASS", "INCONCLUSIVE"), str(report)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_functions_of_half_precision_pass(name: str, framework: str, half: str) -> None:
    xp = library(framework)
    for seed in range(2):
        x = given(framework, np.random.default_rng(seed).normal(size=(3, 4)), half)
        report = check_gradients(
            lambda x: FUNCTIONS[name](xp, x), x, seed=seed, framework=framework, **QUICK
        )
        assert report.verdict == "PASS", str(report)
        assert any("at float64 the derivative is right" in n for n in report.notes), str(report)


def test_stairs_of_sums_that_cancel_are_no_slope() -> None:
    """1 + tanh in bfloat16 has stairs wider than the steps, whose slopes agree with one another."""
    dtype = ml_dtypes.bfloat16

    def function(x: Array) -> Any:
        return gelu(np, x.astype(dtype)).astype(np.float64)

    x = np.random.default_rng(2).normal(size=(3, 4))
    report = check_gradients(function, x, seed=2, name="gelu", **QUICK)
    assert report.verdict == "INCONCLUSIVE", str(report)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("factor", [1.001, 1.02, 1.05, 1.1])
def test_a_wrong_derivative_of_half_precision_is_wrong(factor: float, half: str) -> None:
    def gradient(x: Array) -> Array:
        return (factor * np.cos(x)).astype(x.dtype)

    for seed in range(5):
        x = np.random.default_rng(seed).normal(size=40).astype(HALVES[half])
        report = check_gradients(
            lambda x: np.sum(np.sin(x)), x, gradient=gradient, seed=seed, **QUICK
        )
        assert report.verdict == "WRONG", str(report)
        assert "at float64" in str(report)


@pytest.mark.parametrize("half", HALVES)
def test_a_backward_two_percent_off_is_wrong_and_the_factor_is_named(half: str) -> None:
    torch = pytest.importorskip("torch")

    class Silu(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return torch.nn.functional.silu(x)

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            s = x.sigmoid()
            return 1.02 * ct * s * (1 + x * (1 - s))

    x = given("torch", np.random.default_rng(0).normal(size=(3, 4)), half)
    report = check_gradients(Silu.apply, x)
    assert report.verdict == "WRONG", str(report)
    assert report.cause is not None and report.cause.name == "factor" and "1.02" in str(report)


def test_a_forward_rule_two_percent_off_is_wrong() -> None:
    jax = pytest.importorskip("jax")
    sine = jax.custom_jvp(jax.numpy.sin)
    sine.defjvp(
        lambda x, t: (jax.numpy.sin(x[0]), (1.02 * t[0] * jax.numpy.cos(x[0])).astype(t[0].dtype))
    )
    x = given("jax", np.random.default_rng(0).normal(size=40), "bfloat16")
    report = check_gradients(sine, x, modes="forward", **QUICK)
    assert report.verdict == "WRONG", str(report)


def test_one_wrong_entry_of_the_jacobian_is_wrong_in_half_precision_too() -> None:
    def vjp(x: Array, ct: Array) -> tuple[Array]:
        one = (np.arange(6) == 4) & (np.count_nonzero(ct) == 1)
        return ((2 * x * ct * np.where(one, 1.02, 1)).astype(x.dtype),)

    x = (np.random.default_rng(0).normal(size=6) + 3).astype(np.float16)
    report = check_gradients(lambda x: x * x, x, vjp=vjp, modes="reverse", **QUICK)
    assert {c.name: c.verdict for c in report.checks} == {"reverse": "PASS", "jacobian": "WRONG"}


@pytest.mark.parametrize("half", HALVES)
def test_what_does_not_follow_to_float64_is_judged_as_it_is(half: str) -> None:
    dtype = HALVES[half]

    def narrow_only(x: Array) -> Array:
        if x.dtype != dtype:
            raise TypeError("a kernel of one dtype")
        return np.asarray(np.cos(x))

    def rounds(x: Array) -> Array:
        return np.cos(x.astype(dtype)).astype(x.dtype)

    x = np.random.default_rng(0).normal(size=12).astype(dtype)
    expected = {
        narrow_only: "its derivative does not run at float64 (TypeError: a kernel of one dtype)",
        rounds: f"its derivative computes in {half} at float64 too",
    }
    for gradient, note in expected.items():
        report = check_gradients(lambda x: np.sum(np.sin(x)), x, gradient=gradient, **QUICK)
        assert report.verdict == "PASS", str(report)
        assert any(note in n for n in report.notes), report.notes


def test_a_kernel_of_one_dtype_says_so_in_forward_mode_too() -> None:
    def function(x: Array) -> Array:
        assert x.dtype == np.float16
        return np.asarray(np.sin(x))

    x = np.random.default_rng(0).normal(size=40).astype(np.float16)
    report = check_gradients(
        function,
        x,
        jvp=lambda x, t: (np.cos(x[0]) * t[0]).astype(t[0].dtype),
        modes="forward",
        **QUICK,
    )
    assert any("does not run at float64" in n for n in report.notes), str(report)


def test_a_batch_and_a_compiled_function_may_round_otherwise_inside() -> None:
    down = HALVES["bfloat16"]

    def function(x: Array, w: Array) -> Any:
        return (x.astype(down) @ w.astype(down)).astype(np.float64)

    rng = np.random.default_rng(0)
    args = rng.normal(size=(4, 6)), rng.normal(size=(6, 3))
    report = check_gradients(function, *args, surfaces=True, explain=False)
    found = {c.name: c.verdict for c in report.checks}
    assert found["vmap"] == found["execute"] == "PASS", str(report)
    assert next(c for c in report.checks if c.name == "vmap").error > 0
