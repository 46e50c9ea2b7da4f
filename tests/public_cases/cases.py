"""The table of cases, and how a right value judges what was got."""

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from checks import assert_close

TABLE = Path(__file__).with_name("cases.json")
# What float32 leaves of a derivative, of its largest entry: a few roundings of 6e-8 each.
FLOAT32 = 2e-6


@dataclass(frozen=True)
class Right:
    """One right answer: a value with its tolerances, an interval, a choice, or a verdict."""

    case: str
    what: str
    value: Any = None
    rtol: float = 0.0
    atol: float = 0.0
    between: tuple[Any, Any] | None = None
    one_of: tuple[Any, ...] | None = None
    verdict: str | None = None

    def holds(self, got: Any, road: str = "", narrow: bool = False) -> None:
        """Fail unless `got` is right; `narrow`: it was computed in float32."""
        got = np.asarray(got)
        if self.between is not None:
            low, high = map(np.asarray, self.between)
            assert np.all((low <= got) & (got <= high)), self._text(road, got, self.between)
        elif self.one_of is not None:
            which = [self._agrees(got, numbers(v), narrow) for v in self.one_of]
            assert any(which), self._text(road, got, self.one_of)
        else:
            assert self._agrees(got, numbers(self.value), narrow), self._text(road, got, self.value)

    def _agrees(self, got: np.ndarray, want: np.ndarray, narrow: bool) -> bool:
        if got.shape != want.shape:
            return False
        finite = np.abs(want[np.isfinite(want)])
        rtol, atol = self.rtol, self.atol
        if self.one_of is not None:
            rtol, atol = 1e-9, 1e-12
        if narrow:
            rtol, atol = 0.0, FLOAT32 * float(np.max(finite, initial=0.0)) + (atol and FLOAT32)
        kind = np.complex128 if "c" in (got.dtype.kind, want.dtype.kind) else np.float64
        try:
            assert_close(got.astype(kind), want.astype(kind), rtol=rtol, atol=atol)
        except AssertionError:
            return False
        return True

    def _text(self, road: str, got: np.ndarray, want: Any) -> str:
        return f"{self.case}, {self.what}{road and f' ({road})'}: got {got}, right is {want}"


@dataclass(frozen=True)
class Case:
    """One report: where it is public, what it is about, which file tests it."""

    id: str
    repository: str
    number: int
    kind: str
    also: tuple[str, ...]
    title: str
    test: str
    right: tuple[Right, ...]


def numbers(value: Any) -> np.ndarray:
    """An array from JSON: "inf" and the like are numbers, {"re", "im"} is a complex one."""
    return np.asarray(_number(value))


def _number(value: Any) -> Any:
    if isinstance(value, dict):
        return complex(value["re"], value["im"])
    if isinstance(value, list):
        return [_number(v) for v in value]
    return float(value) if isinstance(value, str) else value


@functools.cache
def cases() -> dict[str, Case]:
    """Every case by its id."""
    found = {}
    for row in json.loads(TABLE.read_text()):
        rights = tuple(Right(row["id"], **r) for r in row.pop("right"))
        found[row["id"]] = Case(**row, right=rights)
    return found


def right(case: str, what: str) -> Right:
    """The right answer of that name."""
    (found,) = (r for r in cases()[case].right if r.what == what)
    return found
