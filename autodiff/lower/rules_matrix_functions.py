"""JAX functions of the matrix exponential, its derivative and the pseudo-inverse.

The conventions of `rules_linalg` hold.
"""

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autodiff.lower.lean import spread, where
from autodiff.lower.matrices import only_finite, product, swapped, widened


def _one_norm(a: Any) -> Any:
    """The largest column sum of magnitudes of each matrix."""
    columns = lax.reduce_sum(lax.abs(a), (a.ndim - 2,))
    return lax.reduce_max(columns, (a.ndim - 2,))


def _exponent(x: Any) -> Any:
    """floor(log2(x)) of x >= 0 from its bits; below those of normal numbers for 0 and subnormal
    ones, above them for infinity and NaN.
    """
    info = jnp.finfo(x.dtype)
    word = _WORDS[x.dtype.itemsize]
    bits = lax.shift_right_logical(lax.bitcast_convert_type(x, word), word(info.nmant))
    return lax.sub(lax.convert_element_type(bits, np.int32), np.int32(1 - info.minexp))


def _power_of_two(exponent: Any, dtype: Any) -> Any:
    """2 ** exponent, for the exponents of normal numbers."""
    info = jnp.finfo(dtype)
    word = _WORDS[dtype.itemsize]
    biased = lax.convert_element_type(lax.add(exponent, np.int32(1 - info.minexp)), word)
    return lax.bitcast_convert_type(lax.shift_left(biased, word(info.nmant)), dtype)


_WORDS = {4: np.int32, 8: np.int64}


def _scaled(x: Any, by: Any) -> Any:
    """Matrices times one real number each."""
    by = lax.expand_dims(lax.convert_element_type(by, x.dtype), (x.ndim - 2, x.ndim - 1))
    return lax.mul(x, spread(by, x.shape, x.dtype))


@widened
def expm(a: Any) -> Any:
    """Matrix exponential by scaling to a norm below 1, the Taylor polynomial and squaring.

    No degree to choose and no system to solve, so a third of the operations of Padé approximants.
    """
    if not a.size:
        return a
    norm = _one_norm(a)
    exponent = _exponent(norm)
    usable = lax.lt(exponent, np.int32(jnp.finfo(norm.dtype).maxexp))
    squarings = where(usable, lax.max(lax.add(exponent, np.int32(1)), np.int32(0)), 0)
    # a quarter of 2^(2 - squarings): the power itself may be subnormal, which XLA flushes on CPUs
    power = _power_of_two(lax.sub(np.int32(2), squarings), norm.dtype)
    x = _taylor(_scaled(_scaled(a, power), lax.full_like(power, 0.25)))
    last = lax.reduce_max(squarings, tuple(range(squarings.ndim)))

    def squared(state: Any) -> Any:
        step, x = state
        wanted = lax.expand_dims(lax.lt(step, squarings), (a.ndim - 2, a.ndim - 1))
        return lax.add(step, np.int32(1)), where(wanted, product(x, x), x)

    x = lax.while_loop(lambda state: lax.lt(state[0], last), squared, (np.int32(0), x))[1]
    return where(lax.expand_dims(usable, (a.ndim - 2, a.ndim - 1)), x, np.nan)


# Degrees of the Taylor polynomial of exp right to round-off up to norm 1, and how many powers of
# the matrix its blocks are made of (Paterson and Stockmeyer, SIAM J. Comput. 2, 1973; Higham,
# "Functions of Matrices", 2008, 4.2): the rest is below 1.1 / (m + 1)!, against exp(-1) or more.
# The terms sum to exp(1) in magnitude, so that rounding costs no more than exp(2) eps.
_TAYLOR = {4: (11, 4), 8: (19, 5)}


def _taylor(a: Any) -> Any:
    """The Taylor polynomial of exp at matrices of norm below 1."""
    degree, width = _TAYLOR[jnp.finfo(a.dtype).dtype.itemsize]
    powers = [spread(np.eye(a.shape[-1], dtype=a.dtype), a.shape, a.dtype), a]
    while len(powers) <= width:
        k = len(powers)
        powers.append(product(powers[k // 2], powers[k - k // 2]))
    x = None
    for low in range(degree - degree % width, -1, -width):
        terms = range(min(width, degree + 1 - low))
        block = [powers[i] * np.asarray(1 / math.factorial(low + i), a.dtype) for i in terms]
        total = functools.reduce(lax.add, block[::-1])
        x = total if x is None else lax.add(total, product(powers[width], x))
    return x


@widened
def expm_frechet(a: Any, t: Any) -> Any:
    """Derivative of the exponential at a in direction t: a block of exp([[a, t], [0, a]])."""
    if not a.size:
        return a
    n, row = a.shape[-1], a.ndim - 2
    info = jnp.finfo(t.dtype)
    # so that both 2^exponent and 2^-exponent are normal numbers
    low, high = np.int32(info.minexp), np.int32(-info.minexp)
    exponent = lax.clamp(low, _exponent(_one_norm(t)), high)
    unit = _scaled(t, _power_of_two(lax.neg(exponent), info.dtype))
    top = lax.concatenate([a, unit], row + 1)
    bottom = lax.concatenate([lax.full_like(a, 0), a], row + 1)
    both = expm(lax.concatenate([top, bottom], row))
    corner = lax.slice_in_dim(lax.slice_in_dim(both, 0, n, axis=row), n, 2 * n, axis=row + 1)
    return _scaled(corner, _power_of_two(exponent, info.dtype))


@widened
def pinv(a: Any, *, rtol: float) -> Any:
    """Pseudo-inverse; singular values up to rtol times the largest count as 0."""
    if not a.size:
        return swapped(a)
    a, bad = only_finite(a)
    u, s, vh = lax.linalg.svd(a, full_matrices=False)
    # a program traced in float64 may be lowered to float32, whose noise is larger than its rtol
    rtol = max(rtol, max(a.shape[-2:]) * float(jnp.finfo(a.dtype).eps))
    large = s > rtol * jnp.max(s, axis=-1, keepdims=True)
    inverse = jnp.where(large, 1 / jnp.where(large, s, 1), 0)
    return product(swapped(vh), inverse[..., :, None] * swapped(u)) + bad
