"""Result rows of a sweep: their file, their merge, their summary and the exit code."""

import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from checks.row import EXCLUDED, FAIL, PASS, SKIPPED, STALE, STATUSES, ResultsError, Row
from checks.tolerance_file import SURFACES

__all__ = [
    "EXCLUDED",
    "FAIL",
    "PASS",
    "SKIPPED",
    "STALE",
    "STATUSES",
    "ResultsError",
    "Row",
    "Summary",
    "SurfaceSummary",
    "exit_code",
    "merge",
    "read_rows",
    "replace_text",
    "severity",
    "summary",
    "surface_order",
    "write_rows",
]

EXIT_OK, EXIT_FAILED, EXIT_MISSING = 0, 1, 3
# Of two rows for one item, a merge keeps the one that asks for more attention.
_ATTENTION = {FAIL: 4, STALE: 3, EXCLUDED: 2, PASS: 1, SKIPPED: 0}


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """Read a file of result lines; blank lines are passed over.

    Raises:
        ResultsError: a corrupt line (its file and number are named), or no such file.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fix = "gradsweep sweep writes build/op-sweep/results.jsonl"
        raise ResultsError(f"no results: {error}", str(file), fix) from None
    rows = []
    # str.splitlines would also split at U+2028, which JSON strings may hold.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                rows.append(Row.from_json(line))
            except ResultsError as error:
                where = f"{file}:{number}: {error.where}"
                raise ResultsError(error.what, where, error.fix) from None
    return rows


def write_rows(path: str | os.PathLike[str], rows: Iterable[Row]) -> Path:
    """Write one JSON line a row; the file is replaced at once, so never half written."""
    return replace_text(Path(path), "".join(f"{row.to_json()}\n" for row in rows))


def replace_text(file: Path, text: str) -> Path:
    """Write `text` beside `file`, then put it in its place; folders are made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8", newline="\n")
    return draft.replace(file)


def merge(*parts: Iterable[Row]) -> list[Row]:
    """Return the rows of all workers, one for each item, sorted.

    Of two rows for one item the one that asks for more attention stays: a failure is never hidden
    by a pass elsewhere.
    """
    kept: dict[tuple[str, str, str, str], Row] = {}
    for part in parts:
        for row in part:
            other = kept.get(row.key)
            if other is None or _ATTENTION[row.status] >= _ATTENTION[other.status]:
                kept[row.key] = row
    return sorted(kept.values(), key=lambda row: row.key)


def severity(headroom: float | None) -> float:
    """Return a number that orders headrooms: nothing measured first, NaN (-> inf) last."""
    if headroom is None:
        return -1.0
    return math.inf if math.isnan(headroom) else headroom


def surface_order(names: Iterable[str]) -> list[str]:
    """Return surface names without repetition, in the order of SURFACES, devices after them."""

    def place(name: str) -> tuple[int, str]:
        base, _, device = name.partition("@")
        return SURFACES.index(base), device

    return sorted(set(names), key=place)


@dataclass(frozen=True, slots=True)
class SurfaceSummary:
    """What one surface found.

    Arguments:
        checks: rows that were run; passed, failures, excluded and stale add up to it.
        passed: how many passed.
        failures: how many failed.
        excluded: how many exclusions held.
        stale: how many exclusions no longer hold.
        skipped: rows that were not run.
        seconds: the time of all of them.
        worst: the row of the largest error / tolerance, known failures apart; None where nothing
            was measured.
    """

    checks: int
    passed: int
    failures: int
    excluded: int
    stale: int
    skipped: int
    seconds: float
    worst: Row | None

    @property
    def headroom(self) -> float | None:
        """The largest error / tolerance."""
        return None if self.worst is None else self.worst.headroom


@dataclass(frozen=True, slots=True)
class Summary(SurfaceSummary):
    """What a sweep found.

    Arguments:
        ops: how many ops there are.
        samples: how many samples of them.
        surfaces: the summary of each surface, in their order.
        missing: the rows skipped for want of each package.
    """

    ops: int
    samples: int
    surfaces: Mapping[str, SurfaceSummary]
    missing: Mapping[str, int]


def _one(rows: list[Row]) -> SurfaceSummary:
    counts = Counter(row.status for row in rows)
    measured = [row for row in rows if row.error is not None and row.status != EXCLUDED]
    return SurfaceSummary(
        checks=len(rows) - counts[SKIPPED],
        passed=counts[PASS],
        failures=counts[FAIL],
        excluded=counts[EXCLUDED],
        stale=counts[STALE],
        skipped=counts[SKIPPED],
        seconds=math.fsum(row.seconds for row in rows),
        worst=max(measured, key=lambda row: severity(row.headroom), default=None),
    )


def summary(rows: Iterable[Row]) -> Summary:
    """Return the counts, the worst headroom and the time of `rows`, in all and by surface."""
    every = list(rows)
    by_surface: dict[str, list[Row]] = {}
    for row in every:
        by_surface.setdefault(row.surface, []).append(row)
    total = _one(every)
    return Summary(
        **{name: getattr(total, name) for name in SurfaceSummary.__slots__},
        ops=len({row.op for row in every}),
        samples=len({(row.op, row.sample) for row in every}),
        surfaces={name: _one(by_surface[name]) for name in surface_order(by_surface)},
        missing=Counter(row.missing for row in every if row.missing),
    )


def exit_code(found: Summary, allow_missing: Collection[str] = ()) -> int:
    """Return what a sweep exits with.

    Arguments:
        found: its summary.
        allow_missing: packages whose absence is accepted.

    Returns:
        1 where something failed, an exclusion is stale or nothing was checked at all; 3 where a
        surface was skipped for want of a package that is not allowed to be missing; else 0.
    """
    if found.failures or found.stale or not found.checks:
        return EXIT_FAILED
    return EXIT_MISSING if set(found.missing) - set(allow_missing) else EXIT_OK
