"""Write the tensors of a run into a folder, for the gate to compare with those of another run.

    with gates.Dump("dump/reference", side="reference", family="toy", seed=0) as d:
        tokens = d.input("tokens", tokens)
        d.attach(model, {"enc.block.{N}.out": "layers.*"}, pick="first,mid,last")  # PyTorch
        d.put("dec.logits_raw", model(tokens), dims="batch time word")

and inside programs `x = ad.tap("enc.block.0.out", x)`, or `gates.jax_tap` under `jax.jit`.

The folder holds one file per tensor, `manifest.jsonl` with one line per tensor in the order of
execution, and `run.json`. A tensor's values are written first and its line last, so that a line
always speaks of whole values, whenever the run ends.
"""

import contextlib
import datetime
import fnmatch
import os
import shlex
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from autodiff.errors import nearest
from checks.gates.capture.arrays import (
    FORMATS,
    as_array,
    digest,
    file_name,
    folded,
    suffix,
    write,
)
from checks.gates.capture.folder import (
    DUMP_ONLY,
    append,
    destination,
    prepare,
    unwritable,
)
from checks.gates.capture.run import caller, thread_count, versions
from checks.gates.errors import GateError
from checks.gates.formats.manifest import (
    GATE,
    MANIFEST,
    ROLES,
    RUN,
    RunInfo,
    Tensor,
    check_side,
    check_words,
)
from checks.gates.formats.transcript import TRANSCRIPT, write_transcript


class Dump:
    """An open dump of one side of a comparison; a context manager.

    The environment decides, as `gradsweep gate bisect` and `isolate` set it: where GATE_DUMP_DIR
    names a folder, the candidate's dump goes there, another side's to a folder of its name inside,
    and the folder given stays as it is; where GATE_DUMP_ONLY holds names or patterns, separated by
    commas, no other tensor is written, and no dump in the folder given is replaced.

    A name put again is its next call: `dec.logits`, `dec.logits#1`, ... The calls of one name may
    differ in shape and dtype (a decode step with a longer cache). Any thread may put.

    Arguments:
        folder: made where absent; it must be empty, or hold a dump and `overwrite` be given.
        side: "candidate", "reference", or "reference64", the reference computed in float64.
        family: the model's family, which names the tolerance file.
        command: what was run; the command line of this process by default.
        seed, dtype_policy, device: as in `RunInfo`.
        threads: by default PyTorch's, else OMP_NUM_THREADS, else unknown.
        roles: role by glob pattern of names, the first that matches: for taps and hooks, which
            name no role; each must match.
        file_format: "npy" (bfloat16 and float8 raw, which .npy cannot name) or "safetensors".
        overwrite: remove the dump that the folder holds; files of others stay.
        environment: obey GATE_DUMP_DIR and GATE_DUMP_ONLY. `folder` says where it is written.

    Raises:
        GateError: an argument is wrong, or GATE_DUMP_DIR is another candidate's; on entering, where
            the folder cannot be used; on leaving, where what was asked for was never seen: an
            attached module, a pattern of `roles`, a gradient.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        side: str,
        family: str = "",
        command: str | None = None,
        seed: int | None = None,
        dtype_policy: str = "",
        device: str = "",
        threads: int | None = None,
        roles: Mapping[str, str] | None = None,
        file_format: str = "npy",
        overwrite: bool = False,
        environment: bool = True,
    ) -> None:
        if file_format not in FORMATS:
            what = f"unknown file format {file_format!r}"
            raise GateError(what, "Dump(file_format=...)", f"write one of {', '.join(FORMATS)}")
        self._format, self._overwrite, self._told = file_format, overwrite, environment
        self._roles = {p: _role(r, f"roles[{p!r}]") for p, r in (roles or {}).items()}
        self._run = RunInfo(
            side=check_side(side),
            family=family,
            dtype_policy=dtype_policy,
            threads=threads,
            seed=seed,
            command=shlex.join(sys.argv) if command is None else command,
            device=device,
        )
        self.folder = destination(Path(folder), side) if environment else Path(folder)
        told = os.environ.get(DUMP_ONLY, "") if environment else ""
        self._only = [p for p in told.split(",") if p]
        self._hashes: dict[str, str] = {}
        self._lock = threading.RLock()
        self._open = False
        self._seq, self._calls = 0, dict[str, int]()
        self._keys, self._files, self._used = set[str](), set[str](), set[str]()
        self._errors: list[BaseException] = []
        self._stack = contextlib.ExitStack()
        self._hooks: Any = None

    # --- opening and closing ---

    def __enter__(self) -> Self:
        from checks.gates.capture.taps import listening

        if self._seq or self._open:
            raise GateError("a Dump is entered once", str(self.folder), "make another Dump")
        try:
            prepare(self.folder, self._overwrite, self._told)
            self._write_run(finished=False)
        except OSError as error:
            raise unwritable(self.folder, error) from None
        with contextlib.ExitStack() as stack:
            stack.enter_context(listening(self))
            self._stack = stack.pop_all()
        self._open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._stack.close()
        finally:
            self._open = False
        if error is not None:
            return
        if self._errors:
            raise self._errors[0]
        if self._hooks is not None:
            self._hooks.check()
        if idle := [p for p in self._roles if p not in self._used]:
            what = f"the role pattern {idle[0]!r} matched no tensor"
            fix = nearest(idle[0], self._calls) or "correct the pattern, or remove it"
            raise GateError(what, f"Dump(roles=...) of {self.folder}", fix)
        self._write_run(finished=True)

    def _write_run(self, finished: bool) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        run = self._run
        text = RunInfo(
            side=run.side,
            family=run.family,
            versions=versions(),
            dtype_policy=run.dtype_policy,
            threads=thread_count() if run.threads is None else run.threads,
            seed=run.seed,
            input_hashes=self._hashes,
            command=run.command,
            device=run.device,
            finished=now if finished else "",
        ).to_text()
        part = self.folder / f".{RUN}.part"
        part.write_text(text, encoding="utf-8")
        os.replace(part, self.folder / RUN)

    # --- tensors ---

    def put(
        self,
        name: str,
        array: Any,
        *,
        role: str | None = None,
        dims: str = "",
        inputs: Iterable[str] = (),
        call: int | None = None,
        source: str | None = None,
    ) -> Any:
        """Write a tensor as it is now; return it unchanged.

        Arguments:
            name: canonical dotted name, such as "enc.block.3.out".
            array: a NumPy, JAX or PyTorch array of any layout, or a number.
            role: gate, informational or debug; by default that of `roles`, else gate.
            dims: names of its axes, such as "batch time feature".
            inputs: the keys of the tensors or inputs it was computed from, put before.
            call: which call of that name this is; the next by default.
            source: the line it comes from; the caller's by default.

        Raises:
            GateError: the dump is not open, the array holds no numbers, a name is no name or a
                producer is unknown, a call is there already, the file cannot be written.
        """
        check_words(name)
        if not self._wanted(name):
            return array
        values = as_array(array, name)
        with self._lock:
            self._check_open(f"tensor {name!r}")
            number = self._calls.get(name, 0) if call is None else call
            key = f"{name}#{number}" if number else name
            if key in self._keys:
                what = f"call {number} of {name!r} was dumped already"
                raise GateError(what, str(self.folder), "leave out call=, or dump it once")
            self._write(
                values,
                name=name,
                call=number,
                role=self._role_of(name) if role is None else _role(role, f"tensor {name!r}"),
                dims=dims,
                inputs=self._producers(inputs, name),
                source=caller() if source is None else source,
            )
            self._keys.add(key)
            self._calls[name] = max(self._calls.get(name, 0), number + 1)
        return array

    def _write(self, values: Any, **facts: Any) -> None:
        dtype = values.dtype.name
        tensor = Tensor(dtype=dtype, shape=values.shape, file="-", seq=self._seq, **facts)
        file = file_name(tensor.key) + suffix(dtype, self._format)
        while folded(file) in self._files:
            file = f"{self._seq}-{file}"
        path = self.folder / file
        try:
            crc, figures = write(path, values, tensor.key)
            line = Tensor(
                dtype=dtype,
                shape=values.shape,
                file=file,
                seq=self._seq,
                crc32=crc,
                statistics=figures,
                **facts,
            ).to_line()
            append(self.folder / MANIFEST, line + "\n")
        except OSError as error:
            raise unwritable(path, error) from None
        self._files.add(folded(file))
        self._seq += 1

    def input(self, name: str, array: Any) -> Any:
        """Note the hash of an input of the run in run.json; return the input unchanged.

        Two runs are compared only where the hashes of their inputs agree. Integers hash by value,
        whatever their width.

        Raises:
            GateError: the dump is not open, the array holds no numbers, or the name was used for
                another input.
        """
        check_words(name)
        found = digest(as_array(array, name))
        with self._lock:
            self._check_open(f"input {name!r}")
            if self._hashes.setdefault(name, found) != found:
                what = f"{name!r} names two inputs of different values"
                raise GateError(what, str(self.folder), f'd.input("{name}.1", ...) for the second')
            self._write_run(finished=False)
        return array

    def transcript(
        self, text: str | None = None, tokens: Iterable[int | str] | None = None
    ) -> None:
        """Write transcript.json, what the run said: the gate tells whether that changed.

        Raises:
            GateError: the dump is not open, there is neither, a token is neither an integer nor a
                text, the file cannot be written.
        """
        self._check_open(TRANSCRIPT)
        try:
            write_transcript(self.folder, text, tokens)
        except OSError as error:
            raise unwritable(self.folder / TRANSCRIPT, error) from None

    # --- PyTorch modules ---

    def attach(
        self,
        model: Any,
        points: Mapping[str, str],
        *,
        pick: str = "first,mid,last",
    ) -> None:
        """Dump the outputs of a PyTorch model's modules at every call, until the dump is closed.

        The hooks only read. A model under `torch.compile` stops at each of them, which may change
        what is fused, and so last bits; any other model's results stay the same bit for bit.

        Arguments:
            model: a `torch.nn.Module`.
            points: pattern of module paths by name, such as {"enc.block.{N}.out": "layers.*"}:
                `*` and `{N}` stand for one part of a path; an output that is a tuple or dict
                needs the place of its tensor, as in "layers.*:0" or "decoder:hidden.0".
            pick: which of the matches of a pattern: "all", or a list of first, mid, last and
                positions.

        Raises:
            GateError: a pattern matches no module, two modules have one name, `pick` is unknown.
        """
        self._check_open("attach")
        self._torch().attach(model, points, pick)

    def grads(self) -> None:
        """Dump gradients too, in backward: `grad.NAME` of the outputs attached as NAME, and
        `grad.param.PATH` of the trainable parameters of attached models.

        Raises:
            GateError: nothing was attached.
        """
        self._check_open("grads")
        self._torch().grads()

    def _torch(self) -> Any:
        from checks.gates.capture.torch_modules import Hooks

        if self._hooks is None:
            self._hooks = Hooks(self)
            self._stack.callback(self._hooks.remove)
        return self._hooks

    # --- small parts ---

    def keep_error(self, error: BaseException) -> None:
        """Raise an error on leaving: it happened where raising it would not reach the caller."""
        self._errors.append(error)

    def has(self, key: str) -> bool:
        """Whether a tensor of that key was dumped."""
        return key in self._keys

    def _check_open(self, where: str) -> None:
        if not self._open:
            raise GateError("the dump is not open", where, "with gates.Dump(...) as d:")

    def _wanted(self, name: str) -> bool:
        """Whether it is to be written; where not, its role counts as used all the same."""
        only = self._only  # a name that holds [0] is no pattern that matches itself
        if not only or name in only or any(fnmatch.fnmatchcase(name, p) for p in only):
            return True
        self._check_open(f"tensor {name!r}")
        self._role_of(name)
        return False

    def _role_of(self, name: str) -> str:
        matching = [p for p in self._roles if fnmatch.fnmatchcase(name, p)]
        self._used.update(matching)
        return self._roles[matching[0]] if matching else GATE

    def _producers(self, inputs: Iterable[str], name: str) -> tuple[str, ...]:
        found = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        if self._only:  # those that were not written are named nowhere
            found = tuple(k for k in found if k in self._keys or k in self._hashes)
        for key in found:
            if key not in self._keys and key not in self._hashes:
                what = f"its producer {key!r} was not dumped before it"
                fix = nearest(str(key), [*self._keys, *self._hashes]) or f'd.put("{key}", ...)'
                raise GateError(what, f"tensor {name!r}", fix)
        return found


def _role(role: object, where: str) -> str:
    if role not in ROLES:
        raise GateError(f"unknown role {role!r}", where, f"write {', '.join(ROLES)}")
    return str(role)
