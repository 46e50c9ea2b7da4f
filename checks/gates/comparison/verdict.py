"""Two sides against a contract: rows in execution order, the first divergence, a verdict."""

import fnmatch
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from checks.gates.blocks.block import Block
from checks.gates.causes.diagnosis import MOST_DETAILED, cause, tightened
from checks.gates.causes.replay import INHERITED, MISMATCH, made_of, replayed
from checks.gates.comparison.apart import three_way
from checks.gates.comparison.behaviour import changes, choices
from checks.gates.comparison.detail import detail
from checks.gates.comparison.measure import Measured, measure
from checks.gates.comparison.notes import notes_of
from checks.gates.comparison.policy import Policy
from checks.gates.comparison.questions import answers
from checks.gates.comparison.record import (
    MISSING,
    NO_CANDIDATE,
    NO_REFERENCE,
    NONFINITE,
    NOWHERE,
    OK,
    OVER,
    SHAPE,
    SYSTEMATIC,
    Cause,
    Problem,
    Result,
    TensorRow,
)
from checks.gates.comparison.steps import alone, next_steps
from checks.gates.comparison.validity import (
    by_bytes,
    inputs_of,
    one_value,
    problems_of,
    twins_of,
    without_split,
)
from checks.gates.errors import GateError
from checks.gates.formats.manifest import DEBUG, GATE, INFORMATIONAL, dtype_of
from checks.gates.formats.readers import Side, natural, open_side
from checks.gates.formats.stored import Stored
from checks.gates.limits.contract import Contract, Limit, read_contract
from checks.gates.naming.names import Names, read_names, renamed

_DOUBTED = 3  # tensors within their limits whose cause is looked for
Step = Callable[[TensorRow], None]
Known = Callable[[Problem], None]


@dataclass(frozen=True, slots=True)
class Opened:
    """The sides of one comparison, under canonical names, and what judges them.

    Arguments:
        left, right: the reference and the candidate.
        wide: the float64 reference; None where none was given.
        contract: the tolerance file.
        rules: names.toml.
        blocks: what tensors are made by, to be run again.
        policy: what is made of what the limits let pass.
        measured: figures of the two sides that are known already, by key.
    """

    left: Side
    right: Side
    wide: Side | None
    contract: Contract
    rules: Names
    blocks: Sequence[Block] = ()
    policy: Policy = field(default_factory=Policy)
    measured: Mapping[str, Measured] = field(default_factory=dict)


def compare(
    reference: str | Path,
    candidate: str | Path,
    tolerances: str | Path,
    *,
    names: str | Path | None = None,
    only: str | None = None,
    step: Step | None = None,
    reference64: str | Path | None = None,
    tokens: Sequence[str] = (),
    detailed: int = MOST_DETAILED,
    blocks: Sequence[Block] = (),
    known: Known | None = None,
    policy: Policy | None = None,
) -> Result:
    """Compare two dumps against a tolerance file.

    Arguments:
        reference, candidate: see `open_side`.
        tolerances: see `read_contract`.
        names: rules and roles; where None, <family>.names.toml beside <family>.json, else the
            names.toml there, if there is one.
        only: a pattern of names, such as "enc.*": the others are left alone.
        step: called with each row as it is made, its cause with it.
        reference64: the reference computed in float64: for each tensor its distance from both
            sides. It changes no verdict.
        tokens: patterns of names of integer tensors that hold tokens, besides "*.tokens",
            "*.token_ids" and "*.ids".
        detailed: how many failing tensors are explained, the first in order first.
        blocks: of the candidate, or right ones: the block that makes a failing tensor is run again
            with one thing changed (`causes.replay`), which tells more than two arrays can.
        known: called, before any row is made, with each problem that is known then: inputs that
            differ.
        policy: whether systematic errors within the limits, or a changed transcript, fail; by
            default the verdict names them.

    Returns:
        The rows in execution order, the verdict, on a failure the six answers. Where the inputs
        differ, no causes and no answers: nothing is known of the candidate.

    Raises:
        GateError: a file cannot be used.
    """
    given = opened(reference, candidate, tolerances, names=names, reference64=reference64)
    given = replace(given, blocks=blocks, policy=policy or Policy())
    return compared(given, only=only, step=step, tokens=tokens, detailed=detailed, known=known)


def compared(
    given: Opened,
    *,
    only: str | None = None,
    step: Step | None = None,
    tokens: Sequence[str] = (),
    detailed: int = MOST_DETAILED,
    known: Known | None = None,
) -> Result:
    """Compare what is open; see `compare`."""
    inputs, problems = inputs_of(given.left, given.right)
    if known is not None:
        for problem in problems:
            known(problem)
    rows = _judged(given, only, step, 0 if problems else detailed)
    return _result(rows, given, only, tokens, (inputs, problems))


def opened(
    reference: str | Path,
    candidate: str | Path,
    tolerances: str | Path,
    *,
    names: str | Path | None = None,
    reference64: str | Path | None = None,
) -> Opened:
    """Open what `compare` compares; nothing is read yet but headers.

    Raises:
        GateError: a file cannot be used.
    """
    contract = read_contract(tolerances)
    rules = _names(names, contract)
    left = renamed(open_side(reference), rules, "reference")
    right = renamed(open_side(candidate), rules, "candidate")
    wide = None
    if reference64 is not None:
        wide = renamed(open_side(reference64), rules, "reference")
    return Opened(left, right, wide, contract, rules)


def _judged(
    given: Opened, only: str | None, step: Step | None, most: int = MOST_DETAILED
) -> list[TensorRow]:
    """The rows, each with its cause at once: that needs the reference's other tensors alone."""
    rows = [_row(key, given) for key in _order(given, only)]
    detailed, tried = 0, 0
    for n, row in enumerate(rows):
        row = given.policy.known(_measured(row, given))
        if row.doubtful and not detailed and tried < min(most, _DOUBTED):
            tried += 1
            row = replace(row, cause=_cause(row, rows, given))
            tried = _DOUBTED if row.suspect else tried  # those after it are its echoes
            row = row if row.suspect else replace(row, cause=None)
        row = given.policy.judged(row)
        if row.failed and row.status not in MISSING and detailed < most:
            detailed += 1
            row = _explained(row, rows, given)
        rows[n] = row
        if step is not None:
            step(row)
    return rows


def _result(
    rows: Sequence[TensorRow],
    given: Opened,
    only: str | None,
    tokens: Sequence[str],
    inputs: tuple[str, Sequence[Problem]],
) -> Result:
    left, right = given.left, given.right
    paths = str(left.path), str(right.path)
    problems = list(inputs[1])
    twins = twins_of(rows, by_bytes(left, right))
    problems += problems_of(rows, paths, str(given.contract.path), only, twins)
    problems += without_split(rows, None if given.wide is None else str(given.wide.path))
    result = Result(
        reference=paths[0],
        candidate=paths[1],
        contract=str(given.contract.path),
        rows=tuple(rows),
        problems=tuple(problems),
        inputs=inputs[0],
        notes=(*notes_of(rows, left, right, given.wide, given.rules), *one_value(twins)),
        names=None if given.rules.path is None else str(given.rules.path),
        only=only,
        reference64=None if given.wide is None else str(given.wide.path),
        changes=changes(left, right, tokens, only),
        replayed=bool(given.blocks),
        transcript=given.policy.transcript,
        alone=alone(left.tensors, right.tensors, given.contract.limits),
    )
    result = replace(result, notes=(*result.notes, *next_steps(result)))
    if result.first is None:
        return result
    result = replace(result, changes=(*result.changes, *choices(result.rows, left, right)))
    return replace(result, answers=answers(result))


def tensor_names(side: str | Path) -> list[str]:
    """Return the keys of a side's tensors, for a progress bar and the width of a column."""
    return list(open_side(side).tensors)


def _names(path: str | Path | None, contract: Contract) -> Names:
    if path is not None:
        return read_names(path)
    for name in (f"{contract.path.stem}.names.toml", "names.toml"):
        if (beside := contract.path.parent / name).exists():
            return read_names(beside)
    return Names()


def _order(given: Opened, only: str | None) -> list[str]:
    """Keys in execution order where a manifest tells it, else in the tolerance file's order.

    A contract tensor that neither side has comes last: nothing tells where it belongs.
    """
    left, right, contract = given.left, given.right, given.contract
    absent = [n for n in contract.limits if not (left.calls(n) or right.calls(n))]
    if left.ordered or right.ordered:
        lead, other = (left, right) if left.ordered else (right, left)
        keys = _merged(list(lead.tensors), list(other.tensors))
    else:
        keys = [
            k for n in contract.limits for k in dict.fromkeys([*left.calls(n), *right.calls(n)])
        ]
        rest = sorted({*left.tensors, *right.tensors} - set(keys), key=natural)
        keys += rest
    keys += absent
    if only is None:
        return keys
    return [k for k in keys if fnmatch.fnmatchcase(k.partition("#")[0], only)]


def _merged(lead: list[str], other: list[str]) -> list[str]:
    """Both orders in one: a key of the other side alone comes after the one it followed there."""
    known = set(lead)
    after: dict[str | None, list[str]] = {}
    last: str | None = None
    for key in other:
        if key in known:
            last = key
        else:
            after.setdefault(last, []).append(key)
    merged = list(after.get(None, []))
    for key in lead:
        merged += [key, *after.get(key, [])]
    return merged


def _row(key: str, given: Opened) -> TensorRow:
    """The row as it stands before any value is read."""
    name = key.partition("#")[0]
    limit = given.contract.limits.get(name)
    r, c = given.left.tensors.get(key), given.right.tensors.get(key)
    stored = r or c
    declared = given.rules.role(name, stored.tensor.role if stored else GATE)
    status = OK
    if r is None or c is None:
        status = NOWHERE if r is c else NO_REFERENCE if r is None else NO_CANDIDATE
    elif r.tensor.shape != c.tensor.shape:
        status = SHAPE
    return TensorRow(
        name=key,
        role=role_of(name, limit, declared),
        status=status,
        limit=limit,
        shapes=(r.tensor.shape if r else None, c.tensor.shape if c else None),
        dtypes=(r.tensor.dtype if r else None, c.tensor.dtype if c else None),
        declared=declared,
    )


def role_of(name: str, limit: Limit | None, declared: str) -> str:
    """Return a tensor's role in a comparison: debug where it is not in the tolerance file.

    Raises:
        GateError: it is declared a debug tensor and has limits.
    """
    if limit is None:
        return DEBUG
    if declared == DEBUG:
        what = f"{name!r} is a debug tensor and stands in the tolerance file"
        raise GateError(what, f"tensor {name!r}", "make it informational, or remove its limits")
    return declared


def status_of(measured: Measured, limit: Limit | None) -> str:
    """Return ok, FAIL or NONFINITE."""
    if measured.disagreements:
        return NONFINITE
    within = limit is None or limit.passes(measured.max_abs, measured.mean_abs)
    return OK if within else OVER


def _measured(row: TensorRow, given: Opened) -> TensorRow:
    """The row with its figures, where both sides have the tensor."""
    r, c = given.left.tensors.get(row.name), given.right.tensors.get(row.name)
    if r is None or c is None:
        return row
    if row.status == SHAPE:
        for stored in (r, c):  # a damaged file is named, whatever its shape
            for _ in stored.chunks():
                pass
        return row
    figures = given.measured.get(row.name) or measure(r, c)
    row = replace(row, status=status_of(figures, row.limit), measured=figures)
    return row if given.wide is None else _split(row, r, c, given.wide)


def _explained(row: TensorRow, rows: Sequence[TensorRow], given: Opened) -> TensorRow:
    """A failing row with its cause and what its error looks like."""
    m = row.measured
    if m is None or not math.isnan(m.relative_rms):  # squares that float64 has not: no cause fits
        row = replace(row, cause=_cause(row, rows, given))
    if m is None:
        return row
    r, c = given.left.tensors[row.name], given.right.tensors[row.name]
    return replace(row, detail=detail(r, c, m))


def _cause(row: TensorRow, rows: Sequence[TensorRow], given: Opened) -> Cause | None:
    """Why a row is off: by running its block again where there is one, else by two arrays."""
    again = None
    if row.status in (OK, SYSTEMATIC):
        row = tightened(row)
    if given.blocks:
        again = replayed(row, given.left, given.blocks, given.right)
    if again is not None and again.name == INHERITED:
        again = _from_informational(again, row, rows, given)
    if again is not None and again.name != MISMATCH:
        return again
    return cause(row, rows, given.left, given.right) or again


def _from_informational(
    again: Cause, row: TensorRow, rows: Sequence[TensorRow], given: Opened
) -> Cause:
    """What a right block inherits, with its cause where that is of an informational tensor: no
    comparison names such a tensor first while a gate diverges.
    """
    keys = made_of(row.name, given.left, given.blocks)
    off = [r for r in rows if r.name in keys and r.failed and r.role == INFORMATIONAL]
    origin = next((r for r in off if r.cause is not None), None)
    if origin is None or origin.cause is None:
        return again
    name = again.name if origin.cause.name == MISMATCH else origin.cause.name
    return Cause(name, f"as {origin.name}, of which it is made: {origin.cause.text}", again.left)


def _split(row: TensorRow, r: Stored, c: Stored, wide: Side) -> TensorRow:
    """The row with its three-way split, or a note why there is none."""
    kind = dtype_of(r.tensor.dtype).kind
    if kind in "biu":
        return row
    other = wide.tensors.get(row.name)
    needed = "complex128" if kind == "c" else "float64"
    why = ""
    if other is None:
        why = "reference64 has no such tensor"
    elif other.tensor.shape != r.tensor.shape:
        why = f"reference64 has shape {list(other.tensor.shape)}, not {list(r.tensor.shape)}"
    elif other.tensor.dtype != needed:
        why = f"reference64 is {other.tensor.dtype}, not {needed}"
    if why or other is None:
        return replace(row, note=f"no three-way split: {why}")
    split, odd = three_way(r, other, c)
    if odd:
        why = f"{odd:,} entries are not finite on one of three sides"
        return replace(row, note=f"no three-way split: {why}")
    return replace(row, three_way=split)
