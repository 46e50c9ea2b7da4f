"""A bisection on the terminal: one line a step, the last good and the first bad tensor."""

import json
import math

from rich.console import Console
from rich.text import Text

from checks.gates.blocks.bisection import GOOD as FINE
from checks.gates.blocks.bisection import Bisection, Step
from checks.gates.comparison.record import TensorRow
from checks.gates.reports.blocks import heading
from checks.gates.reports.blocks import line as block_line
from checks.report.terminal import BAD, GOOD, QUIET
from checks.report.wording import number, plural

_NAME, _RUN = 32, 7


def line(step: Step, kind: str) -> Text:
    """Return one step's line: the run, good or bad, whose error decided, what is left."""
    run = f"run {step.number}" if step.number else "known"
    text = Text(f"{run:{_RUN}} ", no_wrap=True, overflow="ellipsis")
    text.append(f"{step.verdict:5}", style=GOOD if step.verdict == FINE else BAD)
    text.append(f"{step.tensor:{_NAME}} ")
    if kind == "replace":
        text.append(f"{len(step.names):4,} replaced  ")
    if step.row is not None:
        text.append(figures(step.row))
    if step.left:
        text.append(f"  among {step.left:,}", style=QUIET)
    return text


def figures(row: TensorRow) -> str:
    """Return "max 1e-3 > 1e-4  mean ..." of a row; what is wrong where nothing was compared."""
    m, limit = row.measured, row.limit
    if m is None or limit is None:
        return f"{row.status} {list(row.shapes[0] or ())} against {list(row.shapes[1] or ())}"
    pairs = (("max", m.max_abs, limit.max_abs), ("mean", m.mean_abs, limit.mean_abs))
    return "  ".join(f"{n} {_figure(v)} {'≤' if v <= most else '>'} {_figure(most)}"
                     for n, v, most in pairs)  # fmt: skip


def _figure(value: float) -> str:
    return "0" if value == 0 else "NaN" if math.isnan(value) else number(value, 3)


def show(found: Bisection, out: Console) -> None:
    """Print the blocks in between and the verdict."""
    if found.own:
        out.print(heading())
        for row in found.own:
            out.print(block_line(row), soft_wrap=True)
    style = GOOD if found.first_bad is None else BAD
    out.print(Text(verdict(found), style=style), soft_wrap=True)


def verdict(found: Bisection) -> str:
    """Return the last line."""
    took = f"{plural(found.runs, 'run')} of at most {found.most:,}" if found.most else "no run"
    count = plural(found.tensors, "tensor")
    if found.first_bad is None:
        return f"PASS: {_good(found)} ({count}, {took})"
    if found.kind == "replace":
        text = f"FAIL: the output is good from where {found.first_bad} is replaced"
        text += ": the part that makes it is off, and none after it"
        return f"{text} ({count}, {took})"
    text = f"FAIL: last good {found.last_good or 'none'}, first bad {found.first_bad}"
    if len(found.between) > 1:
        text += f"; in between {', '.join(found.between)}"
    hidden = [k for k in found.unknown if k != found.first_bad]
    if hidden:
        text += f"; not dumped by the candidate: {', '.join(hidden)}"
    return f"{text} ({count}, {took})"


def _good(found: Bisection) -> str:
    if found.kind == "replace":
        return "the output is good as it is"
    seen = {s.tensor for s in found.steps}
    if len(seen) == found.tensors:
        return "nothing is off"
    last = found.steps[-1].tensor if found.steps else "nothing"
    return f"{last} is good; {len(seen):,} looked at"


def to_json(found: Bisection) -> str:
    """Return the whole as strict JSON."""
    return json.dumps(found.to_record(), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
