"""An isolation on the terminal: one line a block."""

import json

from rich.console import Console
from rich.text import Text

from checks.gates.blocks.isolated import (
    AMPLIFIES,
    FINE,
    INHERITED,
    OWN,
    UNCHECKED,
    BlockRow,
    Isolation,
)
from checks.gates.reports.rows import say
from checks.report.terminal import BAD, GOOD, NEAR, QUIET
from checks.report.wording import number, plural

_NAME, _VERDICT, _FIGURE = 32, 10, 8
HANG = 11  # columns that the second line of a row is further in
_STYLES = {FINE: GOOD, OWN: BAD, INHERITED: QUIET, AMPLIFIES: NEAR, UNCHECKED: BAD}


def heading() -> Text:
    """Return the line above the rows: errors are relative, in rms."""
    text = f"{'verdict':{_VERDICT}} {'block':{_NAME}} {'own':>{_FIGURE}} {'total':>{_FIGURE}}"
    text += f" {'inputs':>{_FIGURE}} {'times':>{_FIGURE}}  relative rms"
    return Text(text, style=QUIET)


def line(row: BlockRow) -> Text:
    """Return one block's line: verdict, own and total error, that of its inputs, amplification."""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{row.verdict:{_VERDICT}} ", style=_STYLES[row.verdict])
    text.append(f"{row.output:{_NAME}}")
    for value in (row.own_error, row.total_error, row.before, row.amplification):
        text.append(f" {_figure(value):>{_FIGURE}}")
    if row.cause is not None:
        text.append(f"  {row.cause.name}: {row.cause.text}", style=NEAR)
    if row.blocks and row.verdict != FINE:
        text.append(f"  of {', '.join(row.blocks)}", style=QUIET)
    if row.note:
        text.append(f"  {row.note}", style=NEAR if row.verdict != FINE else QUIET)
    return text


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return "0" if value == 0 else number(value, 2)


def verdict(found: Isolation) -> str:
    """Return the last line: the verdict and what stands behind it."""
    rows = found.every
    counts = {v: [r for r in rows if r.verdict == v] for v in _STYLES}
    word = {0: "PASS", 1: "FAIL", 2: "INVALID"}[found.exit_code]
    text = f"{word}: {len(counts[FINE])} of {plural(len(rows), 'row')} fine"
    for name, tail in (
        (OWN, "wrong by itself"),
        (INHERITED, "inherited"),
        (AMPLIFIES, "amplified"),
        (UNCHECKED, "unchecked"),
    ):
        if counts[name]:
            text += f", {len(counts[name]):,} {tail}"
    if found.first is not None:
        cause = found.first.cause
        text += f"; first {found.first.output}: {cause.text if cause else 'unclassified'}"
    elif counts[UNCHECKED]:
        text += f"; first {counts[UNCHECKED][0].output}: {counts[UNCHECKED][0].note}"
    return text


def show(found: Isolation, out: Console) -> None:
    """Print the notes and the verdict."""
    for note in found.notes:
        say(out, Text(note, style=QUIET))
    say(out, Text(verdict(found), style=GOOD if found.ok else BAD))


def to_json(found: Isolation) -> str:
    """Return the whole as strict JSON."""
    return json.dumps(found.to_record(), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
