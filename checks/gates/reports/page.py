"""A comparison as one self-contained HTML page: answers, error against depth, strips, table."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import numpy as np

from checks.gates.causes.case import load
from checks.gates.formats.readers import open_side
from checks.gates.names import Names, read_names, renamed
from checks.gates.record import NONFINITE, OVER, Result, TensorRow
from checks.gates.reports.terminal import shown, verdict

WIDTH, HEIGHT, MARGIN = 960, 260, 56
_CELLS, _MOST_STRIPS = 64, 12
_FLOOR = 2.0**-40  # an error of zero stands at the foot of the log axis
Strips = dict[str, list[list[float]]]

_STYLE = """
:root{color-scheme:light dark;--ink:#1d2733;--quiet:#66727f;--line:#d5dbe1;--page:#fff;
--good:#4c8dd6;--near:#e69f00;--bad:#d55e00}
@media(prefers-color-scheme:dark){:root{--ink:#e4e9ee;--quiet:#98a4b0;--line:#39434d;--page:#14181d}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--page);margin:2rem auto;
max-width:62rem;padding:0 1rem}h1{font-size:1.3rem}h2{font-size:1.05rem;margin:1.6rem 0 .4rem}
dt{font-weight:600}dd{margin:0 0 .6rem}table{border-collapse:collapse;width:100%;font-size:.87rem}
td,th{padding:.2rem .5rem;border-bottom:1px solid var(--line);text-align:left}
td.n{text-align:right;font-variant-numeric:tabular-nums}.bad{color:var(--bad);font-weight:600}
.scroll{overflow-x:auto}svg{max-width:100%}text{fill:var(--quiet);font-size:11px}
"""


def page(result: Result) -> str:
    """Return the page; the failing tensors' error along each axis is read from the dumps."""
    title = f"Tensor gate: {Path(result.candidate).name} against {Path(result.reference).name}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="{"" if result.ok else "bad"}">{escape(verdict(result))}</p>',
        *(f'<p class="bad">{escape(str(p))}</p>' for p in result.problems),
        "<dl>" if result.answers else "",
        *(f"<dt>{escape(a.question)}</dt><dd>{escape(a.text)}</dd>" for a in result.answers),
        "</dl>" if result.answers else "",
        "<h2>Largest error of what is allowed, in order of execution</h2>",
        _depth(result.rows),
        *_strips(strips(result)),
        "<h2>Tensors</h2>",
        _table(result.rows),
    ]
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
    return f"{head}<style>{_STYLE}</style><body>{''.join(parts)}</body></html>\n"


def _depth(rows: Sequence[TensorRow]) -> str:
    """max_abs / limit on a log axis; 1 is the limit."""
    points = [(n, r, _used(r)) for n, r in enumerate(rows) if r.contract and r.measured]
    if not points:
        return "<p>No contract tensor was compared.</p>"
    heights = [math.log10(max(u, _FLOOR)) if u < math.inf else 0.0 for _, _, u in points]
    low, high = math.floor(min([*heights, -1])), math.ceil(max([*heights, 1]))

    def y(value: float) -> float:
        return MARGIN / 2 + (HEIGHT - MARGIN) * (high - value) / (high - low)

    def x(n: int) -> float:
        return MARGIN + (WIDTH - 1.5 * MARGIN) * n / max(1, len(rows) - 1)

    step = max(1, (high - low) // 6)
    parts = [
        f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN / 2:g}" y1="{y(k):.1f}" y2="{y(k):.1f}" '
        f'stroke="var(--{"bad" if k == 0 else "line"})"/>'
        f'<text x="{MARGIN - 6}" y="{y(k) + 4:.1f}" text-anchor="end">{10.0**k:g}</text>'
        for k in sorted({*range(low, high + 1, step), 0})
    ]
    for (n, row, used), height in zip(points, heights, strict=True):
        colour = "bad" if row.failed else "near" if row.systematic else "good"
        told = f"{row.name}: {shown(used)} of its limit"
        parts.append(
            f'<circle cx="{x(n):.1f}" cy="{y(height):.1f}" r="4" fill="var(--{colour})">'
            f"<title>{escape(told)}</title></circle>"
        )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'


def _used(row: TensorRow) -> float:
    """The larger of both errors, each divided by its limit; inf where it is not finite."""
    assert row.measured is not None and row.limit is not None
    worst = 0.0
    for value, limit in (
        (row.measured.max_abs, row.limit.max_abs),
        (row.measured.mean_abs, row.limit.mean_abs),
    ):
        if not math.isfinite(value):
            return math.inf
        if value:
            worst = max(worst, value / limit if limit else math.inf)
    return worst


def strips(result: Result) -> Strips:
    """Return the mean |error| along each axis, in at most 64 cells, of the failing tensors."""
    wanted = [r for r in result.rows if r.failed and r.status in (OVER, NONFINITE)]
    if not wanted:
        return {}
    rules = read_names(result.names) if result.names is not None else Names()
    left = renamed(open_side(result.reference), rules, "reference")
    right = renamed(open_side(result.candidate), rules, "candidate")
    found: Strips = {}
    for row in wanted[:_MOST_STRIPS]:
        assert row.limit is not None
        case = load(left.tensors[row.name], right.tensors[row.name], row.limit)
        with np.errstate(invalid="ignore"):
            e = np.abs(case.c - case.r)
        e[~np.isfinite(e)] = 0.0
        found[row.name] = [_profile(e, axis) for axis in range(e.ndim)]
    return found


def _profile(e: np.ndarray[tuple[int, ...], np.dtype[np.float64]], axis: int) -> list[float]:
    other = tuple(n for n in range(e.ndim) if n != axis)
    line = np.atleast_1d(e.mean(axis=other))
    return [float(cell.mean()) for cell in np.array_split(line, min(_CELLS, line.size))]


def _strips(found: Strips) -> Iterator[str]:
    if found:
        yield "<h2>Where the error lies: mean |error| along each axis, dark is the largest</h2>"
    for name, profiles in found.items():
        yield f"<div>{escape(name)}</div>"
        for axis, cells in enumerate(profiles):
            most = max(cells, default=0.0) or 1.0
            width = (WIDTH - MARGIN) / max(1, len(cells))
            boxes = "".join(
                f'<rect x="{MARGIN + n * width:.1f}" width="{width:.1f}" height="14" '
                f'fill="var(--bad)" fill-opacity="{value / most:.2f}"/>'
                for n, value in enumerate(cells)
            )
            label = f'<text x="0" y="11">axis {axis}</text>'
            yield f'<svg viewBox="0 0 {WIDTH} 16" role="img">{label}{boxes}</svg>'


def _table(rows: Sequence[TensorRow]) -> str:
    head = "".join(
        f"<th>{t}</th>"
        for t in (
            "status",
            "tensor",
            "role",
            "max_abs",
            "limit",
            "mean_abs",
            "limit",
            "eta",
            "cause",
        )
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(map(_line, rows))}</table></div>'


def _line(row: TensorRow) -> str:
    m, limit = row.measured, row.limit
    numbers = (
        m.max_abs if m else None,
        limit.max_abs if limit else None,
        m.mean_abs if m else None,
        limit.mean_abs if limit else None,
        m.eta if m else None,
    )
    cells = "".join(f'<td class="n">{escape(shown(v))}</td>' for v in numbers)
    status = f'<td class="{"bad" if row.failed else ""}">{escape(row.status)}</td>'
    cause = escape(row.cause.text if row.cause else row.note)
    return f"<tr>{status}<td>{escape(row.name)}</td><td>{row.role}</td>{cells}<td>{cause}</td></tr>"
