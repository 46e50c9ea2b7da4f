"""Rendered programs run apart from the engine.

In a clean namespace, or in a process of their own in which nothing but NumPy, SciPy and the
standard library can be imported.
"""

import inspect
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autodiff import packed as packing
from autodiff.errors import AutodiffError
from autodiff.packed import Packed, unpacked

Array = np.ndarray[Any, Any]


class RunError(AutodiffError, RuntimeError):
    """A rendered program failed in its own process; `trace` is the traceback printed there."""

    def __init__(self, what: str, trace: str) -> None:
        self.trace = trace
        super().__init__(
            what,
            trace.strip().splitlines()[-1] if trace.strip() else "no output",
            "print the source with autodiff.render and run it by itself",
            trace=trace,
        )


_TOP_LEVEL = re.compile(r"^def (\w+)\(", re.MULTILINE)


def entry_name(source: str) -> str:
    """The function of flat arrays in a rendered module: its last one, or `<name>_flat`."""
    names = _TOP_LEVEL.findall(source)
    flat = f"{names[-1]}_flat"
    return flat if flat in names else names[-1]


def run_rendered(source: str, *arrays: Any) -> tuple[Array, ...]:
    """Results of a rendered module's function on flat arrays, run in a namespace of its own."""
    namespace: dict[str, Any] = {"__name__": "rendered"}
    exec(compile(source, "<rendered>", "exec"), namespace)
    result = namespace[entry_name(source)](*arrays)
    return result if isinstance(result, tuple) else (result,)


def run_isolated(
    jobs: Sequence[tuple[str, Sequence[Any]]], timeout: float = 600.0
) -> list[tuple[Array, ...] | RunError]:
    """Results of many rendered modules, each on its flat arrays, in one separate process.

    The process can import NumPy, SciPy and the standard library alone. Arguments of dtypes that
    NumPy does not have (bfloat16) are passed as float32. Returns per job the results, or the error
    it ended with. Raises RunError where the process itself fails or takes longer than `timeout`
    seconds.
    """
    with tempfile.TemporaryDirectory(prefix="rendered-") as folder:
        home = Path(folder)
        packed = Packed()
        listing = [
            {
                "source": source,
                "entry": entry_name(source),
                "arguments": [packed.add(_portable(np.asarray(a))) for a in args],
            }
            for source, args in jobs
        ]
        (home / "jobs.json").write_text(json.dumps(listing), encoding="utf-8")
        (home / "packed.py").write_text(inspect.getsource(packing), encoding="utf-8")
        (home / "arguments.bin").write_bytes(packed.data())
        _run_process(home, timeout)
        errors, places = json.loads((home / "results.json").read_text(encoding="utf-8"))
        data = (home / "results.bin").read_bytes()
        return [_result(i, errors, places, data) for i in range(len(jobs))]


def _portable(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _run_process(home: Path, timeout: float) -> None:
    command = [sys.executable, "-I", "-X", "utf8", "-c", _PROCESS, str(home)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=False, cwd=home
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"the process took longer than {timeout} s", "") from None
    if done.returncode or not (home / "results.json").exists():
        raise RunError(f"the process ended with code {done.returncode}", done.stderr)


def _result(
    i: int, errors: dict[str, str], places: dict[str, Any], data: bytes
) -> tuple[Array, ...] | RunError:
    if str(i) in errors:
        return RunError(f"rendered program {i} failed", errors[str(i)])
    return tuple(unpacked(data, *place) for place in places[str(i)])


_PROCESS = '''
import json, pathlib, sys, traceback

ALLOWED = set(sys.stdlib_module_names) | {"numpy", "scipy"}


class Refuse:
    """Import hook: nothing but NumPy, SciPy and the standard library."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in ALLOWED and not top.startswith("_sysconfigdata"):
            raise ImportError(f"{name} is not NumPy, SciPy or the standard library")
        return None


sys.meta_path.insert(0, Refuse)
home = pathlib.Path(sys.argv[1])
import numpy as np

exec((home / "packed.py").read_text(encoding="utf-8"))

jobs = json.loads((home / "jobs.json").read_text(encoding="utf-8"))
given = (home / "arguments.bin").read_bytes()
packed, places, errors = Packed(), {}, {}
for i, job in enumerate(jobs):
    try:
        namespace = {"__name__": "rendered"}
        exec(compile(job["source"], f"<rendered {i}>", "exec"), namespace)
        args = [unpacked(given, *place) for place in job["arguments"]]
        out = namespace[job["entry"]](*args)
        out = out if isinstance(out, tuple) else (out,)
        places[i] = [packed.add(np.asarray(v)) for v in out]
    except Exception:
        errors[str(i)] = traceback.format_exc()
(home / "results.bin").write_bytes(packed.data())
(home / "results.json").write_text(json.dumps([errors, places]), encoding="utf-8")
'''
