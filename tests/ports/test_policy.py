"""Products with weights that are stored narrower than they are computed with."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autodiff as ad
from checks.ports.policy import BF16, linear, operand, rounded, wide


@pytest.fixture
def given() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(3)
    shapes = ((2, 5, 8), (6, 8), (6,))
    x, w, b = (rng.normal(size=s).astype(np.float32) for s in shapes)
    return x, w, b


def test_float32_weights_are_left_alone(given: Any) -> None:
    x, w, b = given
    assert wide(w) is w
    assert operand(x, w) is x
    np.testing.assert_array_equal(linear(x, w, b), np.matmul(x, w.T) + b)


def test_narrow_weights_round_what_goes_in_and_sum_in_float32(given: Any) -> None:
    x, w, b = given
    narrow = rounded({"w": w, "b": b, "ids": np.arange(3)})
    assert narrow["w"].dtype == narrow["b"].dtype == BF16
    assert narrow["ids"].dtype.kind == "i"
    y = linear(x, narrow["w"], narrow["b"])
    inputs = x.astype(ml_dtypes.bfloat16).astype(np.float64)
    exact = inputs @ narrow["w"].astype(np.float64).T + narrow["b"].astype(np.float64)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, exact, rtol=1e-6, atol=1e-6)
    assert np.abs(y - (np.matmul(x, w.T) + b)).max() > 1e-3


def test_a_traced_product_is_the_same(given: Any) -> None:
    x, w, b = given
    narrow = rounded({"w": w, "b": b})
    program = ad.compile(lambda x: linear(x, narrow["w"], narrow["b"]))
    np.testing.assert_array_equal(program(x), linear(x, narrow["w"], narrow["b"]))
