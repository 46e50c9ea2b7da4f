"""An injected-token stage: audio embeddings placed into a decoder's input where placeholders stand.

Plain NumPy on `autodiff.ops`; the decoder's attention and mlp are those of `toy_transformer`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import autodiff as ad
from autodiff import ops
from checks.gates.blocks.block import Block
from checks.ports import toy_blocks as parts
from checks.ports import toy_transformer as toy
from checks.ports.policy import wide

Weights = Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """The decoder's sizes; the word that holds a place; width of the audio; frames in one token."""

    decoder: toy.Config = field(
        default_factory=lambda: toy.Config(norm="rms", eps=1e-6, encoder=0, decoder=1, scale=1.0)
    )
    placeholder: int = 47
    audio: int = 12
    stacked: int = 2


TINY = Config()


def random_weights(config: Config, seed: int) -> dict[str, Any]:
    """Return float32 weights by name."""
    rng = np.random.default_rng(seed)
    inner, width = config.decoder.hidden, config.decoder.width
    found = {k: v for k, v in toy.random_weights(config.decoder, seed).items() if k[:3] == "dec"}
    into = config.audio * config.stacked
    made = {
        "dec.embedding": rng.normal(size=(config.decoder.vocab, width)),
        "audio.norm.weight": 1 + 0.2 * rng.normal(size=into),
        "audio.norm.bias": 0.2 * rng.normal(size=into),
        "audio.up.weight": rng.normal(size=(inner, into)) / math.sqrt(into),
        "audio.up.bias": 0.2 * rng.normal(size=inner),
        "audio.down.weight": rng.normal(size=(width, inner)) / math.sqrt(inner),
        "audio.down.bias": 0.2 * rng.normal(size=width),
    }
    return found | {k: np.asarray(v, np.float32) for k, v in made.items()}


def stacked(frames: Any, config: Config) -> Any:
    """Frames in a row as one: (frames / stacked, stacked audio)."""
    return frames.reshape(frames.shape[0] // config.stacked, -1)


def audio_norm(x: Any, weights: Weights, config: Config) -> Any:
    """Layer normalisation of the stacked frames."""
    weight, bias = wide(weights["audio.norm.weight"]), wide(weights["audio.norm.bias"])
    return ops.layer_norm(x, weight, bias, eps=config.decoder.eps)


def adapted(x: Any, weights: Weights) -> Any:
    """Audio embeddings (tokens, width): down(gelu(up x))."""
    up = toy.activation(toy.linear(x, weights, "audio.up"))
    return toy.linear(up, weights, "audio.down")


def places(tokens: Any, config: Config) -> Any:
    """Where placeholders stand."""
    return np.flatnonzero(np.asarray(tokens) == config.placeholder)


def fused(words: Any, audio: Any, at: Any) -> Any:
    """Word embeddings, those at `at` replaced by audio."""
    rows = [words[n : n + 1] for n in range(words.shape[0])]
    for n, place in enumerate(at):
        rows[place] = audio[n : n + 1]
    return np.concatenate(rows)


def block(x: Any, weights: Weights, config: toy.Config, name: str) -> Any:
    """Causal attention and mlp, each behind a norm."""
    h = ad.tap(f"{name}.norm", toy.norm(x, weights, f"{name}.norm", config))
    zeros = np.zeros((config.kv_heads, x.shape[0], config.head), x.dtype)
    branch, _ = toy.self_attention(h, weights, config, f"{name}.self", name, (zeros, zeros), 0)
    x = toy.added(x, ad.tap(f"{name}.attn", branch), config)
    h = toy.norm(x, weights, f"{name}.mlp_norm", config)
    return ad.tap(f"{name}.out", toy.added(x, toy.mlp(h, weights, name, name), config))


def forward(weights: Weights, config: Config, frames: Any, tokens: Any) -> Any:
    """Return logits (tokens, vocab).

    Arguments:
        weights, config: of the model.
        frames: (frames, audio), real.
        tokens: (n,), integers, with a placeholder for every `config.stacked` frames.
    """
    x = ad.tap("audio.norm", audio_norm(stacked(frames, config), weights, config))
    audio = ad.tap("audio.embed", adapted(x, weights))
    words = ad.tap("dec.token_emb", toy.embedded(tokens, weights, config.decoder))
    x = ad.tap("dec.fused", fused(words, audio, places(tokens, config)))
    for n in range(config.decoder.decoder):
        x = block(x, weights, config.decoder, f"dec.block.{n}")
    x = ad.tap("dec.out_before_head", toy.norm(x, weights, "dec.final", config.decoder))
    return ad.tap("dec.logits_raw", toy.linear(x, weights, "dec.head"))


ROLES = {"*.weights": "informational"}


def blocks(weights: Weights, config: Config) -> tuple[Block, ...]:
    """Return the adapter, the parts of the first decoder block, the others and the head, for
    `isolate`.
    """
    sizes = config.decoder

    def one(n: int) -> Block:
        name = f"dec.block.{n}"
        held = parts.under(weights, name)
        before = (f"dec.block.{n - 1}.out",)
        return Block(f"{name}.out", before, lambda w, x: block(x, w, sizes, name), held)

    first, last = "dec.block.0", f"dec.block.{sizes.decoder - 1}.out"
    head = parts.under(weights, "dec.head")
    return (
        Block(
            "audio.embed",
            ("audio.norm",),
            lambda w, x: adapted(x, w),
            parts.under(weights, "audio.up", "audio.down"),
        ),
        *parts.attention_parts(weights, sizes, first, "dec.fused", 0),
        *parts.mlp_parts(weights, sizes, first, ("dec.fused", f"{first}.attn")),
        *(one(n) for n in range(1, sizes.decoder)),
        parts.norm_part(weights, sizes, "dec.out_before_head", last, "dec.final"),
        Block(
            "dec.logits_raw",
            ("dec.out_before_head",),
            lambda w, x: toy.linear(x, w, "dec.head"),
            head,
        ),
    )


def random_inputs(config: Config, seed: int) -> tuple[Any, Any]:
    """Return 10 frames, and 14 tokens, 5 of them placeholders in a row."""
    rng = np.random.default_rng((seed, 1))
    frames = rng.normal(size=(5 * config.stacked, config.audio)).astype(np.float32)
    words = [n for n in range(config.decoder.vocab) if n != config.placeholder]
    tokens = rng.permutation(words)[:14]
    tokens[4:9] = config.placeholder
    return frames, tokens.astype(np.int64)
