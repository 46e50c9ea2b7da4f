"""What a tolerance file would let through: a reference's tensors, each wrong in a known way."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from checks.gates.causes.case import LIMIT, rms
from checks.gates.comparison.measure import measure
from checks.gates.comparison.plain import plain
from checks.gates.comparison.record import OK, TensorRow
from checks.gates.errors import INVALID, GateError
from checks.gates.formats.manifest import GATE
from checks.gates.formats.readers import Side, open_side
from checks.gates.formats.statistics import doubles
from checks.gates.formats.stored import Array, Stored
from checks.gates.limits.contract import Contract, Limit, read_contract
from checks.gates.naming.names import Names, names_beside, renamed
from checks.tolerances import constant

_HEADS = (8, 4, 2)
_TF32_DROPPED = 13  # of the 23 bits after the point of a float32


@dataclass(frozen=True, slots=True)
class Tried:
    """One mutant of one tensor.

    Arguments:
        mutant: how it is wrong.
        caught: whether its limits, or an entry that is not finite, fail it.
        used: the larger of max_abs and mean_abs, of what is allowed; nan where not finite.
        systematic: whether a comparison would call the error systematic, though it passes.
    """

    mutant: str
    caught: bool
    used: float
    systematic: bool


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The mutants of one tensor."""

    name: str
    role: str
    tried: tuple[Tried, ...]

    @property
    def let_through(self) -> tuple[Tried, ...]:
        """Those that pass."""
        return tuple(t for t in self.tried if not t.caught)


def sensitivity(
    reference: str | Path,
    tolerances: str | Path,
    *,
    names: str | Path | None = None,
    only: Callable[[str], bool] = lambda name: True,
) -> Iterator[Sensitivity]:
    """Yield, for each contract tensor in order, which of its mutants the limits would let through.

    Mutants that change nothing (a constant tensor rolled, bfloat16 rounded to bfloat16) are not
    tried. Of a tensor of more than four million entries the first rows are looked at.

    Arguments:
        reference: see `open_side`.
        tolerances: see `read_contract`.
        names: rules and roles, as in `compare`.
        only: which names.

    Raises:
        GateError: a file cannot be used, a contract tensor is missing, none is chosen.
    """
    contract = read_contract(tolerances)
    rules = names_beside(contract.path, names)
    side = renamed(open_side(reference), rules, "reference")
    missing = [n for n in contract.limits if only(n) and not side.calls(n)]
    if missing:
        what = f"the contract tensor {missing[0]!r} is missing on the reference"
        raise GateError(what, str(side.path), "dump it, or remove it from the file", code=INVALID)
    keys = [k for k, s in side.tensors.items() if _chosen(s, contract, only)]
    if not keys:
        what = "no contract tensors: nothing was tried"
        raise GateError(what, str(contract.path), "choose others with --only", code=INVALID)
    for key in keys:
        yield _of_tensor(side, key, contract, rules)


def _chosen(stored: Stored, contract: Contract, only: Callable[[str], bool]) -> bool:
    return stored.tensor.name in contract.limits and only(stored.tensor.name)


def _of_tensor(side: Side, key: str, contract: Contract, rules: Names) -> Sensitivity:
    stored = side.tensors[key]
    name = stored.tensor.name
    array = _loaded(stored)
    limit, role = contract.limits[name], rules.role(name, stored.tensor.role)
    lost = role == GATE and not np.isfinite(doubles(array)).all()
    if lost or not array.size:
        what = "has entries that are not finite" if lost else "holds no values"
        fix = "dump the logits before the softmax" if lost else "dump it with a larger input"
        where = f"{side.path}: tensor {key!r}"
        raise GateError(f"the reference {key!r} {what}", where, fix, code=INVALID)
    tried = []
    for mutant, made in mutants(array):
        with np.errstate(all="ignore"):
            same = np.ascontiguousarray(made).tobytes() == np.ascontiguousarray(array).tobytes()
        if not same and not _equal(array, made):
            tried.append(_judged(mutant, array, made, limit, stored))
    return Sensitivity(key, role, tuple(tried))


def _loaded(stored: Stored) -> Array:
    size, shape = stored.tensor.size, stored.tensor.shape
    return stored.load(None if size <= LIMIT or not shape else max(1, LIMIT * shape[0] // size))


def _equal(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))


def _judged(mutant: str, array: Array, made: Array, limit: Limit, stored: Stored) -> Tried:
    sides = [_held(stored, a) for a in (array, made)]
    m = measure(sides[0], sides[1])
    tensor = sides[0].tensor
    both = (tensor.shape, tensor.shape), (tensor.dtype, tensor.dtype)
    row = TensorRow(mutant, GATE, OK, limit, *both, measured=m)
    caught = not limit.passes(m.max_abs, m.mean_abs)  # nan where an entry is not finite
    used = max(_of(m.max_abs, limit.max_abs), _of(m.mean_abs, limit.mean_abs))
    return Tried(mutant, caught, used, row.systematic and not caught)


def _of(value: float, limit: float) -> float:
    if math.isnan(value):
        return math.nan
    return value / limit if limit else (math.inf if value else 0.0)


def _held(stored: Stored, array: Array) -> Stored:
    tensor = replace(stored.tensor, shape=array.shape, crc32=None)
    return replace(stored, tensor=tensor, derived=lambda: array)


def mutants(array: Array) -> Iterator[tuple[str, Array]]:
    """Yield the name of each mutant and the tensor, of the same shape and dtype."""
    if not array.size:
        return
    yield from _moved(array)
    yield from _cut(array)
    if array.dtype.kind in "iub":
        yield from _whole_numbers(array)
    else:
        yield from _numbers(array)


def _moved(x: Array) -> Iterator[tuple[str, Array]]:
    """What stands in another place: axes, rolls, heads."""
    for a in range(x.ndim):
        for b in range(a + 1, x.ndim):
            if x.shape[a] == x.shape[b] > 1:
                yield f"transposed {a}, {b}", np.swapaxes(x, a, b).copy()
    for axis in range(x.ndim):
        if x.shape[axis] > 1:
            yield f"roll 1 along {axis}", np.roll(x, 1, axis)
    width = x.shape[-1] if x.ndim else 1
    heads = next((h for h in _HEADS if width % h == 0 and width >= 2 * h), 0)
    if heads:
        split = x.reshape(*x.shape[:-1], heads, width // heads).copy()
        split[..., [0, 1], :] = split[..., [1, 0], :]
        yield f"heads swapped, of {heads}", split.reshape(x.shape)


def _cut(x: Array) -> Iterator[tuple[str, Array]]:
    """What is left out or repeated: a channel, the last token, the last row."""
    if x.ndim < 2:
        return
    made = x.copy()
    size = np.sqrt(np.mean(np.abs(_wide(x)) ** 2, axis=tuple(range(x.ndim - 1))))
    made[..., int(np.argsort(size, kind="stable")[size.size // 2])] = 0
    yield "dead channel", made
    if x.shape[-2] > 1:
        made = x.copy()
        made[..., -1, :] = x[..., -2, :]
        yield "last token repeated", made
    made = x.copy()
    made[..., -1, :] = 0
    yield "last row zeroed", made


def _whole_numbers(x: Array) -> Iterator[tuple[str, Array]]:
    made = x.copy()
    at = x.size // 2
    made.flat[at] = made.flat[at] ^ 1
    yield "one entry off by one", made


def _numbers(x: Array) -> Iterator[tuple[str, Array]]:
    """What changes the values where they stand."""
    wide = _wide(x)
    finite = np.where(np.isfinite(wide), wide, 0)
    fine = constant("gate_mutant_fine")
    for by in (fine, constant("gate_mutant_coarse")):
        yield f"scaled by {1 + by:g}", _narrow(wide * (1 + by), x)
    yield f"offset by {fine:g} rms", _narrow(wide + fine * rms(np.abs(finite)), x)
    yield "epsilon of a row norm", _narrow(wide * _epsilon(finite), x)
    at = int(np.argsort(np.abs(finite), axis=None, kind="stable")[x.size // 2])
    made = x.copy()
    made.flat[at] = -made.flat[at]
    yield "one sign turned", made
    made = x.copy()
    made.flat[x.size // 2] = np.nan
    yield "one NaN", made
    if x.dtype.kind != "c":
        yield "rounded to bfloat16", _narrow(wide.astype(ml_dtypes.bfloat16), x)
        yield "rounded to tf32", _narrow(_tf32(wide), x)


def _epsilon(x: Array) -> Array:
    """The factor of each row that another epsilon makes in x / sqrt(mean(x^2) + epsilon)."""
    square = np.mean(np.abs(x) ** 2, axis=-1, keepdims=True) if x.ndim else np.abs(x) ** 2
    right, wrong = constant("gate_mutant_eps_right"), constant("gate_mutant_eps")
    factor: Array = np.sqrt((square + right) / (square + wrong))
    return factor


def _tf32(x: Array) -> Array:
    """Rounded to nearest, ties to even, at ten bits after the point."""
    with np.errstate(all="ignore"):
        bits = x.astype(np.float32).view(np.uint32)
    half = np.uint32((1 << (_TF32_DROPPED - 1)) - 1)
    rounded = bits + half + ((bits >> np.uint32(_TF32_DROPPED)) & np.uint32(1))
    kept = (rounded >> np.uint32(_TF32_DROPPED)) << np.uint32(_TF32_DROPPED)
    return np.where(np.isfinite(x), kept.view(np.float32), x)


def _wide(x: Array) -> Array:
    with np.errstate(all="ignore"):
        return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _narrow(values: Array, like: Array) -> Array:
    with np.errstate(all="ignore"):
        return values.astype(like.dtype)


def counted(found: Sequence[Sensitivity]) -> tuple[int, int]:
    """Return how many mutants were caught and tried: of the gates, where there are any."""
    gates = [s for s in found if s.role == GATE] or found
    tried = [t for s in gates for t in s.tried]
    return sum(t.caught for t in tried), len(tried)


def to_record(found: Sequence[Sensitivity], reference: str, tolerances: str) -> dict[str, Any]:
    """Return the whole as one JSON object; NaN and infinities as text."""
    caught, tried = counted(found)
    return {
        "reference": reference,
        "tolerances": tolerances,
        "caught": caught,
        "tried": tried,
        "share": caught / tried if tried else None,
        "tensors": [
            {
                "name": s.name,
                "role": s.role,
                "mutants": [
                    {
                        "mutant": t.mutant,
                        "caught": t.caught,
                        "used": plain(t.used),
                        "systematic": t.systematic,
                    }
                    for t in s.tried
                ],
            }
            for s in found
        ],
    }
