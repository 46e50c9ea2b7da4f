"""Series and asymptotic expansions on JAX arrays, of as many terms as a dtype needs."""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autodiff.kernels.bessel import BERNOULLI
from autodiff.lower.lean import spread

# Arguments are moved up by this much before an asymptotic expansion in them.
SHIFT = 16


def enough(coefficients: Sequence[float], bound: float, dtype: Any, least: float) -> list[float]:
    """The coefficients without those at the end that are round-off for all |x| <= bound.

    `least` is a lower limit of the sum's size at the bound.
    """
    limit = float(jnp.finfo(dtype).eps) * least / 8
    sizes = [abs(c) * bound**k for k, c in enumerate(coefficients)]
    last = max((k for k, size in enumerate(sizes) if size > limit), default=0)
    return list(coefficients[: last + 1])


def horner(coefficients: Sequence[float], x: Any) -> Any:
    """The polynomial with these coefficients, the constant first."""
    *rest, last = (np.asarray(c, x.dtype) for c in coefficients)
    total: Any = lax.full_like(x, last)
    for c in rest[::-1]:
        total = lax.add(lax.mul(total, x), c)
    return total


def along(x: Any, count: int) -> Any:
    """x, x + 1, ... along a new first axis."""
    shape = (count, *x.shape)
    return lax.add(spread(x, shape, x.dtype), lax.broadcasted_iota(x.dtype, shape, 0))


def digammas(order: int, x: Any) -> Any:
    """digamma (order 0) or a derivative of it at x > 0, by DLMF 5.15.5 and 5.11.2, 5.15.8."""
    head = lax.reduce_sum(lax.integer_pow(along(x, SHIFT), -(order + 1)), (0,))
    z = lax.add(x, np.asarray(SHIFT, x.dtype))
    r = lax.div(lax.full_like(z, 1), z)
    found = [b * math.factorial(2 * k + order - 1) for k, b in enumerate(BERNOULLI, start=1)]
    least = math.factorial(max(order - 1, 0))
    terms = enough([0.0, *found], SHIFT**-2.0, x.dtype, least)
    tail = horner(terms, lax.mul(r, r))
    half = math.factorial(order)
    tail = lax.add(tail, lax.mul(r, np.asarray(half / 2, x.dtype)))
    if order:
        tail = lax.mul(lax.add(tail, np.asarray(least, x.dtype)), lax.integer_pow(r, order))
    else:
        tail = lax.sub(tail, lax.log(z))
    total = lax.add(tail, lax.mul(head, np.asarray(half, x.dtype)))
    return total if order % 2 else lax.neg(total)
