"""A small transformer in NumPy on our ops, its blocks, and dumps of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import autodiff as ad
from checks.gates import Block, Dump
from checks.ports.gradients import gradients

DEPTH, WIDTH, HEADS, WORDS, TIME = 4, 8, 2, 13, 6
TOKENS = np.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
CAUSAL = np.tril(np.ones((TIME, TIME), bool))
POSITIONS = np.arange(TIME)
Weights = dict[str, Any]


def weights(seed: int = 0) -> Weights:
    rng = np.random.default_rng(seed)

    def normal(*shape: int, scale: float = 0.5) -> Any:
        return (scale * rng.normal(size=shape)).astype(np.float32)

    made = {"embed": normal(WORDS, WIDTH), "final": 1 + normal(WIDTH, scale=0.1)}
    for n in range(DEPTH):
        made |= {
            f"{n}.norm": 1 + normal(WIDTH, scale=0.1),
            f"{n}.q": normal(WIDTH, WIDTH),
            f"{n}.k": normal(WIDTH, WIDTH),
            f"{n}.v": normal(WIDTH, WIDTH),
            f"{n}.o": normal(WIDTH, WIDTH),
            f"{n}.up": normal(WIDTH, 3 * WIDTH),
            f"{n}.bias": normal(3 * WIDTH),
            f"{n}.down": normal(3 * WIDTH, WIDTH),
        }
    return made | {"head": normal(WIDTH, WORDS)}


def attention(w: Mapping[str, Any], x: Any, positions: Any, mask: Any) -> Any:
    h = ad.ops.rms_norm(x, w["norm"], eps=1e-6)
    q, k, v = (
        (h @ w[name]).reshape(*x.shape[:2], HEADS, WIDTH // HEADS).swapaxes(1, 2)
        for name in ("q", "k", "v")
    )
    q, k = ad.ops.rope(q, positions), ad.ops.rope(k, positions)
    scores = q @ k.swapaxes(-1, -2) / 2.0
    scores = np.where(mask, scores, np.float32(-1e9))
    mixed = (ad.ops.softmax(scores, -1) @ v).swapaxes(1, 2).reshape(x.shape)
    return x + mixed @ w["o"]


def mlp(w: Mapping[str, Any], x: Any) -> Any:
    return x + ad.ops.gelu(x @ w["up"] + w["bias"]) @ w["down"]


def embed(w: Mapping[str, Any], tokens: Any) -> Any:
    return w["embed"][tokens]


def head(w: Mapping[str, Any], x: Any) -> Any:
    return ad.ops.rms_norm(x, w["final"], eps=1e-6) @ w["head"]


def layer(w: Mapping[str, Any], n: int) -> dict[str, Any]:
    return {k.partition(".")[2]: v for k, v in w.items() if k.startswith(f"{n}.")}


def forward(w: Mapping[str, Any], tokens: Any, changes: Mapping[str, Any] | None = None) -> Any:
    """Logits; `changes` replaces parts by other functions: {"1.mlp": f}."""
    part = dict(changes or {})
    x = ad.tap("embed", part.get("embed", embed)(w, tokens))
    for n in range(DEPTH):
        own = layer(w, n)
        x = ad.tap(f"{n}.attn", part.get(f"{n}.attn", attention)(own, x, POSITIONS, CAUSAL))
        x = ad.tap(f"{n}.mlp", part.get(f"{n}.mlp", mlp)(own, x))
    return ad.tap("logits", part.get("head", head)(w, x))


def blocks(w: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> tuple[Block, ...]:
    """The blocks in order, with their weights; `changes` as in `forward`."""
    part = dict(changes or {})
    own = {"embed": w["embed"]}
    made = [Block("embed", ("tokens",), part.get("embed", embed), own)]
    before = "embed"
    for n in range(DEPTH):
        inner = layer(w, n)
        mixing = {k: inner[k] for k in ("norm", "q", "k", "v", "o")}
        call = part.get(f"{n}.attn", attention)
        made.append(Block(f"{n}.attn", (before, "positions", "mask"), call, mixing))
        call = part.get(f"{n}.mlp", mlp)
        feeding = {k: inner[k] for k in ("up", "bias", "down")}
        made.append(Block(f"{n}.mlp", (f"{n}.attn",), call, feeding))
        before = f"{n}.mlp"
    own = {k: w[k] for k in ("final", "head")}
    return (*made, Block("logits", (before,), part.get("head", head), own))


def dump(
    folder: Path,
    w: Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    grads: bool = False,
    side: str = "reference",
) -> Path:
    """Everything a block takes and makes; with `grads` the cotangents of all taps and weights."""
    with Dump(folder, side=side, command="") as d:
        for name, value in (("tokens", TOKENS), ("positions", POSITIONS), ("mask", CAUSAL)):
            d.put(name, d.input(name, value), role="debug")
        if grads:
            gradients(lambda w: loss(forward(w, TOKENS, changes)), dict(w)).put(d)
        else:
            forward(w, TOKENS, changes)
    return folder


def loss(logits: Any) -> Any:
    target = np.sin(np.arange(logits.size, dtype=np.float32)).reshape(logits.shape)
    return (logits * target).sum()


def all_names() -> list[str]:
    return ["embed", *(f"{n}.{p}" for n in range(DEPTH) for p in ("attn", "mlp")), "logits"]


def right() -> tuple[Block, ...]:
    """Blocks with the right weights, for a command line."""
    return blocks(weights())
