"""One stored tensor: its values in chunks of about 1 MiB, whatever the file's format."""

import ast
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from checks.gates.errors import GateError
from checks.gates.formats.manifest import Tensor, dtype_name, dtype_of, parsed

CHUNK = 1 << 18  # entries: 1 MiB of float32
Array = npt.NDArray[Any]
AGAIN = "dump it again"
# What a damaged archive raises: a wrong crc32 or name, a stream cut or not to inflate, a password.
_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, UnicodeDecodeError)
SAFETENSORS = {
    **{f"{k}{b}": f"{n}{b}" for k, n in (("I", "int"), ("U", "uint"), ("F", "float")) for b in
       (8, 16, 32, 64) if (k, b) != ("F", 8)},
    **{"BOOL": "bool", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"},
    **{"C64": "complex64", "C128": "complex128"},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor and where its values are.

    Arguments:
        tensor: what the manifest, or the file's header, says of it.
        place: the file, for messages.
        open: opens the file at its first value.
        fortran: the values are in Fortran order.
        swapped: the values are big-endian.
        derived: the values, where a rule of names.toml makes them of another tensor.
    """

    tensor: Tensor
    place: Path
    open: Callable[[], IO[bytes]]
    fortran: bool = False
    swapped: bool = False
    derived: Callable[[], Array] | None = None

    def chunks(self, entries: int = CHUNK) -> Iterator[Array]:
        """Yield the values flat, in C order and of the stored dtype; the last chunk is shorter.

        Raises:
            GateError: the file ends early, or the values are not those of the manifest's crc32.
        """
        whole = self.tensor.crc32 if self.derived is None else None
        crc = 0
        for chunk in self._raw(entries):
            if whole is not None:
                crc = crc32(chunk, crc)
            yield chunk
        if whole is not None and crc != whole:
            what = f"the values of {self.tensor.key!r} have crc32 {crc:08x}, not {whole:08x}"
            raise GateError(what, str(self.place), AGAIN)

    def load(self, rows: int | None = None) -> Array:
        """Return the values in their shape; the first `rows` of axis 0 only, where given."""
        shape = self.tensor.shape
        if rows is not None and shape and rows < shape[0]:
            shape = (rows, *shape[1:])
        need = int(np.prod(shape, dtype=np.int64))
        found = np.empty(need, dtype_of(self.tensor.dtype))
        done = 0
        for chunk in self.chunks() if need == self.tensor.size else self._raw(CHUNK):
            kept = chunk[: need - done]
            found[done : done + kept.size] = kept
            done += kept.size
            if kept.size < chunk.size:
                break
        return found.reshape(shape)

    def _raw(self, entries: int) -> Iterator[Array]:
        if self.derived is not None or self.fortran:
            flat = (self.derived() if self.derived is not None else self._in_fortran_order()).flat
            for start in range(0, self.tensor.size, entries):
                yield np.ascontiguousarray(flat[start : start + entries])
            return
        dtype = dtype_of(self.tensor.dtype)
        with self.open() as stream:
            for start in range(0, self.tensor.size, entries):
                count = min(entries, self.tensor.size - start)
                chunk = self._filled(stream, np.empty(count, dtype))
                yield chunk.byteswap() if self.swapped else chunk

    def _filled(self, stream: IO[bytes], chunk: Array) -> Array:
        view = memoryview(chunk.view(np.uint8).data)
        done = 0
        while done < len(view):
            try:
                got = stream.readinto(view[done:])  # type: ignore[attr-defined]
            except (OSError, *_ARCHIVE) as error:
                raise _unreadable(self.tensor.key, self.place, error) from None
            if not got:
                need = self.tensor.nbytes
                what = f"{self.tensor.key!r} ends early: its shape needs {need:,} bytes"
                raise GateError(what, str(self.place), AGAIN)
            done += got
        return chunk

    def _in_fortran_order(self) -> Array:
        """The array mapped, not read: only the entries of one chunk come into memory at a time."""
        with self.open() as stream:
            offset = stream.tell()
        if not self.tensor.size:
            return np.empty(self.tensor.shape, dtype_of(self.tensor.dtype))
        dtype = dtype_of(self.tensor.dtype)
        raw = np.memmap(self.place, np.uint8, "r", offset, (self.tensor.nbytes,))
        found = raw.view(dtype.newbyteorder(">") if self.swapped else dtype)
        array = found.reshape(self.tensor.shape, order="F")
        return array if not self.swapped else array.astype(dtype)


def crc32(values: Array, start: int = 0) -> int:
    """Return the crc32 of values in C order, continued from `start`."""
    return zlib.crc32(np.ascontiguousarray(values).view(np.uint8).data, start)


def raw_file(tensor: Tensor, file: Path, end: int | None = None) -> Stored:
    """Raw little-endian values at `tensor.offset`; the file's size is checked.

    `end` is where the last tensor of the file ends, where several lie in it.

    Raises:
        GateError: the file is absent or ends early, or holds bytes left over.
    """
    size = _size(file, tensor.key)
    need = tensor.offset + tensor.nbytes
    if size < need or (size > (end or need) and not tensor.offset):
        what = f"{tensor.key!r} needs {need:,} bytes ({tensor.dtype} {list(tensor.shape)})"
        raise GateError(f"{what}, the file has {size:,}", str(file), AGAIN)
    return Stored(tensor, file, _opener(file, tensor.offset))


def npy_file(file: Path, tensor: Tensor | None = None, name: str = "") -> Stored:
    """A .npy file; where a manifest names its dtype and shape, the header must agree.

    Raises:
        GateError: no .npy file, objects or records inside, or another dtype, shape or size.
    """
    key = tensor.key if tensor else name
    size = _size(file, key)
    with _opener(file, 0)() as stream:
        header = _npy_header(stream, file)
        offset = stream.tell()
    made = _of_header(tensor, header, name, file.name, str(file))
    if size != offset + made.nbytes:
        what = f"{key!r} needs {offset + made.nbytes:,} bytes, the file has {size:,}"
        raise GateError(what, str(file), AGAIN)
    fortran = header[1] and len(made.shape) > 1
    return Stored(made, file, _opener(file, offset), fortran, _swapped(header[2]))


def npz_file(file: Path) -> list[Stored]:
    """The members of a .npz file, in the archive's order.

    Raises:
        GateError: no archive, or members that are no arrays.
    """
    _size(file, file.name)
    try:
        with zipfile.ZipFile(file) as archive:
            names = [n for n in archive.namelist() if n.endswith(".npy")]
            found = []
            for seq, member in enumerate(names):
                with archive.open(member) as stream:
                    header = _npy_header(stream, file)
                    offset = stream.tell()
                name = member.removesuffix(".npy")
                made = _of_header(None, header, name, file.name, f"{file}: {member}", seq)
                size = archive.getinfo(member).file_size
                if size != offset + made.nbytes:
                    what = f"{name!r} needs {offset + made.nbytes:,} bytes, not {size:,}"
                    raise GateError(what, f"{file}: {member}", AGAIN)
                found.append(_member(file, member, offset, made, header))
    except (OSError, *_ARCHIVE) as error:
        raise GateError(f"no .npz archive: {error}", str(file), AGAIN) from None
    return found


def _member(file: Path, member: str, offset: int, made: Tensor, header: tuple[Any, ...]) -> Stored:
    place = file / member

    def start() -> IO[bytes]:
        try:
            stream = zipfile.ZipFile(file).open(member)
            stream.read(offset)
        except (OSError, *_ARCHIVE) as error:
            raise _unreadable(made.key, place, error) from None
        return stream

    if not (header[1] and len(made.shape) > 1):
        return Stored(made, place, start, swapped=_swapped(header[2]))

    def whole() -> Array:
        plain = Stored(made, place, start, swapped=_swapped(header[2]))
        flat = np.concatenate(list(plain.chunks())) if made.size else np.empty(0)
        return flat.reshape(made.shape, order="F")

    return Stored(made, place, start, derived=whole)


Header = tuple[dict[str, Any], int]


def safetensors_file(
    file: Path, wanted: Tensor | None = None, header: Header | None = None
) -> list[Stored]:
    """The tensors of a .safetensors file, in the order of their data; read from the format itself.

    The layout is 8 bytes of length, a JSON header, then the data
    (https://huggingface.co/docs/safetensors).

    Arguments:
        file: the file.
        wanted: a manifest's tensor: only that one, whose dtype and shape must agree.
        header: of the file, where `safetensors_header` has read it already.

    Raises:
        GateError: no such file, an unknown dtype, offsets that do not fit dtype and shape.
    """
    table, start = safetensors_header(file) if header is None else header
    if wanted is None:
        entries = sorted(table.items(), key=lambda item: tuple(item[1]["data_offsets"]))
    else:  # "a" and "a#1" may be in one file
        name_of = wanted.key if wanted.key in table else wanted.name
        entries = [(name_of, table[name_of])] if name_of in table else []
    found = []
    for seq, (name, entry) in enumerate(entries):
        where = f"{file}: {name}"
        if entry.get("dtype") not in SAFETENSORS:
            what = f"unknown dtype {entry.get('dtype')!r}"
            raise GateError(what, where, "store it as F32, F16, BF16, ...")
        dtype = SAFETENSORS[entry["dtype"]]
        made = wanted or Tensor(name, dtype, tuple(entry["shape"]), file.name, seq=seq)
        if (made.dtype, made.shape) != (dtype, tuple(entry["shape"])):
            _disagree(made, dtype, tuple(entry["shape"]), where)
        first, last = entry["data_offsets"]
        if last - first != made.nbytes:
            what = f"{name!r} needs {made.nbytes:,} bytes, its offsets hold {last - first:,}"
            raise GateError(what, where, AGAIN)
        found.append(Stored(made, file, _opener(file, start + first)))
    if wanted is not None and not found:
        raise GateError(f"there is no tensor {wanted.key!r}", str(file), AGAIN)
    return found


def safetensors_header(file: Path) -> Header:
    """Return a .safetensors file's table of tensors, and where their values begin.

    Raises:
        GateError: the file cannot be read, or has no such table.
    """
    size = _size(file, file.name)
    with _opener(file, 0)() as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > size - 8:
            what = f"the header needs {length + 8:,} bytes, the file has {size:,}"
            raise GateError(what, str(file), AGAIN)
        text = stream.read(length)
    try:
        header = parsed(text.decode("utf-8"), str(file))
    except (UnicodeDecodeError, GateError) as error:
        told = error.what if isinstance(error, GateError) else str(error)
        raise GateError(f"no safetensors header: {told}", str(file), AGAIN) from None
    header.pop("__metadata__", None)
    for name, entry in header.items():
        if not _is_entry(entry):
            what = f"no safetensors header: {entry!r:.60}"
            raise GateError(what, f"{file}: {name}", AGAIN)
    place = 0  # the format has neither gaps nor overlaps
    for first, last in sorted(tuple(e["data_offsets"]) for e in header.values()):
        if first != place:
            what = f"values begin at byte {first:,}, those before them end at {place:,}"
            raise GateError(what, str(file), AGAIN)
        place = last
    if place != size - 8 - length:
        what = f"the tensors need {place:,} bytes, the file has {size - 8 - length:,}"
        raise GateError(what, str(file), AGAIN)
    return header, 8 + length


def _is_entry(entry: Any) -> bool:
    """Whether an entry of the table has a dtype, a shape and two places, the first no later."""
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        return False
    places, shape = entry.get("data_offsets"), entry.get("shape")
    if not isinstance(places, list) or not isinstance(shape, list) or len(places) != 2:
        return False
    whole = all(type(n) is int and n >= 0 for n in (*places, *shape))
    return whole and places[0] <= places[1]


def _opener(file: Path, offset: int) -> Callable[[], IO[bytes]]:
    def start() -> IO[bytes]:
        try:
            stream = file.open("rb", buffering=0)
        except OSError as error:
            raise _unreadable(file.name, file, error) from None
        stream.seek(offset)
        return stream

    return start


def _unreadable(key: str, place: Path, error: Exception) -> GateError:
    reason = getattr(error, "strerror", None) or str(error)
    return GateError(f"{key!r} cannot be read: {reason}", str(place), AGAIN)


def _size(file: Path, key: str) -> int:
    try:
        found = file.stat()
    except OSError as error:
        raise _unreadable(key, file, error) from None
    if not stat.S_ISREG(found.st_mode):
        raise GateError(f"{key!r} cannot be read: it is no file", str(file), AGAIN)
    return found.st_size


def _npy_header(stream: IO[bytes], file: Path) -> tuple[tuple[int, ...], bool, Any]:
    """Shape, whether in Fortran order, and dtype."""
    try:
        version = np.lib.format.read_magic(stream)
        length = 2 if version[0] == 1 else 4
        text = stream.read(int.from_bytes(stream.read(length), "little"))
        header = ast.literal_eval(text.decode("latin1" if version[0] < 3 else "utf-8"))
        shape, fortran, descr = (header[n] for n in ("shape", "fortran_order", "descr"))
        if not isinstance(descr, str | list) or type(fortran) is not bool:
            raise ValueError(f"its header says {header!r:.80}")
        return tuple(shape), fortran, np.dtype(descr)
    except (ValueError, KeyError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise GateError(f"no .npy data: {error}", str(file), AGAIN) from None


def _of_header(
    tensor: Tensor | None,
    header: tuple[tuple[int, ...], bool, Any],
    name: str,
    file: str,
    where: str,
    seq: int = 0,
) -> Tensor:
    """The tensor of a .npy header. A bfloat16 array is stored by NumPy as two bytes of no type."""
    shape, _, stored = header
    if stored.names is None and stored.kind == "V" and stored.itemsize <= 2:
        if tensor is not None and dtype_of(tensor.dtype).itemsize == stored.itemsize:
            dtype = tensor.dtype
        elif stored.itemsize == 2:
            dtype = np.dtype(ml_dtypes.bfloat16).name
        else:
            what = "one byte of no type: which float8 it is stands nowhere"
            raise GateError(what, where, "write a manifest.jsonl beside it")
    elif stored.kind in "OVSUmM":
        what = f"{stored} is no numeric dtype"
        raise GateError(f"{name!r}: unknown dtype: {what}", where, "store numbers")
    else:
        dtype = dtype_name(stored.newbyteorder("<").str, where)
    if tensor is None:
        return Tensor(name, dtype, shape, file, seq=seq)
    if (tensor.dtype, tensor.shape) != (dtype, shape):
        _disagree(tensor, dtype, shape, where)
    return tensor


def _disagree(tensor: Tensor, dtype: str, shape: tuple[int, ...], where: str) -> None:
    said = f"{tensor.dtype} {list(tensor.shape)}"
    what = f"the manifest says {said} of {tensor.key!r}, the file {dtype} {list(shape)}"
    raise GateError(what, where, AGAIN)


def _swapped(stored: Any) -> bool:
    return bool(stored.byteorder == ">")
