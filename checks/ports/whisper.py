"""Whisper, a speech recogniser, in plain NumPy on the ops here.

    logits = forward(weights, TINY, waveform, tokens)
    tokens = generate(weights, TINY, waveform, prompt, steps=8)  # with a cache of keys and values

A log-mel front end, two convolutions, an encoder, and a decoder that attends to it. Weights stand
in a flat table under the names of the published checkpoints; with bfloat16 weights, products round
their input (see `policy`).

Reference: Radford et al. 2022, arXiv:2212.04356; sinusoidal positions, arXiv:1706.03762; GELU,
arXiv:1606.08415.
"""

import contextvars
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import autodiff as ad
from checks.gates.blocks.block import Block
from checks.ports.gradients import gradients
from checks.ports.policy import linear, operand, wide
from checks.ports.whisper_config import (
    AUDIO,
    IGNORED,
    SEED,
    TEXT,
    TINY,
    Config,
    Example,
    Weights,
    example,
    random_weights,
)

if TYPE_CHECKING:
    from checks.gates.capture.dump import Dump

__all__ = ["SEED", "TINY", "blocks", "example", "forward", "generate", "loss", "random_weights"]

Past = tuple[Any, Any, Any, Any]  # a block's keys and values of the tokens so far, of the audio
EPS = 1e-5  # of the layer norms
FLOOR, RANGE = 1e-10, 8.0  # of mel powers, and of their logarithms below an example's largest


def forward(weights: Weights, config: Config, waveform: Any, tokens: Any) -> Any:
    """Return the logits of the next token at every place.

    Arguments: weights by name; waveform (batch, samples); tokens (batch, time), integers.
    Returns shape (batch, time, words); taps `enc.*` and `dec.*`.
    """
    return decode(weights, config, heard(weights, config, waveform), tokens)[0]


def loss(weights: Weights, config: Config, waveform: Any, tokens: Any, labels: Any) -> Any:
    """Return the mean cross entropy over the labels that are not -100."""
    counted = labels != IGNORED
    logits = forward(weights, config, waveform, tokens)
    rows = ad.ops.cross_entropy(logits, np.where(counted, labels, 0))
    return ad.tap("dec.loss", np.sum(np.where(counted, rows, 0)) / np.count_nonzero(counted))


def generate(
    weights: Weights, config: Config, waveform: Any, prompt: Any, steps: int
) -> np.ndarray[Any, Any]:
    """Return the `steps` likeliest tokens after a prompt, one at a time with a cache.

    Arguments: as `forward`; prompt (batch, time). Returns integers (batch, steps).
    """
    return continued(weights, config, heard(weights, config, waveform), prompt, steps)


def continued(
    weights: Weights, config: Config, audio: Any, prompt: Any, steps: int
) -> np.ndarray[Any, Any]:
    """As `generate`, of audio that is encoded already; taps `dec.gen.*`."""
    tokens, past, found = prompt, None, []
    for _ in range(steps):
        logits, past = decode(weights, config, audio, tokens, past, "dec.gen")
        tokens = likeliest(logits)
        found.append(tokens)
    return np.asarray(ad.tap("dec.gen.tokens", np.concatenate(found, axis=1)))


def heard(weights: Weights, config: Config, waveform: Any) -> Any:
    """The audio encoded, (batch, samples) to (batch, positions, width)."""
    return encode(weights, config, log_mel(waveform, config))


def likeliest(logits: Any) -> Any:
    """The token after the last: (batch, time, words) to (batch, 1)."""
    return np.argmax(logits[:, -1:], axis=-1)


def run(dump: "Dump", weights: Weights, config: Config, given: Example) -> None:
    """Put a whole run into an open dump: forward, backward of the loss, decode with a cache."""
    given.noted(dump)
    dump.put("enc.wave", given.waveform)
    dump.put("dec.tokens", given.tokens)

    def whole(w: Weights) -> Any:
        return loss(w, config, w["enc.wave"], given.tokens, given.labels)

    gradients(whole, {**weights, "enc.wave": given.waveform}).put(dump)
    untapped = contextvars.Context()  # the encoder's tensors are there already
    audio = untapped.run(heard, weights, config, given.waveform)
    continued(weights, config, audio, given.prompt, given.steps)


# --- front end ----------------------------------------------------------------------------


def log_mel(waveform: Any, config: Config) -> Any:
    """Return mel powers on a logarithmic scale, (batch, samples) to (batch, mels, frames).

    Decades from 8 below an example's largest to it, plus 4, over 4.
    """
    spectra = ad.ops.stft(padded(waveform, config), window(config, waveform.dtype), config.hop)
    mel = np.matmul(power(spectra), filters(config).T.astype(waveform.dtype))
    decades = logarithm(np.maximum(mel, FLOOR))[:, :-1]  # the frame after the end is dropped
    least = np.max(decades, axis=(1, 2), keepdims=True) - RANGE
    features = (np.maximum(decades, least) + 4) / 4
    return ad.tap("enc.mel.in", np.transpose(features, (0, 2, 1)))


def power(spectra: Any) -> Any:
    """|X|^2."""
    return spectra.real**2 + spectra.imag**2


def padded(waveform: Any, config: Config) -> Any:
    """The waveform mirrored at both ends, so that frame t is centred on sample t hop."""
    half = config.n_fft // 2
    return np.pad(waveform, ((0, 0), (half, half)), mode="reflect")


def window(config: Config, dtype: Any) -> np.ndarray[Any, Any]:
    """The periodic Hann window."""
    turn = np.arange(config.n_fft) / config.n_fft
    return (0.5 - 0.5 * np.cos(2 * np.pi * turn)).astype(dtype)


def filters(config: Config) -> np.ndarray[Any, Any]:
    """Triangles of one area on Slaney's mel scale, (mels, frequencies)."""
    high = min(8000.0, config.rate / 2)
    return ad.ops.mel_weights(
        config.mels, config.n_fft, config.rate, 0.0, high, scale="slaney", area=True
    )


def logarithm(power: Any) -> Any:
    """To base ten."""
    return np.log10(power)


# --- encoder ------------------------------------------------------------------------------


def encode(weights: Weights, config: Config, features: Any) -> Any:
    """Return the encoded audio, (batch, mels, frames) to (batch, positions, width)."""
    x = ad.tap("enc.conv.0.out", convolved(features, weights, f"{AUDIO}.conv1", 1))
    x = ad.tap("enc.conv.0.act", activation(x))
    x = ad.tap("enc.conv.1.out", convolved(x, weights, f"{AUDIO}.conv2", 2))
    positions = ad.tap("enc.pos_emb", encoder_positions(weights, config, x.dtype))
    x = ad.tap("enc.embed.out", placed(x, positions))
    for n in range(config.encoder_layers):
        x = encoder_block(x, weights, n, config)
    return ad.tap("enc.final", norm(x, weights, f"{AUDIO}.layer_norm"))


def convolved(x: Any, weights: Weights, path: str, stride: int) -> Any:
    """A convolution over time of width 3, (batch, channels, time)."""
    kernel = weights[f"{path}.weight"]
    y = ad.ops.conv1d(operand(x, kernel), wide(kernel), stride=stride, padding=1)
    return y + wide(weights[f"{path}.bias"])[:, None]


def activation(x: Any) -> Any:
    """GELU in its erf form."""
    return ad.ops.gelu(x)


def placed(x: Any, positions: Any) -> Any:
    """Activation and positions: (batch, width, time) to (batch, time, width)."""
    return np.transpose(activation(x), (0, 2, 1)) + positions


def encoder_positions(weights: Weights, config: Config, dtype: Any) -> Any:
    """Positions of the encoder, as precise as the weights beside them."""
    stored = weights[f"{AUDIO}.conv2.weight"].dtype
    return wide(sinusoids(config.positions, config.width).astype(stored)).astype(dtype)


def sinusoids(length: int, width: int) -> np.ndarray[Any, Any]:
    """Sines, then cosines, of positions times frequencies from 1 to 1 / 10000 (Vaswani et al. 2017,
    arXiv:1706.03762, section 3.5, there interleaved).
    """
    half = width // 2
    frequency = np.exp(-np.log(10000.0) / (half - 1) * np.arange(half))
    angle = np.arange(length)[:, None] * frequency
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def encoder_block(x: Any, weights: Weights, n: int, config: Config) -> Any:
    """Attention and a feed-forward layer, each of what it is added to, normalised."""
    path, name = f"{AUDIO}.layers.{n}", f"enc.block.{n}"
    h = ad.tap(f"{name}.norm1", norm(x, weights, f"{path}.self_attn_layer_norm"))
    q, k, v = projections(h, h, weights, f"{path}.self_attn", f"{name}.attn")
    a = attended(q, split(k, config), split(v, config), None, weights, f"{path}.self_attn", config)
    x = stream(x, ad.tap(f"{name}.attn.out", a))
    h = ad.tap(f"{name}.norm2", norm(x, weights, f"{path}.final_layer_norm"))
    return feed_forward(x, h, weights, path, name)


# --- decoder ------------------------------------------------------------------------------


def decode(
    weights: Weights,
    config: Config,
    audio: Any,
    tokens: Any,
    past: Sequence[Past] | None = None,
    name: str = "dec",
) -> tuple[Any, list[Past]]:
    """Return logits, and the keys and values of every block for the next call.

    Arguments: weights by name; audio (batch, positions, width); tokens (batch, time); past: what
    the call before returned; name: what taps' names begin with.
    """
    start = 0 if past is None else past[0][0].shape[2]
    rows = ad.tap(f"{name}.token_emb", embedded(tokens, weights, config))
    positions = ad.tap(f"{name}.pos_emb", decoder_positions(weights, start, tokens.shape))
    x = ad.tap(f"{name}.embed.out", rows + positions)
    kept = []
    for n in range(config.decoder_layers):
        before = None if past is None else past[n]
        x, now = decoder_block(x, audio, weights, n, config, before, f"{name}.block.{n}")
        kept.append(now)
    x = ad.tap(f"{name}.out_before_head", norm(x, weights, f"{TEXT}.layer_norm"))
    logits = ad.tap(f"{name}.logits_raw", head(x, weights))
    ad.tap(f"{name}.logits", ad.ops.log_softmax(logits))
    return logits, kept


def embedded(tokens: Any, weights: Weights, config: Config) -> Any:
    """Rows of the table; that of the padding token learns nothing here."""
    rows = ad.ops.embedding(wide(weights[f"{TEXT}.embed_tokens.weight"]), tokens)
    padding = (tokens == config.pad)[..., None]
    return np.where(padding, ad.stop_gradient(rows), rows)


def decoder_positions(weights: Weights, start: int, shape: tuple[int, int]) -> Any:
    """Learned positions from `start`, for a batch of tokens."""
    places = np.broadcast_to(start + np.arange(shape[1]), shape)
    return ad.ops.embedding(wide(weights[f"{TEXT}.embed_positions.weight"]), places)


def decoder_block(
    x: Any, audio: Any, weights: Weights, n: int, config: Config, past: Past | None, name: str
) -> tuple[Any, Past]:
    """Causal attention, attention to the audio, and a feed-forward layer."""
    path = f"{TEXT}.layers.{n}"
    h = ad.tap(f"{name}.norm1", norm(x, weights, f"{path}.self_attn_layer_norm"))
    q, k, v = projections(h, h, weights, f"{path}.self_attn", f"{name}.attn")
    keys, values = split(k, config), split(v, config)
    if past is not None:
        keys, values = grown(past[0], keys), grown(past[1], values)
    keys = ad.tap(f"{name}.cache.k", keys)
    mask = visible(x.shape[1], keys.shape[2])
    a = attended(q, keys, values, mask, weights, f"{path}.self_attn", config)
    x = stream(x, ad.tap(f"{name}.attn.out", a))
    h = ad.tap(f"{name}.norm2", norm(x, weights, f"{path}.encoder_attn_layer_norm"))
    q, *of_audio = cross(h, audio, weights, n, config, past, f"{name}.cross")
    a = attended(q, of_audio[0], of_audio[1], None, weights, f"{path}.encoder_attn", config)
    x = stream(x, ad.tap(f"{name}.cross.out", a))
    h = ad.tap(f"{name}.norm3", norm(x, weights, f"{path}.final_layer_norm"))
    return feed_forward(x, h, weights, path, name), (keys, values, of_audio[0], of_audio[1])


def cross(
    h: Any, audio: Any, weights: Weights, n: int, config: Config, past: Past | None, name: str
) -> tuple[Any, Any, Any]:
    """Queries, and keys and values of the audio, which are made once."""
    path = f"{TEXT}.layers.{n}.encoder_attn"
    if past is not None:
        return ad.tap(f"{name}.q", projected(h, weights, f"{path}.q_proj")), *past[2:]
    q, k, v = projections(h, audio, weights, path, name)
    return q, split(k, config), split(v, config)


def grown(before: Any, new: Any) -> Any:
    """Keys or values of the tokens so far, then those of this call: (batch, heads, time, n)."""
    return np.concatenate([before, new], axis=2)


def visible(queries: int, keys: int) -> np.ndarray[Any, Any]:
    """Which keys each query may see: those up to its own place, the last query being the last."""
    return np.tri(queries, keys, keys - queries, dtype=np.bool_)


def head(x: Any, weights: Weights) -> Any:
    """Logits; the table of the embedding is the head's too."""
    return linear(x, weights[f"{TEXT}.embed_tokens.weight"])


# --- parts of both ------------------------------------------------------------------------


def stream(x: Any, *added: Any) -> Any:
    """The residual stream: what came in, and all that was added to it, in turn."""
    for y in added:
        x = x + y
    return x


def norm(x: Any, weights: Weights, path: str) -> Any:
    """Layer norm over the last axis."""
    scale, shift = wide(weights[f"{path}.weight"]), wide(weights[f"{path}.bias"])
    return ad.ops.layer_norm(x, scale, shift, eps=EPS)


def projected(x: Any, weights: Weights, path: str) -> Any:
    """A linear layer; keys have no bias."""
    return linear(x, weights[f"{path}.weight"], weights.get(f"{path}.bias"))


def projections(h: Any, source: Any, weights: Weights, path: str, name: str) -> tuple[Any, ...]:
    """Queries of `h`, keys and values of `source`: each (batch, time, width)."""
    q = ad.tap(f"{name}.q", projected(h, weights, f"{path}.q_proj"))
    k = ad.tap(f"{name}.k", projected(source, weights, f"{path}.k_proj"))
    return q, k, ad.tap(f"{name}.v", projected(source, weights, f"{path}.v_proj"))


def split(x: Any, config: Config) -> Any:
    """(batch, time, width) to (batch, heads, time, width / heads)."""
    parts = np.reshape(x, (*x.shape[:2], config.heads, config.width // config.heads))
    return np.transpose(parts, (0, 2, 1, 3))


def merged(x: Any) -> Any:
    """(batch, heads, time, n) to (batch, time, heads n)."""
    x = np.transpose(x, (0, 2, 1, 3))
    return np.reshape(x, (*x.shape[:2], -1))


def attended(
    q: Any, keys: Any, values: Any, mask: Any, weights: Weights, path: str, config: Config
) -> Any:
    """Attention and the projection of what it gives.

    Arguments: q (batch, time, width) before it is scaled; keys and values (batch, heads, time, n);
    mask, True where a key is seen, or None.
    """
    q = split(scaled(q, config), config)
    mean = ad.ops.scaled_dot_product_attention(q, keys, values, mask, scale=1.0)
    return projected(merged(mean), weights, f"{path}.out_proj")


def scaled(q: Any, config: Config) -> Any:
    """Queries over the root of a head's width: here, not on the scores."""
    return q * (config.width // config.heads) ** -0.5


def feed_forward(x: Any, h: Any, weights: Weights, path: str, name: str) -> Any:
    """x + W2 gelu(W1 h)."""
    inner = ad.tap(f"{name}.act", expanded(h, weights, path))
    return ad.tap(f"{name}.out", stream(x, projected(inner, weights, f"{path}.fc2")))


def expanded(h: Any, weights: Weights, path: str) -> Any:
    """The inside of a feed-forward layer."""
    return activation(projected(h, weights, f"{path}.fc1"))


# --- parts, each by itself ----------------------------------------------------------------


def blocks(weights: Weights, config: Config) -> tuple[Block, ...]:
    """The model's parts in execution order, as functions of tensors of a dump."""
    from checks.ports import whisper_blocks

    return whisper_blocks.blocks(weights, config)
