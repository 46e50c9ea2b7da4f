"""Ways in which a gradient goes wrong, each undone and tested again before it is named."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from checks.gradients.diagnosis.factors import Factor, named, rounded
from checks.gradients.diagnosis.pattern import Region, place, regions
from checks.gradients.diagnosis.trial import Measured, Trial
from checks.gradients.evidence import Probe
from checks.gradients.target import pair, unit_of
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
SHIFTS = 64
REGIONS = 24
LEAST = 8  # entries of which one may be on a tie


@dataclasses.dataclass(frozen=True, eq=False)
class Fault:
    """A verified fault of the gradient of one point.

    Arguments:
        name: the word it goes by.
        text: what the gradient is: "is 2 times the true one".
        repaired: the gradient with the fault undone; None where it was verified otherwise.
        region: the entries it is about; None for all.
    """

    name: str
    text: str
    repaired: Array | None = None
    region: Region | None = None


def whole_fault(trial: Trial, point: int) -> Fault | None:
    """A fault of the whole gradient of one point, undone without further measurements."""
    claim = trial.gradient[point]
    whole = Region("", np.ones(claim.shape, bool))
    found = _zero(trial, point) or scaled(trial, point, whole)
    return found or _first(trial, point, rearranged(claim))


def partial_fault(trial: Trial, point: int, measured: Measured) -> Fault | None:
    """A fault in a region, a permutation, a lost or added sum or term."""
    found = _in_a_region(trial, point, measured)
    if found is None and measured.complete:
        found = _first(trial, point, _permuted(trial.gradient[point], measured))
    found = found or _rounded(trial, point) or _halved(trial, point, measured)
    return found or _reduced(trial, point) or _term(trial, point)


def _halved(trial: Trial, point: int, measured: Measured) -> Fault | None:
    """A claim of 16-bit numbers of a function in float64: the true entries rounded."""
    claim, true = trial.gradient[point], measured.true
    whole = measured.complete and np.count_nonzero(claim) > LEAST
    if not whole or trial.is_narrow or trial.narrow_claim or claim.dtype.kind == "c":
        return None
    for name in ("bfloat16", "float16"):
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        off = true.astype(dtype).astype(float) != claim  # a tie may round either way
        if np.count_nonzero(off) <= claim.size // LEAST:
            return Fault(name, f"is rounded to {name}")
    return None


def _rounded(trial: Trial, point: int) -> Fault | None:
    """A claim of float32 numbers, right to their precision, of a function in float64."""
    claim, unit = trial.gradient[point], unit_of(np.dtype(np.float32))
    narrow = np.complex64 if claim.dtype.kind == "c" else np.float32
    if trial.is_narrow or trial.narrow_claim or not np.array_equal(claim.astype(narrow), claim):
        return None
    for number in (0, 1):
        probe = trial.fresh(point, number)
        if not probe.explains < abs(probe.residual) <= constant("narrow_units") * unit * probe.size:
            return None
    return Fault("float32", "is rounded to float32")


Candidate = tuple[str, str, Array]


def _first(trial: Trial, point: int, candidates: Iterator[Candidate]) -> Fault | None:
    claim = trial.gradient[point]
    for name, text, new in candidates:
        if not np.array_equal(new, claim) and trial.holds(point, new):
            return Fault(name, text, new)
    return None


# --- factors -------------------------------------------------------------------------------


def _zero(trial: Trial, point: int) -> Fault | None:
    """A gradient of exact zeros where the difference is not zero."""
    probe = trial.fresh(point, 0)
    if np.any(trial.gradient[point]) or abs(probe.difference) <= probe.allowed:
        return None
    return Fault("zero", "is zero: detached, or never accumulated")


def scaled(trial: Trial, point: int, region: Region) -> Fault | None:
    """The claim is `c` times the truth in a region: `c` from one probe, tested on another."""
    claim, probe = trial.gradient[point], trial.fresh(point, 0)
    inside = pair([np.where(region.mask, claim, 0)], [probe.direction[point]])
    needed = probe.difference - (probe.claimed - inside)
    if not inside or not np.isfinite(inside):
        return None
    where = f" {located(region.text)}" if region.text else ""
    if abs(needed) <= probe.allowed:  # the truth is zero there, no factor leads to it
        new = np.where(region.mask, 0, claim)
        if abs(inside) <= probe.allowed or not trial.holds(point, new):
            return None
        return Fault("not zero", f"should be zero{where}", new, region)
    c = inside / needed
    error = abs(c) * _blur(trial, probe) / abs(needed)
    factor = named(trial.target, c, error)
    factor = dataclasses.replace(factor, error=abs(c) * probe.error / abs(needed))
    few = not factor.is_told and np.count_nonzero(claim[region.mask]) < 3
    if few or abs(c - 1) <= 4 * error:  # a rounding, not a factor
        return None
    tried = [factor]
    if not factor.is_simple:  # a noisy function hides more digits than its error says
        tried = [Factor(rounded(c, abs(c) * probe.explains / abs(needed))), factor]
    for told in tried:
        exact = round(c) if abs(c - round(c)) <= error and round(c) else c
        exact = exact if told.is_simple else told.number
        new = np.where(region.mask, claim / exact, claim)
        if trial.holds(point, new) or _within(trial, point, region, (exact, error)):
            name = "sign" if told.name == "-1" else "factor"
            text = "has the wrong sign" if name == "sign" else told.phrase
            return Fault(name, f"{text}{where}", new, region)
    return None


def _within(trial: Trial, point: int, region: Region, factor: tuple[float, float]) -> bool:
    """Whether a factor known to an error explains two further directions of a noisy function."""
    claim, (c, error) = trial.gradient[point], factor
    if trial.is_narrow or error <= constant("factor_sharp") * abs(c):
        return False
    new = trial.repaired(point, np.where(region.mask, claim / c, claim))
    for number in (1, 2):
        probe = trial.fresh(point, number)
        inside = pair([np.where(region.mask, claim, 0)], [probe.direction[point]])
        slack = probe.allowed + error * abs(inside) / c**2
        off = abs(pair(new, probe.direction) - probe.difference)
        if not off <= slack <= abs(probe.residual) / 4:
            return False
    return True


def _blur(trial: Trial, probe: Probe) -> float:
    """How far rounding alone may take a claim and a difference apart: less than is allowed."""
    claim = trial.evidence.tolerance * probe.size
    if trial.narrow_claim:
        claim = 4 * claim / constant("narrow_units")
    return max(probe.error, claim)


def located(text: str) -> str:
    """The words for a region with their preposition: "in row 3", "on the diagonal"."""
    known = ("where", "off", "above", "below", "inside")
    if text.startswith(known):
        return text
    if text.startswith(("the diagonal", "the boundary")):
        return f"on {text}"
    return f"at {text}" if text.endswith("]") else f"in {text}"


def _in_a_region(trial: Trial, point: int, measured: Measured) -> Fault | None:
    """A sign, a factor or zeros in a region, while the rest is right."""
    x, claim = trial.target.points[point], trial.gradient[point]
    for region in wrong_regions(trial, point, measured):
        found = scaled(trial, point, region)
        if found is not None:
            return found
        inside = region.mask & measured.relevant
        if not np.any(inside) or np.any(claim[region.mask & trial.free[point]]):
            continue
        if measured.complete:
            new = np.where(region.mask, measured.true, claim)
            if trial.holds(point, new):
                return Fault("zero", f"is zero {located(region.text)}", new, region)
        elif region.count < x.size and trial.rest_agrees(point, region.mask):
            return Fault("zero", f"is zero {located(region.text)}", None, region)
    return None


def wrong_regions(trial: Trial, point: int, measured: Measured) -> Iterator[Region]:
    """Regions that hold all wrong entries known, and no right one."""
    x = trial.target.points[point]
    bad, right = measured.bad, measured.relevant & ~measured.bad
    if not np.any(bad) or not np.any(right):
        return
    made = 0
    for region in regions(x, np.argwhere(bad)[0].tolist(), trial.target.point_paths[point]):
        if np.any(bad & ~region.mask) or np.any(right & region.mask):
            continue
        if 2 * np.count_nonzero(bad & region.mask) <= region.count and measured.complete:
            continue
        made += 1
        if made <= REGIONS and not trial.spent:
            yield region
    if measured.complete:
        indices = np.argwhere(bad)
        path = trial.target.point_paths[point]
        text = path + place(indices[0]) if len(indices) == 1 else f"{len(indices)} entries"
        yield Region(text, bad)


# --- rearranged ----------------------------------------------------------------------------


def rearranged(g: Array) -> Iterator[Candidate]:
    """The truth as a rearrangement of the claim."""
    if g.dtype.kind == "c":
        yield "conjugated", "is the complex conjugate of the true one", np.conj(g)
        yield "conjugated", "is minus the complex conjugate of the true one", -np.conj(g)
        yield "factor", "is i times the true one", g / 1j
        yield "factor", "is -i times the true one", g * 1j
    yield from _transposed(g)
    for axis, n in enumerate(g.shape):
        if n > 1:
            of = f" along axis {axis}" if g.ndim > 1 else ""
            yield "reversed", f"is reversed{of}", np.flip(g, axis)
            many = sorted(range(1, n), key=lambda s: min(s, n - s))[:SHIFTS]
            for s in many:
                by = s if s <= n - s else s - n
                yield "shifted", f"is shifted by {by}{of}", np.roll(g, -s, axis)


def _transposed(g: Array) -> Iterator[Candidate]:
    if g.ndim < 2:
        return
    seen = [g]
    rest = g.shape[:-2]
    by_order = g.reshape(g.shape[::-1]).T
    in_rows = np.swapaxes(g.reshape(*rest, g.shape[-1], g.shape[-2]), -1, -2)
    yield "transposed", "is transposed", in_rows
    if g.shape[-1] != g.shape[-2]:
        back = np.swapaxes(g, -1, -2).reshape(g.shape)
        yield "transposed", "is transposed and reshaped", back
    if g.ndim > 2:
        yield "transposed", "has its axes in reverse order", by_order
        for axes in itertools.islice(itertools.permutations(range(g.ndim)), 1, 24):
            inverse = np.argsort(axes)
            shape = tuple(g.shape[a] for a in axes)
            new = g.reshape(shape).transpose(inverse)
            if not any(np.array_equal(new, s) for s in seen):
                seen.append(new)
                yield "transposed", f"has its axes permuted as {tuple(map(int, axes))}", new


def _permuted(claim: Array, measured: Measured) -> Iterator[Candidate]:
    """A permutation of the slices along an axis, read from the measured entries."""
    true = measured.true
    size = float(np.max(np.abs(true), initial=0.0))
    for axis, n in enumerate(claim.shape):
        if not 1 < n <= SHIFTS:
            continue
        rows, wanted = (np.moveaxis(a, axis, 0).reshape(n, -1) for a in (claim, true))
        gap = np.max(np.abs(wanted[:, None, :] - rows[None, :, :]), axis=2)
        order = np.argmin(gap, axis=1)
        if len(set(order.tolist())) == n and size and np.max(gap[np.arange(n), order]) < size:
            of = f" along axis {axis}" if claim.ndim > 1 else ""
            moved = np.flatnonzero(order != np.arange(n))
            what = f"is permuted{of}"
            if moved.size == 2:
                what = f"has {moved[0]} and {moved[1]} exchanged{of}"
            yield "permuted", what, np.take(claim, order, axis)


# --- what cannot be undone in the gradient: the difference is taken along the fault's transpose --


def _reduced(trial: Trial, point: int) -> Fault | None:
    """The claim is a linear map of the truth: `<T g, v> = <g, T^t v>`."""
    claim = trial.gradient[point]
    for name, text, back in _maps(claim):
        agree = True
        for number in (0, 1):
            base = trial.fresh(point, number)
            if trial.spent or not agree:
                return None
            probe = trial.along(point, back(base.direction[point]))
            off = abs(base.claimed - probe.difference)
            limit = max(probe.explains, trial.evidence.tolerance * abs(base.claimed))
            agree = off <= limit <= abs(base.residual) / 4
        if agree:
            return Fault(name, text)
    return None


Back = Callable[[Array], Array]


def _maps(claim: Array) -> Iterator[tuple[str, str, Back]]:
    """Maps that the claim may have gone through: name, words, transpose."""
    for axis, n in enumerate(claim.shape):
        if n < 2:
            continue
        of = f" over axis {axis}" if claim.ndim > 1 else " over all its entries"
        rows = np.moveaxis(claim, axis, 0)
        spread = float(np.max(np.abs(rows - rows[:1]), initial=0.0))
        if spread <= constant("factor_sharp") * float(np.max(np.abs(claim), initial=0.0)):
            yield "summed", f"is summed{of}", _sum_back(axis, 1.0)
            yield "summed", f"is averaged{of}", _sum_back(axis, n)
        along = f" along axis {axis}" if claim.ndim > 1 else ""
        if not np.any(rows[0]):
            yield "shifted", f"is shifted by 1{along}, its end lost", _shift_back(axis, 1)
        if not np.any(rows[-1]):
            yield "shifted", f"is shifted by -1{along}, its end lost", _shift_back(axis, -1)
    if claim.ndim >= 2 and claim.shape[-1] == claim.shape[-2]:
        if np.allclose(claim, np.swapaxes(claim, -1, -2)):
            yield "symmetrised", "is symmetrised", lambda v: (v + np.swapaxes(v, -1, -2)) / 2
    if claim.dtype.kind == "c" and not np.any(claim.imag):
        yield "real part", "has lost its imaginary part", lambda v: v.real + 0j


def _sum_back(axis: int, count: float) -> Back:
    return lambda v: np.broadcast_to(np.sum(v, axis, keepdims=True) / count, v.shape).copy()


def _shift_back(axis: int, by: int) -> Back:
    def back(v: Array) -> Array:
        new = np.roll(v, -by, axis)
        edge = [slice(None)] * v.ndim
        edge[axis] = slice(-by, None) if by > 0 else slice(0, -by)
        new[tuple(edge)] = 0
        return new

    return back


def _term(trial: Trial, point: int) -> Fault | None:
    """A term too many or too few: a constant, or a multiple of the argument."""
    claim, x = trial.gradient[point], trial.target.points[point]
    if x.size < 3:
        return None
    probe = trial.fresh(point, 0)
    for words, basis in (("", np.ones_like(claim)), (" times the argument", x.astype(claim.dtype))):
        along = pair([basis], [probe.direction[point]])
        c = probe.residual / along if along else 0.0
        if c and np.isfinite(c) and trial.holds(point, claim - c * basis):
            text = f"{abs(c):.6g}{words}"
            what = f"has {text} too much" if c > 0 else f"lacks a term of {text}"
            return Fault("term", what, claim - c * basis)
    return None
