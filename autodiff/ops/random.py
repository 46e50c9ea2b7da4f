"""Random numbers as functions of a key: threefry-2x32, bit-equal to JAX's.

A key is two uint32, shape (..., 2), an ordinary integer operand: equal keys give equal numbers,
`vmap` over keys works, and derivatives with respect to keys do not exist. Bits, uniform
numbers of [0, 1), splits and folds are bit-equal to `jax.random` under its default
`jax_threefry_partitionable=True`; normal numbers are within the difference of the two
inverse error functions.
"""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import (
    add_tangents,
    batch_leading,
    batch_stacked,
    composite,
    nondiff,
    promote,
)
from autodiff.kernels import random as kernels
from autodiff.ops.elementwise import cast, where
from autodiff.ops.shape import broadcast_to
from autodiff.program import Spec
from autodiff.trace import bind

__all__ = [
    "bernoulli",
    "dropout",
    "rng_bits",
    "rng_fold_in",
    "rng_key",
    "rng_normal",
    "rng_split",
    "rng_uniform",
]

WORDS: dict[int, np.dtype[Any]] = {32: np.dtype(np.uint32), 64: np.dtype(np.uint64)}


def rng_key(seed: int) -> np.ndarray[Any, Any]:
    """The key of an integer seed: its upper and lower 32 bits, as `jax.random.key`.

    Arguments: seed, a plain int of -2^63 ... 2^64 - 1 (negative ones in two's complement; JAX
    without 64-bit types keeps the lower word alone). Returns uint32 of shape (2,).
    Raises ValueError for others.
    """
    if not -(2**63) <= int(seed) < 2**64:
        raise ValueError(
            f"seed {seed} does not fit in 64 bits: pass an int of -2**63 ... 2**64 - 1"
        )
    word = int(seed) % 2**64
    return np.array([word >> 32, word & 0xFFFFFFFF], np.uint32)


def _check_key(kind: str, key: Spec) -> None:
    if key.dtype != np.uint32 or key.shape[-1:] != (2,):
        raise ShapeError(
            f"{kind} takes keys of two uint32, got {key}",
            f"in op {kind}, argument key",
            "make one with autodiff.ops.rng_key(0)",
        )


def _lead(key: Any) -> tuple[int, ...]:
    """Leading axes of keys: one draw for each."""
    shape: tuple[int, ...] = tuple(np.shape(key)[:-1])
    return shape


def _extents(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(n) for n in shape)


# --- RNG_BITS, RNG_SPLIT, RNG_FOLD_IN ------------------------------------------------------


def _bits_spec(key: Spec, *, shape: tuple[int, ...], width: int, drop: int) -> Spec:
    _check_key("RNG_BITS", key)
    if width not in WORDS or not 0 <= drop < width:
        raise ShapeError(
            f"RNG_BITS has no words of {width} bits less {drop}",
            "in op RNG_BITS",
            "use width 32 or 64, and drop fewer bits than that",
        )
    return Spec((*key.shape[:-1], *shape), WORDS[width])


nondiff(
    "RNG_BITS",
    kernels.rng_bits,
    spec=_bits_spec,
    batch=batch_leading("RNG_BITS"),
    jax="rules:rng_bits",
)


def rng_bits(key: Any, shape: int | tuple[int, ...] = (), width: int = 32, drop: int = 0) -> Any:
    """Random words, uniform over the integers 0 ... 2^(width - drop) - 1.

    Word i is threefry-2x32 of the counter i: its two halves x, y joined by x ^ y (32 bits) or
    as 2^32 x + y (64 bits).

    Arguments: key, uint32 (..., 2); shape of each key's draw; width, 32 or 64; drop, how many low
    bits are cut off. Returns uint32 or uint64 of shape (..., *shape). Not differentiable.
    Raises ShapeError for keys of another shape or dtype.
    """
    return bind("RNG_BITS", key, shape=_extents(shape), width=int(width), drop=int(drop))


def _split_spec(key: Spec, *, shape: tuple[int, ...]) -> Spec:
    _check_key("RNG_SPLIT", key)
    return key.with_shape((*key.shape[:-1], *shape, 2))


nondiff(
    "RNG_SPLIT",
    kernels.rng_split,
    spec=_split_spec,
    batch=batch_leading("RNG_SPLIT"),
    jax="rules:rng_split",
)


def rng_split(key: Any, shape: int | tuple[int, ...] = 2) -> Any:
    """New, independent keys from a key: `jax.random.split`.

    Arguments: key, uint32 (..., 2); shape, how many. Returns uint32 (..., *shape, 2).
    Not differentiable. Raises ShapeError for keys of another shape or dtype.
    """
    return bind("RNG_SPLIT", key, shape=_extents(shape))


def _fold_spec(key: Spec, data: Spec) -> Spec:
    _check_key("RNG_FOLD_IN", key)
    if data.dtype != np.uint32 or data.shape != key.shape[:-1]:
        raise ShapeError(
            f"RNG_FOLD_IN takes one uint32 for each key, got {data} for {key}",
            "in op RNG_FOLD_IN, argument data",
            "convert with astype(np.uint32) and broadcast to the keys' leading axes",
        )
    return key


nondiff(
    "RNG_FOLD_IN",
    kernels.rng_fold_in,
    spec=_fold_spec,
    batch=batch_stacked("RNG_FOLD_IN"),
    jax="rules:rng_fold_in",
)


def rng_fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and an integer: `jax.random.fold_in`.

    Arguments: key, uint32 (..., 2); data, integers (converted to uint32) that broadcast with the
    keys' leading axes. Returns uint32 (..., 2). Not differentiable.
    Raises ShapeError for keys of another shape or dtype.
    """
    _check_key("RNG_FOLD_IN", Spec(np.shape(key), key.dtype))
    (data,) = promote(data)
    lead = np.broadcast_shapes(_lead(key), np.shape(data))
    data = broadcast_to(cast(data, np.uint32), lead)
    return bind("RNG_FOLD_IN", broadcast_to(key, (*lead, 2)), data)


# --- RNG_UNIFORM ---------------------------------------------------------------------------

MANTISSA: dict[np.dtype[Any], int] = {np.dtype(np.float32): 23, np.dtype(np.float64): 52}


def _float_dtype(kind: str, dtype: Any) -> np.dtype[Any]:
    drawn: np.dtype[Any] = np.dtype(dtype)
    if drawn not in MANTISSA:
        raise ShapeError(
            f"{kind} draws float32 or float64, not {drawn.name}",
            f"in op {kind}, argument dtype",
            "draw float32 and convert with astype",
        )
    return drawn


def _draw_spec(kind: str) -> Any:
    def spec(key: Spec, a: Spec, b: Spec, *, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Spec:
        _check_key(kind, key)
        full = (*key.shape[:-1], *shape)
        if a != Spec(full, dtype) or b != a:
            raise ShapeError(
                f"{kind} takes parameters of the drawn shape, {Spec(full, dtype)}, got {a} and {b}",
                f"in op {kind}",
                f"autodiff.ops.{kind.lower()} broadcasts them",
            )
        return Spec(full, _float_dtype(kind, dtype))

    return spec


def _unit(key: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Uniform numbers of [0, 1): multiples of 2^-23 or 2^-52, all equally likely."""
    kept, width = MANTISSA[dtype], 8 * dtype.itemsize
    bits = bind("RNG_BITS", key, shape=shape, width=width, drop=width - kept)
    return cast(bits, dtype) * np.asarray(2.0**-kept, dtype)


def _uniform_body(
    key: Any, low: Any, high: Any, *, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Any:
    u = _unit(key, shape, dtype)
    # where, not MAXIMUM: rounding of the sum alone can fall below low
    x = u * (high - low) + low
    return where(x < low, low, x)


def _uniform_jvp(
    primals: Any, tangents: Any, y: Any, *, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Any:
    del y
    u = _unit(primals[0], shape, dtype)
    _, low, high = tangents
    return add_tangents(None if low is None else (1 - u) * low, None if high is None else u * high)


composite(
    "RNG_UNIFORM",
    _uniform_body,
    spec=_draw_spec("RNG_UNIFORM"),
    jvp=_uniform_jvp,
    batch=batch_stacked("RNG_UNIFORM"),
)


def _draw(kind: str, key: Any, shape: Any, a: Any, b: Any, dtype: Any) -> Any:
    """A draw whose parameters broadcast to its shape."""
    shape, dtype = _extents(shape), _float_dtype(kind, dtype)
    key = key if hasattr(key, "dtype") else np.asarray(key)
    _check_key(kind, Spec(np.shape(key), key.dtype))
    full = (*_lead(key), *shape)
    try:
        operands = [broadcast_to(cast(promote(v)[0], dtype), full) for v in (a, b)]
    except ShapeError:
        raise ShapeError(
            f"{kind} cannot broadcast parameters {np.shape(a)} and {np.shape(b)} to {full}",
            f"in op {kind}, keys {np.shape(key)}, shape {shape}",
            "give each parameter the drawn shape, or one that broadcasts to it",
        ) from None
    return bind(kind, key, *operands, shape=shape, dtype=dtype)


def rng_uniform(
    key: Any,
    shape: int | tuple[int, ...] = (),
    low: Any = 0.0,
    high: Any = 1.0,
    dtype: Any = np.float32,
) -> Any:
    """Uniform numbers of [low, high): `jax.random.uniform`.

    x = low + u (high - low), u a multiple of 2^-23 (float32) or 2^-52 (float64); never below low.

    Arguments: key, uint32 (..., 2); shape of each key's draw; low, high, real, broadcast to
    (..., *shape); dtype, float32 or float64. Returns shape (..., *shape).
    dx/dlow = 1 - u, dx/dhigh = u; keys have no derivative. Bit-equal to JAX's for [0, 1), and
    for other bounds where XLA does not contract the product and the sum.
    Raises ShapeError for shapes that do not broadcast, other dtypes, or keys that are none.
    """
    return _draw("RNG_UNIFORM", key, shape, low, high, dtype)


# --- RNG_NORMAL ----------------------------------------------------------------------------


def _standard_normal(key: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    full = (*_lead(key), *shape)
    low = np.nextafter(np.asarray(-1, dtype), np.asarray(0, dtype))
    ends = (np.broadcast_to(low, full), np.broadcast_to(np.asarray(1, dtype), full))
    u = bind("RNG_UNIFORM", key, *ends, shape=shape, dtype=dtype)
    return np.asarray(np.sqrt(2), dtype) * bind("ERFINV", u)


def _normal_body(
    key: Any, loc: Any, scale: Any, *, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Any:
    return loc + scale * _standard_normal(key, shape, dtype)


composite(
    "RNG_NORMAL",
    _normal_body,
    spec=_draw_spec("RNG_NORMAL"),
    batch=batch_stacked("RNG_NORMAL"),
)


def rng_normal(
    key: Any,
    shape: int | tuple[int, ...] = (),
    loc: Any = 0.0,
    scale: Any = 1.0,
    dtype: Any = np.float32,
) -> Any:
    """Normal numbers of mean loc and standard deviation scale: `jax.random.normal`.

    x = loc + scale z, z = sqrt(2) erfinv(u), u uniform in (-1, 1).

    Arguments: key, uint32 (..., 2); shape of each key's draw; loc, scale, real, broadcast to
    (..., *shape); dtype, float32 or float64. Returns shape (..., *shape).
    dx/dloc = 1, dx/dscale = z; keys have no derivative. The u are JAX's bit for bit; z differs from
    JAX's by the rounding of its inverse error function.
    Raises ShapeError for shapes that do not broadcast, other dtypes, or keys that are none.
    """
    return _draw("RNG_NORMAL", key, shape, loc, scale, dtype)


# --- BERNOULLI and DROPOUT -----------------------------------------------------------------


def _bernoulli_spec(key: Spec, p: Spec, *, shape: tuple[int, ...]) -> Spec:
    _check_key("BERNOULLI", key)
    full = (*key.shape[:-1], *shape)
    if p.shape != full or p.dtype not in MANTISSA:
        raise ShapeError(
            f"BERNOULLI takes probabilities of the drawn shape {full}, got {p}",
            "in op BERNOULLI, argument p",
            "autodiff.ops.bernoulli broadcasts them; convert to float32 or float64",
        )
    return Spec(full, np.dtype(np.bool_))


def _bernoulli_body(key: Any, p: Any, *, shape: tuple[int, ...]) -> Any:
    return _unit(key, shape, p.dtype) < p


composite(
    "BERNOULLI",
    _bernoulli_body,
    spec=_bernoulli_spec,
    derivative="none",
    batch=batch_stacked("BERNOULLI"),
)


def bernoulli(key: Any, p: Any = 0.5, shape: int | tuple[int, ...] | None = None) -> Any:
    """True with probability p: `jax.random.bernoulli`.

    u < p, u uniform in [0, 1) of p's dtype (a Python float counts as float32).

    Arguments: key, uint32 (..., 2); p, real; shape of each key's draw, by default what p has beyond
    the keys' leading axes. Returns bool (..., *shape). Not differentiable.
    Raises ShapeError for shapes that do not broadcast, or keys that are none.
    """
    p = p if hasattr(p, "dtype") else np.asarray(p, np.float32)
    p = p if p.dtype in MANTISSA else cast(p, np.float32)
    lead = _lead(key)
    extents = np.shape(p)[len(lead) :] if shape is None else _extents(shape)
    return bind("BERNOULLI", key, broadcast_to(p, (*lead, *extents)), shape=tuple(extents))


def _dropout_spec(key: Spec, x: Spec, *, rate: float) -> Spec:
    _check_key("DROPOUT", key)
    n = key.ndim - 1
    if not 0 <= rate <= 1 or x.shape[:n] != key.shape[:-1] or x.dtype.kind not in "fcV":
        raise ShapeError(
            f"DROPOUT cannot drop {rate} of {x} with keys {key}",
            "in op DROPOUT",
            "take 0 <= rate <= 1, floating values, and keys that match their leading axes",
        )
    return x


def _dropout_body(key: Any, x: Any, *, rate: float) -> Any:
    shape = np.shape(x)[np.ndim(key) - 1 :]
    if rate == 1:
        return x * np.zeros((), x.dtype)
    kept = _unit(key, shape, np.dtype(np.float32)) < np.float32(1 - rate)
    return where(kept, x / np.asarray(1 - rate, x.dtype), np.zeros((), x.dtype))


composite("DROPOUT", _dropout_body, spec=_dropout_spec, batch=batch_stacked("DROPOUT"))


def dropout(key: Any, x: Any, rate: float) -> Any:
    """Elements set to 0 with probability `rate`, the others divided by 1 - rate.

    y = where(bernoulli(key, 1 - rate, shape), x / (1 - rate), 0): the mean is kept.

    Arguments: key, uint32 (2,), or (..., 2) with one key for each of x's leading axes; x, floating;
    rate, a plain number of 0 ... 1 (at 1 everything is dropped). Returns x's shape and dtype.
    Linear in x: the same key gives the same mask. Uniform numbers are drawn in float32.
    Raises ShapeError for a rate outside 0 ... 1, or keys that do not match.
    """
    (x,) = promote(x, inexact=True)
    return bind("DROPOUT", key, x, rate=float(rate))
