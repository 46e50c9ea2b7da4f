"""What one dump holds, and a first tolerance file made from it."""

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from checks.gates.errors import INVALID, GateError
from checks.gates.formats.manifest import DEBUG, GATE, Statistics
from checks.gates.formats.readers import Side, open_side
from checks.gates.formats.statistics import statistics
from checks.gates.limits.contract import Contract, Limit, provisional, write_contract
from checks.gates.limits.floors import floor, formats, formula
from checks.gates.limits.origins import FLOOR, PROVISIONAL, origin, widest
from checks.gates.reports.rows import shown
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
    runs: Sequence[Path],
    output: Path,
    only: str | None = None,
    *,
    force: bool = False,
    dtype: str | None = None,
) -> Contract:
    """Write provisional limits for every tensor that is no debug one: the widest over the runs.

    max_abs = max(1e-4 p99|x|, 1e-6), mean_abs = max(1e-5 rms, 1e-6), rounded up to two digits; in
    bfloat16 and float16 no less than their floor (see `limits.floors`).

    Arguments:
        runs: of the reference.
        output: where to write.
        only: a pattern of names.
        force: replace the file.
        dtype: what the runs were computed in, where neither their dtypes nor policy tell it.

    Raises:
        GateError: the file exists, a gate is not finite, runs differ in dtype policy, there is no
            such dtype, there is nothing to write.
    """
    if output.exists() and not force:
        fix = "name another file, or add --force"
        raise GateError("the tolerance file exists", str(output), fix)
    sides = [open_side(r) for r in runs]
    policies = {s.run.dtype_policy for s in sides if s.run and s.run.dtype_policy}
    if len(policies) > 1:
        what = f"the runs' dtype policies differ: {', '.join(sorted(policies))}"
        raise GateError(what, str(runs[0]), "write one file for each policy", code=INVALID)
    figures: dict[str, list[tuple[Statistics, str, str]]] = {}
    for side in sides:
        made = formats(side, dtype)
        for key in _kept(side, only):
            tensor = side.tensors[key].tensor
            if tensor.role != DEBUG:
                found = tensor.dtype, made.get(key, "")
                figures.setdefault(tensor.name, []).append((_finite(side, key), *found))
    if not figures:
        raise GateError("no tensor to write limits for", str(runs[0]), "name others", code=INVALID)
    limits = {name: _first(f) for name, f in figures.items()}
    narrow = sorted({d for found in figures.values() for _, _, d in found if d})
    contract = Contract(output, limits, _comment(sides, policies, narrow))
    write_contract(output, contract)
    return contract


def _finite(side: Side, key: str) -> Statistics:
    """A tensor's figures; all entries of a gate are finite."""
    found = statistics(side.tensors[key].chunks())
    if side.tensors[key].tensor.role == GATE and found.nonfinite:
        what = f"the gate {key!r} has {found.nonfinite:,} non-finite entries"
        fix = "dump it before the softmax, or make it informational"
        raise GateError(what, str(side.path), fix, code=INVALID)
    return found


def _first(figures: Sequence[tuple[Statistics, str, str]]) -> Limit:
    first, least = provisional(s for s, _, _ in figures), floor(figures)
    if least is None:
        return first
    limit, decided = widest({PROVISIONAL: first, FLOOR: least})
    return replace(limit, comment=(origin(decided),))


def _comment(sides: Sequence[Side], policies: set[str], narrow: Sequence[str]) -> tuple[str, ...]:
    policy = next(iter(policies), "not stated")
    lines = [
        f"Provisional, from {plural(len(sides), 'reference run')}; dtype policy: {policy}.",
        "max_abs = max(1e-4 p99, 1e-6), mean_abs = max(1e-5 rms, 1e-6).",
        *(formula(dtype) for dtype in narrow),
    ]
    hashes = {n: h for s in sides if s.run for n, h in s.run.input_hashes.items()}
    return (*lines, *(f"Input {n}: {h}." for n, h in hashes.items()))


def _kept(side: Side, only: str | None) -> list[str]:
    return [
        k for k in side.tensors if only is None or fnmatch.fnmatchcase(k.partition("#")[0], only)
    ]
