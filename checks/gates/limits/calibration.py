"""Limits proposed from runs: what the reference repeats to, and how far candidates drift from it.

A limit becomes max(provisional, floor, 4 x noise, 1.5 x drift), rounded up to two digits, where the
old one does not hold the floor, 4 x noise and 1.5 x drift already. The floor is that of bfloat16
and float16, see `floors`. It is never taken from an error that looks like a fault: see `refusals`.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from checks.gates.comparison.measure import Measured, measure
from checks.gates.comparison.record import Problem, TensorRow
from checks.gates.comparison.verdict import compare
from checks.gates.errors import GateError
from checks.gates.formats.readers import Side, open_side
from checks.gates.formats.statistics import statistics
from checks.gates.limits.contract import (
    LIMITS,
    Contract,
    Limit,
    provisional,
    read_contract,
    rounded_up,
)
from checks.gates.limits.floors import floor, formats, formula
from checks.gates.limits.origins import (
    DRIFT,
    FLOOR,
    KEPT,
    NOISE,
    PROVISIONAL,
    origin,
    without_origin,
)
from checks.gates.limits.refusals import (
    Noise,
    against_float64,
    between,
    check_policies,
    check_runs,
    faulty,
    infinities,
    of_references,
    other_inputs,
    unrepeated,
    without_figures,
)
from checks.gates.naming.names import names_beside, renamed
from checks.report.wording import number, plural
from checks.tolerances import constant

_OWN = "Calibrated: "
# Lines of `gradsweep gate init` that a calibration replaces.
_FIRST = ("Provisional, from ", "max_abs = max(1e-4 p99", "Floor of ")
_A_LINE = 4


@dataclass(frozen=True, slots=True)
class Proposal:
    """The limits of one tensor, old and new, and what they come from.

    Arguments:
        name: canonical name.
        old, new: its limits.
        provisional: from the reference's magnitude alone (see `contract.provisional`).
        noise: the largest difference between two reference runs, in max_abs and in mean_abs.
        drift: the largest difference between a candidate and any reference run.
        floor: of bfloat16 and float16; None where neither was at work.
        decided: what decided max_abs and mean_abs: provisional, floor, noise, drift or kept.
        relative: the drift's rms, of the reference's.
    """

    name: str
    old: Limit
    new: Limit
    provisional: Limit
    noise: Limit
    drift: Limit
    floor: Limit | None
    decided: tuple[str, str]
    relative: float

    @property
    def factor(self) -> float:
        """How many times wider the wider of the two limits becomes; inf from 0."""
        return max(_times(getattr(self.old, k), getattr(self.new, k)) for k in LIMITS)

    @property
    def widened(self) -> bool:
        """Whether that needs a reason."""
        return self.factor > constant("gate_calibrate_widened")


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a calibration proposes.

    Arguments:
        contract: the new tolerance file.
        proposals: in execution order; empty where nothing could be measured.
        problems: why it may not be written; empty where it may.
    """

    contract: Contract
    proposals: Sequence[Proposal]
    problems: Sequence[Problem]


def calibrate(
    tolerances: str | Path,
    references: Sequence[str | Path],
    candidates: Sequence[str | Path],
    *,
    reference64: str | Path | None = None,
    names: str | Path | None = None,
    because: str = "",
    understood: Sequence[str] = (),
    tighten: bool = False,
    dtype: str | None = None,
) -> Calibration:
    """Propose the limits of a tolerance file from several runs; nothing is written.

    Arguments:
        tolerances: the file to start from (`gradsweep gate init` makes a first one).
        references: at least three runs of the reference on one input: repeated, with other
            threads, in another batch. One that repeats to the bit has no noise.
        candidates: runs of the candidate; each is compared with every reference run, causes are
            looked for beside the first.
        reference64: the reference in float64: a candidate may be 3 times as far from it.
        names: rules, as in `compare`.
        because: why limits become more than twice as wide.
        understood: patterns of tensors whose systematic error `because` explains.
        tighten: lower limits that are wider than what is proposed.
        dtype: what the runs were computed in, where neither their dtypes nor policy tell it.

    Raises:
        GateError: a file cannot be used, there are too few runs, one is given twice, their dtype
            policies differ, there is no such dtype.
    """
    if understood and not because.strip():
        fix = '--because "the runtime approximates tanh by a rational function"'
        raise GateError("an error is understood without a reason", "--understood", fix)
    check_runs(references, candidates)
    contract = read_contract(tolerances)
    rules = names_beside(contract.path, names)
    ours = [renamed(open_side(p), rules, "reference") for p in references]
    theirs = [renamed(open_side(p), rules, "candidate") for p in candidates]
    wide = None if reference64 is None else renamed(open_side(reference64), rules, "reference")
    check_policies([*ours, *theirs])
    results = [compare(references[0], c, tolerances, names=names) for c in candidates]
    rows = [[row for row in result.rows if row.contract] for result in results]
    unfit = of_references(ours, contract, rules) + [p for r in results for p in r.problems]
    unfit += other_inputs([s for s in (ours[0], wide) if s is not None])
    unfit += [p for s, found in zip(theirs, rows, strict=True) for p in without_figures(s, found)]
    seen = [] if unfit else [_beside_all(ours, t, r) for t, r in zip(theirs, rows, strict=True)]
    unfit += [p for beside in seen for p in infinities(ours, beside)]
    if unfit:
        return Calibration(contract, (), _once(unfit))
    noise = between(ours, contract)
    found = _proposals(contract, ours, seen, noise, tighten, dtype)
    problems = unrepeated(ours, contract, noise, understood)
    for side, beside in zip(theirs, seen, strict=True):
        problems += faulty(str(side.path), beside, understood)
    if wide is not None:
        problems += against_float64(wide, ours, theirs, contract)
    problems += [] if because.strip() else _without_reason(found, contract)
    narrow = sorted({d for s in ours for d in formats(s, dtype).values()})
    made = _written(contract, found, ours, theirs, because.strip(), understood, narrow)
    return Calibration(made, found, _once(problems))


def _beside_all(
    sides: Sequence[Side], candidate: Side, rows: Sequence[TensorRow]
) -> list[list[TensorRow]]:
    """The contract's rows of one candidate beside each reference run; `rows` are of the first."""
    right = candidate.tensors
    others = [
        [replace(row, measured=measure(side.tensors[row.name], right[row.name])) for row in rows]
        for side in sides[1:]
    ]
    return [list(rows), *others]


def _proposals(
    contract: Contract,
    sides: Sequence[Side],
    seen: Sequence[Sequence[Sequence[TensorRow]]],
    noises: Noise,
    tighten: bool,
    dtype: str | None,
) -> list[Proposal]:
    measured: dict[str, list[Measured]] = {}
    for row in itertools.chain(*itertools.chain(*seen)):
        assert row.measured is not None
        measured.setdefault(row.name.partition("#")[0], []).append(row.measured)
    computed = [formats(side, dtype) for side in sides]
    others_differ = any(m.max_abs for found in measured.values() for m in found)
    made = []
    for name, drifts in measured.items():
        keys = sides[0].calls(name)
        noise = [m for k in keys for m in noises[k].values()]
        figures = [
            (statistics(s.tensors[k].chunks()), s.tensors[k].tensor.dtype, kinds.get(k, ""))
            for s, kinds in zip(sides, computed, strict=True)
            for k in keys
        ]
        first = provisional(s for s, _, _ in figures)
        apart, drift = _widest(noise), _widest(drifts)
        # What is the same to the bit where others are not meets no rounding: a table's rows.
        exact = others_differ and not any((*_pair(apart), *_pair(drift)))
        least = None if exact else floor(figures)
        proposal = _proposal(contract.limits[name], first, least, apart, drift, tighten)
        relative = max(m.relative_rms for m in drifts)
        made.append(replace(proposal, name=name, relative=relative))
    return made


def _pair(limit: Limit) -> tuple[float, float]:
    return limit.max_abs, limit.mean_abs


def _widest(measured: Sequence[Measured]) -> Limit:
    return Limit(max(m.max_abs for m in measured), max(m.mean_abs for m in measured))


def _proposal(
    old: Limit, first: Limit, least: Limit | None, noise: Limit, drift: Limit, tighten: bool
) -> Proposal:
    new, decided = [], []
    for key in LIMITS:
        was = getattr(old, key)
        needed = {
            NOISE: constant("gate_calibrate_noise") * getattr(noise, key),
            DRIFT: constant("gate_calibrate_drift") * getattr(drift, key),
        }
        if least is not None:
            needed[FLOOR] = getattr(least, key)
        parts = {PROVISIONAL: getattr(first, key), **needed}
        by = max(parts, key=lambda k: parts[k])
        limit = rounded_up(parts[by])
        if max(needed.values()) <= was and not (tighten and limit < was):
            limit, by = was, KEPT
        new.append(limit)
        decided.append(by)
    made = Limit(new[0], new[1], old.comment)
    return Proposal("", old, made, first, noise, drift, least, (decided[0], decided[1]), 0.0)


def _without_reason(found: Sequence[Proposal], contract: Contract) -> list[Problem]:
    wide = [p for p in found if p.widened]
    if not wide:
        return []
    most = max(wide, key=lambda p: p.factor)
    what = f"the limits of {plural(len(wide), 'tensor')} would become more than "
    what += f"{constant('gate_calibrate_widened'):g} x wider, {most.name!r} {_factor(most)}"
    fix = 'say why, to be kept in the file: --because "bfloat16 weights in the projections"'
    return [Problem(what, str(contract.path), fix)]


def _written(
    contract: Contract,
    found: Sequence[Proposal],
    ours: Sequence[Side],
    theirs: Sequence[Side],
    because: str,
    understood: Sequence[str],
    narrow: Sequence[str],
) -> Contract:
    limits = dict(contract.limits)
    runs = f"{len(ours)} reference and {plural(len(theirs), 'candidate run')}"
    for p in found:
        comment = without_origin(p.new.comment)
        if p.widened:
            changes = [
                f"{k} {getattr(p.old, k):g} -> {getattr(p.new, k):g} by {by}"
                for k, by in zip(LIMITS, p.decided, strict=True)
                if by != KEPT
            ]
            comment = (*comment, f"Widened {_factor(p)} ({', '.join(changes)}): {because}")
        comment = (*comment, origin(p.decided, runs, p.new.comment))
        limits[p.name] = replace(p.new, comment=comment)
    kept = [line for line in contract.comment if not line.startswith((_OWN, *_FIRST))]
    told = [*_runs(ours, theirs), *map(formula, narrow), *profile(found)]
    if understood:
        told.append(f"systematic errors of {', '.join(understood)} are understood: {because}")
    return replace(contract, limits=limits, comment=(*kept, *(_OWN + line for line in told)))


def _runs(ours: Sequence[Side], theirs: Sequence[Side]) -> list[str]:
    lines = [f"dtype policy {check_policies([*ours, *theirs]) or 'not stated'}."]
    for word, sides in (("reference", ours), ("candidate", theirs)):
        runs = [s.run for s in sides if s.run is not None]
        versions = {f"{n} {v}" for r in runs for n, v in r.versions.items()}
        threads = sorted({r.threads for r in runs if r.threads is not None})
        text = f"{plural(len(sides), word + ' run')}"
        text += f", threads {', '.join(map(str, threads))}" if threads else ""
        lines.append(text + (f"; {', '.join(sorted(versions))}." if versions else "."))
    count = len(ours) * (len(ours) - 1) // 2
    text = f"noise over {count} pairs of reference runs, drift over "
    return [*lines, text + f"{len(ours) * len(theirs)} pairs of both."]


def profile(found: Sequence[Proposal]) -> list[str]:
    """Return the attenuation profile: the drift's rms of the reference's, in execution order."""
    words = [f"{p.name} {number(p.relative) if p.relative else 0}" for p in found]
    lines = [", ".join(words[n : n + _A_LINE]) for n in range(0, len(words), _A_LINE)]
    return [f"relative rms of the drift: {line}" for line in lines]


def _times(old: float, new: float) -> float:
    if new <= old:
        return 1.0
    return new / old if old else math.inf


def _factor(p: Proposal) -> str:
    return f"{p.factor:.3g} x" if math.isfinite(p.factor) else "from 0"


def _once(problems: Sequence[Problem]) -> list[Problem]:
    return list(dict.fromkeys(problems))
