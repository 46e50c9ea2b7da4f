"""Each block of a candidate on the reference's inputs: own error beside total error.

    found = gates.isolate("dump/reference", port.blocks(weights, config), candidate="dump/port")
    found.first  # the first block that is wrong by itself

A block that is fine on the reference's inputs only hands on what came before it, whatever its
output looks like in a comparison of the dumps.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from checks.gates.blocks.backward import cotangent_rows
from checks.gates.blocks.block import Block
from checks.gates.blocks.border import Runner, raised, runner
from checks.gates.blocks.context import Context, Refused, call_keys, opened
from checks.gates.blocks.isolated import (
    OTHER_CODE,
    OWN,
    BlockRow,
    Isolation,
    joint,
    right_in_dump,
    verdict,
)
from checks.gates.blocks.spans import Span, spans
from checks.gates.causes.replay import replayed
from checks.gates.comparison.record import Cause
from checks.gates.errors import GateError
from checks.gates.formats.stored import Array
from checks.tolerances import constant

Step = Callable[[BlockRow], None]


def isolate(
    reference: str | Path,
    blocks: Sequence[Block],
    tolerances: str | Path | None = None,
    *,
    candidate: str | Path | None = None,
    names: str | Path | None = None,
    backward: bool = False,
    framework: str | None = None,
    causes: bool = True,
    step: Step | None = None,
) -> Isolation:
    """Run each block on the reference's dumped inputs and compare with the reference's output.

    Arguments:
        reference: a dump that holds the blocks' inputs and outputs; see `open_side`.
        blocks: the candidate's, in the order of execution. One whose output was dumped several
            times runs on each call's inputs; one whose inputs were not dumped is joined with the
            blocks that make them, see `spans`.
        tolerances: a tolerance file; where None, and for tensors it does not name, the provisional
            limits of the reference's own figures.
        candidate: the candidate's own dump, for the total error and the amplification.
        names: rules for the names of both dumps; see `names_beside`.
        backward: compare the blocks' derivatives too: from `grad.NAME` of the output to that of the
            inputs, and to `grad.param.NAME` of the weights.
        framework: of the blocks' arrays; by default that of each function.
        causes: look for the cause of each block's own error: by replaying it changed, else from its
            output and the reference's alone.
        step: called with each row as it is made.

    Returns:
        A row for each block (and call), then for each cotangent.

    Raises:
        GateError: a file cannot be used, there are no blocks, two make one tensor, or `backward`
            is asked of a reference without gradients.
    """
    context = opened(reference, candidate, tolerances, names)
    parts = {b.output: runner(b, framework).framework for b in checked(blocks)}
    joined = spans(blocks, context.left)
    runners = [Runner(s.block, parts[s.block.output]) for s in joined]
    rows = []
    for run, span in zip(runners, joined, strict=True):
        for output in call_keys(run.block.output, context.left):
            row = _row(run, output, context, span.note)
            if causes and row.verdict == OWN:
                cause = _cause(run, row, context, [s.block for s in joined])
                row = replace(row, cause=cause)
            rows.append(row)
            if step is not None:
                step(row)
    cotangents, notes = list[BlockRow](), list[str]()
    if backward:
        cotangents, notes = cotangent_rows(runners, context, step, causes=causes)
    return Isolation(
        reference=str(context.left.path),
        candidate=None if context.right is None else str(context.right.path),
        tolerances=None if context.contract is None else str(context.contract.path),
        rows=rows,
        backward=cotangents,
        notes=[*without_total(rows, context), *notes, *without_weights(rows, joined)],
    )


def without_weights(rows: Sequence[BlockRow], joined: Sequence[Span]) -> list[str]:
    """Return, in a line, which wrong blocks of no known cause hold their weights themselves."""
    held = {s.block.output for s in joined if s.block.weights is None}
    lacking = [
        r.output
        for r in rows
        if r.verdict == OWN and r.cause is None and r.output.partition("#")[0] in held
    ]
    if not lacking:
        return []
    more = f" and {len(lacking) - 1:,} more" if len(lacking) > 1 else ""
    return [
        f"{lacking[0]}{more}: no weights were given; with Block(..., weights={{name: array}}) and "
        "call(weights, *inputs), one that is transposed, exchanged or of another layer has a name"
    ]


def without_total(rows: Sequence[BlockRow], context: Context) -> list[str]:
    """Return, in a line, which outputs the candidate's dump lacks: they have no total error."""
    if context.right is None:
        return []
    lacking = [r.output for r in rows if r.own and r.output not in context.right.tensors]
    if not lacking:
        return []
    more = f" and {len(lacking) - 1:,} more" if len(lacking) > 1 else ""
    return [f"no total: {context.right.path} has no {lacking[0]}{more}"]


def checked(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return the blocks.

    Raises:
        GateError: there are none, one is no `Block`, two make one tensor.
    """
    if not blocks:
        raise GateError("there are no blocks", "isolate(blocks=...)", "Block(output, inputs, call)")
    outputs: set[str] = set()
    for block in blocks:
        if not isinstance(block, Block):
            what = f"{block!r:.60} is no Block"
            raise GateError(what, "isolate(blocks=...)", "Block(output, inputs, call)")
        if block.output in outputs:
            what = f"two blocks make {block.output!r}"
            raise GateError(what, "isolate(blocks=...)", "give each tensor one block")
        outputs.add(block.output)
    return tuple(blocks)


def _row(run: Runner, output: str, context: Context, note: str) -> BlockRow:
    """One call of one block; what stops it stands in the row's note."""
    row = BlockRow(output, run.block.inputs, "unchecked")
    try:
        keys = context.inputs(run.block, output)
        row = replace(row, inputs=keys)
        context.stored(output)
        inputs = [context.stored(k).load() for k in keys]
        own = context.against(output, value_of(run, inputs))
    except Refused as refused:
        return replace(row, note=str(refused))
    total = context.total(output)
    before = joint(context.total_errors(keys))
    row = replace(row, own=own, total=total, before=before)
    found = verdict(own, total, row.amplification, constant("gate_amplifies"))
    row = replace(row, verdict=found)
    other = OTHER_CODE if right_in_dump(row, [context.total(k) for k in keys]) else ""
    return replace(row, note="; ".join(n for n in (_note(row), note, other) if n))


def _cause(run: Runner, row: BlockRow, context: Context, blocks: Sequence[Block]) -> Cause | None:
    """Why a block is wrong by itself: by replay, else from the two arrays alone."""
    own = row.own
    assert own is not None
    if found := replayed(own, context.left, blocks, None, run.framework.name):
        return found
    return context.cause(own, value_of(run, [context.stored(k).load() for k in row.inputs]))


def value_of(run: Runner, inputs: Sequence[Array]) -> Array:
    """Return a block's output.

    Raises:
        Refused: it raised, or returned no array.
    """
    try:
        with np.errstate(all="ignore"):
            return run.value(inputs)
    except GateError as error:
        raise Refused(error.what) from error
    except Exception as error:
        raise Refused(f"raised {raised(error)}") from error


def _note(row: BlockRow) -> str:
    own = row.own
    if own is not None and own.measured is None:
        return f"shape {list(own.shapes[0] or ())}, the block gives {list(own.shapes[1] or ())}"
    if own is not None and own.status == "NONFINITE" and own.measured is not None:
        return f"{own.measured.disagreements:,} entries differ in finiteness"
    if own is not None and own.systematic and own.status == "ok":
        return "systematic"
    return ""
