"""What besides its limits may decide a verdict: systematic errors, a changed transcript."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, replace

from checks.gates.comparison.record import (
    FAIL,
    OK,
    SYSTEMATIC,
    WARN,
    TensorRow,
)
from checks.gates.errors import GateError

CHOICES = (WARN, FAIL)


@dataclass(frozen=True, slots=True)
class Policy:
    """What a comparison makes of what its limits let pass.

    Arguments:
        systematic: of a tensor within its limits whose error is systematic and more than rounding:
            "warn" says so in the verdict, "fail" fails it.
        understood: patterns of names whose systematic error is meant.
        transcript: of tokens and texts that changed while every tensor passes: likewise.

    Raises:
        GateError: there is no such choice.
    """

    systematic: str = WARN
    understood: Sequence[str] = ()
    transcript: str = WARN

    def __post_init__(self) -> None:
        for field in ("systematic", "transcript"):
            if getattr(self, field) not in CHOICES:
                what = f"{field} is neither {WARN!r} nor {FAIL!r}: {getattr(self, field)!r:.40}"
                raise GateError(what, f"Policy({field}=...)", f'write {field}="{FAIL}"')

    def known(self, row: TensorRow) -> TensorRow:
        """Return a row with whether its systematic error is understood."""
        name = row.name.partition("#")[0]
        known = any(fnmatch.fnmatchcase(name, pattern) for pattern in self.understood)
        return replace(row, understood=known)

    def judged(self, row: TensorRow) -> TensorRow:
        """Return a measured row, failing where that is asked for."""
        fails = row.suspect and self.systematic == FAIL
        return replace(row, status=SYSTEMATIC) if fails else row


def unjudged(row: TensorRow) -> TensorRow:
    """Return the row as its limits alone judge it."""
    return replace(row, understood=False, status=OK if row.status == SYSTEMATIC else row.status)
