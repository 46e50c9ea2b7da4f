"""Saved figures judged by another tolerance file, without the dumps."""

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from checks.gates.blocks.isolated import OWN, UNCHECKED, Isolated
from checks.gates.comparison.policy import Policy, unjudged
from checks.gates.comparison.questions import answers
from checks.gates.comparison.record import (
    INPUTS,
    NO_CANDIDATE,
    NO_REFERENCE,
    NOWHERE,
    OK,
    WEAK,
    Result,
    TensorRow,
)
from checks.gates.comparison.several import Comparison, answered
from checks.gates.comparison.steps import NEXT, next_steps
from checks.gates.comparison.validity import (
    ONE_VALUE,
    by_figures,
    one_value,
    problems_of,
    twins_of,
    without_split,
)
from checks.gates.comparison.verdict import role_of, status_of
from checks.gates.errors import GateError
from checks.gates.formats.manifest import GATE
from checks.gates.limits.contract import Contract, read_contract
from checks.gates.reports.saved import read_isolation, read_report


def rejudge(
    report: str | Path,
    tolerances: str | Path,
    isolated: str | Path | None = None,
    policy: Policy | None = None,
) -> Result | Comparison:
    """Judge the figures of a saved report by another tolerance file.

    Inputs, shapes, infinities and missing tensors are judged as they were; causes and places
    known of a tensor that failed stay with it. Where a tensor fails that passed before, nothing
    more is known of it than its figures.

    Arguments:
        report: a JSON file of `gradsweep gate compare`.
        tolerances: see `read_contract`.
        isolated: a JSON file of `gradsweep gate isolate` on the same dumps: the causes that it
            found are taken over, and its blocks are not offered to be isolated again.
        policy: see `compare`; what the report was judged by counts for nothing.

    Raises:
        GateError: a file cannot be used, or the isolation is of other dumps.
    """
    saved, contract = read_report(report), read_contract(tolerances)
    results = (saved,) if isinstance(saved, Result) else tuple(saved.results)
    known = None if isolated is None else read_isolation(isolated)
    if known is not None:
        results = _with_isolation(results, known)
    made = tuple(rejudged(r, contract, policy) for r in results)
    if known is not None:
        made = tuple(_noted(r, known) if r.isolated else r for r in made)
    if isinstance(saved, Result):
        return made[0]
    return answered(replace(saved, results=made))


def _with_isolation(results: Sequence[Result], known: Isolated) -> tuple[Result, ...]:
    """The results, that of the isolation's candidate with what it says."""
    lone = known.candidate is None and len(results) == 1
    mine = [r for r in results if lone or _same(r.candidate, known.candidate)]
    if not mine or any(not _same(r.reference, known.reference) for r in mine):
        what = f"an isolation of {known.candidate or 'no dump'} against {known.reference}"
        fix = f"isolate {results[0].reference} {results[0].candidate}, or leave out --isolated"
        raise GateError(f"the isolation is of other dumps: {what}", known.path, fix)
    return tuple(_isolated(r, known) if r in mine else r for r in results)


def _same(path: str, other: str | None) -> bool:
    return other is not None and Path(path).resolve() == Path(other).resolve()


def _isolated(result: Result, known: Isolated) -> Result:
    """The result with causes where it had none, or a place alone, and what was checked."""
    rows = []
    for row in result.rows:
        own = known.verdicts.get(row.name) == OWN
        silent = row.cause is None or row.cause.name in WEAK
        cause = known.causes.get(row.name) if own and silent else None
        rows.append(row if cause is None else replace(row, cause=cause))
    checked = [n for n, verdict in known.verdicts.items() if verdict != UNCHECKED]
    return replace(result, rows=tuple(rows), isolated=tuple(checked))


def _noted(result: Result, known: Isolated) -> Result:
    """The result with a note of what the isolation says of its first divergence."""
    note, first = f"blocks isolated by {known.path}", result.first
    verdict = known.verdicts.get(first.name, UNCHECKED) if first is not None else UNCHECKED
    if first is not None and verdict != UNCHECKED:
        words = "is wrong by itself" if verdict == OWN else "is right on the reference's inputs"
        note += f": the block of {first.name} {words}"
    return replace(result, notes=(*result.notes, note))


def rejudged(result: Result, contract: Contract, policy: Policy | None = None) -> Result:
    """Return a result as another contract judges its figures."""
    policy = policy or Policy()
    rows = [_row(row, contract, policy) for row in result.rows]
    known = {row.name.partition("#")[0] for row in rows}
    rows += list(_absent(known, result.only, contract))
    paths = result.reference, result.candidate
    problems = [p for p in result.problems if p.kind == INPUTS]
    twins = twins_of(rows, by_figures)
    problems += problems_of(rows, paths, str(contract.path), result.only, twins)
    problems += without_split(rows, result.reference64)
    note = f"judged anew from the figures of a report, first judged by {result.contract}"
    notes = tuple(n for n in result.notes if n != note and not n.endswith(ONE_VALUE))
    notes = (*notes, *one_value(twins), note)
    made = replace(
        result,
        contract=str(contract.path),
        rows=tuple(rows),
        problems=tuple(problems),
        notes=notes,
        answers=(),
        alone=_alone(rows) if result.only is None else result.alone,
        transcript=policy.transcript,
    )
    kept = [n for n in notes if not n.startswith(NEXT)]
    made = replace(made, notes=(*kept, *next_steps(made)))
    return made if made.first is None else replace(made, answers=answers(made))


def _alone(rows: Iterable[TensorRow]) -> tuple[int, int]:
    """How many tensors out of the contract each side alone has."""
    sides = [row.status for row in rows if row.aside]
    return sides.count(NO_CANDIDATE), sides.count(NO_REFERENCE)


def _row(row: TensorRow, contract: Contract, policy: Policy) -> TensorRow:
    row = unjudged(row)
    name = row.name.partition("#")[0]
    limit = contract.limits.get(name)
    status = row.status if row.measured is None else status_of(row.measured, limit)
    row = replace(row, limit=limit, status=status, role=role_of(name, limit, row.declared))
    row = policy.judged(policy.known(row))
    if row.status == OK:
        return replace(row, cause=row.cause if row.suspect else None, detail=None)
    return row


def _absent(known: set[str], only: str | None, contract: Contract) -> Iterator[TensorRow]:
    """Contract tensors that the report does not have."""
    for name, limit in contract.limits.items():
        if name not in known and (only is None or fnmatch.fnmatchcase(name, only)):
            yield TensorRow(name, GATE, NOWHERE, limit, (None, None), (None, None))
