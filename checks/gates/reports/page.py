"""A comparison as one self-contained HTML page: answers, error against depth, places, tables."""

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import combinations
from pathlib import Path

from checks.gates.comparison.detail import Entry
from checks.gates.comparison.measure import SHARES
from checks.gates.comparison.questions import QUESTIONS, would_have_passed
from checks.gates.comparison.record import Result, TensorRow
from checks.gates.comparison.several import Comparison
from checks.gates.errors import INVALID, PASSED
from checks.gates.reports.charts import Point, depth, histogram, strips
from checks.gates.reports.rows import shown
from checks.gates.reports.style import STYLE
from checks.gates.reports.terminal import (
    by_name,
    doubted,
    labelled,
    share,
    verdict,
    verdict_of_all,
)

_MOST_DETAILS = 12  # of each candidate
Labelled = Sequence[tuple[str, Result]]


def page(report: Result | Comparison) -> str:
    """Return the page; all that it shows stands in the report, nothing is read."""
    results = labelled(report)
    if isinstance(report, Result):
        told, names = verdict(report), Path(report.candidate).name
    else:
        told, names = verdict_of_all(report), ", ".join(report.labels)
    first = results[0][1]
    title = f"{names} against {Path(first.reference).name}"
    good = "near" if doubted(report) else "good"
    state = {PASSED: good, INVALID: "void"}.get(report.exit_code, "bad")
    word, _, rest = told.partition(": ")
    parts = [
        f'<header><p class="badge {state}">{word}</p><h1>{escape(title)}</h1>',
        f'<p class="verdict">{escape(rest)}</p>{_facts(results)}</header>',
        *_notes(results),
        *_answers(report, results),
        "<h2>Error against what is allowed, in order of execution</h2>",
        _used(results),
        *(_candidates(report) if isinstance(report, Comparison) else ()),
        *_three_way(results),
        *_details(results),
        *_tables(results),
    ]
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    head += '<meta name="viewport" content="width=device-width,initial-scale=1">'
    head += f"<title>Tensor gate: {escape(title)}</title><style>{STYLE}</style></head>"
    return f"{head}<body>{''.join(parts)}</body></html>\n"


def _facts(results: Labelled) -> str:
    first = results[0][1]
    facts = {"reference": first.reference}
    facts |= {f"candidate {n}".strip(): r.candidate for n, r in results}
    facts["tolerances"] = first.contract
    if first.reference64 is not None:
        facts["reference64"] = first.reference64
    inputs = ", ".join(dict.fromkeys(r.inputs for _, r in results))
    cells = "".join(
        f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in (facts | {"inputs": inputs}).items()
    )
    return f'<dl class="facts">{cells}</dl>'


def _notes(results: Labelled) -> Iterator[str]:
    for label, result in results:
        named = f"{label}: " if label else ""
        for problem in result.problems:
            yield f'<p class="problem">{escape(named + str(problem))}</p>'
    notes = dict.fromkeys(n for _, r in results for n in r.notes)
    if notes:
        items = "".join(f"<li>{escape(n)}</li>" for n in notes)
        yield f'<ul class="quiet">{items}</ul>'


# --- the answers ---


def _answers(report: Result | Comparison, results: Labelled) -> Iterator[str]:
    several = isinstance(report, Comparison)
    if isinstance(report, Comparison) and report.backend:
        yield f"<h2>{escape(QUESTIONS[5])}</h2><p>{escape(report.backend)}</p>"
    for label, result in results:
        if not result.answers:
            continue
        yield f"<h2>{escape(label) if label else 'Six answers'}</h2>"
        told = result.answers[:5] if several else result.answers
        rows = (f"<li><b>{escape(a.question)}</b>{escape(a.text)}</li>" for a in told)
        yield f'<ol class="answers">{"".join(rows)}</ol>'
        if lines := would_have_passed(result):
            yield f"<pre>{escape(chr(10).join(lines))}</pre>"


# --- error against depth ---


def _names(results: Labelled) -> list[str]:
    """Contract tensors in order."""
    return list(dict.fromkeys(r.name for _, result in results for r in result.rows if r.contract))


def _used(results: Labelled) -> str:
    names = _names(results)
    place = {name: n for n, name in enumerate(names)}
    series = []
    for label, result in results:
        points = []
        for row in result.rows:
            used = row.used
            if used is None and row.failed:
                told = f"{row.name}: {row.status}"
                points.append(Point(place[row.name], math.inf, told, "bad"))
            elif used is not None:
                mark = "bad" if row.failed else "near" if row.systematic else ""
                told = f"{row.name}: {shown(used)} of its limit"
                points.append(Point(place[row.name], used, told, mark))
        series.append((label, points))
    note = "1 is the limit; orange passes and looks systematic; red fails, at the upper edge what "
    note += "is not finite, of another shape or missing"
    note += "; both are rings around their candidate's colour" if len(results) > 1 else ""
    drawn = depth(series, names, 1.0, always=_first(results, place))
    return f'{drawn}<p class="quiet">{note}.</p>'


def _first(results: Labelled, place: dict[str, int]) -> set[int]:
    """Where each candidate diverges first."""
    return {place[r.first.name] for _, r in results if r.first and r.first.name in place}


def _three_way(results: Labelled) -> Iterator[str]:
    names = _names(results)
    place = {name: n for n, name in enumerate(names)}
    split = [
        (label, [r for r in result.rows if r.three_way and r.contract]) for label, result in results
    ]
    if not any(rows for _, rows in split):
        return
    yield "<h2>Distance from the float64 reference (rms)</h2>"
    series = [("reference", _distances(split[0][1], place, "own"))]
    for label, rows in split:
        series.append((label or "candidate", _distances(rows, place, "candidate")))
    yield depth(series, names, None, first=-1, always=_first(results, place))
    head = ("tensor", "A reference", "B candidate", "C between both", "B / A", "")
    for label, rows in split:
        yield f"<h3>{escape(label)}</h3>" if label else ""
        yield _table(head, (_split_cells(r) for r in rows), numbers=(1, 2, 3, 4))


def _distances(rows: Sequence[TensorRow], place: dict[str, int], field: str) -> list[Point]:
    points = []
    for row in rows:
        value = float(getattr(row.three_way, field))
        more = field == "candidate" and row.three_way and not row.three_way.rounding
        points.append(
            Point(place[row.name], value, f"{row.name}: {shown(value)}", "bad" if more else "")
        )
    return points


def _split_cells(row: TensorRow) -> list[str]:
    split = row.three_way
    assert split is not None
    figures = (split.own, split.candidate, split.gap, split.ratio)
    told = escape(split.text)
    told = told if split.rounding else f'<span class="bad">{told}</span>'
    return [escape(row.name), *(escape(shown(v)) for v in figures), told]


# --- several candidates ---


def _candidates(comparison: Comparison) -> Iterator[str]:
    labels = comparison.labels
    pairs = list(combinations(range(len(labels)), 2))
    head = ["tensor", *labels, *(f"{labels[a]} - {labels[b]}" for a, b in pairs)]
    rows = []
    for name, found in by_name(comparison).items():
        cells = [escape(name)]
        for row in found:
            kind = "bad" if row and row.failed else ""
            cells.append(f'<span class="{kind}">{escape(share(row))}</span>')
        between = comparison.between.get(name)
        for a, b in pairs:
            told = "" if between is None else shown(between.max_abs[a + 1][b + 1])
            cells.append(escape(told))
        rows.append(cells)
    yield "<h2>Candidates side by side</h2>"
    yield _table(head, rows, numbers=range(1, len(head)))
    yield (
        '<p class="quiet">What each uses of its limit; then the largest difference between two '
        "candidates.</p>"
    )


# --- failing tensors ---


def _details(results: Labelled) -> Iterator[str]:
    """A card for each, the first of a candidate open."""
    title = "<h2>Failing tensors: how large the error is, and where</h2>"
    for label, result in results:
        wanted = [r for r in result.rows if r.failed and r.detail]
        if not wanted:
            continue
        yield title
        title = ""
        names = [r.name for r in wanted[:_MOST_DETAILS]]
        opened = result.first.name if result.first and result.first.name in names else names[0]
        for row in wanted[:_MOST_DETAILS]:
            yield _detail(label, row, opened=row.name == opened)
        if len(wanted) > _MOST_DETAILS:
            more = f"{len(wanted) - _MOST_DETAILS} more {f'of {label} ' if label else ''}"
            yield f'<p class="quiet">{escape(more)}in the JSON report.</p>'


def _detail(label: str, row: TensorRow, *, opened: bool) -> str:
    found = row.detail
    assert found is not None
    owner = f' <span class="quiet">{escape(label)}</span>' if label else ""
    told = escape(row.cause.text) if row.cause else "unclassified"
    quantiles = zip(SHARES, found.quantiles, strict=False)
    bound = f" (to {found.within:.1e} of it)" if found.within else ""
    cells = [(f"p{100 * s:g}", shown(v) + bound) for s, v in quantiles]
    if row.measured is not None:
        cells.append(("max", shown(row.measured.max_abs)))
    figures = "".join(f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in cells)
    odd = row.measured is not None and row.measured.disagreements
    kind = "share of entries that are not finite on one side" if odd else "mean |error|"
    head = ("entry", "reference", "candidate", "difference")
    return (
        f'<details class="card"{" open" if opened else ""}>'
        f"<summary><b>{escape(row.name)}</b>{owner} {told}</summary>"
        f'<dl class="figures">{figures}</dl><div class="two"><div>'
        f'<p class="quiet">entries by |error|, log count</p>{histogram(found)}'
        f'<p class="quiet">{kind} along each axis</p>{"".join(strips(found, row.shapes[0] or ()))}'
        f'</div><div><p class="quiet">the worst entries</p>'
        f"{_table(head, map(_entry, found.worst), numbers=(1, 2, 3))}</div></div></details>"
    )


def _entry(entry: Entry) -> list[str]:
    place = f"{list(entry.index)} {entry.part}".strip()
    apart = entry.candidate - entry.reference
    figures = (_exact(entry.reference), _exact(entry.candidate), shown(apart))
    return [escape(place), *map(escape, figures)]


def _exact(value: float) -> str:
    return f"{value:.9g}" if math.isfinite(value) else str(value)


# --- all tensors ---


def _tables(results: Labelled) -> Iterator[str]:
    head = ("status", "tensor", "role", "max_abs", "limit", "mean_abs", "limit", "eta", "cause")
    for label, result in results:
        yield f"<h2>Tensors{' of ' + escape(label) if label else ''}</h2>"
        yield _table(head, map(_line, result.rows), numbers=range(3, 8))


def _line(row: TensorRow) -> list[str]:
    m, limit = row.measured, row.limit
    numbers = (
        m.max_abs if m else None,
        limit.max_abs if limit else None,
        m.mean_abs if m else None,
        limit.mean_abs if limit else None,
        m.eta if m else None,
    )
    kind = "bad" if row.failed else "near" if row.systematic else ""
    status = f'<span class="{kind}">{escape(row.status)}</span>'
    cause = escape(row.cause.text if row.cause else row.note)
    return [status, escape(row.name), row.role, *(escape(shown(v)) for v in numbers), cause]


def _table(head: Sequence[str], rows: Iterable[list[str]], numbers: Sequence[int]) -> str:
    """Rows of cells that are HTML already."""
    kinds = ["n" if n in numbers else "" for n in range(len(head))]
    top = "".join(f'<th class="{k}">{escape(t)}</th>' for t, k in zip(head, kinds, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td class="{k}">{c}</td>' for c, k in zip(row, kinds, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{top}</tr>{body}</table></div>'
