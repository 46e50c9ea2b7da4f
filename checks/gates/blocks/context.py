"""What an isolation looks tensors up in: both dumps, the limits, and the figures found so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import numpy as np

from autodiff.errors import nearest
from checks.gates.blocks.block import Block
from checks.gates.causes.diagnosis import cause as diagnosed
from checks.gates.comparison.measure import measure
from checks.gates.comparison.record import NONFINITE, OK, OVER, SHAPE, Cause, TensorRow
from checks.gates.errors import INVALID, GateError
from checks.gates.formats.manifest import DEBUG, GATE, Tensor, dtype_name
from checks.gates.formats.readers import Side, open_side
from checks.gates.formats.statistics import statistics
from checks.gates.formats.stored import Array, Stored
from checks.gates.limits.contract import Contract, Limit, provisional, read_contract
from checks.gates.naming.names import Names, names_beside, read_names, renamed


class Refused(Exception):
    """Why one block cannot be checked; the others still are."""


@dataclass(frozen=True, slots=True)
class Context:
    """Both sides and the limits.

    Arguments:
        left: the reference.
        right: the candidate's own dump; None where there is none.
        contract: the tolerance file; None where there is none.
        totals: rows of the candidate's own dump, as they are asked for.
        limits: likewise.
    """

    left: Side
    right: Side | None = None
    contract: Contract | None = None
    totals: dict[str, TensorRow | None] = field(default_factory=dict)
    limits: dict[str, Limit] = field(default_factory=dict)

    def stored(self, key: str) -> Stored:
        """Return a tensor of the reference.

        Raises:
            Refused: it was not dumped.
        """
        if key in self.left.tensors:
            return self.left.tensors[key]
        hint = nearest(key, self.left.tensors)
        raise Refused(f"the reference has no {key!r}" + (f": {hint}" if hint else ""))

    def inputs(self, block: Block, output: str) -> tuple[str, ...]:
        """Return the keys of a block's inputs for one call of its output: those of the same call.

        An input that was dumped once serves every call.

        Raises:
            Refused: one was dumped several times, but not in that call.
        """
        return tuple(self._input(name, output) for name in block.inputs)

    def _input(self, name: str, output: str) -> str:
        plain, mark, call = name.partition("#")
        if mark:
            return name if int(call) else plain
        number = output.partition("#")[2]
        calls = self.left.calls(name)
        key = f"{name}#{number}" if number else name
        if key in self.left.tensors or not number or not calls:
            return key
        if len(calls) == 1:
            return calls[0]
        raise Refused(f"the reference has {len(calls)} calls of {name!r}, and none {number}")

    def limit(self, key: str) -> Limit:
        """Return how far a tensor may be off: by the file, else by the reference's own figures."""
        name = key.partition("#")[0]
        if self.contract is not None and name in self.contract.limits:
            return self.contract.limits[name]
        if key not in self.limits:
            self.limits[key] = provisional([statistics(self.stored(key).chunks())])
        return self.limits[key]

    def against(self, key: str, found: Array) -> TensorRow:
        """Return a computed array against the reference's tensor."""
        return judged(self.stored(key), in_memory(key, found), self.limit(key))

    def cause(self, own: TensorRow, found: Array | None) -> Cause | None:
        """Return why a computed array is off, from it and the reference's tensors."""
        return None if found is None else self.diagnosed(own, in_memory(own.name, found))

    def diagnosed(self, own: TensorRow, found: Stored) -> Cause | None:
        """As `cause`, for a tensor stored anywhere."""
        alone = {**self.left.tensors, own.name: found}
        rows = [
            own
            if key == own.name
            else TensorRow(key, DEBUG, OK, None, (t.shape, None), (t.dtype, None))
            for key, t in ((k, s.tensor) for k, s in self.left.tensors.items())
        ]
        return diagnosed(own, rows, self.left, replace(self.left, tensors=alone))

    def total(self, key: str) -> TensorRow | None:
        """Return the candidate's own tensor against the reference's; None where one is absent."""
        if self.right is None or key not in self.right.tensors or key not in self.left.tensors:
            return None
        if key not in self.totals:
            self.totals[key] = judged(self.stored(key), self.right.tensors[key], self.limit(key))
        return self.totals[key]

    def total_errors(self, keys: Sequence[str]) -> list[float | None]:
        """Return the relative error (rms) of tensors of the candidate; None where unknown."""
        rows = [self.total(k) for k in keys]
        return [r.measured.relative_rms if r and r.measured else None for r in rows]


def opened(
    reference: str | Path,
    candidate: str | Path | None = None,
    tolerances: str | Path | None = None,
    names: str | Path | None = None,
) -> Context:
    """Open what an isolation needs.

    Raises:
        GateError: a file cannot be used, or the runs' inputs differ.
    """
    contract = None if tolerances is None else read_contract(tolerances)
    if contract is not None:
        rules = names_beside(contract.path, names)
    else:
        rules = Names() if names is None else read_names(names)
    left = renamed(open_side(reference), rules, "reference")
    right = None if candidate is None else renamed(open_side(candidate), rules, "candidate")
    if right is not None:
        _same_inputs(left, right)
    return Context(left, right, contract)


def _same_inputs(left: Side, right: Side) -> None:
    ours = left.run.input_hashes if left.run else {}
    theirs = right.run.input_hashes if right.run else {}
    for name in ours:
        if name in theirs and ours[name] != theirs[name]:
            what = f"the inputs differ: {name!r} has hash {ours[name]} and {theirs[name]}"
            where = f"{left.path} and {right.path}"
            raise GateError(what, where, "run both sides on the same input", code=INVALID)


def call_keys(output: str, left: Side) -> list[str]:
    """Return the keys of a block's output: the one call it names, else every call there is."""
    name, mark, call = output.partition("#")
    if mark:
        return [output if int(call) else name]
    return left.calls(name) or [name]


def in_memory(key: str, values: Array) -> Stored:
    """Return an array as a stored tensor."""
    name, _, call = key.partition("#")
    dtype = dtype_name(values.dtype.name, key)
    tensor = Tensor(name, dtype, values.shape, "-", call=int(call or 0))
    little = values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))
    return Stored(tensor, Path("-"), _nowhere, derived=lambda: np.ascontiguousarray(little))


def _nowhere() -> IO[bytes]:  # a stored tensor that is derived is never opened
    raise AssertionError


def judged(reference: Stored, candidate: Stored, limit: Limit) -> TensorRow:
    """Return a pair's row: its figures, and whether it is within its limit."""
    r, c = reference.tensor, candidate.tensor
    shapes, dtypes = (r.shape, c.shape), (r.dtype, c.dtype)
    if r.shape != c.shape:
        return TensorRow(r.key, GATE, SHAPE, limit, shapes, dtypes)
    found = measure(reference, candidate)
    good = limit.passes(found.max_abs, found.mean_abs)
    status = NONFINITE if found.disagreements else OK if good else OVER
    return TensorRow(r.key, GATE, status, limit, shapes, dtypes, found)
