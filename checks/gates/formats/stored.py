"""One stored tensor: its values in chunks of about 1 MiB, whatever the file's format."""

import ast
import json
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
from checks.gates.formats.manifest import Tensor, dtype_name, dtype_of

CHUNK = 1 << 18  # entries: 1 MiB of float32
Array = npt.NDArray[Any]
AGAIN = "dump it again"
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
            got = stream.readinto(view[done:])  # type: ignore[attr-defined]
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


def raw_file(tensor: Tensor, file: Path) -> Stored:
    """Raw little-endian values at `tensor.offset`; the file's size is checked.

    Raises:
        GateError: the file is absent or ends early, or holds bytes left over.
    """
    size = _size(file, tensor.key)
    need = tensor.offset + tensor.nbytes
    if size < need or (size > need and not tensor.offset):
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
    with file.open("rb") as stream:
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
                whole = _member(file, member, offset, made, header)
                found.append(whole)
    except (zipfile.BadZipFile, OSError) as error:
        raise GateError(f"no .npz archive: {error}", str(file), AGAIN) from None
    return found


def _member(file: Path, member: str, offset: int, made: Tensor, header: tuple[Any, ...]) -> Stored:
    place = file / member

    def start() -> IO[bytes]:
        stream = zipfile.ZipFile(file).open(member)
        stream.read(offset)
        return stream

    if not (header[1] and len(made.shape) > 1):
        return Stored(made, place, start, swapped=_swapped(header[2]))

    def whole() -> Array:
        plain = Stored(made, place, start, swapped=_swapped(header[2]))
        flat = np.concatenate(list(plain.chunks())) if made.size else np.empty(0)
        return flat.reshape(made.shape, order="F")

    return Stored(made, place, start, derived=whole)


def safetensors_file(file: Path, wanted: Tensor | None = None) -> list[Stored]:
    """The tensors of a .safetensors file, in the order of their data; read from the format itself.

    The layout is 8 bytes of length, a JSON header, then the data
    (https://huggingface.co/docs/safetensors).

    Arguments:
        file: the file.
        wanted: a manifest's tensor: only that one, whose dtype and shape must agree.

    Raises:
        GateError: no such file, an unknown dtype, offsets that do not fit dtype and shape.
    """
    header, start = _safetensors_header(file)
    entries = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    found = []
    for seq, (name, entry) in enumerate(entries):
        if wanted is not None and name not in (wanted.key, wanted.name):
            continue
        where = f"{file}: {name}"
        if entry.get("dtype") not in SAFETENSORS:
            what = f"unknown dtype {entry.get('dtype')!r}"
            raise GateError(what, where, "store it as F32, F16, BF16, ...")
        dtype = SAFETENSORS[entry["dtype"]]
        made = wanted or Tensor(name, dtype, tuple(entry["shape"]), file.name, seq=seq)
        if (made.dtype, made.shape) != (dtype, tuple(entry["shape"])):
            _disagree(made, dtype, tuple(entry["shape"]), where)
        first, last = entry["data_offsets"]
        if last - first != made.nbytes or start + last > file.stat().st_size:
            what = f"{name!r} needs {made.nbytes:,} bytes, its offsets hold {last - first:,}"
            raise GateError(what, where, AGAIN)
        found.append(Stored(made, file, _opener(file, start + first)))
    if wanted is not None and not found:
        raise GateError(f"there is no tensor {wanted.key!r}", str(file), AGAIN)
    return found


def _safetensors_header(file: Path) -> tuple[dict[str, Any], int]:
    size = _size(file, file.name)
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > size - 8:
            what = f"the header needs {length + 8:,} bytes, the file has {size:,}"
            raise GateError(what, str(file), AGAIN)
        text = stream.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        good = all(len(e["data_offsets"]) == 2 and "shape" in e for e in header.values())
    except (ValueError, AttributeError, TypeError, KeyError):
        good = False
    if not good:
        raise GateError("no safetensors header", str(file), AGAIN)
    return header, 8 + length


def _opener(file: Path, offset: int) -> Callable[[], IO[bytes]]:
    def start() -> IO[bytes]:
        stream = file.open("rb", buffering=0)
        stream.seek(offset)
        return stream

    return start


def _size(file: Path, key: str) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        reason = error.strerror or str(error)
        raise GateError(f"{key!r} cannot be read: {reason}", str(file), AGAIN) from None


def _npy_header(stream: IO[bytes], file: Path) -> tuple[tuple[int, ...], bool, Any]:
    """Shape, whether in Fortran order, and dtype."""
    try:
        version = np.lib.format.read_magic(stream)
        length = 2 if version[0] == 1 else 4
        text = stream.read(int.from_bytes(stream.read(length), "little"))
        header = ast.literal_eval(text.decode("latin1" if version[0] < 3 else "utf-8"))
        return tuple(header["shape"]), bool(header["fortran_order"]), np.dtype(header["descr"])
    except (ValueError, KeyError, TypeError, SyntaxError) as error:
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
