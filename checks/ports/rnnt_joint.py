"""An RNN transducer (Graves, 2012): an LSTM over words with carried state, and the joint.

Plain NumPy on `autodiff.ops`. Words come in two pieces; the second starts from the first's state.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import autodiff as ad
from autodiff import ops
from checks.gates.blocks.block import Block
from checks.ports.policy import linear as product
from checks.ports.policy import operand, wide

Weights = Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """Sizes: of the encoder's frames, of the prediction network, of the joint; words; the blank."""

    encoder: int = 20
    width: int = 24
    joint: int = 28
    vocab: int = 18
    blank: int = 0
    first: int = 5  # words in the first piece


TINY = Config()
State = tuple[Any, Any]


def random_weights(config: Config, seed: int) -> dict[str, Any]:
    """Return float32 weights by name."""
    rng = np.random.default_rng(seed)
    n, j = config.width, config.joint
    found = {
        "pred.embedding": rng.normal(size=(config.vocab, n)),
        "pred.w_ih": rng.normal(size=(4 * n, n)) / math.sqrt(n),
        "pred.w_hh": 1.5 * rng.normal(size=(4 * n, n)) / math.sqrt(n),
        "pred.bias": 0.5 * rng.normal(size=4 * n),
        "joint.enc.weight": rng.normal(size=(j, config.encoder)) / math.sqrt(config.encoder),
        "joint.enc.bias": 0.3 * rng.normal(size=j),
        "joint.pred.weight": 2 * rng.normal(size=(j, n)) / math.sqrt(n),
        "joint.pred.bias": 0.3 * rng.normal(size=j),
        "joint.head.weight": 2 * rng.normal(size=(config.vocab, j)) / math.sqrt(j),
        "joint.head.bias": 0.3 * rng.normal(size=config.vocab),
    }
    return {k: np.asarray(v, np.float32) for k, v in found.items()}


def embedded(words: Any, weights: Weights) -> Any:
    """Rows of the table."""
    return ops.embedding(wide(weights["pred.embedding"]), words)


def step(x: Any, state: State, weights: Weights) -> State:
    """One step of the LSTM: (h, c)."""
    w_ih, w_hh = weights["pred.w_ih"], weights["pred.w_hh"]
    h, c = operand(state[0], w_hh), state[1]
    found = ops.lstm_cell(
        operand(x, w_ih), h, c, wide(w_ih), wide(w_hh), wide(weights["pred.bias"])
    )
    return found[0], found[1]


def predicted(words: Any, state: State, weights: Weights) -> tuple[Any, State]:
    """(words, width) and the state after the last word."""
    x = ad.tap("pred.embed", embedded(words, weights))
    out, state = unrolled(x, state, weights)
    return ad.tap("pred.out", out), state


def unrolled(x: Any, state: State, weights: Weights) -> tuple[Any, State]:
    """Every step on x (words, width): the hidden states, and the state after the last."""
    rows = []
    for n in range(x.shape[0]):
        state = step(x[n], state, weights)
        rows.append(state[0])
    return np.stack(rows), state


def carried(state: State) -> State:
    """The state that the next piece starts from."""
    return state


def enc_projected(frames: Any, weights: Weights) -> Any:
    """(frames, joint)."""
    return product(frames, weights["joint.enc.weight"]) + wide(weights["joint.enc.bias"])


def pred_projected(out: Any, weights: Weights) -> Any:
    """(words, joint)."""
    return product(out, weights["joint.pred.weight"]) + wide(weights["joint.pred.bias"])


def joined(enc: Any, pred: Any) -> Any:
    """(frames, words, joint): every frame with every word."""
    return enc[:, None] + pred[None]


def activation(x: Any) -> Any:
    """tanh."""
    return np.tanh(x)


def head(x: Any, weights: Weights) -> Any:
    """Logits (frames, words, vocab)."""
    return product(x, weights["joint.head.weight"]) + wide(weights["joint.head.bias"])


def log_probabilities(logits: Any) -> Any:
    """log softmax over words."""
    return ops.log_softmax(logits)


def forward(weights: Weights, config: Config, frames: Any, words: Any) -> Any:
    """Return log-probabilities (frames, words, vocab) of the second piece.

    Arguments:
        weights, config: of the model.
        frames: (frames, encoder), real.
        words: (n,), integers, the first `config.first` of them the first piece.
    """
    zeros = np.zeros(config.width, frames.dtype)
    state: State = (zeros, zeros)
    enc = ad.tap("joint.enc", enc_projected(frames, weights))
    found = None
    for piece in (words[: config.first], words[config.first :]):
        out, state = predicted(piece, state, weights)
        state = carried(state)
        ad.tap("pred.h", state[0])
        ad.tap("pred.c", state[1])
        pred = ad.tap("joint.pred", pred_projected(out, weights))
        hidden = ad.tap("joint.hidden", activation(joined(enc, pred)))
        logits = ad.tap("joint.logits_raw", head(hidden, weights))
        found = ad.tap("joint.logprobs", log_probabilities(logits))
    return found


ROLES = {"*.logprobs": "informational"}


def blocks(weights: Weights, config: Config) -> tuple[Block, ...]:
    """Return the prediction network, once for each piece of words, and the joint's stages, for
    `isolate`.
    """

    def part(*names: str) -> dict[str, Any]:
        return {k: w for k, w in weights.items() if k.startswith(names)}

    def first(w: Weights, x: Any) -> Any:
        zeros = np.zeros(config.width, x.dtype)
        return unrolled(x, (zeros, zeros), w)[0]

    def second(w: Weights, x: Any, h: Any, c: Any) -> Any:
        return unrolled(x, (h, c), w)[0]

    cell = part("pred.w_", "pred.bias")
    return (
        Block("pred.out#0", ("pred.embed#0",), first, cell),
        Block("pred.out#1", ("pred.embed#1", "pred.h#0", "pred.c#0"), second, cell),
        Block("joint.pred", ("pred.out",), lambda w, x: pred_projected(x, w), part("joint.pred.")),
        Block("joint.hidden", ("joint.enc", "joint.pred"), lambda a, b: activation(joined(a, b))),
        Block("joint.logits_raw", ("joint.hidden",), lambda w, x: head(x, w), part("joint.head.")),
        Block("joint.logprobs", ("joint.logits_raw",), lambda x: log_probabilities(x)),
    )


def random_inputs(config: Config, seed: int) -> tuple[Any, Any]:
    """Return 9 frames, and 10 words that are not blank."""
    rng = np.random.default_rng((seed, 1))
    frames = rng.normal(size=(9, config.encoder)).astype(np.float32)
    return frames, rng.integers(1, config.vocab, size=config.first + 5)
