"""A line for each tensor on the terminal, as wide as there is room."""

import math
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.text import Text

from checks.gates.comparison.record import MISSING, OK, TensorRow
from checks.report.terminal import BAD, GOOD, NEAR, QUIET
from checks.report.wording import number, printable, used

_NAME, _STATUS, _ROLE = 40, 17, 5
_SHORT, _LEAST = 5, 12  # columns of a status where there is little room; of a name at least
_FULL, _FEW_FIGURES = 92, 42  # columns of a line but for the name, in full and with shares alone
_FEW = 3  # tensors of one side alone that have a line each
HANG = 6  # columns that the second line of a row is further in
_ROLES = {"gate": "gate", "informational": "info", "debug": "debug"}


def columns_of(out: Console) -> int | None:
    """Return how wide lines may be; None where they are not shown on a terminal."""
    return out.width if out.is_terminal else None


def say(out: Console, text: Text, *, indent: int = 0, hang: int = 0) -> None:
    """Print a text: on a terminal broken between words, what follows the first line `hang`
    columns further in than `indent`; elsewhere in one line.
    """
    columns = columns_of(out)
    if columns is None:
        out.print(Text(" " * indent) + text, soft_wrap=True)
        return
    text = text.copy()
    text.no_wrap, text.overflow = False, "fold"
    for line_ in text.split("\n", allow_blank=True):
        first, *rest = line_.wrap(out, max(1, columns - indent)) or [line_]
        out.print(Text(" " * indent) + first, soft_wrap=True)
        if rest:
            left = Text(" ").join(rest)
            for more in left.wrap(out, max(1, columns - indent - hang)):
                out.print(Text(" " * (indent + hang)) + more, soft_wrap=True)


def width_of(names: Iterable[str]) -> int:
    """Return how wide the column of names need be."""
    return min(_NAME, max(map(len, names), default=_NAME))


def line(row: TensorRow, width: int = _NAME, columns: int | None = None) -> Text:
    """Return one tensor's line: status, name, role, error of what is allowed, eta, cause.

    Where that may be wider than `columns`, the errors are shares of their limits.
    """
    text = Text()
    short = columns is not None and _FULL + width > columns
    text.append(f"{row.status:{_SHORT if short else _STATUS}} ", style=style_of(row))
    role = _ROLES[row.role]
    if short:
        width = min(width, max(_LEAST, (columns or 0) - _FEW_FIGURES))
        text.append(f"{row.name:{width}} {'' if role == 'gate' else role + ' '}")
    else:
        text.append(f"{row.name:{width}} {role:{_ROLE}} ")
    gap = " " if short else "  "
    figures = (_shares if short else _figures)(row, gap)
    text.append(figures, style=QUIET if row.status == OK else "")
    if row.systematic and not row.failed:
        text.append(f"{gap}systematic", style=NEAR if row.suspect else QUIET)
        text.append(", understood" if row.understood else "", style=QUIET)
    if row.cause is not None:
        text.append(f"{gap}{row.cause.name}", style=NEAR)
    if row.three_way is not None:
        told = f"{gap}B/A {figure_of(row.three_way.ratio)}"
        text.append(told, style=QUIET if row.three_way.rounding else NEAR)
    if row.dtypes[0] != row.dtypes[1] and None not in row.dtypes:
        text.append(f"{gap}{row.dtypes[0]} / {row.dtypes[1]}", style=QUIET)
    return text


def folded(
    rows: Iterable[TensorRow], width: int = _NAME, columns: int | None = None
) -> Iterator[Text]:
    """Yield the lines of tensors that one side alone has and no limit is asked of: many in one."""
    rows = list(rows)
    for status in MISSING:
        alike = [r for r in rows if r.status == status]
        if len(alike) <= _FEW:
            yield from (line(r, width, columns) for r in alike)
            continue
        names = ", ".join(r.name for r in alike[:_FEW])
        told = f"{len(alike):,} debug tensors: {names}, ... (all of them in --json and --html)"
        yield plainly(f"{status:{_STATUS}} {told}", QUIET)


def heading(label: str) -> Text:
    """Return the line above a candidate's rows."""
    return plainly(f"candidate {label}", "bold")


def plainly(text: str, style: str = "") -> Text:
    """Return a text that a terminal can hold."""
    return Text(printable(text), style=style)


def style_of(row: TensorRow) -> str:
    """Return the style of a row's status."""
    if row.failed:
        return BAD
    return QUIET if row.status in MISSING or not row.contract else GOOD


def _figures(row: TensorRow, gap: str) -> str:
    m = row.measured
    if m is None:
        shapes = [str(list(s)) for s in row.shapes if s is not None]
        return " against ".join(shapes)
    if row.limit is None:
        return f"max {figure_of(m.max_abs)}{gap}mean {figure_of(m.mean_abs)}"
    text = f"max {allowed(m.max_abs, row.limit.max_abs)}"
    text += f"{gap}mean {allowed(m.mean_abs, row.limit.mean_abs)}"
    return text + (f"{gap}eta {number(m.eta, 2)}" if m.eta is not None else "")


def _shares(row: TensorRow, gap: str) -> str:
    """What the errors are of their limits, where they have any."""
    m, limit = row.measured, row.limit
    if m is None or limit is None:
        return _figures(row, gap)
    pairs = (("max", m.max_abs, limit.max_abs), ("mean", m.mean_abs, limit.mean_abs))
    text = gap.join(f"{name} {_share(value, most)}" for name, value, most in pairs)
    return text + (f"{gap}eta {number(m.eta, 2)}" if m.eta is not None else "")


def _share(value: float, most: float) -> str:
    if not value or most != most:
        return used(value)
    return used(value / most if most else math.inf)


def allowed(value: float, limit: float) -> str:
    """Return an error beside its limit: "2.3e-05 > 1e-05"."""
    return f"{figure_of(value)} {'≤' if value <= limit else '>'} {figure_of(limit)}"


def figure_of(value: float) -> str:
    """Return a figure to three digits."""
    return "0" if value == 0 else number(value, 3)


def shown(value: float | None) -> str:
    """Return a figure of a tensor, "-" where there is none."""
    return "-" if value is None or math.isnan(value) else figure_of(value)
