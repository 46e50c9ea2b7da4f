"""The differences of two arrays, entry by entry: what `compare` and its messages are made of."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autodiff.native import quiet
from checks.arrays import COMPLEX, FLOATING, Array, kind
from checks.ulp import ulp_error

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Entries:
    """Differences of two flat arrays of n entries.

    Arguments:
        error: |actual - expected|, (n,) float64; 0 where either is not finite.
        size: |expected|, (n,) float64; 0 where it is not finite.
        finite: where both are finite, (n,) bool.
        wrong: where the values differ, (n,) bool.
        special: where a NaN or an infinity is out of place or of the wrong sign, (n,) bool.
        zero_sign: where both are zero, of unlike sign, (n,) bool.
    """

    error: Floats
    size: Floats
    finite: Bools
    wrong: Bools
    special: Bools
    zero_sign: Bools


def entries(got: Array, want: Array, equal_nan: bool) -> Entries:
    """Return the differences of two arrays of one shape and kind."""
    got, want = got.ravel(), want.ravel()
    with quiet():
        if kind(got.dtype) == COMPLEX:
            return _complex(got, want, equal_nan)
        if kind(got.dtype) == FLOATING:
            return _floating(got, want, equal_nan)
        return _whole(got, want)


def identical(got: Array, want: Array, equal_nan: bool) -> bool:
    """Return whether two arrays of one dtype hold the same bits, and no NaN that may not be."""
    if got.tobytes() != want.tobytes():
        return False
    return equal_nan or kind(got.dtype) not in (FLOATING, COMPLEX) or not np.isnan(got).any()


def _floating(got: Array, want: Array, equal_nan: bool) -> Entries:
    x, y = got.astype(np.float64, copy=False), want.astype(np.float64, copy=False)
    apart = np.abs(x - y)
    finite = np.isfinite(apart)
    wrong = x != y
    if finite.all():  # so are x and y
        size, none = np.abs(y), np.zeros(wrong.shape, np.bool_)
        if size.all():  # no zero has another sign
            return Entries(apart, size, finite, wrong, none, none)
        special, error = none, apart
    else:
        finite = np.isfinite(x) & np.isfinite(y)
        # A reference beyond the range of a narrower result has that infinity as its right answer.
        rounded = want.astype(got.dtype).astype(np.float64)
        right = (x == y) | (np.isinf(x) & (x == rounded))
        if equal_nan:
            right |= np.isnan(x) & np.isnan(y)
        wrong &= finite | ~right
        special = ~finite & ~right
        size = np.where(np.isfinite(y), np.abs(y), 0.0)
        error = np.where(finite, apart, 0.0)
    zero_sign = (x == 0) & (y == 0)
    if zero_sign.any():
        zero_sign &= np.signbit(x) != np.signbit(y)
    return Entries(error, size, finite, wrong, special, zero_sign)


def _complex(got: Array, want: Array, equal_nan: bool) -> Entries:
    """Return the differences as moduli; NaN, infinities and zeros are judged part by part."""
    parts = _floating(_parts(got), _parts(want), equal_nan)
    error, size = (np.hypot(a[0::2], a[1::2]) for a in (parts.error, parts.size))
    either = [a[0::2] | a[1::2] for a in (parts.wrong, parts.special, parts.zero_sign)]
    return Entries(error, size, parts.finite[0::2] & parts.finite[1::2], *either)


def _parts(values: Array) -> Array:
    """Return real and imaginary parts, (2 n,), of complex values, (n,)."""
    return values.view(np.float32 if values.dtype.itemsize == 8 else np.float64)


def _whole(got: Array, want: Array) -> Entries:
    """Return the differences of integers or bools, exact before they become floats."""
    x, y = (a if a.dtype == np.uint64 else a.astype(np.int64) for a in (got, want))
    wrong = x != y
    if x.dtype == y.dtype:
        # Modulo 2^64 the larger minus the smaller is exact, whatever their signs.
        apart64 = np.maximum(x, y).astype(np.uint64) - np.minimum(x, y).astype(np.uint64)
        error = apart64.astype(np.float64)
    else:
        apart = np.abs(x.astype(np.float64) - y.astype(np.float64))
        error = np.maximum(apart, wrong)
    none = np.zeros(x.shape, np.bool_)
    return Entries(error, np.abs(y.astype(np.float64)), ~none, wrong, none, none)


def ulps(got: Array, want: Array, found: Entries, dtype: np.dtype[np.generic]) -> Floats:
    """Return |actual - expected| in ulp of expected, (n,): inf where NaN or inf is out of place.

    Arguments:
        got: the result, (n,).
        want: the reference, (n,).
        found: their differences.
        dtype: whose ulp is meant: of a float; of the real part of a complex number, at the modulus;
            integers count in ones.
    """
    if kind(dtype) == FLOATING:
        at = found.finite & found.wrong
        if at.all():
            return ulp_error(got, want, dtype)
        result = np.zeros(found.error.shape)
        result[at] = ulp_error(got[at], want[at], dtype)
    elif kind(dtype) == COMPLEX:
        real = np.float32 if dtype.itemsize == 8 else np.float64
        with quiet():
            step = np.spacing(np.minimum(found.size, np.finfo(real).max).astype(real))
            result = np.asarray(found.error / step.astype(np.float64))
    else:
        result = found.error.copy()
    result[found.special] = np.inf
    return result


def scaled(found: Entries, scale: Floats | float) -> Floats:
    """Return error / scale, (n,); where the scale is 0, any error is infinite."""
    with quiet():
        if isinstance(scale, float) and scale > 0:
            return found.error / scale
        return np.where(found.error == 0, 0.0, found.error / scale)


def componentwise(found: Entries) -> Floats:
    """Return error / |expected|, (n,); where expected is 0, any error is infinite."""
    return scaled(found, found.size)


def worst(found: Entries, measure: Floats) -> int:
    """Return the entry of the largest `measure`; one with NaN or inf out of place comes first."""
    if found.special.any():
        return int(np.argmax(found.special))
    place = int(np.argmax(measure))
    if measure[place] == np.inf:
        return int(np.argmax(np.where(measure == np.inf, found.error, -1.0)))
    if measure[place] == 0 and found.zero_sign.any():
        return int(np.argmax(found.zero_sign))
    return place
