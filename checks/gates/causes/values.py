"""Causes that change values where they stand: sign, scale, offset, per-axis fits, rounding."""

import math
from typing import Any

import ml_dtypes
import numpy as np

from checks.gates.causes.case import Case, figure, lowest, rms
from checks.gates.comparison.record import Cause
from checks.tolerances import constant

_LEAST = 4  # entries that must differ; along an axis that one constant serves alone
_ABOVE = 16  # entries above both floors of a logarithm
_MANY, _SHARE = 8, 0.25  # codes that differ, and their share, for a truncation

_BASES = {
    "log base e for 10": math.log(10),
    "log base 10 for e": 1 / math.log(10),
    "log base 2 for 10": math.log2(10),
    "log base 10 for 2": math.log10(2),
    "log base e for 2": math.log(2),
    "log base 2 for e": 1 / math.log(2),
}


def valued(case: Case) -> Cause | None:
    """Return what changed the values, of two tensors of one shape."""
    for find in (
        _flat,
        _sign,
        _rounded,
        _ties,
        _clipped,
        _scale,
        _offset,
        _affine,
        _logarithm,
        _repeated,
    ):
        if found := find(case):
            return found
    return along_axes(case)


def _flat(case: Case) -> Cause | None:
    if case.c.size < 2 or np.ptp(case.c) != 0 or np.ptp(case.r) == 0:
        return None
    value = float(case.c.flat[0])
    text = f"every entry of the candidate is {figure(value)}; the reference's vary"
    return Cause("constant", text)


def _sign(case: Case) -> Cause | None:
    if found := case.cause("sign", "the sign is turned: candidate = -reference", -case.c):
        return found
    back = np.copysign(case.c, case.r)
    turned = int(np.count_nonzero(np.signbit(case.c) != np.signbit(case.r)))
    text = f"the sign of {turned:,} of {case.c.size:,} entries is turned, the magnitudes agree"
    return case.cause("signs", text, back)


def _scale(case: Case) -> Cause | None:
    size = float(np.vdot(case.r, case.r))
    factor = float(np.vdot(case.r, case.c)) / size if size else 0.0
    if not case.enough(1) or not factor or not math.isfinite(factor):
        return None
    name = _known_factor(factor, case.r.shape)
    text = f"scaled: candidate = {factor:.7g} x reference" + (f" ({name})" if name else "")
    found = case.fit("scale", text, factor * case.r, case.c)
    return found or case.cause("scale", text, case.c / factor)


def _known_factor(factor: float, shape: tuple[int, ...]) -> str:
    known = {
        "a factor of ten": 10.0,
        "ln 10: log base e for 10": math.log(10),
        "1 / ln 10: log base 10 for e": 1 / math.log(10),
        "ln 2": math.log(2),
        "1 / ln 2": 1 / math.log(2),
        "sqrt 2": math.sqrt(2),
        "1 / sqrt 2": math.sqrt(0.5),
        "pi": math.pi,
        "255: byte range": 255.0,
        "1 / 255: byte range": 1 / 255,
        "32768: 16-bit samples": 32768.0,
        "1 / 32768: 16-bit samples": 1 / 32768,
    }
    for axis, n in enumerate(shape):
        if n > 1:
            biased = f"biased for unbiased variance over axis {axis}"
            known[f"sqrt({n} / {n - 1}): {biased}"] = math.sqrt(n / (n - 1))
            known[f"sqrt({n - 1} / {n}): {biased}"] = math.sqrt((n - 1) / n)
            known[f"{n}: a sum over axis {axis} for a mean"] = float(n)
            known[f"1 / {n}: a mean over axis {axis} for a sum"] = 1 / n
            known[f"sqrt({n}) of axis {axis}"] = math.sqrt(n)
            known[f"1 / sqrt({n}) of axis {axis}"] = 1 / math.sqrt(n)
    near = [(abs(factor / v - 1), k) for k, v in known.items()]
    miss, name = min(near)
    if miss <= constant("gate_known_factor"):
        return name
    power = math.log2(abs(factor))
    return f"2^{round(power)}" if abs(power - round(power)) <= constant("gate_known_factor") else ""


def _offset(case: Case) -> Cause | None:
    if not case.enough(1):
        return None
    by = float(np.mean(case.c - case.r))
    text = f"offset: candidate = reference + {figure(by)}".replace("+ -", "- ")
    return case.cause("offset", text, case.c - by)


def _affine(case: Case) -> Cause | None:
    if not case.enough(2) or np.ptp(case.r) == 0:
        return None
    mean_r, mean_c = float(case.r.mean()), float(case.c.mean())
    centred = case.r - mean_r
    factor = float(np.vdot(centred, case.c - mean_c)) / float(np.vdot(centred, centred))
    if not factor or not math.isfinite(factor):
        return None
    by = mean_c - factor * mean_r
    name = _known_factor(factor, ())
    text = f"affine: candidate = {figure(factor)} x reference + {figure(by)}".replace("+ -", "- ")
    text += f" ({name})" if name else ""
    found = case.fit("affine", text, factor * case.r + by, case.c - mean_c)
    return found or case.cause("affine", text, (case.c - by) / factor)


def _logarithm(case: Case) -> Cause | None:
    """A logarithm to another base, behind which both sides are cut at a floor of their own.

    candidate = max(factor x reference + offset, floor) with the factor of two bases. Where the
    reference lies at its floor its own argument is not known: those places are left out.
    """
    low = lowest(case.c)
    above = case.r > lowest(case.r)
    both = above & (case.c > low)
    if np.count_nonzero(both) < _ABOVE:
        return None
    r, c = case.r[both], case.c[both]
    for name, factor in _BASES.items():
        by = float(np.median(c - factor * r))
        made = np.maximum(factor * case.r + by, low)[above]
        text = f"{name}: candidate = {figure(factor)} x reference + {figure(by)}, no less than "
        text += figure(float(low.min()))
        seen = Case(case.r[above], case.c[above], case.limit)
        if found := seen.cause("logarithm", text.replace("+ -", "- "), seen.c, made):
            return found
    return None


def _rounded(case: Case) -> Cause | None:
    """The candidate is the reference rounded once to a narrower dtype, or truncated to TF32."""
    if case.reference.dtype.kind not in "fV" and case.reference.dtype.name != "bfloat16":
        return None
    for name in ("bfloat16", "float16"):
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        narrow = _narrowed(case, dtype)
        text = f"the candidate is the reference rounded to {name}"
        if found := case.cause("rounded to " + name, text, case.c, narrow):
            return found
    single = np.ascontiguousarray(case.r.astype(np.float32))
    cut = (single.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    text = "the candidate is the reference with 13 low bits cut, as TF32 does"
    return case.cause("truncated to tf32", text, case.c, cut) or _scaled_and_rounded(case)


def _narrowed(case: Case, dtype: Any) -> Any:
    """The reference rounded; of the few entries near a tie, to the side that the candidate took."""
    reach = case.limit.max_abs if math.isfinite(case.limit.max_abs) else 0.0
    with np.errstate(all="ignore"):
        made, low, high = (
            (case.r + by).astype(dtype).astype(np.float64) for by in (0.0, -reach, reach)
        )
    other = (case.c != made) & ((case.c == low) | (case.c == high))
    few = np.count_nonzero(other) <= constant("gate_undone_better") * made.size
    return np.where(other, case.c, made) if few else made


def _scaled_and_rounded(case: Case) -> Cause | None:
    """A table held in a narrower dtype, whose rows are multiplied by the root of their width."""
    n = case.r.shape[-1] if case.r.ndim else 1
    if n < 2:
        return None
    for name in ("bfloat16", "float16"):
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        with np.errstate(all="ignore"):
            narrow = (case.r / math.sqrt(n)).astype(dtype).astype(np.float64) * math.sqrt(n)
        text = f"the candidate is the reference over sqrt({n}), rounded to {name}, times sqrt({n})"
        if found := case.cause(f"scaled and rounded to {name}", text, case.c, narrow):
            return found
    return None


def _ties(case: Case) -> Cause | None:
    """Codes of a quantiser one unit apart: always an even one and the next away from zero where
    ties are rounded otherwise (four pairs by chance: 1 in 256), always the next nearer to zero
    where one side truncates.
    """
    r, c = case.r, case.c
    off = r != c
    count = int(off.sum())
    if count < _LEAST or np.any(r != np.rint(r)) or np.any(c != np.rint(c)):
        return None
    if np.any(np.abs(r - c)[off] != 1):
        return None
    for first, other, who in ((r, c, "reference"), (c, r, "candidate")):
        even = np.all(first[off] % 2 == 0)
        if even and np.all(np.abs(other[off]) > np.abs(first[off])):
            text = (
                f"{count:,} codes are one unit apart, each an even code on the {who} and the next "
                "away from zero on the other: ties are rounded half to even there, half away "
                "from zero here"
            )
            return Cause("ties", text)
    often = count >= _MANY and count >= _SHARE * r.size
    if often and np.all(np.abs(c[off]) < np.abs(r[off])):
        text = f"{count:,} codes are one unit nearer to zero: truncated where it should round"
        return Cause("truncated", text)
    return None


def _clipped(case: Case) -> Cause | None:
    low, high = float(case.c.min()), float(case.c.max())
    if low <= float(case.r.min()) and high >= float(case.r.max()):
        return None
    cut = int(np.count_nonzero((case.r < low) | (case.r > high)))
    if cut == case.r.size or np.ptp(case.c) == 0:
        return None
    text = f"clipped to [{figure(low)}, {figure(high)}]: {cut:,} entries lie beyond"
    found = case.cause("clipped", text, case.c, np.clip(case.r, low, high))
    return found if cut >= _LEAST else None


def _repeated(case: Case) -> Cause | None:
    """Slices along an axis that are all alike on the candidate alone."""
    for axis, n in enumerate(case.r.shape):
        if n < 2 or case.c.size == n:
            continue
        written = np.any(case.c, axis=axis)  # zeros are alike without being copies
        if not np.any(np.ptp(case.r, axis=axis)[written]):
            continue
        for at in (0, n - 1):
            spread = np.take(case.r, [at], axis)
            text = f"broadcast: every slice along axis {axis} is the reference's slice {at}"
            found = case.cause("broadcast", text, case.c, np.broadcast_to(spread, case.c.shape))
            if found:
                return found
        if not np.any(np.ptp(case.c, axis=axis)):
            text = f"all slices along axis {axis} are equal; the reference's vary"
            return Cause("broadcast", text)
    return None


def along_axes(case: Case) -> Cause | None:
    """Return an offset, a factor, or both, for each slice along one axis or each row."""
    for text, axes in _families(case.r.ndim):
        count = math.prod(case.r.shape[n] for n in range(case.r.ndim) if n not in axes)
        if not axes or count < 2 or not _varies(case, axes):
            continue
        for fit, parameters in ((_offsets, 1), (_factors, 1), (_lines, 2)):
            if case.enough(parameters, axes) and (found := fit(case, axes, text)):
                return found
    return None


def _families(ndim: int) -> list[tuple[str, tuple[int, ...]]]:
    """The axes that one constant serves, and for what it stands: few constants first."""
    found = [
        (f"each entry of axis {a}", tuple(n for n in range(ndim) if n != a)) for a in range(ndim)
    ]
    if ndim > 2:
        found.append(("each row of the last axis", (ndim - 1,)))
        found += [(f"each place but for axis {a}", (a,)) for a in range(ndim - 1)]
    return found


def _varies(case: Case, axes: tuple[int, ...]) -> bool:
    """Whether the reference varies where one constant serves: of copies each explains the other."""
    if len(axes) == 1 and case.r.shape[axes[0]] < _LEAST:
        return False
    apart = case.r - case.r.mean(axis=axes, keepdims=True)
    return rms(apart) > constant("gate_undone") * rms(case.r)


def _offsets(case: Case, axes: tuple[int, ...], text: str) -> Cause | None:
    by = np.mean(case.c - case.r, axis=axes, keepdims=True)
    said = f"an offset for {text}, from {figure(by.min())} to {figure(by.max())}: a bias"
    return case.cause("offset per slice", said, case.c - by)


def _factors(case: Case, axes: tuple[int, ...], text: str) -> Cause | None:
    size = np.sum(case.r**2, axis=axes, keepdims=True)
    factor = _safe(np.sum(case.r * case.c, axis=axes, keepdims=True), size)
    said = f"a factor for {text}, from {_about_one(factor.min())} to {_about_one(factor.max())}"
    said += ": a scale, or the epsilon of a normalisation"
    found = case.fit("factor per slice", said, factor * case.r, case.c)
    return found or case.cause("factor per slice", said, case.c / factor)


def _about_one(factor: float) -> str:
    """A factor as its distance from one, where four digits do not show that."""
    apart = factor - 1
    if not apart or abs(apart) >= constant("gate_undone"):
        return figure(factor)
    return f"1 {'-' if apart < 0 else '+'} {abs(apart):.2g}"


def _lines(case: Case, axes: tuple[int, ...], text: str) -> Cause | None:
    mean_r = case.r.mean(axis=axes, keepdims=True)
    mean_c = case.c.mean(axis=axes, keepdims=True)
    centred = case.r - mean_r
    products = np.sum(centred * (case.c - mean_c), axis=axes, keepdims=True)
    factor = _safe(products, np.sum(centred**2, axis=axes, keepdims=True))
    said = f"a factor and an offset for {text}: a normalisation, or folded statistics"
    found = case.fit("affine per slice", said, factor * centred + mean_c, case.c - mean_c)
    return found or case.cause("affine per slice", said, (case.c - mean_c) / factor + mean_r)


def _safe(top: Any, bottom: Any) -> Any:
    factor = np.divide(top, bottom, out=np.ones_like(top), where=bottom != 0)
    return np.where(factor == 0, 1.0, factor)
