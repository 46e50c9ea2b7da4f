"""The sweep on the terminal: a progress bar while it runs, failures and a table at its end."""

import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from checks.report.wording import complaint, duration, plural, used
from checks.results import FAIL, STALE, Row, Summary, SurfaceSummary, severity, summary

BAR_CELLS, BAR_DECADES = 8, 4
PLAIN_WIDTH, PLAIN_STEPS, NARROW = 200, 10, 110
NAMES = 20  # columns that the names of ops want
# Blue and orange stay apart for every common colour vision; red is for text beside a word, and
# the terminal's own: of 16 colours the nearest to a vermilion is yellow.
GOOD, NEAR, BAD, QUIET = "#4c8dd6", "#e69f00", "bold red", "grey58"


class Advance(Protocol):
    """What a progress bar gives: call it after each item, with the item's rows."""

    def __call__(self, rows: Iterable[Row] = ()) -> None:
        """Take one step; failures among `rows` are counted beside the bar."""


def console(stream: TextIO | None = None) -> Console:
    """Return a console on `stream` (stdout where None): plain text where it is no terminal."""
    stream = sys.stdout if stream is None else stream
    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(
        file=stream, width=PLAIN_WIDTH, color_system=None, highlight=False, legacy_windows=False
    )


@contextmanager
def progress(total: int, stream: TextIO | None = None, label: str = "sweep") -> Iterator[Advance]:
    """Show how far `total` items have come; yields a function to call after each of them.

    On a terminal a bar with counts, failures, time taken and time left; elsewhere a line for each
    tenth of the way.
    """
    out = console(stream)
    steps = _bar(out, total, label) if out.is_terminal else _lines(out, total, label)
    with steps as advance:
        yield advance


@dataclass(slots=True)
class _Count:
    """How many items are done and how many rows are bad."""

    total: int
    done: int = 0
    bad: int = 0
    last: str = ""

    def take(self, rows: Iterable[Row]) -> None:
        self.done += 1
        for row in rows:
            self.bad += row.status in (FAIL, STALE)
            self.last = f"{row.op} {row.surface}"

    @property
    def failures(self) -> str:
        return plural(self.bad, "failure") if self.bad else "no failures"


@contextmanager
def _bar(out: Console, total: int, label: str) -> Iterator[Advance]:
    columns = (
        TextColumn(label),
        BarColumn(bar_width=30, complete_style=GOOD, finished_style=GOOD),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failures]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[last]}", style=QUIET, markup=False),
    )
    count = _Count(total)
    with Progress(*columns, console=out, refresh_per_second=5) as bar:
        task = bar.add_task(label, total=total, failures=count.failures, last="")

        def advance(rows: Iterable[Row] = ()) -> None:
            count.take(rows)
            failures = f"[{BAD}]{count.failures}[/]" if count.bad else count.failures
            bar.update(task, advance=1, failures=failures, last=count.last)

        yield advance
        bar.update(task, last="")


@contextmanager
def _lines(out: Console, total: int, label: str) -> Iterator[Advance]:
    count = _Count(total)

    def advance(rows: Iterable[Row] = ()) -> None:
        count.take(rows)
        if count.done * PLAIN_STEPS // total > (count.done - 1) * PLAIN_STEPS // total:
            share = 100 * count.done // total
            out.print(f"{label}: {count.done}/{total} ({share}%), {count.failures}", markup=False)

    yield advance


def print_report(
    rows: Iterable[Row],
    *,
    wall: float | None = None,
    path: str | os.PathLike[str] | None = None,
    notes: Sequence[str] = (),
    limit: int = 20,
    stream: TextIO | None = None,
) -> Summary:
    """Print failures, a table with a line for each surface, the totals and the report's path.

    Arguments:
        rows: the results.
        wall: the wall time in seconds; where None, the rows' own times are added up.
        path: the report's page or folder, printed last.
        notes: further lines, such as overrides that are not needed.
        limit: how many failures are listed; the rest is counted.
        stream: where to, stdout where None.

    Returns:
        The summary that was printed.
    """
    every, out = list(rows), console(stream)
    found = summary(every)
    _print_failures(out, every, limit)
    if every:
        out.print(_table(found, out))
        out.print()
    for note in notes:
        _say(out, Text(f"note: {note}"))
    for name, count in found.missing.items():
        _say(out, Text(f"not run for want of {name}: {plural(count, 'check')}"))
    _say(out, _totals(found, wall))
    if path is not None:
        out.print(Text(f"report: {os.fspath(path)}"), soft_wrap=True)
    return found


def _say(out: Console, text: Text) -> None:
    """Print a sentence: on a terminal broken between words, elsewhere one line."""
    out.print(text, soft_wrap=not out.is_terminal)


def _print_failures(out: Console, rows: list[Row], limit: int) -> None:
    """Print what failed, the worst first, at most `limit`; then how many more there are.

    Samples of an op that fail on one surface with the same words are one failure.
    """
    bad = [row for row in rows if row.status in (FAIL, STALE)]
    bad.sort(key=lambda row: (-severity(row.headroom), row.key))
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row in bad:
        words = row.message or row.reason
        alike.setdefault((row.status, row.op, row.surface, row.dtype, words), []).append(row)
    shown = list(alike.values())[:limit]
    for first_row, *others in shown:
        first, *rest = complaint(first_row)
        out.print(Text(first, style=BAD), soft_wrap=True)
        for line in rest:
            out.print(Text(line), soft_wrap=True)
        if others:
            names = ", ".join(row.sample for row in others)
            out.print(
                Text(f"  the same at {plural(len(others), 'more sample')}: {names}"), soft_wrap=True
            )
        out.print()
    left = len(bad) - sum(map(len, shown))
    if left:
        out.print(Text(f"and {left:,} more\n", style=BAD))


def _table(found: Summary, out: Console) -> Table:
    """Return a line for each surface; counts that are 0 throughout have no column, nor have those
    that the totals repeat where names would not fit beside them.
    """
    narrow = out.width < NARROW
    counts = [
        name
        for name in ("checks", "passed", "failures", "excluded", "stale", "skipped")
        if name in ("checks", "failures")
        or (getattr(found, name) and not (narrow and name == "passed"))
    ]
    for name in ("skipped", "excluded"):
        if name in counts and _rest(_widths(found, counts, out.width), out.width) < NAMES:
            counts.remove(name)
    table = _columns(found, counts, out.width)
    for name, part in found.surfaces.items():
        share = _headroom(part, bars=out.is_terminal and not narrow)
        cells = (_count(name, getattr(part, name)) for name in counts)
        table.add_row(Text(name), *cells, share, *_worst(part))
    cells = (_count(name, getattr(found, name)) for name in counts)
    table.add_row(Text("all"), *cells, Text(), Text(), Text(duration(found.seconds)), style="bold")
    return table


def _columns(found: Summary, counts: list[str], room: int) -> Table:
    """Return the empty table, no wider than `room`: "worst" gives way, on more lines."""
    gap = 1 if room < NARROW else 2
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    widths = _widths(found, counts, room)
    rest = _rest(widths, room)
    for name, width in widths.items():
        table.add_column(
            _heading(name),
            justify="right" if name in (*counts, "time") else "left",
            no_wrap=name != "worst",
            overflow="fold",
            min_width=width,
            max_width=max(len("worst"), rest) if name == "worst" else None,
        )
    return table


def _widths(found: Summary, counts: list[str], room: int) -> dict[str, int]:
    """Return what each column needs at least."""
    widths = {
        "surface": max(map(len, found.surfaces), default=0),
        **{name: max(len(_heading(name)), len(f"{getattr(found, name):,}")) for name in counts},
        "of tolerance": len("of tolerance") if room < NARROW else BAR_CELLS + 6,
        "worst": 0,
        "time": len(duration(found.seconds)),
    }
    if _rest(widths, room) < NAMES:
        widths = {"used" if n == "of tolerance" else n: w for n, w in widths.items()}
        widths["used"] = len("<0.1%")
    return widths


def _rest(widths: dict[str, int], room: int) -> int:
    """Return how many columns are left for "worst"."""
    return room - sum(widths.values()) - len(widths) * (1 if room < NARROW else 2)


def _heading(name: str) -> str:
    return "failed" if name == "failures" else name


def _count(name: str, count: int) -> Text:
    if not count:
        return Text("-", style=QUIET)
    return Text(f"{count:,}", style=BAD if name in ("failures", "stale") else "")


def _worst(part: SurfaceSummary) -> tuple[Text, Text]:
    row = part.worst
    name = "" if row is None or not row.headroom else f"{row.op} {row.sample}"
    return Text(name, style=QUIET), Text(duration(part.seconds))


def _headroom(part: SurfaceSummary, *, bars: bool) -> Text:
    """Return how much of the tolerance the worst row uses, on a terminal with a log bar."""
    share = part.headroom
    colour = BAD if severity(share) > 1 else NEAR if severity(share) > 0.5 else GOOD
    label = used(share) or "-"
    if not bars:
        return Text(label)
    cells = bar_cells(share)
    bar = Text("\u2588" * cells, style=colour)
    bar.append("\u2591" * (BAR_CELLS - cells), style=QUIET)
    return bar.append(f" {label}", style=colour if share is not None else QUIET)


def bar_cells(headroom: float | None) -> int:
    """Return how many of the cells of a bar stand for `headroom`, four decades up to 1."""
    level = severity(headroom)
    if level <= 0:
        return 0
    if level >= 1:
        return BAR_CELLS
    share = 1 + math.log10(level) / BAR_DECADES
    return max(1, min(BAR_CELLS - 1, round(BAR_CELLS * share)))


def _totals(found: Summary, wall: float | None) -> Text:
    bad = found.failures or found.stale
    time = duration(found.seconds if wall is None else wall)
    text = Text()
    text.append("FAILED" if bad else "PASSED" if found.checks else "NOTHING CHECKED", style="bold")
    text.append(
        f": {plural(found.ops, 'op')}, {plural(found.samples, 'sample')},"
        f" {plural(found.checks, 'check')} in {time}:"
    )
    text.append(f" {plural(found.failures, 'failure')}", style=BAD if found.failures else "")
    text.append(f", {plural(found.excluded, 'exclusion')} held")
    text.append(f", {found.stale:,} stale", style=BAD if found.stale else "")
    text.append(f", {found.skipped:,} skipped")
    return text
