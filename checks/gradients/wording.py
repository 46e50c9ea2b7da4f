"""A report in words: at most 25 lines, the same as plain text and in colour."""

import dataclasses
import math
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import IO, Any

from checks.compare import round_up, short
from checks.gradients.numerals import aligned, ratio_text
from checks.gradients.report import (
    ALLOWED,
    DOMAIN,
    INCONCLUSIVE,
    KINK,
    NONDETERMINISTIC,
    PASS,
    PRECEDENCE,
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

LINES = 25
WIDTH = 100
LABEL = 12
Row = tuple[str, str, str]
ADVICE = {
    DOMAIN: "move the point inside the domain, or draw it from a domain such as positive()",
    KINK: "move the point off the kink, or allow it: allow=('kinks',)",
    INCONCLUSIVE: "run the function in float64, or sum less of what cancels; or allow it: "
    "allow=('inconclusive',)",
    NONDETERMINISTIC: "fix the random numbers, or allow it: allow=('nondeterministic',)",
    VACUOUS: "use a loss whose gradient is not zero (not .sum() of a softmax)",
}


def text(report: GradientReport) -> str:
    """The report as plain text."""
    return "\n".join(
        f"{label:<{LABEL}}{value}".rstrip() if label else value for label, value, _ in rows(report)
    )


def show(report: GradientReport, stream: IO[str] | None = None) -> None:
    """Print a report, in colour where the stream is a terminal that has it."""
    from autodiff.optional import available

    out = sys.stdout if stream is None else stream
    if not available("rich"):
        out.write(text(report) + "\n")
        return
    from rich.console import Console

    Console(file=out, width=WIDTH, highlight=False, soft_wrap=True).print(rich_text(report))


def rich_text(report: GradientReport) -> Any:
    """The report as a `rich.text.Text`."""
    from rich.text import Text

    made = Text()
    for n, (label, value, style) in enumerate(rows(report)):
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


def rows(report: GradientReport) -> list[Row]:
    """Label, text and style of every line."""
    head: list[Row] = [("", _title(report), _colour(report))]
    if report.ok and report.verdict == PASS:
        return [*head, *_passed(report)]
    body = [*_numbers(report), *_where(report), *_why(report)]
    tail = [*_allowed(report), *_reproduced(report), ("calls", _calls(report), "dim")]
    room = LINES - len(head) - len(body) - len(tail)
    middle = _checks(report.checks, _main(report), max(room - min(len(report.notes), 2), 1))
    room -= len(middle)
    notes = [row for note in report.notes for row in _wrapped("note", note, "")]
    return [*head, *body, *middle, *notes[: max(room, 0)], *tail][:LINES]


def _title(report: GradientReport) -> str:
    worst = _main(report)
    surface = f"[{worst.name}]" if worst is not None and report.verdict != PASS else ""
    ending = ", allowed" if report.ok and report.verdict != PASS else ""
    unchecked = _unchecked(report)
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


def _wrapped(label: str, value: str, style: str, most: int = 3) -> list[Row]:
    lines = textwrap.wrap(value, WIDTH - LABEL, break_on_hyphens=False) or [""]
    if len(lines) > most:
        lines = [*lines[: most - 1], lines[most - 1][: WIDTH - LABEL - 4].rstrip(", ") + " ..."]
    return [(label if n == 0 else " ", line, style) for n, line in enumerate(lines)]


# --- numbers -------------------------------------------------------------------------------


def _numbers(report: GradientReport) -> list[Row]:
    """The worst entry: derivative, difference and ratio under one another."""
    worst, main = report.worst, _main(report)
    if worst is None:
        # All of it: the last line is the way out.
        found = _wrapped("found", main.detail, "", 9) if main is not None and main.detail else []
        return [*found, *_noise(main)]
    index = f"[{', '.join(map(str, worst.index))}]" if worst.index else ""
    entry = f"{worst.argument}{index}"
    made: list[Row] = [("entry", f"{entry}   d {_output(report)} / d {entry}", "bold")]
    if report.verdict == DOMAIN and main is not None:
        return [*made, *_wrapped("found", main.detail, "")]
    if worst.left is not None and worst.right is not None:
        named = {"left slope": worst.left, "right slope": worst.right}
        if report.verdict == KINK and main is not None and "jump" in main.detail:
            made += _wrapped(
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
    error = f" +- {worst.error:.1e}" if math.isfinite(worst.error) else ""
    made += [("derivative", shown[0], "red" if report.verdict == WRONG else "")]
    made += [("difference", shown[1] + error, "green" if report.verdict == WRONG else "")]
    ratio = ratio_text(worst)
    return [*made, ("ratio", ratio, "")] if ratio else made


def _noise(main: Check | None) -> list[Row]:
    """How noisy a difference was that could not decide."""
    if main is None or main.verdict != INCONCLUSIVE or not 0 < main.allowed < math.inf:
        return []
    share = round_up(main.allowed)
    return [("noise", f"an error of {share} of the largest entry would pass unseen", "")]


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


def _where(report: GradientReport) -> list[Row]:
    return _wrapped("wrong", report.pattern, "") if report.pattern else []


def _why(report: GradientReport) -> list[Row]:
    cause: Cause | None = report.cause
    if cause is None:
        if report.verdict == WRONG and (report.pattern or report.diagnosis_calls):
            return [("cause", "none of the known ones: each was undone, and none fits", "")]
        return []
    made = _wrapped("cause", cause.text, "bold")
    if cause.where:
        place, _, code = cause.where.partition(": `")
        made += _wrapped("at", place.removeprefix("at "), "")
        if code:
            made += [(" ", "    " + code.removesuffix("`"), "cyan")]
    return made


# --- checks --------------------------------------------------------------------------------


def _checks(checks: Sequence[Check], main: Check | None, room: int) -> list[Row]:
    """One line for each failed check, one for all that passed, one for what is not defined."""
    rank = {v: i for i, v in enumerate(PRECEDENCE)}
    failed = sorted(
        (c for c in checks if c.verdict not in (PASS, UNDEFINED)), key=lambda c: rank[c.verdict]
    )
    few = failed if len(failed) <= max(room - 2, 1) else failed[: max(room - 3, 1)]
    name = max((len(c.name) for c in few), default=0)
    verdict = max((len(c.verdict) for c in few), default=0)
    made: list[Row] = []
    told = {main.detail} if main is not None else set()
    for c in few:
        said = "" if c.detail in told or c.verdict == KINK else _measured(c)
        said = _measured(c) if c.verdict == WRONG else said
        line = f"{c.name:<{name}}  {c.verdict:<{verdict}}  {said}".rstrip()
        made.append((" " if made else "checks", _cut(line), _tint(c)))
    if len(few) < len(failed):
        made.append((" ", f"and {len(failed) - len(few)} more: {_tally(failed[len(few) :])}", ""))
    label = "passed" if made else "checks"
    passed = _grouped([c.name for c in checks if c.verdict == PASS])
    made += _wrapped(label, passed, "dim", 1) if passed else []
    missing = "; ".join(f"{c.name} ({c.detail})" for c in checks if c.verdict == UNDEFINED)
    made += _wrapped("not defined", missing, "dim", 1) if missing else []
    return made


def _grouped(names: Sequence[str]) -> str:
    """Names, those of one family once: "reverse, forward, second (5), vmap (3)"."""
    counts: dict[str, int] = {}
    for name in names:
        family = name.split(":")[0].split(",")[0]
        counts[family] = counts.get(family, 0) + 1
    return ", ".join(f"{k} ({n})" if n > 1 else k for k, n in counts.items())


def _cut(line: str) -> str:
    room = WIDTH - LABEL
    return line if len(line) <= room else line[: room - 4] + " ..."


def _said(check: Check) -> str:
    return "not defined" if check.verdict == UNDEFINED else check.verdict


def _tint(check: Check) -> str:
    if check.verdict in (PASS, UNDEFINED):
        return "dim"
    return "yellow" if check.verdict in (KINK, INCONCLUSIVE, VACUOUS) else "red"


def _measured(check: Check) -> str:
    if check.verdict == UNDEFINED:
        return check.detail
    if check.verdict in (PASS, WRONG) and math.isfinite(check.error) and check.allowed:
        return f"relative error {_small(check.error)}, allowed {_small(check.allowed)}"
    return check.detail


def _small(number: float) -> str:
    shown = short(number) if number else "0"
    return f"{number:.1e}" if "e-" in shown else shown


def _tally(checks: Sequence[Check]) -> str:
    counts: dict[str, int] = {}
    for c in checks:
        counts[c.verdict] = counts.get(c.verdict, 0) + 1
    return ", ".join(f"{n} {_said(Check('', v))}" for v, n in counts.items())


# --- what would pass, and how to see it again ------------------------------------------------


def _allowed(report: GradientReport) -> list[Row]:
    if report.ok:
        return []
    advice = report.advice or ADVICE.get(report.verdict, "")
    made = _wrapped("advice", advice, "") if advice else []
    if report.verdict != WRONG:
        return made
    of_tolerance = ("reverse", "forward", "jacobian")
    wrong = [c for c in report.checks if c.verdict == WRONG and math.isfinite(c.error)]
    needed = max((c.error for c in wrong if c.name.startswith(of_tolerance)), default=0.0)
    if needed:
        number = round_up(constant("suggestion_margin") * needed)
        made.append(("would pass", f"tolerance={number}, relative to the largest entry", ""))
    return made


def _reproduced(report: GradientReport) -> list[Row]:
    if report.ok:
        return []
    seed = f", seed={report.seed}" if report.seed else ""
    line = report.reproduce or f"checks.check_gradients({report.name}, *args{seed})"
    return _wrapped("again", line, "cyan", 2)


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


def _calls(report: GradientReport) -> str:
    again = f", {report.diagnosis_calls} more to find the cause" if report.diagnosis_calls else ""
    return (
        f"{_count(report.evaluations, 'call')} of the function{again}, "
        f"{report.derivative_calls} of its derivatives, {_time(report.seconds)}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _passed(report: GradientReport) -> list[Row]:
    """Checks made, the smallest error they would have caught, calls."""
    done = [c for c in report.checks if c.verdict != UNDEFINED]
    missing = dict.fromkeys(c.name for c in report.checks if c.verdict == UNDEFINED)
    names = _grouped([c.name for c in done])
    names += f" (not defined: {', '.join(missing)})" if missing else ""
    made = [*_wrapped("checks", names, "", 2), *_unchecked(report)]
    if math.isfinite(report.detectable):
        number = round_up(report.detectable)
        made.append(("catches", f"an error of {number} of the largest entry, and larger ones", ""))
    made += [row for note in report.notes[:1] for row in _wrapped("note", note, "", 1)]
    return [*made, ("calls", _calls(report), "dim")]


def _unchecked(report: GradientReport) -> list[Row]:
    """The orders asked for of which nothing could be checked, and why."""
    made: list[Row] = []
    for order in ("second", "third"):
        own = [c for c in report.checks if c.name.startswith(order)]
        if own and all(c.verdict == UNDEFINED for c in own):
            text = f"the {order} order, though asked for: {own[0].detail}"
            made += _wrapped("not checked", text, "yellow", 2)
    return made


__all__ = ["ALLOWED", "aligned", "rich_text", "rows", "show", "text"]
