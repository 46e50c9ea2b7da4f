"""Cotangents at taps: those of the values that the taps return, all uses counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from checks import gates
from checks.gates.formats.readers import open_side
from checks.ports.gradients import gradients

RNG = np.random.default_rng(5)
WEIGHTS = {"a": RNG.normal(size=(3, 4)), "b": RNG.normal(size=(4, 4)), "c": RNG.normal(size=(4, 2))}
X = RNG.normal(size=(5, 3))
Y_BAR = RNG.normal(size=(5, 2))


def f(weights: Any) -> Any:
    h = ad.tap("h", np.tanh(X @ weights["a"]))
    for _ in range(2):
        h = ad.tap("layer", h + np.tanh(h @ weights["b"]))  # used twice each
    ad.tap("seen", h * 2.0)  # nothing comes of it
    return ad.tap("y", h @ weights["c"])


def after(h: Any, layers: int) -> Any:
    for _ in range(layers):
        h = h + np.tanh(h @ WEIGHTS["b"])
    return np.sum((h @ WEIGHTS["c"]) * Y_BAR)


def test_cotangents_at_taps_and_of_weights() -> None:
    found = gradients(f, WEIGHTS, Y_BAR)
    assert list(found.taps) == ["y", "layer#1", "layer", "h"]
    h = np.tanh(X @ WEIGHTS["a"])
    for key, layers in (("h", 2), ("layer", 1), ("layer#1", 0)):
        np.testing.assert_allclose(found.taps[key], ad.grad(after)(h, layers), rtol=1e-12)
        h = h + np.tanh(h @ WEIGHTS["b"])
    np.testing.assert_array_equal(found.taps["y"], Y_BAR)
    np.testing.assert_array_equal(found.value, f(WEIGHTS))
    plain = ad.grad(lambda w: np.sum(f(w) * Y_BAR))(WEIGHTS)
    for name, w_bar in plain.items():
        np.testing.assert_allclose(found.params[name], w_bar, rtol=1e-12)


def test_a_dump_holds_each_tap_once_and_its_cotangent_under_its_call(tmp_path: Path) -> None:
    with gates.Dump(tmp_path, side="candidate") as d:
        found = gradients(f, WEIGHTS, Y_BAR)
        found.put(d)
    side = open_side(tmp_path)
    taps = ["h", "layer", "layer#1", "seen", "y"]
    grads = ["grad.y", "grad.layer#1", "grad.layer", "grad.h"]
    assert list(side.tensors) == [*taps, *grads, *(f"grad.param.{n}" for n in WEIGHTS)]
    np.testing.assert_array_equal(side.tensors["grad.layer#1"].load(), found.taps["layer#1"])


def test_weights_that_have_no_part_get_zeros() -> None:
    found = gradients(f, WEIGHTS | {"idle": np.ones(2)}, Y_BAR)
    np.testing.assert_array_equal(found.params["idle"], np.zeros(2))


def test_a_lost_use_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cotangent of a tapped value counts every use of it."""
    good = gradients(f, WEIGHTS, Y_BAR).taps["h"]
    real = np.tanh
    monkeypatch.setattr(np, "tanh", lambda x: ad.stop_gradient(real(x)))
    bad = gradients(f, WEIGHTS, Y_BAR).taps["h"]
    assert np.abs(good - bad).max() > 0.1
