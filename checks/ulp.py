"""Errors in units of the last place, and their histograms."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from autodiff.errors import AutodiffError
from autodiff.precision import FLOATS, FORMATS, Format, dtype_name, round_to

Array = NDArray[Any]


class UlpError(AutodiffError, ValueError):
    """Values that cannot be compared in ulp: shapes or kinds do not fit."""


def ulp_error(
    actual: ArrayLike,
    expected: ArrayLike,
    dtype: DTypeLike,
    flush: bool = False,
    tail: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Real-valued errors in ulp of the exact result: |actual - y| / 2^(e - mantissa bits).

    y = expected + tail, and e is its exponent, not below that of the smallest normal number: next
    to zero, and for y = 0, the unit is the smallest subnormal number.

    - The sign of a zero is not judged.
    - flush: subnormal numbers leave the number line, as on a device that flushes them. Every value
      below the smallest normal number is 0, which is then one ulp away from it.
    - An overflow that is a rounding error is no more than that: where y is finite and in the last
      binade or past it, an infinity counts as the first power of two past the largest number.
    - Any other pair of an infinity or NaN with something else is a mismatch, reported as inf: count
      it apart. NaN agrees with NaN, also where `dtype` has no infinity and y is out of range.

    Args:
        actual: values of format `dtype`, in that dtype or a wider one.
        expected: exact results, rounded to float64 at worst, of the same shape.
        dtype: the floating format that `actual` was computed in.
        flush: whether it was computed where subnormal numbers are flushed to zero.
        tail: what rounding left out of `expected`; needed to judge float64 to less than half an
            ulp.

    Returns:
        A float64 array of that shape: 0 where exact, at most 0.5 where correctly rounded, inf for
        a mismatch.

    Raises:
        UlpError: different shapes, or complex values (judge `.real` and `.imag`).
        PrecisionError: `dtype` is not a floating format.

    Reference: Muller, On the definition of ulp(x), INRIA RR-5504, 2005 (Goldberg's definition).
    """
    form = FORMATS[dtype_name(dtype, FLOATS)]
    got, exact = _real("actual", actual), _real("expected", expected)
    rest = None if tail is None else _real("tail", tail)
    shapes = [x.shape for x in (got, exact, rest) if x is not None]
    if len(set(shapes)) > 1:
        raise UlpError(
            "ulp_error: shapes differ",
            f"actual {got.shape}, expected {exact.shape}"
            + ("" if rest is None else f", tail {rest.shape}"),
            "compare arrays of one shape; np.broadcast_to if that is meant",
        )
    if tail is None and not flush and _is_ordinary(got, exact, form):
        plain = np.abs(_distance(got, exact, None, form, flush))
        return np.minimum(plain, FORMATS["float64"].largest)
    right = round_to(exact, dtype)
    agree = (got == right) & np.isinf(right) | np.isnan(got) & np.isnan(right)
    at_top = (np.abs(exact) >= 2.0**form.max_exponent) & (np.sign(got) == np.sign(exact))
    wild = np.isnan(got) | ~np.isfinite(exact) | np.isinf(got) & ~at_top
    error = np.abs(_distance(got, exact, rest, form, flush))
    # Past float64's range an error is only known to be large; inf is kept for mismatches.
    error = np.minimum(error, FORMATS["float64"].largest)
    return np.where(agree, 0.0, np.where(wild, np.inf, error))


def _is_ordinary(got: Array, exact: Array, form: Format) -> bool:
    """Whether all values are finite, below half of the format's range."""
    largest = 2.0**form.max_exponent
    return bool((np.maximum(np.abs(got), np.abs(exact)) < largest).all())


def _distance(got: Array, exact: Array, rest: Array | None, form: Format, flush: bool) -> Array:
    """The signed distance from the exact result in its ulp, where neither is NaN."""
    with np.errstate(all="ignore"):
        exponent = np.where(exact == 0, form.min_exponent, np.frexp(exact)[1] - 1)
        exponent = np.minimum(np.maximum(exponent, form.min_exponent), form.max_exponent)
        exponent = exponent - form.mantissa
        x = np.ldexp(got, -exponent)
        infinite = np.isinf(got)
        if infinite.any():
            past = np.ldexp(1.0, form.max_exponent + 1 - exponent)
            x = np.where(infinite, np.copysign(past, got), x)
        y = np.ldexp(exact, -exponent)
        plain = x - y if rest is None else (x - y) - np.ldexp(rest, -exponent)
        if not flush:
            return np.asarray(plain)
        tiny = np.ldexp(form.tiny, -exponent)
        # Both normal and of one sign: the plain distance, which is exact where this one may round.
        apart = (np.minimum(np.abs(x), np.abs(y)) < tiny) | (np.sign(x) != np.sign(y))
        step = np.ldexp(form.quantum, -exponent)
        x, y = (_without_subnormals(z, tiny, step) for z in (x, y))
        return np.where(apart, x - y, plain)


def _without_subnormals(x: Array, tiny: Array, step: Array) -> Array:
    return np.where(np.abs(x) < tiny, 0.0, np.sign(x) * (np.abs(x) - tiny + step))


def _real(name: str, x: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(x)
    if array.dtype.kind == "c":
        raise UlpError(
            "ulp_error: complex values have no ulp",
            f"{name} is {array.dtype}",
            "judge .real and .imag one after the other",
        )
    return np.asarray(array.astype(np.float64, copy=False))


NO_DISTANCE = 2**64 - 1


def ulp_distance(a: ArrayLike, b: ArrayLike) -> NDArray[np.uint64]:
    """How many steps between neighbouring floats lead from a to b, through zero.

    The two zeros are one point; an infinity is the neighbour of the largest number.

    Args:
        a, b: arrays of one shape and one floating dtype.

    Returns:
        A uint64 array (from -inf to inf in float64 is more than int64 holds): 0 between two NaNs,
        `NO_DISTANCE` between NaN and a number.

    Raises:
        UlpError: different shapes or dtypes.
        PrecisionError: not a floating dtype.
    """
    x, y = np.asarray(a), np.asarray(b)
    if x.shape != y.shape or x.dtype != y.dtype:
        raise UlpError(
            "ulp_distance: shapes or dtypes differ",
            f"a is {x.dtype}{list(x.shape)}, b is {y.dtype}{list(y.shape)}",
            "cast both to the dtype whose neighbours are meant",
        )
    dtype_name(x.dtype, FLOATS)
    (x_size, x_sign), (y_size, y_sign) = _sign_magnitude(x), _sign_magnitude(y)
    gap = np.maximum(x_size, y_size) - np.minimum(x_size, y_size)
    steps = np.where(x_sign == y_sign, gap, x_size + y_size)
    x_nan, y_nan = np.isnan(x), np.isnan(y)
    steps = np.where(x_nan | y_nan, np.uint64(NO_DISTANCE), steps)
    return np.where(x_nan & y_nan, np.uint64(0), steps)


def _sign_magnitude(x: Array) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    bits = x.view(f"u{x.dtype.itemsize}").astype(np.uint64)
    sign = np.uint64(8 * x.dtype.itemsize - 1)
    return bits & np.uint64((1 << int(sign)) - 1), bits >> sign


EDGES = (0.5, 1.0, 2.0, 3.0)
Point = tuple[Any, ...]


@dataclass(frozen=True)
class UlpHistogram:
    """Counts of errors in ulp; two of them add up, so that workers can each count a part.

    Attributes:
        counts: errors up to each of `EDGES`, and above the last.
        mismatches: infinities and NaN where something else was due; in no count.
        worst: the largest error counted, in ulp.
        worst_input: the arguments it came from, the first such.
        mismatch_input: the arguments of the first mismatch.
        bits: sum of log2(1 + error) over the counted ones: bits of the result that were lost.
    """

    counts: tuple[int, ...] = (0,) * (len(EDGES) + 1)
    mismatches: int = 0
    worst: float = 0.0
    worst_input: Point | None = None
    mismatch_input: Point | None = None
    bits: float = 0.0

    def __post_init__(self) -> None:
        if len(self.counts) != len(EDGES) + 1 or min(*self.counts, self.mismatches) < 0:
            raise UlpError(
                f"UlpHistogram: not {len(EDGES) + 1} counts of 0 or more",
                f"counts={self.counts}, mismatches={self.mismatches}",
                "build it with UlpHistogram.of(errors, inputs)",
            )

    @classmethod
    def of(cls, errors: ArrayLike, inputs: Sequence[ArrayLike] = ()) -> Self:
        """Count the errors of `ulp_error`; `inputs` are the arguments, broadcast to their shape."""
        flat = np.asarray(errors, dtype=np.float64)
        points = [np.broadcast_to(np.asarray(x), flat.shape).ravel() for x in inputs]
        flat = flat.ravel()
        wrong = ~np.isfinite(flat)
        fine = np.where(wrong, -1.0, flat)
        counted = flat[~wrong]
        bins = np.bincount(np.searchsorted(EDGES, counted), minlength=len(EDGES) + 1)
        worst = int(fine.argmax()) if counted.size else None
        mismatch = int(wrong.argmax()) if wrong.any() else None
        return cls(
            counts=tuple(int(n) for n in bins),
            mismatches=int(wrong.sum()),
            worst=0.0 if worst is None else float(fine[worst]),
            worst_input=_point(points, worst),
            mismatch_input=_point(points, mismatch),
            bits=float(np.log2(1.0 + counted).sum()),
        )

    def __add__(self, other: Self) -> Self:
        first = self if self.worst_input is not None and self.worst >= other.worst else other
        mine = self.mismatch_input is not None
        return type(self)(
            counts=tuple(m + n for m, n in zip(self.counts, other.counts, strict=True)),
            mismatches=self.mismatches + other.mismatches,
            worst=max(self.worst, other.worst),
            worst_input=first.worst_input,
            mismatch_input=self.mismatch_input if mine else other.mismatch_input,
            bits=self.bits + other.bits,
        )

    @property
    def counted(self) -> int:
        """How many errors were counted, mismatches left out."""
        return sum(self.counts)

    @property
    def mean_bits(self) -> float:
        """Mean of log2(1 + error): bits lost per result; 0 where nothing was counted."""
        return self.bits / self.counted if self.counted else 0.0

    def __str__(self) -> str:
        labels = (*(f"<={edge:g}" for edge in EDGES), f">{EDGES[-1]:g}")
        share = ", ".join(f"{at} ulp: {n}" for at, n in zip(labels, self.counts, strict=True))
        worst = f"worst {self.worst:.4g} ulp{_at(self.worst_input)}, {self.mean_bits:.3g} bits lost"
        wrong = f"; {self.mismatches} inf or NaN out of place{_at(self.mismatch_input)}"
        return f"{share}; {worst}{wrong if self.mismatches else ''}"


def _point(points: Sequence[Array], index: int | None) -> Point | None:
    return None if index is None else tuple(x[index].item() for x in points)


def _at(point: Point | None) -> str:
    return f" at {', '.join(map(repr, point))}" if point else ""


@dataclass(frozen=True)
class UlpReport:
    """Errors of regular and of subnormal results apart: the latter have fewer bits to lose."""

    regular: UlpHistogram = UlpHistogram()
    subnormal: UlpHistogram = UlpHistogram()

    def __add__(self, other: Self) -> Self:
        return type(self)(self.regular + other.regular, self.subnormal + other.subnormal)

    def __str__(self) -> str:
        return f"regular   {self.regular}\nsubnormal {self.subnormal}"


def ulp_report(
    actual: ArrayLike,
    expected: ArrayLike,
    dtype: DTypeLike,
    inputs: Sequence[ArrayLike] = (),
    flush: bool = False,
    tail: ArrayLike | None = None,
) -> UlpReport:
    """Histograms of `ulp_error`, apart for exact results below the smallest normal number.

    Args:
        actual, expected, dtype, flush, tail: as `ulp_error`.
        inputs: the arguments of the function, broadcast to the shape of `actual`.

    Returns:
        The report; an exact 0 counts as regular.

    Raises:
        UlpError, PrecisionError: as `ulp_error`.
    """
    errors = ulp_error(actual, expected, dtype, flush, tail)
    size = np.abs(_real("expected", expected))
    low = (size > 0) & (size < FORMATS[dtype_name(dtype, FLOATS)].tiny)
    points = [np.broadcast_to(np.asarray(x), errors.shape) for x in inputs]
    regular, subnormal = (
        UlpHistogram.of(errors[mask], [x[mask] for x in points]) for mask in (~low, low)
    )
    return UlpReport(regular, subnormal)
