"""Spectra of signals over time: STFT, MEL_FILTERBANK, LOG_MEL."""

import math
from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import composite, promote
from autodiff.ops.gather import gather
from autodiff.ops.matmul import matmul
from autodiff.ops.signal import complex_dtype, rfft
from autodiff.program import Spec
from autodiff.trace import bind
from autodiff.widen import widened_body

__all__ = ["log_mel", "mel_filterbank", "mel_weights", "stft"]

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
    return bind("STFT", x, window, hop=int(hop), n_fft=size if n_fft is None else int(n_fft))


# --- MEL_FILTERBANK and LOG_MEL ------------------------------------------------------------


def mel_weights(
    n_mels: int,
    n_fft: int,
    sample_rate: float,
    low: float = 0.0,
    high: float | None = None,
) -> np.ndarray[Any, Any]:
    """Weights of triangular filters evenly spaced on the mel scale, m = 2595 log10(1 + f / 700).

    Filter i rises from frequency f_i (Hz) to 1 at f_(i+1) and falls to 0 at f_(i+2).

    Arguments: n_mels filters; n_fft points of the transform; sample_rate in Hz; low and high, the
    range in Hz (high: half the sample rate by default).
    Returns float64 of shape (n_mels, n_fft // 2 + 1).
    Raises ShapeError for a range that is not inside 0 ... sample_rate / 2.
    """
    top = sample_rate / 2 if high is None else high
    if n_mels < 1 or n_fft < 1 or not 0 <= low < top <= sample_rate / 2:
        raise ShapeError(
            f"no {n_mels} mel filters between {low} and {top} Hz at {sample_rate} Hz",
            "in mel_weights",
            "take 0 <= low < high <= sample_rate / 2, and one filter at least",
        )
    first, last = (2595 * math.log10(1 + f / 700) for f in (low, top))
    edges = 700 * (10 ** (np.linspace(first, last, n_mels + 2) / 2595) - 1)
    points = np.arange(n_fft // 2 + 1) * (sample_rate / n_fft)
    rise = (points - edges[:-2, None]) / np.diff(edges[:-1])[:, None]
    fall = (edges[2:, None] - points) / np.diff(edges[1:])[:, None]
    return np.asarray(np.maximum(0, np.minimum(rise, fall)))


def _mel_spec(
    power: Spec, *, n_mels: int, n_fft: int, sample_rate: float, low: float, high: float
) -> Spec:
    del sample_rate, low, high
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
) -> Any:
    """Power spectra summed by the triangular filters of `mel_weights`.

    Arguments: power of shape (..., n_fft // 2 + 1), real; n_fft by default the even number of that
    many frequencies. Returns shape (..., n_mels). Linear.
    Raises ShapeError for shapes or ranges that do not fit.
    """
    (power,) = promote(power, inexact=True)
    points = 2 * (np.shape(power)[-1] - 1) if n_fft is None else int(n_fft)
    top = sample_rate / 2 if high is None else high
    mel_weights(n_mels, points, sample_rate, low, top)
    params = {"sample_rate": float(sample_rate), "low": float(low), "high": float(top)}
    return bind("MEL_FILTERBANK", power, n_mels=int(n_mels), n_fft=points, **params)


def _log_mel_spec(
    x: Spec,
    window: Spec,
    *,
    hop: int,
    n_fft: int,
    n_mels: int,
    sample_rate: float,
    low: float,
    high: float,
    floor: float,
) -> Spec:
    del sample_rate, low, high, floor
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
) -> Any:
    """Natural logarithm of mel-filtered power spectra, log(max(mel |stft|^2, floor)).

    Arguments as in `stft` and `mel_filterbank`; floor > 0. Returns shape (..., frames, n_mels).
    Below the floor the value is log(floor) and the derivative 0; on it, half (as MAXIMUM).
    Raises ShapeError for shapes or ranges that do not fit.
    """
    x, window = promote(x, window, inexact=True)
    points = np.shape(window)[-1] if n_fft is None else int(n_fft)
    top = sample_rate / 2 if high is None else high
    mel_weights(n_mels, points, sample_rate, low, top)
    params = {"sample_rate": float(sample_rate), "low": float(low), "high": float(top)}
    return bind(
        "LOG_MEL",
        x,
        window,
        hop=int(hop),
        n_fft=points,
        n_mels=int(n_mels),
        floor=float(floor),
        **params,
    )
