"""A CTC model: convolution, batch norm, log-softmax over frames, greedy words, the loss.

Plain NumPy on `autodiff.ops`. The loss runs over the lattice of Graves et al., 2006, section 4.1.
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
    """Sizes: channels in, width, words (the blank included), which word is the blank, epsilon."""

    channels: int = 12
    width: int = 32
    vocab: int = 24
    blank: int = 0
    eps: float = 1e-5

    def __post_init__(self) -> None:
        if not 0 <= self.blank < self.vocab:
            raise ValueError(f"blank {self.blank} is no word of {self.vocab}")


TINY = Config()


def random_weights(config: Config, seed: int) -> dict[str, Any]:
    """Return float32 weights by name; statistics of the batch norm are not trivial."""
    rng = np.random.default_rng(seed)
    wide_, narrow = config.width, config.channels
    found = {
        "conv.weight": rng.normal(size=(wide_, narrow, 3)) / math.sqrt(3 * narrow),
        "conv.bias": 0.2 * rng.normal(size=wide_),
        "bn.mean": 0.3 * rng.normal(size=wide_),
        "bn.var": rng.uniform(0.3, 2, size=wide_),
        "bn.weight": rng.uniform(0.7, 1.4, size=wide_),
        "bn.bias": 0.2 * rng.normal(size=wide_),
        "norm.weight": 1 + 0.2 * rng.normal(size=wide_),
        "norm.bias": 0.2 * rng.normal(size=wide_),
        "head.weight": 2 * rng.normal(size=(config.vocab, wide_)) / math.sqrt(wide_),
        "head.bias": 0.3 * rng.normal(size=config.vocab),
    }
    return {k: np.asarray(v, np.float32) for k, v in found.items()}


def convolution(x: Any, weights: Weights) -> Any:
    """Kernel 3, one frame of zeros on either side; x (frames, channels)."""
    w = weights["conv.weight"]
    y = ops.conv1d(operand(x, w).T[None], wide(w), padding=((1, 1),))[0].T
    return y + wide(weights["conv.bias"])


def batch_norm(x: Any, weights: Weights, config: Config) -> Any:
    """(x - mean) / sqrt(var + eps) weight + bias, each by channel."""
    mean, var, weight, bias = (wide(weights[f"bn.{n}"]) for n in ("mean", "var", "weight", "bias"))
    return (x - mean) / np.sqrt(var + np.asarray(config.eps, x.dtype)) * weight + bias


def activation(x: Any) -> Any:
    """SiLU."""
    return ops.silu(x)


def norm(x: Any, weights: Weights, config: Config) -> Any:
    """Layer normalisation before the head."""
    return ops.layer_norm(
        x, wide(weights["norm.weight"]), wide(weights["norm.bias"]), eps=config.eps
    )


def head(x: Any, weights: Weights) -> Any:
    """Logits (frames, vocab)."""
    return product(x, weights["head.weight"]) + wide(weights["head.bias"])


def log_probabilities(logits: Any) -> Any:
    """log softmax over words."""
    return ops.log_softmax(logits)


def extended(labels: Any, blank: int) -> Any:
    """Labels with a blank before, between and after them."""
    found = np.full(2 * labels.shape[0] + 1, blank)
    found[1::2] = labels
    return found


def skips(states: Any, blank: int) -> Any:
    """Whether a state may follow the one two before it: a label that differs from the last one."""
    found = np.zeros(states.shape[0], bool)
    found[2:] = (states[2:] != blank) & (states[2:] != states[:-2])
    return found


def moved(alpha: Any, by: int) -> Any:
    """Log-weights of the state `by` before each; minus infinity where there is none."""
    return np.concatenate([np.full(by, -np.inf, alpha.dtype), alpha[:-by]])


def lattice(logprobs: Any, labels: Any, config: Config) -> Any:
    """(frames, 2 labels + 1): log-weights of all paths up to each frame and state."""
    states = extended(labels, config.blank)
    may = skips(states, config.blank)
    spoken = logprobs[:, states]
    never = np.asarray(-np.inf, logprobs.dtype)
    alpha = np.where(np.arange(states.shape[0]) < 2, spoken[0], never)
    rows = [alpha]
    for n in range(1, logprobs.shape[0]):
        stay = ops.logaddexp(alpha, moved(alpha, 1))
        alpha = ops.logaddexp(stay, np.where(may, moved(alpha, 2), never)) + spoken[n]
        rows.append(alpha)
    return np.stack(rows)


def collapsed(best: Any, blank: int) -> Any:
    """Words: repeats taken once, then blanks left out."""
    best = np.asarray(best)
    first = np.concatenate([[True], best[1:] != best[:-1]])
    return best[first & (best != blank)]


def forward(weights: Weights, config: Config, features: Any, labels: Any) -> Any:
    """Return the loss, a number.

    Arguments:
        weights, config: of the model.
        features: (frames, channels), real.
        labels: (n,), integers, none of them the blank.
    """
    x = ad.tap("ctc.conv", convolution(features, weights))
    x = ad.tap("ctc.bn", batch_norm(x, weights, config))
    x = ad.tap("ctc.act", activation(x))
    x = ad.tap("ctc.norm", norm(x, weights, config))
    logits = ad.tap("ctc.logits_raw", head(x, weights))
    logprobs = ad.tap("ctc.logprobs", log_probabilities(logits))
    alpha = ad.tap("ctc.lattice", lattice(logprobs, labels, config))
    ends = alpha[-1]
    return ad.tap("ctc.loss", -ops.logaddexp(ends[-1], ends[-2]))


ROLES = {"*.logprobs": "informational", "*.lattice": "informational"}


def blocks(weights: Weights, config: Config) -> tuple[Block, ...]:
    """Return every stage between the convolution and the loss, for `isolate`."""

    def part(prefix: str) -> dict[str, Any]:
        return {k: w for k, w in weights.items() if k.startswith(prefix)}

    return (
        Block("ctc.bn", ("ctc.conv",), lambda w, x: batch_norm(x, w, config), part("bn.")),
        Block("ctc.act", ("ctc.bn",), lambda x: activation(x)),
        Block("ctc.norm", ("ctc.act",), lambda w, x: norm(x, w, config), part("norm.")),
        Block("ctc.logits_raw", ("ctc.norm",), lambda w, x: head(x, w), part("head.")),
        Block("ctc.logprobs", ("ctc.logits_raw",), lambda x: log_probabilities(x)),
    )


def random_inputs(config: Config, seed: int) -> tuple[Any, Any]:
    """Return features of 28 frames, and 6 labels of which two in a row are equal."""
    rng = np.random.default_rng((seed, 1))
    features = rng.normal(size=(28, config.channels)) * np.exp(rng.normal(size=(28, 1)))
    words = [n for n in range(config.vocab) if n != config.blank]
    labels = rng.permutation(words)[:6]
    labels[3] = labels[2]
    return features.astype(np.float32), labels
