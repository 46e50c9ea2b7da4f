"""What the JAX functions of matrices share: full products, 16-bit operands, finite matrices."""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autodiff.lower.lean import product as general_product
from autodiff.lower.lean import spread, where

HIGHEST = lax.Precision.HIGHEST
product = functools.partial(general_product, precision=HIGHEST)


def widened(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Run a rule in float32 on 16-bit operands: XLA's factorisations take no others."""

    @functools.wraps(rule)
    def wide(*arrays: Any, **params: Any) -> Any:
        return rule(*(a.astype(jnp.float32) if _narrow(a) else a for a in arrays), **params)

    return wide


def _narrow(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating)) and x.dtype.itemsize < 4


def swapped(x: Any) -> Any:
    """The transposed matrices."""
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def over_matrix(reduce: Callable[..., Any], x: Any) -> Any:
    """A reduction over the last two axes, which become 1."""
    axes = (x.ndim - 2, x.ndim - 1)
    return lax.expand_dims(reduce(x, axes), axes)


def only_finite(a: Any) -> tuple[Any, Any]:
    """The matrices, those that are not finite replaced by zeros, and NaN in their places."""
    parts = (lax.real(a), lax.imag(a)) if a.dtype.kind == "c" else (a,)
    finite = functools.reduce(lax.bitwise_and, [lax.is_finite(p) for p in parts])
    finite = over_matrix(lax.reduce_and, finite)
    nan = spread(np.nan, finite.shape, parts[0].dtype)
    return where(finite, a, 0), where(finite, 0, nan)
