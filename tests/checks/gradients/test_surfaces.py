"""Surfaces of one framework on NumPy functions: the executor, and float32."""

import numpy as np
import pytest

import autodiff as ad
from checks.gradients.framework import framework
from checks.gradients.surfaces import framework_checks
from checks.gradients.target import Manual, Target


def surfaces(function, *args, **options):
    target = Target("surface", framework("numpy"), function, args, **options)
    return {c.name: c for c in framework_checks(target)}


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape)


def test_the_executor_and_float32_agree_with_eager_float64():
    found = surfaces(lambda x, w: np.tanh(x) @ w, normal(3, 4), normal(4, 2))
    assert {n: c.verdict for n, c in found.items()} == {"execute": "PASS", "f32": "PASS"}
    assert 0 < found["f32"].error < found["f32"].allowed


def test_an_error_in_the_executor_alone_is_wrong(monkeypatch):
    monkeypatch.setattr(ad, "compile", lambda f: lambda *a: [1.001 * y for y in f(*a)])
    check = surfaces(np.sin, normal(3))["execute"]
    assert check.verdict == "WRONG"
    assert check.error == pytest.approx(1e-3, rel=1e-6) and "execute gives" in check.detail


def test_cancellation_that_float64_survives_and_float32_does_not():
    check = surfaces(lambda x: (1e8 + np.sin(x)) - 1e8, normal(3))["f32"]
    assert check.verdict == "WRONG" and check.worst.output == "result 0"


def test_an_ill_conditioned_function_is_held_to_its_condition():
    # the rounding of x alone moves the result by 1e4 u
    check = surfaces(lambda x: np.sin(1e4 * x), 1 + normal(5) ** 2)["f32"]
    assert check.verdict == "PASS" and check.error > 2e-5


def test_overflow_in_float32_is_the_end_of_its_domain():
    check = surfaces(np.exp, np.array([100.0, 2.0]))["f32"]
    assert check.verdict == "DOMAIN" and "inf" in check.detail


def test_numbers_without_a_float32_are_not_defined():
    check = surfaces(lambda x: 2 * x, np.array([1.0, 1e100]))["f32"]
    assert check.verdict == "NOT_DEFINED" and "x[1] = 1e+100" in check.detail


def test_a_function_that_cannot_be_traced_is_not_defined_with_the_reason():
    check = surfaces(lambda x: np.asarray(x) * 2, normal(3))["execute"]
    assert check.verdict == "NOT_DEFINED" and "TracerError" in check.detail


def test_a_gradient_that_is_zero_but_for_rounding_passes():
    found = surfaces(lambda x, b: x + b - (x + b).mean(0), normal(5, 3), normal(3))
    assert found["f32"].verdict == "PASS", found["f32"]


def test_hand_written_derivatives_are_compared_by_value_alone():
    manual = Manual(gradient=lambda x: np.cos(x))
    found = surfaces(np.sin, np.float64(0.5), manual=manual)
    assert found["execute"].verdict == "PASS"
    assert found["f32"].verdict == "NOT_DEFINED"
