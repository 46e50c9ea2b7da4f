"""JAX functions of the products."""

from typing import Any

import jax.numpy as jnp
from jax import lax

from autodiff.lower.lean import product
from autodiff.lower.options import product_precision


def matmul(x: Any, y: Any, *, algorithm: str) -> Any:
    """Matrix product over the last two axes."""
    precision = product_precision(algorithm, x.dtype, y.dtype)
    if x.ndim >= 2 and x.shape[:-2] == y.shape[:-2] and x.ndim == y.ndim:
        return product(x, y, precision)
    return jnp.matmul(x, y, precision=precision)


def dot_general(x: Any, y: Any, *, dimension_numbers: Any, algorithm: str) -> Any:
    """Product summed over paired axes, with batch axes leading."""
    precision = product_precision(algorithm, x.dtype, y.dtype)
    return lax.dot_general(x, y, dimension_numbers, precision=precision)
