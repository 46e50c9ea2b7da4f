"""Why a tensor is off: causes in turn, each named only once undoing it leaves next to nothing."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from checks.gates.causes.cached import cached
from checks.gates.causes.case import Case, load
from checks.gates.causes.forms import formed
from checks.gates.causes.gated import gated
from checks.gates.causes.layout import moved, reshaped, shifted
from checks.gates.causes.mels import filtered
from checks.gates.causes.normal import normalised
from checks.gates.causes.places import nonfinite, placed
from checks.gates.causes.rotary import turned
from checks.gates.causes.stale import stale
from checks.gates.causes.tensors import others, related
from checks.gates.causes.values import valued
from checks.gates.causes.waveform import heard
from checks.gates.comparison.record import NONFINITE, SHAPE, Cause, TensorRow
from checks.gates.formats.readers import Side
from checks.gates.limits.contract import Limit
from checks.tolerances import constant

MOST_DETAILED = 50
_LARGEST = 5  # times the mean of a rounding, the largest
# What a normalisation may show as where nothing is known of its input.
_BY_ROWS = ("factor per slice", "affine per slice")


def cause(row: TensorRow, rows: Sequence[TensorRow], left: Side, right: Side) -> Cause | None:
    """Return why one row failed; None where no cause could be verified."""
    assert row.limit is not None
    case = load(left.tensors[row.name], right.tensors[row.name], row.limit)
    if row.status == SHAPE:
        if not _finite(case):
            return None
        return stale(case, row.name, left) or reshaped(case) or heard(case, row, left)
    if row.status == NONFINITE:
        return nonfinite(case)
    if not _finite(case):
        case = _finite_rows(case)
    if not case.r.size or not np.any(case.c != case.r):
        return None
    if found := stale(case, row.name, left):
        return found
    found = moved(case) or valued(case)
    if found and found.name in _BY_ROWS:
        return normalised(case, others(case, row, rows, left), left_out=False) or found
    found = found or related(case, row, rows, left)
    found = found or normalised(case, others(case, row, rows, left)) or formed(case)
    found = found or gated(case, others(case, row, rows, left)) or filtered(case, row, left)
    found = found or heard(case, row, left)
    return found or turned(case) or shifted(case) or cached(case) or placed(case)


def tightened(row: TensorRow) -> TensorRow:
    """Return a row that is systematically off within its limits with limits of rounding: what
    explains it must undo it to that, whatever its own are.
    """
    m = row.measured
    if m is None or not m.relative_rms or not math.isfinite(m.relative_rms):
        return row
    mean = constant("gate_ladder_float32") * m.rms / m.relative_rms
    return replace(row, limit=Limit(_LARGEST * mean, mean))


def _finite(case: Case) -> bool:
    return bool(np.isfinite(case.r).all() and np.isfinite(case.c).all())


def _finite_rows(case: Case) -> Case:
    """Infinities that agree, of a masked softmax, become zeros on both sides."""
    bad = ~np.isfinite(case.r)
    r, c = case.r.copy(), case.c.copy()
    r[bad] = c[bad] = 0.0
    return Case(r, c, case.limit, case.whole)
