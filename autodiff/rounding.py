"""Rounding to narrow formats; the values stay in float64 or complex128 arrays."""

import difflib
import functools
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ml_dtypes  # noqa: F401 - makes NumPy know the names of the narrow dtypes
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from autodiff.errors import AutodiffError

Array = NDArray[Any]


class PrecisionError(AutodiffError, ValueError):
    """An unknown format, rounding or dot mode; holds `value`, `allowed` and the `nearest` name."""

    def __init__(
        self, what: str, value: object, allowed: tuple[str, ...], fix: str | None = None
    ) -> None:
        self.value, self.allowed = value, allowed
        self.nearest = nearest_name(str(value), allowed)
        super().__init__(
            f"unknown {what}: {value!r}",
            f"allowed: {', '.join(allowed)}",
            fix or f"did you mean {self.nearest!r}?",
            value=value,
            allowed=allowed,
            nearest=self.nearest,
        )


def nearest_name(name: str, known: tuple[str, ...]) -> str:
    """The known name that is spelled most like `name` in any case, however far that is."""
    spelled = {other.lower(): other for other in known}
    return spelled[difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.0)[0]]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: stored mantissa bits and exponents of its normal numbers."""

    mantissa: int
    min_exponent: int
    max_exponent: int
    largest: float
    overflow: float = math.inf

    @property
    def tiny(self) -> float:
        """The smallest positive normal number, 2^min_exponent."""
        return math.ldexp(1.0, self.min_exponent)

    @property
    def quantum(self) -> float:
        """The smallest positive number, which is also the spacing of the subnormal ones."""
        return math.ldexp(1.0, self.min_exponent - self.mantissa)


FORMATS = MappingProxyType(
    {
        "float64": Format(52, -1022, 1023, math.ldexp(2 - 2.0**-52, 1023)),
        "float32": Format(23, -126, 127, math.ldexp(2 - 2.0**-23, 127)),
        "float16": Format(10, -14, 15, 65504.0),
        "bfloat16": Format(7, -126, 127, math.ldexp(2 - 2.0**-7, 127)),
        # No infinity: what does not fit is NaN (OCP 8-bit floating point specification, 2023).
        "float8_e4m3fn": Format(3, -6, 8, 448.0, math.nan),
        "float8_e5m2": Format(2, -14, 15, 57344.0),
    }
)
FLOATS = tuple(FORMATS)
COMPLEX_PARTS = MappingProxyType({"complex128": "float64", "complex64": "float32"})
_INEXACT = (*FLOATS, *COMPLEX_PARTS)
_INTEGERS = tuple(f"{sign}int{width}" for sign in ("", "u") for width in (8, 16, 32, 64))
DTYPES = (*_INEXACT, *_INTEGERS, "bool")


def dtype_name(dtype: DTypeLike, allowed: tuple[str, ...] = DTYPES) -> str:
    """The canonical name of a dtype given as a name, a NumPy or an ml_dtypes dtype.

    Raises:
        PrecisionError: the dtype is none of the `allowed` ones.
    """
    try:
        name = _name(np.dtype(dtype))
    except TypeError:
        raise PrecisionError("dtype", dtype, allowed) from None
    if name not in allowed:
        raise PrecisionError("dtype", name, allowed)
    return name


@functools.cache
def _name(dtype: np.dtype[Any]) -> str:
    return dtype.name  # NumPy puts it together anew each time


def float_format(dtype: DTypeLike) -> Format:
    """The format of a floating dtype, or of the parts of a complex one.

    Raises:
        PrecisionError: the dtype is neither floating nor complex, or not a known one.
    """
    return FORMATS[_part_name(dtype)]


def _part_name(dtype: DTypeLike) -> str:
    name = dtype_name(dtype, _INEXACT)
    return COMPLEX_PARTS.get(name, name)


def unit_roundoff(dtype: DTypeLike) -> float:
    """The largest relative error of one rounding to nearest: 2^-(mantissa + 1), 2^-24 for float32.

    Raises:
        PrecisionError: the dtype is neither floating nor complex.
    """
    return 2.0 ** -(float_format(dtype).mantissa + 1)


def round_to(x: ArrayLike, dtype: DTypeLike) -> Array:
    """Round values to a narrower format, once, to nearest with ties to even.

    The rounding goes straight from float64: bfloat16 by way of float32 would round twice
    (jax-ml/ml_dtypes issue 401). What is too large becomes an infinity, or NaN in float8_e4m3fn;
    subnormal numbers, NaN and the sign of zero are kept.

    Args:
        x: numbers of any shape; integers of 64 bits are rounded once as well.
        dtype: one of `FLOATS`, or a complex dtype, which stands for the format of its parts.

    Returns:
        A float64 (for complex `x`, complex128) array of x's shape; `x` itself where that is float64
        (complex128) already and nothing is to be rounded.

    Raises:
        PrecisionError: unknown dtype, or values of a dtype that float64 cannot hold.
    """
    name = _part_name(dtype)
    wide = _widen(x, name)
    if name == "float64":
        return wide
    if wide.dtype.kind != "c":
        return _round_real(wide, name)
    out = np.empty(wide.shape, np.complex128)
    out.real, out.imag = _round_real(wide.real, name), _round_real(wide.imag, name)
    return out


def _widen(x: ArrayLike, target: str) -> Array:
    """Values of any known dtype as float64 or complex128, ready for one rounding to `target`."""
    array = np.asarray(x)
    name = dtype_name(array.dtype)
    if name in ("float64", "complex128"):
        return array
    if name == "complex64":
        return array.astype(np.complex128)
    if name in ("int64", "uint64") and target != "float64":
        return _round_to_odd(array)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return array.astype(np.float64)


def _round_to_odd(n: Array) -> Array:
    """Integers as float64 whose last bit is 1 wherever the conversion was inexact.

    A later rounding to a format of at most 51 bits is then the correct one (Boldo and Melquiond,
    IEEE Trans. Computers 57(4), 2008).
    """
    # Both halves are exact, so that the error of their sum is known (Dekker 1971).
    high = (n >> 32).astype(np.float64) * 2.0**32
    low = (n & 0xFFFFFFFF).astype(np.float64)
    near = np.asarray(high + low)
    error = low - (near - high)
    bits = near.view(np.int64)
    step = np.where(np.sign(error) == np.sign(near), 1, -1)
    return np.asarray(np.where((error == 0) | (bits & 1 == 1), bits, bits + step)).view(np.float64)


def _round_real(x: Array, name: str) -> Array:
    form = FORMATS[name]
    with np.errstate(all="ignore"):
        if name in ("float32", "float16"):
            return x.astype(name).astype(np.float64)  # NumPy rounds these once itself
        # Adding 1.5 * 2^52 quanta leaves no bit below one quantum: the addition rounds, to even.
        # The quantum is that of x's binade, not less than the subnormal spacing; the cap keeps
        # the sum finite, and above it everything overflows anyway.
        binade = np.abs(x).view(np.int64) & 0x7FF0000000000000
        spacing = binade.view(np.float64) * 2.0**-form.mantissa
        largest = 2.0 ** (form.max_exponent - form.mantissa)
        shift = np.clip(spacing, form.quantum, largest) * (1.5 * 2.0**52)
        y = np.copysign((x + shift) - shift, x)
        return np.where(np.abs(y) > form.largest, np.copysign(form.overflow, x), y)


def cast(x: ArrayLike, dtype: DTypeLike) -> Array:
    """Convert to a dtype with a single rounding.

    Floats to integers truncate toward zero as in NumPy. NaN becomes 0 and what is out of range the
    nearest end, as in XLA; NumPy leaves both to the processor. Integers to integers wrap as in
    NumPy. Anything nonzero, NaN included, is True.

    Args:
        x: numbers of any shape.
        dtype: one of `DTYPES`.

    Returns:
        A new array of that dtype and of x's shape.

    Raises:
        PrecisionError: unknown dtype; complex numbers to a real dtype (take `.real` first).
    """
    name, array = dtype_name(dtype), np.asarray(x)
    source = dtype_name(array.dtype)
    if source in COMPLEX_PARTS and name not in (*COMPLEX_PARTS, "bool"):
        raise PrecisionError("dtype for complex values", name, (*COMPLEX_PARTS, "bool"))
    if name == "bool":
        return np.asarray(array != 0)
    if name in _INTEGERS:
        plain = source in _INTEGERS or source == "bool"
        return array.astype(name) if plain else _truncate(round_to(array, "float64"), name)
    with np.errstate(all="ignore"):
        # The narrow format holds the rounded values, so that this second conversion is exact.
        return round_to(array, name).astype(np.dtype(name))


def _truncate(x: Array, name: str) -> Array:
    info = np.iinfo(name)
    # The float64 of 2^63 - 1 is 2^63: the last integer itself is met by >= and never converted.
    low, high = float(info.min), float(info.max)
    whole = np.trunc(x)
    inside = (whole >= low) & (whole < high)
    out = np.asarray(np.where(inside, whole, 0.0)).astype(name)
    out = np.where(whole >= high, np.array(info.max, name), out)
    return np.where(whole < low, np.array(info.min, name), out)


ROUNDINGS = ("rne", "rna", "rz")


def round_mantissa(x32: ArrayLike, keep: int, mode: str = "rne") -> NDArray[np.float32]:
    """Keep the leading mantissa bits of float32 numbers; the exponent range stays float32's.

    10 bits make TF32, 7 bits bfloat16. What the tensor cores read of a TF32 operand is its leading
    19 bits, which is "rz"; PTX `cvt.rna.tf32` and CUTLASS round first, which is "rna".

    Args:
        x32: float32 numbers of any shape (wider ones are rounded to float32 first).
        keep: stored mantissa bits to keep, 0 to 23.
        mode: "rne" to nearest, ties to even; "rna" to nearest, ties away from zero; "rz" toward
            zero.

    Returns:
        A float32 array of the same shape. NaN and infinities are untouched; rounding up from the
        largest values gives an infinity.

    Raises:
        PrecisionError: unknown mode, or `keep` out of range.
    """
    if mode not in ROUNDINGS:
        raise PrecisionError("rounding", mode, ROUNDINGS)
    if not 0 <= keep <= 23:
        raise PrecisionError("mantissa width", keep, ("0 to 23",), "10 bits make TF32, 7 bfloat16")
    x = np.asarray(cast(x32, "float32"))
    drop = 23 - keep
    if drop == 0:
        return x
    bits = x.view(np.uint32)
    half = np.uint32(1 << (drop - 1))
    if mode == "rna":
        rounded = bits + half
    elif mode == "rne":
        rounded = bits + (half - np.uint32(1)) + ((bits >> np.uint32(drop)) & np.uint32(1))
    else:
        rounded = bits
    kept = np.asarray(rounded & np.uint32((0xFFFFFFFF << drop) & 0xFFFFFFFF)).view(np.float32)
    return np.where(np.isfinite(x), kept, x)
