"""Exact rules that see whole arrays: `rule(call, *arrays, **params)`, by op kind.

Arrays of floating values are object arrays of `Number`s, others are as they are.
"""

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from autodiff.lower.number import Number, Undecided
from autodiff.rounding import FORMATS, Format, float_format

Array = np.ndarray[Any, Any]
Rule = Callable[..., Any]
ARRAYS: dict[str, Rule] = {}


class Gauge:
    """The signs of vectors that LAPACK leaves open: all 1, or -1 at every other one.

    `used` says whether a rule had to choose any; a result that other signs change is not exact.
    """

    def __init__(self, pattern: int = 0) -> None:
        self.pattern, self.used = pattern, False

    def signs(self, count: int) -> Array:
        """One sign per vector."""
        self.used = True
        return np.array([-1 if self.pattern == 1 + i % 2 else 1 for i in range(count)], object)


@dataclasses.dataclass(frozen=True)
class Call:
    """What a rule may know: the class of numbers, its dtypes in this mode, open signs."""

    number: type[Number]
    inputs: tuple[np.dtype[Any], ...]
    outputs: tuple[np.dtype[Any], ...]
    gauge: Gauge


def rule(*kinds: str) -> Callable[[Rule], Rule]:
    """Decorator: the exact value of these op kinds."""

    def register(function: Rule) -> Rule:
        ARRAYS.update(dict.fromkeys(kinds, function))
        return function

    return register


FLOAT64 = FORMATS["float64"]


def each(function: Callable[..., Any], *arrays: Any) -> Array:
    """A function of Numbers on every element of broadcast arrays."""
    count = len(arrays)
    return np.asarray(np.frompyfunc(function, count, 1)(*arrays), object)


# --- conversion ----------------------------------------------------------------------------


@rule("CAST")
def _cast(call: Call, x: Array, *, dtype: np.dtype[Any]) -> Any:
    source, target = call.inputs[0], call.outputs[0]
    del dtype
    if x.dtype != object:
        return x.astype(target) if target.kind in "biu" else x.astype(object)
    if target.kind == "b":
        return each(bool, x).astype(bool)
    if target.kind in "iu":
        return each(lambda v: _integer(v.real, target), x).astype(target)
    if source.kind == "c" and target.kind != "c":
        x = each(lambda v: v.real, x)
    form, given = float_format(target), float_format(source)
    if form.mantissa >= given.mantissa and form.max_exponent >= given.max_exponent:
        return x
    return each(lambda v: _rounded(v, form), x)


def _integer(v: Number, target: np.dtype[Any]) -> int:
    whole = v.__trunc__().exact()
    if whole is None:
        raise Undecided("a conversion to an integer")
    info = np.iinfo(target)
    return min(max(int(whole), int(info.min)), int(info.max))


def _rounded(v: Number, form: Format) -> Number:
    """A number rounded to a format; a ball's ends must agree."""
    if v.is_complex:
        parts = (_rounded(v.real, form), _rounded(v.imag, form))
        return type(v)(v.complex_of(parts[0].v, parts[1].v))
    ends = {nearest(e, form) for e in v.ends()}
    if len(ends) != 1:
        raise Undecided("a rounding to a narrower type")
    return v.of(ends.pop())


def nearest(x: Fraction, form: Format) -> float:
    """The number of a format next to a fraction, ties to even."""
    if x == 0:
        return 0.0
    if form is FLOAT64:
        try:
            return float(x)  # Python rounds quotients of integers once, to even
        except OverflowError:
            return form.overflow if x > 0 else -form.overflow
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    quantum = Fraction(2) ** (max(exponent, form.min_exponent) - form.mantissa)
    value = round(x / quantum) * quantum
    if abs(value) > Fraction(form.largest):
        return form.overflow if x > 0 else -form.overflow
    return float(value)


@rule("NORM_SCALE")
def _norm_scale(call: Call, x: Array, *, axis: tuple[int, ...]) -> Any:
    """A power of two near the largest magnitude: it cancels, so that the midpoint may choose."""
    sizes = each(lambda v: abs(v).midpoint() or Fraction(0), x)
    zero: Any = Fraction(0)
    largest = np.max(sizes, axis=axis, keepdims=True, initial=zero)
    return each(lambda m: call.number.of(1) * (2.0 ** _floor_log2(m) if m else 1.0), largest)


def _floor_log2(m: Fraction) -> int:
    exponent = m.numerator.bit_length() - m.denominator.bit_length()
    return exponent - (m < Fraction(2) ** exponent)


@rule("COMPARE")
def _compare(call: Call, x: Array, y: Array, *, direction: str) -> Any:
    del call
    name = {"EQ": "__eq__", "NE": "__eq__", "LT": "__lt__", "LE": "__le__", "GT": "__gt__"}
    flip = direction == "NE"
    if x.dtype != object:
        return getattr(np, _NUMPY[direction])(x, y)
    method = name.get(direction, "__ge__")
    return each(lambda a, b: bool(getattr(a, method)(b)) != flip, x, y).astype(bool)


_NUMPY = {
    "EQ": "equal",
    "NE": "not_equal",
    "LT": "less",
    "LE": "less_equal",
    "GT": "greater",
    "GE": "greater_equal",
}


@rule("SEARCHSORTED")
def _searchsorted(call: Call, a: Array, v: Array, *, side: str) -> Any:
    del call
    out = np.zeros(v.shape, np.int64)
    for index in np.ndindex(v.shape):
        row = a if a.ndim == 1 else a[index[:-1]]
        below = [(e < v[index]) if side == "left" else (e <= v[index]) for e in row]
        out[index] = sum(below)
    return out
