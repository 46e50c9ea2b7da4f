"""Why a tensor is off: causes in turn, each named only once undoing it leaves next to nothing."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from checks.gates.causes.case import Case, load
from checks.gates.causes.forms import formed
from checks.gates.causes.layout import moved, reshaped, shifted
from checks.gates.causes.places import nonfinite, placed
from checks.gates.causes.tensors import related
from checks.gates.causes.values import along_axes, valued
from checks.gates.formats.readers import Side
from checks.gates.record import NONFINITE, OVER, SHAPE, Cause, TensorRow

MOST_DETAILED = 50


def with_causes(rows: Sequence[TensorRow], left: Side, right: Side) -> list[TensorRow]:
    """Return the rows, those that failed with their cause where one was found.

    Contract tensors first in order, at most 50: causes downstream of the first are its echo.
    """
    made = []
    detailed = 0
    for row in rows:
        if row.failed and row.status in (OVER, SHAPE, NONFINITE) and detailed < MOST_DETAILED:
            detailed += 1
            row = replace(row, cause=cause(row, rows, left, right))
        made.append(row)
    return made


def cause(row: TensorRow, rows: Sequence[TensorRow], left: Side, right: Side) -> Cause | None:
    """Return why one row failed; None where no cause could be verified."""
    assert row.limit is not None
    case = load(left.tensors[row.name], right.tensors[row.name], row.limit)
    if row.status == SHAPE:
        return reshaped(case) if _finite(case) else None
    if row.status == NONFINITE:
        return nonfinite(case)
    if not _finite(case):
        case = _finite_rows(case)
    if not case.r.size or not np.any(case.c != case.r):
        return None
    found = moved(case) or valued(case) or related(case, row, rows, left)
    return found or formed(case) or shifted(case) or placed(case)


def _finite(case: Case) -> bool:
    return bool(np.isfinite(case.r).all() and np.isfinite(case.c).all())


def _finite_rows(case: Case) -> Case:
    """Infinities that agree, of a masked softmax, become zeros on both sides."""
    bad = ~np.isfinite(case.r)
    r, c = case.r.copy(), case.c.copy()
    r[bad] = c[bad] = 0.0
    return Case(r, c, case.limit, case.whole)


__all__ = ["MOST_DETAILED", "along_axes", "cause", "with_causes"]
