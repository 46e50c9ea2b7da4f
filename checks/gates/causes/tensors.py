"""Causes that need other tensors of the dump: the wrong tensor, a residual left out or added."""

from collections.abc import Iterable, Iterator

import numpy as np

from checks.gates.causes.case import Case, figure
from checks.gates.comparison.record import Cause, TensorRow
from checks.gates.formats.readers import Side
from checks.gates.formats.statistics import Doubles

_MOST_OTHERS = 64


def related(case: Case, row: TensorRow, rows: Iterable[TensorRow], left: Side) -> Cause | None:
    """Return which other tensor of the reference explains the candidate."""
    if not case.whole or case.r.shape != case.c.shape:
        return None
    for name, other in others(case, row, rows, left):
        text = f"the candidate holds the reference's {name}"
        if found := case.cause("another tensor", text, case.c, other):
            return found
        if found := _residual(case, other, name):
            return found
    return None


def others(
    case: Case, row: TensorRow, rows: Iterable[TensorRow], left: Side
) -> Iterator[tuple[str, Doubles]]:
    """Yield the reference's other tensors of that shape and dtype, the nearest in order first."""
    rows = list(rows)
    alike = [
        other.name
        for other in rows
        if other.name != row.name
        and other.shapes[0] == row.shapes[0]
        and other.dtypes[0] == row.dtypes[0]
    ]
    for name in _nearest(alike, row.name, rows)[:_MOST_OTHERS]:
        other = np.asarray(left.tensors[name].load()).astype(np.float64)
        if other.shape == case.c.shape and not np.array_equal(other, case.r):
            yield name, other


def _nearest(names: list[str], name: str, rows: Iterable[TensorRow]) -> list[str]:
    place = {r.name: n for n, r in enumerate(rows)}
    return sorted(names, key=lambda n: abs(place[n] - place[name]))


def _residual(case: Case, other: Doubles, name: str) -> Cause | None:
    d = case.c - case.r
    size = float(np.vdot(other, other))
    factor = float(np.vdot(other, d)) / size if size else 0.0
    if not factor or not case.enough(1):
        return None
    text = f"candidate = reference + {figure(factor)} x {name}: a residual connection"
    text = text.replace("+ -", "- ")
    return case.cause("residual", text, case.c - factor * other)
