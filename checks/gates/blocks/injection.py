"""The reference's tensors given to a program, in any language, in place of its own.

    injection = gates.injected("work", "dump/reference")  # work/in: one raw file a tensor
    injection.run("./port --dump {out}")                  # GATE_INJECT_DIR, GATE_DUMP_DIR
    found = injection.read(candidate="dump/port")

A program takes part by doing this at each point that it dumps, where GATE_INJECT_DIR is set: dump
what it computed, then go on with the values of `<name>.f32` there, if there are any. So each part
runs on the reference's inputs, and what it dumped is its own error. In Python:

    x = gates.inject("enc.block.0.out", d.put("enc.block.0.out", x))

Raw little-endian values in C order: `.f32` for floats of up to 32 bits, else `.f64`, `.i64`,
`.bool`, ...; beside each `<name>.json` with dtype, shape and layout. The second call of a name is
`<name>#1`.
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from checks.gates.blocks.block import Block
from checks.gates.blocks.context import Context, call_keys, judged, opened
from checks.gates.blocks.isolated import OWN, UNCHECKED, BlockRow, Isolation, joint, verdict
from checks.gates.blocks.running import emptied, run_command
from checks.gates.capture.arrays import as_bytes
from checks.gates.capture.folder import INJECT_DIR
from checks.gates.causes.replay import MISMATCH, replayed
from checks.gates.comparison.record import TensorRow
from checks.gates.errors import INVALID, GateError
from checks.gates.formats.manifest import DTYPES, MANIFEST, RUN, RunInfo, dtype_of
from checks.gates.formats.readers import Side, open_side
from checks.gates.formats.stored import Stored, crc32
from checks.gates.naming.names import names_beside, read_names, renamed
from checks.tolerances import constant

SIDE = "injection"  # what run.json calls the side


@dataclass(frozen=True, slots=True)
class Injection:
    """A folder with the reference's tensors in `in`, and room for the candidate's in `out`.

    Arguments:
        folder: holds both.
        reference: the dump that the tensors are of.
        names: rules for the names of the reference's and of the candidate's dump.
    """

    folder: Path
    reference: Path
    names: Path | None = None

    @property
    def given(self) -> Path:
        """Where the reference's tensors are: GATE_INJECT_DIR."""
        return self.folder / "in"

    @property
    def out(self) -> Path:
        """Where the candidate dumps to: GATE_DUMP_DIR."""
        return self.folder / "out"

    def run(self, command: str, timeout: float | None = None) -> Path:
        """Run the candidate under injection; return the folder it dumped to.

        Arguments:
            command: `{in}` and `{out}` stand for both folders; no shell reads it.
            timeout: in seconds.

        Raises:
            GateError: it cannot be started, fails, takes too long, or dumps nothing.
        """
        return run_command(command, self.out, inject=self.given, timeout=timeout)

    def read(
        self,
        tolerances: str | Path | None = None,
        *,
        candidate: str | Path | None = None,
        blocks: Sequence[Block] = (),
        out: str | Path | None = None,
    ) -> Isolation:
        """Return what the candidate dumped under injection against the reference.

        Arguments:
            tolerances, candidate: as in `isolate`.
            blocks: of a Python model that is right: which tensor is made of which, and, by replay,
                why a part is wrong. Without them a manifest's `inputs` tell the first, else each
                tensor is taken to be made of the one before it.
            out: the candidate's dump, where it is not in `out`.

        Raises:
            GateError: a file cannot be used, the candidate dumped nothing of the reference's, or
                did not read what it was given.
        """
        context = opened(self.reference, candidate, tolerances, self.names)
        side = self._side(Path(out) if out is not None else self.out, tolerances)
        parts = producers(context.left, side, blocks)
        wanted = {k for b in blocks for k in call_keys(b.output, context.left)}
        wanted |= {k for n in _contract(context) for k in context.left.calls(n)}
        keys = [
            k for k in context.left.tensors if _is_made(k) and (k in side.tensors or k in wanted)
        ]
        if not any(k in side.tensors for k in keys):
            what = "the candidate dumped no tensor of the reference's"
            raise GateError(what, str(side.path), "use the same names", code=INVALID)
        rows = [self._row(k, parts.get(k, ()), side, context, blocks) for k in keys]
        _check_taken(rows, side, context)
        return Isolation(
            reference=str(context.left.path),
            candidate=None if context.right is None else str(context.right.path),
            tolerances=None if context.contract is None else str(context.contract.path),
            rows=rows,
        )

    def _side(self, out: Path, tolerances: str | Path | None) -> Side:
        side = open_side(out)
        if tolerances is not None:
            return renamed(side, names_beside(Path(tolerances), self.names), "candidate")
        return side if self.names is None else renamed(side, read_names(self.names), "candidate")

    def _row(
        self,
        key: str,
        inputs: tuple[str, ...],
        side: Side,
        context: Context,
        blocks: Sequence[Block],
    ) -> BlockRow:
        row = BlockRow(key, inputs, UNCHECKED)
        if key not in side.tensors:
            return replace(row, note=f"the candidate did not dump it to {side.path}")
        own = judged(context.stored(key), side.tensors[key], context.limit(key))
        total, before = context.total(key), joint(context.total_errors(inputs))
        row = replace(row, own=own, total=total, before=before, note=_shapes(own))
        found = verdict(own, total, row.amplification, constant("gate_amplifies"))
        cause = None
        if found == OWN and blocks:
            # it ran on the reference's inputs: all but its output is theirs
            alone = {**context.left.tensors, key: side.tensors[key]}
            theirs = replace(context.left, tensors=alone)
            cause = replayed(own, context.left, blocks, theirs)
            if cause is None or cause.name == MISMATCH:  # that much is known here
                cause = context.diagnosed(own, side.tensors[key])
        return replace(row, verdict=found, cause=cause)


def injected(
    folder: str | Path,
    reference: str | Path,
    *,
    names: str | Path | None = None,
    only: Sequence[str] | None = None,
) -> Injection:
    """Write the reference's tensors for a candidate to take, and return where.

    Arguments:
        folder: made where absent; an earlier injection there is replaced.
        reference: a dump; its cotangents (`grad.*`) are left out.
        names: rules for names; the files bear canonical ones.
        only: the keys to write; all where None.

    Raises:
        GateError: a file cannot be used, the folder holds something else, a key is unknown.
    """
    rules = None if names is None else read_names(names)
    side = open_side(reference)
    side = side if rules is None else renamed(side, rules, "reference")
    keys = [k for k in side.tensors if _is_made(k)] if only is None else list(only)
    for key in keys:
        if key not in side.tensors:
            raise GateError(f"there is no tensor {key!r}", str(side.path), "name one it holds")
    made = Injection(Path(folder), Path(reference), None if names is None else Path(names))
    try:
        _write(made.given, [side.tensors[k] for k in keys])
    except OSError as error:
        what = f"cannot write: {error.strerror or error}"
        raise GateError(what, str(folder), "choose a folder that can be written") from None
    emptied(made.out)
    return made


def _is_made(key: str) -> bool:
    return not key.startswith("grad.")


def _contract(context: Context) -> Sequence[str]:
    return () if context.contract is None else list(context.contract.limits)


def producers(left: Side, right: Side, blocks: Sequence[Block] = ()) -> dict[str, tuple[str, ...]]:
    """Return what each tensor is made of: by the blocks, a manifest, or the order."""
    found: dict[str, tuple[str, ...]] = {}
    context = Context(left)
    before: tuple[str, ...] = ()
    for key, stored in left.tensors.items():
        if not _is_made(key):
            continue
        theirs = right.tensors[key].tensor.inputs if key in right.tensors else ()
        found[key] = stored.tensor.inputs or theirs or before
        if stored.tensor.role != "debug":
            before = (key,)
    for block in blocks:
        for key in call_keys(block.output, left):
            found[key] = tuple(k for k in context.inputs(block, key))
    return found


def _check_taken(rows: Sequence[BlockRow], side: Side, context: Context) -> None:
    """Refuse a dump that is the candidate's plain one: what was injected changed nothing, although
    inputs were off.
    """
    right = context.right
    if right is None or not any(r.before for r in rows if r.own is not None):
        return
    for row in rows:
        if row.own is None or row.output not in right.tensors:
            continue
        if _crc(side.tensors[row.output]) != _crc(right.tensors[row.output]):
            return
    what = "the candidate dumped the same with injected inputs as with its own"
    fix = f"read <name>.f32 of the folder {INJECT_DIR} after each dump"
    raise GateError(what, str(side.path), fix, code=INVALID)


def _crc(stored: Stored) -> int:
    found = 0
    for chunk in stored.chunks():
        found = crc32(chunk, found)
    return found


def _shapes(own: TensorRow) -> str:
    if own.measured is not None:
        return ""
    return f"shape {list(own.shapes[0] or ())}, the candidate's is {list(own.shapes[1] or ())}"


# --- writing --------------------------------------------------------------------------------

_WIDE = {"bfloat16": "float32", "float16": "float32"}
_WIDE |= {n: "float32" for n in DTYPES if n.startswith("float8")}


def _write(folder: Path, tensors: Sequence[Stored]) -> None:
    """Into a folder beside it, then renamed: nothing is half-written."""
    draft = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    lines = []
    for stored in tensors:
        t = stored.tensor
        dtype = _WIDE.get(t.dtype, t.dtype)
        file = f"{t.key}.{suffix(dtype)}"
        crc = 0
        with (draft / file).open("wb") as out:
            for chunk in stored.chunks():
                values = chunk.astype(dtype_of(dtype), copy=False)
                crc = crc32(values, crc)
                out.write(as_bytes(values))
        facts = {"dtype": suffix(dtype), "shape": list(t.shape), "layout": "row-major"}
        text = json.dumps({"name": t.key} | facts)
        (draft / f"{t.key}.json").write_text(text + "\n", encoding="utf-8")
        made = replace(t, dtype=dtype, file=file, offset=0, crc32=crc, inputs=(), statistics=None)
        lines.append(made.to_line() + "\n")
    (draft / MANIFEST).write_text("".join(lines), encoding="utf-8")
    (draft / RUN).write_text(RunInfo(side=SIDE).to_text(), encoding="utf-8")
    if folder.exists():
        _check_ours(folder)
        shutil.rmtree(folder)
    os.replace(draft, folder)


def _check_ours(folder: Path) -> None:
    if not any(folder.iterdir()):
        return
    run = open_side(folder).run if (folder / MANIFEST).exists() else None
    if run is None or run.side != SIDE:
        what = "the folder holds something that is no injection"
        raise GateError(what, str(folder), "name another folder")


def suffix(dtype: str) -> str:
    """Return how a raw file of that dtype ends: f32, f64, i64, u8, bool, c64."""
    if dtype == "bool":
        return dtype
    kind = {"float": "f", "int": "i", "uint": "u", "complex": "c"}
    word = dtype.rstrip("0123456789")
    return kind[word] + dtype.removeprefix(word)


def _short(dtype: str) -> str:
    return suffix(dtype)
