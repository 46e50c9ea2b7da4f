"""A saved JSON report read back: every field checked, the one at fault named."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from checks.gates.blocks.isolated import ISOLATION, VERDICTS, Isolated
from checks.gates.comparison.apart import Apart, ThreeWay
from checks.gates.comparison.detail import Detail, Entry
from checks.gates.comparison.measure import SHARES, Measured
from checks.gates.comparison.plain import FIGURES
from checks.gates.comparison.record import (
    FAIL,
    MISSING,
    NONFINITE,
    OK,
    OVER,
    SCHEMA,
    SHAPE,
    SYSTEMATIC,
    WARN,
    Answer,
    Cause,
    Change,
    Problem,
    Result,
    TensorRow,
)
from checks.gates.comparison.several import Comparison
from checks.gates.errors import GateError
from checks.gates.formats.manifest import ROLES, parsed
from checks.gates.formats.readers import text_of
from checks.gates.limits.contract import Limit

T = TypeVar("T")
_FIX = "write the report anew: gradsweep gate compare ... --json FILE"


def read_report(path: str | Path) -> Result | Comparison:
    """Read a JSON report of `gradsweep gate compare`.

    Raises:
        GateError: it cannot be read, is not JSON, or no report: the field at fault is named.
    """
    file = Path(path)
    record = parsed(text_of(file), str(file))
    return comparison_of(record, str(file)) if "results" in record else result_of(record, str(file))


def comparison_of(record: Any, where: str) -> Comparison:
    """Return the comparison of a record; see `Comparison.from_record`."""
    table = _table(record, where)
    labels = tuple(table.texts("labels"))
    results = table.each("results", lambda t: result_of(t.record, t.where))
    if not labels or len(labels) != len(results):
        raise _wrong(f"{len(labels)} labels of {len(results)} results", where)
    pairs = table.table("between")
    between = {name: _apart(pairs.table(name), len(labels) + 1) for name in pairs.record}
    return Comparison(labels, results, between)


def result_of(record: Any, where: str) -> Result:
    """Return the result of a record; see `Result.from_record`."""
    table = _table(record, where)
    return Result(
        reference=table.text("reference"),
        candidate=table.text("candidate"),
        contract=table.text("tolerances"),
        rows=table.each("rows", _row),
        problems=table.each("problems", _problem),
        inputs=table.one_of("inputs", ("equal", "unknown", "different")),
        notes=tuple(table.texts("notes")),
        names=table.text_or_none("names"),
        answers=table.each("answers", lambda t: Answer(t.text("question"), t.text("text"))),
        only=table.text_or_none("only"),
        reference64=table.text_or_none("reference64"),
        changes=table.each("changes", _change),
        replayed=record.get("replayed") is True,
        alone=_alone(table) if "alone" in record else (0, 0),
        isolated=tuple(table.texts("isolated")) if "isolated" in record else (),
        transcript=table.one_of("transcript", (WARN, FAIL)) if "transcript" in record else WARN,
    )


def read_isolation(path: str | Path) -> Isolated:
    """Read a JSON report of `gradsweep gate isolate`.

    Raises:
        GateError: it cannot be read, is not JSON, or no such report: the field at fault is named.
    """
    file = Path(path)
    record = parsed(text_of(file), str(file))
    if record.get("schema") != ISOLATION:
        what = f"no report of an isolation: its schema is not {ISOLATION!r}"
        fix = "write it anew: gradsweep gate isolate ... --json FILE"
        raise GateError(what, str(file), fix)
    table = _Table(record, str(file))
    both = (*table.each("rows", _isolated), *table.each("backward", _isolated))
    verdicts = {name: verdict for name, verdict, _ in both}
    causes = {name: cause for name, _, cause in both if cause is not None}
    paths = table.text("reference"), table.text_or_none("candidate")
    return Isolated(str(file), *paths, verdicts, causes)


def _isolated(table: "_Table") -> tuple[str, str, Cause | None]:
    cause = _cause(table.table("cause")) if "cause" in table.record else None
    return table.text("output"), table.one_of("verdict", VERDICTS), cause


def _alone(table: "_Table") -> tuple[int, int]:
    reference, candidate = table.counts("alone", 2)
    return reference, candidate


def _table(record: Any, where: str) -> "_Table":
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        found = record.get("schema") if isinstance(record, dict) else record
        what = f"no report of the gate: its schema is {found!r:.40}, not {SCHEMA!r}"
        raise GateError(what, where, _FIX)
    return _Table(record, where)


def _problem(table: "_Table") -> Problem:
    return Problem(*(table.text(n) for n in ("what", "where", "fix", "kind")))


def _row(table: "_Table") -> TensorRow:
    statuses = (OK, OVER, SHAPE, NONFINITE, SYSTEMATIC, *MISSING)
    has = table.record.keys()
    found = _detail(table.table("detail")) if "detail" in has else None
    if found is not None and len(found.strips) != len(table.shape("shape_reference") or ()):
        raise _wrong("strips are not one for each axis", table.where)
    return TensorRow(
        name=table.text("name"),
        role=table.one_of("role", ROLES),
        status=table.one_of("status", statuses),
        limit=_limit(table.table("limit")) if "limit" in has else None,
        shapes=(table.shape("shape_reference"), table.shape("shape_candidate")),
        dtypes=(table.text_or_none("dtype_reference"), table.text_or_none("dtype_candidate")),
        measured=_measured(table) if "count" in has else None,
        cause=_cause(table.table("cause")) if "cause" in has else None,
        note=table.text("note") if "note" in has else "",
        detail=found,
        three_way=_three_way(table.table("three_way")) if "three_way" in has else None,
        declared=table.one_of("declared_role", ROLES),
        understood=table.record.get("understood") is True,
    )


def _cause(table: "_Table") -> Cause:
    return Cause(table.text("name"), table.text("text"), table.number("left"))


def _three_way(table: "_Table") -> ThreeWay:
    return ThreeWay(*(table.number(n) for n in ("own", "candidate", "gap")))


def _limit(table: "_Table") -> Limit:
    comment = tuple(table.texts("_comment")) if "_comment" in table.record else ()
    return Limit(table.number("max_abs"), table.number("mean_abs"), comment)


def _measured(table: "_Table") -> Measured:
    counts = ("count", "differing", "disagreements", "finite")
    pairs = ("nonfinite", "crc")
    values: dict[str, Any] = {n: table.count(n) for n in counts}
    values |= {n: tuple(table.counts(n, 2)) for n in pairs}
    values["sums"] = tuple(table.numbers("sums", 6))
    values["eta"] = None if table.get("eta") is None else table.number("eta")
    values["worst"] = table.shape("worst_index")
    values |= {n: table.number(n) for n in FIGURES if n not in values}
    return Measured(**values)


def _detail(table: "_Table") -> Detail:
    histogram = table.table("histogram")
    shares = table.table("quantiles")
    names = [f"p{100 * s:g}" for s in SHARES] if shares.record else []
    return Detail(
        quantiles=tuple(shares.number(n) for n in names),
        worst=table.each("worst", _entry),
        equal=histogram.count("equal"),
        power=histogram.integer("power"),
        counts=tuple(histogram.counts("counts")),
        strips=tuple(tuple(s) for s in table.rows("strips")),
        within=table.number("quantiles_within") if "quantiles_within" in table.record else 0.0,
    )


def _entry(table: "_Table") -> Entry:
    index = table.shape("index")
    values = table.number("reference"), table.number("candidate")
    return Entry(index or (), *values, table.one_of("part", ("", "real", "imag")))


def _change(table: "_Table") -> Change:
    sizes, said = table.counts("sizes", 2), table.texts("said")
    if len(said) != 2:
        raise _wrong("said is no pair", table.where)
    first, margin, error = (table.get(n) for n in ("first", "margin", "error"))
    return Change(
        source=table.text("source"),
        kind=table.one_of("kind", ("tokens", "text", "argmax")),
        sizes=(sizes[0], sizes[1]),
        edits=table.count("edits"),
        first=None if first is None else table.count("first"),
        said=(said[0], said[1]),
        note=table.text("note"),
        logits=table.text("logits"),
        margin=None if margin is None else table.number("margin"),
        error=None if error is None else table.number("error"),
    )


def _apart(table: "_Table", size: int) -> Apart:
    def matrix(name: str) -> tuple[tuple[float, ...], ...]:
        rows = table.rows(name)
        if [len(r) for r in rows] != [size] * size:
            raise _wrong(f"{name} is no matrix of {size} x {size}", table.where)
        return tuple(tuple(r) for r in rows)

    distances = (matrix("max_abs"), matrix("mean_abs"), matrix("rms"))
    return Apart(*distances, finite=table.count("finite"), odd=table.count("odd"))


def _wrong(what: str, where: str) -> GateError:
    return GateError(f"no report of the gate: {what}", where, _FIX)


@dataclass(frozen=True, slots=True)
class _Table:
    """A JSON object that gives only what it should hold."""

    record: dict[str, Any]
    where: str

    def get(self, name: str) -> Any:
        """Return a field that must be there."""
        if name not in self.record:
            raise _wrong(f"{name} is absent", self.where)
        return self.record[name]

    def _wrong(self, name: str, kind: str) -> GateError:
        return _wrong(f"{name} is no {kind}: {self.record[name]!r:.40}", self.where)

    def text(self, name: str) -> str:
        value = self.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "text")
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self.get(name) is None else self.text(name)

    def one_of(self, name: str, known: Sequence[str]) -> str:
        value = self.text(name)
        if value not in known:
            what = f"{name} is none of {', '.join(known)}: {value!r:.40}"
            raise _wrong(what, self.where)
        return value

    def texts(self, name: str) -> list[str]:
        values = self.items(name)
        if not all(isinstance(v, str) for v in values):
            raise self._wrong(name, "list of texts")
        return values

    def items(self, name: str) -> list[Any]:
        value = self.get(name)
        if not isinstance(value, list):
            raise self._wrong(name, "list")
        return value

    def table(self, name: str) -> "_Table":
        value = self.get(name)
        if not isinstance(value, dict):
            raise self._wrong(name, "table")
        return _Table(value, f"{self.where}: {name}")

    def each(self, name: str, make: Callable[["_Table"], T]) -> tuple[T, ...]:
        made = []
        for n, value in enumerate(self.items(name)):
            where = f"{self.where}: {name}[{n}]"
            if not isinstance(value, dict):
                raise _wrong(f"{name}[{n}] is no table: {value!r:.40}", self.where)
            made.append(make(_Table(value, where)))
        return tuple(made)

    def integer(self, name: str) -> int:
        value = self.get(name)
        if type(value) is not int:
            raise self._wrong(name, "integer")
        return value

    def count(self, name: str) -> int:
        if self.integer(name) < 0:
            raise self._wrong(name, "count")
        return self.integer(name)

    def counts(self, name: str, size: int | None = None) -> list[int]:
        values = self.items(name)
        good = all(type(v) is int and v >= 0 for v in values)
        if not good or (size is not None and len(values) != size):
            raise self._wrong(name, "list of counts" if size is None else f"list of {size} counts")
        return values

    def shape(self, name: str) -> tuple[int, ...] | None:
        return None if self.get(name) is None else tuple(self.counts(name))

    def number(self, name: str) -> float:
        value = _number(self.get(name))
        if value is None:
            raise self._wrong(name, "number")
        return value

    def numbers(self, name: str, size: int) -> list[float]:
        values = [_number(v) for v in self.items(name)]
        if len(values) != size or None in values:
            raise self._wrong(name, f"list of {size} numbers")
        return [v for v in values if v is not None]

    def rows(self, name: str) -> list[list[float]]:
        made = []
        for row in self.items(name):
            values = [_number(v) for v in row] if isinstance(row, list) else [None]
            if None in values:
                raise self._wrong(name, "table of numbers")
            made.append([v for v in values if v is not None])
        return made


def _number(value: Any) -> float | None:
    """A number as `plain` wrote it; None where it is none."""
    if value in ("nan", "inf", "-inf"):
        return float(value)
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if good and math.isfinite(value) else None
