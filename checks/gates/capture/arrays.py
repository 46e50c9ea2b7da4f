"""Arrays of any framework as NumPy arrays, and their values as files, in one streaming pass."""

import contextlib
import hashlib
import json
import os
import re
import sys
import unicodedata
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from autodiff.tracer import Tracer
from checks.gates.errors import GateError
from checks.gates.formats.manifest import DTYPES, Statistics, dtype_name, dtype_of
from checks.gates.formats.statistics import Accumulator
from checks.gates.formats.stored import SAFETENSORS

Array = np.ndarray[Any, Any]
CHUNK = 1 << 20  # bytes
FORMATS = ("npy", "safetensors")
_DEVICES = {"CON", "PRN", "AUX", "NUL", *(f"{d}{n}" for d in ("COM", "LPT") for n in range(10))}
_SAFETENSORS = {v: k for k, v in SAFETENSORS.items() if k != "C128"}  # which the format has not


def as_array(value: Any, name: str) -> Array:
    """Return a NumPy, JAX or PyTorch array, or a number, as a NumPy array; copied only if needed.

    Raises:
        GateError: a traced value; an object, text, masked, sparse or quantised array; a dtype that
            a manifest cannot name.
    """
    where = f"tensor {name!r}"
    if isinstance(value, Tracer):
        what = "a traced value has no entries yet"
        raise GateError(what, where, f'inside the program: x = ad.tap("{name}", x)')
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        array = _from_torch(torch, value, where)
    elif isinstance(value, np.ma.MaskedArray):
        raise GateError("a masked array has no values under its mask", where, "x.filled(0.0)")
    else:
        array = _from_any(value, where, name)
    if array.dtype.hasobject or array.dtype.names or array.dtype.kind in "OSUMm":
        what = f"an array of dtype {array.dtype} holds no numbers"
        raise GateError(what, where, "np.stack(...) the parts, or dump them one by one")
    if array.dtype.name not in DTYPES:
        what = f"no manifest names the dtype {array.dtype.name}"
        raise GateError(what, where, "cast it, so that the cast is seen: x.astype(np.float64)")
    return array


def _from_torch(torch: Any, value: Any, where: str) -> Array:
    if value.layout != torch.strided or value.is_quantized or value.is_meta:
        kind = "meta" if value.is_meta else "quantised" if value.is_quantized else value.layout
        fix = "x.to_dense(), x.dequantize() or a real device first"
        raise GateError(f"a {kind} tensor holds no plain values", where, fix)
    name = dtype_name(str(value.dtype), where)
    try:
        plain = value.detach().resolve_conj().resolve_neg().cpu()
        if _is_of_numpy(name):
            return np.asarray(plain.numpy())
        bits = torch.int16 if plain.element_size() == 2 else torch.uint8
        return np.asarray(plain.view(bits).numpy()).view(dtype_of(name))
    except (RuntimeError, TypeError) as error:
        what = f"this tensor has no values to read: {error}".splitlines()[0]
        raise GateError(what, where, "dump outside of vmap, grad and compiled functions") from None


def _from_any(value: Any, where: str, name: str) -> Array:
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        what = f"no array: {type(value).__name__}: {error}".splitlines()[0]
        fix = f'pass an array; inside jax.jit: x = gates.jax_tap("{name}", x)'
        raise GateError(what, where, fix) from None


def chunks(array: Array) -> Iterator[Array]:
    """Yield the values in C order, little-endian, flat, about 1 MiB at a time.

    A chunk is valid until the next is asked for: those of strided arrays share one buffer.
    """
    little = array.dtype.newbyteorder("<")
    step = max(1, CHUNK // array.dtype.itemsize)
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
        for i in range(0, flat.size, step):
            yield flat[i : i + step].astype(little, copy=False)
        return
    flags: Any = ["external_loop", "buffered", "zerosize_ok"]
    with np.nditer(array, flags=flags, order="C", buffersize=step) as buffers:
        for buffer in buffers:
            chunk = np.asarray(buffer)
            if chunk.size:
                yield chunk.astype(little, copy=False)


def as_bytes(chunk: Array) -> memoryview:
    """Return the bytes of a flat contiguous array, of NumPy's dtypes and others."""
    return np.ascontiguousarray(chunk).view(np.uint8).data


def suffix(dtype: str, file_format: str) -> str:
    """Return how a file of that dtype ends: .npy has no 16-bit brain floats, which lie raw."""
    if file_format == "safetensors" and dtype in _SAFETENSORS:
        return ".safetensors"
    return ".npy" if _is_of_numpy(dtype) else ".bin"


def file_name(key: str) -> str:
    """Return a file's name for a tensor, one that Windows takes, too."""
    text = re.sub(r'[<>"|?*]', "_", key)
    return f"_{text}" if text.split(".")[0].strip().upper() in _DEVICES else text


def folded(file: str) -> str:
    """Return what is one file on some disks: "A" and "a", an accent in one character or two."""
    return unicodedata.normalize("NFC", file).casefold()


def _is_of_numpy(dtype: str) -> bool:
    return dtype_of(dtype).num < 256  # beyond lie the dtypes that other packages register


def write(path: Path, array: Array, key: str) -> tuple[int, Statistics]:
    """Write values under a temporary name, then rename; return their crc32 and statistics.

    Raises:
        OSError: the file cannot be written; nothing is left of it.
    """
    part = path.with_name(f".{path.name}.part")
    crc, figures = 0, Accumulator()
    try:
        with open(part, "wb") as file:
            _header(file, path.suffix, array, key)
            for chunk in chunks(array):
                raw = as_bytes(chunk)
                crc = zlib.crc32(raw, crc)
                file.write(raw)
                figures.add(chunk)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    return crc, figures.result()


def _header(file: BinaryIO, kind: str, array: Array, key: str) -> None:
    little = array.dtype.newbyteorder("<")
    if kind == ".npy":
        descr = np.lib.format.dtype_to_descr(little)
        facts = {"descr": descr, "fortran_order": False, "shape": array.shape}
        np.lib.format.write_array_header_1_0(file, facts)
    elif kind == ".safetensors":
        record = {
            "dtype": _SAFETENSORS[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [0, array.nbytes],
        }
        text = json.dumps({key: record}, ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)  # the values begin at a multiple of 8 bytes
        file.write(len(text).to_bytes(8, "little") + text)


def digest(array: Array) -> str:
    """Return a hash of dtype, shape and values; signed and unsigned integers count as int64.

    So token ids hash alike whichever integers a framework keeps them in.
    """
    kind, dtype = array.dtype.kind, array.dtype
    if kind in "iu" and dtype != np.uint64:
        dtype = np.dtype(np.int64)
    found = hashlib.sha256(f"{dtype.name}{array.shape}".encode())
    for chunk in chunks(array):
        found.update(as_bytes(chunk.astype(dtype.newbyteorder("<"), copy=False)))
    return f"sha256:{found.hexdigest()}"
