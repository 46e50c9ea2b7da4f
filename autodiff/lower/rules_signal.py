"""JAX functions of the signal primitives that no single JAX call gives."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


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
    n, m = x.shape[-1], y.shape[-1]
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(m - 1, m - 1)])
    windows = padded[..., np.arange(n + m - 1)[:, None] + np.arange(m)]
    rows = y[..., ::-1, None]
    return jnp.matmul(windows, rows, precision=lax.Precision.HIGHEST)[..., 0]
