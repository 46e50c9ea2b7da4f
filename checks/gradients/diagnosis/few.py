"""One wrong entry, or a few: repaired one by one until the gradient agrees."""

import dataclasses
import math
from typing import Any

import numpy as np

from checks.gradients.diagnosis.causes import Fault, scaled
from checks.gradients.diagnosis.factors import Factor, named, of_entry
from checks.gradients.diagnosis.pattern import Region, place, regions, words
from checks.gradients.diagnosis.trial import Measured, Trial
from checks.gradients.evidence import Evidence, Probe
from checks.gradients.locate import search
from checks.gradients.report import Worst
from checks.gradients.target import pair
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
FEW = 6
REGIONS = 16
PICKED = 5
LINED = 3
Found = tuple[tuple[int, ...], float]


def few_entries(trial: Trial, worst: Worst | None) -> tuple[int, tuple[int, ...]] | None:
    """The worst entry, where it is the only wrong one: repaired, it agrees along every probe that
    the verdict was made of. No call of the function.
    """
    target = trial.target
    total = sum(x.size for x in target.points)
    if (
        worst is None
        or total == 1
        or worst.argument not in target.point_paths
        or worst.left is not None
    ):
        return None
    point = target.point_paths.index(worst.argument)
    if not np.isfinite(worst.difference):
        return None
    gradient = [np.array(g) for g in trial.gradient]
    _put(trial, gradient[point], point, worst)
    whole = [p for p in trial.remembered if sum(np.count_nonzero(d) for d in p.direction) > 1]
    finite = [p for p in whole if np.isfinite(p.error)]
    if not any(not p.agrees for p in finite):
        return None
    right = all(trial.explains(p, gradient) for p in finite)
    return (point, worst.index) if right else None


def _put(trial: Trial, g: Array, point: int, worst: Worst) -> None:
    """Write the measured entry into a gradient (both entries of a symmetric pair)."""
    scale = 1.0
    u = trial.evidence.cotangents
    if len(u) == 1 and u[0].size == 1 and u[0].dtype.kind != "c":
        scale = float(u[0].ravel()[0]) or 1.0
    true = worst.difference * scale
    if point in trial.target.symmetric_points and worst.index[-1] != worst.index[-2]:
        true = true / 2
        g[(*worst.index[:-2], worst.index[-1], worst.index[-2])] = true
    g[worst.index] = true if g.dtype.kind == "c" else np.real(true)


def peeled(trial: Trial, point: int) -> tuple[Fault | None, str, Measured] | None:
    """A few wrong entries of a large point, or the region that they lie in: fault, words, and the
    entries found.
    """
    target = trial.target
    x, path = target.points[point], target.point_paths[point]
    base = trial.fresh(point, 0)
    gradient = [np.array(g) for g in trial.gradient]
    found: list[Found] = []
    while len(found) < FEW and not trial.spent:
        claimed = pair(gradient, base.direction)
        probe = dataclasses.replace(base, claimed=claimed)
        if trial.explains(base, gradient):
            break
        evidence: Evidence = dataclasses.replace(trial.evidence, gradient=gradient, probes=[])
        index = _next(evidence, probe, point)
        if index is None:
            return None
        if len(found) == LINED:
            region = _region_of(trial, point, [*(i for i, _ in found), index])
            if region is not None:
                lie = words(region.count, x.size, region.text, path)
                return (
                    scaled(trial, point, region),
                    lie,
                    _seen(trial, point, gradient[point], found),
                )
        true, _ = trial.entry(point, index)
        before = complex(gradient[point][index])
        ratio = (before / true).real if true else float("nan")
        gradient[point][index] = true if x.dtype.kind == "c" else true.real
        found.append((index, ratio))
    if not found or not trial.holds(point, gradient[point]):
        return None
    lie = ", ".join(path + place(i) for i in sorted(i for i, _ in found))
    fault, seen = _common(trial, found, lie), _seen(trial, point, gradient[point], found)
    return fault, words(len(found), x.size, lie, path), seen


def _seen(trial: Trial, point: int, repaired: Array, found: list[Found]) -> Measured:
    """The entries found as measurements."""
    bad = np.zeros(trial.target.points[point].shape, bool)
    for index, _ in found:
        bad[index] = True
    return Measured(np.where(bad, repaired, np.nan), bad, bad, len(found))


def _next(evidence: Evidence, probe: Probe, point: int) -> tuple[int, ...] | None:
    """One more wrong entry of a point: by weights, else by halving."""
    entry = search(evidence, probe)
    if entry is not None and entry.place.point == point:
        return entry.place.index
    shape = evidence.target.points[point].shape
    number = np.arange(math.prod(shape)).reshape(shape)
    low, high, value = 0, number.size, probe.residual
    while high - low > 1:
        cut = (low + high) // 2
        inside = (number >= low) & (number < cut)
        half = [
            np.where(inside, d, 0.0) if k == point else np.zeros_like(d)
            for k, d in enumerate(probe.direction)
        ]
        left = evidence.sharp(half, value)
        rest = value - left.residual
        if not max(abs(left.residual), abs(rest)) > 2 * left.allowed:
            return None
        first = abs(left.residual) >= abs(rest)
        low, high, value = (low, cut, left.residual) if first else (cut, high, rest)
    return tuple(int(i) for i in np.unravel_index(low, shape))


def _common(trial: Trial, found: list[Found], lie: str) -> Fault | None:
    """The factor that several entries share."""
    ratios = np.array([r for _, r in found])
    blur = constant("factor_sharp")
    if not np.all(np.abs(ratios - ratios[0]) <= blur * max(abs(float(ratios[0])), 1.0)):
        return None
    if np.all(np.abs(ratios) <= blur):
        return Fault("zero", f"is zero at {lie}")
    factor = named(trial.target, float(ratios[0]), blur * abs(float(ratios[0])))
    if factor.name == "-1":
        return Fault("sign", f"has the wrong sign at {lie}")
    if factor.is_simple:
        return Fault("factor", f"{factor.phrase} at {lie}")
    return None


def _region_of(trial: Trial, point: int, indices: list[tuple[int, ...]]) -> Region | None:
    """A region that holds the entries found, outside of which the gradient is right."""
    made = 0
    for region in regions(trial.target.points[point], indices[0], trial.target.point_paths[point]):
        if not all(region.mask[i] for i in indices):
            continue
        if not _mostly_wrong(trial, point, region):
            continue
        made += 1
        if made > REGIONS or trial.spent:
            return None
        if trial.rest_agrees(point, region.mask):
            return region
    return None


def _mostly_wrong(trial: Trial, point: int, region: Region) -> bool:
    """Whether most of a few entries of a region, picked at random, are wrong."""
    places = np.argwhere(region.mask)
    picked = trial.target.rng(region.text).permutation(len(places))[:PICKED]
    wrong = 0
    for number in picked:
        index = tuple(int(i) for i in places[number])
        true, allowed = trial.entry(point, index)
        wrong += abs(trial.gradient[point][index] - true) > allowed
    return 2 * wrong > len(picked)


def single_fault(trial: Trial, point: int, index: tuple[int, ...], worst: Worst) -> Fault | None:
    """A zero, a sign or a simple factor of one entry, whose repair was seen to agree."""
    at = trial.target.point_paths[point] + place(index)
    region = Region(at, np.zeros(trial.target.points[point].shape, bool))
    region.mask[index] = True
    if worst.derivative == 0:
        return Fault("zero", f"is zero at {at}", None, region)
    if abs(worst.difference) <= worst.error <= constant("factor_blur") * abs(worst.derivative):
        return Fault("not zero", f"should be zero at {at}", None, region)
    ratio = worst.ratio
    if isinstance(ratio, complex):
        if abs(worst.derivative - np.conj(worst.difference)) <= 4 * worst.error:
            return Fault("conjugated", f"is conjugated at {at}", None, region)
        if abs(ratio.imag) > 4 * worst.error / abs(worst.difference):
            return None
        ratio = ratio.real
    if not np.isfinite(ratio):
        return None
    error = 4 * worst.error / abs(worst.difference) * abs(ratio)
    factor = named(trial.target, float(ratio), error)
    if factor.name == "-1":
        return Fault("sign", f"has the wrong sign at {at}", None, region)
    x = trial.target.points[point][index]
    if not factor.is_simple and np.isrealobj(x) and np.isfinite(x):
        text = of_entry(float(ratio), error, at, float(x))
        factor = Factor(factor.value, text) if text else factor
    if factor.is_told:
        return Fault("factor", f"{factor.phrase} at {at}", None, region)
    return None
