"""JAX functions of the products."""

from typing import Any

import jax.numpy as jnp
from jax import lax

from autodiff.lower.options import product_precision


def matmul(x: Any, y: Any, *, algorithm: str) -> Any:
    """Matrix product over the last two axes."""
    return jnp.matmul(x, y, precision=product_precision(algorithm, x.dtype, y.dtype))


def dot_general(x: Any, y: Any, *, dimension_numbers: Any, algorithm: str) -> Any:
    """Product summed over paired axes, with batch axes leading."""
    precision = product_precision(algorithm, x.dtype, y.dtype)
    return lax.dot_general(x, y, dimension_numbers, precision=precision)
