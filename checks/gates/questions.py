"""The six questions that every failure answers, in order, each with numbers."""

import math
from typing import Any

import numpy as np

from checks.gates.causes.case import Case, figure, load
from checks.gates.contract import Limit, rounded_up
from checks.gates.formats.readers import Side
from checks.gates.record import MISSING, NONFINITE, SHAPE, Answer, Result, TensorRow
from checks.tolerances import constant

QUESTIONS = (
    "Which tensor diverged first?",
    "Was the shape wrong?",
    "Was the magnitude off?",
    "Was it close but over?",
    "Did the behaviour change?",
    "Is it backend-specific?",
)
_TOP = 5
_LEAST_CLASSES = 3


def answers(result: Result, left: Side, right: Side) -> tuple[Answer, ...]:
    """Answer the six questions about a comparison that failed."""
    row = result.first
    assert row is not None
    case = None
    if row.measured is not None and row.limit is not None:
        case = load(left.tensors[row.name], right.tensors[row.name], row.limit)
    texts = (
        _first(result, row),
        _shape(row),
        _magnitude(row),
        _close(row),
        _behaviour(result, left, right, case),
        "one candidate was given: compare a second backend's dump with this reference, and with "
        "this candidate",
    )
    return tuple(Answer(q, t) for q, t in zip(QUESTIONS, texts, strict=True))


def _first(result: Result, row: TensorRow) -> str:
    good, m = result.last_good, row.measured
    text = f"{row.name} ({row.role}, {row.status})"
    if m is not None and row.limit is not None and not math.isnan(m.max_abs):
        text += f": max_abs {figure(m.max_abs)} of {figure(row.limit.max_abs)} allowed at "
        text += f"{m.worst}, mean_abs {figure(m.mean_abs)} of {figure(row.limit.mean_abs)}"
    text += f"; last good: {good.name}" if good else "; nothing before it was good"
    before = list(result.rows)[: list(result.rows).index(row)]
    quiet = next((r for r in before if r.systematic and not r.failed), None)
    if quiet is not None and quiet.measured is not None:
        text += (
            f"; {quiet.name} passes but looks systematic (eta {figure(quiet.measured.eta or 0)})"
        )
    failed = sum(r.failed for r in result.rows)
    contract = sum(r.contract for r in result.rows)
    return f"{text}; {failed} of {contract} contract tensors fail"


def _shape(row: TensorRow) -> str:
    if row.status in MISSING:
        return f"there is nothing to compare: {row.status}"
    if row.status != SHAPE:
        text = f"no: {list(row.shapes[0] or ())} on both sides"
        moved = row.cause and row.cause.name in ("transposed", "reinterpreted", "interleaved")
        return f"{text}, but the layout: {row.cause.text}" if moved and row.cause else text
    text = f"yes: {list(row.shapes[0] or ())} on the reference, {list(row.shapes[1] or ())} on the "
    text += "candidate"
    known = row.cause.text if row.cause else "no permutation, reshape or overlap makes them equal"
    return f"{text}; {known}"


def _magnitude(row: TensorRow) -> str:
    m = row.measured
    if m is None:
        return "unknown: no entry was compared"
    if row.status == NONFINITE:
        known = row.cause.text if row.cause else f"{m.disagreements:,} entries differ in finiteness"
        return f"not finite: {known}"
    size = m.relative_rms
    off = size > constant("gate_magnitude_off")
    text = f"{'yes' if off else 'no'}: relative rms {figure(size)}, cosine {figure(m.cosine)}, "
    text += f"{m.differing:,} of {m.count:,} entries differ"
    return f"{text}; {row.cause.text if row.cause else 'unclassified'}"


def _close(row: TensorRow) -> str:
    m = row.measured
    if m is None or row.limit is None or row.status == NONFINITE:
        return "no: see above"
    text = f"relative rms {figure(m.relative_rms)}: {rung(m.relative_rms)}"
    if m.eta is not None:
        kind = "systematic" if row.systematic else "noise-like"
        text += f"; {kind} (eta {figure(m.eta)}, noise alone {figure(m.eta_noise)})"
    need = Limit(rounded_up(m.max_abs), rounded_up(m.mean_abs))
    text += f"; would have passed: max_abs {need.max_abs:g}, mean_abs {need.mean_abs:g}"
    return text


def rung(relative: float) -> str:
    """Return which rung of the precision ladder an error stands on, for one product."""
    width = constant("gate_ladder_width")
    for name, key in (
        ("float32 in another order", "gate_ladder_float32"),
        ("TF32 or float16", "gate_ladder_tf32"),
        ("bfloat16", "gate_ladder_bf16"),
    ):
        if relative <= width * constant(key):
            return f"as {name} (about {constant(key):g} for one product)"
    return "above what any precision of one product explains"


def _behaviour(result: Result, left: Side, right: Side, case: Case | None) -> str:
    """Argmax and top-k over the last axis, of the last failing tensor that looks like logits."""
    for name in ("logits", "head", "probs", "out"):
        rows = [r for r in result.rows if r.failed and r.measured and name in r.name]
        if rows:
            break
    else:
        rows = []
    row = rows[-1] if rows else None
    if row is not None and row.limit is not None:
        case = load(left.tensors[row.name], right.tensors[row.name], row.limit)
    label = row.name if row else (result.first.name if result.first else "")
    if case is None or case.r.ndim < 1 or case.r.shape[-1] < _LEAST_CLASSES:
        return "unknown: no tensor with classes on its last axis was compared"
    return _choices(case.r, case.c, label)


def _choices(r: Any, c: Any, label: str) -> str:
    r, c = (v.reshape(-1, v.shape[-1]) for v in (r, c))
    good = np.isfinite(r).any(axis=1) & ~np.isnan(r).any(axis=1) & ~np.isnan(c).any(axis=1)
    if not good.any():
        return "unknown: no row is finite on both sides"
    r, c = r[good], c[good]
    off = np.flatnonzero(r.argmax(axis=1) != c.argmax(axis=1))
    k = min(_TOP, r.shape[1] - 1)
    tops = [np.sort(np.argpartition(-v, k - 1, axis=1)[:, :k], axis=1) for v in (r, c)]
    changed = int(np.any(tops[0] != tops[1], axis=1).sum())
    text = f"{label}: {off.size:,} of {r.shape[0]:,} rows have another argmax over the last axis, "
    text += f"{changed:,} another top {k}"
    if not off.size:
        return "no: " + text
    at = int(off[0])
    best = np.sort(r[at])[-2:]
    margin = float(best[1] - best[0])
    error = float(np.max(np.abs(np.nan_to_num(c[at] - r[at], nan=0.0, posinf=0.0, neginf=0.0))))
    within = "within the error" if margin <= 2 * error else "more than the error explains"
    return f"yes: {text}; row {at}: top-2 margin {figure(margin)}, error {figure(error)}: {within}"
