"""Kernels of signal primitives."""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def fft(x: Any, *, axis: int, norm: Any) -> Any:
    """Discrete Fourier transform along an axis."""
    return np.fft.fft(x, axis=axis, norm=norm)


def ifft(x: Any, *, axis: int, norm: Any) -> Any:
    """Inverse discrete Fourier transform along an axis."""
    return np.fft.ifft(x, axis=axis, norm=norm)


def rfft(x: Any, *, axis: int, norm: Any) -> Any:
    """The non-negative frequencies of the transform of real values along an axis."""
    return np.fft.rfft(x, axis=axis, norm=norm)


def irfft(x: Any, *, n: int, axis: int, norm: Any) -> Any:
    """n real values from their non-negative frequencies along an axis."""
    return np.fft.irfft(x, n=n, axis=axis, norm=norm)


def convolve(x: Any, y: Any) -> Any:
    """z_k = sum_j x_(k-j) y_j over the last axis, all n + m - 1 elements."""
    x, y = np.asarray(x), np.asarray(y)
    m = y.shape[-1]
    border = [(0, 0)] * (x.ndim - 1) + [(m - 1, m - 1)]
    windows = sliding_window_view(np.pad(x, border), m, axis=-1)
    return (windows @ y[..., ::-1, None])[..., 0]
