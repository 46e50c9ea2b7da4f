"""Whether a comparison is valid at all: the same input, a usable reference, no reused buffer."""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autodiff.errors import nearest
from checks.gates.comparison.measure import floats
from checks.gates.comparison.record import (
    CONTRACT,
    INPUTS,
    MISSING,
    NO_REFERENCE,
    NOWHERE,
    REFERENCE,
    REUSED,
    SPLIT,
    Problem,
    TensorRow,
)
from checks.gates.formats.manifest import GATE
from checks.gates.formats.readers import Side
from checks.gates.formats.stored import Stored

_MOST_HINTS = 200  # names that a missing one is held against
# What two tensors of equal bytes are: a dump that wrote one of them wrongly, a value that the
# candidate went on with, or not told.
DUMP, VALUE, EITHER = "dump", "value", "either"
ONE_VALUE = (
    "hold the same bytes, and what follows is off too: the candidate has one value for both, as "
    "where a residual connection or a norm is left out"
)
# Whether two rows' tensors of one side (0, 1) hold equal bytes that are not constant.
Confirm = Callable[[int, TensorRow, TensorRow], bool]


@dataclass(frozen=True, slots=True)
class Twins:
    """Two tensors of equal bytes on one side, which differ on the other.

    Arguments:
        side: 0 for the reference, 1 for the candidate.
        a, b: their rows.
        reading: DUMP, VALUE or EITHER.
    """

    side: int
    a: TensorRow
    b: TensorRow
    reading: str = EITHER


def inputs_of(left: Side, right: Side) -> tuple[str, list[Problem]]:
    """Return whether both sides had the same input, "equal", "unknown" or "different"."""
    ours = left.run.input_hashes if left.run else {}
    theirs = right.run.input_hashes if right.run else {}
    problems = []
    for name in dict.fromkeys([*ours, *theirs]):
        if name in ours and name in theirs and ours[name] != theirs[name]:
            what = f"the inputs differ: {name!r}"
            where = f"{left.path / 'run.json'}, hash {ours[name]}, "
            where += f"and {right.path / 'run.json'}, hash {theirs[name]}"
            problems.append(Problem(what, where, "run both sides on the same input", INPUTS))
    if problems:
        return "different", problems
    return ("equal" if set(ours) & set(theirs) else "unknown"), []


def problems_of(
    rows: Sequence[TensorRow],
    paths: tuple[str, str],
    contract: str,
    only: str | None,
    twins: Sequence[Twins],
) -> list[Problem]:
    """Return why the rows give no valid comparison: an empty list where they do.

    Arguments:
        rows: of one comparison.
        paths: of the reference and the candidate, for messages.
        contract: the tolerance file, for messages.
        only: the pattern of names that was chosen.
        twins: tensors of equal bytes, see `twins_of`.
    """
    spare = [r.name for r in rows if not r.contract]
    problems = [p for row in rows if row.contract for p in _of_row(row, paths, spare)]
    if not any(r.contract for r in rows):
        chosen = f" that match {only!r}" if only else ""
        what = f"no contract tensors{chosen}: nothing was compared"
        problems.append(
            Problem(what, contract, "name tensors in it: gradsweep gate init", CONTRACT)
        )
    return problems + [_reused(t, paths) for t in twins if t.reading != VALUE]


def without_split(rows: Sequence[TensorRow], reference64: str | None) -> list[Problem]:
    """Return why a float64 reference, where one was given, says nothing of any contract tensor."""
    asked = [r for r in rows if r.contract and r.note]
    if reference64 is None or not asked or any(r.contract and r.three_way for r in rows):
        return []
    what = f"reference64 fits no contract tensor: {asked[0].name!r}: {asked[0].note}"
    fix = "dump the reference in float64, or leave out --reference64"
    return [Problem(what, reference64, fix, SPLIT)]


def _of_row(row: TensorRow, paths: tuple[str, str], spare: Sequence[str]) -> Iterator[Problem]:
    left, right = paths
    if row.status in (NO_REFERENCE, NOWHERE):
        side = left if row.status == NO_REFERENCE else f"{left} and {right}"
        what = f"the contract tensor {row.name!r} is missing on the reference"
        fix = "dump it, or remove it from the file"
        if hint := nearest(row.name, spare[:_MOST_HINTS]):
            fix += f"; {hint}"
        yield Problem(what, side, fix, REFERENCE)
    m = row.measured
    if m is not None and row.role == GATE and m.nonfinite[0]:
        what = f"the gate's reference {row.name!r} has {m.nonfinite[0]:,} non-finite entries"
        fix = "dump the logits before the softmax, or make it informational"
        yield Problem(what, left, fix, REFERENCE)
    if m is not None and not m.count:
        what = f"the contract tensor {row.name!r} holds no values"
        yield Problem(what, left, "dump it with a larger input", REFERENCE)


def twins_of(rows: Sequence[TensorRow], confirm: Confirm) -> list[Twins]:
    """Return pairs of tensors of equal bytes on one side where the other side's differ: one of the
    two holds the other's bytes, unless they are constant.

    What follows the one that is over its limits tells whether the candidate went on with it: a dump
    that wrote the wrong tensor changes nothing behind it, a residual connection or a norm that is
    left out does.

    Arguments:
        rows: of one comparison, in execution order.
        confirm: looks closer at two tensors of one crc32.
    """
    found = []
    for n in (0, 1):
        groups: dict[tuple[int, str, int], list[TensorRow]] = {}
        for row in rows:
            if row.measured is not None:
                dtype, count = str(row.dtypes[n]), row.measured.count
                groups.setdefault((row.measured.crc[n], dtype, count), []).append(row)
        for group in groups.values():
            pair = _twins(group, 1 - n)
            if pair is not None and confirm(n, *pair):
                found.append((n, *pair))
    doubted = {r.name for _, *pair in found for r in pair}
    return [Twins(n, a, b, _reading(n, a, b, rows, doubted)) for n, a, b in found]


def _reading(
    n: int, a: TensorRow, b: TensorRow, rows: Sequence[TensorRow], doubted: Container[str]
) -> str:
    """By the contract tensors behind the one that fails, twins that fail left aside."""
    off = [r for r in (a, b) if r.failed]
    if n == 0 or len(off) != 1:  # of the reference nothing is wrong but its dump
        return EITHER
    place = [r.name for r in rows].index(off[0].name)
    behind = [r for r in rows[place + 1 :] if r.contract and r.status not in MISSING]
    behind = [r for r in behind if not (r.failed and r.name in doubted)]
    if not behind:
        return EITHER
    if behind[0].failed:
        return VALUE
    return EITHER if any(r.failed for r in behind) else DUMP


def one_value(twins: Sequence[Twins]) -> list[str]:
    """Return a note of each pair that the candidate computed so."""
    return [f"{t.a.name} and {t.b.name} {ONE_VALUE}" for t in twins if t.reading == VALUE]


def _reused(twins: Twins, paths: tuple[str, str]) -> Problem:
    a, b = twins.a.name, twins.b.name
    what = f"{a!r} and {b!r} hold the same bytes on one side and differ on the other"
    fix = "a buffer was reused: mark both for the dump (Dump.put, ad.tap)"
    if twins.reading == DUMP:
        what += "; what follows is right"
    else:
        fix += "; or one value stands for both"
    return Problem(what, paths[twins.side], fix, REUSED)


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


def by_bytes(left: Side, right: Side) -> Confirm:
    """Return the closer look of `twins_of` that reads both tensors."""
    sides = (left, right)

    def confirm(n: int, a: TensorRow, b: TensorRow) -> bool:
        x, y = (sides[n].tensors[r.name] for r in (a, b))
        if not _same_bytes(x, y):
            return False
        return not any(_constant(s.tensors[r.name]) for s in sides for r in (a, b))

    return confirm


def by_figures(_: int, a: TensorRow, b: TensorRow) -> bool:
    """Judge by saved figures alone: neither side's variance is zero."""
    for row in (a, b):
        m = row.measured
        assert m is not None
        for total, squares in ((m.sums[0], m.sums[2]), (m.sums[1], m.sums[3])):
            spread = squares * m.finite - total * total
            if spread <= 2.0**-40 * abs(squares * m.finite):
                return False
    return True


def _same_bytes(x: Stored, y: Stored) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(x.chunks(), y.chunks(), strict=True))


def _constant(stored: Stored) -> bool:
    """Whether all finite entries are equal, as where there are none: NaN equals nothing, and a
    fault upstream makes any two tensors alike by it.
    """
    first = None
    for chunk in stored.chunks():
        finite = chunk[np.isfinite(floats(chunk, False) if chunk.dtype.kind != "c" else chunk)]
        first = finite[:1] if first is None or not first.size else first
        if not (finite == first).all():
            return False
    return True
