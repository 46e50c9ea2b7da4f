"""Why a gradient is wrong, and where: after the verdict, with calls that are counted apart."""

import dataclasses
import itertools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from checks.gradients.diagnosis import structure as structure
from checks.gradients.diagnosis.causes import Fault, partial_fault, whole_fault, wrong_regions
from checks.gradients.diagnosis.cotangent import use_of
from checks.gradients.diagnosis.culprit import Culprit, culprit, described, with_culprit
from checks.gradients.diagnosis.entrywise import by_entry
from checks.gradients.diagnosis.few import few_entries, peeled, single_fault
from checks.gradients.diagnosis.forward import diagnose_forward
from checks.gradients.diagnosis.kinks import at_kinks
from checks.gradients.diagnosis.notfinite import not_finite
from checks.gradients.diagnosis.pattern import Region, place, where, words
from checks.gradients.diagnosis.trial import MEASURED, SAMPLED, Measured, Trial
from checks.gradients.diagnosis.worst import of_one_result
from checks.gradients.evidence import Evidence, Probe
from checks.gradients.modes import Modes, first_line, modes_of
from checks.gradients.narrow import twin_of
from checks.gradients.options import MODES
from checks.gradients.report import KINK, WRONG, Cause, Check, Worst
from checks.gradients.target import Target, size_of, unit_of, wide
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
Diagnosis = tuple[Cause | None, str, Worst | None]
ARGUMENTS = 32


def diagnose(
    target: Target,
    modes: Modes,
    checks: Sequence[Check],
    failed: Sequence[Evidence],
    notes: list[str],
) -> Diagnosis:
    """The verified cause of a wrong derivative, where it is wrong, and its worst entry.

    Arguments:
        target, modes: the function and its derivatives.
        checks: the verdicts; nothing is done where none is WRONG.
        failed: the evidence of those that are.
        notes: a line is added where the time for a diagnosis did not suffice.
    Returns the cause (None where none could be verified), the pattern in words ("" where it could
    not be told), and the worst entry (None where the checks have none and none was found).
    """
    before, derivatives = target.tally.calls, target.tally.derivatives
    try:
        return _diagnose(target, modes, checks, failed, notes)
    except Exception as error:  # whatever user code raises: the verdict must not be lost by it
        notes.append(f"the diagnosis stopped: {first_line(error)}")
        return None, "", next((c.worst for c in checks if c.worst), None)
    finally:
        target.tally.diagnosis += target.tally.calls - before
        target.tally.calls, target.tally.derivatives = before, derivatives


def _diagnose(
    target: Target,
    modes: Modes,
    checks: Sequence[Check],
    failed: Sequence[Evidence],
    notes: list[str],
) -> Diagnosis:
    wrong = [c for c in checks if c.verdict == WRONG]
    bent = [c for c in checks if c.verdict == KINK]
    worst = next((c.worst for c in wrong or bent if c.worst), None)
    if not failed or not (wrong or bent):
        return None, "", worst
    evidence = _chosen(wrong or bent, failed)
    first = evidence.target.name == target.name
    own_modes = modes if first else Modes(None, None)
    evidence = _at_float64(evidence)
    if not wrong:
        return None, "", of_one_result(evidence, own_modes, worst)
    finite = all(np.all(np.isfinite(g)) for g in evidence.gradient or ())
    found = _culprit(target, evidence, notes) if first and finite else None
    cause, pattern, worst = _of_evidence(evidence, own_modes, worst, notes, found is not None)
    if evidence.gradient is not None:
        worst = of_one_result(evidence, own_modes, worst)
    if target.manual.given:
        return _hand_written(target, cause, evidence), pattern, worst
    if found is None:
        return cause, pattern, worst
    part = found.found
    chosen = _at_float64(_chosen(part[0], part[1]))
    own, _, _ = _of_evidence(chosen, modes_of(part[2], MODES), part[0][0].worst, notes)
    return with_culprit(cause, found, own), pattern, worst


def _culprit(target: Target, evidence: Evidence, notes: list[str]) -> Culprit | None:
    """The first equation at fault, looked for in the mode that failed."""
    started = time.perf_counter()

    def spent() -> bool:
        return time.perf_counter() - started > constant("diagnosis_seconds")

    try:
        names = ("reverse",) if evidence.gradient is not None else ("forward",)
        return culprit(target, names, spent)
    except Exception as error:  # whatever a part of the function raises: other causes are left
        notes.append(f"the search for the first wrong equation stopped: {first_line(error)}")
        return None


def _at_float64(evidence: Evidence) -> Evidence:
    """The evidence of a narrow function with differences of the same function at float64."""
    unit = evidence.target.unit
    twin = twin_of(evidence.target) if unit > constant("narrow_unit") else None
    if twin is None:
        return evidence
    tolerance = max(evidence.tolerance, constant("narrow_units") * unit)
    return dataclasses.replace(
        evidence, target=twin, tolerance=tolerance, probes=[], step=0.0, rungs=()
    )


def _of_evidence(
    evidence: Evidence,
    modes: Modes,
    worst: Worst | None,
    notes: list[str],
    shallow: bool = False,
) -> Diagnosis:
    """The diagnosis of one derivative under test; a shallow one where the equation is known."""
    if evidence.gradient is None:
        return diagnose_forward(evidence, worst, notes)
    trial = opened(evidence)
    trial.shallow = shallow
    return diagnose_gradient(trial, modes, worst, notes)


def _hand_written(target: Target, cause: Cause | None, evidence: Evidence) -> Cause | None:
    """A cause with the place of the derivative that was written by hand."""
    manual = target.manual
    reverse = (manual.vjp, manual.gradient, manual.jac)
    forward = (manual.jvp, manual.jac)
    chosen = reverse if evidence.gradient is not None else forward
    code = next((getattr(f, "__code__", None) for f in chosen if f is not None), None)
    if cause is None or code is None or cause.where:
        return cause
    where = described(code.co_filename, code.co_firstlineno, code.co_name)
    return dataclasses.replace(cause, where=where)


def _chosen(wrong: Sequence[Check], failed: Sequence[Evidence]) -> Evidence:
    """The evidence of the first wrong check."""
    if wrong[0].name == "reverse":
        return next((e for e in failed if e.gradient is not None), failed[0])
    if wrong[0].name == "forward":
        return next((e for e in failed if e.gradient is None), failed[0])
    return failed[0]


def opened(evidence: Evidence) -> Trial:
    """A trial of a claimed gradient; entries that its widest probe held still are held still."""
    whole = [p for p in evidence.probes if _moved(p) > 1]
    widest = max(whole, key=_moved, default=None)
    assert evidence.gradient is not None
    symmetric = evidence.target.symmetric_points
    gradient = [
        (g + np.swapaxes(g, -1, -2)) / 2 if k in symmetric else g
        for k, g in enumerate(map(wide, evidence.gradient))
    ]
    free = [
        np.ones(x.shape, bool) if widest is None else np.asarray(widest.direction[k] != 0)
        for k, x in enumerate(evidence.target.points)
    ]
    copy = dataclasses.replace(evidence, gradient=gradient, probes=[])
    narrow = evidence.tolerance >= constant("narrow_units") * unit_of(np.dtype(np.float32))
    return Trial(copy, list(evidence.probes), free, narrow and not _is_narrow(evidence.target))


def _is_narrow(target: Target) -> bool:
    return target.unit > constant("narrow_unit")


def _moved(probe: Probe) -> int:
    return sum(int(np.count_nonzero(d)) for d in probe.direction)


@dataclasses.dataclass(frozen=True, eq=False)
class Suspect:
    """What was found of one point's gradient: the fault, and the wrong entries in words."""

    point: int
    fault: Fault | None
    pattern: str
    worst: Worst | None = None


def diagnose_gradient(
    trial: Trial,
    modes: Modes | None,
    worst: Worst | None,
    notes: list[str],
    noun: str = "gradient of",
) -> Diagnosis:
    """The cause, pattern and worst entry of a wrong gradient."""
    bad = _not_finite(trial)
    if bad is not None:
        return _not_a_number(trial, modes, notes), bad, worst
    use = use_of(trial, modes)
    few = None if use.sure is not None else few_entries(trial, worst)
    if few is not None:
        cause, pattern, worst = _of_few(trial, modes, few, worst, noun)
        return cause or use.left, pattern, worst
    points = range(len(trial.target.points))
    suspected = [k for k in itertools.islice(points, ARGUMENTS) if trial.is_wrong(k)]
    if not suspected:
        return _at_kinks(trial, worst, noun)
    if use.sure is not None:
        found = [_measured(trial, k) for k in suspected]
        return use.sure, _pattern(found), worst or next((s.worst for s in found if s.worst), None)
    swapped = structure.swapped(trial, suspected)
    if swapped is not None:
        found = [_measured(trial, k) for k in suspected]
        return Cause("swapped", swapped), _pattern(found), worst
    found = [_suspect(trial, modes, k) for k in suspected]
    if trial.spent:
        notes.append("the diagnosis ran out of time: a cause may have been missed")
    return (
        _cause(trial, found, noun) or use.left,
        _pattern(found),
        worst or next((s.worst for s in found if s.worst), None),
    )


def _pattern(found: Sequence[Suspect]) -> str:
    return "; ".join(s.pattern for s in found if s.pattern)


def _measured(trial: Trial, point: int) -> Suspect:
    """The wrong entries of one point in words, without a fault."""
    measured = trial.measure(point)
    return Suspect(point, None, _lies(trial, point, measured), _worst(trial, point, measured))


def _suspect(trial: Trial, modes: Modes | None, point: int) -> Suspect:
    """The fault of one point's gradient."""
    fault = whole_fault(trial, point) or by_entry(trial, point)
    measured = trial.measure(point, SAMPLED if fault is None else SAMPLED // 4)
    if fault is None and not measured.complete and not np.any(measured.bad):
        several = peeled(trial, point)
        if several is not None:
            return Suspect(point, several[0], several[1], _worst(trial, point, several[2]))
    fault = fault or partial_fault(trial, point, measured)
    if fault is None:
        fault = structure.structural(trial, modes, point)
    pattern = _lies(trial, point, measured)
    region = _verified_region(trial, point, measured, fault)
    if region is not None:
        total = trial.target.points[point].size
        path = trial.target.point_paths[point]
        pattern = words(region.count, total, region.text, path)
    return Suspect(point, fault, pattern, _worst(trial, point, measured))


def _verified_region(
    trial: Trial, point: int, measured: Measured, fault: Fault | None
) -> Region | None:
    """For a large argument: a region outside of which the gradient is right."""
    if measured.complete:
        return None
    if fault is not None:
        return fault.region if fault.region is not None and fault.region.text else None
    for region in wrong_regions(trial, point, measured):
        if trial.rest_agrees(point, region.mask):
            return region
    return None


def _lies(trial: Trial, point: int, measured: Measured) -> str:
    x, path = trial.target.points[point], trial.target.point_paths[point]
    count = int(np.count_nonzero(measured.bad))
    if not count or not measured.looked:
        return ""
    if not measured.complete:
        return words(count, x.size, "", path, measured.looked)
    return words(count, x.size, where(measured.bad, measured.relevant, x, path), path)


def _worst(trial: Trial, point: int, measured: Measured) -> Worst | None:
    """The measured entry that is off most."""
    claim = trial.gradient[point]
    off = np.where(measured.bad, np.abs(claim - measured.true), -1.0)
    if not np.any(measured.bad):
        return None
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
    u = trial.evidence.cotangents
    unit = 1.0
    if len(u) == 1 and u[0].size == 1 and u[0].dtype.kind != "c":
        unit = float(u[0].ravel()[0]) or 1.0
    return Worst(
        trial.target.point_paths[point],
        index,
        claim[index] / unit,
        measured.true[index] / unit,
        float(trial.evidence.spread / size_of(trial.target.points[point])[index]) / abs(unit),
    )


def _not_a_number(trial: Trial, modes: Modes | None, notes: list[str]) -> Cause | None:
    """Where the NaN begins; a backward that cannot be followed leaves a note."""
    try:
        return not_finite(trial, modes)
    except Exception as error:  # whatever a part of the function raises: the entries are known
        notes.append(f"the search for where it begins stopped: {first_line(error)}")
        return None


def _not_finite(trial: Trial) -> str | None:
    """Which entries of the claim are NaN or infinite; None where all are finite."""
    texts = []
    for g, x, path in zip(
        trial.gradient, trial.target.points, trial.target.point_paths, strict=True
    ):
        bad = ~np.isfinite(g)
        if np.any(bad):
            kind = "NaN" if np.all(np.isnan(g[bad])) else "not finite"
            lie = where(bad, np.ones_like(bad), x, path)
            texts.append(f"{kind}: " + words(int(np.sum(bad)), x.size, lie, path))
    return "; ".join(texts) or None


def _of_few(
    trial: Trial,
    modes: Modes | None,
    found: tuple[int, tuple[int, ...]],
    worst: Worst | None,
    noun: str,
) -> Diagnosis:
    """One wrong entry: what it is, compared with the measured one."""
    point, index = found
    path, x = trial.target.point_paths[point], trial.target.points[point]
    mirrored = point in trial.target.symmetric_points and index[-1] != index[-2]
    pattern = words(1 + mirrored, x.size, path + place(index), path)
    assert worst is not None
    fault = single_fault(trial, point, index, worst)
    if fault is None and x.size <= MEASURED:
        fault = structure.structural(trial, modes, point)
    if fault is None:
        return None, pattern, worst
    return _cause(trial, [Suspect(point, fault, pattern)], noun), pattern, worst


def _at_kinks(trial: Trial, worst: Worst | None, noun: str) -> Diagnosis:
    """No point is wrong once ties and zeros are held still: only there it is wrong."""
    found = at_kinks(trial, worst)
    if found is None:
        return None, "", worst
    point, fault, pattern = found
    return _cause(trial, [Suspect(point, fault, "")], noun), pattern, worst


def _cause(trial: Trial, found: Sequence[Suspect], noun: str) -> Cause | None:
    """The faults of all wrong points in one sentence; equal ones are told once."""
    told = [s for s in found if s.fault is not None]
    if not told:
        return None
    paths = trial.target.point_paths
    groups: dict[str, list[int]] = {}
    for s in told:
        assert s.fault is not None
        groups.setdefault(s.fault.text, []).append(s.point)
    parts = []
    for text, points in groups.items():
        of = _listed([paths[k] for k in points])
        each = "" if len(points) == 1 else "each of "
        parts.append(f"the {noun} {each}{of} {text}")
    wrong = {s.point for s in found}
    unsaid = wrong | trial.bent | {k for k, x in enumerate(trial.target.points) if not x.size}
    right = [p for k, p in enumerate(paths) if k not in unsaid]
    unexplained = [paths[s.point] for s in found if s.fault is None]
    if unexplained:
        parts.append(f"{_listed(unexplained)}: wrong too, of no known cause")
    if right and len(paths) <= ARGUMENTS:
        verb = "is" if len(right) == 1 else "are"
        parts.append(f"{_listed(right)} {verb} right")
    first = told[0].fault
    assert first is not None
    return Cause(first.name, "; ".join(parts))


def _listed(names: Sequence[str], most: int = 3) -> str:
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
