"""A comparison on the terminal and as JSON: a line as each row is made, then the answers."""

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from checks.gates.comparison.questions import QUESTIONS, change_text, would_have_passed
from checks.gates.comparison.record import (
    INPUTS,
    MISSING,
    OK,
    OVER,
    Answer,
    Problem,
    Result,
    TensorRow,
)
from checks.gates.comparison.several import Comparison
from checks.gates.comparison.steps import NEXT
from checks.gates.errors import INVALID, GateError
from checks.gates.formats.manifest import INFORMATIONAL
from checks.report.terminal import BAD, GOOD, NEAR, QUIET, console
from checks.report.wording import number, plural, printable, used
from checks.results import replace_text

_NAME, _STATUS, _ROLE = 40, 17, 5
_WIDEST = 10_000  # columns
WORDS = {0: "PASS", 1: "FAIL", 2: "INVALID"}
LEGEND = (
    "what each candidate uses of its limit (= equal, 100% just passes, 12x is 12 times the limit); "
    "then the largest difference between two candidates"
)
_SURROGATE = re.compile("[\ud800-\udfff]")  # of paths that are no UTF-8
_FEW = 3  # tensors of one side alone that have a line each
_ROLES = {"gate": "gate", "informational": "info", "debug": "debug"}


def width_of(names: Iterable[str]) -> int:
    """Return how wide the column of names need be."""
    return min(_NAME, max(map(len, names), default=_NAME))


def line(row: TensorRow, width: int = _NAME) -> Text:
    """Return one tensor's line: status, name, role, error of what is allowed, eta, cause."""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{row.status:{_STATUS}} ", style=_style(row))
    text.append(f"{row.name:{width}} {_ROLES[row.role]:{_ROLE}} ")
    text.append(_figures(row), style=QUIET if row.status == OK else "")
    if row.cause is not None:
        text.append(f"  {row.cause.name}", style=NEAR)
    elif row.systematic and not row.failed:
        text.append("  systematic", style=NEAR)
    if row.three_way is not None:
        told = f"  B/A {_number(row.three_way.ratio)}"
        text.append(told, style=QUIET if row.three_way.rounding else NEAR)
    if row.dtypes[0] != row.dtypes[1] and None not in row.dtypes:
        text.append(f"  {row.dtypes[0]} / {row.dtypes[1]}", style=QUIET)
    return text


def folded(rows: Iterable[TensorRow], width: int = _NAME) -> Iterator[Text]:
    """Yield the lines of tensors that one side alone has and no limit is asked of: many in one."""
    rows = list(rows)
    for status in MISSING:
        alike = [r for r in rows if r.status == status]
        if len(alike) <= _FEW:
            yield from (line(r, width) for r in alike)
            continue
        names = ", ".join(r.name for r in alike[:_FEW])
        told = f"{len(alike):,} debug tensors: {names}, ... (all of them in --json and --html)"
        yield _text(f"{status:{_STATUS}} {told}", QUIET)


def heading(label: str) -> Text:
    """Return the line above a candidate's rows."""
    return _text(f"candidate {label}", "bold")


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def show_rows(report: Result | Comparison, out: Console, *, quiet: bool = False) -> None:
    """Print a whole report: problems, the rows, failing ones alone where `quiet`, then what
    follows them.
    """
    for label, result in labelled(report):
        rows = [r for r in result.rows if r.failed or not quiet]
        if label and (rows or result.problems):
            out.print(heading(label))
        for problem in result.problems:
            out.print(invalid(problem), soft_wrap=True)
        width = width_of(r.name for r in result.rows)
        for row in rows:
            if not row.aside:
                out.print(line(row, width), soft_wrap=True)
        for text in folded((r for r in rows if r.aside), width):
            out.print(text, soft_wrap=True)
    show(report, out, problems=False)


def invalid(problem: Problem) -> Text:
    """Return why a comparison is not valid, in its three lines."""
    return _text(f"INVALID  {problem}", BAD)


def labelled(report: Result | Comparison) -> list[tuple[str, Result]]:
    """Return each candidate's label and result; "" for the label of the only one."""
    if isinstance(report, Result):
        return [("", report)]
    return list(zip(report.labels, report.results, strict=True))


def _style(row: TensorRow) -> str:
    if row.failed:
        return BAD
    return QUIET if row.status in MISSING or not row.contract else GOOD


def _figures(row: TensorRow) -> str:
    m = row.measured
    if m is None:
        shapes = [str(list(s)) for s in row.shapes if s is not None]
        return " against ".join(shapes)
    if row.limit is None:
        return f"max {_number(m.max_abs)}  mean {_number(m.mean_abs)}"
    text = f"max {allowed(m.max_abs, row.limit.max_abs)}"
    text += f"  mean {allowed(m.mean_abs, row.limit.mean_abs)}"
    return text + (f"  eta {number(m.eta, 2)}" if m.eta is not None else "")


def allowed(value: float, limit: float) -> str:
    """Return an error beside its limit: "2.3e-05 > 1e-05"."""
    return f"{_number(value)} {'≤' if value <= limit else '>'} {_number(limit)}"


def _number(value: float) -> str:
    return "0" if value == 0 else number(value, 3)


def show(
    report: Result | Comparison, out: Console, *, closing: bool = True, problems: bool = True
) -> None:
    """Print what follows the rows: problems (where asked for, but for inputs that differ, which
    are told before the rows), answers, the verdict (of one candidate, where `closing`), what to do
    next, the numbers that would have passed.
    """
    if isinstance(report, Result):
        _show(report, out, closing=closing, problems=problems)
        return
    for label, result in zip(report.labels, report.results, strict=True):
        if result.ok and not result.notes:
            out.print(_text(f"candidate {label!r}: {verdict(result)}", GOOD), soft_wrap=True)
            continue
        out.print(heading(label))
        _show(result, out, questions=5, problems=problems)  # the sixth is answered once, by all
    out.print(Text(LEGEND, style=QUIET), soft_wrap=True)
    made = table(report)
    if made.__rich_measure__(out, out.options.update(max_width=_WIDEST)).maximum > out.width:
        made = table(report, between=False)  # a cut number is another number
    out.print(made)
    if report.backend:
        _answer(5, Answer(QUESTIONS[5], report.backend), out)
    out.print(_text(verdict_of_all(report), GOOD if report.ok else BAD), soft_wrap=True)


def _answer(n: int, answer: Answer, out: Console) -> None:
    out.print(Text(f"{n + 1} {answer.question}"))
    out.print(_text(f"  {answer.text}"), soft_wrap=True)


def _show(
    result: Result,
    out: Console,
    *,
    questions: int = len(QUESTIONS),
    closing: bool = True,
    problems: bool = True,
) -> None:
    steps = [n for n in result.notes if n.startswith(NEXT)]
    for note in result.notes:
        if note not in steps:
            out.print(_text(note, QUIET), soft_wrap=True)
    for problem in result.problems:
        if problems and problem.kind != INPUTS:
            out.print(invalid(problem), soft_wrap=True)
    for n, answer in enumerate(result.answers[:questions]):
        _answer(n, answer, out)
    if closing:
        out.print(_text(verdict(result), GOOD if result.ok else BAD), soft_wrap=True)
    for text in (*steps, *would_have_passed(result)):
        out.print(_text(text), soft_wrap=True)


def table(comparison: Comparison, *, between: bool = True) -> Table:
    """Return tensors by candidates: what each uses of its limit, and how far two are apart where
    `between`.
    """
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column("tensor", no_wrap=True)
    for label in comparison.labels:
        made.add_column(_text(label), justify="right", no_wrap=True)
    pairs = list(combinations(range(len(comparison.labels)), 2)) if between else []
    for a, b in pairs:
        label = f"{comparison.labels[a]} - {comparison.labels[b]}"
        made.add_column(_text(label), justify="right", no_wrap=True)
    for name, rows in by_name(comparison).items():
        cells = [Text(share(r), style=_style(r) if r else QUIET) for r in rows]
        known = comparison.between.get(name)
        for a, b in pairs:
            told = "" if known is None else _number(known.max_abs[a + 1][b + 1])
            cells.append(Text(told, style=QUIET))
        made.add_row(Text(name), *cells)
    return made


def by_name(comparison: Comparison) -> dict[str, list[TensorRow | None]]:
    """Return the row of each candidate by contract tensor, in execution order."""
    found = [{r.name: r for r in result.rows if r.contract} for result in comparison.results]
    return {n: [rows.get(n) for rows in found] for n in dict.fromkeys(k for f in found for k in f)}


def share(row: TensorRow | None) -> str:
    """Return what a row uses of its limit, such as "3%" or "12x"; its status where it has none."""
    if row is None:
        return "-"
    known = row.status in (OK, OVER)
    return used(row.used) if known else row.status


def verdict_of_all(comparison: Comparison) -> str:
    """Return the last line of several candidates: how many pass, and which do not."""
    good = sum(r.ok for r in comparison.results)
    text = f"{WORDS[comparison.exit_code]}: {good} of {len(comparison.results)} candidates pass"
    for label, result in zip(comparison.labels, comparison.results, strict=True):
        if not result.ok:
            first = f" at {result.first.name}" if result.first else ""
            why = f": {reason(result)}" if result.problems else first
            text += f"; {label} {WORDS[result.exit_code]}{why}"
    return text


def reason(result: Result) -> str:
    """Return why a comparison is not valid, in a few words: the first problem, how many more."""
    more = len(result.problems) - 1
    return result.problems[0].what + (f" (and {more:,} more)" if more else "")


def verdict(result: Result) -> str:
    """Return the verdict in a line, its counts and what was checked of the inputs; where these
    differ, that alone.
    """
    if result.inputs == "different" and result.problems:
        return f"{WORDS[INVALID]}: {reason(result)}"
    contract = [r for r in result.rows if r.contract]
    failed = [r for r in contract if r.failed]
    informational = sum(r.role == INFORMATIONAL for r in contract)
    counts = f"{len(contract) - len(failed)} of {plural(len(contract), 'contract tensor')} pass"
    if informational:
        counts += f" ({informational} informational)"
    counts = f"{reason(result)}; {counts}" if result.problems else counts
    text = f"{WORDS[result.exit_code]}: {counts}; inputs {result.inputs}"
    if result.first is not None:
        missing = result.first.status in MISSING
        unknown = "missing on the candidate" if missing else "unclassified"
        cause = result.cause.text if result.cause else unknown
        return f"{text}; first {result.first.name}: {cause}"
    changed = [c for c in result.changes if c.changed]
    return text + "".join(f"; {change_text(c)}" for c in changed)


def to_json(report: Result | Comparison) -> str:
    """Return the whole as strict JSON; in ASCII where a text has what UTF-8 cannot hold."""
    record = report.to_record()
    text = json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    if _SURROGATE.search(text):
        return json.dumps(record, indent=1, allow_nan=False) + "\n"
    return text


def write(path: Path, text: str, option: str) -> None:
    """Write a report; whole, or not at all.

    Raises:
        GateError: it cannot be written.
    """
    try:
        replace_text(path, _SURROGATE.sub("\ufffd", text))
    except OSError as error:
        reason = error.strerror or str(error)
        what = f"{path} cannot be written: {reason}"
        raise GateError(what, option, "name another file") from None


def printer(stream: TextIO | None = None) -> Console:
    """Return the console that reports are printed on: a reader that leaves, as `head` does, ends
    the printing alone.
    """
    made = console(stream)
    leave = made.on_broken_pipe

    def quiet() -> None:
        with contextlib.suppress(SystemExit):
            leave()

    made.on_broken_pipe = quiet  # type: ignore[method-assign]
    return made


def shown(value: float | None) -> str:
    """Return a figure of a tensor, "-" where there is none."""
    return "-" if value is None or math.isnan(value) else _number(value)
