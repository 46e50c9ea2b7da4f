"""A comparison on the terminal and as JSON: a line as each row is made, then the answers."""

import contextlib
import json
import re
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
    SYSTEMATIC,
    Answer,
    Problem,
    Result,
    TensorRow,
)
from checks.gates.comparison.several import Comparison
from checks.gates.comparison.steps import NEXT
from checks.gates.errors import INVALID, GateError
from checks.gates.formats.manifest import INFORMATIONAL
from checks.gates.reports.rows import (
    HANG,
    columns_of,
    figure_of,
    folded,
    heading,
    line,
    plainly,
    say,
    style_of,
    width_of,
)
from checks.report.terminal import BAD, GOOD, NEAR, QUIET, console
from checks.report.wording import number, plural, used
from checks.results import replace_text

_WIDEST = 10_000  # columns
WORDS = {0: "PASS", 1: "FAIL", 2: "INVALID"}
LEGEND = (
    "what each candidate uses of its limit (= equal, 100% just passes, 12x is 12 times the limit); "
    "then the largest difference between two candidates"
)
_SURROGATE = re.compile("[\ud800-\udfff]")  # of paths that are no UTF-8


def show_rows(report: Result | Comparison, out: Console, *, quiet: bool = False) -> None:
    """Print a whole report: problems, the rows, failing ones alone where `quiet`, then what
    follows them.
    """
    for label, result in labelled(report):
        rows = [r for r in result.rows if r.failed or not quiet]
        if label and (rows or result.problems):
            out.print(heading(label))
        for problem in result.problems:
            say(out, invalid(problem))
        width, columns = width_of(r.name for r in result.rows), columns_of(out)
        for row in rows:
            if not row.aside:
                say(out, line(row, width, columns), hang=HANG)
        for text in folded((r for r in rows if r.aside), width, columns):
            say(out, text, hang=HANG)
    show(report, out, problems=False)


def invalid(problem: Problem) -> Text:
    """Return why a comparison is not valid, in its three lines."""
    return plainly(f"INVALID  {problem}", BAD)


def labelled(report: Result | Comparison) -> list[tuple[str, Result]]:
    """Return each candidate's label and result; "" for the label of the only one."""
    if isinstance(report, Result):
        return [("", report)]
    return list(zip(report.labels, report.results, strict=True))


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
            say(out, plainly(f"candidate {label!r}: {verdict(result)}", _of(result)))
            continue
        out.print(heading(label))
        _show(result, out, questions=5, problems=problems)  # the sixth is answered once, by all
    say(out, Text(LEGEND, style=QUIET))
    made = table(report)
    if made.__rich_measure__(out, out.options.update(max_width=_WIDEST)).maximum > out.width:
        made = table(report, between=False)  # a cut number is another number
    out.print(made)
    if report.backend:
        _answer(5, Answer(QUESTIONS[5], report.backend), out)
    say(out, plainly(verdict_of_all(report), _of(report)))


def _answer(n: int, answer: Answer, out: Console) -> None:
    out.print(Text(f"{n + 1} {answer.question}"))
    say(out, plainly(answer.text), indent=2)


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
            say(out, plainly(note, QUIET))
    for problem in result.problems:
        if problems and problem.kind != INPUTS:
            say(out, invalid(problem))
    for n, answer in enumerate(result.answers[:questions]):
        _answer(n, answer, out)
    if closing:
        say(out, plainly(verdict(result), _of(result)))
    for text in (*steps, *would_have_passed(result)):
        if text.startswith((NEXT, " ")):
            out.print(plainly(text), soft_wrap=True)  # to be pasted
        else:
            say(out, plainly(text))


def table(comparison: Comparison, *, between: bool = True) -> Table:
    """Return tensors by candidates: what each uses of its limit, and how far two are apart where
    `between`.
    """
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column("tensor", overflow="fold")
    for label in comparison.labels:
        made.add_column(plainly(label), justify="right", no_wrap=True)
    pairs = list(combinations(range(len(comparison.labels)), 2)) if between else []
    for a, b in pairs:
        label = f"{comparison.labels[a]} - {comparison.labels[b]}"
        made.add_column(plainly(label), justify="right", no_wrap=True)
    for name, rows in by_name(comparison).items():
        cells = [Text(share(r), style=style_of(r) if r else QUIET) for r in rows]
        known = comparison.between.get(name)
        for a, b in pairs:
            told = "" if known is None else figure_of(known.max_abs[a + 1][b + 1])
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
    known = row.status in (OK, OVER, SYSTEMATIC)
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
        elif doubts := _doubts(result):
            text += f"; {label}: {'; '.join(doubts)}"
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
        text += f"; first {result.first.name}: {cause}"
        if (hint := result.hint) is not None:
            text += f"; before it, within its limits but systematically off: {_suspect(hint)}"
        return text
    told = [change_text(c) for c in result.changes if c.changed]
    return "; ".join([text, *_doubts(result), *told])


def _doubts(result: Result) -> list[str]:
    """What speaks against a verdict although every tensor is within its limits."""
    told = ["no gate has a finite limit: nothing is checked"] if result.toothless else []
    if (row := result.quiet) is not None:
        count = len(result.suspects)
        text = f"{count:,} tensors" if count > 1 else "one tensor"
        text += f" within {'their' if count > 1 else 'its'} limits, but systematically off by more "
        told.append(f"{text}than rounding, {'first ' if count > 1 else ''}{_suspect(row)}")
    return told


def _suspect(row: TensorRow) -> str:
    eta = number(row.measured.eta or 0, 2) if row.measured else "-"
    return f"{row.name} (eta {eta}): {row.cause.text if row.cause else 'unclassified'}"


def doubted(report: Result | Comparison) -> bool:
    """Return whether something speaks against a pass."""
    each = [result for _, result in labelled(report)]
    return any(_doubts(r) or any(c.spoken for c in r.changes) for r in each)


def _of(report: Result | Comparison) -> str:
    """The style of a verdict: a pass with a doubt is none to be glad of."""
    return BAD if not report.ok else NEAR if doubted(report) else GOOD


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
