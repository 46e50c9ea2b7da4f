"""Loops of JAX outside of jit: run by the equations recorded of them, where they are the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from checks.gradients import framework as frameworks
from checks.gradients.check import check_gradients
from checks.gradients.probes import probe, recorded
from checks.gradients.target import Target

jax: Any = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax
X = np.random.default_rng(31).normal(size=(4, 3))


def target_of(f: Callable[..., Any]) -> Target:
    return Target("f", frameworks.framework("jax"), f, (X,))


def is_recorded(f: Callable[..., Any]) -> bool:
    target = target_of(f)
    with target.scope():
        assert not probe(target, [])
        return recorded(target) is not target


def scanned(x: Any) -> Any:
    state, ys = lax.scan(lambda h, row: (jnp.tanh(h + row),) * 2, jnp.zeros(3), x)
    return jnp.sum(ys**2) + jnp.sum(state)


def test_a_loop_is_traced_a_few_times_and_not_at_every_call() -> None:
    traced: list[int] = []

    def counted(x: Any) -> Any:
        def body(h: Any, row: Any) -> Any:
            traced.append(1)
            return jnp.tanh(h + row), h

        return jnp.sum(lax.scan(body, jnp.zeros(3), x)[1] ** 2)

    report = check_gradients(counted, X, framework="jax")
    assert report.verdict == "PASS" and report.evaluations > 40
    assert len(traced) < report.evaluations / 2


def test_what_no_loop_is_compiled_in_stays_the_function_itself() -> None:
    assert is_recorded(scanned)
    assert not is_recorded(jax.jit(scanned))
    assert not is_recorded(lambda x: jnp.sum(jnp.sin(x)))


def test_a_function_that_looks_at_values_or_at_tracers_stays_itself() -> None:
    def branches(x: Any) -> Any:
        return scanned(x) if x[0, 0] < 10 else x

    def looks(x: Any) -> Any:
        return scanned(2 * x if isinstance(x, jax.core.Tracer) else x)

    assert not is_recorded(branches) and not is_recorded(looks)


def test_a_wrong_rule_inside_a_loop_is_still_seen() -> None:
    @jax.custom_vjp
    def cell(h: Any, row: Any) -> Any:
        return jnp.tanh(h + row)

    def fwd(h: Any, row: Any) -> Any:
        y = cell(h, row)
        return y, y

    cell.defvjp(fwd, lambda y, ct: (ct, ct * (1 - y * y)))

    def f(x: Any) -> Any:
        return jnp.sum(lax.scan(lambda h, row: (cell(h, row),) * 2, jnp.zeros(3), x)[1] ** 2)

    report = check_gradients(f, X, framework="jax", vmap=False)
    assert report.verdict == "WRONG" and report.cause is not None
    assert "custom_vjp of cell" in report.cause.where
