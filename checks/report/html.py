"""One self-contained HTML page of a sweep: no file, font or script from anywhere else."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from checks.report.wording import duration, judged, number, used
from checks.results import (
    EXCLUDED,
    FAIL,
    PASS,
    SKIPPED,
    STALE,
    STATUSES,
    Row,
    Summary,
    severity,
    summary,
)
from checks.tolerance_file import UNITS

SHOWN = 20  # entries of each list; the cells' panels have everything
# Upper ends of the colours of a pass, in error / tolerance; level 0 is "equal".
LEVELS = (0.0001, 0.001, 0.01, 0.1, 0.5, 1.0)
STYLES = {STALE: "s", EXCLUDED: "e", SKIPPED: "k"}
LEGEND = ("equal", "1e-4", "1e-3", "1%", "10%", "50%", "100%")


class MissingPackageError(ImportError):
    """A package that makes this report is not installed.

    Arguments:
        package: its name.
        extra: the extra of gradsweep that installs it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"the HTML report needs {package}, which is not installed\n"
            "  at checks.report; the results and the JUnit file do not need it\n"
            f"  pip install 'gradsweep[{extra}]', then: gradsweep report FOLDER"
        )
        self.package, self.extra = package, extra


def page(rows: Iterable[Row], meta: Mapping[str, Any]) -> str:
    """Return the page as text.

    Arguments:
        rows: the results, one for each item.
        meta: the fields of `Meta`.

    Raises:
        MissingPackageError: jinja2 is not installed.
    """
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError:
        raise MissingPackageError("jinja2", "report") from None
    here = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(here),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    every = list(rows)
    # Style and script are ours, the data is JSON without "<": these three are not escaped again.
    parts = {
        "style": Markup((here / "page.css").read_text(encoding="utf-8")),
        "script": Markup((here / "page.js").read_text(encoding="utf-8")),
        "data": Markup(_json(compact(every))),
    }
    return str(environment.get_template("page.html.j2").render(**_context(every, meta), **parts))


def _json(value: object) -> str:
    """Return JSON that cannot end the script element it stands in."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _context(rows: list[Row], meta: Mapping[str, Any]) -> dict[str, Any]:
    found = summary(rows)
    bad = [row for row in rows if row.status == FAIL]
    bad.sort(key=lambda row: (-severity(row.headroom), row.key))
    slow = sorted(rows, key=lambda row: -row.seconds)
    return {
        "meta": meta,
        "found": found,
        "cards": cards(found, meta.get("wall")),
        "surfaces": list(found.surfaces),
        "matrix": matrix(rows, list(found.surfaces)),
        "legend": LEGEND,
        "bad": bad[:SHOWN],
        "worst": nearest_to_limit(rows)[:SHOWN],
        "exclusions": exclusions(rows),
        "slow": [row for row in slow[:SHOWN] if row.seconds > 0],
        "address": address,
        "used": used,
        "judged": judged,
        "number": number,
        "duration": duration,
        "is_web": lambda link: link.startswith(("https://", "http://")),
    }


def address(op: str, surface: str) -> str:
    """Return the fragment that opens the panel of (op, surface)."""
    return f"#{quote(op, safe='')}/{quote(surface, safe='')}"


def cards(found: Summary, wall: float | None) -> list[tuple[str, str, str]]:
    """Return (label, value, class) of the summary on top of the page."""
    share = found.headroom
    missing = ", ".join(f"{name} ({count})" for name, count in found.missing.items())
    return [
        ("ops", f"{found.ops:,}", ""),
        ("samples", f"{found.samples:,}", ""),
        ("checks", f"{found.checks:,}", ""),
        ("failures", f"{found.failures:,}", "bad" if found.failures else "good"),
        ("exclusions held", f"{found.excluded:,}", ""),
        ("stale exclusions", f"{found.stale:,}", "bad" if found.stale else "good"),
        ("skipped", f"{found.skipped:,}", ""),
        *([("missing", missing, "near")] if missing else []),
        ("worst / tolerance", used(share) or "-", "bad" if severity(share) > 1 else ""),
        ("wall time", duration(found.seconds if wall is None else wall), ""),
    ]


def nearest_to_limit(rows: list[Row]) -> list[Row]:
    """Return the worst passing row of each (op, surface), the nearest to its tolerance first."""
    worst: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row.status == PASS and row.headroom:
            other = worst.setdefault((row.op, row.surface), row)
            if severity(row.headroom) > severity(other.headroom):
                worst[row.op, row.surface] = row
    return sorted(worst.values(), key=lambda row: (-severity(row.headroom), row.key))


@dataclass(frozen=True, slots=True)
class Cell:
    """What the matrix shows of one (op, surface)."""

    text: str
    style: str
    address: str
    marked: bool = False


def matrix(rows: list[Row], surfaces: list[str]) -> list[tuple[str, list[Cell | None]]]:
    """Return, for each op, its cell on each surface; None where there is no row."""
    by_cell: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        by_cell.setdefault((row.op, row.surface), []).append(row)
    ops = sorted({row.op for row in rows})
    return [
        (op, [cell(by_cell[op, name]) if (op, name) in by_cell else None for name in surfaces])
        for op in ops
    ]


def cell(rows: list[Row]) -> Cell:
    """Return the cell of the rows of one (op, surface): failures first, then what passed."""
    place = address(rows[0].op, rows[0].surface)
    held = any(row.status == EXCLUDED for row in rows)
    for status in (FAIL, STALE, PASS, EXCLUDED, SKIPPED):
        of = [row for row in rows if row.status == status]
        if not of:
            continue
        share = max((row.headroom for row in of), key=severity)
        if status == FAIL:
            return Cell(f"\u2715 {used(share) if severity(share) > 1 else ''}".strip(), "f", place)
        if status == PASS:
            return Cell(used(share) or "ok", f"l{level(share)}", place, held)
        texts = {STALE: "! stale", EXCLUDED: f"\u25c7 {len(of)}", SKIPPED: "\u2013"}
        return Cell(texts[status], STYLES[status], place)
    raise ValueError("a cell without rows")


def level(headroom: float | None) -> int:
    """Return the colour of a pass: 0 where equal or not measured, 6 next to the limit."""
    share = severity(headroom)
    return 0 if share <= 0 else 1 + sum(share > end for end in LEVELS[:-1])


def exclusions(rows: list[Row]) -> list[dict[str, Any]]:
    """Return what is excluded and stale, stale first, the samples of one reason together."""
    groups: dict[tuple[str, str, str, str, str], list[Row]] = {}
    for row in rows:
        if row.status in (EXCLUDED, STALE):
            key = (row.status, row.op, row.surface, row.reason, row.link)
            groups.setdefault(key, []).append(row)
    found = [
        {
            "status": status,
            "op": op,
            "surface": surface,
            "reason": reason,
            "link": link,
            "samples": sorted({row.sample for row in of}),
            "dtypes": sorted({row.dtype for row in of}),
        }
        for (status, op, surface, reason, link), of in groups.items()
    ]
    return sorted(found, key=lambda item: (item["status"] != STALE, item["op"], item["surface"]))


def compact(rows: list[Row]) -> dict[str, Any]:
    """Return the rows as the page's script reads them: names by number, three digits.

    A row is [op, sample, surface, dtype, status, error, tolerance, unit, source, ulp,
    componentwise, seconds, evaluations, repro] and, where there is any, a dict of its texts. In
    `repro` the row's own names are replaced by U+0001 to U+0004, so that alike lines are one text.
    """
    tables: dict[str, dict[str, int]] = {
        name: {} for name in ("op", "sample", "surface", "dtype", "source", "repro")
    }

    def place(table: str, value: str) -> int:
        return tables[table].setdefault(value, len(tables[table]))

    lines = []
    for row in rows:
        line: list[Any] = [
            place("op", row.op),
            place("sample", row.sample),
            place("surface", row.surface),
            place("dtype", row.dtype),
            STATUSES.index(row.status),
            _short(row.error),
            _short(row.tolerance),
            UNITS.index(row.unit),
            place("source", row.tolerance_source),
            _short(row.ulp),
            _short(row.componentwise),
            _short(row.seconds),
            row.evaluations,
            place("repro", _template(row)),
        ]
        extra = _texts(row)
        lines.append([*line, extra] if extra else line)
    names = {name: list(table) for name, table in tables.items()}
    return {**names, "status": STATUSES, "unit": UNITS, "rows": lines}


def _template(row: Row) -> str:
    """Return `repro` with the row's own names replaced; putting them back restores it."""
    text = row.repro
    if any(mark in text for mark in "\1\2\3\4"):
        return text.translate(dict.fromkeys(range(1, 5), "\ufffd"))
    line = f" {text} "
    for name, mark in ((row.sample, "\2"), (row.op, "\1"), (row.surface, "\3"), (row.dtype, "\4")):
        line = line.replace(f" {name} ", f" {mark} ").replace(f"'{name}'", f"'{mark}'")
    return line[1:-1]


def _texts(row: Row) -> dict[str, Any]:
    """Return what a row says beside its numbers, by field; nothing that is empty."""
    kept: dict[str, Any] = {
        name: getattr(row, name)
        for name in ("reason", "link", "message", "missing")
        if getattr(row, name)
    }
    if row.status != PASS or (row.headroom or 0) > LEVELS[-2]:
        for name in ("worst_index", "got", "expected", "seed"):
            value = getattr(row, name)
            if value is not None:
                kept[name] = str(list(value) if isinstance(value, tuple) else value)
    return kept


def _short(value: float | None) -> float | int | str | None:
    """Return three digits of a number, as JSON can hold them."""
    if value is None:
        return None
    short = float(f"{value:.3g}")  # 1.797e308 becomes inf
    if not math.isfinite(short):
        return number(short)
    return int(short) if short == int(short) and abs(short) < 1e6 else short
