"""Arrays, or trees of arrays, asserted to agree; a failure says what would have passed."""

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal

import numpy as np
import numpy.typing as npt

from checks import arrays, entrywise, tolerances
from checks.arrays import Array, MismatchError
from checks.comparison import (
    Comparison,
    Scalar,
    as_arrays,
    compare,
    compare_arrays,
    default_scale,
    flat_scale,
)
from checks.tolerance_file import EXACT, ULP
from checks.tolerances import Tolerance

__all__ = ["Comparison", "MismatchError", "ToleranceError", "assert_close", "compare", "round_up"]


class ToleranceError(AssertionError):
    """Values differ by more than their tolerance allows.

    Arguments:
        text: the message of three lines.
        comparison: the comparison of the worst leaf.
        path: that leaf's name in the tree, such as `actual['w'][0]`.
        tolerance: what it was judged by; None where rtol and atol were given.
        op: the op's kind, where one was given.
        sample: the sample's name, where one was given.
        surface: the surface, where one was given.
    """

    def __init__(
        self,
        text: str,
        comparison: Comparison,
        path: str = "actual",
        tolerance: Tolerance | None = None,
        op: str | None = None,
        sample: str | None = None,
        surface: str | None = None,
    ) -> None:
        super().__init__(text)
        self.comparison, self.path, self.tolerance = comparison, path, tolerance
        self.op, self.sample, self.surface = op, sample, surface


def assert_close(
    actual: object,
    expected: object,
    *,
    surface: str | None = None,
    dtype: npt.DTypeLike | None = None,
    op: str | None = None,
    sample: str | None = None,
    variant: str | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    scale: npt.ArrayLike | None = None,
    equal_nan: bool = False,
) -> None:
    """Raise ToleranceError unless two arrays, or two trees of arrays, agree.

    With a surface, its tolerance from the table judges. With rtol or atol (the one not given is 0):
    |actual - expected| <= atol + rtol |expected| for every entry, never multiplied by a size.
    With neither, every entry must be equal (0.0 equals -0.0; on an exact surface it does not).

    Arguments:
        actual: an array, a scalar or a tree of them.
        expected: the same structure, shapes and kinds of number.
        surface: a name of `tolerances.SURFACES`.
        dtype: the row of the table; that of each actual leaf where None.
        op: the op's kind, for the table's overrides and the message.
        sample: the sample's name, likewise.
        variant: the surface's variant.
        rtol: >= 0 and finite.
        atol: >= 0 and finite.
        scale: what errors are divided by on a surface, max(1, max|expected|) where None.
        equal_nan: whether NaN equals NaN.

    Raises:
        ToleranceError: the values differ; it carries the Comparison of the worst leaf.
        MismatchError: structures, shapes or kinds of number differ; the place is named.
        ValueError: arguments that exclude one another, or a negative or infinite tolerance.
    """
    _check_arguments(surface, {"dtype": dtype, "variant": variant, "scale": scale}, rtol, atol)
    failed: list[tuple[str, _Leaf]] = []
    needed = [0.0, 0.0]
    for path, first, second in arrays.pairs(actual, expected):
        got, want = as_arrays(first, second, path)
        if surface is None:
            leaf = _judge(got, want, rtol or 0.0, atol or 0.0, equal_nan)
        else:
            of = got.dtype if dtype is None else dtype
            row = tolerances.lookup(surface, of, op, sample, variant)
            leaf = _judge_by(got, want, row, scale, equal_nan)
        needed[0] = max(needed[0], leaf.comparison.atol_needed)
        needed[1] = max(needed[1], leaf.comparison.rtol_needed)
        if leaf.over:
            failed.append((path, leaf))
    if failed:
        raise _error(failed, (needed[0], needed[1]), op, sample, surface)


def _check_arguments(
    surface: str | None, of_surface: dict[str, object], rtol: float | None, atol: float | None
) -> None:
    if surface is not None and not (rtol is None and atol is None):
        raise ValueError(
            f"a surface and rtol or atol are two ways to judge\n"
            f"  at surface={surface!r}, rtol={rtol!r}, atol={atol!r}\n"
            "  give the surface (its tolerance is in the table), or rtol and atol"
        )
    for name, value in of_surface.items():
        if surface is None and value is not None:
            raise ValueError(
                f"{name} means something on a surface only\n  at {name}={value!r:.60}\n"
                f"  add surface=..., one of {', '.join(tolerances.SURFACES)}"
            )
    for name, number in (("rtol", rtol), ("atol", atol)):
        if number is not None and not 0 <= number < math.inf:
            raise ValueError(
                f"{name} is not a finite number >= 0\n  at {name}={number!r}\n"
                f"  pass a number such as {name}=1e-6; 0 allows no difference"
            )


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One judged leaf: how many entries are over, how far the worst, and by what rule."""

    comparison: Comparison
    over: int
    ratio: float
    rule: str
    tolerance: Tolerance | None = None


def _judge(got: Array, want: Array, rtol: float, atol: float, equal_nan: bool) -> _Leaf:
    """Judge by |e| <= atol + rtol |expected|."""
    found = entrywise.entries(got, want, equal_nan)
    with np.errstate(over="ignore"):
        allowed = np.minimum(atol + rtol * found.size, np.finfo(np.float64).max)
    comparison = compare_arrays(got, want, allowed, equal_nan)
    over = int(np.count_nonzero(found.special | (found.error > allowed)))
    rule = f"atol {atol:g} + rtol {rtol:g} |expected|" if rtol or atol else ""
    ratio = math.inf if comparison.special_wrong else comparison.scaled_error
    return _Leaf(comparison, over, ratio, rule)


def _judge_by(
    got: Array, want: Array, row: Tolerance, scale: npt.ArrayLike | None, equal_nan: bool
) -> _Leaf:
    """Judge by a row of the table."""
    full = None if scale is None else flat_scale(scale, got.shape)
    comparison = compare_arrays(got, want, full, equal_nan, row.unit)
    if comparison.within(row):
        return _Leaf(comparison, 0, 0.0, "", row)
    if row.unit == EXACT:
        return _Leaf(comparison, int(comparison.error(EXACT)), math.inf, "", row)
    found = entrywise.entries(got, want, equal_nan)
    if row.unit == ULP:
        measure = entrywise.ulps(
            got.ravel(), want.ravel(), found, arrays.narrower(got.dtype, want.dtype)
        )
    else:
        measure = entrywise.scaled(found, default_scale(found) if full is None else full)
    over = int(np.count_nonzero(found.special | (measure > row.value)))
    of = "" if row.unit == ULP else " of max(1, max|expected|)" if scale is None else " of scale"
    ratio = comparison.error(row.unit) / row.value if row.value else math.inf
    return _Leaf(comparison, over, ratio, f"{row}{of} ({row.source})", row)


def _error(
    failed: list[tuple[str, _Leaf]],
    needed: tuple[float, float],
    op: str | None,
    sample: str | None,
    surface: str | None,
) -> ToleranceError:
    """Word the failure of the worst leaf in three lines."""
    path, leaf = max(failed, key=lambda item: item[1].ratio)
    others = [name for name, _ in failed if name != path]
    seen = leaf.comparison
    first = _what(leaf) + (f"; {len(others)} more leaves too: {_few(others)}" if others else "")
    names = [op, sample and f"sample {sample}", surface and f"surface {surface}"]
    place = f"{path}{list(seen.index)}" if seen.index else path
    where = ", ".join([*(name for name in names if name), place])
    values = f"got {_text(seen.got, seen)}, expected {_text(seen.expected, seen)}{_ulp_text(seen)}"
    text = f"{first}\n  at {where}: {values}\n  {_fix(leaf, needed, op, surface)}"
    return ToleranceError(text, seen, path, leaf.tolerance, op, sample, surface)


def _what(leaf: _Leaf) -> str:
    """Return the first line: how many entries differ, by what rule, and by how much."""
    seen, row = leaf.comparison, leaf.tolerance
    if row is not None and row.unit == EXACT and not (seen.wrong or seen.zero_sign_wrong):
        return "equal values of unlike dtype, where equal bits are asked for"
    if row is not None and row.unit == EXACT and not seen.wrong:
        return f"zeros of the other sign, where equal bits are asked for: {seen.zero_sign_wrong}"
    count = f"{leaf.over} of {seen.total} entries" if seen.total > 1 else "the value"
    special = f"; NaN or inf out of place: {seen.special_wrong}" if seen.special_wrong else ""
    if not leaf.rule:
        verb = "are" if seen.total > 1 else "is"
        return f"{count} {verb} not equal{special or f': worst error {short(seen.abs_error)}'}"
    verb = "differ" if seen.total > 1 else "differs"
    by_ulp = row is not None and row.unit == ULP
    worst = f"{short(seen.ulp)} ulp" if by_ulp else short(seen.abs_error)
    times = f", {short(leaf.ratio)} times that" if leaf.ratio < math.inf else ""
    return f"{count} {verb} by more than {leaf.rule}: worst error {worst}{times}{special}"


def _fix(leaf: _Leaf, needed: tuple[float, float], op: str | None, surface: str | None) -> str:
    """Return the third line: what would have passed, ready to paste."""
    seen, row = leaf.comparison, leaf.tolerance
    if max(needed) == math.inf:
        nan = " (equal_nan=True lets NaN equal NaN)" if seen.got != seen.got else ""
        if not seen.special_wrong:
            return "no finite atol or rtol would pass: a difference overflows"
        return f"no atol or rtol would pass: a NaN or an infinity is out of place{nan}"
    if row is not None and row.unit == EXACT and not seen.wrong:
        values = "compare with rtol=0 in place of the surface where values alone matter"
        return f"{'cast one of them' if not seen.same_dtype else 'correct the sign'}, or {values}"
    paste = f"would pass: atol={round_up(needed[0])}, rtol={round_up(needed[1])}"
    if row is None or op is None or surface is None or row.unit == EXACT:
        return paste
    margin = tolerances.constant("suggestion_margin")
    value = round_up(margin * seen.error(row.unit))
    bound = f'"{value} ulp"' if row.unit == ULP else value
    line = f'op = "{op}", dtype = "{seen.dtype.name}", value = {bound}, reason = "..."'
    return f"{paste}; or under overrides.{surface}: {{ {line} }}"


def round_up(number: float) -> str:
    """Return a number of two digits that is not below `number`, as text to paste."""
    if not 0 < number < math.inf:
        return repr(float(number))
    digits = float(Decimal(number).normalize(Context(prec=2, rounding=ROUND_CEILING)))
    if digits < 0.001:
        return f"{digits:.1e}"
    return f"{digits:.0f}" if 10 <= digits < 1e6 else f"{digits:.2g}"


def short(value: float) -> str:
    """Return a number of three digits: "1.6e-04", "12.5", "1590", "1.2e+08"."""
    if 0 < abs(value) < 0.001:
        return f"{value:.2e}"
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"


def _ulp_text(seen: Comparison) -> str:
    """Return " (3.1 ulp)" for numbers that have units in the last place, else ""."""
    if arrays.kind(seen.dtype) not in (arrays.FLOATING, arrays.COMPLEX):
        return ""
    return f" ({short(seen.ulp_there)} ulp)" if seen.ulp_there < math.inf else ""


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _text(value: Scalar | None, seen: Comparison) -> str:
    """Return a value as its dtype prints it; digits of a wider reference are kept."""
    if isinstance(value, float) and arrays.kind(seen.dtype) == arrays.FLOATING:
        narrow = seen.dtype.type(value)
        if float(narrow) == value:
            return str(narrow)
    return str(value)
