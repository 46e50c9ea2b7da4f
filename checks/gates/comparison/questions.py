"""The six questions that every failure answers, in order, each with numbers."""

import json
import math
from collections.abc import Sequence

from checks.gates.causes.case import figure
from checks.gates.causes.waveform import lacks_source
from checks.gates.comparison.record import (
    MISSING,
    NONFINITE,
    OVER,
    SHAPE,
    Answer,
    Change,
    Result,
    TensorRow,
)
from checks.gates.limits.contract import Limit, rounded_up
from checks.report.wording import plural
from checks.tolerances import constant

QUESTIONS = (
    "Which tensor diverged first?",
    "Was the shape wrong?",
    "Was the magnitude off?",
    "Was it close but over?",
    "Did the behaviour change?",
    "Is it backend-specific?",
)


_NO_SOURCE = (
    "; neither its power spectrum nor its waveform is dumped before it: one of them would tell "
    "another filter bank, window or padding"
)


def answers(result: Result, backend: str | None = None) -> tuple[Answer, ...]:
    """Answer the six questions about a comparison that failed.

    Arguments:
        result: the comparison.
        backend: the answer to the last question, where several candidates tell it.
    """
    row = result.first
    assert row is not None
    texts = (
        _first(result, row),
        _shape(row),
        _magnitude(row, result.rows),
        _close(row),
        _behaviour(result.changes),
        _backend(row) if backend is None else backend,
    )
    return tuple(Answer(q, t) for q, t in zip(QUESTIONS, texts, strict=True))


def _first(result: Result, row: TensorRow) -> str:
    good, m = result.last_good, row.measured
    text = f"{row.name} ({row.role}, {row.status})"
    if m is not None and row.limit is not None and not math.isnan(m.max_abs):
        text += f": max_abs {figure(m.max_abs)} of {figure(row.limit.max_abs)} allowed at "
        text += f"{m.worst}, mean_abs {figure(m.mean_abs)} of {figure(row.limit.mean_abs)}"
    text += f"; last good: {good.name}" if good else "; nothing before it was good"
    quiet = result.quiet
    if quiet is not None and quiet.measured is not None:
        names = [r.name for r in result.rows]
        place = "before" if names.index(quiet.name) < names.index(row.name) else "after"
        text += f"; {quiet.name} passes but looks systematic "
        text += f"(eta {figure(quiet.measured.eta or 0)}), {place} it"
        text += f": {quiet.cause.text}" if quiet.cause else ""
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


def _magnitude(row: TensorRow, rows: Sequence[TensorRow]) -> str:
    m = row.measured
    if m is None:
        return "unknown: no entry was compared"
    if row.status == NONFINITE:
        known = row.cause.text if row.cause else f"{m.disagreements:,} entries differ in finiteness"
        return f"not finite: {known}"
    size = m.relative_rms
    off = size > constant("gate_magnitude_off")
    told = "unknown, the squares are beyond float64" if math.isnan(size) else "yes" if off else "no"
    text = f"{told}: relative rms {figure(size)}, cosine {figure(m.cosine)}, "
    text += f"{m.differing:,} of {m.count:,} entries differ"
    if row.cause is not None:
        return f"{text}; {row.cause.text}"
    lacking = _NO_SOURCE if lacks_source(row, rows) else ""
    return f"{text}; unclassified{lacking}"


def _close(row: TensorRow) -> str:
    m = row.measured
    if m is None or row.limit is None or row.status == NONFINITE:
        return "no: see above"
    text = f"relative rms {figure(m.relative_rms)}: {rung(m.relative_rms)}"
    if m.eta is not None and on_ladder(m.relative_rms):  # above it no precision is to blame
        kind = "systematic" if row.systematic else "noise-like"
        text += f"; {kind} (eta {figure(m.eta)}, noise alone {figure(m.eta_noise)})"
    return f"{text}; {split_text(row)}" if row.three_way else text


def split_text(row: TensorRow) -> str:
    """Return a row's three-way split in words: A, B, C (rms), B / A and what they say."""
    split = row.three_way
    if split is None:
        return "no three-way split"
    return (
        f"from reference64 (rms): the reference A = {figure(split.own)}, the candidate "
        f"B = {figure(split.candidate)}; between both C = {figure(split.gap)}; "
        f"B / A = {figure(split.ratio)}: {split.text}"
    )


def on_ladder(relative: float) -> bool:
    """Return whether some precision of one product explains an error of that size."""
    return relative <= constant("gate_ladder_width") * constant("gate_ladder_bf16")


def rung(relative: float) -> str:
    """Return which rung of the precision ladder an error stands on, for one product."""
    width = constant("gate_ladder_width")
    if math.isnan(relative):
        return "on no rung, the squares are beyond float64"
    for name, key in (
        ("float32 in another order", "gate_ladder_float32"),
        ("TF32 or float16", "gate_ladder_tf32"),
        ("bfloat16", "gate_ladder_bf16"),
    ):
        if relative <= width * constant(key):
            return f"as {name} (about {constant(key):g} for one product)"
    return "above what any precision of one product explains"


def _behaviour(changes: Sequence[Change]) -> str:
    if not changes:
        return "unknown: no tokens, no transcript.json, no tensor with classes on its last axis"
    changed = [c for c in changes if c.changed]
    told = "; ".join(map(change_text, changed or changes))
    return f"{'yes' if changed else 'no'}: {told}"


def change_text(change: Change) -> str:
    """Return what changed in words: how much, where first, and whether the error explains it."""
    if change.kind == "argmax":
        return _argmax_text(change)
    word = "word" if change.kind == "text" else "token"
    count = plural(change.sizes[0], word)
    if not change.changed:
        text = f"the text of {count} is equal" if word == "word" else f"{count}, all equal"
        return f"{change.source}: {text}"
    one, other = change.sizes
    text = f"{change.source}: {plural(change.edits, word)} of {one:,}"
    text += f"{f' and {other:,}' if one != other else ''} differ{'s' if change.edits == 1 else ''}"
    if change.first is not None:
        place = "word" if change.kind == "text" else "step"
        text += f", first at {place} {change.first}: "
        text += f"{change.said[0]} on the reference, {change.said[1]} here"
    text += f"; {change.note}" if change.note else ""
    if change.kind == "tokens" and change.first is not None:
        text += _margin_text(change) or "; no logits of that step tell how close the choice was"
    return text


def _argmax_text(change: Change) -> str:
    text = f"{change.source}: {change.edits:,} of {change.sizes[0]:,} rows have another argmax "
    text += f"over the last axis, {change.note}"
    if change.first is None:
        return text
    text += f"; row {change.first}: {change.said[0]} on the reference, {change.said[1]} here"
    return text + _margin_text(change)


def _margin_text(change: Change) -> str:
    if change.margin is None or change.error is None:
        return ""
    source = f" of {change.logits}" if change.logits != change.source else ""
    told = "the margin is more than twice the error, which does not explain the change"
    if change.explained:
        size = "smaller than" if change.margin < change.error else "at most twice"
        told = f"the margin is {size} the error, which explains the change"
    return f"; top-2 margin{source} {figure(change.margin)}, error {figure(change.error)}: {told}"


def _backend(row: TensorRow) -> str:
    if row.three_way is None:
        return (
            "one candidate was given: name a second backend's dump beside it, and the reference in "
            "float64 (--reference64)"
        )
    what = "the candidate" if not row.three_way.rounding else "rounding"
    return f"one candidate was given; {what}: {split_text(row)}"


# --- the numbers that would have passed ---


def objection(row: TensorRow) -> str:
    """Return why no limits may be suggested for a failing row; "" where they may."""
    m, split = row.measured, row.three_way
    if row.status != OVER or m is None:
        return f"no limits make up for {row.status}"
    if row.cause is not None:
        return f"its cause is known ({row.cause.name})"
    if row.systematic:
        return f"its error looks systematic (eta {figure(m.eta or 0)})"
    if not math.isfinite(m.max_abs + m.mean_abs + m.relative_rms):
        return "its error, or the square of it, is beyond float64"
    if m.relative_rms > constant("gate_magnitude_off"):
        return f"its magnitude is off (relative rms {figure(m.relative_rms)})"
    if split is not None and not split.rounding:
        return f"it is more than rounding (B / A = {figure(split.ratio)})"
    return ""


def suggested(row: TensorRow) -> Limit:
    """Return the limits that a row's figures, times 1.2, would have passed."""
    assert row.measured is not None and row.limit is not None
    margin = constant("gate_margin")
    largest = max(row.limit.max_abs, rounded_up(margin * row.measured.max_abs))
    mean = max(row.limit.mean_abs, rounded_up(margin * row.measured.mean_abs))
    return Limit(largest, mean)


def would_have_passed(result: Result) -> list[str]:
    """Return the lines that end a failure: limits to paste, or why none are suggested.

    A row after one that is no noise inherits its error: nothing is suggested for it either.
    """
    failed = [] if result.problems else [r for r in result.rows if r.failed]
    bad = next((n for n, r in enumerate(failed) if objection(r)), len(failed))
    later = {r.name.partition("#")[0] for r in failed[bad:]}  # one limit serves all its calls
    passable = [r for r in failed[:bad] if r.name.partition("#")[0] not in later]
    lines = []
    if passable:
        lines.append("would have passed (the figures x 1.2):")
        lines += [f"  {line}" for line in _pasted(passable)]
    if bad < len(failed):
        text = f"no limits are suggested for {failed[bad].name}: {objection(failed[bad])}"
        after = len(failed) - bad - 1
        if after:
            text += f"; nor for the {f'{after:,} tensors' if after > 1 else 'one'} that fail"
            text += f"{'s' if after == 1 else ''} after it"
        lines.append(text)
    return lines


def _pasted(rows: Sequence[TensorRow]) -> list[str]:
    """A line for each name, the widest over its calls."""
    limits: dict[str, Limit] = {}
    for row in rows:
        name, new = row.name.partition("#")[0], suggested(row)
        old = limits.get(name, new)
        widest = max(old.max_abs, new.max_abs), max(old.mean_abs, new.mean_abs)
        limits[name] = Limit(*widest)
    return [
        f"{json.dumps(n, ensure_ascii=False)}: "
        f'{{"max_abs": {_json(v.max_abs)}, "mean_abs": {_json(v.mean_abs)}}},'
        for n, v in limits.items()
    ]


def _json(value: float) -> str:
    """A limit as a tolerance file holds it."""
    if math.isinf(value):
        return '"inf"'
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)
