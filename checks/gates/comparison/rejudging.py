"""Saved figures judged by another tolerance file, without the dumps."""

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from checks.gates.comparison.questions import answers
from checks.gates.comparison.record import (
    INPUTS,
    NO_CANDIDATE,
    NO_REFERENCE,
    NOWHERE,
    OK,
    Result,
    TensorRow,
)
from checks.gates.comparison.several import Comparison, answered
from checks.gates.comparison.steps import NEXT, next_steps
from checks.gates.comparison.validity import by_figures, problems_of, without_split
from checks.gates.comparison.verdict import role_of, status_of
from checks.gates.formats.manifest import GATE
from checks.gates.limits.contract import Contract, read_contract
from checks.gates.reports.saved import read_report


def rejudge(report: str | Path, tolerances: str | Path) -> Result | Comparison:
    """Judge the figures of a saved report by another tolerance file.

    Inputs, shapes, infinities and missing tensors are judged as they were; causes and places
    known of a tensor that failed stay with it. Where a tensor fails that passed before, nothing
    more is known of it than its figures.

    Arguments:
        report: a JSON file of `gradsweep gate compare`.
        tolerances: see `read_contract`.

    Raises:
        GateError: a file cannot be used.
    """
    saved, contract = read_report(report), read_contract(tolerances)
    if isinstance(saved, Result):
        return rejudged(saved, contract)
    made = tuple(rejudged(r, contract) for r in saved.results)
    return answered(replace(saved, results=made))


def rejudged(result: Result, contract: Contract) -> Result:
    """Return a result as another contract judges its figures."""
    rows = [_row(row, contract) for row in result.rows]
    known = {row.name.partition("#")[0] for row in rows}
    rows += list(_absent(known, result.only, contract))
    paths = result.reference, result.candidate
    problems = [p for p in result.problems if p.kind == INPUTS]
    problems += problems_of(rows, paths, str(contract.path), result.only, by_figures)
    problems += without_split(rows, result.reference64)
    note = f"judged anew from the figures of a report, first judged by {result.contract}"
    notes = result.notes if note in result.notes else (*result.notes, note)
    made = replace(
        result,
        contract=str(contract.path),
        rows=tuple(rows),
        problems=tuple(problems),
        notes=notes,
        answers=(),
        alone=_alone(rows) if result.only is None else result.alone,
    )
    kept = [n for n in notes if not n.startswith(NEXT)]
    made = replace(made, notes=(*kept, *next_steps(made)))
    return made if made.first is None else replace(made, answers=answers(made))


def _alone(rows: Iterable[TensorRow]) -> tuple[int, int]:
    """How many tensors out of the contract each side alone has."""
    sides = [row.status for row in rows if row.aside]
    return sides.count(NO_CANDIDATE), sides.count(NO_REFERENCE)


def _row(row: TensorRow, contract: Contract) -> TensorRow:
    name = row.name.partition("#")[0]
    limit = contract.limits.get(name)
    status = row.status if row.measured is None else status_of(row.measured, limit)
    row = replace(row, limit=limit, status=status, role=role_of(name, limit, row.declared))
    if row.status == OK:
        return replace(row, cause=None, detail=None)
    return row


def _absent(known: set[str], only: str | None, contract: Contract) -> Iterator[TensorRow]:
    """Contract tensors that the report does not have."""
    for name, limit in contract.limits.items():
        if name not in known and (only is None or fnmatch.fnmatchcase(name, only)):
            yield TensorRow(name, GATE, NOWHERE, limit, (None, None), (None, None))
