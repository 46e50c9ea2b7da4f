"""Faults of a Whisper port, each one function replaced, and what the gate says of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import autodiff as ad
from checks.ports import whisper
from checks.ports.whisper_config import AUDIO, TEXT, Config


@dataclass(frozen=True)
class Fault:
    """One function of the port replaced, and what the gate says.

    Arguments:
        part, by: what is replaced, and by what.
        first: the first tensor that tells.
        causes: names that are right for it; none where no array tells it.
        only: the tensors looked at.
        printed: one of the causes is printed.
    """

    part: str
    by: Any
    first: str
    causes: tuple[str, ...] = ()
    only: str = "enc.*"
    printed: bool = True


padded, sinusoids, embedded = whisper.padded, whisper.sinusoids, whisper.embedded
convolved, projected, attended = whisper.convolved, whisper.projected, whisper.attended
visible, norm, cross = whisper.visible, whisper.norm, whisper.cross
decoder_positions = whisper.decoder_positions


def _late(x: Any, config: Config) -> Any:
    return padded(np.roll(x, config.hop, axis=1), config)


def _zeros(x: Any, config: Config) -> Any:
    half = config.n_fft // 2
    return np.pad(x, ((0, 0), (half, half)))


def _symmetric(config: Config, dtype: Any) -> Any:
    return np.hanning(config.n_fft).astype(dtype)


def _mel(scale: str, area: bool) -> Callable[[Config], Any]:
    return lambda c: ad.ops.mel_weights(c.mels, c.n_fft, c.rate, 0.0, 8000.0, scale, area)


def _phase(x: Any, weights: Any, path: str, stride: int) -> Any:
    """Windows of the strided convolution begin one frame later."""
    if stride == 1:
        return convolved(x, weights, path, stride)
    x = np.concatenate([x[:, :, 1:], np.zeros_like(x[:, :, :1])], axis=2)
    return convolved(x, weights, path, stride)


def _key_bias(x: Any, weights: Any, path: str) -> Any:
    y = projected(x, weights, path)
    return y + weights[path.replace("k_proj", "q_proj") + ".bias"] if "k_proj" in path else y


def _bias_unscaled(q: Any, k: Any, v: Any, mask: Any, weights: Any, path: str, c: Config) -> Any:
    """The scale applied to the product of the queries, before its bias is added."""
    bias = weights[f"{path}.q_proj.bias"]
    return attended(q - bias + bias / whisper.scaled(1.0, c), k, v, mask, weights, path, c)


def _interleaved(length: int, width: int) -> Any:
    s = sinusoids(length, width)
    return np.reshape(np.stack([s[:, : width // 2], s[:, width // 2 :]], axis=-1), (length, width))


def _ahead(queries: int, keys: int) -> Any:
    return np.tri(queries, keys, keys - queries + 1, dtype=np.bool_)


def _layer_before(h: Any, audio: Any, weights: Any, n: int, c: Config, past: Any, name: str) -> Any:
    """Keys and values of the audio of the layer before."""
    other = dict(weights)
    for part in ("k_proj.weight", "v_proj.weight", "v_proj.bias"):
        at = f"{TEXT}.layers.{{}}.encoder_attn.{part}"
        other[at.format(n)] = weights[at.format(max(n - 1, 0))]
    return cross(h, audio, other, n, c, past, name)


def _no_final_norm(x: Any, weights: Any, path: str) -> Any:
    return x if path == f"{AUDIO}.layer_norm" else norm(x, weights, path)


def _forgotten(before: Any, new: Any) -> Any:
    return np.concatenate([np.zeros_like(before), new], axis=2)


FAULTS = {
    "mel one hop late": Fault("padded", _late, "enc.mel.in", ("shifted",)),
    "ln for log10": Fault("logarithm", np.log, "enc.mel.in", ("logarithm",)),
    "symmetric window": Fault("window", _symmetric, "enc.mel.in", ("mel front end",)),
    "htk mel scale": Fault("filters", _mel("htk", True), "enc.mel.in", ("mel filters",)),
    "filters of one height": Fault(
        "filters", _mel("slaney", False), "enc.mel.in", ("offset per slice",)
    ),
    "zero padding": Fault("padded", _zeros, "enc.mel.in", ("mel front end",)),
    "convolution's phase": Fault("convolved", _phase, "enc.conv.1.out"),
    "tanh gelu": Fault(
        "activation", lambda x: ad.ops.gelu(x, "tanh"), "enc.conv.0.act", ("activation",)
    ),
    "bias of keys": Fault("projected", _key_bias, "enc.block.0.attn.k", ("offset per slice",)),
    "scale left out": Fault("scaled", lambda q, c: q, "enc.block.0.attn.out"),
    "scale before the bias": Fault("attended", _bias_unscaled, "enc.block.0.attn.out"),
    "positions one late": Fault(
        "sinusoids", lambda n, m: sinusoids(n + 1, m)[1:], "enc.pos_emb", ("shifted",)
    ),
    "positions interleaved": Fault("sinusoids", _interleaved, "enc.pos_emb", ("interleaved",)),
    "epsilon of the norms": Fault(
        "EPS", 1e-12, "enc.block.0.norm1", ("factor per slice", "normalisation")
    ),
    "encoder without its last norm": Fault(
        "norm", _no_final_norm, "enc.final", ("another tensor", "normalisation")
    ),
    "heads merged wrong": Fault(
        "merged",
        lambda x: np.reshape(np.transpose(x, (0, 2, 3, 1)), (*np.shape(x)[::2][:2], -1)),
        "enc.block.0.attn.out",
    ),
    "token off by one": Fault(
        "embedded",
        lambda t, w, c: embedded((t + 1) % c.words, w, c),
        "dec.token_emb",
        only="dec.[!g]*",
    ),
    "tokens one late": Fault(
        "embedded",
        lambda t, w, c: embedded(np.roll(t, 1, axis=1), w, c),
        "dec.token_emb",
        ("shifted", "rows"),
        only="dec.[!g]*",
    ),
    "causal mask one ahead": Fault(
        "visible", _ahead, "dec.block.0.attn.out", ("before the last",), only="dec.[!g]*"
    ),
    "audio of the layer before": Fault(
        "cross", _layer_before, "dec.block.1.cross.k", ("another tensor",), only="dec.[!g]*"
    ),
    "cache of zeros": Fault(
        "grown",
        _forgotten,
        "dec.gen.block.0.cache.k#1",
        ("before the last", "partial"),
        only="dec.gen.*",
    ),
    "positions of steps from 0": Fault(
        "decoder_positions",
        lambda w, start, shape: decoder_positions(w, 0, shape),
        "dec.gen.pos_emb#1",
        only="dec.gen.*",
    ),
}


@ad.custom_vjp
def straight(x: Any) -> Any:
    """GELU with the derivative of something else."""
    return ad.ops.gelu(x)


straight.defvjp(
    lambda x: (ad.ops.gelu(x), x),
    lambda x, y_bar: (y_bar * ad.ops.sigmoid(1.702 * x),),
)


def padding_learns(tokens: Any, weights: Any, config: Config) -> Any:
    """The embedding, whose padding row takes part in the gradient."""
    return ad.ops.embedding(weights[f"{TEXT}.embed_tokens.weight"], tokens)
