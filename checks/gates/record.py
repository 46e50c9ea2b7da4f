"""What a comparison says: a row for each tensor, causes, answers, the verdict."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from checks.gates.contract import Limit
from checks.gates.errors import INVALID, PASSED, WRONG
from checks.gates.formats.manifest import GATE, INFORMATIONAL
from checks.gates.measure import Measured
from checks.tolerances import constant

OK, OVER, SHAPE, NONFINITE = "ok", "FAIL", "SHAPE", "NONFINITE"
NO_CANDIDATE, NO_REFERENCE, NOWHERE = "MISSING-candidate", "MISSING-reference", "MISSING-both"
MISSING = (NO_CANDIDATE, NO_REFERENCE, NOWHERE)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a tensor is off, verified by undoing it.

    Arguments:
        name: a short one, such as "scale".
        text: one sentence with its numbers.
        left: the share of the error (rms) that is left once it is undone.
    """

    name: str
    text: str
    left: float = 0.0


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor of both sides.

    Arguments:
        name: its key.
        role: gate, informational or debug.
        status: ok, FAIL (over its limits), SHAPE, NONFINITE, MISSING-candidate,
            MISSING-reference or MISSING-both.
        limit: None where it is not in the tolerance file.
        shapes: of the reference and the candidate; None where missing.
        dtypes: likewise.
        measured: the figures; None where nothing could be compared.
        cause: why, where it was found.
        note: anything else.
    """

    name: str
    role: str
    status: str
    limit: Limit | None
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    dtypes: tuple[str | None, str | None]
    measured: Measured | None = None
    cause: Cause | None = None
    note: str = ""

    @property
    def contract(self) -> bool:
        """Whether it is in the tolerance file."""
        return self.limit is not None

    @property
    def failed(self) -> bool:
        """Whether it is a contract tensor that is not within its limits."""
        return self.contract and self.status != OK

    @property
    def systematic(self) -> bool:
        """Whether the reference's value explains the error, as no noise would."""
        m = self.measured
        if m is None or m.eta is None:
            return False
        chance = min(10 * m.eta_noise, constant("gate_systematic_few"))
        return m.eta > max(constant("gate_systematic_eta"), chance)

    def to_record(self) -> dict[str, Any]:
        """Return the row for JSON; NaN and infinities as text."""
        m = self.measured
        record: dict[str, Any] = {
            "name": self.name,
            "role": self.role,
            "status": self.status,
            "contract": self.contract,
            "shape_reference": self.shapes[0],
            "shape_candidate": self.shapes[1],
            "dtype_reference": self.dtypes[0],
            "dtype_candidate": self.dtypes[1],
        }
        if self.limit is not None:
            record["limit"] = {
                "max_abs": plain(self.limit.max_abs),
                "mean_abs": plain(self.limit.mean_abs),
            }
        if m is not None:
            record |= {n: plain(getattr(m, n)) for n in _FIGURES}
            record |= {"relative_rms": plain(m.relative_rms), "cosine": plain(m.cosine)}
            record |= {"worst_index": m.worst, "nonfinite": m.nonfinite}
            record["systematic"] = self.systematic
        if self.cause is not None:
            record["cause"] = {
                "name": self.cause.name,
                "text": self.cause.text,
                "left": plain(self.cause.left),
            }
        return record | ({"note": self.note} if self.note else {})


_FIGURES = (
    *("count", "differing", "max_abs", "mean_abs", "rms", "p99_abs"),
    *("disagreements", "eta", "eta_noise"),
)


def plain(value: Any) -> Any:
    """Return a number as strict JSON can hold it: NaN and infinities as text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, slots=True)
class Problem:
    """Why no valid comparison is possible: three lines."""

    what: str
    where: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}\n  at {self.where}\n  {self.fix}"


@dataclass(frozen=True, slots=True)
class Answer:
    """One of the six questions, with its answer."""

    question: str
    text: str


@dataclass(frozen=True, slots=True)
class Result:
    """A whole comparison.

    Arguments:
        reference, candidate, contract: paths, for messages.
        rows: in execution order.
        problems: why no valid comparison is possible; empty where it is.
        inputs: "equal", "unknown" or "different".
        notes: what else a reader should know.
        names: the file of rules and roles; None where there was none.
        answers: to the six questions, on a failure.
    """

    reference: str
    candidate: str
    contract: str
    rows: Sequence[TensorRow]
    problems: Sequence[Problem] = ()
    inputs: str = "unknown"
    notes: Sequence[str] = ()
    names: str | None = None
    answers: Sequence[Answer] = field(default=())

    @property
    def exit_code(self) -> int:
        """0 pass, 1 the candidate is wrong, 2 no valid comparison."""
        if self.problems:
            return INVALID
        return WRONG if any(r.failed for r in self.rows) else PASSED

    @property
    def ok(self) -> bool:
        """Whether every contract tensor is within its limits and the comparison valid."""
        return self.exit_code == PASSED

    @property
    def first(self) -> TensorRow | None:
        """The first gate that diverged, else the first informational one; a missing tensor only
        where nothing else failed.
        """
        for role in (GATE, INFORMATIONAL):
            for missing in (False, True):
                for row in self.rows:
                    if row.failed and row.role == role and (row.status in MISSING) == missing:
                        return row
        return None

    @property
    def last_good(self) -> TensorRow | None:
        """The last contract tensor before the first divergence that is within its limits."""
        first = self.first
        before = self.rows[: list(self.rows).index(first)] if first else ()
        return next((r for r in reversed(before) if r.contract and r.status == OK), None)

    @property
    def cause(self) -> Cause | None:
        """The cause of the first divergence."""
        return self.first.cause if self.first else None

    def to_record(self) -> dict[str, Any]:
        """Return the whole as one JSON object."""
        first, good = self.first, self.last_good
        return {
            "exit_code": self.exit_code,
            "reference": self.reference,
            "candidate": self.candidate,
            "tolerances": self.contract,
            "inputs": self.inputs,
            "first": first.name if first else None,
            "last_good": good.name if good else None,
            "cause": self.cause.name if self.cause else ("unclassified" if first else None),
            "answers": [{"question": a.question, "text": a.text} for a in self.answers],
            "problems": [str(p) for p in self.problems],
            "notes": list(self.notes),
            "rows": [r.to_record() for r in self.rows],
        }
