"""One model on the bench: its reference dumped, limits calibrated, candidates compared with it."""

import fnmatch
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from checks.gates.causes.case import rms
from checks.gates.comparison.record import Result
from checks.gates.comparison.verdict import compare, compared, opened
from checks.gates.corpus.fault import Fault, Named, Run
from checks.gates.corpus.models import (
    BFLOAT16,
    FLOAT32,
    Model,
    drifted,
    patched_in,
    reordered,
)
from checks.gates.corpus.replays import OWN
from checks.gates.formats.manifest import GATE, MANIFEST, RUN, RunInfo, Statistics, Tensor
from checks.gates.formats.statistics import doubles
from checks.gates.limits.calibration import calibrate
from checks.gates.limits.contract import (
    Contract,
    Limit,
    provisional,
    read_contract,
    rounded_up,
    write_contract,
)
from checks.gates.limits.floors import floor
from checks.gates.overview import first_contract
from checks.tolerances import constant

# Where limits come from: eight inputs that no comparison sees again; or one, as the commands do.
CORPUS, INIT, CALIBRATE = SOURCES = ("corpus", "init", "calibrate")
CALIBRATION_INPUTS = 8
REFERENCES, CANDIDATES = 3, 2  # runs that `calibrate` is given
DOUBTED = 12  # of clean runs, by limits of nothing
EXPLAINED = 3  # failing tensors: the first gate, and informational ones before it


@dataclass(frozen=True)
class Bench:
    """A model with weights drawn once, the limits of its tensors, and one dumped reference run.

    Arguments:
        model, number, policy, size: which.
        folder: where dumps go.
        tolerances: the file.
    """

    model: Model
    number: int
    policy: str
    size: str
    folder: Path
    tolerances: Path

    def reference(self, inputs: int) -> Run:
        """The reference's run on inputs of that number."""
        return self.model.run(self.number, inputs, self.policy, self.size)

    def compared(self, candidate: Run, inputs: int) -> Result:
        """Dump a candidate's run and hold it against the reference's on the same inputs."""
        ours = self.folder / f"reference-{inputs}"
        if not ours.exists():
            write_run(ours, self.model.shown(self.reference(inputs)), self.model.roles, self.policy)
        theirs = self.folder / "candidate"
        write_run(theirs, self.model.shown(candidate), self.model.roles, self.policy)
        return compare(ours, theirs, self.tolerances, detailed=EXPLAINED)

    def replayed(
        self, candidate: Run, inputs: int, before: Result, reading: str, *, tight: bool = False
    ) -> Result:
        """Compare the candidate that was dumped last once more, with blocks to run again.

        Arguments:
            candidate, inputs: as given to `compared`.
            before: what `compared` returned, whose figures are taken over.
            reading: whose blocks they are, one of `replays.READINGS`.
            tight: by limits of nothing, so that every tensor that differs at all is explained.
        """
        paths = self.folder / f"reference-{inputs}", self.folder / "candidate"
        file = self._nothing() if tight else self.tolerances
        run = candidate if reading == OWN else self.reference(inputs)
        figures = {r.name: r.measured for r in before.rows if r.measured is not None}
        with patched_in(run):
            blocks = self.model.blocks(run.weights, run.config)
            given = replace(opened(*paths, file), blocks=blocks, measured=figures)
            return compared(given, detailed=DOUBTED if tight else EXPLAINED)

    def has_block(self, result: Result, inputs: int) -> bool:
        """Whether a block makes the tensor that diverged first."""
        run, first = self.reference(inputs), result.first
        if first is None:
            return False
        names = {b.output for b in self.model.blocks(run.weights, run.config)}
        name, _, call = first.name.partition("#")
        return bool(names & {name, f"{name}#{call or 0}"})

    def _nothing(self) -> Path:
        file = self.tolerances.with_name("nothing.json")
        if not file.exists():
            limits = dict.fromkeys(read_contract(self.tolerances).limits, Limit(0.0, 0.0))
            write_contract(file, Contract(file, limits, ("Of the corpus.",)))
        return file

    def drifted(self, inputs: int, number: int) -> Run:
        """A candidate without a fault: other rounding alone."""
        return drifted(self.model, self.reference(inputs), self.policy, number)

    def clean(self, inputs: int, number: int) -> Result:
        """Compare a candidate without a fault."""
        return self.compared(self.drifted(inputs, number), inputs)

    def injected(self, fault: Fault, inputs: int, number: int) -> Run:
        """A candidate with a fault, on top of other rounding."""
        return fault.inject(self.drifted(inputs, 3 * number + 1))

    def faulty(self, fault: Fault, inputs: int, number: int) -> Result:
        """Compare a candidate with a fault."""
        return self.compared(self.injected(fault, inputs, number), inputs)


def write_run(folder: Path, seen: Sequence[Named], roles: Mapping[str, str], policy: str) -> None:
    """Write a dump as a program without our library would: one file of raw values, a manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    calls: dict[str, int] = {}
    lines, offset = [], 0
    with open(folder / "values.bin", "wb") as file:
        for seq, (name, array) in enumerate(seen):
            data = np.ascontiguousarray(array).tobytes()
            file.write(data)
            call = calls.setdefault(name, 0)
            calls[name] += 1
            role = next((r for p, r in roles.items() if fnmatch.fnmatchcase(name, p)), GATE)
            tensor = Tensor(
                name,
                array.dtype.name,
                tuple(array.shape),
                "values.bin",
                offset=offset,
                crc32=zlib.crc32(data),
                seq=seq,
                call=call,
                role=role,
            )
            lines.append(tensor.to_line() + "\n")
            offset += len(data)
    (folder / MANIFEST).write_text("".join(lines), encoding="utf-8")
    run = RunInfo(side=folder.name, dtype_policy=policy)
    (folder / RUN).write_text(run.to_text(), encoding="utf-8")


def bench(
    model: Model,
    number: int,
    folder: Path,
    policy: str = FLOAT32,
    size: str = "tiny",
    source: str = CORPUS,
) -> Bench:
    """Return a model with limits; by default from eight inputs that no comparison sees again.

    float32: max(provisional, 1.5 x drift), as `gradsweep gate calibrate` proposes. bfloat16: runs
    of the reference whose sums are taken otherwise are its noise, so 4 x noise; and nothing below
    the format's floor (see `limits.floors`).

    Arguments:
        model, number, policy, size: which.
        folder: where dumps go; made.
        source: "init" for the limits that command gives of one run, "calibrate" for those of three
            reference and two candidate runs on one input, `--tighten`.
    """
    folder.mkdir(parents=True)
    file = folder / f"{model.name}.json"
    made = Bench(model, number, policy, size, folder, file)
    if source == CORPUS:
        limits = _calibrated(model, number, policy, size)
        write_contract(file, Contract(file, limits, ("Of the corpus.",)))
    else:
        _by_command(made, source)
    return made


def _by_command(made: Bench, source: str) -> None:
    run, model = made.reference(0), made.model
    others = [reordered(model, run, CALIBRATION_INPUTS + n) for n in range(1, REFERENCES)]
    theirs = [drifted(model, run, made.policy, n) for n in range(CANDIDATES)]
    paths = {}
    for side, runs in (("reference", [run, *others]), ("candidate", theirs)):
        paths[side] = [made.folder / f"{source}-{side}-{n}" for n in range(len(runs))]
        for path, one in zip(paths[side], runs, strict=True):
            write_run(path, model.shown(one), model.roles, made.policy)
    first_contract(paths["reference"][:1], made.tolerances)
    if source == CALIBRATE:
        why = "what runs of the corpus drift by"
        found = calibrate(
            made.tolerances,
            paths["reference"],
            paths["candidate"],
            because=why,
            understood=["*"],
            tighten=True,
        )
        write_contract(made.tolerances, found.contract)


def _calibrated(model: Model, number: int, policy: str, size: str) -> dict[str, Limit]:
    figures: dict[str, list[Statistics]] = {}
    drift: dict[str, list[tuple[float, float]]] = {}
    for inputs in range(CALIBRATION_INPUTS):
        run = model.run(number, inputs, policy, size)
        ours = model.shown(run)
        theirs = model.shown(drifted(model, run, policy, inputs))
        for (name, r), (_, c) in zip(ours, theirs, strict=True):
            figures.setdefault(name, []).append(_figures(r))
            drift.setdefault(name, []).append(_apart(r, c))
    first = provisional if policy == FLOAT32 else _floor
    factor = constant("gate_calibrate_drift" if policy == FLOAT32 else "gate_calibrate_noise")
    return {n: _limit(first(figures[n]), drift[n], factor) for n in figures}


def _figures(array: Any) -> Statistics:
    flat = np.abs(doubles(array))
    flat = flat[np.isfinite(flat)]
    if not flat.size:
        return Statistics()
    return Statistics(rms=rms(flat), p99_abs=float(np.quantile(flat, 0.99)))


def _floor(figures: Sequence[Statistics]) -> Limit:
    least = floor((s, FLOAT32, BFLOAT16) for s in figures)
    assert least is not None
    return least


def _apart(r: Any, c: Any) -> tuple[float, float]:
    r, c = doubles(r), doubles(c)
    good = np.isfinite(r) & np.isfinite(c)
    e = np.abs(c[good] - r[good])
    return (float(e.max()), float(e.mean())) if e.size else (0.0, 0.0)


def _limit(first: Limit, seen: Sequence[tuple[float, float]], factor: float) -> Limit:
    largest, mean = (factor * max(pair[n] for pair in seen) for n in (0, 1))
    return Limit(rounded_up(max(first.max_abs, largest)), rounded_up(max(first.mean_abs, mean)))
