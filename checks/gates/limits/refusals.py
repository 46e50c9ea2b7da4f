"""What a calibration refuses: runs that cannot be compared, errors that look like a fault."""

import fnmatch
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from checks.gates.causes.case import figure
from checks.gates.comparison.measure import Measured, measure
from checks.gates.comparison.record import MISSING, NONFINITE, OK, SHAPE, Problem, TensorRow
from checks.gates.errors import INVALID, GateError
from checks.gates.formats.manifest import GATE
from checks.gates.formats.readers import Side
from checks.gates.formats.statistics import statistics
from checks.gates.limits.contract import Contract
from checks.gates.naming.names import Names
from checks.tolerances import constant

LEAST_RUNS = 3
Noise = Mapping[str, Mapping[tuple[int, int], Measured]]  # by key, then by two runs


def check_runs(references: Sequence[str | Path], candidates: Sequence[str | Path]) -> None:
    """Raise where there are too few runs, or one is given twice.

    Raises:
        GateError: as above.
    """
    if len(references) < LEAST_RUNS:
        what = f"{len(references)} of the at least {LEAST_RUNS} reference runs"
        fix = "run the reference again: repeated, with other threads, in another batch"
        raise GateError(what, "--reference", fix)
    if not candidates:
        raise GateError("no candidate runs", "--candidate", "name at least one")
    seen: set[Path] = set()
    for path in map(Path, (*references, *candidates)):
        if (real := path.resolve()) in seen:
            what = f"the run {path} is given twice"
            raise GateError(what, "--reference and --candidate", "name each run once")
        seen.add(real)


def check_policies(sides: Iterable[Side]) -> str:
    """Return the dtype policy of all runs, "" where none is stated.

    Raises:
        GateError: two runs state different ones.
    """
    stated = {s.run.dtype_policy: s.path for s in sides if s.run and s.run.dtype_policy}
    if len(stated) > 1:
        what = f"the runs' dtype policies differ: {', '.join(sorted(stated))}"
        where = " and ".join(str(p) for p in stated.values())
        raise GateError(what, where, "keep one tolerance file for each policy", code=INVALID)
    return next(iter(stated), "")


def of_references(sides: Sequence[Side], contract: Contract, rules: Names) -> list[Problem]:
    """Return what keeps the reference runs from being compared with one another."""
    problems = other_inputs(sides)
    first, *others = sides
    for name in contract.limits:
        keys = first.calls(name)
        for side in sides:
            if not keys or side.calls(name) != keys:
                what = f"the contract tensor {name!r} has {len(side.calls(name))} calls in one run "
                what += f"and {len(keys)} in another" if keys else "and is missing in another"
                if not side.calls(name):
                    what = f"the contract tensor {name!r} is missing on the reference"
                problems.append(Problem(what, str(side.path), "dump it in every run"))
                break
        else:
            problems += [p for key in keys for p in _unlike(key, first, others)]
            problems += [p for key in keys for s in sides for p in _nonfinite(key, s, rules)]
    return problems


def other_inputs(sides: Sequence[Side]) -> list[Problem]:
    """Return the inputs of which runs tell different hashes."""
    problems = []
    known: dict[str, tuple[str, Path]] = {}
    for side in sides:
        for name, found in (side.run.input_hashes if side.run else {}).items():
            before, path = known.setdefault(name, (found, side.path))
            if found != before:
                what = f"the inputs differ: {name!r} has hash {before} and {found}"
                where = f"{path / 'run.json'} and {side.path / 'run.json'}"
                problems.append(Problem(what, where, "run every side on the same input"))
    return problems


def _unlike(key: str, first: Side, others: Sequence[Side]) -> list[Problem]:
    a = first.tensors[key].tensor
    for side in others:
        b = side.tensors[key].tensor
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            what = f"{key!r} is {a.dtype} {list(a.shape)} in one reference run and "
            what += f"{b.dtype} {list(b.shape)} in another"
            where = f"{first.path} and {side.path}"
            return [Problem(what, where, "run the reference alike, with names.toml cut it alike")]
    return []


def _nonfinite(key: str, side: Side, rules: Names) -> list[Problem]:
    stored = side.tensors[key]
    if rules.role(stored.tensor.name, stored.tensor.role) != GATE:
        return []
    count = statistics(stored.chunks()).nonfinite
    what = f"the gate {key!r} has {count:,} non-finite entries"
    fix = "dump it before the softmax, or make it informational"
    return [Problem(what, str(side.path), fix)] if count else []


def between(references: Sequence[Side], contract: Contract) -> Noise:
    """Return the figures of each contract tensor between every two reference runs."""
    both = list(itertools.combinations(range(len(references)), 2))
    return {
        key: {
            (a, b): measure(references[a].tensors[key], references[b].tensors[key]) for a, b in both
        }
        for name in contract.limits
        for key in references[0].calls(name)
    }


def unrepeated(
    references: Sequence[Side], contract: Contract, noise: Noise, understood: Sequence[str]
) -> list[Problem]:
    """Return which reference run is no repeat of the others: its error is systematic beside them,
    and four times that would become the limit. The first tensor that shows it stands for all.
    """
    for key, pairs in noise.items():
        name = key.partition("#")[0]
        if any(fnmatch.fnmatchcase(name, p) for p in understood):
            continue
        odd = {pair: m for pair, m in pairs.items() if _is_systematic(key, m, contract)}
        if odd:
            counts = [sum(n in pair for pair in odd) for n in range(len(references))]
            run = counts.index(max(counts))
            most = max(odd.values(), key=lambda m: m.relative_rms)
            what = f"a reference run is no repeat of the others: {key!r} is systematically off "
            what += f"(eta {figure(most.eta or 0.0)}, relative rms {figure(most.relative_rms)})"
            fix = "run the reference alike, or leave that run out"
            fix += f'; where it is meant: --understood "{name}" --because "..."'
            return [Problem(what, str(references[run].path), fix)]
    return []


def _is_systematic(key: str, measured: Measured, contract: Contract) -> bool:
    limit = contract.limits[key.partition("#")[0]]
    row = TensorRow(key, GATE, OK, limit, (None, None), (None, None), measured=measured)
    return row.suspect


def without_figures(candidate: Side, rows: Iterable[TensorRow]) -> list[Problem]:
    """Return the contract tensors of a comparison that could not be measured."""
    problems = []
    for row in rows:
        if row.status in (*MISSING, SHAPE, NONFINITE):
            what = f"the contract tensor {row.name!r} cannot be measured: {row.status}"
            fix = "mend the candidate first: gate compare"
            problems.append(Problem(what, str(candidate.path), fix))
    return problems


def infinities(references: Sequence[Side], beside: Sequence[Sequence[TensorRow]]) -> list[Problem]:
    """Return where entries that are not finite agree with one reference run and not with another.

    Arguments:
        references: the runs.
        beside: a candidate's rows beside each of them.
    """
    return [
        Problem(
            f"entries of {row.name!r} that are not finite agree with the first reference run alone",
            str(side.path),
            "run the reference alike, or leave that run out",
        )
        for side, rows in zip(references, beside, strict=True)
        for row in rows
        if row.measured is not None and row.measured.disagreements
    ]


def faulty(
    candidate: str, beside: Sequence[Sequence[TensorRow]], understood: Sequence[str]
) -> list[Problem]:
    """Return the contract tensors whose error looks like a fault: a limit would hide it.

    Arguments:
        candidate: its path.
        beside: its rows beside each reference run; causes stand in the first. An error that is
            systematic beside fewer than half of the runs is of those runs.
        understood: patterns of names.
    """
    problems = []
    for rows in zip(*beside, strict=True):
        row, name = rows[0], rows[0].name.partition("#")[0]
        odd = [r.measured for r in rows if r.systematic and r.measured is not None]
        if row.failed and row.cause is not None:
            what = f"{row.name!r} has a cause: {row.cause.text}"
            problems.append(Problem(what, candidate, "mend it; a wider limit would hide it"))
        elif odd and 2 * len(odd) >= len(rows):
            if any(fnmatch.fnmatchcase(name, p) for p in understood):
                continue
            m = odd[0]
            what = f"the error of {row.name!r} is systematic: the reference's value explains "
            what += f"{m.eta:.0%} of it (eta {figure(m.eta or 0.0)}, noise alone "
            what += f"{figure(m.eta_noise)}), beside {len(odd)} of {len(rows)} reference runs"
            fix = f'find it; where it is meant: --understood "{name}" --because "..."'
            problems.append(Problem(what, candidate, fix))
    return problems


def against_float64(
    wide: Side, references: Sequence[Side], candidates: Sequence[Side], contract: Contract
) -> list[Problem]:
    """Return the tensors in which a candidate is too far from float64, beside the reference.

    All calls of a name count together: by chance a reference of one entry lies right on it.
    """
    problems = []
    for name in contract.limits:
        keys = references[0].calls(name)
        unlike = [p for key in keys for p in _unfit_for_float64(key, name, wide, references[0])]
        problems += unlike
        if not keys or unlike:
            continue
        own = max(_distance(wide, s, keys) for s in references)
        for side in candidates:
            problems += _further(name, own, _distance(wide, side, keys), side)
    return problems


def _unfit_for_float64(key: str, name: str, wide: Side, reference: Side) -> list[Problem]:
    stored = wide.tensors.get(key)
    if stored is None or stored.tensor.shape != reference.tensors[key].tensor.shape:
        what = f"the contract tensor {name!r} is missing in float64, or of another shape"
        return [Problem(what, str(wide.path), "dump it there too")]
    if stored.tensor.dtype in ("float16", "bfloat16", "float32", "complex64"):
        what = f"{key!r} is {stored.tensor.dtype} in the float64 run"
        return [Problem(what, str(wide.path), "compute and dump it in float64")]
    return []


def _distance(wide: Side, side: Side, keys: Sequence[str]) -> float:
    """The rms of the difference from float64 over all calls."""
    found = [measure(wide.tensors[k], side.tensors[k]) for k in keys]
    count = sum(m.count for m in found)
    return math.sqrt(sum(m.rms**2 * m.count for m in found) / count) if count else 0.0


def _further(name: str, own: float, theirs: float, side: Side) -> list[Problem]:
    most = constant("gate_calibrate_float64")
    if theirs <= most * own:
        return []
    times = f"{figure(theirs / own)} times" if own else "infinitely many times"
    what = f"{name!r} is {times} further from float64 than the reference: rms {figure(theirs)} "
    what += f"and {figure(own)}; at most {most:g} times is rounding"
    return [Problem(what, str(side.path), "find what the candidate computes otherwise")]
