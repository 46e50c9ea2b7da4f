"""A comparison on the terminal and as JSON."""

import json
import math
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.text import Text

from checks.gates.errors import GateError
from checks.gates.formats.manifest import INFORMATIONAL
from checks.gates.record import MISSING, OK, Result, TensorRow
from checks.report.terminal import BAD, GOOD, NEAR, QUIET, console
from checks.report.wording import number, plural
from checks.results import replace_text

_NAME, _STATUS, _ROLE = 40, 17, 5
_ROLES = {"gate": "gate", "informational": "info", "debug": "debug"}


def line(row: TensorRow) -> Text:
    """Return one tensor's line: status, name, role, error of what is allowed, eta, cause."""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{row.status:{_STATUS}} ", style=_style(row))
    text.append(f"{row.name:{_NAME}} {_ROLES[row.role]:{_ROLE}} ")
    text.append(_figures(row), style=QUIET if row.status == OK else "")
    if row.cause is not None:
        text.append(f"  {row.cause.name}", style=NEAR)
    elif row.systematic and not row.failed:
        text.append("  systematic", style=NEAR)
    if row.dtypes[0] != row.dtypes[1] and None not in row.dtypes:
        text.append(f"  {row.dtypes[0]} / {row.dtypes[1]}", style=QUIET)
    return text


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
    text = f"max {_allowed(m.max_abs, row.limit.max_abs)}"
    text += f"  mean {_allowed(m.mean_abs, row.limit.mean_abs)}"
    return text + (f"  eta {number(m.eta, 2)}" if m.eta is not None else "")


def _allowed(value: float, limit: float) -> str:
    return f"{_number(value)} {'≤' if value <= limit else '>'} {_number(limit)}"


def _number(value: float) -> str:
    return "0" if value == 0 else number(value, 3)


def show(result: Result, out: Console) -> None:
    """Print what follows the rows: problems, answers and the verdict."""
    for note in result.notes:
        out.print(Text(note, style=QUIET))
    for problem in result.problems:
        out.print(Text(f"INVALID  {problem}", style=BAD), soft_wrap=True)
    for n, answer in enumerate(result.answers):
        out.print(Text(f"{n + 1} {answer.question}"))
        out.print(Text(f"  {answer.text}"), soft_wrap=True)
    out.print(Text(verdict(result), style=GOOD if result.ok else BAD), soft_wrap=True)


def verdict(result: Result) -> str:
    """Return the last line: the verdict, its counts and what was checked of the inputs."""
    contract = [r for r in result.rows if r.contract]
    failed = [r for r in contract if r.failed]
    informational = sum(r.role == INFORMATIONAL for r in contract)
    counts = f"{len(contract) - len(failed)} of {plural(len(contract), 'contract tensor')} pass"
    if informational:
        counts += f" ({informational} informational)"
    word = {0: "PASS", 1: "FAIL", 2: "INVALID"}[result.exit_code]
    text = f"{word}: {counts}; inputs {result.inputs}"
    if result.first is not None:
        cause = result.cause.text if result.cause else "unclassified"
        text += f"; first {result.first.name}: {cause}"
    return text


def to_json(result: Result) -> str:
    """Return the whole as strict JSON."""
    return json.dumps(result.to_record(), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def write(path: Path, text: str, option: str) -> None:
    """Write a report; whole, or not at all.

    Raises:
        GateError: it cannot be written.
    """
    try:
        replace_text(path, text)
    except OSError as error:
        reason = error.strerror or str(error)
        what = f"{path} cannot be written: {reason}"
        raise GateError(what, option, "name another file") from None


def printer(stream: TextIO | None = None) -> Console:
    """Return the console that reports are printed on."""
    return console(stream)


def shown(value: float | None) -> str:
    """Return a figure of a tensor, "-" where there is none."""
    return "-" if value is None or math.isnan(value) else _number(value)
