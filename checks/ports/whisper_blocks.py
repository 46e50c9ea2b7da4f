"""The parts of the Whisper port, each by itself: for `gates.isolate` (see `whisper.blocks`)."""

from typing import Any

import autodiff as ad
from checks.gates.blocks.block import Block
from checks.ports import whisper as port
from checks.ports.whisper_config import AUDIO, TEXT, Config, Weights


def blocks(weights: Weights, config: Config) -> tuple[Block, ...]:
    """The model's parts in execution order.

    `enc.wave` and `dec.tokens` are the dump's copies of the inputs. Each calls the port's functions
    by their names in that module.
    """
    found = [
        Block("enc.mel.in", ("enc.wave",), lambda x: port.log_mel(x, config)),
        *_front(weights, config),
    ]
    for side, name, count in (
        (AUDIO, "enc", config.encoder_layers),
        (TEXT, "dec", config.decoder_layers),
    ):
        if side == TEXT:
            found += _text(weights, config)
        x = f"{name}.embed.out"
        for n in range(count):
            found += _layer(weights, config, f"{side}.layers.{n}", f"{name}.block.{n}", x)
            x = f"{name}.block.{n}.out"
        last = "enc.final" if side == AUDIO else "dec.out_before_head"
        found.append(_norm(weights, last, (x,), f"{side}.layer_norm"))
    table = _under(weights, f"{TEXT}.embed_tokens")
    return (
        *found,
        Block("dec.logits_raw", (last,), lambda w, x: port.head(x, w), table),
        Block("dec.logits", ("dec.logits_raw",), ad.ops.log_softmax),
    )


def _front(weights: Weights, config: Config) -> list[Block]:
    """The convolutions and positions of the encoder."""
    first, second = f"{AUDIO}.conv1", f"{AUDIO}.conv2"
    kernels = _under(weights, second)
    return [
        Block(
            "enc.conv.0.out",
            ("enc.mel.in",),
            lambda w, x: port.convolved(x, w, first, 1),
            _under(weights, first),
        ),
        Block("enc.conv.0.act", ("enc.conv.0.out",), lambda x: port.activation(x)),
        Block(
            "enc.conv.1.out",
            ("enc.conv.0.act",),
            lambda w, x: port.convolved(x, w, second, 2),
            kernels,
        ),
        Block(
            "enc.embed.out",
            ("enc.conv.1.out",),
            lambda w, x: port.placed(x, port.encoder_positions(w, config, x.dtype)),
            kernels,
        ),
    ]


def _text(weights: Weights, config: Config) -> list[Block]:
    """Tokens, positions and their sum."""
    places = _under(weights, f"{TEXT}.embed_positions")
    return [
        Block(
            "dec.token_emb",
            ("dec.tokens",),
            lambda w, t: port.embedded(t, w, config),
            _under(weights, f"{TEXT}.embed_tokens"),
        ),
        Block(
            "dec.pos_emb",
            ("dec.tokens",),
            lambda w, t: port.decoder_positions(w, 0, t.shape),
            places,
        ),
        Block("dec.embed.out", ("dec.token_emb", "dec.pos_emb"), lambda x, p: x + p),
    ]


def _layer(weights: Weights, config: Config, path: str, name: str, x: str) -> list[Block]:
    """The parts of one layer, whose input is the tensor `x`."""
    norms = iter(f"{name}.norm{n}" for n in (1, 2, 3))
    stream: tuple[str, ...] = (x,)
    h = next(norms)
    found = [_norm(weights, h, stream, f"{path}.self_attn_layer_norm")]
    found += _attention(weights, config, f"{path}.self_attn", f"{name}.attn", h, h)
    stream = (*stream, f"{name}.attn.out")
    if name.startswith("dec."):
        h = next(norms)
        found.append(_norm(weights, h, stream, f"{path}.encoder_attn_layer_norm"))
        at = f"{path}.encoder_attn"
        found += _attention(weights, config, at, f"{name}.cross", h, "enc.final")
        stream = (*stream, f"{name}.cross.out")
    h = next(norms)
    inner = f"{name}.act"

    def out(w: Weights, y: Any, *added: Any) -> Any:
        return port.stream(*added, port.projected(y, w, f"{path}.fc2"))

    return [
        *found,
        _norm(weights, h, stream, f"{path}.final_layer_norm"),
        Block(
            inner,
            (h,),
            lambda w, y: port.expanded(y, w, path),
            _under(weights, f"{path}.fc1"),
        ),
        Block(f"{name}.out", (inner, *stream), out, _under(weights, f"{path}.fc2")),
    ]


def _attention(
    weights: Weights, config: Config, path: str, name: str, h: str, source: str
) -> list[Block]:
    """Projections of queries from `h`, of keys and values from `source`, and the rest."""
    causal = path.startswith(TEXT) and h == source

    def out(w: Weights, q: Any, k: Any, v: Any) -> Any:
        mask = port.visible(q.shape[1], k.shape[1]) if causal else None
        keys, values = port.split(k, config), port.split(v, config)
        return port.attended(q, keys, values, mask, w, path, config)

    found = []
    for letter, given in (("q", h), ("k", source), ("v", source)):
        part = f"{path}.{letter}_proj"
        found.append(
            Block(
                f"{name}.{letter}",
                (given,),
                lambda w, x, part=part: port.projected(x, w, part),
                _under(weights, part),
            )
        )
    parts = tuple(f"{name}.{letter}" for letter in "qkv")
    return [*found, Block(f"{name}.out", parts, out, _under(weights, f"{path}.out_proj"))]


def _norm(weights: Weights, output: str, stream: tuple[str, ...], path: str) -> Block:
    """A layer norm of the residual stream, which is the sum of tensors."""

    def norm(w: Weights, *added: Any) -> Any:
        return port.norm(port.stream(*added), w, path)

    return Block(output, stream, norm, _under(weights, path))


def _under(weights: Weights, path: str) -> dict[str, Any]:
    return {k: w for k, w in weights.items() if k.startswith(f"{path}.")}
