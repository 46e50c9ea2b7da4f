"""ADBench's LSTM: mean loss of next-character prediction, in plain NumPy, with a scan over time.

A layer has elementwise weights and biases (4 x b each) for its four gates:

    forget = sigmoid(w0 x + b0),   in = sigmoid(w1 h + b1),   out = sigmoid(w2 x + b2)
    cell' = cell forget + in tanh(w3 h + b3),   h' = out tanh(cell')

and the loss of a prediction y for the bits g of the next character is
-sum(g (y - log(2 + sum(exp(y))))).

Reference: ADBench (github.com/microsoft/ADBench), its long short-term memory objective.
"""

from typing import Any

import numpy as np
from scipy.special import expit

import autodiff as ad

Array = np.ndarray[Any, Any]


def lstm_layer(weights: Any, biases: Any, hidden: Any, cell: Any, x: Any) -> tuple[Any, Any]:
    """New hidden state and cell (b,) of one layer with weights and biases (4, b)."""
    forget = expit(x * weights[0] + biases[0])
    entering = expit(hidden * weights[1] + biases[1])
    leaving = expit(x * weights[2] + biases[2])
    cell = cell * forget + entering * np.tanh(hidden * weights[3] + biases[3])
    return leaving * np.tanh(cell), cell


def predict(main: Any, extra: Any, state: Any, x: Any) -> tuple[Any, Any]:
    """Prediction (b,) after x, and the new state (2 layers, b)."""
    x = x * extra[0]
    rows = []
    for layer in range(main.shape[0] // 2):
        weights, biases = (np.reshape(main[2 * layer + i], (4, -1)) for i in (0, 1))
        hidden, cell = lstm_layer(weights, biases, state[2 * layer], state[2 * layer + 1], x)
        rows += [hidden, cell]
        x = hidden
    return x * extra[1] + extra[2], np.stack(rows)


def lstm_objective(main: Any, extra: Any, state: Any, sequence: Any) -> Any:
    """The mean loss over a sequence, a scalar.

    Arguments: main (2 layers, 4 b), alternately the weights and biases of a layer; extra (3, b),
    the input's scale, the output's scale and its bias; state (2 layers, b), alternately hidden
    state and cell; sequence (n, b) of bits.
    """

    def step(carry: Any, pair: Any) -> tuple[Any, Any]:
        x, gold = pair
        y, carry = predict(main, extra, carry, x)
        return carry, np.sum(gold * (y - np.log(2.0 + np.sum(np.exp(y)))))

    _, losses = ad.scan(step, state, (sequence[:-1], sequence[1:]))
    count = (sequence.shape[0] - 1) * sequence.shape[1]
    return -np.sum(losses) / count


def arguments(layers: int = 2, b: int = 3, n: int = 4) -> tuple[Array, Array, Array, Array]:
    """Random parameters, a state and a sequence of n characters of b bits."""
    rng = np.random.default_rng(0)
    shapes = ((2 * layers, 4 * b), (3, b), (2 * layers, b))
    main, extra, state = (rng.uniform(-1.0, 1.0, s) for s in shapes)
    return main, extra, state, rng.integers(0, 2, (n, b)).astype(float)


if __name__ == "__main__":
    values = arguments(layers=2, b=14, n=50)
    loss, gradients = ad.value_and_grad(lstm_objective, (0, 1))(*values)
    print(f"loss {loss:.6f}")
    for name, g in zip(("main", "extra"), gradients, strict=True):
        print(f"gradient with respect to {name} {g.shape}: norm {np.linalg.norm(g):.6f}")
