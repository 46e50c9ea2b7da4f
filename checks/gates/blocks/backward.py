"""Each block's derivative on the reference's cotangents, against the reference's own."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autodiff.forward import is_inexact
from checks.gates.blocks.border import Runner, raised
from checks.gates.blocks.context import Context, Refused, call_keys
from checks.gates.blocks.isolated import OWN, BlockRow, joint, verdict
from checks.gates.errors import INVALID, GateError
from checks.gates.formats.manifest import dtype_of
from checks.gates.formats.stored import Array
from checks.tolerances import constant

Step = Callable[[BlockRow], None]
GRAD, PARAM = "grad.", "grad.param."


@dataclass(slots=True)
class _Sum:
    """The cotangent of one tensor, as the blocks that use it add to it.

    Arguments:
        blocks: outputs of those blocks, by key.
        inputs: what their derivatives take: cotangents and inputs, by key.
        total: the sum so far.
        problem: why it cannot be known.
    """

    blocks: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    total: Array | None = None
    problem: str = ""

    def add(self, part: Array) -> None:
        """Add one block's part: in float64 from the second on."""
        if self.total is None:
            self.total = part
        elif self.total.shape != part.shape:
            self.problem = f"cotangents of shapes {list(self.total.shape)} and {list(part.shape)}"
        else:
            self.total = self.total.astype(np.float64) + part.astype(np.float64)


def cotangent_rows(
    runners: Sequence[Runner], context: Context, step: Step | None = None, *, causes: bool = True
) -> tuple[list[BlockRow], list[str]]:
    """Return a row for each cotangent that the blocks make, last blocks first; and notes.

    A tensor that several blocks use has the sum of their cotangents: the blocks must be all that
    use it. Tensors that no block makes are compared where the reference has their cotangents. What
    a block uses whose output no other uses, and the backward pass did not come to, is left out.

    Raises:
        GateError: the reference holds no cotangents.
    """
    if not any(k.startswith(GRAD) for k in context.left.tensors):
        what = "the reference holds no cotangents: nothing is called grad.NAME"
        fix = "dump them: d.grads() before the backward pass"
        raise GateError(what, str(context.left.path), fix, code=INVALID)
    sums: dict[str, _Sum] = {}
    order: dict[str, int] = {}
    made = {r.block.output.partition("#")[0] for r in runners}
    used = {n.partition("#")[0] for r in runners for n in r.block.inputs}
    notes: list[str] = []
    calls = [(run, key) for run in runners for key in call_keys(run.block.output, context.left)]
    for place, (run, output) in reversed(list(enumerate(calls))):
        if output.partition("#")[0] not in used and GRAD + output not in context.left.tensors:
            notes.append(f"no cotangent came to {output}: the derivative of its block is unchecked")
            continue
        if not _pull(run, output, context, made, sums):
            notes.append(
                f"no input of {output} has a cotangent: its block's derivative is unchecked"
            )
        order |= {k: place for k, s in sums.items() if output in s.blocks}
    rows = []
    for key in sorted(sums, key=lambda k: -order[k]):
        row = _row(key, sums[key], context)
        if causes and row.verdict == OWN and row.own is not None:
            row = replace(row, cause=context.cause(row.own, sums[key].total))
        rows.append(row)
        if step is not None:
            step(rows[-1])
    return rows, notes


def _pull(
    run: Runner, output: str, context: Context, made: set[str], sums: dict[str, _Sum]
) -> bool:
    """Add one call's cotangents to the sums of its inputs and weights; False where the reference
    has none of any.
    """
    try:
        keys = context.inputs(run.block, output)
    except Refused as refused:
        found = sums.setdefault(GRAD + run.block.inputs[0], _Sum())
        found.blocks.append(output)
        found.problem = str(refused)
        return True
    given = [GRAD + output, *keys]
    targets = {n: GRAD + k for n, k in enumerate(keys) if _expected(k, context, made)}
    params = {w: PARAM + w for w in run.block.weights or {} if PARAM + w in context.left.tensors}
    if run.block.vjp is not None:
        params = {}
    if not targets and not params:
        return GRAD + output not in context.left.tensors
    if _untouched(GRAD + output, targets.values(), context):
        return True
    for key in (*targets.values(), *params.values()):
        found = sums.setdefault(key, _Sum())
        found.blocks.append(output)
        found.inputs += [k for k in given if k not in found.inputs]
    try:
        inputs, weights = _cotangents(run, output, keys, context)
    except Refused as refused:
        for key in (*targets.values(), *params.values()):
            sums[key].problem = str(refused)
        return True
    for place, key in targets.items():
        _add(sums[key], inputs.get(place), context, key)
    for name, key in params.items():
        _add(sums[key], weights.get(name), context, key)
    return True


def _untouched(key: str, targets: Iterable[str], context: Context) -> bool:
    """Whether the backward pass never came to this call: neither it nor its inputs have one."""
    return not any(k in context.left.tensors for k in (key, *targets))


def _add(found: _Sum, part: Array | None, context: Context, key: str) -> None:
    """Where the block says that there is none, the cotangent is zero."""
    if part is None:
        reference = context.left.tensors.get(key)
        part = np.zeros(reference.tensor.shape if reference else (), np.float32)
    found.add(part)


def _expected(key: str, context: Context, made: set[str]) -> bool:
    """Whether the cotangent of an input is to be compared: where the reference has it, and where
    it should, since a block makes that floating tensor.
    """
    if GRAD + key in context.left.tensors:
        return True
    stored = context.left.tensors.get(key)
    floating = stored is not None and is_inexact(dtype_of(stored.tensor.dtype))
    return floating and key.partition("#")[0] in made


def _cotangents(
    run: Runner, output: str, keys: Sequence[str], context: Context
) -> tuple[dict[int, Array], dict[str, Array]]:
    inputs = [context.stored(k).load() for k in keys]
    cotangent = context.stored(GRAD + output).load()
    if any(x.dtype.kind == "c" for x in (*inputs, cotangent)):
        raise Refused("complex: frameworks differ in which conjugate they call the gradient")
    try:
        with np.errstate(all="ignore"):
            return run.cotangents(inputs, cotangent)
    except GateError as error:
        raise Refused(error.what) from error
    except Exception as error:
        raise Refused(f"its derivative raised {raised(error)}") from error


def _row(key: str, found: _Sum, context: Context) -> BlockRow:
    row = BlockRow(key, tuple(found.inputs), "unchecked", blocks=tuple(found.blocks))
    if found.problem or found.total is None:
        return replace(row, note=found.problem)
    try:
        own = context.against(key, found.total)
    except Refused as refused:
        return replace(row, note=str(refused))
    total = context.total(key)
    before = joint(context.total_errors(found.inputs))
    row = replace(row, own=own, total=total, before=before)
    judgement = verdict(own, total, row.amplification, constant("gate_amplifies"))
    several = f"summed over {len(found.blocks)} blocks" if len(found.blocks) > 1 else ""
    if own.measured is None:
        shapes = f"{list(own.shapes[0] or ())}, the blocks give {list(own.shapes[1] or ())}"
        several = f"shape {shapes}"
    return replace(row, verdict=judgement, note=several)
