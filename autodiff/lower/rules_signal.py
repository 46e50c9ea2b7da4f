"""JAX functions of the signal primitives that no single JAX call gives."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autodiff.lower.lean import spread


def rfft(x: Any, *, axis: int, norm: str) -> Any:
    """The non-negative frequencies of the transform of real values; 16-bit ones in float32."""
    wide = x.astype(jnp.float32) if x.dtype.itemsize < 4 else x
    return jnp.fft.rfft(wide, axis=axis, norm=norm)


def irfft(x: Any, *, n: int, axis: int, norm: str) -> Any:
    """n real values from their non-negative frequencies, the unread imaginary parts dropped."""
    index = [slice(None)] * x.ndim
    for k in {0, n // 2} if n % 2 == 0 else {0}:
        index[axis] = slice(k, k + 1)
        x = x.at[tuple(index)].set(x[tuple(index)].real.astype(x.dtype))
    return jnp.fft.irfft(x, n=n, axis=axis, norm=norm)


def convolve(x: Any, y: Any) -> Any:
    """z_k = sum_j x_(k-j) y_j over the last axis, all n + m - 1 elements."""
    m = y.shape[-1]
    widths = [(0, 0, 0)] * (x.ndim - 1) + [(m - 1, m - 1, 0)]
    windows = _sliding(lax.pad(x, np.zeros((), x.dtype), widths), m)
    if y.ndim > 1:
        lead = np.broadcast_shapes(x.shape[:-1], y.shape[:-1])
        windows = spread(windows, (*lead, *windows.shape[-2:]), x.dtype)
        y = spread(y, (*lead, m), y.dtype)
    batch = tuple(range(y.ndim - 1))
    numbers = (((windows.ndim - 1,), (y.ndim - 1,)), (batch, batch))
    backwards = lax.rev(y, (y.ndim - 1,))
    return lax.dot_general(windows, backwards, numbers, precision=lax.Precision.HIGHEST)


def _sliding(x: Any, width: int) -> Any:
    """The windows of the last axis: rows of copies laid end to end, each begun one place later."""
    *lead, n = x.shape
    count = n - width + 1
    copies = -(-count * (n + 1) // n)
    repeated = lax.broadcast_in_dim(x, (*lead, copies, n), (*range(len(lead)), len(lead) + 1))
    flat = lax.reshape(repeated, (*lead, copies * n))
    flat = lax.slice_in_dim(flat, 0, count * (n + 1), axis=len(lead))
    return lax.slice_in_dim(lax.reshape(flat, (*lead, count, n + 1)), 0, width, axis=len(lead) + 1)
