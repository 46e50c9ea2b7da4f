"""A dump of one file per tensor as a dump with one safetensors file for all: for the repository."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

from checks.gates.formats.manifest import MANIFEST, RUN
from checks.gates.formats.readers import open_side
from checks.gates.formats.stored import SAFETENSORS

PACKED = "tensors.safetensors"
_TYPES = {name: code for code, name in SAFETENSORS.items()}


def packed(dump: Path, output: Path, **versions: str) -> Path:
    """Write the dump anew into `output`, which is emptied first; return it.

    Arguments: folders; versions of packages to note in run.json beside those that are there.
    """
    side = open_side(dump)
    header: dict[str, Any] = {}
    data, lines, end = [], [], 0
    for key, stored in side.tensors.items():
        raw = stored.load().tobytes()
        places = [end, end := end + len(raw)]
        tensor = dataclasses.replace(stored.tensor, file=PACKED, source="", offset=0)
        header[key] = {
            "dtype": _TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": places,
        }
        data.append(raw)
        lines.append(tensor.to_line() + "\n")
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(output / PACKED, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(data)
    (output / MANIFEST).write_text("".join(lines), encoding="utf-8")
    run = json.loads((dump / RUN).read_text(encoding="utf-8"))
    run["versions"] |= versions
    (output / RUN).write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")
    return output
