"""First order: reverse and forward mode against differences, and against one another."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from checks.gradients.evidence import FEW, Direction, Evidence, entries
from checks.gradients.inside import coarsest_inside, excused, share_inside
from checks.gradients.locate import search
from checks.gradients.modes import ModeError, Modes, UndefinedModeError
from checks.gradients.narrow import (
    broad_of,
    by_the_dot_test,
    exactly,
    noted,
    rounds_inside,
    sharpened,
)
from checks.gradients.report import (
    DOMAIN,
    INCONCLUSIVE,
    KINK,
    PASS,
    UNDEFINED,
    VACUOUS,
    WRONG,
    Check,
)
from checks.gradients.target import Target, pair, tiny_direction, unit_of, wide
from checks.gradients.verdicts import (
    ZERO,
    Judged,
    bracket,
    is_vacuous,
    judge,
    result_cotangents,
    worst_of,
)
from checks.tolerances import constant

Array = np.ndarray[Any, Any]


@dataclasses.dataclass
class Work:
    """One check of first order under way.

    `seen` is the target whose differences are looked at: the target, or its float64 twin.
    """

    target: Target
    seen: Target
    modes: Modes
    cotangents: list[Array]
    direction: Direction
    tolerance: float
    notes: list[str]
    checks: list[Check] = dataclasses.field(default_factory=list)
    failed: list[Evidence] = dataclasses.field(default_factory=list)
    judged: Judged | None = None
    pulled: list[Array] | None = None


def first_order(
    target: Target, modes: Modes, tolerance: float | None, notes: list[str]
) -> tuple[list[Check], list[Evidence]]:
    """The checks of first order, and the evidence of those that failed.

    In float16 and bfloat16 the same is asked at float64 first, where what is wrong shows.
    """
    tolerance = constant("gradient_tolerance") if tolerance is None else tolerance
    broad = broad_of(target, modes)
    if broad is not None:
        checks, failed = first_order(broad.twin, broad.modes, exactly(tolerance), [])
        wrong = any(c.verdict == WRONG for c in checks)
        if not wrong:
            noted(target, broad, checks, notes)
        elif not rounds_inside(target, broad):
            return noted(target, broad, checks, notes), failed
        else:
            del target.__dict__["broad"]
    u, v = [wide(c) for c in target.cotangents()], target.direction()
    work = Work(target, target, modes, u, v, tolerance, notes)
    for name, run in (("reverse", _reverse), ("forward", _forward)):
        if getattr(modes, name) is None:
            continue
        try:
            run(work)
        except ModeError as error:
            work.checks.append(Check(name, error.verdict, detail=str(error)))
        except UndefinedModeError as error:
            work.checks.append(Check(name, UNDEFINED, detail=str(error)))
    return by_the_dot_test(work.checks), work.failed


def _reverse(work: Work) -> None:
    assert work.modes.reverse is not None
    work.pulled = work.modes.reverse(work.cotangents)
    evidence = Evidence(work.target, work.cotangents, work.pulled, tolerance=work.tolerance)
    judged = judge(evidence, "reverse", work.direction)
    narrow = work.target.unit > constant("narrow_unit")
    if narrow and judged.check.verdict in (PASS, INCONCLUSIVE, WRONG, KINK, DOMAIN):
        judged, evidence = sharpened(work.target, evidence, judged, work.notes)
        work.seen, work.tolerance = evidence.target, evidence.tolerance
    elif judged.check.verdict == PASS:
        judged, evidence = _with_tiny(work, judged, evidence)
    _keep(work, judged, evidence)
    work.judged = judged


def _with_tiny(work: Work, judged: Judged, evidence: Evidence) -> tuple[Judged, Evidence]:
    """Entries far smaller than the others of their array, moved alone: beside those they move the
    results by less than is told. What says nothing of them leaves the check as it was.
    """
    tiny = tiny_direction(work.target, work.direction)
    if tiny is None:
        return judged, evidence
    alone = dataclasses.replace(evidence, probes=[], step=0.0, rungs=())
    found = judge(alone, "reverse", tiny)
    if found.check.verdict not in (WRONG, KINK) or not np.isfinite(found.probe.error):
        return judged, evidence
    return found, alone


def _keep(work: Work, judged: Judged, evidence: Evidence) -> None:
    work.notes += judged.notes
    check = excused(evidence, judged.probe, judged.check)
    work.checks.append(check)
    if check.verdict in (WRONG, KINK):
        work.failed.append(evidence)


def _forward(work: Work) -> None:
    push = work.modes.forward
    assert push is not None
    dots = push(work.direction if work.judged is None else work.judged.probe.direction)
    evidence = Evidence(work.seen, work.cotangents, None, push=push, tolerance=work.tolerance)
    judged = work.judged
    if judged is None or not np.isfinite(judged.probe.error):
        judged = judge(evidence, "forward", work.direction)
        if judged.check.verdict not in (PASS, WRONG) or not np.isfinite(judged.probe.error):
            _keep(work, judged, evidence)
            return
        work.notes += judged.notes
        dots = push(judged.probe.direction)
    evidence.adopt(judged.estimate)
    gaps = _gaps(evidence, judged, dots)
    if gaps is not None:
        probe, estimate = evidence.confirmed(judged.probe, judged.estimate, gaps)
        judged = dataclasses.replace(judged, probe=probe, estimate=estimate)
        evidence.adopt(estimate)
    check = _entrywise(evidence, judged, dots, work.failed)
    work.checks.append(check)
    if work.pulled is not None and check.verdict != VACUOUS:
        work.checks.append(_dot(work, dots, judged))


def _gaps(evidence: Evidence, judged: Judged, dots: Sequence[Array]) -> Array | None:
    """How far each tangent is from its difference; None where all agree and none is at a kink."""
    got, value, allowed, jump = _compared(evidence, judged, dots)[:4]
    off = np.abs(got - value)
    if np.all(off <= allowed) and not np.any(jump):
        return None
    gaps = np.where(off <= allowed, 0.0, off)
    return gaps if gaps.size == judged.estimate.value.size else np.r_[0.0, gaps]


def _compared(
    evidence: Evidence, judged: Judged, dots: Sequence[Array]
) -> tuple[Array, Array, Array, Array, Array]:
    """Tangents, their differences, what may lie between, kinks, and the scale, entry by entry."""
    got, found = entries(dots), judged.estimate
    part = slice(1, None)
    if found.value.size == 1:  # too many results: their projection stands for them
        got, part = np.array([pair(evidence.cotangents, dots)]), slice(0, 1)
    value, jump = found.value[part], np.abs(found.jump[part])
    scale = _block_scale(dots, value, got)
    allowed = np.maximum(found.allowed[part], evidence.tolerance * scale)
    return got, value, allowed, jump, scale


def _entrywise(
    evidence: Evidence, judged: Judged, dots: Sequence[Array], failed: list[Evidence]
) -> Check:
    """Each entry of the tangent against the difference of that result."""
    got, value, allowed, jump, scale = _compared(evidence, judged, dots)
    off = np.abs(got - value)
    bad = ~(off <= allowed + (1 + constant("kink_slack")) * jump)
    size = np.where(scale > 0, scale, 1.0)
    worst = int(np.argmax(np.where(np.isfinite(off), off / size, np.inf))) if off.size else 0
    share = float(np.max(allowed / size, initial=0.0))
    shown = float(off[worst] / size[worst]) if off.size else 0.0
    if judged.check.verdict == KINK and not np.any(bad):
        return Check("forward", KINK, shown, share, share, judged.check.detail)
    if is_vacuous(evidence, judged.probe):
        return Check("forward", VACUOUS, shown, share, np.inf, ZERO)
    if np.any(bad):
        return _wrong_tangent(evidence, judged, dots, worst, (shown, share), failed)
    if np.any(jump) and judged.probe.doubtful:
        return Check("forward", INCONCLUSIVE, shown, share, share, "the results are noisy")
    if np.any(jump):
        return Check("forward", KINK, shown, share, share, "some results are at a kink")
    verdict = INCONCLUSIVE if share > constant("meaningful") else PASS
    return Check("forward", verdict, shown, share, share, f"{off.size} tangents compared")


def _block_scale(dots: Sequence[Array], value: Array, got: Array) -> Array:
    """Per entry the largest entry of its result."""
    size = np.maximum(np.abs(value), np.where(np.isfinite(got), np.abs(got), 0.0))
    if value.size == 1 or sum(d.size for d in dots) > FEW:
        return size
    made, start = np.empty_like(size), 0
    for d in dots:
        count = d.size * (2 if d.dtype.kind == "c" else 1)
        made[start : start + count] = np.max(size[start : start + count], initial=0.0)
        start += count
    return made


def _wrong_tangent(
    evidence: Evidence,
    first: Judged,
    dots: Sequence[Array],
    worst: int,
    numbers: tuple[float, float],
    failed: list[Evidence],
) -> Check:
    """Name the result, then the entry of the arguments that it depends on wrongly.

    The result is looked at alone, by a ladder of its own: where that agrees, or contradicts the
    first one, noise is what was seen.
    """
    result, cotangents = "the results", evidence.cotangents
    if first.estimate.value.size > 1:
        (k, index), cotangents = result_cotangents(dots, worst)
        result = f"result {evidence.target.smooth[k]}{bracket(index)}"
    single = dataclasses.replace(evidence, cotangents=cotangents, probes=[])
    judged = judge(single, "forward", first.probe.direction)
    text = f"{result}: {judged.check.detail}"
    if judged.check.verdict in (PASS, INCONCLUSIVE, VACUOUS, KINK):
        return dataclasses.replace(judged.check, detail=text)
    at = worst - dots_size(dots) if first.estimate.value.size > 1 else 0
    value, error = float(first.estimate.value[at]), float(first.estimate.error[at])
    if abs(judged.probe.difference - value) > constant("bend") * (judged.probe.error + error):
        text += f"; another ladder says {value:.6g} +- {error:.1g}: noise"
        return Check("forward", INCONCLUSIVE, *numbers, numbers[1], text)
    wrong = Check("forward", WRONG, *numbers, numbers[1], text)
    if excused(single, judged.probe, wrong) is not wrong:
        return excused(single, judged.probe, wrong)
    failed.append(single)
    found = judged.check.worst
    if found is None and judged.check.verdict != WRONG:
        entry = search(single, judged.probe)
        found = None if entry is None else worst_of(single, entry)
    named = None if found is None else dataclasses.replace(found, output=result)
    return dataclasses.replace(wrong, worst=named)


def dots_size(dots: Sequence[Array]) -> int:
    """How many real entries the tangents hold."""
    return sum(d.size * (2 if d.dtype.kind == "c" else 1) for d in dots)


def _dot(work: Work, dots: Sequence[Array], judged: Judged) -> Check:
    """`<u, Jv> = <J^T u, v>`: the two modes against each other, without differences."""
    target, u, v = work.target, work.cotangents, judged.probe.direction
    pulled = work.pulled or []
    left, right = pair(u, dots), pair(pulled, v)
    both = (*zip(u, dots, strict=True), *zip(pulled, v, strict=True))
    terms = sum(float(np.sum(np.abs(a * b))) for a, b in both)
    allowed = constant("dot_tolerance")
    if target.unit > constant("narrow_unit"):
        allowed = constant("narrow_units") * target.unit
    elif judged.probe.explains > constant("narrow_inside") * judged.probe.size:
        allowed = constant("narrow_units") * unit_of(np.dtype(np.float32))
    error = abs(left - right) / terms if terms else abs(left - right)
    text = f"<u, Jv> {left!r}, <J^T u, v> {right!r}"
    hidden = _coarse_inside(judged)
    if allowed < error <= hidden:
        text += "; the function computes in float16 or bfloat16 inside, or is as noisy"
        return Check("dot", INCONCLUSIVE, error, hidden, hidden, text)
    if error > allowed and target.unit <= constant("narrow_unit"):
        return _dot_inside(target, error, allowed, text)
    return Check("dot", PASS if error <= allowed else WRONG, error, allowed, allowed, text)


def _dot_inside(target: Target, error: float, allowed: float, text: str) -> Check:
    """Two modes that differ: by no more than the arithmetic inside the function explains?"""
    unit, name = coarsest_inside(target)
    share = share_inside(target)
    if unit and error <= share:
        text += f"; the function computes in {name} inside"
        return Check("dot", INCONCLUSIVE, error, share, share, text)
    return Check("dot", WRONG, error, allowed, allowed, text)


def _coarse_inside(judged: Judged) -> float:
    """What the modes may differ by where differences show noise as of float16 or bfloat16."""
    share = judged.probe.explains / judged.probe.size if judged.probe.size else 0.0
    return min(share, constant("narrow_most")) if share > constant("coarse_inside") else 0.0
