"""Long lowering rules: one function of a module for all calls on equal types."""

import numpy as np
import pytest

import autodiff as ad
from autodiff.lower.shared import LONG, shared
from autodiff.lower.stablehlo import lower_stablehlo

pytest.importorskip("jax")


def test_every_long_rule_exists():
    from autodiff.lower.jax import rules

    assert set(rules()) >= LONG


def test_calls_on_equal_types_share_a_function():
    def twice(a, x, y):
        return ad.ops.igamma(a, x) * ad.ops.igamma(a, y)

    a, x = np.array([0.5, 3.0]), np.array([1.0, 2.0])
    program = ad.trace(twice, a, x, 2 * x)
    text = lower_stablehlo(program)
    assert text.count("call @igamma(") == 2 and text.count("func.func private @igamma(") == 1
    got = ad.lower_jax(program)(a, x, 2 * x)
    np.testing.assert_allclose(np.asarray(got), twice(a, x, 2 * x), rtol=1e-13)


def test_short_rules_and_those_of_jax_stay():
    import jax.numpy as jnp

    from autodiff.lower.jax import rules

    assert shared(jnp.exp) is jnp.exp and shared(rules()["sinc"]) is rules()["sinc"]
    assert shared(rules()["zeta"]) is not rules()["zeta"]
