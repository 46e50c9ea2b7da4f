"""The folder of a report: written by a sweep, rebuilt from its JSON lines."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from checks.report import html, junit
from checks.results import ResultsError, Row, merge, read_rows, replace_text, write_rows

RESULTS, META, JUNIT, PAGE = "results.jsonl", "meta.json", "junit.xml", "index.html"


@dataclass(frozen=True, slots=True)
class Meta:
    """What a report says of its run, beside the rows.

    Arguments:
        title: the report's name.
        started: when the run began, as text (ISO 8601).
        wall: its wall time in seconds; None where it was not taken.
        workers: how many processes took part.
        command: what was run.
        seed: the seed of the whole run.
        versions: version by package name.
        machine: the machine in a few words.
    """

    title: str = "gradsweep"
    started: str = ""
    wall: float | None = None
    workers: int = 1
    command: str = ""
    seed: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""

    def __post_init__(self) -> None:
        if self.wall is not None and not 0 <= self.wall < math.inf:
            raise ResultsError(f"wall is no time: {self.wall!r}", "meta.wall", "pass seconds")
        if not all(isinstance(v, str) for pair in self.versions.items() for v in pair):
            what = f"versions are not text: {dict(self.versions)!r:.60}"
            raise ResultsError(what, "meta.versions", "pass str(version) by package name")


@dataclass(frozen=True, slots=True)
class Paths:
    """The files of a report."""

    results: Path
    meta: Path
    junit: Path
    page: Path


def write_all(
    rows: Iterable[Row], folder: str | os.PathLike[str], meta: Meta | None = None
) -> Paths:
    """Write results.jsonl, meta.json, junit.xml and index.html into `folder`.

    The results are written first: whatever happens after that, `rebuild` makes the rest of them.

    Arguments:
        rows: the results; of two for one item the one that asks for more attention stays.
        folder: made where absent; files of the same names are replaced.
        meta: what the report says of the run.

    Returns:
        The paths of the four files.

    Raises:
        MissingPackageError: jinja2 is not installed; the other three files are there.
    """
    kept, meta = merge(rows), meta or Meta()
    paths = Paths(*(Path(folder) / name for name in (RESULTS, META, JUNIT, PAGE)))
    write_rows(paths.results, kept)
    replace_text(paths.meta, json.dumps(asdict(meta), indent=2, allow_nan=False) + "\n")
    replace_text(paths.junit, junit.text(kept, meta.title))
    replace_text(paths.page, html.page(kept, asdict(meta)))
    return paths


def rebuild(folder: str | os.PathLike[str]) -> Paths:
    """Write junit.xml and index.html anew from the JSON lines in `folder`.

    Where there is no results.jsonl (a sweep that was stopped), the lines of its workers, in
    results-*.jsonl, are merged.

    Raises:
        ResultsError: there are no results, or a corrupt line.
        MissingPackageError: jinja2 is not installed.
    """
    place = Path(folder)
    files = [place / RESULTS]
    if not files[0].exists():
        files = sorted(place.glob("results-*.jsonl")) or files
    return write_all(merge(*map(read_rows, files)), place, read_meta(place))


def read_meta(folder: str | os.PathLike[str]) -> Meta:
    """Return what meta.json in `folder` says; the defaults where there is no such file.

    Raises:
        ResultsError: the file is not what `write_all` wrote.
    """
    file = Path(folder) / META
    if not file.exists():
        return Meta()
    try:
        record: Any = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(record, dict):
            raise TypeError(f"a {type(record).__name__}, no JSON object")
        return Meta(**{f.name: record[f.name] for f in fields(Meta) if f.name in record})
    except (ValueError, TypeError) as error:
        fix = "delete the file; the report is then made without it"
        raise ResultsError(f"not a run's meta data: {error}", str(file), fix) from None
