"""Recurrent cells and gated units by replay: gates in another order, gate and up exchanged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from tests.checks.gates.sides import normal
from tests.checks.gates.test_replay import names_of, small

H = 5
CELL = {"w_ih": normal(4 * H, 3, seed=1), "w_hh": normal(4 * H, H, seed=2), "b": normal(4 * H)}
GRU = {
    **{"w_ih": normal(3 * H, 3, seed=1), "w_hh": normal(3 * H, H, seed=2)},
    **{"b": normal(1, 6 * H, seed=3)},  # both biases in one, as ONNX has them
}
STATE = {"x": normal(7, 3), "h": normal(7, H, seed=4), "c": normal(7, H, seed=5)}


def parts(w: Any, order: Any, count: int) -> Any:
    """The gates of a weight in another order."""
    axis = -1 if 1 in w.shape else 0
    whole = np.arange(w.shape[axis]).reshape(-1, count, H)
    return np.take(w, whole[:, list(order)].reshape(-1), axis)


def lstm(order: Any = range(4), turned: bool = False) -> Any:
    """One step of an LSTM that reads its gates in an order; weights (in, 4 h) where `turned`."""

    def step(w: Any, x: Any, h: Any, c: Any) -> Any:
        w = {k: v.T if turned and v.ndim > 1 else v for k, v in w.items()}
        w_ih, w_hh, b = (parts(w[k], order, 4) for k in ("w_ih", "w_hh", "b"))
        return ad.ops.lstm_cell(x, h, c, w_ih, w_hh, b)[0]

    return step


def gru(order: Any = range(3)) -> Any:
    def step(w: Any, x: Any, h: Any) -> Any:
        w_ih, w_hh, b = (parts(w[k], order, 3) for k in ("w_ih", "w_hh", "b"))
        return ad.ops.gru_cell(x, h, w_ih, w_hh, b[0, : 3 * H], b[0, 3 * H :])

    return step


@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("order", [(0, 3, 1, 2), (0, 2, 3, 1), (0, 1, 3, 2)])
def test_gates_of_an_lstm_in_another_order(tmp_path: Path, order: Any, turned: bool) -> None:
    weights = {k: np.ascontiguousarray(w.T) if turned else w for k, w in CELL.items()}
    found = small(tmp_path, lstm(turned=turned), lstm(order, turned), weights, **STATE)
    assert names_of(found) == ("gate order", "gate order")
    undone, reproduced = found
    assert undone is not None and reproduced is not None
    assert f"the 4 gates of w_ih, w_hh, b in the order {order}" in reproduced.text
    assert f"in the order {tuple(int(n) for n in np.argsort(order))}" in undone.text
    onnx = order != (0, 1, 3, 2)
    for cause in (undone, reproduced):
        assert ("i, o, f, c (ONNX) against i, f, g, o" in cause.text) == onnx


def test_gates_of_a_gru_in_another_order(tmp_path: Path) -> None:
    inputs = {k: STATE[k] for k in "xh"}
    found = small(tmp_path, gru(), gru((1, 0, 2)), GRU, **inputs)
    assert names_of(found) == ("gate order", "gate order")
    assert found[1] is not None and found[1].text.endswith(
        "the 3 gates of w_ih, w_hh, b in the order (1, 0, 2): z, r, h (ONNX) against r, z, n"
    )


def test_a_cell_that_is_wrong_otherwise_has_no_order(tmp_path: Path) -> None:
    def wrong(w: Any, x: Any, h: Any, c: Any) -> Any:
        return lstm()(w, x, h, np.sin(3 * c))

    found = small(tmp_path, lstm(), wrong, CELL, **STATE)
    assert "gate order" not in names_of(found)


def test_up_and_gate_exchanged(tmp_path: Path) -> None:
    w = {"gate": normal(4, 8), "up": normal(4, 8, seed=1), "down": normal(8, 4, seed=2)}

    def unit(w: Any, x: Any) -> Any:
        return (ad.ops.silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"]

    def other(w: Any, x: Any) -> Any:
        return unit({**w, "gate": w["up"], "up": w["gate"]}, x)

    found = small(tmp_path, unit, other, w, x=normal(9, 4, seed=3))
    assert names_of(found) == ("swapped weights", "swapped weights")
    assert found[1] is not None and "gate and up exchanged" in found[1].text
