"""Silero VAD v6.2, 16 kHz: the probability that 32 ms of audio hold speech.

Convolutional STFT, magnitudes, four convolutions, an LSTM whose state is carried from chunk to
chunk, one output unit. Weights and layout are those of the PyPI package silero-vad (MIT licence,
https://github.com/snakers4/silero-vad); the code here is written from its ONNX graph.

    weights = weights_from_onnx("silero_vad.onnx")
    probabilities, state = forward(weights, Config(), audio)         # (batch, chunks)
    probabilities, state = forward(weights, Config(), more, state)   # where the first left off
"""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

import autodiff as ad
from autodiff.optional import available
from checks.gates.blocks.block import Block
from checks.gates.errors import GateError
from checks.ports.policy import operand, wide

Weights = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes, in samples and channels.

    Arguments:
        chunk: new samples a step; their number must divide the audio's.
        context: samples of the chunk before, put in front.
        pad: samples reflected at the end.
        window, hop: of the STFT, which has window // 2 + 1 frequencies.
        channels, strides: of the four convolutions, whose kernels have 3 taps.
        hidden: of the LSTM.
    """

    chunk: int = 512
    context: int = 64
    pad: int = 64
    window: int = 256
    hop: int = 128
    channels: tuple[int, ...] = (128, 64, 64, 128)
    strides: tuple[int, ...] = (1, 2, 2, 1)
    hidden: int = 128

    def __post_init__(self) -> None:
        if len(self.channels) != len(self.strides) or not self.channels:
            what = f"{len(self.channels)} channels and {len(self.strides)} strides"
            raise ValueError(f"Config: {what}; give one of each per convolution")
        frames = (self.context + self.chunk + self.pad - self.window) // self.hop + 1
        for stride in self.strides:
            frames = (frames - 1) // stride + 1
        if frames != 1:
            raise ValueError(f"Config: {frames} frames reach the LSTM, which takes one a chunk")

    @property
    def frequencies(self) -> int:
        """Of the STFT."""
        return self.window // 2 + 1


TINY = Config(
    chunk=32, context=4, pad=4, window=16, hop=8, channels=(8, 6, 6, 8), strides=(1, 2, 2, 1),
    hidden=5,
)  # fmt: skip


class State(NamedTuple):
    """What one chunk hands to the next: last samples (batch, context), h and c (batch, hidden)."""

    context: Any
    h: Any
    c: Any


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight, by its name in the published checkpoint."""
    f, n = config.frequencies, config.hidden
    found: dict[str, tuple[int, ...]] = {"stft.forward_basis_buffer": (2 * f, 1, config.window)}
    before = f
    for k, channels in enumerate(config.channels):
        found[f"encoder.{k}.reparam_conv.weight"] = (channels, before, 3)
        found[f"encoder.{k}.reparam_conv.bias"] = (channels,)
        before = channels
    found |= {"decoder.rnn.weight_ih": (4 * n, before), "decoder.rnn.weight_hh": (4 * n, n)}
    found |= {"decoder.rnn.bias_ih": (4 * n,), "decoder.rnn.bias_hh": (4 * n,)}
    return found | {"decoder.decoder.2.weight": (1, n, 1), "decoder.decoder.2.bias": (1,)}


def random_weights(config: Config, seed: int, dtype: Any = np.float32) -> dict[str, Any]:
    """Return weights of the model's shapes: a Fourier basis, normal numbers for the rest."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, shape in shapes(config).items():
        size = int(np.prod(shape[1:])) or 1
        found[name] = (rng.normal(size=shape) / np.sqrt(size)).astype(dtype)
    found["stft.forward_basis_buffer"] = fourier_basis(config).astype(dtype)
    return found


def fourier_basis(config: Config) -> Any:
    """Return cos and -sin of every frequency under a periodic Hann window, (2 f, 1, window)."""
    n = np.arange(config.window)
    angle = 2 * np.pi * np.outer(np.arange(config.frequencies), n) / config.window
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * n / config.window)
    return (np.concatenate([np.cos(angle), -np.sin(angle)]) * hann)[:, None, :]


# --- the model -----------------------------------------------------------------------------


def forward(
    weights: Weights, config: Config, audio: Any, state: State | None = None
) -> tuple[Any, State]:
    """Return the probability of speech in each chunk, and the state to go on from.

    Arguments: the weights; the sizes; audio (batch, chunks * config.chunk), of the weights' dtype;
    the state the audio before it ended with (None: silence before).
    Returns probabilities (batch, chunks), and the state after the last chunk.
    Smooth but for the rectifiers; in digital silence the magnitudes' derivative is 0.

    Raises:
        ValueError: the audio is no whole number of chunks.
    """
    batch, samples = np.shape(audio)
    if samples % config.chunk or not samples:
        raise ValueError(
            f"{samples} samples are no whole number of chunks of {config.chunk}\n"
            f"  at audio of shape {np.shape(audio)}\n"
            f"  np.pad(audio, ((0, 0), (0, {-samples % config.chunk or config.chunk})))"
        )
    if state is None:
        state = silence(config, batch, audio.dtype)
    probabilities = []
    for start in range(0, samples, config.chunk):
        chunk = audio[:, start : start + config.chunk]
        probability, state = step(weights, config, chunk, state)
        probabilities.append(probability)
    return np.concatenate(probabilities, axis=1), state


def silence(config: Config, batch: int, dtype: Any) -> State:
    """Return the state before the first chunk: zeros."""
    h = np.zeros((batch, config.hidden), dtype)
    return State(np.zeros((batch, config.context), dtype), h, np.zeros_like(h))


def step(weights: Weights, config: Config, chunk: Any, state: State) -> tuple[Any, State]:
    """Return one chunk's probability (batch, 1), and the next state."""
    x = ad.tap("audio.window", np.concatenate([state.context, chunk], axis=1))
    context = x[:, -config.context :]
    x = ad.tap("enc.pad.out", padded(config, x))
    x = ad.tap("enc.stft.out", stft(weights, config, x))
    x = ad.tap("enc.mag.out", magnitude(config, x))
    for k in range(len(config.channels)):
        x = ad.tap(f"enc.block.{k}.out", encoder_block(weights, config, k, x))
    h, c = ad.tap("dec.lstm.h_in", state.h), ad.tap("dec.lstm.c_in", state.c)
    h, c = lstm(weights, x, h, c)
    h, c = ad.tap("dec.lstm.h", h), ad.tap("dec.lstm.c", c)
    y = ad.tap("dec.logits_raw", head(weights, h))
    return ad.tap("dec.prob", probability(y)), State(context, h, c)


def padded(config: Config, x: Any) -> Any:
    """The end reflected: (batch, n) -> (batch, n + pad). Nothing is put in front."""
    return np.pad(x, ((0, 0), (0, config.pad)), mode="reflect")


def stft(weights: Weights, config: Config, x: Any) -> Any:
    """Windowed cosines, then sines, of each frequency: (batch, n) -> (batch, 2 f, frames)."""
    x = np.reshape(x, (x.shape[0], 1, x.shape[1]))
    return convolved(x, weights["stft.forward_basis_buffer"], stride=config.hop)


def convolved(x: Any, kernel: Any, bias: Any = None, **options: Any) -> Any:
    """Convolution and bias, with weights as `policy` says."""
    y = ad.ops.conv1d(operand(x, kernel), wide(kernel), **options)
    return y if bias is None else y + np.reshape(wide(bias), (-1, 1))


def magnitude(config: Config, x: Any) -> Any:
    """sqrt(re^2 + im^2): (batch, 2 f, frames) -> (batch, f, frames).

    hypot, whose derivative is 0 at the origin: that of the square root is infinite in silence.
    """
    f = config.frequencies
    return np.hypot(x[:, :f], x[:, f:])


def encoder_block(weights: Weights, config: Config, k: int, x: Any) -> Any:
    """Convolution k, bias, rectifier: (batch, channels, frames)."""
    kernel = weights[f"encoder.{k}.reparam_conv.weight"]
    bias = weights[f"encoder.{k}.reparam_conv.bias"]
    return ad.ops.relu(convolved(x, kernel, bias, stride=config.strides[k], padding=1))


def lstm(weights: Weights, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
    """One step on the only frame of x (batch, channels, 1): the new h and c."""
    w_ih, w_hh = weights["decoder.rnn.weight_ih"], weights["decoder.rnn.weight_hh"]
    bias = wide(weights["decoder.rnn.bias_ih"]) + wide(weights["decoder.rnn.bias_hh"])
    x = operand(np.reshape(x, (x.shape[0], x.shape[1])), w_ih)
    h, c = ad.ops.lstm_cell(x, operand(h, w_hh), c, wide(w_ih), wide(w_hh), bias)
    return h, c


def head(weights: Weights, h: Any) -> Any:
    """The logit: a rectifier and a convolution of one tap, (batch, hidden) -> (batch, 1, 1)."""
    x = np.reshape(ad.ops.relu(h), (*h.shape, 1))
    return convolved(x, weights["decoder.decoder.2.weight"], weights["decoder.decoder.2.bias"])


def probability(y: Any) -> Any:
    """Sigmoid, mean over frames: (batch, 1, 1) -> (batch, 1)."""
    return np.mean(ad.ops.sigmoid(y), axis=2)


# --- for the gate --------------------------------------------------------------------------


def blocks(weights: Weights, config: Config) -> tuple[Block, ...]:
    """Return every stage of a step as a function of dumped tensors, in execution order."""
    return tuple(_blocks(weights, config))


def _blocks(weights: Weights, config: Config) -> Iterator[Block]:
    def part(prefix: str) -> dict[str, Any]:
        return {k: v for k, v in weights.items() if k.startswith(prefix)}

    yield Block("enc.pad.out", ("audio.window",), lambda x: padded(config, x))
    yield Block("enc.stft.out", ("enc.pad.out",), lambda w, x: stft(w, config, x), part("stft."))
    yield Block("enc.mag.out", ("enc.stft.out",), lambda x: magnitude(config, x))
    before = "enc.mag.out"
    for k in range(len(config.channels)):

        def convolved(w: Weights, x: Any, k: int = k) -> Any:
            return encoder_block(w, config, k, x)

        yield Block(f"enc.block.{k}.out", (before,), convolved, part(f"encoder.{k}."))
        before = f"enc.block.{k}.out"
    inputs, rnn = (before, "dec.lstm.h_in", "dec.lstm.c_in"), part("decoder.rnn.")
    yield Block("dec.lstm.h", inputs, lambda w, *x: lstm(w, *x)[0], rnn)
    yield Block("dec.lstm.c", inputs, lambda w, *x: lstm(w, *x)[1], rnn)
    last = part("decoder.decoder.")
    yield Block("dec.logits_raw", ("dec.lstm.h",), lambda w, h: head(w, h), last)
    yield Block("dec.prob", ("dec.logits_raw",), lambda y: probability(y))


# --- weights -------------------------------------------------------------------------------


def weights_from_onnx(path: str | PathLike[str], config: Config | None = None) -> dict[str, Any]:
    """Return the weights of an ONNX file of the package, by their names in the checkpoint.

    They stand as initialisers or as constants, at the top or inside the branches of an If, under
    a prefix of their own for each sampling rate; that one is taken whose shapes all fit.

    Raises:
        GateError: onnx is not installed, the file cannot be read, or not exactly one prefix holds
            the model.
    """
    if not available("onnx"):
        raise GateError("needs the package onnx", "weights_from_onnx", "pip install onnx")
    onnx = importlib.import_module("onnx")
    broken = importlib.import_module("google.protobuf.message").DecodeError
    wanted = shapes(config or Config())
    try:
        graph = onnx.load(str(path)).graph
    except (OSError, broken) as error:
        raise GateError(f"no ONNX model: {error}", str(path), "name another file") from None
    found: dict[str, dict[str, Any]] = {}
    for name, tensor in _constants(graph):
        for short in wanted:
            if name.endswith(short):
                group = found.setdefault(name.removesuffix(short), {})
                group[short] = onnx.numpy_helper.to_array(tensor)
    return _fitting(found, wanted, str(path))


def _fitting(
    found: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, tuple[int, ...]], where: str
) -> dict[str, Any]:
    fit = [g for g in found.values() if {k: v.shape for k, v in g.items()} == wanted]
    if len(fit) != 1:
        what = f"{len(fit)} of {len(found)} groups of weights have the model's names and shapes"
        raise GateError(what, where, "pass silero_vad.onnx, or the Config of its sizes")
    return {name: fit[0][name] for name in wanted}


def _constants(graph: Any) -> Iterator[tuple[str, Any]]:
    """Name and value of each initialiser and constant, those of subgraphs too."""
    yield from ((t.name, t) for t in graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _constants(attribute.g)
            elif node.op_type == "Constant" and attribute.name == "value":
                yield node.output[0], attribute.t
