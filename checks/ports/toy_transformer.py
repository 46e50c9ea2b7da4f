"""A small speech transformer: log-mel and convolution, an encoder, a decoder with a cache.

Plain NumPy on `autodiff.ops`; stages show their results to open dumps (`ad.tap`), those inside a
block for the first block of each stack. The decoder reads a prompt at once and the last
`config.steps` tokens one by one, against cached keys and values.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import autodiff as ad
from autodiff import ops
from checks.gates.blocks.block import Block
from checks.ports import mel_front_end as front
from checks.ports.policy import linear as product
from checks.ports.policy import wide

Weights = Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """Sizes and conventions.

    Arguments:
        mels, window, hop, log_floor: of the front end.
        width, heads, kv_heads, head, hidden: of every block; kv_heads < heads shares keys.
        encoder, decoder: blocks of each.
        vocab: words; capacity: of the cache, in tokens; steps: tokens decoded one by one.
        norm: "layer" or "rms"; eps: its epsilon.
        base, interleaved: of the rotary embedding.
        scale: of word embeddings; sqrt(width) where None.
        residual: factor of every branch that is added to the stream.
    """

    mels: int = 16
    window: int = 32
    hop: int = 16
    width: int = 32
    heads: int = 4
    kv_heads: int = 2
    head: int = 8
    hidden: int = 64
    encoder: int = 2
    decoder: int = 2
    vocab: int = 48
    capacity: int = 16
    steps: int = 2
    norm: str = "layer"
    eps: float = 1e-5
    base: float = 10000.0
    interleaved: bool = False
    scale: float | None = None
    residual: float = 1.0
    log_floor: float = 1e-10

    def __post_init__(self) -> None:
        if self.norm not in ("layer", "rms") or self.heads % self.kv_heads or self.head % 2:
            raise ValueError(f"no such toy transformer: {self}")


TINY = Config()


def random_weights(config: Config, seed: int) -> dict[str, Any]:
    """Return float32 weights by name, of the sizes that training gives; biases are not zero."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}

    def linear(name: str, out: int, into: int) -> None:
        found[f"{name}.weight"] = rng.normal(size=(out, into)) / math.sqrt(into)
        found[f"{name}.bias"] = 0.2 * rng.normal(size=out)

    def norm(name: str) -> None:
        found[f"{name}.weight"] = 1 + 0.2 * rng.normal(size=config.width)
        found[f"{name}.bias"] = 0.2 * rng.normal(size=config.width)

    def attention(name: str) -> None:
        linear(f"{name}.q", config.heads * config.head, config.width)
        for part in ("k", "v"):
            linear(f"{name}.{part}", config.kv_heads * config.head, config.width)
        linear(f"{name}.o", config.width, config.heads * config.head)

    bins = config.window // 2 + 1
    found["fe.filters"] = front.triangles(config.mels, bins)
    found["fe.conv.weight"] = rng.normal(size=(config.width, config.mels, 3)) / math.sqrt(
        config.mels
    )
    found["fe.conv.bias"] = 0.2 * rng.normal(size=config.width)
    for stack, blocks in (("enc", config.encoder), ("dec", config.decoder)):
        for n in range(blocks):
            name = f"{stack}.block.{n}"
            norm(f"{name}.norm")
            attention(f"{name}.self")
            if stack == "dec":
                norm(f"{name}.cross_norm")
                attention(f"{name}.cross")
            norm(f"{name}.mlp_norm")
            linear(f"{name}.up", config.hidden, config.width)
            linear(f"{name}.down", config.width, config.hidden)
        norm(f"{stack}.final")
    found["dec.embedding"] = rng.normal(size=(config.vocab, config.width)) / math.sqrt(config.width)
    linear("dec.head", config.vocab, config.width)
    return {k: np.asarray(v, np.float32) for k, v in found.items()}


# --- products and norms ---


def linear(x: Any, weights: Weights, name: str) -> Any:
    """x W^T + b."""
    return product(x, weights[f"{name}.weight"]) + wide(weights[f"{name}.bias"])


def norm(x: Any, weights: Weights, name: str, config: Config) -> Any:
    """Layer normalisation, or of the root mean square."""
    weight, bias = wide(weights[f"{name}.weight"]), wide(weights[f"{name}.bias"])
    if config.norm == "layer":
        return ops.layer_norm(x, weight, bias, eps=config.eps)
    return ops.rms_norm(x, weight, eps=config.eps)


def activation(x: Any) -> Any:
    """GELU in its erf form."""
    return ops.gelu(x)


# --- attention ---


def split_heads(x: Any, heads: int) -> Any:
    """(time, heads dim) to (heads, time, dim)."""
    return x.reshape(x.shape[0], heads, -1).transpose(1, 0, 2)


def merge_heads(x: Any) -> Any:
    """(heads, time, dim) to (time, heads dim)."""
    return x.transpose(1, 0, 2).reshape(x.shape[1], -1)


def rotary(x: Any, positions: Any, config: Config) -> Any:
    """Keys or queries turned by their positions."""
    return ops.rope(x, positions, base=config.base, interleaved=config.interleaved)


def grouped(x: Any, config: Config) -> Any:
    """Keys or values for each query head: kv head i serves a row of heads / kv_heads."""
    return np.repeat(x, config.heads // config.kv_heads, axis=0)


def causal(queries: int, keys: int, start: int) -> Any:
    """(queries, keys): True where a key is seen; the first query stands at `start`."""
    return np.arange(keys)[None] <= (start + np.arange(queries))[:, None]


def masked(scores: Any, seen: Any) -> Any:
    """Scores, minus infinity where a key is not seen."""
    return np.where(seen, scores, np.asarray(-np.inf, scores.dtype))


def scaling(config: Config) -> float:
    """1 / sqrt(head)."""
    return 1.0 / math.sqrt(config.head)


def softmax(x: Any) -> Any:
    """Over the last axis."""
    return ops.softmax(x)


def scored(q: Any, k: Any, config: Config) -> Any:
    """Scaled products of queries and keys (heads, queries, keys)."""
    return (q @ grouped(k, config).transpose(0, 2, 1)) * scaling(config)


def mixed(weights: Any, v: Any, config: Config) -> Any:
    """The mean of values by weights, heads joined: (time, heads dim)."""
    return merge_heads(weights @ grouped(v, config))


def attend(q: Any, k: Any, v: Any, seen: Any, config: Config, name: str) -> Any:
    """(time, heads dim); name is empty where nothing is shown."""
    scores = shown(name, "scores", scored(q, k, config))
    weights = shown(name, "weights", softmax(masked(scores, seen)))
    return shown(name, "heads", mixed(weights, v, config))


def shown(name: str, part: str, x: Any) -> Any:
    """Tap NAME.PART, where there is a name."""
    return ad.tap(f"{name}.{part}", x) if name else x


def projected(x: Any, weights: Weights, name: str, part: str, heads: int) -> Any:
    """Queries, keys or values by head."""
    return split_heads(linear(x, weights, f"{name}.{part}"), heads)


Cache = tuple[Any, Any]


def written(cache: Any, new: Any, start: int) -> Any:
    """A cache (heads, capacity, dim) with new keys or values from `start` on."""
    stop = start + new.shape[1]
    return np.concatenate([cache[:, :start], new, cache[:, stop:]], axis=1)


def positions_from(start: int, count: int) -> Any:
    """Integer positions."""
    return np.arange(start, start + count)


def self_attention(
    x: Any,
    weights: Weights,
    config: Config,
    name: str,
    shows: str,
    cache: Cache | None = None,
    start: int = 0,
    stage: str = "",
) -> tuple[Any, Cache | None]:
    """Attention of a sequence to itself, or to its cached past: causal where there is a cache.

    The cache is shown as STAGE.k_cache after the prompt.
    """
    at = positions_from(start, x.shape[0])
    q = projected(x, weights, name, "q", config.heads)
    k = projected(x, weights, name, "k", config.kv_heads)
    v = shown(shows, "v", projected(x, weights, name, "v", config.kv_heads))
    q = shown(shows, "q", rotary(q, at, config))
    k = shown(shows, "k", rotary(k, at, config))
    if cache is None:
        seen = np.ones((x.shape[0], x.shape[0]), bool)
    else:
        cache = written(cache[0], k, start), written(cache[1], v, start)
        k, v = cache
        seen = causal(x.shape[0], k.shape[1], start)
        if start:
            ad.tap(f"{stage}.k_cache", k)
    return linear(attend(q, k, v, seen, config, shows), weights, f"{name}.o"), cache


def cross_attention(x: Any, memory: Any, weights: Weights, config: Config, name: str) -> Any:
    """Attention of the decoder to the encoder's result."""
    q = projected(x, weights, name, "q", config.heads)
    k = projected(memory, weights, name, "k", config.kv_heads)
    v = projected(memory, weights, name, "v", config.kv_heads)
    seen = np.ones((x.shape[0], memory.shape[0]), bool)
    return linear(attend(q, k, v, seen, config, ""), weights, f"{name}.o")


# --- blocks ---


def mlp(x: Any, weights: Weights, name: str, shows: str) -> Any:
    """down(activation(up x))."""
    return linear(
        shown(shows, "act", activation(linear(x, weights, f"{name}.up"))), weights, f"{name}.down"
    )


def added(x: Any, branch: Any, config: Config) -> Any:
    """The residual connection."""
    return x + branch if config.residual == 1.0 else x + branch * config.residual


def encoder_block(x: Any, weights: Weights, config: Config, name: str) -> Any:
    """One encoder block: attention and mlp, each behind a norm and added to the stream."""
    parts = name if name.endswith(".0") else ""
    h = shown(parts, "norm", norm(x, weights, f"{name}.norm", config))
    branch, _ = self_attention(h, weights, config, f"{name}.self", parts)
    x = shown(parts, "mid", added(x, shown(parts, "attn", branch), config))
    h = norm(x, weights, f"{name}.mlp_norm", config)
    return ad.tap(f"{name}.out", added(x, mlp(h, weights, name, parts), config))


def decoder_block(
    x: Any,
    memory: Any,
    weights: Weights,
    config: Config,
    name: str,
    shows: str,
    cache: Cache,
    start: int,
) -> tuple[Any, Cache]:
    """One decoder block: causal attention, attention to the encoder, mlp."""
    parts = shows if start == 0 and shows.endswith(".0") else ""
    h = shown(parts, "norm", norm(x, weights, f"{name}.norm", config))
    branch, kept = self_attention(h, weights, config, f"{name}.self", parts, cache, start, shows)
    x = shown(parts, "mid", added(x, shown(parts, "attn", branch), config))
    h = norm(x, weights, f"{name}.cross_norm", config)
    cross = cross_attention(h, memory, weights, config, f"{name}.cross")
    x = added(x, shown(parts, "cross", cross), config)
    h = norm(x, weights, f"{name}.mlp_norm", config)
    x = ad.tap(f"{shows}.out", added(x, mlp(h, weights, name, parts), config))
    assert kept is not None
    return x, kept


# --- the whole ---


def encode(samples: Any, weights: Weights, config: Config) -> Any:
    """(frames, width)."""
    x = front.front_end(samples, weights, config)
    for n in range(config.encoder):
        x = encoder_block(x, weights, config, f"enc.block.{n}")
    return ad.tap("enc.final", norm(x, weights, "enc.final", config))


def embedded(tokens: Any, weights: Weights, config: Config) -> Any:
    """Rows of the table, times sqrt(width)."""
    scale = math.sqrt(config.width) if config.scale is None else config.scale
    return ops.embedding(wide(weights["dec.embedding"]), tokens) * scale


def decode(
    tokens: Any,
    memory: Any,
    weights: Weights,
    config: Config,
    caches: tuple[Cache, ...],
    start: int,
    stage: str,
) -> tuple[Any, tuple[Cache, ...]]:
    """Logits (time, vocab) of tokens that stand from `start` on, and the caches after them."""
    x = ad.tap(f"{stage}.token_emb", embedded(tokens, weights, config))
    kept = []
    for n, cache in enumerate(caches):
        name = f"block.{n}"
        x, after = decoder_block(
            x, memory, weights, config, f"dec.{name}", f"{stage}.{name}", cache, start
        )
        kept.append(after)
    x = norm(x, weights, "dec.final", config)
    return linear(x, weights, "dec.head"), tuple(kept)


def empty_caches(config: Config, dtype: Any) -> tuple[Cache, ...]:
    """Zeros (kv_heads, capacity, head), keys and values for each decoder block."""
    zeros = np.zeros((config.kv_heads, config.capacity, config.head), dtype)
    return tuple((zeros, zeros) for _ in range(config.decoder))


def log_probabilities(logits: Any) -> Any:
    """log softmax over words."""
    return ops.log_softmax(logits)


def forward(weights: Weights, config: Config, samples: Any, tokens: Any) -> Any:
    """Return logits (tokens, vocab).

    Arguments:
        weights, config: of the model.
        samples: (n,), real.
        tokens: (m,), integers: the prompt and, last, `config.steps` words decoded one by one.
    """
    memory = encode(samples, weights, config)
    prompt = tokens.shape[0] - config.steps
    caches = empty_caches(config, memory.dtype)
    logits, caches = decode(tokens[:prompt], memory, weights, config, caches, 0, "dec")
    found = [ad.tap("dec.logits_raw", logits)]
    ad.tap("dec.logprobs", log_probabilities(logits))
    for n in range(config.steps):
        at = prompt + n
        stage = f"dec.gen{n + 1}"
        logits, caches = decode(tokens[at : at + 1], memory, weights, config, caches, at, stage)
        found.append(ad.tap(f"{stage}.logits_raw", logits))
    return np.concatenate(found)


ROLES = {"*.weights": "informational", "*.logprobs": "informational"}


def blocks(weights: Weights, config: Config) -> tuple[Block, ...]:
    """Return the parts that make one dumped tensor of others, for `isolate`."""
    from checks.ports.toy_blocks import blocks as parts

    return parts(weights, config)


def random_inputs(config: Config, seed: int) -> tuple[Any, Any]:
    """Return a signal of a few tones and noise, and tokens."""
    rng = np.random.default_rng((seed, 1))
    at = np.arange(20 * config.hop) / config.hop
    tones = sum(np.sin(2 * np.pi * rng.uniform(0.2, 6) * at + rng.uniform(0, 6)) for _ in range(3))
    samples = (0.3 * tones + 0.1 * rng.normal(size=at.size)).astype(np.float32)
    return samples, rng.permutation(config.vocab)[: 8 + config.steps].astype(np.int64)
