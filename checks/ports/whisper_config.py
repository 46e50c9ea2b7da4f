"""Sizes of a Whisper, random weights and an example to run it on (see `whisper`)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from checks.gates.capture.dump import Dump

Weights = Mapping[str, Any]

AUDIO, TEXT = "model.encoder", "model.decoder"
IGNORED = -100  # a label that counts for nothing
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a model.

    Arguments:
        width: of the residual stream, a multiple of `heads` and even.
        heads: of every attention.
        encoder_layers, decoder_layers: how many blocks.
        hidden: width inside a feed-forward layer.
        mels: filters of the front end, up to 8 kHz.
        positions: of the encoder; there are twice as many frames of audio.
        words: of the vocabulary.
        length: the most tokens.
        n_fft, hop: samples of a frame, and from one frame to the next; rate: samples a second.
        start, pad: the first token, and the one after the end.

    Raises:
        ValueError: the width does not fit.
    """

    width: int
    heads: int
    encoder_layers: int
    decoder_layers: int
    hidden: int
    mels: int
    positions: int
    words: int
    length: int
    n_fft: int = 400
    hop: int = 160
    rate: int = 16000
    start: int = 0
    pad: int = 1

    def __post_init__(self) -> None:
        if self.width % self.heads or self.width % 2:
            raise ValueError(f"width {self.width} is odd, or no multiple of {self.heads} heads")

    @property
    def samples(self) -> int:
        """How many samples of audio the encoder takes."""
        return 2 * self.positions * self.hop


TINY = Config(
    width=32,
    heads=4,
    encoder_layers=3,
    decoder_layers=3,
    hidden=48,
    mels=16,
    positions=18,
    words=53,
    length=24,
    n_fft=128,
    hop=64,
)
SEED = 6  # of the weights and inputs that the golden data are of


FAINT = 5  # of every eight tokens and positions
_GAINS = {"q_proj": 3.0, "k_proj": 3.0, "v_proj": 2.0, "out_proj": 2.0, "embed_": 2.0}


def random_weights(config: Config, seed: int) -> dict[str, Array]:
    """Return float32 weights by name, the same on every machine.

    Queries and keys are large enough that attention chooses, values that the choice shows in the
    tokens; norms have a scale about 1, and all that has a bias a visible one. Some tokens and
    positions are faint, so that the epsilon of a norm counts where they meet.
    """
    rng = np.random.default_rng(seed)
    found = {}
    for name, shape in _shapes(config):
        gain = next((g for part, g in _GAINS.items() if part in name), 1.0)
        spread = gain * np.sqrt(3 / np.prod(shape[1:])) if len(shape) > 1 else 0.1
        # no function of a library and no fused product: bits are the same everywhere
        uniform = 2 * rng.random(shape, np.float32) - 1
        values = uniform * np.float32(spread)
        is_scale = "norm" in name and name.endswith("weight")
        found[name] = values + np.float32(1) if is_scale else values
    found[f"{TEXT}.embed_tokens.weight"][FAINT::8] *= np.float32(2**-6)
    found[f"{TEXT}.embed_positions.weight"][FAINT::8] *= np.float32(2**-6)
    return found


def _shapes(config: Config) -> Iterator[tuple[str, tuple[int, ...]]]:
    n = config.width
    yield from _affine(f"{AUDIO}.conv1", n, config.mels, 3)
    yield from _affine(f"{AUDIO}.conv2", n, n, 3)
    for side, count in ((AUDIO, config.encoder_layers), (TEXT, config.decoder_layers)):
        for layer in range(count):
            path = f"{side}.layers.{layer}"
            for attention in ("self_attn", "encoder_attn")[: 1 + (side == TEXT)]:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    shapes = _affine(f"{path}.{attention}.{part}", n, n)
                    yield from (s for s in shapes if not s[0].endswith("k_proj.bias"))
                yield from _affine(f"{path}.{attention}_layer_norm", n)
            yield from _affine(f"{path}.fc1", config.hidden, n)
            yield from _affine(f"{path}.fc2", n, config.hidden)
            yield from _affine(f"{path}.final_layer_norm", n)
        yield from _affine(f"{side}.layer_norm", n)
    yield f"{TEXT}.embed_tokens.weight", (config.words, n)
    yield f"{TEXT}.embed_positions.weight", (config.length, n)


def _affine(path: str, *shape: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{path}.weight", shape
    yield f"{path}.bias", shape[:1]


@dataclass(frozen=True, slots=True)
class Example:
    """An input: two utterances.

    Arguments:
        waveform: (2, samples) float32, multiples of 2^-15 as 16-bit audio has.
        tokens: (2, time); the second ends early and has a gap, the first has a faint one at a faint
            position.
        labels: the tokens that follow them; -100 where there is none.
        prompt: (2, 3), tokens to continue.
        steps: how many tokens are decoded.
    """

    waveform: Array
    tokens: Array
    labels: Array
    prompt: Array
    steps: int

    def noted(self, dump: "Dump") -> None:
        """Note the hashes of what is given in a dump: only runs on the same input are compared."""
        for name in ("waveform", "tokens", "labels", "prompt"):
            dump.input(name, getattr(self, name))


def example(config: Config, seed: int, time: int = 7) -> Example:
    """Return an input drawn by seed: rising tones over noise, a quiet stretch in the middle."""
    rng = np.random.default_rng([seed, 1])
    t = np.arange(config.samples) / config.samples
    pitch = rng.integers(20, 60, (2, 3, 1)) * config.samples / 1000
    tones = np.sin(2 * np.pi * pitch * (t + 0.5 * t * t)).sum(axis=1)
    noise = rng.integers(-100, 101, (2, config.samples)) / 400
    loudness = np.where(abs(t - 0.5) < 0.1, 0.01, 0.15)
    waveform = np.rint((tones + noise) * loudness * 2**15) / 2**15
    words = rng.integers(2, config.words, (2, time + 1))
    words[:, 0], words[0, FAINT] = config.start, FAINT + 8
    words[1, 3] = words[1, -2:] = config.pad
    labels = np.where(words[:, 1:] == config.pad, IGNORED, words[:, 1:])
    return Example(waveform.astype(np.float32), words[:, :-1], labels, words[:, :3], steps=9)
