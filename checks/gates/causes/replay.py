"""Causes that a replay can tell: a block run again with one thing changed.

Two readings, whichever block is given:

- the block is wrong on the reference's inputs (it is the candidate's own): a change that makes it
  give the reference's output *undoes* the fault;
- the block is right there (it is the reference's, or a port's that passes) and the candidate's
  dump is off: a change that makes it give the candidate's output *reproduces* the fault.

Told by replay: transposed, exchanged, permuted, negated, left-out and rounded weights and those of
another layer; an eps, a switch or an offset among the weights; inputs that are shifted, left out,
exchanged or another tensor, positions off by one, masks. In blocks that our engine can trace also
another eps, activation, norm, reduction, axis, scale or rope, operands or parts in another order, a
mask in the program, an equation that one side lacks, narrower products. What the candidate alone
lost (a rounding, a bias) can be reproduced but not undone. Two faults at once are not told, nor is
what happens in control flow, nor a weight that does not stand in `Block.weights`.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from checks.gates.blocks.block import Block
from checks.gates.blocks.border import Runner, runner
from checks.gates.blocks.context import Context, Refused, call_keys, in_memory, judged
from checks.gates.blocks.spans import spans
from checks.gates.causes.case import Case
from checks.gates.causes.programs import Edit, edits, precisions, program_of
from checks.gates.causes.trials import Trial, further, likely
from checks.gates.comparison.record import OK, Cause, TensorRow
from checks.gates.formats.readers import Side
from checks.gates.formats.stored import Array
from checks.gates.limits.contract import Limit
from checks.tolerances import constant

MISMATCH, INHERITED = "op mismatch", "inherited"
_MOST_TRIALS = 512
_BUDGET = 1 << 30  # entries of weights, inputs and outputs that all trials of a block may touch
_MOST_OTHERS = 16
_FEWEST = 4  # entries that are off by a rounding, for a change to be told by them
_LARGEST = 1 << 22  # entries of a block's output that is replayed


def replayed(
    row: TensorRow,
    left: Side,
    blocks: Sequence[Block],
    right: Side | None = None,
    framework: str | None = None,
) -> Cause | None:
    """Return why a tensor is off, verified by running the block that makes it again.

    Arguments:
        row: of that tensor; it has a limit.
        left: the reference's dump.
        blocks: of the candidate, or of the reference: see above.
        right: the candidate's dump; None where the blocks are the candidate's own.
        framework: of the blocks' arrays; by default that of each function.

    Returns:
        The cause; None where there is no such block, it cannot be run, or no change explains it.
    """
    part = next((b for b in blocks if row.name in call_keys(b.output, left)), None)
    if part is None or row.limit is None or row.name not in left.tensors:
        return None
    framework = framework or runner(part).framework.name
    blocks = [s.block for s in spans(blocks, left)]
    block = next(b for b in blocks if b.output == part.output)
    if left.tensors[row.name].tensor.size > _LARGEST or _is_chance(row):
        return None
    context = Context(left, right)
    run = runner(block, framework)
    try:
        keys = context.inputs(block, row.name)
        inputs = [context.stored(k).load() for k in keys]
        value = _tried(run, inputs)
    except Refused:
        return None
    if value is None:
        return None
    own = judged(left.tensors[row.name], in_memory(row.name, value), row.limit)
    replay = _Replay(run, blocks, row, context, keys)
    if own.status != OK:
        return replay.undone(inputs, value)
    if right is None or row.name not in right.tensors:
        return None
    return replay.reproduced(inputs)


def made_of(key: str, left: Side, blocks: Sequence[Block]) -> tuple[str, ...]:
    """Return the keys that a tensor is made of, by the block that makes it; none without one."""
    part = next((b for b in blocks if key in call_keys(b.output, left)), None)
    if part is None:
        return ()
    block = next(s.block for s in spans(blocks, left) if s.block.output == part.output)
    try:
        return Context(left).inputs(block, key)
    except Refused:
        return ()


class _Replay:
    """One block's trials."""

    def __init__(
        self,
        run: Runner,
        blocks: Sequence[Block],
        row: TensorRow,
        context: Context,
        keys: tuple[str, ...],
    ) -> None:
        self.run, self.blocks, self.row, self.context, self.keys = run, blocks, row, context, keys
        self.reference = context.left.tensors[row.name].load()

    def undone(self, inputs: Sequence[Array], value: Array) -> Cause | None:
        """The change that makes a wrong block right."""
        text = "with {} the block gives the reference's output"
        return self._best(text, inputs, self.reference, value)

    def reproduced(self, inputs: Sequence[Array]) -> Cause | None:
        """The change that makes a right block give the candidate's output."""
        right = self.context.right
        assert right is not None
        candidate = right.tensors[self.row.name].load()
        present = all(k in right.tensors for k in self.keys)
        theirs = [right.tensors[k].load() for k in self.keys] if present else list(inputs)
        plain = _tried(self.run, theirs)
        if plain is None or candidate.shape != self.reference.shape:
            return None
        if found := _Aim(candidate, self.reference, self.row.limit).cause(INHERITED, _RIGHT, plain):
            return found
        text = "the candidate's output is this block's with {}"
        if found := self._best(text, theirs, candidate, plain):
            return found
        if not present or _is_rounding(self.row):
            return None
        aim = _Aim(self.reference, candidate, self.row.limit)
        return aim.cause(MISMATCH, _MISMATCH, plain)

    def _best(self, text: str, inputs: Sequence[Array], target: Array, base: Array) -> Cause | None:
        """The first trial whose output is the target; of several eps the nearest."""
        best: Cause | None = None
        aim = _Aim(target, base, self.row.limit)
        for trial in self._trials(inputs):
            if best is not None and trial.name != best.name:
                continue
            found = _tried_of(trial, self.run, inputs)
            if found is None:
                continue
            cause = aim.cause(trial.name, text.format(trial.text), found)
            if cause is not None and (best is None or cause.left < best.left):
                best = cause
            if best is not None and best.name != "eps":
                break
        return best

    def _trials(self, inputs: Sequence[Array]) -> Iterator[Trial | Edit]:
        """Weights and inputs, the program's equations, then what is rounded and what takes many."""
        program = program_of(self.run, inputs)
        likeliest: Iterator[Trial | Edit] = likely(self.run, self.blocks, inputs)
        rest: Iterator[Trial | Edit] = further(self.run, inputs, self._others())
        most = max(1, min(_MOST_TRIALS, _BUDGET // self._entries(inputs)))
        if program is None:
            return islice(chain(likeliest, rest), most)
        return islice(chain(likeliest, edits(program), precisions(program), rest), most)

    def _entries(self, inputs: Sequence[Array]) -> int:
        """How many entries one trial touches."""
        held = (*inputs, *(self.run.block.weights or {}).values())
        return int(self.reference.size + sum(math.prod(np.shape(v)) for v in held)) + 1

    def _others(self) -> dict[str, Array]:
        """Tensors of the reference near this one, which the block may have been given instead."""
        names = list(self.context.left.tensors)
        place = names.index(self.row.name)
        near = sorted(range(len(names)), key=lambda n: abs(n - place))[1:]
        shapes = {self.context.stored(k).tensor.shape for k in self.keys}
        fitting = [names[n] for n in near if self._shape(names[n]) in shapes]
        return {n: self.context.stored(n).load() for n in fitting[:_MOST_OTHERS]}

    def _shape(self, key: str) -> tuple[int, ...]:
        return self.context.stored(key).tensor.shape


class _Aim:
    """What a changed block must give, and what it gives unchanged."""

    def __init__(self, target: Array, base: Array, limit: Limit | None) -> None:
        assert limit is not None
        self.target = _wide(target)
        self.bad = ~np.isfinite(self.target)
        self.level = _level(self.target)
        self.case = Case(_tamed(self.target, self.level), _tamed(_wide(base), self.level), limit)

    def cause(self, name: str, text: str, found: Array) -> Cause | None:
        """The cause, where what was found is the target and the base was not: infinities in the
        same places, next to nothing of the error left.
        """
        value = _wide(found)
        if value.shape != self.target.shape or not self._same_infinities(value):
            return None
        return self.case.cause(name, text, _tamed(value, self.level))

    def _same_infinities(self, value: Any) -> bool:
        bad = ~np.isfinite(value)
        if not bad.any() and not self.bad.any():
            return True
        same = np.array_equal(self.bad, bad)
        return bool(same and np.array_equal(self.target[bad], value[bad], True))


_RIGHT = "the block is right: on the candidate's own inputs it gives the candidate's output"
_MISMATCH = "the fault is in this block: run on the candidate's inputs, ours gives the reference"


def _is_chance(row: TensorRow) -> bool:
    """Whether so few entries are off by a rounding that a change may give them by chance."""
    m = row.measured
    if m is None or m.disagreements or m.differing >= _FEWEST:
        return False
    return m.relative_rms <= constant("gate_ladder_width") * constant("gate_ladder_float32")


def _is_rounding(row: TensorRow) -> bool:
    """Whether an error looks like rounding alone: a right port has that too, so no block is to
    blame for it.
    """
    m = row.measured
    if m is None or row.systematic or m.disagreements:
        return False
    return m.relative_rms <= constant("gate_ladder_width") * constant("gate_ladder_bf16")


def _level(values: Any) -> float:
    """Twice the largest magnitude: what an infinity counts as."""
    wide = np.abs(values)
    finite = wide[np.isfinite(wide)]
    return 2 * float(finite.max()) if finite.size and finite.max() else 1.0


def _tamed(wide: Any, level: float) -> Any:
    if wide.dtype.kind == "c" or np.isfinite(wide).all():
        return wide
    return np.nan_to_num(wide, True, 0.0, level, -level)


def _tried(run: Runner, inputs: Sequence[Array]) -> Array | None:
    """A block's output; None where it cannot be run so: an isolation says why."""
    return _tried_of(Trial("", ""), run, inputs)


def _tried_of(trial: Trial | Edit, run: Runner, inputs: Sequence[Array]) -> Array | None:
    """A changed block's output; None where it does not go through: shapes that no longer fit."""
    try:
        with np.errstate(all="ignore"):
            found = trial.run(run, inputs)
    except Exception:  # of the user's code on changed arguments: that trial explains nothing
        return None
    return found if found.dtype.kind in "fVc" else found.astype(np.float64)


def _wide(values: Array) -> Any:
    return values if values.dtype.kind == "c" else values.astype(np.float64)
