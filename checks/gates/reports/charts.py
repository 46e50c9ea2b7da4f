"""The page's drawings as SVG text: values in order of execution, histograms, strips."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from checks.gates.comparison.detail import Detail

WIDTH, LEFT, RIGHT, TOP, PLOT = 1000, 62, 16, 14, 230
_LEAST = 2.0**-60  # an error of zero stands at the foot of a log axis
_MOST_NAMES, _MOST_LETTERS, _MOST_DECADES = 48, 26, 14
_APART = 17  # from one turned name to the next
_ASIDE = 4  # candidates' dots of one tensor stand beside each other, not upon
_CELL, _BAR, _MANY = 16, 110, 80


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a series.

    Arguments:
        place: of its tensor in the order of execution, from 0.
        value: on the log axis; inf stands at its upper edge.
        told: what a pointer over it shows.
        mark: "", "bad" or "near": the dot's colour, or its ring where a series has a label.
    """

    place: int
    value: float
    told: str
    mark: str = ""


def depth(
    series: Sequence[tuple[str, Sequence[Point]]],
    names: Sequence[str],
    limit: float | None,
    first: int = 0,
    always: Collection[int] = (),
) -> str:
    """Return series of values against the order of execution, on a log axis.

    Arguments:
        series: label and points of each.
        names: of the tensors, for the axis.
        limit: a line to draw; None for none.
        first: the colour of the first series: -1 is grey.
        always: places whose names stand on the axis, however many there are.
    """
    values = [p.value for _, points in series for p in points if 0 < p.value < math.inf]
    if not any(points for _, points in series):
        return '<p class="quiet">No contract tensor was compared.</p>'
    scale = _Scale.of([*values, *([] if limit is None else [limit])])
    foot = TOP + PLOT
    parts = list(_grid(scale, limit))
    parts += _names(names, always)
    size = 4.0 if len(names) <= _MANY else 2.5
    for n, (label, points) in enumerate(series, start=first):
        aside = _aside(n - first, len(series), len(names))
        spots = [(_x(p.place, len(names)) + aside, scale.y(p.value), p) for p in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in spots)
        colour = _colour("c", n)
        parts.append(f'<polyline points="{path}" class="line {colour}"/>')
        parts += [_dot(x, y, p, n, label, size) for x, y, p in spots]
    letters = max(map(len, shortened(names)), default=0)
    height = foot + 24 + round(letters * 3.7)
    drawn = f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'
    return _legend([label for label, _ in series], first) + drawn


def _legend(labels: Sequence[str], first: int) -> str:
    if len(labels) < 2:
        return ""
    coloured = [(_colour("k", n), t) for n, t in enumerate(labels, start=first)]
    keys = (f'<span><i class="{colour}"></i>{escape(t)}</span>' for colour, t in coloured)
    return f'<p class="legend">{"".join(keys)}</p>'


def _colour(kind: str, n: int) -> str:
    """The class of a series: its line (c), dots (d) or key (k)."""
    return f"{kind}q" if n < 0 else f"{kind}{n % 5}"


@dataclass(frozen=True, slots=True)
class _Scale:
    """A log axis from 10^low to 10^high."""

    low: int
    high: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "_Scale":
        logs = [math.log10(v) for v in values if v > _LEAST] or [0.0]
        high = math.ceil(max(logs) + 0.1)
        low = max(math.floor(min(logs) - 0.1), high - _MOST_DECADES)
        return cls(min(low, high - 1), high)

    def y(self, value: float) -> float:
        """Return the height of a value; zero at the foot, inf at the upper edge."""
        power = math.log10(max(value, _LEAST)) if value < math.inf else self.high
        power = min(max(power, self.low), self.high)
        return TOP + PLOT * (self.high - power) / (self.high - self.low)


def _x(place: int, count: int) -> float:
    inner = WIDTH - LEFT - RIGHT - 20
    return LEFT + 10 + (inner * place / (count - 1) if count > 1 else inner / 2)


def _grid(scale: _Scale, limit: float | None) -> Iterator[str]:
    step = max(1, (scale.high - scale.low) // 6)
    for power in range(scale.low, scale.high + 1, step):
        y = scale.y(10.0**power)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        told = f"{10.0**power:g}" if abs(power) < 4 else f"1e{power}"
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{told}</text>'
    if limit is not None:
        y = scale.y(limit)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="limit"/>'
        place = f'x="{WIDTH - RIGHT}" y="{y - 5:.1f}"'
        yield f'<text {place} class="bad" text-anchor="end">limit</text>'


def _aside(n: int, series: int, count: int) -> float:
    """How far the dots of a series stand from their tensor's place."""
    width = min(_ASIDE, (_x(1, count) - _x(0, count)) / series) if count > 1 else _ASIDE
    return width * (n - (series - 1) / 2)


def _names(names: Sequence[str], always: Collection[int]) -> Iterator[str]:
    """As many names as there is room for, around those that always stand there."""
    step = math.ceil(len(names) / _MOST_NAMES) if names else 1
    y = TOP + PLOT + 14
    cuts = shortened(names)
    fixed = [_x(n, len(names)) for n in always]
    for n in range(len(names)):
        x = _x(n, len(names))
        if n not in always and (n % step or any(abs(x - f) < _APART for f in fixed)):
            continue
        turned = f"rotate(-40 {x:.1f} {y})"
        place = f'x="{x:.1f}" y="{y}" transform="{turned}"'
        kind = ' class="bad"' if n in always else ""
        yield f'<text {place}{kind} text-anchor="end">{escape(cuts[n])}</text>'


def shortened(names: Sequence[str]) -> list[str]:
    """Return names without the first and last words that all of them share, cut in the middle."""
    words = [name.split(".") for name in names]
    most = min(map(len, words), default=1) - 1
    head = _shared(words, most)
    tail = _shared([w[::-1] for w in words], most - head)
    made = []
    for name in (".".join(w[head : len(w) - tail]) for w in words):
        half = _MOST_LETTERS // 2 - 1
        made.append(name if len(name) <= _MOST_LETTERS else f"{name[:half]}…{name[-half:]}")
    return made


def _shared(words: Sequence[Sequence[str]], most: int) -> int:
    """How many first words all have in common, at most so many."""
    if len(words) < 2:
        return 0
    return next((n for n in range(most) if len({w[n] for w in words}) > 1), max(0, most))


def _dot(x: float, y: float, point: Point, n: int, label: str, size: float) -> str:
    told = f"{label}: {point.told}" if label else point.told
    size, kind = size + 1.5 * (point.mark == "bad"), point.mark or _colour("d", n)
    if point.mark and label:  # whose it is stays visible
        kind = f"{_colour('d', n)} ring of-{point.mark}"
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:g}" class="{kind}">'
        f"<title>{escape(told)}</title></circle>"
    )


def histogram(found: Detail) -> str:
    """Return how many |e| lie in each power of two, bars of a log count."""
    counts = (found.equal, *found.counts)
    labels = ["0", *(f"2^{found.power + n}" for n in range(len(found.counts)))]
    most = math.log1p(max(counts, default=1)) or 1.0
    width = min(26.0, (WIDTH / 2 - 20) / max(1, len(counts)))
    step = math.ceil(40 / width)
    parts = []
    for n, (count, label) in enumerate(zip(counts, labels, strict=True)):
        height = _BAR * math.log1p(count) / most
        told = f"{count:,} entries of |error| {'= 0' if not n else f'in [{label}, 2 x)'}"
        kind = "bar" if n else "bar none"
        parts.append(
            f'<rect x="{n * width:.1f}" y="{_BAR - height:.1f}" width="{width - 1.5:.1f}" '
            f'height="{height:.1f}" class="{kind}"><title>{escape(told)}</title></rect>'
        )
        if n % step == 0:
            parts.append(f'<text x="{n * width:.1f}" y="{_BAR + 14}">{label}</text>')
    parts.append(f'<line x1="0" x2="{WIDTH / 2:g}" y1="{_BAR}" y2="{_BAR}" class="grid"/>')
    size = f"0 0 {WIDTH / 2:g} {_BAR + 20}"
    return f'<svg viewBox="{size}" role="img">{"".join(parts)}</svg>'


def strips(found: Detail, shape: Sequence[int]) -> Iterator[str]:
    """Yield the error along each axis as a row of cells, the darkest the largest."""
    for axis, cells in enumerate(found.strips):
        most = max((c for c in cells if math.isfinite(c)), default=0.0) or 1.0
        width = (WIDTH / 2 - 74) / max(1, len(cells))
        size = shape[axis]
        boxes = []
        for n, value in enumerate(cells):
            first, last = -(-n * size // len(cells)), -(-(n + 1) * size // len(cells)) - 1
            place = str(first) if first == last else f"{first}-{last}"
            dark = min(1.0, value / most) if math.isfinite(value) else 1.0
            boxes.append(
                f'<rect x="{74 + n * width:.1f}" width="{max(0.5, width - 0.7):.1f}" '
                f'height="{_CELL}" class="cell" fill-opacity="{0.06 + 0.94 * dark:.2f}">'
                f"<title>{place}: {value:.3g}</title></rect>"
            )
        label = f'<text x="0" y="12">axis {axis} ({size:,})</text>'
        size_of = f"0 0 {WIDTH / 2:g} {_CELL + 2}"
        yield f'<svg viewBox="{size_of}" role="img">{label}{"".join(boxes)}</svg>'
