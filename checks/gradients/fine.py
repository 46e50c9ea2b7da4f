"""Steps far below a ladder's: what lies between its steps (a kink, a period, a narrow bump).

A kink at a distance d moves differences of step h > d by d / h, which a ladder cannot tell from
noise; below d they settle. They are believed where three of them agree, both sides alike, and what
comes before is not smooth: it bends, or it is many times smaller (all steps jump over a period).
Where rounding inside the function hides the fine steps, the coarse ones are straight.
"""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np

from checks.gradients.line import Estimate, Found, Line, Rung, explained, first_step
from checks.gradients.tableau import smaller
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
RATIO = 4.0  # of a step to the next finer one
ALIKE = 3  # steps that agree
BEYOND = (1, 2)  # rungs past the last that agrees, at which a kink still bends


def is_unsure(found: Estimate, gaps: Array) -> bool:
    """Whether a ladder says so little of a reading that is off, or bends there, or finds so much
    less than is claimed (steps that jump over periods agree), that finer steps may say otherwise.
    """
    size = np.maximum(np.abs(found.value), gaps)
    rough = (found.allowed > constant("fine_unsure") * size) | (found.noise > 0)
    rough |= np.abs(found.value) <= constant("fine_floor") * gaps
    bent = (found.jump != 0) | found.diverges
    return bool(np.any((rough & (gaps > found.allowed)) | bent))


def settled(line: Line, found: Estimate, gaps: Array) -> Estimate | None:
    """The estimate with the readings that settle at far finer steps taken from there; None where
    none does.
    """
    bent = (found.jump != 0) | found.diverges
    wanted = np.where(bent | (gaps > found.allowed), np.maximum(gaps, np.abs(found.jump)), 0.0)
    finest = _finest(line, wanted)
    if not found.rungs or finest is None or finest * RATIO**ALIKE > first_step(line.unit):
        return None
    first = line.rung(finest)
    same = constant("same_at_every_step") * wanted
    if not first.finite or not np.any((wanted > 0) & (np.abs(first.odd - found.value) > same)):
        return None
    rungs = [first, *(line.rung(finest * RATIO**k) for k in range(1, ALIKE))]
    if not all(r.finite for r in rungs):
        return None
    good = _alike(line, rungs, wanted)
    if not np.any(good):
        return None
    rungs, count = _extended(line, rungs, good, wanted)
    return _merged(line, found, (rungs, count), good & _is_hidden(line, rungs, count, found))


def kink_at(line: Line, found: Estimate, gap: float) -> Estimate | None:
    """The estimate with the first reading's one-sided slopes taken from the finest steps that tell
    a gap, where they differ by as much at each of them: a kink at the point itself, whatever lies
    beside it. None where they do not.
    """
    wanted = np.zeros_like(found.value)
    wanted[0] = gap
    finest = _finest(line, wanted)
    if finest is None or finest * RATIO > first_step(line.unit):
        return None
    rungs = [line.rung(finest * 2.0**k) for k in range(ALIKE)]
    if not all(r.finite for r in rungs):
        return None
    even = np.array([r.even[0] for r in rungs])
    floor, same = float(_floor(line, rungs[0])[0]), constant("same_at_every_step")
    moved = max(float(np.ptp(even)), abs(float(rungs[0].odd[0] - rungs[-1].odd[0])))
    if not np.min(np.abs(even)) > max(constant("bend") * floor, moved / same):
        return None
    first = np.arange(found.value.size) == 0
    return dataclasses.replace(
        found,
        value=np.where(first, 2 * rungs[1].odd - rungs[0].odd, found.value),
        moved=np.where(first, 0.0, found.moved),
        floor=np.where(first, ALIKE * floor, found.floor),
        jump=np.where(first, 2 * even[1] - even[0], found.jump),  # beside it they miss by d / h
        step=finest,
        blocks=(),
        diverges=found.diverges & ~first,
    )


def _finest(line: Line, wanted: Array) -> float | None:
    """The finest step at which round-off is far below what is wanted of every reading."""
    if not np.any(wanted > 0) or line.unit > constant("narrow_unit"):
        return None
    floor = line.floor(1.0, line.coarseness())
    moved = constant("roundoff_floor_factor") * line.unit * line.clustered
    need = floor / np.where(wanted > 0, wanted, np.inf) + moved
    step = 2.0 ** math.ceil(math.log2(float(np.max(need)) / constant("fine_floor")))
    return max(step, constant("gradient_finest_step"))


def _floor(line: Line, rung: Rung) -> Array:
    """Round-off of a difference, that of the moved points included."""
    size = np.maximum(line.scale, np.abs(rung.odd))
    points = constant("roundoff_floor_factor") * line.unit * line.clustered * size / rung.step
    return np.asarray(line.floor(rung.step, line.coarseness()) + points)


def _alike(line: Line, rungs: list[Rung], wanted: Array) -> Array:
    """Readings that do not move from rung to rung, nor bend."""
    good = wanted > 0
    for rung in rungs:
        slack = constant("noise_factor") * (_floor(line, rungs[0]) + _floor(line, rung))
        slack += constant("fine_floor") * wanted
        good &= (np.abs(rung.odd - rungs[0].odd) <= slack) & (np.abs(rung.even) <= slack)
    return np.asarray(good)


def _extended(line: Line, rungs: list[Rung], good: Array, wanted: Array) -> tuple[list[Rung], int]:
    """Coarser rungs up to some beyond the last that agrees, and how many agree."""
    count, step = len(rungs), rungs[-1].step * RATIO
    while step <= 4 * first_step(line.unit) and len(rungs) <= count + max(BEYOND):
        rungs.append(line.rung(step))
        slack = constant("noise_factor") * (_floor(line, rungs[0]) + _floor(line, rungs[-1]))
        off = np.abs(rungs[-1].odd - rungs[0].odd)
        slack += constant("fine_floor") * np.minimum(np.abs(rungs[0].odd), wanted)
        if len(rungs) == count + 1 and np.all(off[good] <= slack[good]):
            count += 1
        step *= RATIO
    return rungs, count


def _is_hidden(line: Line, rungs: list[Rung], count: int, found: Estimate) -> Array:
    """Readings that bend beyond the steps that agree, and still at a ladder's first step, or that
    coarser steps make far smaller.
    """
    value, share = rungs[count - ALIKE].odd, constant("same_at_every_step")
    small = np.abs(value) * share > np.abs(found.value)
    if len(rungs) <= count + max(BEYOND):
        return np.asarray(small)
    bends = np.ones_like(small)
    for rung in (*(rungs[count + k] for k in BEYOND), line.rung(first_step(line.unit))):
        bends &= np.abs(rung.even) >= share * np.abs(rung.odd - value)
        bends &= np.isfinite(rung.odd)
    return np.asarray(small | bends)


def _merged(
    line: Line, found: Estimate, run: tuple[list[Rung], int], take: Array
) -> Estimate | None:
    """The estimate with the readings of a mask read from the fine rungs."""
    if not take[0]:
        return None
    rungs, count = run[0][: run[1]], run[1]
    best: Found = (rungs[0].odd, np.abs(rungs[1].odd - rungs[0].odd), _floor(line, rungs[0]))
    for fine, coarse in itertools.pairwise(rungs):
        moved = np.abs(fine.odd - coarse.odd)
        value = fine.odd + (fine.odd - coarse.odd) / (RATIO**2 - 1)
        best = smaller(best, (value, moved / RATIO, _floor(line, fine)))
        best = smaller(best, (coarse.odd, moved, _floor(line, coarse)))
    value, moved, floor = (
        np.where(take, new, old)
        for new, old in zip(best, (found.value, found.moved, found.floor), strict=True)
    )
    step = rungs[count - 3].step
    return dataclasses.replace(
        found,
        value=value,
        moved=moved,
        floor=floor,
        jump=np.where(take, 0.0, found.jump),
        step=step,
        step_error=np.abs(rungs[count - 3].odd - value) + moved,
        rungs=(2 * step, step),
        last=explained(moved, floor),
        blocks=(),
        noise=np.where(take, 0.0, found.noise),
        diverges=found.diverges & ~take,
    )
