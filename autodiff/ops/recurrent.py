"""Cells of recurrent networks."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import composite, promote
from autodiff.ops.matmul import matmul
from autodiff.ops.shape import transpose
from autodiff.program import Spec
from autodiff.trace import bind

__all__ = ["gru_cell", "lstm_cell"]


def _check_cell(kind: str, gates: int, x: Spec, h: Spec, *weights: Spec) -> None:
    """Raise unless x (..., i), h (..., n), weights (gates n, i) and (gates n, n), biases fit."""
    w_ih, w_hh, *biases = weights
    n = h.shape[-1] if h.ndim else 0
    wide = gates * n
    fits = (
        x.ndim >= 1
        and h.ndim >= 1
        and x.shape[:-1] == h.shape[:-1]
        and w_ih.shape == (wide, x.shape[-1])
        and w_hh.shape == (wide, n)
        and all(b.shape == (wide,) for b in biases)
    )
    dtypes = {s.dtype for s in (x, h, *weights)}
    if not fits or len(dtypes) > 1 or x.dtype.kind not in "fV":
        raise ShapeError(
            f"cannot combine x {x}, h {h}, weights {', '.join(map(str, weights))}",
            f"in op {kind}",
            f"x is (..., i), h (..., n), the weights ({gates} n, i) and ({gates} n, n), each bias "
            f"({gates} n,), of one floating dtype",
        )


def _affine(x: Any, w: Any, *bias: Any) -> Any:
    y = matmul(x, transpose(w))
    return y + bias[0] if bias else y


def _split(y: Any, gates: int) -> tuple[Any, ...]:
    """Equal parts of the last axis."""
    n = np.shape(y)[-1] // gates
    return tuple(bind("SPLIT", y, sizes=(n,) * gates, axis=np.ndim(y) - 1))


def _sigmoid(x: Any) -> Any:
    return bind("SIGMOID", x)


# --- LSTM_CELL -----------------------------------------------------------------------------


def _lstm_spec(x: Spec, h: Spec, c: Spec, w_ih: Spec, w_hh: Spec, *b: Spec) -> tuple[Spec, Spec]:
    _check_cell("LSTM_CELL", 4, x, h, w_ih, w_hh, *b)
    if c != h:
        raise ShapeError(f"the cell state is {c}, h is {h}", "in op LSTM_CELL", "pass equal shapes")
    return h, c


def _lstm_body(x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, *b: Any) -> tuple[Any, Any]:
    gates = _affine(x, w_ih, *b) + _affine(h, w_hh)
    i, f, g, o = _split(gates, 4)
    cell = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(cell), cell


composite("LSTM_CELL", _lstm_body, spec=_lstm_spec, outputs=2)


def lstm_cell(x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b: Any = None) -> tuple[Any, Any]:
    """One step of a long short-term memory cell.

    (i, f, g, o) = x w_ih^T + h w_hh^T + b, cut into four;
    c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c').

    Arguments: x (..., m), h and c (..., n), w_ih (4 n, m), w_hh (4 n, n), b (4 n,) or None
    (PyTorch's b_ih + b_hh; gates in PyTorch's order).
    Returns (h', c'), each (..., n). Smooth everywhere.
    Raises ShapeError for shapes that do not fit.
    """
    operands = (x, h, c, w_ih, w_hh) if b is None else (x, h, c, w_ih, w_hh, b)
    return tuple(bind("LSTM_CELL", *promote(*operands, inexact=True)))


# --- GRU_CELL ------------------------------------------------------------------------------


def _gru_spec(x: Spec, h: Spec, w_ih: Spec, w_hh: Spec, *b: Spec) -> Spec:
    _check_cell("GRU_CELL", 3, x, h, w_ih, w_hh, *b)
    return h


def _gru_body(x: Any, h: Any, w_ih: Any, w_hh: Any, *b: Any) -> Any:
    r, z, n = _split(_affine(x, w_ih, *b[:1]), 3)
    r_h, z_h, n_h = _split(_affine(h, w_hh, *b[1:]), 3)
    update = _sigmoid(z + z_h)
    fresh = np.tanh(n + _sigmoid(r + r_h) * n_h)
    return fresh + update * (h - fresh)


composite("GRU_CELL", _gru_body, spec=_gru_spec)


def gru_cell(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step of a gated recurrent unit.

    (r, z, n) = x w_ih^T + b_ih and (r_h, z_h, n_h) = h w_hh^T + b_hh, each cut into three;
    u = sigmoid(z + z_h), m = tanh(n + sigmoid(r + r_h) n_h), h' = (1 - u) m + u h.

    Arguments: x (..., m), h (..., n), w_ih (3 n, m), w_hh (3 n, n), b_ih and b_hh (3 n,) or None.
    The reset gate acts after the product, as in PyTorch, so that b_hh is not redundant.
    Returns h' (..., n). Smooth everywhere.
    Raises ShapeError for shapes that do not fit.
    """
    x, h, w_ih, w_hh = promote(x, h, w_ih, w_hh, inexact=True)
    if b_ih is None and b_hh is None:
        return bind("GRU_CELL", x, h, w_ih, w_hh)
    zero = np.zeros(np.shape(w_ih)[:1], x.dtype)
    biases = (zero if b is None else b for b in (b_ih, b_hh))
    return bind("GRU_CELL", *promote(x, h, w_ih, w_hh, *biases, inexact=True))
