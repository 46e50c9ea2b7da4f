"""What a comparison says: a row for each tensor, causes, answers, the verdict."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from checks.gates.comparison.apart import ThreeWay
from checks.gates.comparison.detail import Detail
from checks.gates.comparison.measure import Measured
from checks.gates.comparison.plain import detail_record, measured_record, plain
from checks.gates.errors import INVALID, PASSED, WRONG
from checks.gates.formats.manifest import GATE, INFORMATIONAL
from checks.gates.limits.contract import Limit
from checks.tolerances import constant

OK, OVER, SHAPE, NONFINITE, SYSTEMATIC = "ok", "FAIL", "SHAPE", "NONFINITE", "SYSTEMATIC"
NO_CANDIDATE, NO_REFERENCE, NOWHERE = "MISSING-candidate", "MISSING-reference", "MISSING-both"
MISSING = (NO_CANDIDATE, NO_REFERENCE, NOWHERE)
SCHEMA = "gradsweep gate 1"
# Kinds of problems.
INPUTS, CONTRACT, REFERENCE, REUSED = "inputs", "contract", "reference", "reused"
SPLIT = "reference64"
WARN, FAIL = "warn", "fail"
# Causes that say where a tensor is off and not why; those that amplified rounding has, too.
WEAK = ("after the first", "before the last", "partial")
_PLACES = ("op mismatch", "inherited")
NO_PROOF = ("offset per slice", "factor per slice", "affine per slice", *WEAK, *_PLACES)


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
class Change:
    """What a run said, or chose, on both sides.

    Arguments:
        source: "transcript.json", or the name of a tensor.
        kind: "tokens", "text" or "argmax" (over the last axis of logits).
        sizes: steps, words or rows, of the reference and of the candidate.
        edits: how many of them differ; 0 where nothing changed.
        first: the first step, word or row that differs.
        said: what stands there and around, on the reference and on the candidate.
        note: a further count.
        logits: the tensor that holds that step's logits; "" where none does.
        margin: between the reference's two largest logits there.
        error: the largest error of that step's logits.
    """

    source: str
    kind: str
    sizes: tuple[int, int]
    edits: int = 0
    first: int | None = None
    said: tuple[str, str] = ("", "")
    note: str = ""
    logits: str = ""
    margin: float | None = None
    error: float | None = None

    @property
    def changed(self) -> bool:
        """Whether anything differs."""
        return self.edits > 0

    @property
    def spoken(self) -> bool:
        """Whether tokens or words differ."""
        return self.changed and self.kind in ("tokens", "text")

    @property
    def explained(self) -> bool | None:
        """Whether the logits' error can turn the choice there; None where it is not known."""
        if self.margin is None or self.error is None:
            return None
        return self.margin <= 2 * self.error


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor of both sides.

    Arguments:
        name: its key.
        role: gate, informational or debug.
        status: ok, FAIL (over its limits), SHAPE, NONFINITE, MISSING-candidate,
            MISSING-reference or MISSING-both; SYSTEMATIC (within its limits) where a policy fails
            that.
        limit: None where it is not in the tolerance file.
        shapes: of the reference and the candidate; None where missing.
        dtypes: likewise.
        measured: the figures; None where nothing could be compared.
        cause: why, where it was found.
        note: anything else.
        detail: quantiles, worst entries and places, of at most 50 that fail.
        three_way: the distances to a float64 reference, where one was given.
        declared: the role that a manifest or names.toml states, whatever the contract holds.
        understood: its systematic error is meant, see `Policy`.
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
    detail: Detail | None = None
    three_way: ThreeWay | None = None
    declared: str = GATE
    understood: bool = False

    @property
    def contract(self) -> bool:
        """Whether it is in the tolerance file."""
        return self.limit is not None

    @property
    def failed(self) -> bool:
        """Whether it is a contract tensor that is not within its limits."""
        return self.contract and self.status != OK

    @property
    def aside(self) -> bool:
        """Whether one side alone has it and no limit is asked of it: a tap more."""
        return self.status in MISSING and not self.contract

    @property
    def systematic(self) -> bool:
        """Whether the reference's value explains the error, as no noise would."""
        m = self.measured
        if m is None or m.eta is None:
            return False
        chance = min(10 * m.eta_noise, constant("gate_systematic_few"))
        return m.eta > max(constant("gate_systematic_eta"), chance)

    @property
    def doubtful(self) -> bool:
        """Whether it is within its limits although its error is systematic, is more than rounding
        and uses some of them.
        """
        m, used = self.measured, self.used
        if not self.contract or self.status != OK or self.understood or not self.systematic:
            return False
        if m is None or used is None or not m.relative_rms > constant("gate_ladder_float32"):
            return False
        large = m.relative_rms > constant("gate_systematic_large")
        return large or used > constant("gate_systematic_used")

    @property
    def suspect(self) -> bool:
        """Whether that is no amplified rounding: the reference's value explains nearly all of it,
        or its cause is known. No right run has that (`gradsweep gate power`).
        """
        m = self.measured
        if m is None or not self.doubtful:
            return False
        proven = self.cause is not None and self.cause.name not in NO_PROOF
        return proven or (m.eta or 0.0) > constant("gate_systematic_sure")

    @property
    def used(self) -> float | None:
        """The larger of both errors, each divided by its limit; inf where it is not finite, None
        where nothing was compared or allowed.
        """
        m, limit = self.measured, self.limit
        if m is None or limit is None:
            return None
        worst = 0.0
        for value, most in ((m.max_abs, limit.max_abs), (m.mean_abs, limit.mean_abs)):
            if not math.isfinite(value):
                return math.inf
            if value:
                worst = max(worst, value / most if most else math.inf)
        return worst

    def to_record(self) -> dict[str, Any]:
        """Return the row for JSON; NaN and infinities as text."""
        record: dict[str, Any] = {
            "name": self.name,
            "role": self.role,
            "declared_role": self.declared,
            "status": self.status,
            "contract": self.contract,
            "shape_reference": self.shapes[0],
            "shape_candidate": self.shapes[1],
            "dtype_reference": self.dtypes[0],
            "dtype_candidate": self.dtypes[1],
        }
        if self.limit is not None:
            limit = {"max_abs": self.limit.max_abs, "mean_abs": self.limit.mean_abs}
            comment = list(self.limit.comment)
            record["limit"] = limit | ({"_comment": comment} if comment else {})
        if self.measured is not None:
            record |= measured_record(self.measured)
            record["systematic"] = self.systematic
        if self.understood:
            record["understood"] = True
        if self.cause is not None:
            record["cause"] = asdict(self.cause)
        if self.three_way is not None:
            split = self.three_way
            record["three_way"] = asdict(split) | {"ratio": split.ratio, "text": split.text}
        if self.detail is not None:
            record["detail"] = detail_record(self.detail)
        if self.note:
            record["note"] = self.note
        plained: dict[str, Any] = plain(record)
        return plained


@dataclass(frozen=True, slots=True)
class Problem:
    """Why no valid comparison is possible: three lines.

    Arguments:
        what, where, fix: the lines.
        kind: inputs, contract, reference, reused or reference64.
    """

    what: str
    where: str
    fix: str
    kind: str = ""

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
        only: the pattern of names that was chosen; None for all.
        reference64: the path of the float64 reference; None where none was given.
        changes: tokens and texts of both sides, changed or not; on a failure the argmax, too.
        replayed: whether blocks were run again for causes.
        isolated: tensors whose blocks an isolation has checked since.
        transcript: "fail" where tokens or texts that changed fail the candidate, see `Policy`.
        alone: how many tensors out of the tolerance file the reference and the candidate alone
            have, chosen by `only` or not.
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
    only: str | None = None
    reference64: str | None = None
    changes: Sequence[Change] = ()
    replayed: bool = False
    alone: tuple[int, int] = (0, 0)
    isolated: tuple[str, ...] = ()
    transcript: str = WARN

    @property
    def exit_code(self) -> int:
        """0 pass, 1 the candidate is wrong, 2 no valid comparison."""
        if self.problems:
            return INVALID
        spoken = self.transcript == FAIL and any(c.spoken for c in self.changes)
        return WRONG if spoken or any(r.failed for r in self.rows) else PASSED

    @property
    def ok(self) -> bool:
        """Whether every contract tensor is within its limits and the comparison valid."""
        return self.exit_code == PASSED

    @property
    def first(self) -> TensorRow | None:
        """The first gate that diverged, else the first informational one; a missing tensor only
        where nothing else failed. None where the inputs differ: that says nothing of any tensor.
        """
        if self.inputs == "different":
            return None
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
    def suspects(self) -> list[TensorRow]:
        """Contract tensors that pass although their error looks systematic."""
        return [r for r in self.rows if r.suspect]

    @property
    def quiet(self) -> TensorRow | None:
        """The first of them."""
        return next(iter(self.suspects), None)

    @property
    def hint(self) -> TensorRow | None:
        """The first of them before the first divergence: the better place to look."""
        order = list(self.rows)
        quiet, first = self.quiet, self.first
        if quiet is None or first is None or order.index(quiet) > order.index(first):
            return None
        return quiet

    @property
    def toothless(self) -> bool:
        """Whether no gate has a finite limit: shapes and infinities alone were looked at."""
        rows = [r for r in self.rows if r.limit is not None]
        gates = [r for r in rows if r.role == GATE] or rows
        return bool(gates) and all(_infinite(r.limit) for r in gates if r.limit is not None)

    @property
    def cause(self) -> Cause | None:
        """The cause of the first divergence."""
        return self.first.cause if self.first else None

    def to_record(self) -> dict[str, Any]:
        """Return the whole as one JSON object."""
        first, good, quiet = self.first, self.last_good, self.quiet
        return {
            "schema": SCHEMA,
            "exit_code": self.exit_code,
            "reference": self.reference,
            "candidate": self.candidate,
            "reference64": self.reference64,
            "tolerances": self.contract,
            "names": self.names,
            "only": self.only,
            "inputs": self.inputs,
            "first": first.name if first else None,
            "last_good": good.name if good else None,
            "first_systematic": quiet.name if quiet else None,
            "systematic": [r.name for r in self.suspects],
            "transcript": self.transcript,
            "cause": self.cause.name if self.cause else ("unclassified" if first else None),
            "answers": [{"question": a.question, "text": a.text} for a in self.answers],
            "problems": [asdict(p) for p in self.problems],
            "notes": list(self.notes),
            "changes": [plain(asdict(c)) for c in self.changes],
            "replayed": self.replayed,
            "alone": list(self.alone),
            "isolated": list(self.isolated),
            "rows": [r.to_record() for r in self.rows],
        }

    @classmethod
    def from_record(cls, record: Any, where: str = "report") -> "Result":
        """Return what `to_record` gave.

        Raises:
            GateError: it is no such record: the field at fault is named.
        """
        from checks.gates.reports.saved import result_of

        return result_of(record, where)


def _infinite(limit: Limit) -> bool:
    return math.isinf(limit.max_abs) and math.isinf(limit.mean_abs)
