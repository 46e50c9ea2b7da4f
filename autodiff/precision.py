"""Matrix products as devices compute them, on any machine, with their error bounds."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from autodiff.errors import ShapeError
from autodiff.rounding import (
    DTYPES,
    FLOATS,
    FORMATS,
    ROUNDINGS,
    Array,
    Format,
    PrecisionError,
    cast,
    dtype_name,
    float_format,
    nearest_name,
    round_mantissa,
    round_to,
    unit_roundoff,
)

__all__ = [
    "DOT_MODES",
    "DTYPES",
    "FLOATS",
    "FORMATS",
    "PRECISIONS",
    "ROUNDINGS",
    "SPLITS",
    "Format",
    "PrecisionError",
    "cast",
    "check_dot_mode",
    "dot_bound",
    "dot_general",
    "dot_unit",
    "dtype_name",
    "float_dtype",
    "float_format",
    "nearest_name",
    "product",
    "round_mantissa",
    "round_to",
    "unit_roundoff",
]

Dims = tuple[Sequence[int], Sequence[int]]

# Relative error of one operand or one product. x6 drops products of at most 2^-24; x9 drops none,
# so that the rounding of a float32 result remains.
_UNITS = MappingProxyType(
    {
        "ieee": 2.0**-24,
        "tf32": 2.0**-11,
        "tf32_rne": 2.0**-11,
        "tf32_rz": 2.0**-11,
        "bf16x1": 2.0**-8,
        "bf16x3": 2.0**-16,
        "bf16x6": 2.0**-24,
        "bf16x9": 2.0**-24,
        "f16": 2.0**-11,
    }
)
DOT_MODES = tuple(_UNITS)
# A truncated part leaves up to 2^-7 of the number, not 2^-8, to the next one.
_TRUNCATED_UNITS = MappingProxyType({"bf16x3": 2.0**-14, "bf16x6": 2.0**-20})
SPLITS = ("rne", "rz")
_TF32_ROUNDING = MappingProxyType({"tf32": "rna", "tf32_rne": "rne", "tf32_rz": "rz"})
_BF16_PARTS = MappingProxyType({"bf16x1": 1, "bf16x3": 2, "bf16x6": 3, "bf16x9": 3})


PRECISIONS = ("float64", "float32", "bfloat16", "float16")


def float_dtype(precision: DTypeLike) -> np.dtype[Any]:
    """The dtype of an interpreter precision; PrecisionError unless one of `PRECISIONS`."""
    return np.dtype(dtype_name(precision, PRECISIONS))


def check_dot_mode(mode: str, split: str = "rne") -> None:
    """Raise PrecisionError, naming the nearest known one, for an unknown dot mode or split."""
    if mode not in DOT_MODES:
        raise PrecisionError("dot mode", mode, DOT_MODES)
    if split not in SPLITS:
        raise PrecisionError("split", split, SPLITS)


def dot_general(
    a: ArrayLike,
    b: ArrayLike,
    contracting: Dims,
    batch: Dims = ((), ()),
    mode: str = "ieee",
    out: DTypeLike = "float32",
    split: str = "rne",
) -> Array:
    """Product of two arrays with the operand rounding and the passes of a device.

    R = sum_k a_k b_k. Operands are rounded to float32 and then

    - ieee: neither rounded to float32 nor otherwise; a float64 product;
    - tf32, tf32_rne, tf32_rz: to 10 mantissa bits, ties away, ties to even, toward zero;
    - f16, bf16x1: to float16, to bfloat16;
    - bf16x3, x6, x9: split in bfloat16 parts hi + lo or hi + mid + lo, each the rounding of what
      the parts before it leave. x3 = (lo hi + hi lo) + hi hi, x6 = (mid mid + hi lo + lo hi +
      hi mid + mid hi) + hi hi, x9 all nine products. A NaN in the bracket counts as 0, so that
      inf * 1 stays inf. (Above 3.39e38 hi itself is infinite with split="rne".)

    Products of the parts are exact and every mode accumulates in float64 and rounds the sum once,
    to `out`, so that the result does not depend on the machine's BLAS but for sums within about
    K 2^-53 of a tie. A device's own float32 accumulation adds an error of that size on top;
    `dot_bound` allows for it.

    Args:
        a, b: real or complex arrays. Complex products take four real ones in every mode but ieee.
        contracting: contracted axes of a and of b, in pairs.
        batch: batch axes of a and of b, in pairs; one of size 1 is stretched.
        mode: one of `DOT_MODES`.
        out: format of the result.
        split: how bf16x3, x6 and x9 take their parts: "rne" to nearest, "rz" toward zero but for
            the last (XLA on GPUs).

    Returns:
        A float64 (complex128) array of values of format `out`: batch axes, then the free axes of a,
        then those of b, as `jax.lax.dot_general`.

    Raises:
        PrecisionError: unknown mode, split or format.
        ShapeError: axes out of range, repeated, or of different sizes.

    Reference: XLA dot_algorithm_rewriter for the products kept; CUTLASS issue 1289 and Triton issue
        4574 for the rounding of TF32 operands.
    """
    check_dot_mode(mode, split)
    float_format(out)
    left, right, shape = _matrices(a, b, contracting, batch)
    wide = product(np.matmul, (left, right), {}, mode, split)
    return round_to(wide.reshape(shape), out)


def product(
    multiply: Callable[..., Any],
    operands: Sequence[Array],
    params: Mapping[str, Any],
    mode: str,
    split: str = "rne",
) -> Array:
    """Any bilinear NumPy function (a matrix product, a convolution) in a dot mode, not yet rounded.

    Args:
        multiply: bilinear; called on float64 arrays of the operands' shapes, with `params`.
        operands: the two arrays; two of integers are multiplied as they are.
        params: keyword arguments of `multiply`.
        mode, split: as `dot_general`.

    Returns:
        What `multiply` returns, float64 (complex128) unless both operands are integers.

    Raises:
        PrecisionError: unknown mode or split.
        ShapeError: not two operands.
    """
    check_dot_mode(mode, split)
    if len(operands) != 2:
        raise ShapeError(
            f"a product in dot mode {mode!r} takes two operands, not {len(operands)}",
            f"shapes {[np.shape(x) for x in operands]}",
            "write it as products of two operands",
        )
    if all(np.asarray(x).dtype.kind in "iub" for x in operands):
        return np.asarray(multiply(*operands, **params))
    a, b = (round_to(x, "float64") for x in operands)

    def times(x: Array, y: Array) -> Array:
        return np.asarray(multiply(x, y, **params))

    with np.errstate(invalid="ignore", over="ignore"):
        return _in_mode(times, a, b, mode, split)


def _in_mode(
    times: Callable[[Array, Array], Array], a: Array, b: Array, mode: str, split: str
) -> Array:
    if mode == "ieee":
        return times(a, b)
    if np.iscomplexobj(a) or np.iscomplexobj(b):
        (rr, ri), (ir, ii) = (
            [_in_mode(times, u, v, mode, split) for v in (b.real, b.imag)] for u in (a.real, a.imag)
        )
        out = np.empty(rr.shape, np.complex128)
        out.real, out.imag = rr - ii, ri + ir
        return out
    return _passes(times, _parts(a, mode, split), _parts(b, mode, split), mode)


def _parts(x: Array, mode: str, split: str) -> list[Array]:
    """The pieces of an operand that a device multiplies, leading one first."""
    x = round_to(x, "float32")
    if mode == "f16":
        return [round_to(x, "float16")]
    if mode in _TF32_ROUNDING:
        return [round_mantissa(x, 10, _TF32_ROUNDING[mode]).astype(np.float64)]
    parts: list[Array] = []
    for left in reversed(range(_BF16_PARTS[mode])):
        if left and split == "rz":
            parts.append(round_mantissa(x, 7, "rz").astype(np.float64))
        else:
            parts.append(round_to(x, "bfloat16"))
        x = x - parts[-1]
    return parts


def _passes(
    times: Callable[[Array, Array], Array], a: list[Array], b: list[Array], mode: str
) -> Array:
    large = times(a[0], b[0])
    if len(a) == 1:
        return large
    # mid + lo is exact in float64, so that two passes may share a product.
    tail_a, tail_b = sum(a[2:], start=a[1]), sum(b[2:], start=b[1])
    small = times(a[0], tail_b) + times(tail_a, b[0])
    if mode == "bf16x6":
        small = small + times(a[1], b[1])
    elif mode == "bf16x9":
        small = small + times(tail_a, tail_b)
    return np.asarray(np.where(np.isnan(small), 0.0, small) + large)


def dot_unit(mode: str, split: str = "rne") -> float:
    """The unit roundoff that a dot mode brings into each product: 2^-11 for tf32, 2^-8 for bf16x1.

    Raises:
        PrecisionError: unknown mode or split.
    """
    check_dot_mode(mode, split)
    return _TRUNCATED_UNITS.get(mode, _UNITS[mode]) if split == "rz" else _UNITS[mode]


def dot_bound(
    a: ArrayLike,
    b: ArrayLike,
    contracting: Dims,
    batch: Dims = ((), ()),
    mode: str = "ieee",
    split: str = "rne",
) -> Array:
    """Entrywise bound of a device's error in a product of float32 operands in a dot mode.

    |err| <= 4 u Q + beta u |R| + 4 sqrt(K) 2^-24 |A||B| + (eta_a |B| + |A| eta_b) + K 2^-149
    with Q = sqrt((A*A)(B*B)), u = `dot_unit(mode)` and beta = 2 where operands or parts are
    truncated, else 0. The first two terms are the rounding of the operands, independent from entry
    to entry, hence a root of a sum of squares (measured: at most 3.1 u Q over 10^6 entries); the
    third a float32 accumulation in any order (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019,
    factor 4); the last two underflow. It holds in probability: operands chosen so that all their
    roundings agree in sign exceed it.

    Args:
        a, b, contracting, batch, mode, split: as `dot_general`; complex entries count with their
            absolute values, times 2.

    Returns:
        A float64 array of the product's shape; infinite where an operand may overflow.

    Raises:
        PrecisionError: unknown mode or split.
        ShapeError: as `dot_general`.
    """
    unit = dot_unit(mode, split)
    left, right, shape = _matrices(a, b, contracting, batch)
    factor = 2.0 if np.iscomplexobj(left) or np.iscomplexobj(right) else 1.0
    with np.errstate(all="ignore"):
        x, y = np.abs(left), np.abs(right)
        terms = left.shape[-1]
        bound = 4.0 * unit * np.sqrt((x * x) @ (y * y))
        if mode == "tf32_rz" or (split == "rz" and mode in _TRUNCATED_UNITS):
            exact = np.abs(left @ right) if factor == 1.0 else x @ y
            bound = bound + 2.0 * unit * exact
        bound = bound + 4.0 * math.sqrt(terms) * 2.0**-24 * (x @ y)
        bound = bound + _lost(x, mode) @ y + x @ _lost(y, mode) + terms * 2.0**-149
    return np.where(np.isnan(bound), np.inf, factor * bound).reshape(shape)


def _lost(x: Array, mode: str) -> Array:
    """Absolute error of an operand that underflow leaves; infinite where it overflows."""
    if mode == "ieee":
        return np.zeros_like(x)
    if mode in _TF32_ROUNDING:
        return np.full_like(x, 2.0**-136)
    form = FORMATS["float16" if mode == "f16" else "bfloat16"]
    edge = form.largest + 2.0 ** (form.max_exponent - form.mantissa - 1)
    return np.where(x >= edge, np.inf, form.quantum / 2)


def _matrices(
    a: ArrayLike, b: ArrayLike, contracting: Dims, batch: Dims
) -> tuple[Array, Array, tuple[int, ...]]:
    """Operands as stacks of matrices (batch, m, k) and (batch, k, n), and the product's shape."""
    x, y = round_to(a, "float64"), round_to(b, "float64")
    x_batch, x_free, x_sum = _axis_groups(x, "a", batch[0], contracting[0])
    y_batch, y_free, y_sum = _axis_groups(y, "b", batch[1], contracting[1])
    if _sizes(x, x_sum) != _sizes(y, y_sum):
        raise _axes_error("contracted", x, x_sum, y, y_sum)
    stacks = _sizes(x, x_batch), _sizes(y, y_batch)
    if len(x_batch) != len(y_batch) or any(
        m != n and 1 not in (m, n) for m, n in zip(*stacks, strict=False)
    ):
        raise _axes_error("batch", x, x_batch, y, y_batch)
    terms, rows, columns = (
        math.prod(sizes) for sizes in (_sizes(x, x_sum), _sizes(x, x_free), _sizes(y, y_free))
    )
    left = x.transpose(x_batch + x_free + x_sum).reshape(*stacks[0], rows, terms)
    right = y.transpose(y_batch + y_sum + y_free).reshape(*stacks[1], terms, columns)
    shape = (*np.broadcast_shapes(*stacks), *_sizes(x, x_free), *_sizes(y, y_free))
    return left, right, shape


def _axis_groups(
    x: Array, name: str, batch: Sequence[int], contracted: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    """Batch, free and contracted axes, counted from 0."""
    named = [*batch, *contracted]
    axes = [axis + x.ndim if axis < 0 else axis for axis in named]
    if len(set(axes)) != len(axes) or any(not 0 <= axis < x.ndim for axis in axes):
        raise ShapeError(
            f"dot_general: axes {named} of {name} are out of range or repeated",
            f"{name} has shape {x.shape}",
            f"name each axis of {name} once at most, between {-x.ndim} and {x.ndim - 1}",
        )
    free = [axis for axis in range(x.ndim) if axis not in axes]
    return axes[: len(batch)], free, axes[len(batch) :]


def _sizes(x: Array, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(x.shape[axis] for axis in axes)


def _axes_error(
    what: str, x: Array, x_axes: Sequence[int], y: Array, y_axes: Sequence[int]
) -> ShapeError:
    return ShapeError(
        f"dot_general: the {what} axes differ in size",
        f"axes {list(x_axes)} of a {x.shape} are {_sizes(x, x_axes)}, "
        f"axes {list(y_axes)} of b {y.shape} are {_sizes(y, y_axes)}",
        "pair axes of equal size, in the same order for a and b",
    )
