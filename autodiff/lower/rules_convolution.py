"""JAX functions of convolutions."""

from typing import Any

import jax.numpy as jnp
from jax import lax

from autodiff.lower.options import product_precision


def conv(
    x: Any,
    k: Any,
    *,
    stride: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    lhs_dilation: tuple[int, ...],
    rhs_dilation: tuple[int, ...],
    groups: int,
    algorithm: str,
) -> Any:
    """The convolution of (batch, channels, ...) with (out, in / groups, ...)."""
    inside = [(n - 1) * g + 1 if n else 0 for n, g in zip(x.shape[2:], lhs_dilation, strict=True)]
    taps = [(n - 1) * g + 1 if n else 0 for n, g in zip(k.shape[2:], rhs_dilation, strict=True)]
    rows = zip(inside, taps, padding, stride, strict=True)
    out = [max((n - w + low + high) // s + 1, 0) for n, w, (low, high), s in rows]
    if 0 in (*x.shape, *k.shape, *out):
        return jnp.zeros((x.shape[0], k.shape[0], *out), x.dtype)
    # convolutions take no algorithm preset: full float32 products are asked for by precision
    exact = product_precision(algorithm, x.dtype, k.dtype) is not None
    return lax.conv_general_dilated(
        x,
        k,
        window_strides=stride,
        padding=padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        feature_group_count=groups,
        precision=lax.Precision.HIGHEST if exact else None,
    )
