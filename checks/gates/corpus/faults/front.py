"""Faults of the speech front end: mel, windows, padding, convolution."""

from typing import Any

import numpy as np

from autodiff import ops
from checks.gates.corpus.fault import after, configured, faults_of, given, instead, weight

FRONT = "mel_front_end"
MEL, CONV, EMBED = ("fe.mel",), ("fe.conv",), ("enc.embed",)


def _short(samples: Any, config: Any) -> Any:
    half = config.window // 2
    whole = np.concatenate([samples[half:0:-1], samples, samples[-2 : -half - 2 : -1]])
    return whole[: -config.hop]


def _not_centred(samples: Any, config: Any) -> Any:
    del config
    return samples


def _late(samples: Any, config: Any) -> Any:
    half = config.window // 2
    whole = np.concatenate([samples[half:0:-1], samples, samples[-2 : -half - 2 : -1]])
    return np.concatenate([np.zeros(config.hop, samples.dtype), whole[: -config.hop]])


def _zeros(samples: Any, config: Any) -> Any:
    return np.pad(samples, config.window // 2)


def _edge(samples: Any, config: Any) -> Any:
    return np.pad(samples, config.window // 2, mode="edge")


def _hamming(config: Any) -> Any:
    return 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(config.window) / config.window)


def _symmetric(config: Any) -> Any:
    at = np.arange(config.window) / (config.window - 1)
    return 0.5 - 0.5 * np.cos(2 * np.pi * at)


def _rectangular(config: Any) -> Any:
    return np.ones(config.window)


def _magnitude(spectra: Any) -> Any:
    return np.sqrt(ops.real(spectra) ** 2 + ops.imag(spectra) ** 2)


def _areas(filters: Any) -> Any:
    return filters / filters.sum(axis=1, keepdims=True)


def _shifted_band(filters: Any) -> Any:
    return np.roll(filters, 1, axis=1)


def _dead_band(filters: Any) -> Any:
    made = filters.copy()
    made[-1] = 0
    return made


def _preemphasis(samples: Any) -> Any:
    return np.concatenate([samples[:1], samples[1:] - 0.97 * samples[:-1]])


def _edge_conv(x: Any, w: Any, b: Any) -> Any:
    return _valid(np.concatenate([x[:1], x, x[-1:]]), w, b)


def _valid(x: Any, w: Any, b: Any) -> Any:
    y = ops.conv1d(x.T[None], w.astype(x.dtype), stride=2)[0].T
    return y + b.astype(x.dtype)


def _left_out(x: Any, w: Any, b: Any) -> Any:
    """The kernel's frames start one frame late, as where padding lies on the right alone."""
    return _valid(np.concatenate([x, np.zeros_like(x[:2])]), w, b)


def _last_valid(x: Any, w: Any, b: Any) -> Any:
    """A padded batch, whose bias reaches the last frame through the kernel."""
    leak = np.full_like(x[:1], 0.5)
    return _valid(np.concatenate([np.zeros_like(x[:1]), x, leak]), w, b)


def _tap_order(w: Any) -> Any:
    return w[:, :, ::-1]


_f = faults_of("toy_transformer")
FAULTS = (
    _f("one frame less", 1, instead(f"{FRONT}.padded", _short), MEL, "length"),
    _f("frames not centred", 1, instead(f"{FRONT}.padded", _not_centred), MEL, "length"),
    _f("one hop late", 1, instead(f"{FRONT}.padded", _late), MEL, "shifted"),
    _f("Hamming for Hann", 2, instead(f"{FRONT}.window", _hamming), MEL),
    _f("symmetric window", 2, instead(f"{FRONT}.window", _symmetric), MEL),
    _f("no window", 2, instead(f"{FRONT}.window", _rectangular), MEL),
    _f("filters of unit area", 2, weight("fe.filters", _areas), MEL, "offset per slice", "offset"),
    _f("filters one bin up", 2, weight("fe.filters", _shifted_band), MEL),
    _f("top filter empty", 2, weight("fe.filters", _dead_band), MEL, "partial"),
    _f("zeros for reflection", 3, instead(f"{FRONT}.padded", _zeros), MEL, "partial"),
    _f("convolution repeats edges", 3, instead(f"{FRONT}.convolution", _edge_conv), CONV,
       "partial"),
    _f("padding leaks into the last frame", 3, instead(f"{FRONT}.convolution", _last_valid), CONV,
       "partial"),
    _f("natural logarithm", 6, instead(f"{FRONT}.log", np.log), MEL, "affine"),
    _f("magnitude for power", 6, instead(f"{FRONT}.power", _magnitude), MEL),
    _f("log floor 1e-2", 6, configured(log_floor=1e-2), MEL, "clipped", "partial"),
    _f("kernel backwards", 22, weight("fe.conv.weight", _tap_order), CONV),
    _f("stride starts one frame late", 22, instead(f"{FRONT}.convolution", _left_out), CONV),
    _f("channels of the kernel in halves exchanged", 22,
       weight("fe.conv.weight", lambda w: np.roll(w, w.shape[1] // 2, axis=1)), CONV),
    _f("mel not normalised", 23, after(f"{FRONT}.log_mel", lambda x: x * 4.0 - 4.0), MEL, "affine"),
    _f("mel halved", 23, after(f"{FRONT}.log_mel", lambda x: x * np.float32(0.5)), MEL, "scale"),
    _f("mel standardised by bin", 23,
       after(f"{FRONT}.log_mel", lambda x: (x - x.mean(0)) / (x.std(0) + x.dtype.type(1e-3))), MEL,
       "affine per slice"),
    _f("gain of 2", 25, given(0, lambda x: 2 * x), MEL, "offset"),
    _f("samples as 16 bits", 25, given(0, lambda x: 32768 * x), MEL, "offset"),
    _f("preemphasis", 25, given(0, _preemphasis), MEL),
    _f("edges for reflection", 25, instead(f"{FRONT}.padded", _edge), MEL, "partial"),
    _f("last frame zero", 25,
       after(f"{FRONT}.log_mel", lambda x: np.concatenate([x[:-1], np.zeros_like(x[-1:])])), MEL,
       "partial"),
)  # fmt: skip
