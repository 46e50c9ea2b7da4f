"""What else a reader of a comparison should know, of its sides and dtypes."""

from collections import Counter
from collections.abc import Sequence

from checks.gates.comparison.record import TensorRow
from checks.gates.comparison.validity import inputs_of
from checks.gates.formats.readers import Side
from checks.gates.naming.names import Names
from checks.report.wording import plural


def notes_of(
    rows: Sequence[TensorRow], left: Side, right: Side, wide: Side | None, rules: Names
) -> list[str]:
    """Return the notes of a comparison.

    Arguments:
        rows: of it.
        left, right, wide: the reference, the candidate, the float64 reference.
        rules: names.toml.
    """
    notes = []
    if left.path.resolve() == right.path.resolve():
        notes.append("reference and candidate are one dump: this says nothing of a candidate")
    hashed = [s.run.input_hashes if s.run else {} for s in (left, right)]
    if all(hashed) and (lone := sorted(set(hashed[0]) ^ set(hashed[1]))):
        notes.append(f"the hash of {', '.join(map(repr, lone))} stands on one side alone")
    if rules.path is not None:
        notes.append(f"names by {rules.path}")
    if not (left.ordered or right.ordered):
        notes.append("no manifest: rows in the tolerance file's order")
    for side in (s for s in (left, right, wide) if s is not None):
        if side.run is not None and side.run.versions and not side.run.finished:
            notes.append(f"the run that wrote {side.path} did not finish")
    policies = [s.run.dtype_policy for s in (left, right) if s.run and s.run.dtype_policy]
    if len(set(policies)) > 1:
        notes.append(f"dtype policies differ: {policies[0]} and {policies[1]}")
    notes += _dtypes(rows)
    if wide is not None and inputs_of(left, wide)[0] == "different":
        notes.append("reference64 was given another input, or the same in another dtype")
    notes += [f"{r.name}: {r.note}" for r in rows if r.contract and r.note]
    return notes


def _dtypes(rows: Sequence[TensorRow]) -> list[str]:
    """How many contract tensors have another dtype on each side: figures alone do not tell it."""
    pairs = Counter(r.dtypes for r in rows if r.contract and None not in r.dtypes)
    return [
        f"{plural(count, 'tensor')} {'is' if count == 1 else 'are'} {theirs} on the candidate, "
        f"{ours} on the reference"
        for (ours, theirs), count in pairs.items()
        if ours != theirs
    ]
