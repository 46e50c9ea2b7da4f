"""Numbers and counts as every report words them."""

import math

from checks.results import FAIL, STALE, Row


def number(value: float | None, digits: int = 3) -> str:
    """Return a number of a few digits: "2.3e-05", "NaN", "inf"; "" for None."""
    if value is None:
        return ""
    if value != value:
        return "NaN"
    if 0 < abs(value) < 0.001:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{power}"
    return f"{value:.{digits}g}"


def printable(text: str) -> str:
    """Return `text` with its control characters and lone surrogates escaped, newlines apart: what
    a terminal obeys, and what no encoding holds.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def plural(count: int, word: str) -> str:
    """Return "1 op", "2 ops"."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def duration(seconds: float) -> str:
    """Return "0.42 s", "12.3 s", "4 min 05 s" or "1 h 02 min"."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def used(headroom: float | None) -> str:
    """Return how much of a tolerance an error uses: "=", "3%", "140%", "12x", "inf", "NaN".

    "=" says that nothing differs, "" that nothing was measured.
    """
    if headroom is None:
        return ""
    if headroom == 0:
        return "="
    if not math.isfinite(headroom):
        return "NaN" if headroom != headroom else "inf"
    if headroom >= 10:
        return f"{headroom:.0f}x" if headroom < 1e5 else f"{headroom:.0e}x".replace("e+0", "e")
    percent = 100 * headroom
    if percent < 0.1:
        return "<0.1%"
    return f"{percent:.1f}%" if percent < 0.95 else f"{percent:.0f}%"


def judged(row: Row) -> str:
    """Return the error beside what was allowed: "3.1e-04 > 2e-05", "17 ulp > 4 ulp"."""
    if row.error is None:
        return ""
    if row.error != row.error:
        return "NaN"
    if row.unit == "exact":
        if row.error == 1:
            return "1 entry differs"
        return f"{number(row.error)} entries differ" if row.error else "equal"
    unit = " ulp" if row.unit == "ulp" else ""
    within = row.tolerance is not None and row.error <= row.tolerance
    sign = "\u2264" if within else ">"
    return f"{number(row.error)}{unit} {sign} {number(row.tolerance)}{unit}"


def complaint(row: Row) -> list[str]:
    """Return what a failed or stale row has to say, in lines; the first names the item."""
    head = f"{row.op}  {row.surface}  {row.sample}  {row.dtype}"
    if row.status == STALE:
        tracked = f"  ({row.link})" if row.link else ""
        return [
            f"STALE  {head}",
            f"  the exclusion no longer holds: {row.reason}{tracked}",
            "  remove it from catalogue/exclusions.py, or correct what it expects",
        ]
    lines = [f"{'FAIL' if row.status == FAIL else row.status}  {head}"]
    lines += [f"  {line.strip()}" for line in row.message.strip().split("\n")]
    if row.repro and row.repro not in row.message:
        lines.append(f"  {row.repro}")
    return lines
