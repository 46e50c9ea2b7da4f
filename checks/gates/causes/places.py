"""Causes that are told by where the error lies: a few rows, a triangle, entries not finite."""

import math
from typing import Any

import numpy as np

from checks.gates.causes.case import Case, figure, listed, rms
from checks.gates.comparison.record import Cause
from checks.tolerances import constant

_FEW = 4  # a quarter of the slices at most
_SLICES, _MANY = 8, 64  # slices, and entries, that tell a few wrong places from noise


def nonfinite(case: Case) -> Cause | None:
    """Return where one side alone is not finite, and whether the rest agrees."""
    r, c = case.reference, case.candidate
    if r.dtype.kind in "iub" and c.dtype.kind in "iub":
        return None
    r, c = case.r, case.c
    bad_r, bad_c = ~np.isfinite(r), ~np.isfinite(c)
    wrong = (bad_r | bad_c) & ~((np.isnan(r) & np.isnan(c)) | (r == c))
    count = int(wrong.sum())
    if not count:
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    kinds = [k for k, found in (("NaN", np.isnan(c)), ("inf", np.isinf(c))) if found[wrong].any()]
    side = "candidate" if kinds else "reference"
    many = f"{count:,} entries differ" if count > 1 else "one entry differs"
    text = f"{many} in finiteness, {' and '.join(kinds) or 'finite'} on the "
    text += f"candidate, the first at {first}: {r[first]} against {c[first]}"
    rows = _whole_rows(wrong)
    if rows.size:
        text += f"; whole rows of axis 0: {listed(rows)}"
    both = ~(bad_r | bad_c)
    d = np.abs(c[both] - r[both])
    agrees = d.size and case.limit.passes(float(d.max()), float(d.mean()))
    if agrees:
        text += "; all finite entries are within the limits: a mask or 0/0, not the computation"
        side += " mask"
    elif d.size:
        text += f"; of the finite entries the largest error is {figure(float(d.max()))}"
    return Cause("non-finite on the " + side, text)


def _whole_rows(wrong: Any) -> Any:
    if wrong.ndim < 2:
        return np.zeros(0, np.int64)
    return np.flatnonzero(wrong.reshape(wrong.shape[0], -1).all(axis=1))


def placed(case: Case) -> Cause | None:
    """Return which rows, columns or triangle hold the error.

    Undone by leaving those places out: what remains must pass, or be a tenth of the whole where a
    few places hold nearly all of the squared error.
    """
    e = np.abs(case.c - case.r)
    for clean in dict.fromkeys((_clean(case), case.limit.max_abs)):
        if found := _triangle(case, e, clean) or _axis(case, e, clean):
            return found
    return _concentrated(case, e)


def _concentrated(case: Case, e: Any) -> Cause | None:
    """A few slices hold nearly all of the squared error; the rest is over the limits as well."""
    for axis, n in enumerate(e.shape):
        rest = tuple(k for k in range(e.ndim) if k != axis)
        energy = np.sum(e**2, axis=rest) if rest else e**2
        worse = 1 / constant("gate_undone_better") ** 2
        bad = np.flatnonzero(energy > worse * np.median(energy))
        if n < _SLICES or e.size < _MANY or not 0 < bad.size <= n // _FEW:
            continue
        kept = np.delete(case.c, bad, axis), np.delete(case.r, bad, axis)
        share = float(energy[bad].sum() / energy.sum())
        inside = np.take(case.c, bad, axis), np.take(case.r, bad, axis)
        rounded = case.size <= case.rounding and np.any(inside[0])
        if share < constant("gate_concentrated") or rounded or not _apart(inside, kept):
            continue
        word = "rows" if axis == 0 else f"entries of axis {axis}"
        text = f"{word} {listed(bad)} of {n} hold {100 * share:.0f}% of the squared error"
        text += _kind(case, axis, bad) + "; the others are over the limits as well"
        return Cause("partial", text, rms(kept[0] - kept[1]) / case.size)
    return None


def _axis(case: Case, e: Any, clean: float) -> Cause | None:
    best: tuple[int, Cause] | None = None
    for axis, n in enumerate(e.shape):
        if n < 2:
            continue
        rest = tuple(k for k in range(e.ndim) if k != axis)
        worst = e.max(axis=rest) if rest else e
        bad = np.flatnonzero(~(worst <= clean))
        if not 0 < bad.size < n or (best and best[0] <= bad.size * e.size // n):
            continue
        kept = np.delete(case.c, bad, axis), np.delete(case.r, bad, axis)
        share = rms(kept[0] - kept[1]) / case.size
        d = np.abs(kept[0] - kept[1])
        inside = np.take(case.c, bad, axis), np.take(case.r, bad, axis)
        if not (case.limit.passes(float(d.max()), float(d.mean())) and _apart(inside, kept)):
            continue
        zero = not np.any(inside[0])
        if not zero and case.size <= case.rounding:
            continue  # an ulp here and there: it lies where the large values are
        if (
            2 * bad.size > n
            and not zero
            and (share > constant("gate_undone") or not _one_end(bad, n))
        ):
            continue
        if _one_end(bad, n) and axis == e.ndim - 1 and not zero:
            continue
        best = bad.size * e.size // n, _partial(case, axis, bad, share)
    return best[1] if best else None


def _tells(case: Case, axis: int, bad: Any, share: float) -> bool:
    """Whether places tell a cause: at most half of them, zeros, or all but one at an end (not of
    the last axis, which holds features).
    """
    n, end = case.r.shape[axis], _one_end(bad, case.r.shape[axis])
    if not np.any(np.take(case.c, bad, axis)):
        return True
    if end:
        return axis < case.r.ndim - 1 and share <= constant("gate_undone")
    return bool(2 * bad.size <= n)


def _one_end(bad: Any, n: int) -> str:
    """What the places are where all but one at an end are off."""
    if bad.size != n - 1 or n < _FEW:
        return ""
    return {1: "after the first", 0: "before the last"}[int(bad[0])] if _in_a_row(bad) else ""


def _in_a_row(bad: Any) -> bool:
    return bool(bad[-1] - bad[0] + 1 == bad.size)


def _partial(case: Case, axis: int, bad: Any, share: float) -> Cause:
    n = case.r.shape[axis]
    word = "rows" if axis == 0 else f"entries of axis {axis}"
    end = _one_end(bad, n)
    if end and np.any(np.take(case.c, bad, axis)):
        agrees = "first" if bad[0] else "last"
        text = f"{word} {listed(bad)} of {n} are off and the {agrees} agrees: positions, a mask, "
        text += "or state that is carried on"
        return Cause(end, text, share)
    what = _kind(case, axis, bad)
    if axis == case.parts:
        names = ("real", "imaginary")
        text = f"only the {names[bad[0]]} parts are off, the {names[1 - bad[0]]} ones agree{what}"
        return Cause("partial", text, share)
    text = f"only {word} {listed(bad)} of {n} are off, the other {n - bad.size} agree{what}"
    return Cause("partial", text, share)


def _apart(bad: tuple[Any, Any], good: tuple[Any, Any]) -> bool:
    """Whether the bad places are far worse than the good ones, in absolute error and relative to
    the reference there: noise grows with the values, and limits are met by chance. What could be
    rounding needs many good entries beside it.
    """
    share = constant("gate_undone_better")
    worse, better = (rms(c - r) for c, r in (bad, good))
    sizes = rms(bad[1]), rms(good[1])
    if not sizes[1]:
        return False  # zeros on both sides tell nothing
    noise = constant("gate_ladder_width") * constant("gate_ladder_bf16")
    if worse <= noise * sizes[0] and good[0].size < _MANY:
        return False
    return better <= share * worse and better * sizes[0] <= share * worse * sizes[1]


def _clean(case: Case) -> float:
    """What an entry may be off and still count as untouched, where there is next to no noise."""
    return min(case.limit.max_abs, max(case.limit.mean_abs, constant("gate_undone") * case.size))


def _kind(case: Case, axis: int, bad: Any) -> str:
    """A few words for what the places hold."""
    n = case.r.shape[axis]
    c = np.take(case.c, bad, axis)
    if not np.any(c) and np.any(np.take(case.r, bad, axis)):
        return "; they are zero"
    before = bad - 1
    if np.all(before >= 0) and np.array_equal(c, np.take(case.r, before, axis)):
        return "; they repeat the slice before"
    if case.r.ndim > 1 and np.ptp(c) == 0:
        return f"; they are all {figure(float(c.flat[0]))}"
    if bad.size == bad[-1] - bad[0] + 1 and bad.size > 1:
        if bad[-1] == n - 1:
            return "; they are the last ones: padding, a length, or a position"
        if bad[0] == 0:
            return "; they are the first ones: a boundary, a mask, or carried state"
    return ""


def _triangle(case: Case, e: Any, clean: float) -> Cause | None:
    """The last two axes are square, and only one side of the diagonal is off: a mask."""
    if e.ndim < 2 or e.shape[-1] != e.shape[-2] or e.shape[-1] < 3:
        return None
    for name, mask in (
        ("above", np.triu(np.ones(e.shape[-2:], bool), 1)),
        ("below", np.tril(np.ones(e.shape[-2:], bool), -1)),
    ):
        inside, outside = e[..., mask], e[..., ~mask]
        if not np.mean(inside > clean) > 0.5:
            continue
        sides = [(case.c[..., m], case.r[..., m]) for m in (mask, ~mask)]
        passes = case.limit.passes(float(outside.max()), float(outside.mean()))
        if passes and _apart(*sides):
            share = rms(outside) / case.size if case.size else math.nan
            text = f"only entries {name} the diagonal of the last two axes are off: a causal mask"
            return Cause("mask", text, share)
    return None
