"""Products and roundings on devices, emulated on any machine, and sums in another order."""

import itertools
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.precision import DOT_MODES, dot_bound
from checks import assert_close
from checks.compare import ToleranceError
from checks.devices import run_batch
from tests.public_cases.cases import right
from tests.public_cases.roads import hold, values

Array = np.ndarray[Any, Any]
CONTRACTING = ((1,), (0,))


def product(a: Any, b: Any) -> Any:
    return a @ b


def on_device(f: Any, *args: Array, device: str, strict: bool = False) -> Array:
    (outcome,) = run_batch([(ad.trace(f, *args), args)], device, "float32", strict)
    assert not isinstance(outcome, Exception), outcome
    return np.asarray(outcome[0])


def modes_that_give(got: Array, a: Array, b: Array) -> set[str]:
    """The dot modes whose product is that one bit for bit: an exact match names the cause."""
    program = ad.trace(product, a, b)
    results = {
        m: ad.interpret(program, a, b, precision="float32", dot=m) for m in sorted(DOT_MODES)
    }
    return {mode for mode, y in results.items() if np.array_equal(y, got)}


# --- G01: TF32 ------------------------------------------------------------------------------

TIE, ONE = np.array([[1024.5]], np.float32), np.array([[1.0]], np.float32)


def test_g01_a_float32_product_keeps_its_half() -> None:
    found = {road: y[0, 0] for road, y in values(product, TIE, ONE).items()}
    hold(found, "G01", "float32 product")


@pytest.mark.parametrize(
    ("mode", "got"), [("tf32", 1025.0), ("tf32_rne", 1024.0), ("tf32_rz", 1024.0)]
)
def test_g01_a_tf32_policy_accepts_what_its_rounding_explains(mode: str, got: float) -> None:
    verdict = right("G01", "under a TF32 policy").verdict
    assert verdict == "accept"
    program = ad.trace(product, TIE, ONE)
    y = ad.interpret(program, TIE, ONE, precision="float32", dot=mode)
    assert y[0, 0] == got
    assert_close(y, TIE, surface="device_f32", variant="products")
    assert np.all(np.abs(y - TIE) <= dot_bound(TIE, ONE, CONTRACTING, mode=mode))
    assert mode in modes_that_give(y, TIE, ONE)


def test_g01_a_float32_policy_refuses_it_and_the_cause_has_a_name() -> None:
    assert right("G01", "under a float32 policy").verdict == "fail"
    y = on_device(product, TIE, ONE, device="emulated:gb10")
    with pytest.raises(ToleranceError, match="got 1025.0, expected 1024.5"):
        assert_close(y, TIE, surface="device_f32")
    assert np.all(np.abs(y - TIE) > dot_bound(TIE, ONE, CONTRACTING, mode="ieee"))
    assert modes_that_give(y, TIE, ONE) == {"tf32"}


# --- G02: bfloat16 --------------------------------------------------------------------------

X = np.array([[0.3744, 0.1656], [0.4707, 0.1663]])
Y = np.array([[0.3946, 0.1186], [0.1569, 0.3145]])


def test_g02_bfloat16_inputs_explain_the_reported_matrix() -> None:
    hold({"float64": values(product, X, Y)["interpreted"]}, "G02", "product")
    y = on_device(product, X, Y, device="emulated:tpu-v5e")
    hold({"emulated": y}, "G02", "product of bfloat16 inputs")
    assert modes_that_give(y, X, Y) == {"bf16x1"}


def test_g02_a_bfloat16_policy_accepts_it_and_a_narrower_one_does_not() -> None:
    assert right("G02", "under a bfloat16 policy").verdict == "accept"
    y, exact = on_device(product, X, Y, device="emulated:tpu-v5e"), X @ Y
    error = np.abs(y - exact)
    assert np.all(error <= 2 * 2.0**-8 * (np.abs(X) @ np.abs(Y)))
    assert np.all(error <= dot_bound(X, Y, CONTRACTING, mode="bf16x1"))
    assert np.any(error > dot_bound(X, Y, CONTRACTING, mode="tf32"))
    assert_close(y, exact.astype(np.float32), surface="device_f32", variant="bf16_products")


def test_g02_a_row_alone_is_the_row_of_the_larger_product() -> None:
    for mode in sorted(DOT_MODES):
        whole, row = (
            ad.interpret(ad.trace(product, a, Y), a, Y, precision="float32", dot=mode)
            for a in (X, X[:1])
        )
        np.testing.assert_array_equal(row, whole[:1], err_msg=mode)


# --- G03: a cast and back -------------------------------------------------------------------

ROUNDED = np.array([0.1, 1 / 3, np.pi, 1.00390625, -2.71828], np.float32)


@pytest.mark.parametrize(
    ("narrow", "what"), [("bfloat16", "through bfloat16"), ("float16", "through float16")]
)
def test_g03_a_cast_and_back_rounds_on_every_road(narrow: str, what: str) -> None:
    def through(x: Any) -> Any:
        return ops.cast(ops.cast(x, narrow), np.float32)

    found = values(through, ROUNDED)
    found["strict device"] = on_device(through, ROUNDED, device="emulated:h200", strict=True)
    for road, got in found.items():
        right("G03", what).holds(got, road)  # exact, in float32 too


def test_g03_a_folded_pair_of_casts_fails_and_is_recognised() -> None:
    def through(x: Any) -> Any:
        return ops.cast(ops.cast(x, "bfloat16"), np.float32)

    assert right("G03", "equal to the input bit for bit").verdict == "fail"
    folded = on_device(through, ROUNDED, device="emulated:h200")
    expected = ad.interpret(ad.trace(through, ROUNDED), ROUNDED, precision="float32")
    np.testing.assert_array_equal(folded, ROUNDED)
    assert np.max(np.abs(folded - expected)) == 0.00390625
    with pytest.raises(ToleranceError, match="3 of 5 entries"):
        assert_close(folded, expected, surface="device_f32")


# --- G05: sums in another order -------------------------------------------------------------

TERMS = np.array([1e8, 1.0, -1e8, 1.0], np.float32)


def test_g05_the_sum_of_four_numbers_in_every_order() -> None:
    exact = ad.interpret(ad.trace(np.sum, TERMS), TERMS)
    hold({"float64": exact}, "G05", "exact sum")
    seen = set()
    for order in itertools.permutations(TERMS):
        terms = np.array(order, np.float32)
        one_by_one = np.add.accumulate(terms)[-1]
        right("G05", "sum in any order").holds(one_by_one)
        right("G05", "sum in any order").holds(ops.sum(terms))
        seen.add(float(one_by_one))
    assert seen == {0.0, 1.0, 2.0}


def test_g05_the_reference_sum_does_not_depend_on_the_order() -> None:
    program = ad.trace(np.sum, TERMS)
    for order in itertools.permutations(TERMS):
        terms = np.array(order, np.float32)
        assert ad.interpret(program, terms, precision="float32") == 2.0
