"""Where a NaN of a gradient comes from: the branch that a where does not take, a slope at 0."""

from typing import Any

import numpy as np
import pytest

from checks.gradients.check import check_gradients
from checks.gradients.report import Cause

Array = np.ndarray[Any, Any]
POINT, ORIGIN = np.array([0.0, 1.0, 2.0]), np.zeros(3)
TRAP = "the branch of a where that is not taken has no finite slope here"


def cause(f: Any, x: Any, **options: Any) -> Cause:
    report = check_gradients(f, x, vmap=False, **options)
    assert report.verdict == "WRONG" and report.cause is not None, report
    assert report.pattern.startswith("NaN: ")
    return report.cause


# --- JAX: the most asked of its questions (jax-ml/jax#347, #1052, #3058) ----------------------


def jax_functions() -> dict[str, Any]:
    jax: Any = pytest.importorskip("jax")
    jnp = jax.numpy

    def sinc(x: Any) -> Any:
        return jnp.sum(jnp.where(x == 0, 1.0, jnp.sin(x) / x))

    def safe_log(x: Any) -> Any:
        return jnp.sum(jnp.where(x > 0, jnp.log(x), 0.0))

    def guarded(x: Any) -> Any:
        total = jnp.sum(x * x)
        return jnp.where(total > 0, jnp.sqrt(total), 0.0)

    def norm(x: Any) -> Any:
        return jnp.linalg.norm(x)

    def masked(x: Any) -> Any:
        return jnp.sum(0.0 * jnp.log(x)) + jnp.sum(x)

    made = {f.__name__: f for f in (sinc, safe_log, guarded, norm, masked)}
    return {**made, "jitted": jax.jit(sinc)}


@pytest.mark.parametrize("name", ["sinc", "safe_log", "jitted"])
def test_the_branch_not_taken_in_jax(name: str) -> None:
    found = cause(jax_functions()[name], POINT, framework="jax")
    assert found.name == "where" and TRAP in found.text and "a where of its own" in found.text
    assert "jnp.where(" in found.where and "test_not_finite.py:" in found.where


def test_a_guarded_norm_in_jax() -> None:
    found = cause(jax_functions()["guarded"], ORIGIN, framework="jax")
    assert found.name == "where" and TRAP in found.text and "jnp.sqrt(total)" in found.where


def test_a_norm_at_zero_in_jax_is_no_where() -> None:
    found = cause(jax_functions()["norm"], ORIGIN, framework="jax")
    assert found.name == "not finite" and "where that" not in found.text
    assert "the slope of sqrt is infinite here, and times 0 it is NaN" in found.text
    assert "jnp.linalg.norm(x)" in found.where


# --- PyTorch (pytorch/pytorch#2421) ------------------------------------------------------------


def torch_functions() -> dict[str, Any]:
    torch: Any = pytest.importorskip("torch")

    def sinc(x: Any) -> Any:
        return torch.where(x == 0, 1.0, torch.sin(x) / x).sum()

    def masked(x: Any) -> Any:
        return torch.log(x).masked_fill(x <= 0, 0.0).sum()

    def norm(x: Any) -> Any:
        total = (x * x).sum()
        return torch.sqrt(total)  # here

    def unused(x: Any) -> Any:
        return (torch.log(x) * 0.0).sum() + x.sum()

    return {f.__name__: f for f in (sinc, masked, norm, unused)}


@pytest.mark.parametrize("name", ["sinc", "masked"])
def test_the_branch_not_taken_in_torch(name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    found = cause(torch_functions()[name], torch.tensor(POINT))
    assert found.name == "where" and TRAP in found.text
    assert f"in {name}: `return torch" in found.where


def test_a_norm_at_zero_in_torch() -> None:
    torch: Any = pytest.importorskip("torch")
    found = cause(torch_functions()["norm"], torch.tensor(ORIGIN))
    assert found.name == "not finite" and "the slope of sqrt is infinite here" in found.text
    assert "# here" in found.where


# --- ours, and by hand -----------------------------------------------------------------------


def test_a_norm_at_zero_of_ours() -> None:
    def norm(x: Any) -> Any:
        total = np.sum(x * x)
        return np.sqrt(total)  # here

    found = cause(norm, ORIGIN)
    assert found.name == "not finite" and "the slope is infinite here" in found.text
    assert "np.sqrt(total)  # here" in found.where


def test_a_division_by_zero_written_by_hand() -> None:
    def sinc(x: Any) -> Any:
        return np.sum(np.sinc(x / np.pi))

    def gradient(x: Array) -> Array:
        made = x * np.cos(x) - np.sin(x)
        return np.asarray(made / x**2)  # here

    found = cause(sinc, POINT, gradient=gradient)
    assert found.name == "not finite" and "invalid value encountered in divide" in found.text
    assert "in gradient: `return np.asarray(made / x**2)  # here`" in found.where
