"""Branches of JAX that did not run, donated arrays, what has no reverse mode."""

from typing import Any

import numpy as np
import pytest

from checks.gradients.check import check_gradients
from checks.gradients.target import TargetError

jax = pytest.importorskip("jax")
jnp = jax.numpy
QUICK: dict[str, Any] = {"vmap": False, "explain": False, "full": False, "framework": "jax"}
X = np.array([0.3, 0.5, 0.7])


def branches(report: Any) -> list[str]:
    return [n for n in report.notes if n.startswith("branch")]


def test_the_branch_of_a_cond_that_never_ran_is_noted_with_its_line() -> None:
    def function(x):
        return jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)

    (note,) = branches(check_gradients(function, X, **QUICK))
    assert note.startswith("branch 0 (for False) of cond at ") and "never ran" in note
    assert f"test_branches.py:{function.__code__.co_firstlineno + 1}" in note
    (note,) = branches(check_gradients(function, -X, **QUICK))
    assert note.startswith("branch 1 (for True) of cond")


def test_branches_of_a_switch_inside_jit_are_numbered() -> None:
    @jax.jit
    def function(x):
        return jax.lax.switch(1, [jnp.cos, jnp.sin, jnp.tanh], x)

    found = branches(check_gradients(function, X, **QUICK))
    assert [n.split(" of ")[0] for n in found] == ["branch 0", "branch 2"]


@pytest.mark.parametrize(("last", "ran"), [(1, True), (5, False)])
def test_branches_inside_a_loop_are_seen_at_every_step(last: int, ran: bool) -> None:
    def function(x):
        def step(c, i):
            return jax.lax.cond(i > last, jnp.sin, lambda z: 2 * z, c), None

        return jax.lax.scan(step, x, jnp.arange(3))[0]

    def counted(x):
        def body(i, c):
            return jax.lax.cond(i > last, jnp.sin, lambda z: 2 * z, c)

        return jax.lax.fori_loop(0, 3, body, x)

    for f in (function, counted):
        assert bool(branches(check_gradients(f, X, modes="forward", **QUICK))) != ran


def test_a_function_without_branches_has_no_such_note() -> None:
    report = check_gradients(lambda x: jnp.where(x > 0.4, jnp.sin(x), x), X, **QUICK)
    assert not branches(report)


def test_a_loop_of_many_steps_says_that_it_is_not_known() -> None:
    def body(i, c):
        return jax.lax.cond(i > 3, lambda z: z, lambda z: 2 * z, c)

    report = check_gradients(lambda x: jax.lax.fori_loop(0, 1000, body, x), X, **QUICK)
    assert any("which of them ran is not known" in n for n in report.notes)


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_donated_arguments_are_copied() -> None:
    loss = jax.jit(lambda x, k: jnp.sum(jnp.sin(x)) * k.sum(), donate_argnums=(0, 1))
    x, k = jnp.asarray(X), jnp.arange(3)
    report = check_gradients(loss, x, k, vmap=True, explain=False)
    assert report.verdict == "PASS", str(report)
    assert not x.is_deleted() and not k.is_deleted()


def test_reverse_mode_through_custom_vmap_is_not_defined() -> None:
    @jax.custom_batching.custom_vmap
    def sine(x):
        return jnp.sin(x)

    @sine.def_vmap
    def _rule(size, batched, x):
        return jnp.sin(x), batched[0]

    report = check_gradients(lambda x: sine(x), X, framework="jax", explain=False)
    found = {c.name: c.verdict for c in report.checks}
    assert report.verdict == "PASS" and found["reverse"] == "NOT_DEFINED", str(report)
    assert found["vmap of grad"] == "NOT_DEFINED" and found["forward"] == "PASS"


@pytest.mark.parametrize("shape", [(4,), (2, 3)])
def test_symmetric_is_for_square_matrices(shape: tuple[int, ...]) -> None:
    with pytest.raises(TargetError) as caught:
        check_gradients(lambda x: np.sum(x), np.ones(shape), symmetric=0)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"x has shape {shape}: only square matrices are symmetric"
    assert len(lines) == 3
