"""float32, f16 and bf16: the same function at float64 gives differences without their noise.

In f16 and bf16 the derivative itself is asked at float64 too: there it has to be right to the last
digits that float32 has, where its own arithmetic leaves a few percent open.
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff import tree
from checks.gradients.evidence import Evidence
from checks.gradients.framework import Native
from checks.gradients.inside import HALF
from checks.gradients.modes import (
    ModeError,
    Modes,
    UndefinedModeError,
    first_line,
    modes_of,
    natives_like,
)
from checks.gradients.report import DOMAIN, INCONCLUSIVE, PASS, UNDEFINED, WRONG, Check
from checks.gradients.target import Target, unit_of, wide
from checks.gradients.verdicts import Judged, judge
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
NO_TWIN = "the function does not run at float64: its own noise decides"
HALVES = {"float16", "bfloat16"}


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
    pairs = zip(target.first[0], values, strict=True)
    return twin if all(_close(a, b, target.unit) for a, b in pairs) else None


@dataclasses.dataclass(frozen=True)
class Broad:
    """A float16 or bfloat16 function and its derivatives at float64."""

    twin: Target
    modes: Modes


def broad_of(target: Target, modes: Modes) -> Broad | None:
    """A function of float16 or bfloat16 and its own derivatives at float64 arguments; None for
    wider ones, and where the function or a derivative does not follow: a note says so.
    """
    if target.unit <= HALF:
        return None
    twin = twin_of(target)
    if twin is None:
        if modes.reverse is None:  # else `sharpened` says so
            target.notes.append(_note(target, NO_TWIN))
        return None
    wanted = [m for m in ("reverse", "forward") if getattr(modes, m) is not None]
    found = modes_of(twin, wanted)
    try:
        _try(twin, found)
    except Exception as error:  # a kernel of one dtype: whatever it raises, it does not follow
        why = str(error) if isinstance(error, ModeError) else first_line(error)
        target.notes.append(_note(target, f"its derivative does not run at float64 ({why})"))
        return None
    made = Broad(twin, found)
    target.__dict__["broad"] = made
    return made


def _try(twin: Target, modes: Modes) -> None:
    """Run each mode once; a mode that the function does not have is no refusal."""
    pairs = (
        (modes.reverse, [wide(c) for c in twin.cotangents()]),
        (modes.forward, twin.direction()),
    )
    for run, along in pairs:
        if run is not None:
            with contextlib.suppress(UndefinedModeError):
                run(along)


def rounds_inside(target: Target, broad: Broad) -> bool:
    """Whether the derivative computes in float16 or bfloat16 at float64 arguments too (it saved
    something so): what it is off by there says nothing.
    """
    twin, manual = broad.twin, broad.twin.manual
    cts = natives_like(twin, twin.cotangents(), twin.centre)

    def pulled(arrays: Sequence[Native]) -> list[Native]:
        if not manual.given:
            return [g for g in twin.framework.vjp(twin.flat, arrays)[1](cts) if g is not None]
        values, treedef = twin.first
        filled = list(values)
        for i, ct in zip(twin.smooth, cts, strict=True):
            filled[i] = ct
        full = list(twin.originals)
        for i, x in zip(twin.positions, arrays, strict=True):
            full[i] = x
        args = tree.unflatten(tree.flatten(twin.args)[1], full)
        if manual.vjp is not None:
            found = manual.vjp(*args, tree.unflatten(treedef, filled))
        else:
            whole = manual.gradient or manual.jac
            found = () if whole is None else whole(*args)
        return [g for g in tree.flatten(found)[0] if twin.framework.owns(g)]

    try:
        names = twin.framework.inside(pulled, twin.native(twin.points))
    except Exception:  # not to be recorded: taken for what it claims to be
        return False
    if not names & HALVES:
        return False
    which = " and ".join(sorted(names & HALVES))
    target.notes.append(_note(target, f"its derivative computes in {which} at float64 too"))
    return True


def exactly(tolerance: float) -> float:
    """What the derivative of a float16 or bfloat16 function may be off by at float64, of the
    largest entry: it may hold parts of float32.
    """
    return max(tolerance, constant("narrow_units") * HALF)


def noted(target: Target, broad: Broad, checks: Sequence[Check], notes: list[str]) -> list[Check]:
    """The checks at float64, said to be so; a note of what they found."""
    wrong = [c.name for c in checks if c.verdict == WRONG]
    if wrong:
        notes.append(_note(target, f"{' and '.join(wrong)} judged at float64 arguments"))
    elif all(c.verdict in (PASS, UNDEFINED) for c in checks):
        least = max((c.detectable for c in checks), default=0.0)
        text = f"at float64 the derivative is right to {least:.1e} of the largest entry"
        notes.append(_note(target, text))
    return [dataclasses.replace(c, detail=f"{c.detail}, at float64") for c in checks]


def narrow_tolerance(target: Target) -> float:
    """What narrow arithmetic may make of a derivative, of its largest entry."""
    return min(constant("narrow_units") * target.unit, constant("narrow_most"))


def _close(narrow: Array, found: Array, unit: float) -> bool:
    if narrow.shape != found.shape:
        return False
    if narrow.dtype.kind in "biu":
        return bool(np.array_equal(narrow, found))
    size = float(np.max(np.abs(wide(found)), initial=0.0))
    allowed = constant("narrow_units") * max(unit, unit_of(narrow.dtype)) * size
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
        notes.append(_note(target, NO_TWIN))
        return judged, evidence
    tolerance = max(evidence.tolerance, narrow_tolerance(target))
    sharp = dataclasses.replace(evidence, target=twin, tolerance=tolerance, probes=[])
    found = judge(sharp, judged.check.name, judged.probe.direction)
    check = found.check
    if check.verdict == PASS:
        detail = f"{check.detail}, at float64"
        notes.append(_note(target, "held against differences of the function at float64"))
        return dataclasses.replace(found, check=dataclasses.replace(check, detail=detail)), sharp
    if check.verdict == WRONG and judged.check.verdict in (INCONCLUSIVE, DOMAIN):
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


__all__ = [
    "Broad",
    "broad_of",
    "by_the_dot_test",
    "exactly",
    "narrow_tolerance",
    "noted",
    "sharpened",
    "twin_of",
]
