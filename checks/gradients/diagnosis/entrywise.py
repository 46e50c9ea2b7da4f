"""Faults told by what the function does to each entry: a factor that is an argument or the result,
the sign of another argument, what one entry does to other results.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.forward import is_inexact
from checks.gradients.diagnosis.causes import Fault
from checks.gradients.diagnosis.factors import LARGEST_EXPONENT
from checks.gradients.diagnosis.trial import Trial
from checks.gradients.target import Target, wide
from checks.gradients.verdicts import result_cotangents
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
LEAVES = 8
ENTRIES = 256


def by_entry(trial: Trial, point: int) -> Fault | None:
    """A factor too much or too few that is a known array; no call of the function."""
    claim = trial.gradient[point]
    if np.count_nonzero(claim) < 3:
        return None
    for text, factor in _factors(trial.target, point):
        with np.errstate(all="ignore"):
            new = claim * factor
        if np.all(np.isfinite(new)) and trial.holds(point, new):
            return Fault("factor", text, new)
    return None


def _factors(target: Target, point: int) -> Iterator[tuple[str, Array]]:
    """What a claim is to be multiplied by: words, array."""
    x, path = target.points[point], target.point_paths[point]
    for name, base in _bases(target, x.shape):
        too_much, missing = "times the true one, entry by entry", "lacks a factor of"
        for power, text in ((1, name), (2, f"{name}**2")):
            with np.errstate(all="ignore"):
                yield f"is {text} {too_much}", np.where(base == 0, 0.0, base ** float(-power))
            yield f"{missing} {text}, entry by entry", base**power
        if name.startswith("the result"):
            for text, factor in (
                ("1 - y**2", 1 - base**2),
                ("y (1 - y)", base * (1 - base)),
                ("1 - y", 1 - base),
            ):
                yield f"{missing} {text}, y being {name}", factor
            own = wide(x)
            with np.errstate(all="ignore"):
                swapped = (
                    ("1 - y**2", (1 - base**2) / (1 - own**2)),
                    ("y (1 - y)", base * (1 - base) / (own * (1 - own))),
                )
            for text, factor in swapped:
                yield f"has {path} for y in {text}, y being {name}", factor
        elif np.max(np.abs(base)) < LARGEST_EXPONENT:
            yield f"{missing} exp({name}), entry by entry", np.exp(base)


def _bases(target: Target, shape: tuple[int, ...]) -> Iterator[tuple[str, Array]]:
    """Arguments and results that fit a shape, are not constant and not complex."""
    given = list(zip(target.paths, target.leaves, strict=True))[:LEAVES]
    one = len(target.centre) == 1
    made = [
        ("the result" if one else f"the result {i}", y)
        for i, y in zip(target.smooth, target.centre, strict=True)
        if y.shape == shape
    ]
    for name, array in [*given, *made]:
        if not isinstance(array, np.ndarray) or array.dtype.kind == "c" or array.size < 2:
            continue
        if not is_inexact(array.dtype) or not _fits(array.shape, shape):
            continue
        base = np.broadcast_to(wide(array), shape)
        spread = float(np.max(base) - np.min(base))
        if np.all(np.isfinite(base)) and spread > constant("factor_blur") * float(
            np.max(np.abs(base))
        ):
            yield name, base


def _fits(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether an array broadcasts to a shape."""
    try:
        return np.broadcast_shapes(own, shape) == shape
    except ValueError:
        return False


def elsewhere(trial: Trial, point: int) -> Fault | None:
    """The gradient of one entry's own result alone; of the function at another point."""
    return _diagonal(trial, point) or _at_the_result(trial, point) or _negated(trial, point)


def _at_the_result(trial: Trial, point: int) -> Fault | None:
    """The claim is the derivative at the result, where it should be at the argument."""
    target = trial.target
    x, centre = target.points[point], target.centre
    if trial.is_narrow or len(centre) != 1 or centre[0].size < 2:
        return None
    if (centre[0].shape, centre[0].dtype) != (x.shape, x.dtype):
        return None
    if _holds_for(trial, point, _with(target, target.positions[point], centre[0])):
        path = target.point_paths[point]
        return Fault("point", f"is taken at the result where it should be at {path}")
    return None


def _negated(trial: Trial, point: int) -> Fault | None:
    """The claim is right for the function with the sign of another argument changed."""
    target = trial.target
    if trial.is_narrow:
        return None
    skip = target.positions[point]
    tried = 0
    for i, (path, leaf) in enumerate(zip(target.paths, target.leaves, strict=True)):
        if i == skip or not isinstance(leaf, np.ndarray) or not is_inexact(leaf.dtype):
            continue
        tried += 1
        if tried > LEAVES or trial.spent or not np.any(leaf):
            return None
        if _holds_for(trial, point, _with(target, i, -leaf)):
            what = f"is that of the function at -{path}: the sign of the terms in {path}"
            return Fault("sign", what)
    return None


def _with(target: Target, number: int, leaf: Array) -> Target:
    """The same call with another array in the place of one leaf."""
    leaves = list(target.originals)
    leaves[number] = target.framework.native(leaf, leaves[number])
    args = tuple(tree.unflatten(target._flat[1], leaves))
    return dataclasses.replace(target, args=args)


def _holds_for(trial: Trial, point: int, other: Target) -> bool:
    """Whether the claim is the gradient of another function, along both directions."""
    if [(y.shape, y.dtype) for y in other.centre] != [
        (y.shape, y.dtype) for y in trial.target.centre
    ]:
        return False
    evidence = dataclasses.replace(trial.evidence, target=other, probes=[], step=0.0, rungs=())
    for number in (0, 1):
        base = trial.fresh(point, number)
        probe, _ = evidence.careful(base.direction)
        if not trial.is_as(probe, base):
            return False
    return True


def _diagonal(trial: Trial, point: int) -> Fault | None:
    """The claim is `u_i df_i/dx_i`: what an entry does to the other results is missing."""
    target, us = trial.target, trial.evidence.cotangents
    x, claim = target.points[point], trial.gradient[point]
    if len(us) != 1 or us[0].shape != x.shape or not 1 < x.size <= ENTRIES or trial.is_narrow:
        return None
    if "c" in (x.dtype.kind, us[0].dtype.kind) or point in target.symmetric_points:
        return None
    largest = float(np.max(np.abs(claim), initial=0.0))
    for number, index in enumerate(np.ndindex(x.shape)):
        if trial.spent:
            return None
        if not trial.free[point][index]:
            continue
        _, cotangents = result_cotangents(target.centre, number)
        cotangents[0][index] = us[0][index]
        single = np.zeros_like(claim)
        single[index] = step = float(trial.size(point)[index])
        evidence = dataclasses.replace(trial.evidence, cotangents=cotangents, probes=[], rungs=())
        probe, _ = evidence.careful(trial.alone(point, single))
        limit = max(probe.explains / step, trial.evidence.tolerance * largest)
        off = abs(claim[index] - probe.difference / step)
        if not off <= limit <= constant("factor_blur") * largest:
            return None
    text = "uses the diagonal of the Jacobian alone: what an entry does to the other results"
    return Fault("diagonal", f"{text} is missing")
