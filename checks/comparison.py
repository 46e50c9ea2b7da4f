"""Two arrays compared: the errors, the worst entry, the atol and rtol that would have passed."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from checks import arrays, entrywise, tolerances
from checks.arrays import Array
from checks.tolerance_file import EXACT, RELATIVE, ULP
from checks.tolerances import Tolerance

Scalar = bool | int | float | complex
_PLAIN = frozenset("?bhilqBHILQefdFD")  # codes of NumPy's own dtypes that can be compared


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two arrays differ.

    Arguments:
        shape: of both.
        dtype: of the narrower of the two; its ulps are meant.
        index: the worst entry; None where there is no entry. One whose NaN or infinity is out of
            place is worse than any number; among the others the scaled error decides.
        got: the result there.
        expected: the reference there.
        ulp_there: the error there, in ulp.
        abs_error: max |e|, e = actual - expected, over the entries where both are finite.
        scaled_error: max |e| / scale; the scale is max(1, max|expected|) unless one was given.
        componentwise: max |e| / |expected|; inf where expected is 0 and e is not.
        ulp: max |e| in units in the last place of expected.
        wrong: how many entries differ in value.
        total: how many entries there are.
        special_wrong: how many have a NaN or an infinity out of place or of the wrong sign.
        zero_sign_wrong: how many zeros have unlike signs (they do not count as `wrong`).
        same_dtype: whether the two dtypes are equal.
        atol_needed: what would pass over |expected| <= 1, times 1.2; inf where nothing would.
        rtol_needed: what would pass over the rest, times 1.2; inf where nothing would.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    index: tuple[int, ...] | None = None
    got: Scalar | None = None
    expected: Scalar | None = None
    ulp_there: float = 0.0
    abs_error: float = 0.0
    scaled_error: float = 0.0
    componentwise: float = 0.0
    ulp: float = 0.0
    wrong: int = 0
    total: int = 0
    special_wrong: int = 0
    zero_sign_wrong: int = 0
    same_dtype: bool = True
    atol_needed: float = 0.0
    rtol_needed: float = 0.0

    def error(self, unit: str) -> float:
        """Return the error in `unit`: scaled, in ulp, or (exact) how many entries differ at all."""
        if unit == EXACT:
            return float(self.wrong + self.zero_sign_wrong + (not self.same_dtype))
        if self.special_wrong:
            return math.inf
        return self.scaled_error if unit == RELATIVE else self.ulp

    def within(self, tolerance: Tolerance) -> bool:
        """Return whether the error is within `tolerance`."""
        return self.error(tolerance.unit) <= tolerance.value


def compare(
    actual: object,
    expected: object,
    *,
    scale: npt.ArrayLike | None = None,
    equal_nan: bool = False,
    unit: str = RELATIVE,
) -> Comparison:
    """Compare two arrays of one shape and kind, entry by entry.

    The error of an entry is e = actual - expected. Floats may differ in width (a float32 result
    against a float64 reference): ulps are those of the narrower dtype, and a reference beyond the
    range of the result equals its infinity. Of complex numbers, errors and sizes are moduli.

    Arguments:
        actual: an array or scalar of bools, integers, floats (bfloat16 too) or complex numbers.
        expected: the same shape and kind of number; a Python scalar takes the dtype of `actual`.
        scale: what |e| is divided by for `scaled_error`: >= 0, a scalar or an array that
            broadcasts to the shape; an error where it is 0 is infinite.
        equal_nan: whether NaN equals NaN. Sign and payload of a NaN are never looked at.
        unit: what makes an entry the worst: its scaled error, or with "ulp" its error in ulp.

    Returns:
        A Comparison; one of no entries has no error.

    Raises:
        MismatchError: shapes or kinds differ.
        TypeError: an argument has no numbers.
        ValueError: the scale is negative or not finite.
    """
    got, want = as_arrays(actual, expected, "actual")
    full = None if scale is None else flat_scale(scale, got.shape)
    return compare_arrays(got, want, full, equal_nan, unit)


def error_of(
    actual: object,
    expected: object,
    *,
    scale: npt.ArrayLike | None = None,
    equal_nan: bool = False,
    unit: str = RELATIVE,
) -> float:
    """Return `compare(...).error(unit)`, without what only a reader of the comparison asks for."""
    got, want = as_arrays(actual, expected, "actual")
    full = None if scale is None else flat_scale(scale, got.shape)
    same = got.dtype == want.dtype
    if got.size == 0 or (same and entrywise.identical(got, want, equal_nan)):
        return float(unit == EXACT and not same)
    found = entrywise.entries(got, want, equal_nan)
    if unit == EXACT:
        return float(np.count_nonzero(found.wrong) + np.count_nonzero(found.zero_sign) + (not same))
    if found.special.any():
        return math.inf
    if unit == RELATIVE:
        return float(entrywise.scaled(found, default_scale(found) if full is None else full).max())
    dtype = arrays.narrower(got.dtype, want.dtype)
    return float(entrywise.ulps(got.ravel(), want.ravel(), found, dtype).max())


def as_arrays(actual: object, expected: object, path: str) -> tuple[Array, Array]:
    """Return both as NumPy arrays that may be compared; `path` names them in the messages."""
    if type(actual) is np.ndarray and type(expected) is np.ndarray:
        # the same dtype of plain numbers, as most are: nothing to convert or to complain about
        plain = actual.dtype == expected.dtype and actual.dtype.char in _PLAIN
        if plain and actual.shape == expected.shape:
            return actual, expected
    got = arrays.as_array(actual, path)
    want = arrays.as_array(expected, path.replace("actual", "expected", 1), got.dtype)
    arrays.check_forms(got, want, path)
    return got, want


def flat_scale(scale: npt.ArrayLike, shape: tuple[int, ...]) -> entrywise.Floats | float:
    """Return the scale as a flat array of one number for each entry, a plain number as it is."""
    if isinstance(scale, float) and 0 <= scale < math.inf:
        return scale
    full = np.broadcast_to(np.asarray(scale, np.float64), shape).ravel()
    right = (full >= 0) & (full < np.inf)
    if not right.all():
        place = int(np.argmin(right))
        raise ValueError(
            f"the scale of an error must be finite and >= 0: {full[place]}\n"
            f"  at entry {place} of the scale, for arrays of shape {shape}\n"
            "  pass the sum of the magnitudes of the terms, or None for max(1, max|expected|)"
        )
    return full


def compare_arrays(
    got: Array,
    want: Array,
    scale: entrywise.Floats | float | None,
    equal_nan: bool,
    unit: str = RELATIVE,
) -> Comparison:
    """Compare two arrays of one form; the scale is one number for each entry, or for all."""
    dtype = arrays.narrower(got.dtype, want.dtype)
    same = got.dtype == want.dtype
    if got.size == 0:
        return Comparison(got.shape, dtype, same_dtype=same)
    if same and entrywise.identical(got, want, equal_nan):
        first = _scalar(got, 0)
        return Comparison(got.shape, dtype, (0,) * got.ndim, first, first, total=got.size)
    found = entrywise.entries(got, want, equal_nan)
    scaled = entrywise.scaled(found, default_scale(found) if scale is None else scale)
    ulp = entrywise.ulps(got.ravel(), want.ravel(), found, dtype)
    componentwise = entrywise.componentwise(found)
    place = entrywise.worst(found, ulp if unit == ULP else scaled)
    atol, rtol = _needed(found, componentwise)
    return Comparison(
        got.shape,
        dtype,
        index=tuple(int(i) for i in np.unravel_index(place, got.shape)),
        got=_scalar(got, place),
        expected=_scalar(want, place),
        ulp_there=float(ulp[place]),
        abs_error=float(found.error.max()),
        scaled_error=float(scaled.max()),
        componentwise=float(componentwise.max()),
        ulp=float(ulp.max()),
        wrong=int(np.count_nonzero(found.wrong)),
        total=got.size,
        same_dtype=same,
        special_wrong=int(np.count_nonzero(found.special)),
        zero_sign_wrong=int(np.count_nonzero(found.zero_sign)),
        atol_needed=atol,
        rtol_needed=rtol,
    )


def default_scale(found: entrywise.Entries) -> float:
    """Return max(1, max|expected|) over the finite entries."""
    return max(tolerances.constant("scale_floor"), float(found.size.max()))


def _scalar(values: Array, place: int) -> Scalar:
    item: Scalar = values.reshape(-1)[place].item()
    return item


def _needed(found: entrywise.Entries, componentwise: entrywise.Floats) -> tuple[float, float]:
    """Return the atol and rtol that would pass, with their margin."""
    if found.special.any():
        return math.inf, math.inf
    small = found.size <= tolerances.constant("small_expected")
    margin = tolerances.constant("suggestion_margin")
    atol = margin * float(found.error[small].max(initial=0.0))
    rtol = margin * float(componentwise[~small].max(initial=0.0))
    return atol, rtol
