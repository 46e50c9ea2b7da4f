"""Qwen3 in plain NumPy: grouped-query attention, q/k norms, rotary positions, SwiGLU, RMSNorm.

    logits = forward(weights, TINY, tokens)
    tokens = generate(weights, TINY, prompt, steps=8)  # with a cache of keys and values

Weights stand in a flat table under the names of the published checkpoints; with bfloat16 weights,
products round their input (see `policy`).

Reference: Qwen3 Technical Report, arXiv:2505.09388; rotary positions, arXiv:2104.09864; grouped
queries, arXiv:2305.13245; SwiGLU, arXiv:2002.05202; RMSNorm, arXiv:1910.07467.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import autodiff as ad
from checks.gates.blocks.block import Block
from checks.ports.gradients import gradients
from checks.ports.policy import linear, wide
from checks.ports.qwen3_config import (
    EMBED,
    HEAD,
    NORM,
    ROLES,
    SEED,
    TINY,
    Config,
    Example,
    Weights,
    example,
    random_weights,
)

if TYPE_CHECKING:
    from checks.gates.capture.dump import Dump

__all__ = ["ROLES", "SEED", "TINY", "example", "random_weights"]

GATED = ("gate", "up", "down")
Cache = tuple[tuple[Any, Any], ...]  # keys and values of each layer, (batch, groups, time, width)


# --- layers --------------------------------------------------------------------------------


def rms_norm(x: Any, weight: Any, eps: float) -> Any:
    """x / sqrt(mean x^2 + eps), times a weight, over the last axis."""
    return ad.ops.rms_norm(x, wide(weight), eps=eps)


def rope(x: Any, positions: Any, theta: float) -> Any:
    """Rotary positions of x (batch, heads, time, width): pairs are (i, i + width / 2)."""
    return ad.ops.rope(x, positions, base=theta)


def repeat_heads(x: Any, times: int) -> Any:
    """Each head of keys or values for `times` neighbouring heads of queries."""
    return np.repeat(x, times, axis=1)


def residual(x: Any, y: Any) -> Any:
    """The residual stream with a layer's result added."""
    return x + y


def normed_heads(weights: Weights, config: Config, name: str, x: Any) -> Any:
    """Queries ("q") or keys ("k") of x (batch, time, width), each head normalised by itself."""
    y = linear(x, weights[f"self_attn.{name}_proj.weight"])
    y = y.reshape(*y.shape[:2], -1, config.head_width)
    return rms_norm(y, weights[f"self_attn.{name}_norm.weight"], config.eps)


def heads_first(config: Config, x: Any) -> Any:
    """(batch, time, heads x head_width) to (batch, heads, time, head_width)."""
    return x.reshape(*x.shape[:2], -1, config.head_width).transpose(0, 2, 1, 3)


def turned(config: Config, x: Any, start: int) -> Any:
    """Heads first, at positions start, start + 1, ...: (batch, heads, time, head_width)."""
    x = x.transpose(0, 2, 1, 3)
    return rope(x, np.arange(start, start + x.shape[2]), config.theta)


def scores(config: Config, q: Any, k: Any) -> Any:
    """Scaled products of queries and keys (batch, heads, queries, keys); 0 where none is seen."""
    k = repeat_heads(k, config.heads // config.groups)
    products = np.matmul(q, k.transpose(0, 1, 3, 2)) * scale(config)
    return np.where(seen(*products.shape[-2:]), products, 0.0)


def scale(config: Config) -> float:
    """Return what products of queries and keys are multiplied by."""
    return float(config.head_width**-0.5)


def seen(queries: int, keys: int) -> np.ndarray[Any, Any]:
    """Which keys each query sees: the last one sees all, each before it one less."""
    found: np.ndarray[Any, Any] = np.arange(keys) <= np.arange(keys - queries, keys)[:, None]
    return found


def attention_weights(products: Any) -> Any:
    """Softmax of scores over the keys that are seen."""
    return ad.ops.softmax(np.where(seen(*products.shape[-2:]), products, -np.inf))


def attended(weights: Weights, config: Config, probs: Any, v: Any) -> Any:
    """The mean of values by attention weights, heads joined, projected to the stream's width."""
    y = np.matmul(probs, repeat_heads(v, config.heads // config.groups)).transpose(0, 2, 1, 3)
    return linear(y.reshape(*y.shape[:2], -1), weights["self_attn.o_proj.weight"])


def mlp(weights: Weights, x: Any) -> Any:
    """down(silu(gate(x)) up(x))."""
    gate, up, down = (weights[f"mlp.{m}_proj.weight"] for m in GATED)
    return linear(ad.ops.silu(linear(x, gate)) * linear(x, up), down)


def attention(
    weights: Weights, config: Config, x: Any, past: tuple[Any, Any] | None = None, at: str = ""
) -> tuple[Any, tuple[Any, Any]]:
    """Self-attention of x (batch, time, width) after `past`; returns it, and keys and values."""
    start = 0 if past is None else past[0].shape[2]
    q = _tap(at, "q_norm", normed_heads(weights, config, "q", x))
    k = _tap(at, "k_norm", normed_heads(weights, config, "k", x))
    q = _tap(at, "q", turned(config, q, start))
    k = _tap(at, "k", turned(config, k, start))
    v = _tap(at, "v", linear(x, weights["self_attn.v_proj.weight"]))
    v = heads_first(config, v)
    if past is not None:
        k, v = extended(past[0], k), extended(past[1], v)
    probs = attention_weights(_tap(at, "scores", scores(config, q, k)))
    y = attended(weights, config, _tap(at, "attn_probs", probs), v)
    return _tap(at, "attn", y), (k, v)


def extended(past: Any, new: Any) -> Any:
    """The cache with the new keys or values behind those of the past."""
    return np.concatenate([past, new], axis=2)


def block(
    weights: Weights, config: Config, x: Any, past: tuple[Any, Any] | None = None, at: str = ""
) -> tuple[Any, tuple[Any, Any]]:
    """One layer; taps its inner tensors under `at`, where given."""
    y = _tap(at, "norm", rms_norm(x, weights["input_layernorm.weight"], config.eps))
    y, kept = attention(weights, config, y, past, at)
    x = residual(x, y)
    y = rms_norm(x, weights["post_attention_layernorm.weight"], config.eps)
    y = _tap(at, "mlp", mlp(weights, _tap(at, "attn_norm", y)))
    return residual(x, y), kept


def embed(weights: Weights, tokens: Any) -> Any:
    """Rows of the embedding."""
    return ad.ops.embedding(wide(weights[EMBED]), tokens)


def head(weights: Weights, config: Config, x: Any) -> Any:
    """Logits (batch, time, vocabulary)."""
    return linear(x, weights[EMBED if config.tied else HEAD])


def _tap(at: str, name: str, x: Any) -> Any:
    return ad.tap(f"{at}.{name}", x) if at else x


def layer(weights: Weights, n: int) -> dict[str, Any]:
    """The weights of one layer, by their names inside it."""
    at = f"model.layers.{n}."
    return {name.removeprefix(at): w for name, w in weights.items() if name.startswith(at)}


# --- the model -----------------------------------------------------------------------------


def forward(weights: Weights, config: Config, tokens: Any) -> Any:
    """Logits (batch, time, vocabulary) of integer tokens (batch, time); taps `dec.*`."""
    x = ad.tap("dec.token_emb", embed(weights, tokens))
    for n in range(config.layers):
        at = f"dec.block.{n}"
        x = ad.tap(f"{at}.out", block(layer(weights, n), config, x, at=at)[0])
    x = ad.tap("dec.out_before_head", rms_norm(x, weights[NORM], config.eps))
    logits = ad.tap("dec.logits_raw", head(weights, config, x))
    ad.tap("dec.logits", ad.ops.log_softmax(logits))
    return logits


def loss(weights: Weights, config: Config, tokens: Any, labels: Any, shares: Any) -> Any:
    """Sum of the cross entropies of the labels (batch, time), each times its share."""
    rows = ad.ops.cross_entropy(forward(weights, config, tokens), labels)
    return ad.tap("dec.loss", np.sum(rows * shares))


def step(
    weights: Weights, config: Config, tokens: Any, cache: Cache | None = None
) -> tuple[Any, Cache]:
    """Logits of the last token, and the cache with these tokens behind it; taps `dec.gen.*`."""
    x = embed(weights, tokens)
    kept = []
    for n in range(config.layers):
        past = None if cache is None else cache[n]
        x, found = block(layer(weights, n), config, x, past)
        x = ad.tap(f"dec.gen.block.{n}.out", x)
        kept.append(found)
    x = rms_norm(x[:, -1:], weights[NORM], config.eps)
    return ad.tap("dec.gen.logits_raw", head(weights, config, x)), tuple(kept)


def generate(weights: Weights, config: Config, prompt: Any, steps: int) -> np.ndarray[Any, Any]:
    """The likeliest tokens after a prompt (batch, time), one step at a time: (batch, steps)."""
    tokens, cache, found = np.asarray(prompt), None, []
    for _ in range(steps):
        logits, cache = step(weights, config, tokens, cache)
        tokens = np.argmax(logits[:, -1:], axis=-1)
        found.append(tokens)
    return np.asarray(ad.tap("dec.gen.tokens", np.concatenate(found, axis=1)))


def run(dump: "Dump", weights: Weights, config: Config, given: Example) -> None:
    """Put a whole run into an open dump: forward, backward of the loss, decode with a cache."""
    given.noted(dump)
    dump.put("dec.tokens", given.tokens)

    def whole(w: Weights) -> Any:
        return loss(w, config, given.tokens, given.labels, given.shares)

    gradients(whole, weights).put(dump)
    generate(weights, config, given.prompt, given.steps)


# --- parts, each by itself -----------------------------------------------------------------


def blocks(weights: Weights, config: Config) -> tuple[Block, ...]:
    """The model's parts in execution order, as functions of tensors of a dump.

    `dec.tokens` is the dump's copy of the input.
    """
    x = "dec.token_emb"
    found = [Block(x, ("dec.tokens",), lambda w, t: embed(w, t), {EMBED: weights[EMBED]})]
    for n in range(config.layers):
        found += _layer_blocks(weights, config, n, x)
        x = f"dec.block.{n}.out"
    last, matrix = "dec.out_before_head", EMBED if config.tied else HEAD

    def norm(w: Weights, v: Any) -> Any:
        return rms_norm(v, w[NORM], config.eps)

    def logits(w: Weights, v: Any) -> Any:
        return head(w, config, v)

    return (
        *found,
        Block(last, (x,), norm, {NORM: weights[NORM]}),
        Block("dec.logits_raw", (last,), logits, {matrix: weights[matrix]}),
        Block("dec.logits", ("dec.logits_raw",), ad.ops.log_softmax),
    )


def _layer_blocks(weights: Weights, c: Config, n: int, x: str) -> list[Block]:
    """The parts of layer n, whose input is the tensor `x`."""
    at = f"dec.block.{n}"

    def part(name: str, inputs: str, call: Callable[..., Any], *matrices: str) -> Block:
        keys = tuple(x if i == "x" else f"{at}.{i}" for i in inputs.split())
        own = {f"model.layers.{n}.{m}.weight" for m in matrices}
        held = {k: w for k, w in weights.items() if k in own}
        if not held:
            return Block(f"{at}.{name}", keys, lambda *values: call({}, *values))
        return Block(f"{at}.{name}", keys, lambda w, *values: call(layer(w, n), *values), held)

    def norm(w: Weights, v: Any) -> Any:
        return rms_norm(v, w["input_layernorm.weight"], c.eps)

    def queries(w: Weights, y: Any) -> Any:
        return normed_heads(w, c, "q", y)

    def keys(w: Weights, y: Any) -> Any:
        return normed_heads(w, c, "k", y)

    def values(w: Weights, y: Any) -> Any:
        return linear(y, w["self_attn.v_proj.weight"])

    def attn(w: Weights, p: Any, v: Any) -> Any:
        return attended(w, c, p, heads_first(c, v))

    def attn_norm(w: Weights, v: Any, y: Any) -> Any:
        return rms_norm(residual(v, y), w["post_attention_layernorm.weight"], c.eps)

    def out(_: Weights, v: Any, y: Any, z: Any) -> Any:
        return residual(residual(v, y), z)

    own = "self_attn."
    return [
        part("norm", "x", norm, "input_layernorm"),
        part("q_norm", "norm", queries, own + "q_proj", own + "q_norm"),
        part("k_norm", "norm", keys, own + "k_proj", own + "k_norm"),
        part("q", "q_norm", lambda _, q: turned(c, q, 0)),
        part("k", "k_norm", lambda _, k: turned(c, k, 0)),
        part("v", "norm", values, own + "v_proj"),
        part("scores", "q k", lambda _, q, k: scores(c, q, k)),
        part("attn_probs", "scores", lambda _, s: attention_weights(s)),
        part("attn", "attn_probs v", attn, own + "o_proj"),
        part("attn_norm", "x attn", attn_norm, "post_attention_layernorm"),
        part("mlp", "attn_norm", lambda w, y: mlp(w, y), *(f"mlp.{m}_proj" for m in GATED)),
        part("out", "x attn mlp", out),
    ]
