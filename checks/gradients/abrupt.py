"""Functions that jump at the point itself, and staircases: what differences cannot judge there.

A comparison with the point's own value (`target == 1`) makes a function whose value there is not
the limit from either side: central differences do not see the value, derivatives follow it. Over a
staircase (rounding to a grid) all steps of a ladder see the slope of the stairs, and a derivative
that of one stair.
"""

import math
from typing import Any

import numpy as np

from checks.gradients.evidence import Direction, Evidence, Probe
from checks.gradients.inside import coarsest_inside
from checks.tolerances import constant

STEPS = (2.0**-18, 2.0**-21)
STAIRS = (2.0**-22, 2.0**-25, 2.0**-28)  # a stair's edge is rarely so near
STAIRCASE = (
    "the finest steps agree with the derivative, coarser ones do not: a staircase (rounding to a "
    "grid), or arithmetic of few digits"
)


def jumping(evidence: Evidence, direction: Direction) -> list[int]:
    """The points along whose part of a direction the function jumps at once, by as much at every
    fine step, to both sides alike.
    """
    return [k for k, part in enumerate(direction) if np.any(part) and _jumps(evidence, k, part)]


def _jumps(evidence: Evidence, k: int, part: np.ndarray[Any, Any]) -> bool:
    points = evidence.target.points
    line = evidence.line([part if i == k else np.zeros_like(x) for i, x in enumerate(points)])
    sizes = []
    for step in STEPS:
        rung = line.rung(step)
        size = abs(float(rung.even[0])) * step
        floor = float(line.floor(step, line.coarseness())[0]) * step
        if not rung.finite or size <= constant("bend") * floor:
            return False
        sizes.append(size)
    return max(sizes) - min(sizes) <= constant("same_at_every_step") * max(sizes)


def agrees_nearby(evidence: Evidence, probe: Probe) -> bool:
    """Whether the finest steps agree with a claim that a rough ladder contradicts."""
    rough = probe.allowed > constant("fine_unsure") * (probe.size or 1.0)
    narrow = evidence.target.unit > constant("narrow_unit")
    if not rough or narrow or not math.isfinite(probe.claimed):
        return False
    line = evidence.line(probe.direction)
    for step in STAIRS:
        rung = line.rung(step)
        floor = constant("noise_factor") * float(line.floor(step, line.coarseness())[0])
        off = abs(float(rung.odd[0]) - probe.claimed)
        if not off <= floor + evidence.tolerance * abs(probe.claimed):
            return False
        if floor > constant("fine_floor") * abs(probe.residual):
            return False
    return not coarsest_inside(evidence.target)[0]
