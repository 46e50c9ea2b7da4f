"""The gate's comparison of two tensors on disk beside NumPy's whole arrays and Polygraphy's
comparator: time for 32 million float32 pairs, what a failing one costs beyond, and peak memory by
size.

Ours reads and computes on a thread each; the others have one. Every candidate starts from the
files.
"""

import contextlib
import functools
import importlib
import io
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from autodiff.optional import available
from benchmarks.timing import best_times, table

MILLION = 1 << 20
SIZES = (2 * MILLION, 8 * MILLION, 32 * MILLION)
DRIFT = 1e-6  # of the reference's size: float32 rounding in another order
BLOCK = MILLION

Candidate = Callable[[Path], float]
Change = Callable[[Any, float, Any], Any]


def noise(x: Any, drift: float, rng: Any) -> Any:
    """The values off by noise of that share."""
    return x + np.float32(drift) * x * rng.standard_normal(x.size, np.float32)


def write_pair(folder: Path, size: int, drift: float, change: Change = noise) -> Path:
    """A tensor and another that is off, as two dumps, with a tolerance file."""
    rng = np.random.default_rng(0)
    for side in ("reference", "candidate"):
        (folder / side).mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(open(folder / side / "t.bin", "wb"))
            for side in ("reference", "candidate")
        ]
        for start in range(0, size, BLOCK):
            x = rng.standard_normal(min(BLOCK, size - start), np.float32)
            files[0].write(x.tobytes())
            files[1].write(change(x, drift, rng).astype(np.float32).tobytes())
    line = {"name": "t", "dtype": "float32", "shape": [size // 1024, 1024], "file": "t.bin"}
    for side in ("reference", "candidate"):
        (folder / side / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    limits = {"t": {"max_abs": 1e-4, "mean_abs": 1e-5}}
    (folder / "limits.json").write_text(json.dumps(limits))
    return folder


# --- the candidates: each returns the largest absolute difference --------------------------


def ours(folder: Path) -> float:
    """The whole verdict: max, mean, rms, p99, cosine, eta, crc32, non-finite entries."""
    from checks import gates

    found = gates.compare(folder / "reference", folder / "candidate", folder / "limits.json")
    assert found.rows[0].measured is not None
    return float(found.rows[0].measured.max_abs)


def naive(folder: Path) -> float:
    """Whole arrays in float64: max, mean, 99th percentile."""
    x, y = loaded(folder)
    e = np.abs(y.astype(np.float64) - x.astype(np.float64))
    float(e.mean()), float(np.percentile(e, 99))
    return float(e.max())


def polygraphy(folder: Path) -> float:
    """Its element-wise comparison at our limits, quiet."""
    theirs = importlib.import_module("polygraphy.comparator")
    log = importlib.import_module("polygraphy.logger").G_LOGGER
    log.module_severity = log.CRITICAL
    x, y = ({"t": a} for a in loaded(folder))
    compare = theirs.CompareFunc.simple(atol=1e-4, rtol=0)
    with contextlib.redirect_stdout(io.StringIO()):
        found = compare(theirs.IterationResult(x, "a"), theirs.IterationResult(y, "b"))
    return float(found["t"].max_absdiff)


def loaded(folder: Path) -> tuple[Any, Any]:
    """Both tensors, whole."""
    x, y = (np.fromfile(folder / s / "t.bin", np.float32) for s in ("reference", "candidate"))
    return x.reshape(-1, 1024), y.reshape(-1, 1024)


def candidates() -> dict[str, Candidate]:
    """Ours and the peers that are installed."""
    found: dict[str, Candidate] = {"ours": ours, "numpy, whole arrays": naive}
    return found | ({"polygraphy": polygraphy} if available("polygraphy") else {})


# --- time ----------------------------------------------------------------------------------


def speed(folder: Path, size: int) -> None:
    """Times of all candidates on one pair; they must find the same largest difference."""
    pair = write_pair(folder, size, DRIFT)
    found = candidates()
    largest = {name: run(pair) for name, run in found.items()}
    assert all(math.isclose(e, largest["ours"], rel_tol=1e-2) for e in largest.values()), largest
    runs = {name: functools.partial(run, pair) for name, run in found.items()}
    title = f"{size / MILLION:.0f} M float32 pairs, from files"
    print(table(title, best_times(runs, 0.0, 0.0), "ours"))
    print(
        "  CPU seconds, all threads: "
        + ", ".join(f"{n} {_cpu(run):.2f}" for n, run in runs.items())
    )


# Errors beyond the limits: of all sizes, of one size, of few values.
FAULTS: dict[str, Change] = {
    "noise": noise,
    "scaled": lambda x, drift, rng: x * np.float32(1 + drift),
    "rounded": lambda x, drift, rng: np.round(x * 8) / 8,
    "one in ten": lambda x, drift, rng: x + np.float32(drift) * (rng.random(x.size) < 0.1),
}


def failing(folder: Path, size: int) -> None:
    """CPU seconds of the figures of a pair, and of the pass behind them where it fails."""
    from checks.gates.comparison.detail import detail
    from checks.gates.comparison.measure import measure
    from checks.gates.formats.readers import open_side

    print(f"{size / MILLION:.0f} M float32 pairs that fail: CPU seconds of figures and of detail")
    for name, change in FAULTS.items():
        pair = write_pair(folder / name, size, 1e-2, change)
        left, right = (open_side(pair / s).tensors["t"] for s in ("reference", "candidate"))
        found = measure(left, right)
        looked = detail(left, right, found)
        first = _cpu(functools.partial(measure, left, right))
        further = _cpu(functools.partial(detail, left, right, found))
        text = f"quantiles to {looked.within:.1e}" if looked.within else "quantiles exact"
        print(f"  {name:22} {first:6.2f} {further:6.2f}  {text}")


def _cpu(run: Callable[[], Any]) -> float:
    """CPU time of one call: what other work on the machine changes least."""
    start = time.process_time()
    run()
    return time.process_time() - start


# --- memory --------------------------------------------------------------------------------


def memory(folder: Path) -> None:
    """Growth of the peak resident set of a process that compares one pair, in MiB."""
    names = list(candidates())
    print("peak memory beyond what imports take, MiB; two tensors of")
    print(f"  {'':22}" + "".join(f" {n / MILLION:6.0f} M" for n in SIZES))
    pairs = [write_pair(folder / str(n), n, DRIFT) for n in SIZES]
    for name in names:
        figures = [_peak(name, pair) for pair in pairs]
        print(f"  {name:22}" + "".join(f" {f:8.0f}" for f in figures))


def _peak(name: str, pair: Path) -> float:
    command = [sys.executable, "-m", "benchmarks.bench_gates", name, str(pair)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def _measured_here(name: str, pair: Path, small: Path) -> float:
    run = candidates()[name]
    run(small)  # what is imported on the way
    before = _high_water()
    run(pair)
    return (_high_water() - before) / 1024


def _high_water() -> float:
    """The peak of this process in KiB; getrusage would still count the one that started it."""
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text()
        if found := re.search(r"VmHWM:\s+(\d+) kB", status):
            return float(found[1])
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 if sys.platform == "darwin" else 1)


def main() -> None:
    if not available("polygraphy"):
        print("polygraphy is not installed (pip install polygraphy): ours and NumPy's alone")
    with tempfile.TemporaryDirectory() as made:
        speed(Path(made) / "time", SIZES[-1])
        failing(Path(made) / "failing", SIZES[-1])
        memory(Path(made) / "memory")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        with tempfile.TemporaryDirectory() as made:
            small = write_pair(Path(made) / "small", 1024, DRIFT)
            print(_measured_here(sys.argv[1], Path(sys.argv[2]), small))
    else:
        main()
