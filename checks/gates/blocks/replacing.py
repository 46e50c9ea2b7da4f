"""Which part spoils the output: the first k tensors replaced by the reference's, for least k."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from checks.gates.blocks.bisection import (
    BAD,
    GOOD,
    Bisection,
    Run,
    Step,
    halvings,
    order_of,
    renamer,
)
from checks.gates.blocks.block import Block
from checks.gates.blocks.border import runner
from checks.gates.blocks.context import Context, Refused, call_keys, judged, opened
from checks.gates.blocks.isolation import checked, isolate, value_of
from checks.gates.capture.dump import Dump
from checks.gates.comparison.record import OK, TensorRow
from checks.gates.errors import INVALID, GateError
from checks.gates.formats.readers import open_side


def bisect_replaced(
    reference: str | Path,
    run: Run,
    tolerances: str | Path | None = None,
    *,
    final: str | None = None,
    check: Callable[[Path], bool] | None = None,
    blocks: Sequence[Block] = (),
    names: str | Path | None = None,
    only: str | None = None,
    step: Callable[[Step], None] | None = None,
) -> Bisection:
    """Find the last tensor whose own error spoils a candidate's output.

    With the first k tensors replaced, what is off before the k-th does not count. The least k for
    which the output is good names the part that makes the k-th tensor; parts before it may be off
    too, so mend it and look again.

    Arguments:
        reference: a dump of every tensor, in execution order.
        run: runs the candidate with these tensors replaced by the reference's, and returns the
            folder it dumped to.
        tolerances, names: as in `isolate`.
        final: the tensor that is judged; the last one by default.
        check: judges a run's folder instead: True where the output is good.
        blocks: of the candidate: the culprit is isolated.
        only: a pattern of names to replace.
        step: called with each step.

    Raises:
        GateError: a file cannot be used, `final` is unknown or was not dumped by a run.
    """
    context = opened(reference, None, tolerances, names)
    every = order_of(context.left, None)
    final = final or every[-1]
    if final not in every:
        what = f"there is no tensor {final!r} to judge"
        raise GateError(what, str(context.left.path), "name one of the reference's", code=INVALID)
    keys = [k for k in order_of(context.left, only) if every.index(k) < every.index(final)]
    rename = renamer(tolerances, names)
    steps: list[Step] = []

    def good(count: int, left: int) -> bool:
        folder = Path(run(tuple(keys[:count])))
        row = None if check is not None else _final(context, final, folder, rename)
        fine = check(folder) if check is not None else row is not None and row.status == OK
        steps.append(
            Step(len(steps) + 1, tuple(keys[:count]), final, GOOD if fine else BAD, row, left)
        )
        if step is not None:
            step(steps[-1])
        return fine

    culprit = _culprit(keys, final, good)
    place = -1 if culprit is None else every.index(culprit)
    chosen = [b for b in blocks if culprit in call_keys(b.output, context.left)]
    own = isolate(context.left.path, chosen, tolerances, names=names).rows if chosen else ()
    return Bisection(
        reference=str(context.left.path),
        kind="replace",
        tensors=len(keys) + 1,
        most=2 + halvings(len(keys)),
        steps=steps,
        last_good=every[place - 1] if place > 0 else None,
        first_bad=culprit,
        between=[] if culprit is None else [culprit],
        own=[r for r in own if r.output == culprit],
    )


def _culprit(keys: Sequence[str], final: str, good: Callable[[int, int], bool]) -> str | None:
    """The least number of replaced tensors for which the output is good."""
    if good(0, len(keys) + 1):
        return None
    if not good(len(keys), len(keys) + 1):
        return final
    low, high = 0, len(keys)  # bad with `low` replaced, good with `high`
    while high - low > 1:
        middle = (low + high) // 2
        if good(middle, high - low):
            high = middle
        else:
            low = middle
    return keys[high - 1]


def _final(context: Context, final: str, folder: Path, rename: Callable[..., object]) -> TensorRow:
    side = rename(open_side(folder))
    stored = side.tensors.get(final)  # type: ignore[attr-defined]
    if stored is None:
        what = f"the run did not dump {final!r}"
        raise GateError(what, str(folder), "dump it, or name another: --final", code=INVALID)
    return judged(context.stored(final), stored, context.limit(final))


def chain(
    reference: str | Path,
    blocks: Sequence[Block],
    folder: str | Path,
    *,
    framework: str | None = None,
) -> Run:
    """Return a `run` for `bisect_replaced` that calls blocks one after another in this process.

    What no block makes, and what is replaced, is the reference's; the rest is made anew.

    Arguments: a dump with the blocks' first inputs; blocks in order; a folder for the runs' dumps
    (one, written over); the framework, as in `isolate`.

    Raises:
        GateError: on a run, where a block cannot be called.
    """
    context = opened(reference)
    runners = [runner(b, framework) for b in checked(blocks)]
    calls = [(r, k) for r in runners for k in call_keys(r.block.output, context.left)]
    place = {k: n for n, k in enumerate(context.left.tensors)}
    calls.sort(key=lambda c: place.get(c[1], len(place)))

    def run(replaced: Sequence[str]) -> Path:
        made: dict[str, object] = {}
        shutil.rmtree(folder, ignore_errors=True)
        with Dump(folder, side="candidate", command="", environment=False) as d:
            for one, key in calls:
                try:
                    keys = context.inputs(one.block, key)
                    inputs = [made[k] if k in made else context.stored(k).load() for k in keys]
                    value = value_of(one, inputs)  # type: ignore[arg-type]
                except Refused as refused:
                    what = f"the block of {key!r} cannot be called: {refused}"
                    where = f"replaced: {', '.join(replaced) or 'nothing'}"
                    raise GateError(what, where, "gradsweep gate isolate", code=INVALID) from None
                name, _, call = key.partition("#")
                d.put(name, value, call=int(call or 0), source="")
                made[key] = context.stored(key).load() if key in replaced else value
        return Path(folder)

    return run
