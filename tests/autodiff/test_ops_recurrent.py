from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops as typed_ops
from autodiff.errors import ShapeError

ops: Any = typed_ops  # operands are unpacked into them here


def operands(gates, states, biases):
    rng = np.random.default_rng(0)
    m, n, rows = 3, 4, 2
    shapes = [
        (rows, m),
        *[(rows, n)] * states,
        (gates * n, m),
        (gates * n, n),
        *[(gates * n,)] * biases,
    ]
    return [rng.normal(size=s) for s in shapes]


def test_lstm_cell_agrees_with_torch():
    torch = pytest.importorskip("torch")
    args = operands(4, 2, 2)
    tensors = [torch.tensor(a, requires_grad=True) for a in args]
    x, h, c, *weights = tensors
    expected = torch.lstm_cell(x, (h, c), *weights)
    cell = lambda x, h, c, wi, wh, bi, bh: ops.lstm_cell(x, h, c, wi, wh, bi + bh)  # noqa: E731
    _agree(torch, cell, args, tensors, expected)


def test_gru_cell_agrees_with_torch():
    torch = pytest.importorskip("torch")
    args = operands(3, 1, 2)
    tensors = [torch.tensor(a, requires_grad=True) for a in args]
    _agree(torch, lambda *a: (ops.gru_cell(*a),), args, tensors, (torch.gru_cell(*tensors),))


def _agree(torch, cell, args, tensors, expected):
    ours, pullback = ad.vjp(cell, *args)
    rng = np.random.default_rng(1)
    cts = [rng.normal(size=y.shape) for y in ours]
    for y, t in zip(ours, expected, strict=True):
        np.testing.assert_allclose(y, t.detach().numpy(), rtol=1e-12, atol=1e-13)
    grads = torch.autograd.grad(expected, tensors, [torch.tensor(c) for c in cts])
    for g, t in zip(pullback(tuple(cts)), grads, strict=True):
        np.testing.assert_allclose(g, t.numpy(), rtol=1e-11, atol=1e-13)


def test_cells_run_in_a_scan_as_in_a_loop():
    x, h, c, wi, wh, b = operands(4, 2, 1)
    steps = np.stack([x, -x, 0.5 * x])

    def scanned(wi):
        def step(carry, x):
            carry = ops.lstm_cell(x, *carry, wi, wh, b)
            return carry, carry[0]

        return ad.scan(step, (h, c), steps)[1]

    def looped(wi):
        state, out = (h, c), []
        for x in steps:
            state = ops.lstm_cell(x, *state, wi, wh, b)
            out.append(state[0])
        return np.stack(out)

    np.testing.assert_allclose(scanned(wi), looped(wi), rtol=1e-13)
    ours, theirs = (ad.grad(lambda w, f=f: np.sum(f(w) ** 2))(wi) for f in (scanned, looped))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


def test_one_missing_bias_counts_as_zero():
    x, h, wi, wh, b, _ = operands(3, 1, 2)
    zero = np.zeros_like(b)
    np.testing.assert_array_equal(
        ops.gru_cell(x, h, wi, wh, b), ops.gru_cell(x, h, wi, wh, b, zero)
    )
    np.testing.assert_array_equal(
        ops.gru_cell(x, h, wi, wh, None, b), ops.gru_cell(x, h, wi, wh, zero, b)
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: ops.lstm_cell(*(np.ones(s) for s in ((2, 3), (2, 4), (2, 4), (8, 3), (16, 4)))),
            r"cannot combine x .*\nin op LSTM_CELL\nx is \(\.\.\., i\), h .* \(4 n, i\)",
        ),
        (
            lambda: ops.lstm_cell(*(np.ones(s) for s in ((3,), (4,), (2, 4), (16, 3), (16, 4)))),
            r"the cell state is float64\[2,4\], h is float64\[4\]\nin op LSTM_CELL\npass",
        ),
        (
            lambda: ops.gru_cell(*(np.ones(s) for s in ((2, 3), (3, 4), (12, 3), (12, 4)))),
            r"cannot combine .*\nin op GRU_CELL\n.*\(3 n, n\)",
        ),
    ],
)
def test_errors_say_what_where_and_how(call, text):
    with pytest.raises(ShapeError, match=text) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 3
