"""JAX functions of the reductions that no single JAX call gives."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autodiff.lower.lean import isnan, spread, total, where


def argmax_mask(x: Any, *, axis: tuple[int, ...]) -> Any:
    """True at the first maximum along the axes (in C order); NaN is a maximum."""
    if x.size == 0:
        return lax.full(x.shape, False, np.bool_)
    top = spread(total(lax.reduce_max, x, axis, True), x.shape, x.dtype)
    # the largest is NaN where an element is
    hit = lax.eq(x, top) if x.dtype.kind in "biu" else lax.bitwise_or(lax.eq(x, top), isnan(x))
    place = _places(x.shape, axis)
    first = total(lax.reduce_min, where(hit, place, _LAST), axis, True)
    return lax.eq(place, spread(first, x.shape, np.int32))


_LAST = int(np.iinfo(np.int32).max)


def _places(shape: tuple[int, ...], axis: tuple[int, ...]) -> Any:
    """The numbers of the elements along the axes, in C order of these as they are given."""
    place = None
    for a in axis:
        row = lax.broadcasted_iota(np.int32, shape, a)
        place = row if place is None else lax.add(lax.mul(place, np.int32(shape[a])), row)
    return lax.full(shape, 0, np.int32) if place is None else place


def wide_sum(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    """The sum along the axes, of float32 without the errors of partial sums.

    Elements are cut at one place (Rump, Ogita & Oishi, SIAM J. Sci. Comput. 31(1), 2008, section
    3): the upper parts are multiples of one unit and add up without error in any order, the lower
    parts are small. Where the cut would overflow or there is nothing to cut, the plain sum.
    """
    n = math.prod(x.shape[a] for a in axis)
    if x.dtype.itemsize > 4 or n < 2:
        return jnp.sum(x, axis=axis, keepdims=keepdims)
    size = total(lax.reduce_max, lax.abs(x), axis, True)
    unit = lax.mul(size, np.asarray(2.0 * n, x.dtype))
    unit = where(lax.is_finite(unit), unit, 0)
    cut = spread(unit, x.shape, x.dtype)
    upper = lax.sub(lax.add(x, cut), cut)
    parts = (upper, lax.sub(x, upper))
    if n > _ONE_PASS:
        whole, rest = (jnp.sum(part, axis=axis, keepdims=keepdims) for part in parts)
        return lax.add(whole, rest)
    # two reductions might compute x with and without fma and cut it at two places; one of pairs
    # adds up in order, which is right for few terms alone
    zero = np.zeros((), x.dtype)
    found = lax.add(*lax.reduce(parts, (zero, zero), _add_pairs, axis))
    return lax.expand_dims(found, sorted(a % x.ndim for a in axis)) if keepdims else found


_ONE_PASS = 128


def _add_pairs(a: Any, b: Any) -> Any:
    return lax.add(a[0], b[0]), lax.add(a[1], b[1])


def norm_scale(x: Any, *, axis: tuple[int, ...]) -> Any:
    """The power of two just below the largest magnitude; 1 where that is 0 or not finite.

    It is the number whose bits are the exponent of that magnitude alone (frexp and ldexp are
    lowered to twenty times as much). Subnormal magnitudes are lifted to normal ones first.
    """
    size = lax.abs(x)
    if 0 in x.shape:
        return lax.full([1 if a in axis else n for a, n in enumerate(x.shape)], 1, size.dtype)
    size = total(lax.reduce_max, size, axis, True)
    info = jnp.finfo(size.dtype)
    word = _WORDS[size.dtype.itemsize]
    low = lax.lt(size, np.asarray(info.smallest_normal, size.dtype))
    lift = np.asarray(2.0**info.nmant, size.dtype)
    bits = lax.bitcast_convert_type(where(low, lax.mul(size, lift), size), word)
    mask = word(((1 << info.nexp) - 1) << info.nmant)
    power = lax.bitcast_convert_type(lax.bitwise_and(bits, mask), size.dtype)
    power = where(low, lax.div(power, lift), power)
    usable = lax.bitwise_and(lax.gt(size, np.zeros((), size.dtype)), lax.is_finite(size))
    return where(usable, power, 1)


_WORDS = {2: np.uint16, 4: np.uint32, 8: np.uint64}
