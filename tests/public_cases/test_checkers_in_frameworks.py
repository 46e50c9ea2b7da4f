"""The same reports in the frameworks they came from: the verdict follows what each answers.

A framework may mend a fault in a later version: what it answers is compared with the right answer
first, and the verdict must agree with that.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import checks
from tests.public_cases.cases import Right, right

pytestmark = pytest.mark.slow  # compiles many small functions
jax = pytest.importorskip("jax")
jnp = jax.numpy
EQUAL = np.diag([1.0, 1.0, 2.0, 3.0])
Function = Callable[..., Any]


def rebuilt_norm(a: Any) -> Any:
    u, s, vh = jnp.linalg.svd(a)
    return jnp.linalg.norm((u * s) @ vh)


def masked_attention(v: Any) -> Any:
    seen = np.array([[True, True], [False, False]])
    scores = jnp.where(seen, jnp.outer(jnp.array([0.5, 1.0]), jnp.array([0.3, -0.7])), -jnp.inf)
    return (jax.nn.softmax(scores) @ v)[0]


def softplus_by_parts(x: Any) -> Any:
    return jnp.maximum(x, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


def diagonal_only(answer: Right, gradient: Any) -> Any:
    return np.diagonal(gradient) if answer.what.startswith("diagonal") else gradient


ON_JAX: list[tuple[str, str, Function, Any]] = [
    ("A01", "slope of f1 at 1", lambda x: jnp.where(x >= 0, x, jnp.sqrt(-x)), 1.0),
    ("A01", "slope of f2 at 0", lambda x: jnp.where(x < 1, x, jnp.sqrt(x)), 0.0),
    ("A01", "slope of f3 at 1", lambda x: jnp.where(x >= 0, x, jnp.log(-x)), 1.0),
    ("A06", "cumprod, two zeros", lambda x: jnp.sum(jnp.cumprod(x)), [2.0, 0.0, 0.0, 3.0]),
    ("A08", "arcsinh at 1e22", jnp.arcsinh, np.float32(1e22)),
    ("A08", "arccosh at 1e22", jnp.arccosh, np.float32(1e22)),
    ("B03", "gradient in v", masked_attention, [2.0, -1.0]),
    ("B06", "gradient", lambda z: -jax.nn.log_softmax(z)[0], [-431.0, 279.0, 427.0]),
    ("C01", "diagonal of the gradient", rebuilt_norm, EQUAL),
    ("C03", "gradient", jnp.linalg.det, [[1.0, 2.0], [2.0, 4.0]]),
    ("E01", "slope of softplus", softplus_by_parts, 0.0),
    ("E01", "slope of softplus", jax.nn.softplus, 0.0),
    ("E01", "slope of asinh", jnp.arcsinh, 0.0),
]


@pytest.mark.parametrize(
    ("case", "what", "f", "x"), ON_JAX, ids=[f"{n} {c[0]}" for n, c in enumerate(ON_JAX)]
)
def test_the_verdict_on_jax_follows_its_answer(case: str, what: str, f: Function, x: Any) -> None:
    answer = right(case, what)
    with jax.enable_x64(True), np.errstate(all="ignore"):
        point = jnp.asarray(x)
        gradient = np.asarray(jax.grad(f)(point))
        report = checks.check_gradients(f, point, framework="jax", vmap=False)
    try:
        answer.holds(diagonal_only(answer, gradient))
        stated = "PASS"
    except AssertionError:
        stated = "WRONG"
    assert report.verdict == stated, str(report)
    assert report.framework == "jax" and report.ok == (stated == "PASS")


def test_a01_on_jax_the_modes_are_told_apart() -> None:
    with jax.enable_x64(True):
        report = checks.check_gradients(
            lambda x: jnp.where(x >= 0, x, jnp.sqrt(-x)), jnp.asarray(1.0), framework="jax"
        )
        if np.isnan(jax.grad(lambda x: jnp.where(x >= 0, x, jnp.sqrt(-x)))(1.0)):
            found = {c.name: c.verdict for c in report.checks}
            assert found["reverse"] == "WRONG" and found["forward"] == "PASS", str(report)


def test_on_torch_the_verdict_follows_its_answer() -> None:
    torch = pytest.importorskip("torch")

    def f(x: Any) -> Any:
        return torch.where(x >= 0, x, torch.sqrt(-x))

    x = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(f(x), x)
    report = checks.check_gradients(f, x.detach(), framework="torch")
    stated = "PASS" if float(gradient) == right("A01", "slope of f1 at 1").value else "WRONG"
    assert report.verdict == stated, str(report)
    assert checks.check_gradients(torch.asinh, torch.tensor(0.0, dtype=torch.float64)).ok
