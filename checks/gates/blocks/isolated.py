"""What an isolation says: a row for each block, its own error beside its total error."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from checks.gates.comparison.plain import plain
from checks.gates.comparison.record import OK, Cause, TensorRow
from checks.gates.errors import INVALID, PASSED, WRONG
from checks.tolerances import constant

FINE, OWN, INHERITED, AMPLIFIES, UNCHECKED = "ok", "own", "inherited", "amplifies", "unchecked"
VERDICTS = (FINE, OWN, INHERITED, AMPLIFIES, UNCHECKED)
ISOLATION = "gradsweep gate isolation 1"
OTHER_CODE = "the candidate's dump is right here: is this the code that made it?"


@dataclass(frozen=True, slots=True)
class BlockRow:
    """One block, or one cotangent in backward.

    Arguments:
        output: the tensor it makes, by key.
        inputs: the tensors it makes it of.
        verdict: "own" (over its limits on the reference's inputs), "inherited" (within them there,
            over them on the candidate's own inputs), "amplifies" (inherited, and many times larger
            than the error of the inputs), "ok", or "unchecked".
        own: the block on the reference's inputs against the reference's output.
        total: the candidate's own dump against the reference's; None where there is none.
        before: the relative error (rms) of the inputs in the candidate's dump, that of several
            inputs added in squares; None where unknown.
        blocks: whose derivative it is, in backward: the cotangents of several blocks are added.
        cause: why its own error is what it is, verified by replay.
        note: why it could not be checked, and anything else.
    """

    output: str
    inputs: tuple[str, ...]
    verdict: str
    own: TensorRow | None = None
    total: TensorRow | None = None
    before: float | None = None
    blocks: tuple[str, ...] = ()
    cause: Cause | None = None
    note: str = ""

    @property
    def own_error(self) -> float | None:
        """Relative rms of the block's error on the reference's inputs."""
        return _relative(self.own)

    @property
    def total_error(self) -> float | None:
        """Relative rms of the candidate's error."""
        return _relative(self.total)

    @property
    def amplification(self) -> float | None:
        """(e^2 - u^2)^0.5 / e_prev: how many times larger the inputs' error leaves the block.

        e is the total error, u the own error, e_prev that of the inputs, all relative; e and u are
        taken as independent. None where one is unknown, e_prev is 0 or e < u.
        """
        return amplification(self.total_error, self.own_error, self.before)

    def to_record(self) -> dict[str, Any]:
        """Return the row for JSON."""
        record: dict[str, Any] = {
            "output": self.output,
            "inputs": list(self.inputs),
            "verdict": self.verdict,
            "own_error": plain(self.own_error),
            "total_error": plain(self.total_error),
            "input_error": plain(self.before),
            "amplification": plain(self.amplification),
            "own": self.own.to_record() if self.own else None,
            "total": self.total.to_record() if self.total else None,
        }
        if self.blocks:
            record["blocks"] = list(self.blocks)
        if self.cause is not None:
            record["cause"] = {
                "name": self.cause.name,
                "text": self.cause.text,
                "left": plain(self.cause.left),
            }
        return record | ({"note": self.note} if self.note else {})


@dataclass(frozen=True, slots=True)
class Isolation:
    """All blocks of a candidate, each on the reference's inputs.

    Arguments:
        reference, candidate: paths, for messages; the candidate's is None where it has no dump.
        tolerances: the tolerance file; None where the limits are provisional ones.
        rows: in the order of the blocks.
        backward: a row for each cotangent, in the order of the backward pass; empty where it was
            not asked for.
        notes: what else a reader should know.
    """

    reference: str
    candidate: str | None
    tolerances: str | None
    rows: Sequence[BlockRow]
    backward: Sequence[BlockRow] = ()
    notes: Sequence[str] = ()

    @property
    def every(self) -> list[BlockRow]:
        """Forward rows, then those of backward."""
        return [*self.rows, *self.backward]

    @property
    def exit_code(self) -> int:
        """1 where a block is wrong by itself; else 2 where one could not be checked; else 0."""
        if any(r.verdict == OWN for r in self.every):
            return WRONG
        bad = not self.rows or any(r.verdict == UNCHECKED for r in self.every)
        return INVALID if bad else PASSED

    @property
    def ok(self) -> bool:
        """Whether every block was checked, and none is wrong by itself."""
        return self.exit_code == PASSED

    @property
    def first(self) -> BlockRow | None:
        """The first block that is wrong by itself."""
        return next((r for r in self.every if r.verdict == OWN), None)

    def to_record(self) -> dict[str, Any]:
        """Return the whole as one JSON object."""
        return {
            "schema": ISOLATION,
            "exit_code": self.exit_code,
            "reference": self.reference,
            "candidate": self.candidate,
            "tolerances": self.tolerances,
            "first": self.first.output if self.first else None,
            "own": [r.output for r in self.every if r.verdict == OWN],
            "rows": [r.to_record() for r in self.rows],
            "backward": [r.to_record() for r in self.backward],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class Isolated:
    """What a saved isolation says.

    Arguments:
        path: of the report, for messages.
        reference, candidate: paths of the dumps; the candidate's is None where none was given.
        verdicts, causes: of each block, by its output.
    """

    path: str
    reference: str
    candidate: str | None
    verdicts: Mapping[str, str]
    causes: Mapping[str, Cause]


def amplification(total: float | None, own: float | None, before: float | None) -> float | None:
    """Return (e^2 - u^2)^0.5 / e_prev; None where it is not defined."""
    if total is None or own is None or not before:
        return None
    square = total * total - own * own
    known = square >= 0 and math.isfinite(square) and math.isfinite(before)
    return math.sqrt(square) / before if known else None


def joint(errors: Sequence[float | None]) -> float | None:
    """Return the root of the sum of squares; None where one is unknown, or there are none."""
    known = [e for e in errors if e is not None]
    return math.hypot(*known) if known and len(known) == len(errors) else None


def verdict(
    own: TensorRow | None, total: TensorRow | None, amplified: float | None, most: float
) -> str:
    """Return which of `VERDICTS` it is; `most` is the amplification that is no block's normal."""
    if own is None:
        return UNCHECKED
    if own.status != OK:
        return OWN
    if total is None or total.status == OK:
        return FINE
    return AMPLIFIES if amplified is not None and amplified > most else INHERITED


def right_in_dump(row: BlockRow, inputs: Sequence[TensorRow | None]) -> bool:
    """Return whether a block is wrong by itself where the candidate's dump is right: then other
    code made the dump.

    Arguments:
        row: of the block.
        inputs: its inputs in the candidate's dump; None where one is absent. A right output of
            wrong inputs is no such proof.
    """
    total, own = row.total_error, row.own_error
    if row.verdict != OWN or row.total is None or row.total.status != OK or total is None:
        return False
    if not inputs or any(r is None or r.status != OK for r in inputs):
        return False
    return own is None or not own <= constant("gate_amplifies") * total


def _relative(row: TensorRow | None) -> float | None:
    return None if row is None or row.measured is None else row.measured.relative_rms
