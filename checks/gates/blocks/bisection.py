"""The tensor where a candidate goes from good to bad, and the blocks in between.

In order, where both sides dumped everything; else by running the candidate again, each time with
one tensor dumped, log2(n) times. It is one change that is searched: a tensor that is good again
after a bad one may hide the first.
"""

import fnmatch
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checks.gates.blocks.block import Block
from checks.gates.blocks.context import Context, call_keys, judged, opened
from checks.gates.blocks.isolated import BlockRow
from checks.gates.blocks.isolation import isolate
from checks.gates.comparison.record import OK, TensorRow
from checks.gates.errors import INVALID, PASSED, WRONG, GateError
from checks.gates.formats.manifest import DEBUG
from checks.gates.formats.readers import Side, open_side
from checks.gates.naming.names import names_beside, read_names, renamed

Run = Callable[[Sequence[str]], str | Path]
GOOD, BAD = "good", "bad"


@dataclass(frozen=True, slots=True)
class Step:
    """One run, or one row of a scan.

    Arguments:
        number: from 1; 0 of what was known before the first run.
        names: what was dumped, or replaced.
        tensor: whose error decided.
        verdict: good or bad.
        row: its figures; None where a command decided.
        left: how many tensors it may still be.
    """

    number: int
    names: tuple[str, ...]
    tensor: str
    verdict: str
    row: TensorRow | None
    left: int


@dataclass(frozen=True, slots=True)
class Bisection:
    """What a bisection found.

    Arguments:
        reference: the dump's path, for messages.
        kind: "dump" or "replace".
        tensors: how many were searched.
        most: the most runs that it could have taken.
        steps: in order.
        last_good: the last good tensor before; None where there is none.
        first_bad: the first bad one, or the one whose replacement mends the output; None where
            nothing is bad.
        between: outputs of the blocks after the last good up to the first bad one.
        own: those blocks on the reference's inputs; empty where no blocks were given.
        unknown: tensors in between that the candidate did not dump.
    """

    reference: str
    kind: str
    tensors: int
    most: int
    steps: Sequence[Step]
    last_good: str | None
    first_bad: str | None
    between: Sequence[str] = ()
    own: Sequence[BlockRow] = field(default=())
    unknown: Sequence[str] = ()

    @property
    def runs(self) -> int:
        """How many runs it took."""
        return len({s.number for s in self.steps} - {0})

    @property
    def exit_code(self) -> int:
        """0 where nothing is bad, else 1."""
        return PASSED if self.first_bad is None else WRONG

    def to_record(self) -> dict[str, Any]:
        """Return the whole as one JSON object."""
        return {
            "exit_code": self.exit_code,
            "reference": self.reference,
            "kind": self.kind,
            "tensors": self.tensors,
            "runs": self.runs,
            "most_runs": self.most,
            "last_good": self.last_good,
            "first_bad": self.first_bad,
            "between": list(self.between),
            "unknown": list(self.unknown),
            "steps": [
                {
                    "run": s.number,
                    "names": list(s.names),
                    "tensor": s.tensor,
                    "verdict": s.verdict,
                    "left": s.left,
                    "row": s.row.to_record() if s.row else None,
                }
                for s in self.steps
            ],
            "own": [r.to_record() for r in self.own],
        }


def bisect(
    reference: str | Path,
    run: Run | None = None,
    tolerances: str | Path | None = None,
    *,
    candidate: str | Path | None = None,
    blocks: Sequence[Block] = (),
    names: str | Path | None = None,
    only: str | None = None,
    step: Callable[[Step], None] | None = None,
) -> Bisection:
    """Find the first tensor of the reference's order where a candidate is off.

    Arguments:
        reference: a dump of every tensor (`pick="all"`), in execution order.
        run: runs the candidate with these names dumped and returns the folder; None to look
            through `candidate` alone. What it dumps besides is used too.
        tolerances, names: as in `isolate`.
        candidate: a dump of the candidate: all of it, or what is known before the first run.
        blocks: of the candidate: those in between are isolated.
        only: a pattern of names.
        step: called with each step.

    Raises:
        GateError: a file cannot be used, there is neither a run nor a candidate, a run does not
            dump what it was asked for, or a candidate that cannot be run not the last tensor.
    """
    if run is None and candidate is None:
        fix = "name the candidate's dump, or a command to run it"
        raise GateError("there is nothing to compare with", "bisect", fix)
    context = opened(reference, candidate, tolerances, names)
    order = order_of(context.left, only)
    search = _Search(context, order, step)
    if context.right is not None:
        search.learn(context.right, 0, ())
    bad = next((n for n, k in enumerate(order) if search.is_bad(k)), None)
    most = 0
    if run is None and bad is None and not search.is_known(order[-1]):
        what = f"the candidate did not dump {order[-1]!r}, the last one: it may be off, or not"
        raise GateError(what, str(candidate), "dump it, or give a command to run", code=INVALID)
    if run is not None:
        if bad is None and not search.is_known(order[-1]):
            search.ask(run, order[-1], renamer(tolerances, names), len(order))
            most, bad = 1, next((n for n, k in enumerate(order) if search.is_bad(k)), None)
        if bad is not None:
            good = search.last_good(bad)
            most += halvings(bad - good)
            bad = _halved(search, run, good, bad, renamer(tolerances, names))
    good = -1 if bad is None else search.last_good(bad)
    return _found(context, order, search, good, bad, most, blocks, tolerances, candidate, names)


def _halved(
    search: "_Search", run: Run, good: int, bad: int, rename: Callable[[Side], Side]
) -> int:
    while bad - good > 1:
        middle = (good + bad) // 2
        search.ask(run, search.order[middle], rename, bad - good - 1)
        bad = next(n for n in range(good + 1, bad + 1) if search.is_bad(search.order[n]))
        good = search.last_good(bad)
    return bad


def halvings(count: int) -> int:
    """Return how many questions halve so many places down to one."""
    return math.ceil(math.log2(count)) if count > 1 else 0


def order_of(left: Side, only: str | None) -> list[str]:
    """Return the tensors to search, in order: neither debug ones nor cotangents.

    Raises:
        GateError: there are none.
    """
    found = [
        k
        for k, s in left.tensors.items()
        if s.tensor.role != DEBUG
        and not k.startswith("grad.")
        and (only is None or fnmatch.fnmatchcase(s.tensor.name, only))
    ]
    if not found:
        what = f"the reference has no tensor to look at{f' that matches {only!r}' if only else ''}"
        raise GateError(what, str(left.path), "dump its blocks' outputs", code=INVALID)
    return found


class _Search:
    """What is known of each tensor so far."""

    def __init__(
        self, context: Context, order: list[str], step: Callable[[Step], None] | None
    ) -> None:
        self.context, self.order, self.step = context, order, step
        self.rows: dict[str, TensorRow] = {}
        self.steps: list[Step] = []

    def learn(self, side: Side, number: int, names: tuple[str, ...]) -> None:
        """Judge what a dump holds and was not known."""
        for key in self.order:
            if key in side.tensors and key not in self.rows:
                limit = self.context.limit(key)
                self.rows[key] = judged(self.context.stored(key), side.tensors[key], limit)
                if not number:
                    self._note(number, names, key, 0)

    def ask(self, run: Run, key: str, rename: Callable[[Side], Side], left: int) -> None:
        """Run the candidate with one more tensor dumped."""
        number = 1 + max((s.number for s in self.steps), default=0)
        name = key.partition("#")[0]
        side = rename(open_side(run((name,))))
        if key not in side.tensors:
            what = f"the run did not dump {key!r}"
            fix = "dump the tensors that GATE_DUMP_ONLY names"
            raise GateError(what, str(side.path), fix, code=INVALID)
        self.learn(side, number, (name,))
        self._note(number, (name,), key, left)

    def _note(self, number: int, names: tuple[str, ...], key: str, left: int) -> None:
        row = self.rows[key]
        self.steps.append(Step(number, names, key, GOOD if row.status == OK else BAD, row, left))
        if self.step is not None:
            self.step(self.steps[-1])

    def is_known(self, key: str) -> bool:
        """Whether it was judged."""
        return key in self.rows

    def is_bad(self, key: str) -> bool:
        """Whether it was judged, and is off."""
        return key in self.rows and self.rows[key].status != OK

    def last_good(self, before: int) -> int:
        """The place of the last good tensor before one; -1 where there is none."""
        known = [n for n in range(before) if self.is_known(self.order[n])]
        return known[-1] if known else -1


def _found(
    context: Context,
    order: list[str],
    search: _Search,
    good: int,
    bad: int | None,
    most: int,
    blocks: Sequence[Block],
    tolerances: str | Path | None,
    candidate: str | Path | None,
    names: str | Path | None,
) -> Bisection:
    made = {k for b in blocks for k in call_keys(b.output, context.left)}
    places = range(good + 1, bad + 1) if bad is not None else range(0)
    between = [order[n] for n in places]
    chosen = [b for b in blocks if set(call_keys(b.output, context.left)) & set(between)]
    own: Sequence[BlockRow] = ()
    if chosen:
        path = context.left.path
        rows = isolate(path, chosen, tolerances, candidate=candidate, names=names).rows
        own = [r for r in rows if r.output in between]
    return Bisection(
        reference=str(context.left.path),
        kind="dump",
        tensors=len(order),
        most=most,
        steps=search.steps,
        last_good=order[good] if good >= 0 else None,
        first_bad=None if bad is None else order[bad],
        between=[k for k in between if k in made] if blocks else between,
        own=own,
        unknown=[k for k in between if not search.is_known(k)],
    )


def renamer(tolerances: str | Path | None, names: str | Path | None) -> Callable[[Side], Side]:
    """Return what gives a candidate's dump its canonical names."""

    def rename(side: Side) -> Side:
        if tolerances is not None:
            return renamed(side, names_beside(Path(tolerances), names), "candidate")
        return side if names is None else renamed(side, read_names(names), "candidate")

    return rename
