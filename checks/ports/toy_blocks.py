"""The parts of the toy transformer, each by itself: for `gates.isolate` (see its `blocks`)."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from checks.gates.blocks.block import Block
from checks.ports import mel_front_end as front
from checks.ports import toy_transformer as port

Weights = Mapping[str, Any]


def blocks(weights: Weights, config: port.Config) -> tuple[Block, ...]:
    """The model's parts in execution order, the first step of decoding among them.

    Each calls the port's functions by their names in that module. The signal and the words are no
    tensors of a dump: the mel and the rows of the table have no block.
    """
    found = [
        *_front(weights, config),
        *attention_parts(weights, config, "enc.block.0", "enc.embed"),
    ]
    found += _rest_of_encoder_block(weights, config)
    x = "enc.block.0.out"
    for n in range(1, config.encoder):
        name = f"enc.block.{n}"
        found.append(_whole(weights, name, (x,), _encoder_block(config, name)))
        x = f"{name}.out"
    found.append(norm_part(weights, config, "enc.final", x, "enc.final"))
    return (*found, *_decoder(weights, config))


def under(weights: Weights, *paths: str) -> dict[str, Any]:
    """The weights whose names start with PATH and a dot."""
    return {k: w for k, w in weights.items() if any(k.startswith(f"{p}.") for p in paths)}


def norm_part(weights: Weights, config: port.Config, output: str, x: str, path: str) -> Block:
    """A norm of one tensor."""
    return Block(output, (x,), lambda w, v: port.norm(v, w, path, config), under(weights, path))


def attention_parts(
    weights: Weights, config: port.Config, name: str, x: str, capacity: int | None = None
) -> list[Block]:
    """From the norm in front of self-attention to its result, the tensor `NAME.attn`.

    Arguments:
        weights, config: of the model.
        name: of the block, in the weights and in the dump.
        x: its input.
        capacity: of the cache that keys and values are written to, 0 for as many as there are
            words; None where attention has no mask and no cache.
    """
    at = f"{name}.self"

    def part(letter: str, heads: int) -> Block:
        def call(w: Weights, h: Any) -> Any:
            y = port.projected(h, w, at, letter, heads)
            turned = letter != "v"
            return port.rotary(y, port.positions_from(0, h.shape[0]), config) if turned else y

        return Block(f"{name}.{letter}", (f"{name}.norm",), call, under(weights, f"{at}.{letter}"))

    def kept(x: Any) -> Any:
        if capacity is None:
            return x
        zeros = np.zeros((x.shape[0], capacity or x.shape[1], x.shape[2]), x.dtype)
        return port.written(zeros, x, 0)

    def weighed(scores: Any) -> Any:
        queries, keys = scores.shape[-2:]
        whole = capacity is None
        seen = np.ones((queries, keys), bool) if whole else port.causal(queries, keys, 0)
        return port.softmax(port.masked(scores, seen))

    def scored(q: Any, k: Any) -> Any:
        return port.scored(q, kept(k), config)

    def mixed(probs: Any, v: Any) -> Any:
        return port.mixed(probs, kept(v), config)

    def out(w: Weights, heads: Any) -> Any:
        return port.linear(heads, w, f"{at}.o")

    parts = {"v": config.kv_heads, "q": config.heads, "k": config.kv_heads}
    return [
        norm_part(weights, config, f"{name}.norm", x, f"{name}.norm"),
        *(part(letter, heads) for letter, heads in parts.items()),
        Block(f"{name}.scores", (f"{name}.q", f"{name}.k"), scored),
        Block(f"{name}.weights", (f"{name}.scores",), weighed),
        Block(f"{name}.heads", (f"{name}.weights", f"{name}.v"), mixed),
        Block(f"{name}.attn", (f"{name}.heads",), out, under(weights, f"{at}.o")),
    ]


def mlp_parts(
    weights: Weights, config: port.Config, name: str, stream: tuple[str, ...]
) -> list[Block]:
    """The mlp of a stream that is the sum of tensors: its hidden units, and the block's result."""

    def act(w: Weights, *added: Any) -> Any:
        h = port.norm(_sum(added, config), w, f"{name}.mlp_norm", config)
        return port.activation(port.linear(h, w, f"{name}.up"))

    def out(w: Weights, h: Any, *added: Any) -> Any:
        return port.added(_sum(added, config), port.linear(h, w, f"{name}.down"), config)

    held = under(weights, f"{name}.mlp_norm", f"{name}.up")
    return [
        Block(f"{name}.act", stream, act, held),
        Block(f"{name}.out", (f"{name}.act", *stream), out, under(weights, f"{name}.down")),
    ]


def _sum(added: tuple[Any, ...], config: port.Config) -> Any:
    total = added[0]
    for branch in added[1:]:
        total = port.added(total, branch, config)
    return total


def _front(weights: Weights, config: port.Config) -> list[Block]:
    def convolved(w: Weights, x: Any) -> Any:
        return front.activation(front.convolution(x, w["fe.conv.weight"], w["fe.conv.bias"]))

    def placed(x: Any) -> Any:
        return x + front.sinusoids(x.shape[0], config.width).astype(x.dtype)

    return [
        Block("fe.conv", ("fe.mel",), convolved, under(weights, "fe.conv")),
        Block("enc.embed", ("fe.conv",), placed),
    ]


def _rest_of_encoder_block(weights: Weights, config: port.Config) -> list[Block]:
    name = "enc.block.0"

    def mid(x: Any, y: Any) -> Any:
        return port.added(x, y, config)

    return [
        Block(f"{name}.mid", ("enc.embed", f"{name}.attn"), mid),
        *mlp_parts(weights, config, name, (f"{name}.mid",)),
    ]


def _encoder_block(config: port.Config, name: str) -> Callable[..., Any]:
    return lambda w, x: port.encoder_block(x, w, config, name)


def _whole(weights: Weights, name: str, inputs: tuple[str, ...], call: Callable[..., Any]) -> Block:
    """A block whose parts are not shown."""
    return Block(f"{name}.out", inputs, call, under(weights, name))


def _decoder(weights: Weights, config: port.Config) -> list[Block]:
    name, x = "dec.block.0", "dec.token_emb"
    found = attention_parts(weights, config, name, x, config.capacity)

    def mid(x: Any, y: Any) -> Any:
        return port.added(x, y, config)

    def cross(w: Weights, x: Any, memory: Any) -> Any:
        h = port.norm(x, w, f"{name}.cross_norm", config)
        return port.cross_attention(h, memory, w, config, f"{name}.cross")

    own = under(weights, f"{name}.cross_norm", f"{name}.cross")
    found += [
        Block(f"{name}.mid", (x, f"{name}.attn"), mid),
        Block(f"{name}.cross", (f"{name}.mid", "enc.final"), cross, own),
        *mlp_parts(weights, config, name, (f"{name}.mid", f"{name}.cross")),
    ]
    for n in range(1, config.decoder):
        at = f"dec.block.{n}"
        inputs = (f"dec.block.{n - 1}.out", "enc.final")
        found.append(_whole(weights, at, inputs, _decoder_block(config, at)))
    last = f"dec.block.{config.decoder - 1}.out"

    def logits(w: Weights, x: Any) -> Any:
        return port.linear(port.norm(x, w, "dec.final", config), w, "dec.head")

    return [
        *found,
        Block("dec.logits_raw", (last,), logits, under(weights, "dec.final", "dec.head")),
        Block("dec.logprobs", ("dec.logits_raw",), lambda x: port.log_probabilities(x)),
        _cache_of_first_step(weights, config),
    ]


def _decoder_block(config: port.Config, name: str) -> Callable[..., Any]:
    def call(w: Weights, x: Any, memory: Any) -> Any:
        empty = port.empty_caches(config, x.dtype)[0]
        return port.decoder_block(x, memory, w, config, name, "", empty, 0)[0]

    return call


def _cache_of_first_step(weights: Weights, config: port.Config) -> Block:
    """Keys after one word: those of the prompt, and one more behind them."""
    name = "dec.block.0"

    def call(w: Weights, past: Any, x: Any) -> Any:
        start, zeros = past.shape[1], port.empty_caches(config, past.dtype)[0][0]
        h = port.norm(x, w, f"{name}.norm", config)
        new = port.projected(h, w, f"{name}.self", "k", config.kv_heads)
        new = port.rotary(new, port.positions_from(start, x.shape[0]), config)
        return port.written(port.written(zeros, past, 0), new, start)

    inputs = (f"{name}.k", "dec.gen1.token_emb")
    own = under(weights, f"{name}.norm", f"{name}.self.k")
    return Block("dec.gen1.block.0.k_cache", inputs, call, own)
