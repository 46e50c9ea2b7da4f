"""float32, f16 and bf16: the same function at float64 gives differences without their noise."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff import tree
from checks.gradients.evidence import Evidence
from checks.gradients.report import INCONCLUSIVE, PASS, WRONG, Check
from checks.gradients.target import Target, unit_of, wide
from checks.gradients.verdicts import Judged, judge
from checks.tolerances import constant

Array = np.ndarray[Any, Any]


def twin_of(target: Target) -> Target | None:
    """The target at float64 (complex128) arguments; None where the function does not follow.

    It follows where all its results come back wide and agree with the narrow ones.
    """
    leaves = list(target.originals)
    for i, x in zip(target.positions, target.points, strict=True):
        leaves[i] = target.framework.native(wide(x), target.originals[i])
    args = tuple(tree.unflatten(tree.flatten(target.args)[1], leaves))
    twin = dataclasses.replace(target, args=args, replay=None)
    try:
        values = twin.first[0]
    except Exception:  # a kernel of one dtype: any refusal means that there is no twin
        return None
    if len(values) != len(target.first[0]) or twin.unit > constant("narrow_unit"):
        return None
    return twin if all(map(_close, target.first[0], values)) else None


def narrow_tolerance(target: Target) -> float:
    """What narrow arithmetic may make of a derivative, of its largest entry."""
    return min(constant("narrow_units") * target.unit, constant("narrow_most"))


def _close(narrow: Array, found: Array) -> bool:
    if narrow.shape != found.shape:
        return False
    if narrow.dtype.kind in "biu":
        return bool(np.array_equal(narrow, found))
    size = float(np.max(np.abs(wide(found)), initial=0.0))
    allowed = constant("narrow_units") * unit_of(narrow.dtype) * size
    return bool(np.all(np.abs(wide(narrow) - wide(found)) <= allowed))


def sharpened(
    target: Target, evidence: Evidence, judged: Judged, notes: list[str]
) -> tuple[Judged, Evidence]:
    """A check in narrow arithmetic judged again by differences at float64.

    Agreement there makes it PASS, with a smaller detectable error. A disagreement fails what the
    narrow differences could not decide, and is a note where they could: the derivative is as good
    as its own arithmetic.
    """
    twin = twin_of(target)
    if twin is None:
        notes.append(_note(target, "the function does not run at float64: its own noise decides"))
        return judged, evidence
    tolerance = max(evidence.tolerance, narrow_tolerance(target))
    sharp = dataclasses.replace(evidence, target=twin, tolerance=tolerance, probes=[])
    found = judge(sharp, judged.check.name, judged.probe.direction)
    check = found.check
    if check.verdict == PASS:
        detail = f"{check.detail}, at float64"
        notes.append(_note(target, "held against differences of the function at float64"))
        return dataclasses.replace(found, check=dataclasses.replace(check, detail=detail)), sharp
    if check.verdict == WRONG and judged.check.verdict == INCONCLUSIVE:
        return found, sharp
    if check.verdict == WRONG:
        notes.append(
            _note(target, f"{check.error:.1e} of the largest entry away from its float64 value")
        )
    return judged, evidence


def _note(target: Target, text: str) -> str:
    names = {a.dtype.name for a in (*target.points, *target.centre)} - {"float64", "complex128"}
    return f"{', '.join(sorted(names))}: {text}"


def by_the_dot_test(checks: Sequence[Check]) -> list[Check]:
    """A forward mode too noisy to judge is right where it is the transpose of a right reverse."""
    passed = {c.name: c for c in checks if c.verdict == PASS}
    if not {"reverse", "dot"} <= passed.keys():
        return list(checks)
    caught, text = passed["reverse"].detectable, "the transpose of reverse mode (dot test)"
    return [
        dataclasses.replace(c, verdict=PASS, detectable=caught, detail=text)
        if c.name == "forward" and c.verdict == INCONCLUSIVE
        else c
        for c in checks
    ]


__all__ = ["by_the_dot_test", "narrow_tolerance", "sharpened", "twin_of"]
