"""What one dump holds, and a first tolerance file made from it."""

import fnmatch
from collections.abc import Iterator, Sequence
from pathlib import Path

from checks.gates.errors import INVALID, GateError
from checks.gates.formats.manifest import DEBUG, GATE, Statistics
from checks.gates.formats.readers import Side, open_side
from checks.gates.formats.statistics import statistics
from checks.gates.limits.contract import Contract, Limit, provisional, write_contract
from checks.gates.reports.terminal import shown
from checks.report.wording import plural


def inspect(path: str | Path, only: str | None = None) -> Iterator[str]:
    """Yield a line for each tensor of a dump: name, role, dtype, shape, figures.

    All values are read, so that damage is found.

    Raises:
        GateError: the dump cannot be read.
    """
    side = open_side(path)
    kept = _kept(side, only)
    run = side.run
    ordered = "in execution order" if side.ordered else "in no known order"
    yield f"{side.path}: {side.format}, {plural(len(kept), 'tensor')}, {ordered}"
    if run is not None:
        known = {n: getattr(run, n) for n in ("side", "family", "dtype_policy", "seed", "command")}
        yield "  " + ", ".join(f"{n} {v}" for n, v in known.items() if v not in ("", None))
    for key in kept:
        t = side.tensors[key].tensor
        s = statistics(side.tensors[key].chunks())
        figures = {"min": s.min, "max": s.max, "mean": s.mean, "rms": s.rms, "p99": s.p99_abs}
        text = f"{key:40} {t.role:13} {t.dtype:9} {list(t.shape)!s:18} "
        text += " ".join(f"{n} {shown(v)}" for n, v in figures.items())
        counts = {"NaN": s.nan, "+inf": s.posinf, "-inf": s.neginf}
        yield text + "".join(f"  {v:,} {n}" for n, v in counts.items() if v)


def first_contract(
    runs: Sequence[Path], output: Path, only: str | None = None, *, force: bool = False
) -> Contract:
    """Write provisional limits for every tensor that is no debug one: the widest over the runs.

    max_abs = max(1e-4 p99|x|, 1e-6), mean_abs = max(1e-5 rms, 1e-6), rounded up to two digits.

    Raises:
        GateError: the file exists, a gate is not finite, runs differ in dtype policy, there is
            nothing to write.
    """
    if output.exists() and not force:
        fix = "name another file, or add --force"
        raise GateError("the tolerance file exists", str(output), fix)
    sides = [open_side(r) for r in runs]
    policies = {s.run.dtype_policy for s in sides if s.run and s.run.dtype_policy}
    if len(policies) > 1:
        what = f"the runs' dtype policies differ: {', '.join(sorted(policies))}"
        raise GateError(what, str(runs[0]), "write one file for each policy", code=INVALID)
    figures: dict[str, list[Statistics]] = {}
    for side in sides:
        for key in _kept(side, only):
            tensor = side.tensors[key].tensor
            if tensor.role == DEBUG:
                continue
            found = statistics(side.tensors[key].chunks())
            if tensor.role == GATE and found.nonfinite:
                what = f"the gate {key!r} has {found.nonfinite:,} non-finite entries"
                fix = "dump it before the softmax, or make it informational"
                raise GateError(what, str(side.path), fix, code=INVALID)
            figures.setdefault(tensor.name, []).append(found)
    if not figures:
        raise GateError("no tensor to write limits for", str(runs[0]), "name others", code=INVALID)
    limits: dict[str, Limit] = {name: provisional(f) for name, f in figures.items()}
    contract = Contract(output, limits, _comment(sides, policies))
    write_contract(output, contract)
    return contract


def _comment(sides: Sequence[Side], policies: set[str]) -> tuple[str, ...]:
    policy = next(iter(policies), "not stated")
    lines = [
        f"Provisional, from {plural(len(sides), 'reference run')}; dtype policy: {policy}.",
        "max_abs = max(1e-4 p99, 1e-6), mean_abs = max(1e-5 rms, 1e-6).",
    ]
    hashes = {n: h for s in sides if s.run for n, h in s.run.input_hashes.items()}
    return (*lines, *(f"Input {n}: {h}." for n, h in hashes.items()))


def _kept(side: Side, only: str | None) -> list[str]:
    return [
        k for k in side.tensors if only is None or fnmatch.fnmatchcase(k.partition("#")[0], only)
    ]
