"""float32, float16 or bfloat16 inside a float64 function: what such arithmetic can be blamed for.

Sums that cancel in it make stairs wider than a ladder's steps, whose slopes agree with one another
and not with the function's. So a fault that only differences of such a function show has to be
larger than its roundings, and to show at a step many stairs wide too.
"""

import dataclasses
from typing import Any

import numpy as np

from checks.gradients.evidence import Evidence, Probe, both_sides
from checks.gradients.ladder import first_step
from checks.gradients.report import INCONCLUSIVE, PASS, WRONG, Check
from checks.gradients.target import Target, unit_of
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
NARROW = ("float32", "float16", "bfloat16")
HALF = unit_of(np.dtype(np.float32))  # units above it: float16, bfloat16


def coarsest_inside(target: Target) -> tuple[float, str]:
    """The largest unit roundoff of the arithmetic inside a function, and the dtype's name; 0 where
    all of it is wide, or where that is not known.
    """
    known: dict[str, Any] = target.__dict__
    if "inside" not in known:
        try:
            names = target.framework.inside(target.flat, target.native(target.points))
        except Exception:  # a function that cannot be recorded: nothing is known of its inside
            names = set()
        units = [(unit_of(_dtype(name)), name) for name in NARROW if name in names]
        known["inside"] = max(units, default=(0.0, ""))
    found: tuple[float, str] = known["inside"]
    return found


def _dtype(name: str) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def share_inside(target: Target) -> float:
    """What the arithmetic inside may make of a derivative, of its largest entry."""
    return min(constant("narrow_units") * coarsest_inside(target)[0], constant("narrow_most"))


def stands(evidence: Evidence, probe: Probe) -> bool:
    """Whether a disagreement is more than the arithmetic inside a function explains."""
    target = evidence.target
    if target.unit > constant("narrow_unit") or not np.isfinite(probe.claimed):
        return True
    unit, _ = coarsest_inside(target)
    if unit <= constant("narrow_unit"):
        return True
    if abs(probe.residual) <= share_inside(target) * probe.size:
        return False
    return unit <= HALF or _shows_at_a_wide_step(evidence, probe, unit)


def _shows_at_a_wide_step(evidence: Evidence, probe: Probe, unit: float) -> bool:
    """A wrong claim is off by about as much at a step many stairs wide."""
    step, values = first_step(unit), []
    for h in (step, step / 2):
        up, down, _ = both_sides(evidence.target, probe.direction, h)
        values.append(evidence.read([a - b for a, b in zip(up, down, strict=True)]) / (2 * h))
    wide = (4 * values[1] - values[0]) / 3
    off = probe.claimed - wide
    if not np.isfinite(off):
        return True
    rough = constant("bend") * unit * evidence.size_of(evidence.target.centre) / step
    return bool(
        off * probe.residual > 0
        and abs(off)
        > max(abs(probe.residual) / 2, rough, share_inside(evidence.target) * probe.size)
    )


def excused(evidence: Evidence, probe: Probe, check: Check) -> Check:
    """A check as it is, or INCONCLUSIVE where the arithmetic inside may explain what it found."""
    if check.verdict != WRONG or stands(evidence, probe):
        return check
    _, name = coarsest_inside(evidence.target)
    share = max(check.error, share_inside(evidence.target))
    text = f"{check.detail}; the function computes in {name} inside, which may explain that"
    return dataclasses.replace(
        check, verdict=INCONCLUSIVE, allowed=share, detectable=share, detail=text, worst=None
    )


def of_one_road(target: Target, check: Check) -> Check:
    """A comparison of one function on two roads: PASS where the arithmetic inside, rounded in
    another order, explains what they differ by.
    """
    if check.verdict != WRONG or target.unit > constant("narrow_unit"):
        return check
    share = share_inside(target)
    if not 0 < check.error <= share:
        return check
    text = f"the roads differ by no more than {coarsest_inside(target)[1]} inside explains"
    return dataclasses.replace(
        check, verdict=PASS, allowed=share, detectable=share, detail=text, worst=None
    )


__all__ = ["HALF", "coarsest_inside", "excused", "of_one_road", "share_inside", "stands"]
