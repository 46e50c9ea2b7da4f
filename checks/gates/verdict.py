"""Two sides against a contract: rows in execution order, the first divergence, a verdict."""

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from checks.gates.contract import Contract, Limit, read_contract
from checks.gates.diagnosis import with_causes
from checks.gates.errors import GateError
from checks.gates.formats.manifest import DEBUG, GATE
from checks.gates.formats.readers import Side, natural, open_side
from checks.gates.formats.stored import Stored
from checks.gates.measure import measure
from checks.gates.names import Names, read_names, renamed
from checks.gates.questions import answers
from checks.gates.record import (
    NO_CANDIDATE,
    NO_REFERENCE,
    NONFINITE,
    NOWHERE,
    OK,
    OVER,
    SHAPE,
    Problem,
    Result,
    TensorRow,
)

Step = Callable[[TensorRow], None]


def compare(
    reference: str | Path,
    candidate: str | Path,
    tolerances: str | Path,
    *,
    names: str | Path | None = None,
    only: str | None = None,
    step: Step | None = None,
) -> Result:
    """Compare two dumps against a tolerance file.

    Arguments:
        reference, candidate: see `open_side`.
        tolerances: see `read_contract`.
        names: rules and roles; where None, <family>.names.toml beside <family>.json, else the
            names.toml there, if there is one.
        only: a pattern of names, such as "enc.*": the others are left alone.
        step: called with each row as it is made.

    Returns:
        The rows in execution order, the verdict, on a failure the six answers.

    Raises:
        GateError: a file cannot be used.
    """
    contract = read_contract(tolerances)
    rules = _names(names, contract)
    left = renamed(open_side(reference), rules, "reference")
    right = renamed(open_side(candidate), rules, "candidate")
    rows = []
    for key in _order(left, right, contract, only):
        rows.append(_row(key, left, right, contract, rules))
        if step is not None:
            step(rows[-1])
    return _result(rows, left, right, contract, rules, only)


def _result(
    rows: Sequence[TensorRow],
    left: Side,
    right: Side,
    contract: Contract,
    rules: Names,
    only: str | None,
) -> Result:
    inputs, problems = _inputs(left, right)
    problems += _no_contract(rows, contract, only)
    problems += _unusable(rows, left, right)
    result = Result(
        reference=str(left.path),
        candidate=str(right.path),
        contract=str(contract.path),
        rows=with_causes(rows, left, right),
        problems=problems,
        inputs=inputs,
        notes=_notes(left, right, rules),
        names=None if rules.path is None else str(rules.path),
    )
    if result.first is None:
        return result
    return replace(result, answers=answers(result, left, right))


def tensor_count(side: str | Path) -> int:
    """Return how many tensors a side has, for a progress bar."""
    return len(open_side(side).tensors)


def _names(path: str | Path | None, contract: Contract) -> Names:
    if path is not None:
        return read_names(path)
    for name in (f"{contract.path.stem}.names.toml", "names.toml"):
        if (beside := contract.path.parent / name).exists():
            return read_names(beside)
    return Names()


def _order(left: Side, right: Side, contract: Contract, only: str | None) -> list[str]:
    """Keys in execution order where a manifest tells it, else in the tolerance file's order.

    A contract tensor that neither side has comes last: nothing tells where it belongs.
    """
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


def _row(key: str, left: Side, right: Side, contract: Contract, names: Names) -> TensorRow:
    name = key.partition("#")[0]
    limit = contract.limits.get(name)
    r, c = left.tensors.get(key), right.tensors.get(key)
    row = TensorRow(
        name=key,
        role=_role(name, limit, r, c, names),
        status=NOWHERE,
        limit=limit,
        shapes=(r.tensor.shape if r else None, c.tensor.shape if c else None),
        dtypes=(r.tensor.dtype if r else None, c.tensor.dtype if c else None),
    )
    if r is None or c is None:
        status = NOWHERE if r is c else NO_REFERENCE if r is None else NO_CANDIDATE
        return replace(row, status=status)
    if r.tensor.shape != c.tensor.shape:
        for stored in (r, c):  # a damaged file is named, whatever its shape
            for _ in stored.chunks():
                pass
        return replace(row, status=SHAPE)
    measured = measure(r, c)
    if measured.disagreements:
        status = NONFINITE
    elif limit is None or limit.passes(measured.max_abs, measured.mean_abs):
        status = OK
    else:
        status = OVER
    return replace(row, status=status, measured=measured)


def _role(name: str, limit: Limit | None, r: Stored | None, c: Stored | None, names: Names) -> str:
    stored = r or c
    role = names.role(name, stored.tensor.role if stored else GATE)
    if limit is None:
        return DEBUG
    if role == DEBUG:
        what = f"{name!r} is a debug tensor and stands in the tolerance file"
        raise GateError(what, f"tensor {name!r}", "make it informational, or remove its limits")
    return role


def _inputs(left: Side, right: Side) -> tuple[str, list[Problem]]:
    ours = left.run.input_hashes if left.run else {}
    theirs = right.run.input_hashes if right.run else {}
    problems = []
    for name in dict.fromkeys([*ours, *theirs]):
        if name in ours and name in theirs and ours[name] != theirs[name]:
            what = f"the inputs differ: {name!r} has hash {ours[name]} and {theirs[name]}"
            where = f"{left.path / 'run.json'} and {right.path / 'run.json'}"
            problems.append(Problem(what, where, "run both sides on the same input"))
    if problems:
        return "different", problems
    return ("equal" if set(ours) & set(theirs) else "unknown"), []


def _no_contract(rows: Sequence[TensorRow], contract: Contract, only: str | None) -> list[Problem]:
    if any(r.contract for r in rows):
        return []
    chosen = f" that match {only!r}" if only else ""
    what = f"no contract tensors{chosen}: nothing was compared"
    return [Problem(what, str(contract.path), "name tensors in it: gradsweep gate init")]


def _unusable(rows: Sequence[TensorRow], left: Side, right: Side) -> list[Problem]:
    problems = []
    for row in rows:
        if not row.contract:
            continue
        if row.status in (NO_REFERENCE, NOWHERE):
            side = left.path if row.status == NO_REFERENCE else f"{left.path} and {right.path}"
            what = f"the contract tensor {row.name!r} is missing on the reference"
            problems.append(Problem(what, str(side), "dump it, or remove it from the file"))
        m = row.measured
        if m is not None and row.role == GATE and m.nonfinite[0]:
            what = f"the gate's reference {row.name!r} has {m.nonfinite[0]:,} non-finite entries"
            fix = "dump the logits before the softmax, or make it informational"
            problems.append(Problem(what, str(left.path), fix))
        if m is not None and not m.count:
            what = f"the contract tensor {row.name!r} holds no values"
            problems.append(Problem(what, str(left.path), "dump it with a larger input"))
    return problems + _reused(rows, left, right)


def _reused(rows: Sequence[TensorRow], left: Side, right: Side) -> list[Problem]:
    """Two tensors of equal bytes on one side where the other side's differ: one of the two holds
    the other's bytes, unless they are constant.
    """
    problems = []
    for n, side in enumerate((left, right)):
        groups: dict[tuple[int, str, int], list[TensorRow]] = {}
        for row in rows:
            if row.measured is not None:
                dtype, count = str(row.dtypes[n]), row.measured.count
                groups.setdefault((row.measured.crc[n], dtype, count), []).append(row)
        for group in groups.values():
            found = _twins(group, 1 - n)
            if found is None or not _same_bytes(side, *found):
                continue
            a, b = (r.name for r in found)
            opposite = (right, left)[n]
            if not any(_constant(s.tensors[k]) for s in (side, opposite) for k in (a, b)):
                what = f"{a!r} and {b!r} hold the same bytes on one side and differ on the other"
                fix = "a buffer was reused: mark both for the dump (Dump.put, ad.tap)"
                problems.append(Problem(what, str(side.path), fix))
    return problems


def _twins(group: Sequence[TensorRow], other: int) -> tuple[TensorRow, TensorRow] | None:
    """The first two names that differ on the other side, one of which is over its limits; two calls
    of one name may well be given the same input.
    """
    for n, a in enumerate(group):
        for b in group[n + 1 :]:
            assert a.measured is not None and b.measured is not None
            apart = a.measured.crc[other] != b.measured.crc[other]
            named = a.name.partition("#")[0] != b.name.partition("#")[0]
            if named and apart and (a.failed or b.failed):
                return a, b
    return None


def _same_bytes(side: Side, a: TensorRow, b: TensorRow) -> bool:
    pairs: Iterable[tuple[object, object]] = zip(
        side.tensors[a.name].chunks(), side.tensors[b.name].chunks(), strict=True
    )
    return all(x.tobytes() == y.tobytes() for x, y in pairs)  # type: ignore[attr-defined]


def _constant(stored: Stored) -> bool:
    first = None
    for chunk in stored.chunks():
        first = chunk[:1] if first is None else first
        if not (chunk == first).all():
            return False
    return True


def _notes(left: Side, right: Side, names: Names) -> list[str]:
    notes = []
    if names.path is not None:
        notes.append(f"names by {names.path}")
    if not (left.ordered or right.ordered):
        notes.append("no manifest: rows in the tolerance file's order")
    for run, path in ((left.run, left.path), (right.run, right.path)):
        if run is not None and run.versions and not run.finished:
            notes.append(f"the run that wrote {path} did not finish")
    policies = [s.run.dtype_policy for s in (left, right) if s.run and s.run.dtype_policy]
    if len(set(policies)) > 1:
        notes.append(f"dtype policies differ: {policies[0]} and {policies[1]}")
    return notes
