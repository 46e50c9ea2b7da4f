"""A speech front end: log-mel frames, a convolution that halves them, positions.

Plain NumPy on `autodiff.ops`.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

import autodiff as ad
from autodiff import ops
from checks.ports.policy import operand, wide

Weights = Mapping[str, Any]


class Sizes(Protocol):
    """What the front end reads of a configuration.

    Attributes: mels, filters; window and hop, samples; width, channels of the convolution;
    log_floor, the least power that a logarithm is taken of.
    """

    @property
    def mels(self) -> int: ...  # noqa: D102
    @property
    def window(self) -> int: ...  # noqa: D102
    @property
    def hop(self) -> int: ...  # noqa: D102
    @property
    def width(self) -> int: ...  # noqa: D102
    @property
    def log_floor(self) -> float: ...  # noqa: D102


def triangles(mels: int, bins: int) -> Any:
    """Overlapping triangles, evenly spaced: a filter bank of unit peaks."""
    centres = np.linspace(0, bins - 1, mels + 2)
    at = np.arange(bins)[None]
    low, mid, high = (centres[n : n + mels, None] for n in range(3))
    return np.clip(np.minimum((at - low) / (mid - low), (high - at) / (high - mid)), 0, None)


def window(config: Sizes) -> Any:
    """The periodic Hann window."""
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(config.window) / config.window)


def padded(samples: Any, config: Sizes) -> Any:
    """The signal reflected at both ends, so that frames are centred."""
    half = config.window // 2
    return np.concatenate([samples[half:0:-1], samples, samples[-2 : -half - 2 : -1]])


def power(spectra: Any) -> Any:
    """|X|^2."""
    return ops.real(spectra) ** 2 + ops.imag(spectra) ** 2


def log_mel(samples: Any, weights: Weights, config: Sizes) -> Any:
    """(frames, mels): (log10 max(filters |STFT|^2, floor) + 4) / 4."""
    frame = padded(samples, config)
    spectra = ops.stft(frame, window(config).astype(samples.dtype), config.hop)
    energies = power(spectra) @ wide(weights["fe.filters"]).T
    return (log(np.maximum(energies, np.asarray(config.log_floor, energies.dtype))) + 4.0) / 4.0


def log(x: Any) -> Any:
    """Log to the base 10."""
    return np.log10(x)


def convolution(x: Any, w: Any, b: Any) -> Any:
    """Kernel 3, stride 2, one frame of zeros on either side; x (frames, channels)."""
    y = ops.conv1d(operand(x, w).T[None], wide(w), stride=2, padding=((1, 1),))[0].T
    return y + wide(b)


def activation(x: Any) -> Any:
    """GELU in its erf form."""
    return ops.gelu(x)


def sinusoids(length: int, width: int) -> Any:
    """Positions (Vaswani et al., 2017, section 3.5), sines first."""
    rate = 10000.0 ** (-np.arange(width // 2) / (width // 2 - 1))
    angle = np.arange(length)[:, None] * rate
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def front_end(samples: Any, weights: Weights, config: Sizes) -> Any:
    """(frames, width): what the encoder reads."""
    mel = ad.tap("fe.mel", log_mel(samples, weights, config))
    x = convolution(mel, weights["fe.conv.weight"], weights["fe.conv.bias"])
    x = ad.tap("fe.conv", activation(x))
    return ad.tap("enc.embed", x + sinusoids(x.shape[0], config.width).astype(x.dtype))
