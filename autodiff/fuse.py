"""Elementwise steps over large arrays, gathered into blocks of rows that stay in the cache.

A block runs its steps on a few thousand elements at a time: intermediate values never travel to
memory. Its rows are the leading axes; a reduction over the other axes is part of it, one over the
leading axes leaves partial results that are combined after the loop.
"""

import dataclasses
import math
from collections.abc import Sequence

from autodiff import steps as sizes
from autodiff.steps import Step, Value

TRIED = 8  # blocks of its shape that a step is offered to, latest first
CHUNK = 1 << 13  # elements of a block: some ten float64 arrays of this size fit the L2 cache


@dataclasses.dataclass(frozen=True)
class Rows:
    """How a loop shape is cut: its first `lead` axes, flattened to `count` rows, `step` at once."""

    lead: int
    count: int
    step: int


@dataclasses.dataclass(eq=False)
class Block:
    """Steps that are run block by block; `made` are the values they write."""

    loop: tuple[int, ...]
    rows: Rows
    steps: list[Step] = dataclasses.field(default_factory=list)
    made: set[Value] = dataclasses.field(default_factory=set)

    def add(self, step: Step) -> None:
        """Take in one more step."""
        self.steps.append(step)
        self.made.add(step.outputs[0].root)

    def is_partial(self, step: Step) -> bool:
        """Whether the step reduces over the rows, so that its result stands after the loop."""
        return step.reduced is not None and 0 in step.reduced.axes


Item = Step | Block


def cut(loop: tuple[int, ...]) -> Rows:
    """Rows of a loop shape: as few leading axes as leave at most a chunk in each row."""
    lead = next(a for a in range(1, len(loop) + 1) if math.prod(loop[a:]) <= CHUNK)
    count, size = math.prod(loop[:lead]), math.prod(loop[lead:])
    return Rows(lead, count, max(1, min(count, CHUNK // size)))


def fuse(steps: Sequence[Step]) -> list[Item]:
    """The steps in an order in which those that share a block stand together as one item."""
    return _Fusion(steps).run() if any(map(is_large, steps)) else list(steps)


def is_large(step: Step) -> bool:
    """Whether a step is worth running block by block."""
    return bool(step.code and step.loop is not None and math.prod(step.loop) >= sizes.LARGE)


class _Fusion:
    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.after = dependencies(steps)
        self.group: list[int] = list(range(len(steps)))  # the first step of each step's group
        self.within: dict[int, list[int]] = {n: [n] for n in range(len(steps))}
        self.blocks: dict[int, Block] = {}
        self.latest: dict[tuple[int, ...], list[int]] = {}  # blocks of each loop shape

    def run(self) -> list[Item]:
        for number, step in enumerate(self.steps):
            if is_large(step):
                assert step.loop is not None
                self.place(number, step, step.loop)
        return self.ordered()

    def place(self, number: int, step: Step, loop: tuple[int, ...]) -> None:
        """Join the latest block of the same shape that may take the step, or open one."""
        candidates = self.latest.setdefault(loop, [])
        for first in candidates[: -TRIED - 1 : -1]:
            if fits(step, self.blocks[first]) and not self.crosses(number, first):
                self.group[number] = first
                self.within[first] += self.within.pop(number)
                self.blocks[first].add(step)
                return
        block = Block(loop, cut(loop))
        if fits(step, block):
            block.add(step)
            self.blocks[number] = block
            candidates.append(number)

    def crosses(self, number: int, first: int) -> bool:
        """Whether the step needs something outside the group that itself needs the group."""
        seen: set[int] = set()
        todo = [d for d in self.after[number] if self.group[d] != first]
        while todo:
            at = self.group[todo.pop()]
            if at == first:
                return True
            if at in seen:
                continue
            seen.add(at)
            todo += [d for n in self.within[at] for d in self.after[n]]
        return False

    def ordered(self) -> list[Item]:
        """Groups in an order that respects what they need, else as they came."""
        needs: dict[int, set[int]] = {}
        for number, deps in enumerate(self.after):
            at = self.group[number]
            needs.setdefault(at, set()).update(self.group[d] for d in deps)
        items: list[Item] = []
        done: set[int] = set()
        left = sorted(needs)
        while left:
            at = next(g for g in left if needs[g] - {g} <= done)
            left.remove(at)
            done.add(at)
            block = self.blocks.get(at)
            single = block is None or len(block.steps) == 1
            items.append(self.steps[at] if block is None or single else block)
        return items


def dependencies(steps: Sequence[Step]) -> list[set[int]]:
    """Per step the earlier steps it must follow.

    Writers of what it reads, and whatever touched the memory it writes; steps with effects follow
    one another.
    """
    writers: dict[Value, list[int]] = {}
    touched: dict[Value, list[int]] = {}
    effect: int | None = None
    found: list[set[int]] = []
    for number, step in enumerate(steps):
        before: set[int] = set()
        for v in step.inputs:
            before.update(writers.get(v.root, ()))
        for v in step.outputs:
            before.update(touched.get(v.root, ()))
        if step.effect:
            before.update(() if effect is None else (effect,))
            effect = number
        for v in step.outputs:
            writers.setdefault(v.root, []).append(number)
        for v in (*step.inputs, *step.outputs):
            touched.setdefault(v.root, []).append(number)
        found.append(before)
    return found


def fits(step: Step, block: Block) -> bool:
    """Whether every operand and result can be cut into the block's rows."""
    loop, rows = block.loop, block.rows
    for v in step.inputs:
        sliced = is_sliced(v, loop, rows)
        if sliced is None or (v.root in block.made and not (sliced and keeps_rows(v, rows))):
            return False
    if step.reduced is None:
        return True
    lead = set(range(rows.lead))
    return lead <= set(step.reduced.axes) or not lead & set(step.reduced.axes)


def is_sliced(value: Value, loop: tuple[int, ...], rows: Rows) -> bool | None:
    """Whether an operand has the rows (True), is the same for all of them (False), or neither."""
    missing = len(loop) - len(value.spec.shape)
    lead = ((1,) * missing + value.spec.shape)[: rows.lead]
    if lead == loop[: rows.lead]:
        flattened = rows.lead > 1
        fine = not flattened or value.contiguous or value.origin in ("input", "new")
        return True if fine and missing == 0 else None
    return False if all(n == 1 for n in lead) else None


def keeps_rows(value: Value, rows: Rows) -> bool:
    """Whether row i of a view is made of row i of the value it is a view of."""
    if value.base is None:
        return True
    base = value.base.spec.shape
    same = value.spec.shape[: rows.lead] == base[: rows.lead]
    plain = ".view(" in value.view or ".reshape(" in value.view
    return same and plain and keeps_rows(value.base, rows)
