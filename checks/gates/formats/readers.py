"""One side of a comparison: a folder or file of tensors, in the order of execution where known."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from checks.gates.errors import GateError
from checks.gates.formats.manifest import MANIFEST, RUN, RunInfo, Tensor, check_name, parsed
from checks.gates.formats.stored import (
    Header,
    Stored,
    npy_file,
    npz_file,
    raw_file,
    safetensors_file,
    safetensors_header,
)


@dataclass(frozen=True, slots=True)
class Side:
    """The tensors of one side.

    Arguments:
        path: the folder or file.
        format: manifest, pairs (.f32 + .json), npy, npz or safetensors.
        tensors: by key, in order.
        run: what run.json says; None where there is none.
        ordered: the order is that of execution.
    """

    path: Path
    format: str
    tensors: Mapping[str, Stored]
    run: RunInfo | None = None
    ordered: bool = False
    transcript: str | None = field(default=None)

    def calls(self, name: str) -> list[str]:
        """Return the keys of all calls of one name."""
        return [k for k, s in self.tensors.items() if s.tensor.name == name]


def open_side(path: str | Path) -> Side:
    """Open a dump: nothing is read yet but headers.

    Arguments:
        path: a folder with manifest.jsonl, with .f32 + .json pairs, with .npy or with
            .safetensors files; or one .npz or .safetensors file.

    Raises:
        GateError: there is no such thing, or what is there contradicts itself.
    """
    place = Path(path)
    _known(place)
    if place.is_file():
        return _one_file(place)
    if not place.is_dir():
        raise GateError("neither a folder nor a file", str(place), "name a dump's folder")
    run = _run(place)
    if (place / MANIFEST).exists():
        return Side(place, "manifest", _manifest(place), run, ordered=True)
    pairs = sorted(place.glob("*.f32"), key=natural)
    if pairs:
        return Side(place, "pairs", _keyed([_pair(f) for f in pairs], place), run)
    _no_lone_sidecars(place)
    arrays = sorted(place.glob("*.npy"), key=natural)
    if arrays:
        found = [npy_file(f, name=check_name(f.stem)) for f in arrays]
        return Side(place, "npy", _keyed(found, place), run)
    shards = sorted(place.glob("*.safetensors"), key=natural)
    if shards:
        all_of = [s for f in shards for s in safetensors_file(f)]
        return Side(place, "safetensors", _keyed(all_of, place), run)
    what = "no dump: neither manifest.jsonl nor .f32, .npy or .safetensors files"
    raise GateError(what, str(place), "name the folder that holds the tensors")


def _known(place: Path) -> None:
    try:
        place.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        what = f"no such folder or file: {reason}"
        raise GateError(what, f"{str(place)!s:.200}", "name a dump's folder") from None


def natural(text: object) -> list[tuple[int, int | str]]:
    """Return a sort key that puts block.2 before block.12."""
    parts = re.split(r"(\d+)", str(text))
    return [(0, int(p)) if p.isdigit() else (1, p) for p in parts]


def _one_file(file: Path) -> Side:
    if file.suffix == ".npz":
        return Side(file, "npz", _keyed(npz_file(file), file))
    if file.suffix == ".safetensors":
        return Side(file, "safetensors", _keyed(safetensors_file(file), file))
    what = f"{file.suffix or 'a file without suffix'} is no dump"
    raise GateError(what, str(file), "name a folder, a .npz or a .safetensors file")


def _run(folder: Path) -> RunInfo | None:
    file = folder / RUN
    return RunInfo.from_text(text_of(file), str(file)) if file.exists() else None


def text_of(file: Path) -> str:
    """Return the text of a file.

    Raises:
        GateError: it cannot be read, or is not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8-sig")  # Windows editors put a mark first
    except OSError as error:
        reason = error.strerror or str(error)
        raise GateError(f"cannot be read: {reason}", str(file), "name another file") from None
    except UnicodeDecodeError as error:
        raise GateError(f"not UTF-8 text: {error}", str(file), "write it anew") from None


def _manifest(folder: Path) -> dict[str, Stored]:
    file = folder / MANIFEST
    text = text_of(file)
    lines = text.split("\n")
    if lines[-1].strip():
        fix = "end each line with a newline; if the run stopped there, dump again"
        raise GateError("the last line is cut", f"{file}, line {len(lines)}", fix)
    found = []
    for n, line in enumerate(lines):
        if line.strip():
            found.append(Tensor.from_line(line, f"{file}, line {n + 1}", seq=n))
    found.sort(key=lambda t: t.seq)
    headers: dict[Path, Header] = {}  # one file may hold all tensors
    ends: dict[str, int] = {}
    for t in found:
        ends[t.file] = max(ends.get(t.file, 0), t.offset + t.nbytes)
    return _keyed([_stored(t, folder, headers, ends[t.file]) for t in found], file)


def _stored(tensor: Tensor, folder: Path, headers: dict[Path, Header], end: int) -> Stored:
    file = folder / tensor.file
    if file.suffix == ".npy":
        return npy_file(file, tensor)
    if file.suffix == ".safetensors":
        if file not in headers:
            headers[file] = safetensors_header(file)
        return safetensors_file(file, tensor, headers[file])[0]
    return raw_file(tensor, file, end)


def _pair(file: Path) -> Stored:
    """<name>.f32 of raw values and <name>.json with shape, dtype f32 and layout row-major."""
    name = check_name(file.stem)
    sidecar = file.with_suffix(".json")
    if not sidecar.exists():
        what = f"{name!r} has values and no {sidecar.name}"
        raise GateError(what, str(sidecar), f"write {sidecar.name} with its shape")
    record = parsed(text_of(sidecar), str(sidecar))
    layout = record.get("layout", "row-major")
    if record.get("dtype") not in ("f32", "float32") or layout != "row-major":
        what = f"{name!r} is {record.get('dtype')!r}, {layout!r}"
        raise GateError(f"unknown dtype or layout: {what}", str(sidecar), "write f32, row-major")
    shape = record.get("shape")
    if not isinstance(shape, list):
        raise GateError(f"shape is no list: {shape!r}", str(sidecar), '"shape": [...]')
    return raw_file(Tensor(name, "float32", tuple(shape), file.name), file)


def _no_lone_sidecars(folder: Path) -> None:
    for file in sorted(folder.glob("*.json")):
        if file.name in (RUN, "transcript.json", "dump_coverage.json"):
            continue
        record = parsed(text_of(file), str(file))
        if {"shape", "dtype", "layout"} <= set(record):
            what = f"{file.stem!r} has a {file.name} and no values"
            raise GateError(what, str(file.with_suffix(".f32")), "dump it again")


def _keyed(found: list[Stored], place: Path) -> dict[str, Stored]:
    kept: dict[str, Stored] = {}
    for stored in found:
        key = stored.tensor.key
        if key in kept:
            where = f"{place}: {kept[key].tensor.file} and {stored.tensor.file}"
            what = f"two tensors are called {key!r}, or the program ran twice into one folder"
            fix = 'count the calls, "call": 1 for the second one; empty the folder before a run'
            raise GateError(what, where, fix)
        kept[key] = stored
    return kept
