"""Spectra of signals over time: STFT, MEL_FILTERBANK, LOG_MEL."""

import math
from typing import Any

import numpy as np

from autodiff.errors import ShapeError, nearest
from autodiff.families import composite, promote, whole
from autodiff.ops.gather import gather
from autodiff.ops.matmul import matmul
from autodiff.ops.signal import complex_dtype, rfft
from autodiff.program import Spec
from autodiff.trace import bind
from autodiff.widen import widened_body

__all__ = ["log_mel", "mel", "mel_edges", "mel_filterbank", "mel_weights", "stft"]

# --- STFT ----------------------------------------------------------------------------------


def frame_count(n: int, size: int, hop: int) -> int:
    """How many whole frames of `size` samples, `hop` apart, fit into n."""
    return max(0, 1 + (n - size) // hop)


def _stft_spec(x: Spec, window: Spec, *, hop: int, n_fft: int) -> Spec:
    size = window.shape[0] if window.ndim == 1 else 0
    if not x.ndim or not 1 <= size <= n_fft or hop < 1 or x.dtype != window.dtype:
        raise ShapeError(
            f"STFT cannot transform {x} with window {window}, hop={hop}, n_fft={n_fft}",
            "in op STFT",
            "pass a signal (..., n) and a window (w,) of one real dtype, 1 <= w <= n_fft, hop >= 1",
        )
    frames = frame_count(x.shape[-1], size, hop)
    return Spec((*x.shape[:-1], frames, n_fft // 2 + 1), complex_dtype(x.dtype))


def _stft_body(x: Any, window: Any, *, hop: int, n_fft: int) -> Any:
    size = np.shape(window)[0]
    frames = frame_count(np.shape(x)[-1], size, hop)
    index = hop * np.arange(frames)[:, None] + np.arange(size)
    return rfft(gather(x, index, axis=np.ndim(x) - 1) * window, n_fft)


composite("STFT", widened_body(_stft_body), spec=_stft_spec)


def stft(x: Any, window: Any, hop: int, n_fft: int | None = None) -> Any:
    """Short-time Fourier transform: spectra of windowed frames.

    y[..., t, k] = sum_j window_j x[..., hop t + j] exp(-2 pi i j k / n_fft), k = 0 ... n_fft // 2.

    Arguments: x of shape (..., n), real; window of shape (w,); hop, samples from one frame to the
    next; n_fft >= w, by default w. Frames start at sample 0, and what is left at the end is not
    read: pad the signal to centre the frames.
    Returns complex shape (..., 1 + (n - w) // hop, n_fft // 2 + 1); no frames for n < w. Bilinear.
    Raises ShapeError for shapes that do not fit.
    """
    x, window = promote(x, window, inexact=True)
    size = np.shape(window)[-1] if np.ndim(window) else 0
    return bind(
        "STFT",
        x,
        window,
        hop=whole(hop, "hop"),
        n_fft=size if n_fft is None else whole(n_fft, "n_fft"),
    )


# --- MEL_FILTERBANK and LOG_MEL ------------------------------------------------------------


SCALES = ("htk", "slaney")
# Slaney, Auditory Toolbox (Interval TR 1998-010): 200 / 3 Hz a mel up to 1000 Hz, and from there 27
# mels for a factor of 6.4
BREAK, BREAK_MEL, LOG_STEP = 1000.0, 15.0, math.log(6.4) / 27


def _check_scale(scale: str) -> None:
    if scale not in SCALES:
        raise ShapeError(f"no mel scale {scale!r}", "in mel", nearest(scale, SCALES))


def mel(frequency: Any, scale: str = "htk") -> np.ndarray[Any, Any]:
    """Mels of frequencies in Hz, elementwise, float64.

    "htk": 2595 log10(1 + f / 700). "slaney": 3 f / 200 up to 1000 Hz, then
    15 + 27 log(f / 1000) / log(6.4). Libraries differ in their default (pytorch/audio#1058).
    Raises ShapeError for another scale.
    """
    _check_scale(scale)
    f = np.asarray(frequency, np.float64)
    if scale == "htk":
        return np.asarray(2595 * np.log10(1 + f / 700))
    above = BREAK_MEL + np.log(np.maximum(f, BREAK) / BREAK) / LOG_STEP
    return np.where(f < BREAK, 3 * f / 200, above)


def mel_edges(n_mels: int, low: float, high: float, scale: str = "htk") -> np.ndarray[Any, Any]:
    """The n_mels + 2 frequencies (Hz) from low to high that lie evenly on a mel scale."""
    first, last = mel([low, high], scale)
    mels = np.linspace(first, last, n_mels + 2)
    if scale == "htk":
        return np.asarray(700 * (10 ** (mels / 2595) - 1))
    above = BREAK * np.exp(LOG_STEP * (np.maximum(mels, BREAK_MEL) - BREAK_MEL))
    return np.where(mels < BREAK_MEL, 200 * mels / 3, above)


def mel_weights(
    n_mels: int,
    n_fft: int,
    sample_rate: float,
    low: float = 0.0,
    high: float | None = None,
    scale: str = "htk",
    area: bool = False,
) -> np.ndarray[Any, Any]:
    """Weights of triangular filters evenly spaced on a mel scale.

    Filter i rises from frequency f_i (Hz) to 1 at f_(i+1) and falls to 0 at f_(i+2).

    Arguments: n_mels filters; n_fft points of the transform; sample_rate in Hz; low and high, the
    range in Hz (high: half the sample rate by default); scale, "htk" or "slaney" as in `mel`; area:
    filters are divided by their areas, (f_(i+2) - f_i) / 2.
    Returns float64 of shape (n_mels, n_fft // 2 + 1).
    Raises ShapeError for a range that is not inside 0 ... sample_rate / 2, or another scale.
    """
    _check_scale(scale)
    top = sample_rate / 2 if high is None else high
    if n_mels < 1 or n_fft < 1 or not 0 <= low < top <= sample_rate / 2:
        raise ShapeError(
            f"no {n_mels} mel filters between {low} and {top} Hz at {sample_rate} Hz",
            "in mel_weights",
            "take 0 <= low < high <= sample_rate / 2, and one filter at least",
        )
    edges = mel_edges(n_mels, low, top, scale)
    points = np.arange(n_fft // 2 + 1) * (sample_rate / n_fft)
    rise = (points - edges[:-2, None]) / np.diff(edges[:-1])[:, None]
    fall = (edges[2:, None] - points) / np.diff(edges[1:])[:, None]
    heights = 2 / (edges[2:, None] - edges[:-2, None]) if area else 1.0
    return np.asarray(np.maximum(0, np.minimum(rise, fall)) * heights)


def _mel_params(
    sample_rate: float, low: float, high: float, scale: str, area: bool
) -> dict[str, Any]:
    numbers = {"sample_rate": float(sample_rate), "low": float(low), "high": float(high)}
    return numbers | {"scale": scale, "area": bool(area)}


def _mel_spec(power: Spec, *, n_mels: int, n_fft: int, **params: Any) -> Spec:
    del params
    if not power.ndim or power.shape[-1] != n_fft // 2 + 1 or power.dtype.kind not in "fV":
        raise ShapeError(
            f"MEL_FILTERBANK takes (..., {n_fft // 2 + 1}) real powers, got {power}",
            "in op MEL_FILTERBANK",
            "pass abs(stft(x, window, hop, n_fft)) ** 2",
        )
    return power.with_shape((*power.shape[:-1], n_mels))


def _mel_body(power: Any, **params: Any) -> Any:
    weights = mel_weights(**params).astype(power.dtype)
    return matmul(power, weights.T, algorithm="f32")


composite("MEL_FILTERBANK", widened_body(_mel_body), spec=_mel_spec)


def mel_filterbank(
    power: Any,
    n_mels: int,
    sample_rate: float,
    low: float = 0.0,
    high: float | None = None,
    n_fft: int | None = None,
    scale: str = "htk",
    area: bool = False,
) -> Any:
    """Power spectra summed by the triangular filters of `mel_weights`.

    Arguments: power of shape (..., n_fft // 2 + 1), real; n_fft by default the even number of that
    many frequencies; the others as `mel_weights`. Returns shape (..., n_mels). Linear.
    Raises ShapeError for shapes or ranges that do not fit.
    """
    (power,) = promote(power, inexact=True)
    points = 2 * (np.shape(power)[-1] - 1) if n_fft is None else whole(n_fft, "n_fft")
    top = sample_rate / 2 if high is None else high
    mel_weights(n_mels, points, sample_rate, low, top, scale, area)
    params = _mel_params(sample_rate, low, top, scale, area)
    return bind("MEL_FILTERBANK", power, n_mels=whole(n_mels, "n_mels"), n_fft=points, **params)


def _log_mel_spec(
    x: Spec,
    window: Spec,
    *,
    hop: int,
    n_fft: int,
    n_mels: int,
    **params: Any,
) -> Spec:
    del params
    spectra = _stft_spec(x, window, hop=hop, n_fft=n_fft)
    return Spec((*spectra.shape[:-1], n_mels), x.dtype)


def _log_mel_body(x: Any, window: Any, *, hop: int, n_fft: int, floor: float, **params: Any) -> Any:
    spectra = bind("STFT", x, window, hop=hop, n_fft=n_fft)
    parts = bind("REAL", spectra), bind("IMAG", spectra)
    power = parts[0] * parts[0] + parts[1] * parts[1]
    mel = bind("MEL_FILTERBANK", power, n_fft=n_fft, **params)
    return bind("LOG", bind("MAXIMUM", mel, np.asarray(floor, mel.dtype)))


composite("LOG_MEL", widened_body(_log_mel_body), spec=_log_mel_spec)


def log_mel(
    x: Any,
    window: Any,
    hop: int,
    n_mels: int,
    sample_rate: float,
    n_fft: int | None = None,
    low: float = 0.0,
    high: float | None = None,
    floor: float = 1e-10,
    scale: str = "htk",
    area: bool = False,
) -> Any:
    """Natural logarithm of mel-filtered power spectra, log(max(mel |stft|^2, floor)).

    Arguments as in `stft` and `mel_filterbank`; floor > 0. Returns shape (..., frames, n_mels).
    Below the floor the value is log(floor) and the derivative 0; on it, half (as MAXIMUM).
    Raises ShapeError for shapes or ranges that do not fit.
    """
    x, window = promote(x, window, inexact=True)
    points = np.shape(window)[-1] if n_fft is None else whole(n_fft, "n_fft")
    top = sample_rate / 2 if high is None else high
    mel_weights(n_mels, points, sample_rate, low, top, scale, area)
    params = _mel_params(sample_rate, low, top, scale, area)
    return bind(
        "LOG_MEL",
        x,
        window,
        hop=whole(hop, "hop"),
        n_fft=points,
        n_mels=whole(n_mels, "n_mels"),
        floor=float(floor),
        **params,
    )
