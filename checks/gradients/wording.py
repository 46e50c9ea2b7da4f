"""A report in words: at most 25 lines, plain or in colour, as wide as the terminal it is on."""

import dataclasses
import math
import re
import sys
import textwrap
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from checks.compare import round_up
from checks.gradients.listing import grouped, listed
from checks.gradients.numerals import aligned, ratio_text
from checks.gradients.page import LABEL, LINES, WIDTH, Page, Row
from checks.gradients.report import (
    ALLOWED,
    DOMAIN,
    INCONCLUSIVE,
    KINK,
    NONDETERMINISTIC,
    PASS,
    UNDEFINED,
    VACUOUS,
    WRONG,
    Cause,
    Check,
    GradientReport,
    Worst,
)
from checks.gradients.target import Target
from checks.tolerances import constant

NARROWEST, WIDEST = 40, 120
AGAIN = 4  # lines of a call to repeat
ADVICE = {
    DOMAIN: "move the point inside the domain, or draw it from a domain such as positive()",
    KINK: "move the point off the kink, or allow it: allow=('kinks',)",
    INCONCLUSIVE: "run the function in float64, or sum less of what cancels; or allow it: "
    "allow=('inconclusive',)",
    NONDETERMINISTIC: "fix the random numbers, or allow it: allow=('nondeterministic',)",
    VACUOUS: "use a loss whose gradient is not zero (not .sum() of a softmax)",
}
REENTRANT = "clone in the backward what it writes into"


def text(report: GradientReport, width: int = WIDTH) -> str:
    """The report as plain text, no wider than `width`."""
    return "\n".join(
        f"{label:<{LABEL}}{value}".rstrip() if label else value
        for label, value, _ in rows(report, width)
    )


def show(report: GradientReport, stream: IO[str] | None = None) -> None:
    """Print a report, in colour where the stream is a terminal that has it."""
    from autodiff.optional import available

    out = sys.stdout if stream is None else stream
    if not available("rich"):
        out.write(text(report) + "\n")
        return
    from rich.console import Console

    console = Console(file=out, highlight=False, soft_wrap=True)
    width = min(max(console.width, NARROWEST), WIDEST) if out.isatty() else WIDTH
    console.print(rich_text(report, width))


def rich_text(report: GradientReport, width: int = WIDTH) -> Any:
    """The report as a `rich.text.Text`, no wider than `width`."""
    from rich.text import Text

    made = Text()
    for n, (label, value, style) in enumerate(rows(report, width)):
        made.append("\n" if n else "")
        if label:
            made.append(f"{label:<{LABEL}}", style="bold" if n == 0 else "dim")
        elif n == 0:
            verdict, _, rest = value.partition(" ")
            made.append(verdict, style=style)
            made.append(" " + rest, style="bold")
            continue
        made.append(value, style=style)
    return made


def rows(report: GradientReport, width: int = WIDTH) -> list[Row]:
    """Label, text and style of every line."""
    page = Page(width)
    title = textwrap.wrap(_title(report), width, subsequent_indent="  ") or [""]
    head: list[Row] = [("", line, _colour(report)) for line in title]
    if report.ok and report.verdict == PASS:
        return [*head, *_passed(page, report)]
    body = [*_numbers(page, report), *_where(page, report), *_why(page, report)]
    tail = [*_allowed(page, report), *_reproduced(page, report), *_calls(page, report)]
    room = page.lines - len(head) - len(body) - len(tail)
    middle = listed(page, report.checks, _main(report), max(room - min(len(report.notes), 2), 1))
    room -= len(middle)
    notes = [row for note in report.notes for row in page.wrapped("note", note, "")]
    return [*head, *body, *middle, *notes[: max(room, 0)], *tail][: page.lines]


def _title(report: GradientReport) -> str:
    worst = _main(report)
    surface = f"[{worst.name}]" if worst is not None and report.verdict != PASS else ""
    ending = ", allowed" if report.ok and report.verdict != PASS else ""
    unchecked = _unchecked(Page(), report)
    if report.verdict == PASS and unchecked:
        ending = ", first order only" if "second" in unchecked[0][1] else ", not the third order"
    return f"{report.verdict} {report.name}{surface} ({report.framework}){ending}"


def _main(report: GradientReport) -> Check | None:
    """The check that decided."""
    return next((c for c in report.checks if c.verdict == report.verdict), None)


def _colour(report: GradientReport) -> str:
    if report.ok:
        return "bold green" if report.verdict == PASS else "bold yellow"
    return "bold yellow" if report.verdict in (KINK, INCONCLUSIVE, VACUOUS) else "bold red"


# --- numbers -------------------------------------------------------------------------------


def _numbers(page: Page, report: GradientReport) -> list[Row]:
    """The worst entry: derivative, difference and ratio under one another."""
    worst, main = report.worst, _main(report)
    if worst is None:
        # All of it: the last line is the way out.
        detail = main.detail if main is not None else ""
        found = page.wrapped("found", detail, "", 9) if detail else []
        return [*found, *_noise(page, main)]
    index = f"[{', '.join(map(str, worst.index))}]" if worst.index else ""
    entry = f"{worst.argument}{index}"
    made = page.wrapped("entry", f"{entry}   d {_output(report)} / d {entry}", "bold")
    if report.verdict == DOMAIN and main is not None:
        return [*made, *page.wrapped("found", main.detail, "")]
    if worst.left is not None and worst.right is not None:
        named = {"left slope": worst.left, "right slope": worst.right}
        if report.verdict == KINK and main is not None and "jump" in main.detail:
            made += page.wrapped(
                "jump", "the one-sided slopes grow without bound as the step shrinks", ""
            )
            named = {}
        shown = aligned([worst.derivative, *named.values()], worst.error)
        labels = ["derivative", *named]
        made += [(a, b, "") for a, b in zip(labels, shown, strict=True)]
        if named and report.verdict == KINK:
            made += [("convention", _convention(worst), "")]
        return made
    shown = aligned([worst.derivative, worst.difference], worst.error)
    if not np.isfinite(worst.derivative):  # it has no units to stand under
        shown = [s.strip() for s in shown]
    error = f" +- {worst.error:.1e}" if math.isfinite(worst.error) else ""
    made += [("derivative", shown[0], "red" if report.verdict == WRONG else "")]
    made += [("difference", shown[1] + error, "green" if report.verdict == WRONG else "")]
    ratio = ratio_text(worst)
    return [*made, ("ratio", ratio, "")] if ratio else made


def _noise(page: Page, main: Check | None) -> list[Row]:
    """How noisy a difference was that could not decide."""
    least = constant("gradient_tolerance")
    if main is None or main.verdict != INCONCLUSIVE or not least < main.allowed < math.inf:
        return []
    share = round_up(main.allowed)
    return page.wrapped("noise", f"an error of {share} of the largest entry would pass unseen", "")


def _output(report: GradientReport) -> str:
    """What is differentiated: one result, a combination of all, or the function itself."""
    assert report.worst is not None
    output = report.worst.output
    return f"({output})" if output.startswith("a random") else output or report.name


def _convention(worst: Worst) -> str:
    """Which of the slopes the derivative took."""
    assert worst.left is not None and worst.right is not None
    value, low, high = float(worst.derivative.real), worst.left, worst.right
    near = 4 * worst.error + constant("gradient_tolerance") * max(abs(low), abs(high))
    near += constant("kink_slack") * abs(high - low)
    for name, side in (
        ("the left slope", low),
        ("the right slope", high),
        ("the mean of both slopes", (low + high) / 2),
        ("zero", 0.0),
    ):
        if abs(value - side) <= near:
            return f"{name} was taken"
    inside = min(low, high) - near <= value <= max(low, high) + near
    return "a value between the slopes" if inside else "a value outside both slopes"


# --- where and why -------------------------------------------------------------------------


def _where(page: Page, report: GradientReport) -> list[Row]:
    return page.wrapped("wrong", report.pattern, "") if report.pattern else []


def _why(page: Page, report: GradientReport) -> list[Row]:
    cause: Cause | None = report.cause
    if cause is None:
        if report.verdict == WRONG and (report.pattern or report.diagnosis_calls):
            text = "none of the known ones: each was undone, and none fits"
            return page.wrapped("cause", text, "")
        return []
    made = page.wrapped("cause", cause.text, "bold")
    if cause.where:
        place, _, code = cause.where.partition(": `")
        made += page.wrapped("at", place.removeprefix("at "), "")
        if code:
            made += [(" ", page.cut("    " + code.removesuffix("`")), "cyan")]
    return made


# --- what would pass, and how to see it again ------------------------------------------------


def _allowed(page: Page, report: GradientReport) -> list[Row]:
    if report.ok:
        return []
    main = _main(report)
    advice = report.advice or ADVICE.get(report.verdict, "")
    if main is not None and report.verdict == NONDETERMINISTIC and "re-entrant" in main.detail:
        advice = REENTRANT
    made = page.wrapped("advice", advice, "") if advice else []
    if report.verdict != WRONG:
        return made
    of_tolerance = ("reverse", "forward", "jacobian")
    wrong = [c for c in report.checks if c.verdict == WRONG and math.isfinite(c.error)]
    needed = max((c.error for c in wrong if c.name.startswith(of_tolerance)), default=0.0)
    if needed:
        number = round_up(constant("suggestion_margin") * needed)
        text = f"tolerance={number}, relative to the largest entry"
        made += page.wrapped("would pass", text, "")
    return made


def _reproduced(page: Page, report: GradientReport) -> list[Row]:
    if report.ok:
        return []
    seed = f", seed={report.seed}" if report.seed else ""
    line = report.reproduce or f"checks.check_gradients({report.name}, *args{seed})"
    if line.startswith("checks.") or len(line) <= page.room:
        return page.wrapped("again", line, "cyan", AGAIN)
    lines = _continued(line, page.room - 2)
    if len(lines) > page.more(AGAIN):
        return page.wrapped("again", line, "cyan", AGAIN)
    return [(" " if n else "again", one, "cyan") for n, one in enumerate(lines)]


def _continued(command: str, room: int) -> list[str]:
    """A shell's command in lines that it reads as one, never broken inside quotes."""
    lines: list[str] = []
    for word in re.findall(r"(?:'[^']*'|\"[^\"]*\"|\S)+", command):
        if lines and len(lines[-1]) + 1 + len(word) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def again(target: Target, settings: Mapping[str, Any] | None = None) -> str:
    """One line that makes the same check again, by the names of its arguments; `settings` are the
    options that were set.
    """
    manual = target.manual
    written = {f.name: getattr(manual, f.name) for f in dataclasses.fields(manual)}
    parts = [target.name, *target.parameters]
    parts += [f"{k}={getattr(v, '__name__', '...')}" for k, v in written.items() if v is not None]
    if target.argnums is not None:
        parts.append(f"argnums={target.argnums}")
    if target.symmetric:
        parts.append(f"symmetric={target.symmetric}")
    parts += [f"{k}={v!r}" for k, v in (settings or {}).items()]
    if target.seed:
        parts.append(f"seed={target.seed}")
    return f"checks.check_gradients({', '.join(parts)})"


def _calls(page: Page, report: GradientReport) -> list[Row]:
    again = f", {report.diagnosis_calls} more to find the cause" if report.diagnosis_calls else ""
    text = (
        f"{_count(report.evaluations, 'call')} of the function{again}, "
        f"{report.derivative_calls} of its derivatives, {_time(report.seconds)}"
    )
    return page.wrapped("calls", text, "dim")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _passed(page: Page, report: GradientReport) -> list[Row]:
    """Checks made, the smallest error they would have caught, calls."""
    done = [c for c in report.checks if c.verdict != UNDEFINED]
    missing = dict.fromkeys(c.name for c in report.checks if c.verdict == UNDEFINED)
    names = grouped([c.name for c in done])
    names += f" (not defined: {', '.join(missing)})" if missing else ""
    made = [*page.wrapped("checks", names, "", 2), *_unchecked(page, report)]
    if math.isfinite(report.detectable):
        text = f"an error of {round_up(report.detectable)} of the largest entry, and larger ones"
        made += page.wrapped("catches", text, "")
    made += [row for note in report.notes[:1] for row in page.wrapped("note", note, "", 1)]
    return [*made, *_calls(page, report)]


def _unchecked(page: Page, report: GradientReport) -> list[Row]:
    """The orders asked for of which nothing could be checked, and why."""
    made: list[Row] = []
    for order in ("second", "third"):
        own = [c for c in report.checks if c.name.startswith(order)]
        if own and all(c.verdict == UNDEFINED for c in own):
            text = f"the {order} order, though asked for: {own[0].detail}"
            made += page.wrapped("not checked", text, "yellow", 2)
    return made


__all__ = ["ALLOWED", "LINES", "WIDTH", "aligned", "rich_text", "rows", "show", "text"]
