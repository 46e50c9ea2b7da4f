"""One line of a dump's manifest, and what run.json says: records that check themselves."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from autodiff.errors import nearest
from checks.gates.errors import GateError

MANIFEST, RUN = "manifest.jsonl", "run.json"
GATE, INFORMATIONAL, DEBUG = ROLES = ("gate", "informational", "debug")
CANDIDATE, *_ = SIDES = ("candidate", "reference", "reference64")

_NUMPY = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
_EXTENDED = "bfloat16 float8_e4m3fn float8_e5m2".split()
DTYPES: dict[str, npt.DTypeLike] = {
    **{name: np.dtype(name).newbyteorder("<") for name in [*_NUMPY, "complex64", "complex128"]},
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in _EXTENDED},
}
_ALIASES = {
    **{f"{'f' if n.startswith('float') else n[0]}{n.lstrip('uintfloa')}": n for n in _NUMPY[1:]},
    **{"bf16": "bfloat16", "f8_e4m3": "float8_e4m3fn", "f8_e5m2": "float8_e5m2"},
    **{"c64": "complex64", "c128": "complex128", "half": "float16", "double": "float64"},
    **{"pred": "bool", "bool_": "bool"},
}
_CODE = re.compile(r"[<=|]?[?biufc]\w*")  # what NumPy may be asked: it parses whole expressions
MOST_AXES = 64  # of a NumPy array


def dtype_name(text: str, where: str = "dtype") -> str:
    """Return the canonical name of a dtype: "f32", "F32", "<f4" and "torch.float32" are float32.

    Raises:
        GateError: there is no such dtype, or it is big-endian.
    """
    plain = text.rpartition(".")[2]
    name = _ALIASES.get(plain.lower(), plain.lower())
    if name in DTYPES:
        return name
    try:
        found = np.dtype(plain) if _CODE.fullmatch(plain) else None
    except TypeError:
        found = None
    if found is not None and found.name in DTYPES and found.byteorder != ">":
        return found.name
    hint = nearest(name, DTYPES)
    what = f"unknown dtype {text!r}" + (f": {hint}" if hint else "")
    raise GateError(what, where, "write one of " + ", ".join(DTYPES))


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the little-endian NumPy dtype of a canonical name."""
    return np.dtype(DTYPES[name])


@dataclass(frozen=True, slots=True)
class Statistics:
    """Figures of one tensor in float64, over its finite entries; None where there are none.

    Arguments:
        min, max, mean, rms: of the finite entries (of the moduli where complex).
        p99_abs: the 99th percentile of |x|.
        absmax: the largest |x|.
        nan, posinf, neginf, zero: counts.
    """

    min: float | None = None
    max: float | None = None
    mean: float | None = None
    rms: float | None = None
    p99_abs: float | None = None
    absmax: float | None = None
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    zero: int = 0

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.default == 0:
                good = type(value) is int and value >= 0
            else:
                good = value is None or (_is_real(value) and math.isfinite(value))
            if not good:
                what = f"statistics: {f.name} is no {'count' if f.default == 0 else 'number'}"
                raise GateError(f"{what}: {value!r}", f.name, "leave the statistics out")

    @property
    def nonfinite(self) -> int:
        """How many entries are NaN or infinite."""
        return self.nan + self.posinf + self.neginf


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a dump: a line of manifest.jsonl.

    Arguments:
        name: canonical dotted name, such as "enc.block.3.out".
        dtype: canonical dtype name (see `DTYPES`).
        shape: its shape, C order.
        file: path relative to the folder: .npy, .safetensors (under `key`), else raw
            little-endian values.
        seq: its place in the order of execution.
        call: which call of that name it is, from 0.
        role: gate, informational or debug.
        dims: names of the axes, such as "b t f"; "" where unknown.
        offset: where raw values begin in the file.
        crc32: of the values' bytes (C order, little-endian, no header); None where not taken.
        inputs: keys of the tensors that it was computed from.
        source: the line of code that dumped it.
        statistics: None where not taken.

    Raises:
        GateError: a field is none of the values it may take.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    seq: int = 0
    call: int = 0
    role: str = GATE
    dims: str = ""
    offset: int = 0
    crc32: int | None = None
    inputs: tuple[str, ...] = ()
    source: str = ""
    statistics: Statistics | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        where = f"tensor {self.name!r}"
        if self.dtype not in DTYPES:
            raise GateError(f"unknown dtype {self.dtype!r}", where, "use dtype_name(...)")
        for name in ("seq", "call", "offset"):
            _count(getattr(self, name), name, where)
        if not isinstance(self.shape, tuple):
            raise GateError(f"shape is no tuple: {self.shape!r}", where, "pass array.shape")
        for n in self.shape:
            _count(n, "an axis of shape", where)
        if len(self.shape) > MOST_AXES:
            what = f"{len(self.shape)} axes: an array has {MOST_AXES} at most"
            raise GateError(what, where, "join some of them")
        if self.role not in ROLES:
            what = f"unknown role {self.role!r}"
            raise GateError(what, where, "write gate, informational or debug")
        for name in ("dims", "source"):
            if not isinstance(getattr(self, name), str):
                raise GateError(f"{name} is no text: {getattr(self, name)!r}", where, 'write ""')
        if self.dims and len(self.dims.split()) != len(self.shape):
            what = f"dims {self.dims!r} name {len(self.dims.split())} axes of {len(self.shape)}"
            raise GateError(what, where, "name every axis, or none")
        if self.crc32 is not None:
            _count(self.crc32, "crc32", where)
        if not all(isinstance(i, str) for i in self.inputs):
            raise GateError(f"inputs are no keys: {self.inputs!r}", where, "pass names")
        _check_file(self.file, where)

    @property
    def key(self) -> str:
        """What tells it from all others of its side: the name, and "#call" from the second on."""
        return self.name if not self.call else f"{self.name}#{self.call}"

    @property
    def size(self) -> int:
        """How many entries it has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes its values take."""
        return self.size * dtype_of(self.dtype).itemsize

    def to_line(self) -> str:
        """Return the tensor as one line of JSON; fields at their default are left out."""
        every = {f.name: (f, getattr(self, f.name)) for f in fields(self)}
        kept: dict[str, Any] = {
            name: value
            for name, (f, value) in every.items()
            if f.default is MISSING or name == "seq" or value != f.default
        }
        if self.statistics is not None:
            kept["statistics"] = asdict(self.statistics)
        return json.dumps(kept, allow_nan=False, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str, where: str = MANIFEST, seq: int = 0) -> "Tensor":
        """Return the tensor of one line; `seq` is its place where the line says none.

        Raises:
            GateError: not JSON, an unknown or absent field, a wrong value.
        """
        record = parsed(line, where)
        known = [f.name for f in fields(cls)]
        _only(record, known, where)
        for name in ("name", "dtype", "shape", "file"):
            if name not in record:
                fix = f'write {{"name": ..., "dtype": ..., "shape": [...], "{name}": ...}}'
                raise GateError(f"{name} is absent", where, fix)
        record.setdefault("seq", seq)
        record["dtype"] = dtype_name(str(record["dtype"]), where)
        for name in ("shape", "inputs"):
            if not isinstance(record.get(name, []), list):
                raise GateError(f"{name} is no list: {record[name]!r}", where, f'"{name}": []')
            record[name] = tuple(record.get(name, ()))
        if isinstance(record.get("crc32"), str):
            record["crc32"] = _hexadecimal(record["crc32"], where)
        if (found := record.get("statistics")) is not None:
            _only(found, [f.name for f in fields(Statistics)], where)
        try:
            if found is not None:
                record["statistics"] = Statistics(**found)
            return cls(**record)
        except GateError as error:
            raise GateError(error.what, f"{where}: {error.where.strip()}", error.fix) from None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What run.json says of the run that made a dump.

    Arguments:
        side: one of `SIDES` where `gates.Dump` wrote it; any word of other programs.
        family: the model's family; names the tolerance file.
        versions: version by package name.
        dtype_policy: such as "float32" or "bf16 weights, f32 accumulation".
        threads: how many; None where unknown.
        seed: of the random numbers; None where there are none.
        input_hashes: hash by the input's name; two runs are compared only where these agree.
        command: what was run.
        device: such as "cpu" or "cuda:0".
        finished: when the dump was closed, as text; "" while it is open.
    """

    side: str = ""
    family: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    dtype_policy: str = ""
    threads: int | None = None
    seed: int | None = None
    input_hashes: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    device: str = ""
    finished: str = ""

    def __post_init__(self) -> None:
        for name in ("side", "family", "dtype_policy", "command", "device", "finished"):
            if not isinstance(getattr(self, name), str):
                raise GateError(f"{name} is no text: {getattr(self, name)!r}", RUN, 'write ""')
        for name in ("versions", "input_hashes"):
            value = getattr(self, name)
            if not isinstance(value, Mapping) or not all(
                isinstance(v, str) for pair in value.items() for v in pair
            ):
                raise GateError(
                    f"{name} is no table of texts: {value!r:.60}", RUN, f'"{name}": {{}}'
                )
        for name in ("threads", "seed"):
            if getattr(self, name) is not None:
                _count(getattr(self, name), name, RUN)

    def to_text(self) -> str:
        """Return the text of run.json."""
        record = asdict(self) | {k: dict(getattr(self, k)) for k in ("versions", "input_hashes")}
        return json.dumps(record, indent=2, allow_nan=False, ensure_ascii=False) + "\n"

    @classmethod
    def from_text(cls, text: str, where: str = RUN) -> "RunInfo":
        """Return what `to_text` wrote; fields may be absent.

        Raises:
            GateError: not JSON, an unknown field, a wrong value.
        """
        record = parsed(text, where)
        _only(record, [f.name for f in fields(cls)], where)
        try:
            return cls(**record)
        except GateError as error:
            raise GateError(error.what, where, error.fix.strip()) from None


def check_name(name: object) -> str:
    """Return `name`, where it can name a tensor and a file.

    Raises:
        GateError: it is empty, begins with a dot, or holds a path separator, "#" or a control
            character.
    """
    if not isinstance(name, str) or not name.strip() or name != name.strip():
        raise GateError(f"{name!r} is no tensor name", "name", "use dotted words: enc.block.0.out")
    bad = [c for c in name if c in "/\\:#" or not c.isprintable()]
    if bad or name.startswith("."):
        what = f"the tensor name {name!r} {'holds ' + repr(bad[0]) if bad else 'begins with a dot'}"
        raise GateError(what, "name", "use dotted words: enc.block.0.out")
    return name


def check_words(name: object) -> str:
    """Return `name`, where a dump may give it to a tensor: another program's may hold spaces.

    Raises:
        GateError: `check_name` refuses it, or it holds a space or a comma, which part the names of
            GATE_DUMP_ONLY and the columns of reports.
    """
    text = check_name(name)
    if bad := [c for c in text if c == "," or c.isspace()]:
        what = f"the tensor name {text!r} holds {bad[0]!r}"
        raise GateError(what, "name", "use dotted words: enc.block.0.out")
    return text


def check_side(side: object) -> str:
    """Return `side`, where it is one of `SIDES`.

    Raises:
        GateError: it is none.
    """
    if side not in SIDES:
        hint = nearest(str(side), SIDES)
        fix = f"write one of {', '.join(SIDES)}" + (f": {hint}" if hint else "")
        raise GateError(f"unknown side {side!r}", "Dump(side=...)", fix)
    return str(side)


def parsed(text: str, where: str) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        GateError: not JSON, no object, or a key twice.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            keys = [k for k, _ in pairs]
            twice = next(k for k in keys if keys.count(k) > 1)
            raise GateError(f"{twice!r} stands twice", where, "remove one of them")
        return found

    try:
        record = json.loads(text, object_pairs_hook=once)
    except GateError:
        raise
    except (ValueError, RecursionError) as error:  # integers of 5,000 digits, 1,000 brackets
        raise GateError(f"not JSON: {error}", where, "correct the file, or dump again") from None
    if not isinstance(record, dict):
        raise GateError(f"not a JSON object: {text!r:.40}", where, "write {...}")
    return record


def _check_file(file: object, where: str) -> None:
    path = Path(file) if isinstance(file, str) else Path("/")
    odd = "\\" in str(file) or not str(file).isprintable()
    if file == "" or path.is_absolute() or ".." in path.parts or odd:
        what = f"file is no path inside the folder: {file!r}"
        raise GateError(what, where, "write a relative path, such as enc.out.npy")


def _only(record: Any, known: list[str], where: str) -> None:
    if not isinstance(record, dict):
        raise GateError(f"not a table: {record!r:.40}", where, "write {...}")
    for name in record:
        if name not in known:
            hint = nearest(name, known)
            fix = hint or "remove it; known are " + ", ".join(known)
            raise GateError(f"unknown field {name!r}", where, fix)


def _count(value: object, name: str, where: str) -> None:
    if type(value) is not int or value < 0:
        raise GateError(f"{name} is no integer >= 0: {value!r}", where, f"correct {name}")


def _hexadecimal(text: str, where: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        raise GateError(f"crc32 is no number: {text!r}", where, "write it as 1a2b3c4d") from None


def _is_real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
