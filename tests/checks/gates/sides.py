"""Dumps written by hand, as another program would."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from checks.gates.comparison.record import Result
from checks.gates.comparison.verdict import compare
from checks.gates.formats.manifest import Tensor

TIGHT = {"max_abs": 1e-5, "mean_abs": 1e-6}


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def write_side(folder: Path, tensors: Mapping[str, Any], **run: Any) -> Path:
    """A manifest, raw files and run.json; a value is an array or (array, fields of Tensor)."""
    folder.mkdir(parents=True)
    lines = []
    for seq, (key, value) in enumerate(tensors.items()):
        array, fields = value if isinstance(value, tuple) else (value, {})
        name, _, call = key.partition("#")
        data = np.ascontiguousarray(array).tobytes()
        (folder / f"{key}.bin").write_bytes(data)
        record = {
            "seq": seq,
            "call": int(call or 0),
            "crc32": zlib.crc32(data),
            "dtype": array.dtype.name,
            "shape": tuple(array.shape),
            "file": f"{key}.bin",
        } | fields
        lines.append(Tensor(name, **record).to_line() + "\n")
    (folder / "manifest.jsonl").write_text("".join(lines))
    if run:
        (folder / "run.json").write_text(json.dumps(run))
    return folder


def write_limits(file: Path, limits: Mapping[str, Any]) -> Path:
    file.write_text(json.dumps(limits))
    return file


def judged(
    tmp_path: Path,
    reference: Mapping[str, Any],
    candidate: Mapping[str, Any],
    limits: Mapping[str, Any] | None = None,
    **options: Any,
) -> Result:
    """Compare two dumps; by default every tensor of the reference is in the contract, tight."""
    limits = (
        dict.fromkeys([k for k in reference if "#" not in k], TIGHT) if limits is None else limits
    )
    return compare(
        write_side(tmp_path / "reference", reference),
        write_side(tmp_path / "candidate", candidate),
        write_limits(tmp_path / "limits.json", limits),
        **options,
    )


def pair(tmp_path: Path, reference: Any, candidate: Any, limit: Any = None) -> Result:
    """Compare one tensor, "t"."""
    limits = {"t": limit or TIGHT}
    return judged(tmp_path, {"t": reference}, {"t": candidate}, limits)
