"""Faults of a mel front end that is told from the waveform before it: Whisper's, alone."""

from typing import Any

import numpy as np

from autodiff import ops
from checks.gates.corpus.fault import after, configured, faults_of, instead, patched

W = "whisper"
MEL = "enc.mel.in"
FRONT, BANK = "mel front end", "mel filters"


def _symmetric(config: Any, dtype: Any) -> Any:
    return np.hanning(config.n_fft).astype(dtype)


def _hamming(config: Any, dtype: Any) -> Any:
    return np.hamming(config.n_fft).astype(dtype)


def _none(config: Any, dtype: Any) -> Any:
    return np.ones(config.n_fft, dtype)


def _zeros(x: Any, config: Any) -> Any:
    return np.pad(x, ((0, 0), (config.n_fft // 2,) * 2))


def _edges(x: Any, config: Any) -> Any:
    return np.pad(x, ((0, 0), (config.n_fft // 2,) * 2), mode="edge")


def _at_the_end(x: Any, config: Any) -> Any:
    return np.pad(x, ((0, 0), (0, config.n_fft)))


def _not_padded(x: Any, config: Any) -> Any:
    return x


def _emphasised(before: Any) -> Any:
    def padded(x: Any, config: Any) -> Any:
        rest = x[:, 1:] - x.dtype.type(0.97) * x[:, :-1]
        return before(np.concatenate([x[:, :1], rest], axis=1), config)

    return padded


def _bank(rate: int = 16000, low: float = 0.0, scale: str = "slaney", area: bool = True) -> Any:
    def filters(config: Any) -> Any:
        points, high = config.n_fft, rate / 2
        return ops.mel_weights(config.mels, points, rate, low, high, scale=scale, area=area)

    return instead(f"{W}.filters", filters)


def _near(hop: int) -> int:
    """As many frames of the same samples: 220.5 samples rounded up and down."""
    return hop - 1


_f = faults_of("whisper_front")
FAULTS = (
    _f("one sample of hop too few", 1,
       lambda run: configured(hop=_near(run.config.hop))(run), MEL, FRONT),
    _f("twice the hop", 1, lambda run: configured(hop=2 * run.config.hop)(run), MEL, FRONT),
    _f("symmetric window", 2, instead(f"{W}.window", _symmetric), MEL, FRONT),
    _f("Hamming for Hann", 2, instead(f"{W}.window", _hamming), MEL, FRONT),
    _f("no window", 2, instead(f"{W}.window", _none), MEL, FRONT),
    _f("HTK mel scale for Slaney's", 2, _bank(scale="htk"), MEL, BANK),
    _f("HTK's scale and height", 2, _bank(scale="htk", area=False), MEL, BANK),
    _f("filters from 20 Hz", 2, _bank(low=20.0), MEL, BANK),
    _f("filters of 22,050 Hz", 2, _bank(rate=22050), MEL, BANK),
    _f("zeros for reflection", 3, instead(f"{W}.padded", _zeros), MEL, FRONT, "partial"),
    _f("edges for reflection", 3, instead(f"{W}.padded", _edges), MEL, FRONT, "partial"),
    _f("frames not centred", 3, instead(f"{W}.padded", _at_the_end), MEL, FRONT),
    _f("signal not padded", 3, instead(f"{W}.padded", _not_padded), MEL, FRONT, "length"),
    _f("natural logarithm", 6, instead(f"{W}.logarithm", np.log), MEL, "affine", "logarithm"),
    _f("magnitude for power", 6, after(f"{W}.power", np.sqrt), MEL, FRONT, "affine"),
    _f("preemphasis", 25, patched(f"{W}.padded", _emphasised), MEL, FRONT),
)  # fmt: skip
