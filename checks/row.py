"""One result: what one surface said about one sample of one op."""

import json
import math
from collections.abc import Collection
from dataclasses import MISSING, dataclass, fields
from typing import Any

from checks.tolerance_file import SURFACES, UNITS, nearest

PASS, FAIL, EXCLUDED, STALE, SKIPPED = STATUSES = ("pass", "fail", "excluded", "stale", "skipped")
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

ALWAYS = frozenset({"error", "tolerance", "ulp", "seconds"})

Scalar = bool | int | float | complex | str


class ResultsError(ValueError):
    """A result row, or a file of them, is wrong.

    Arguments:
        what: what is wrong.
        where: the row, or the file and line.
        fix: what to do.
    """

    def __init__(self, what: str, where: str, fix: str) -> None:
        super().__init__(f"{what}\n  at {where}\n  {fix}")
        self.what, self.where, self.fix = what, where, fix


@dataclass(frozen=True, slots=True)
class Row:
    """One result.

    Arguments:
        op: the op's kind, or the name of a user's function.
        sample: the sample's name.
        surface: a name of SURFACES; "@device" may follow it.
        dtype: the dtype of what was judged.
        status: pass; fail; excluded (a known failure that still fails as it should); stale (one
            that no longer does); skipped (nothing was run).
        error: the error in `unit`; None where nothing was measured.
        tolerance: what was allowed, in `unit`.
        unit: relative, ulp or exact (the error then counts entries).
        tolerance_source: default, variant or override, as `tolerances.lookup` says.
        default_tolerance: what is allowed without overrides.
        componentwise: max |e| / |expected|.
        ulp: max |e| in ulp.
        seconds: time taken.
        reason: why excluded, stale or skipped.
        link: where the exclusion is tracked.
        message: the failure's message; of an exclusion, the error that was expected and came.
        repro: one line that repeats the check.
        seed: of the random numbers.
        worst_index: the worst entry.
        got: the result there.
        expected: the reference there.
        evaluations: how often the function was called.
        missing: the package whose absence made this a skip.

    Raises:
        ResultsError: a field contradicts another, or is none of the values it may take.
    """

    op: str
    sample: str
    surface: str
    dtype: str
    status: str
    error: float | None = None
    tolerance: float | None = None
    unit: str = "relative"
    tolerance_source: str = "default"
    default_tolerance: float | None = None
    componentwise: float | None = None
    ulp: float | None = None
    seconds: float = 0.0
    reason: str = ""
    link: str = ""
    message: str = ""
    repro: str = ""
    seed: int | None = None
    worst_index: tuple[int, ...] | None = None
    got: Scalar | None = None
    expected: Scalar | None = None
    evaluations: int = 0
    missing: str = ""

    def __post_init__(self) -> None:
        for name in ("op", "sample", "surface", "dtype"):
            if not (isinstance(getattr(self, name), str) and getattr(self, name).strip()):
                raise self._wrong(f"{name} is empty", f"give {name} a name")
        _known(self, "status", self.status, STATUSES)
        _known(self, "surface", self.surface.partition("@")[0], SURFACES)
        _known(self, "unit", self.unit, UNITS)
        self._check_numbers()
        self._check_status()

    def _wrong(self, what: str, fix: str) -> ResultsError:
        return ResultsError(what, f"row {self.op}/{self.sample}/{self.surface}/{self.dtype}", fix)

    def _check_numbers(self) -> None:
        for name in ("error", "tolerance", "default_tolerance", "componentwise", "ulp", "seconds"):
            value = getattr(self, name)
            if value is None or (_is_number(value) and not value < 0):
                continue
            raise self._wrong(f"{name} is not a number >= 0: {value!r}", "pass a float or None")
        if not math.isfinite(self.seconds):
            raise self._wrong(f"seconds is not finite: {self.seconds!r}", "pass the time it took")
        for name in ("seed", "evaluations"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 0):
                raise self._wrong(f"{name} is not an integer >= 0: {value!r}", "pass an int")
        index = self.worst_index
        if index is not None and not all(type(i) is int for i in index):
            raise self._wrong(f"worst_index is no index: {index!r}", "pass a tuple of ints")
        for name in ("got", "expected"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, bool | int | float | complex | str)):
                raise self._wrong(f"{name} is a {type(value).__name__}", f"pass {name}.item()")

    def _check_status(self) -> None:
        over = self.error is not None and not self.error <= (self.tolerance or 0.0)
        if self.status == PASS and over:
            what = f"a pass whose error {self.error!r} is above its tolerance {self.tolerance!r}"
            raise self._wrong(what, f"status={FAIL!r}, or another tolerance")
        if self.status == FAIL and not self.message.strip():
            raise self._wrong("a failure without a message", "say what, where and what to do")
        if self.status in (EXCLUDED, STALE, SKIPPED) and not self.reason.strip():
            raise self._wrong(f"{self.status} without a reason", 'pass reason="..."')
        if self.missing and self.status != SKIPPED:
            raise self._wrong(f"{self.status} with a missing package", f"status={SKIPPED!r}")

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes two rows results of one item."""
        return self.op, self.sample, self.surface, self.dtype

    @property
    def headroom(self) -> float | None:
        """Error / tolerance: above 1 fails; 0 where equal; None where nothing was measured."""
        if self.error is None:
            return None
        if self.error == 0:
            return 0.0
        return self.error / self.tolerance if self.tolerance else math.inf

    def to_json(self) -> str:
        """Return the row as one line of JSON; fields at their default are left out, except those
        every reader may count on (`ALWAYS`).
        """
        every = ((f, getattr(self, f.name)) for f in fields(self))
        kept = {
            f.name: _encode(v)
            for f, v in every
            if f.default is MISSING or f.name in ALWAYS or v != f.default
        }
        return json.dumps(kept, allow_nan=False, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> "Row":
        """Return the row that `to_json` wrote.

        Raises:
            ResultsError: not JSON, an unknown or absent field, or a row that contradicts itself.
        """
        fix = "delete the line, or run the sweep again"
        try:
            record = json.loads(line, parse_constant=_no_constant)
        except ValueError as error:
            raise ResultsError(f"not JSON: {error}", f"{line!r:.60}", fix) from None
        if not isinstance(record, dict):
            raise ResultsError("not a JSON object", f"{line!r:.60}", fix)
        names = [f.name for f in fields(cls)]
        for name in record:
            if name not in names:
                what = f"unknown field {name!r}{nearest(name, names)}"
                raise ResultsError(what, f"{line!r:.60}", "read it with the version that wrote it")
        absent = [f.name for f in fields(cls) if f.default is MISSING and f.name not in record]
        if absent:
            raise ResultsError(f"no {', '.join(absent)}", f"{line!r:.60}", fix)
        return cls(**{name: _decode(name, value) for name, value in record.items()})


def _known(row: Row, name: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        what = f"unknown {name} {value!r}{nearest(value, known)}"
        raise row._wrong(what, f"use one of {', '.join(known)}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON value; it is written as a string")


def _encode(value: Any) -> Any:
    """Return `value` as JSON can hold it: NaN and infinities as strings, complex as two parts."""
    if isinstance(value, complex):
        return {"re": _encode(value.real), "im": _encode(value.imag)}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return list(value) if isinstance(value, tuple) else value


def _decode(name: str, value: Any) -> Any:
    """Return what `_encode` was given for the field `name`."""
    if isinstance(value, dict) and value.keys() == {"re", "im"}:
        return complex(_decode(name, value["re"]), _decode(name, value["im"]))
    if isinstance(value, str) and name in _NUMBERS:
        return _SPECIAL.get(value, value)
    return tuple(value) if isinstance(value, list) else value


_NUMBERS = {
    "error",
    "tolerance",
    "default_tolerance",
    "componentwise",
    "ulp",
    "seconds",
    "got",
    "expected",
}
