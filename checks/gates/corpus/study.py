"""The study: every fault against the gate, in several draws; what is caught, placed and explained.

Limits are calibrated on inputs that no comparison sees again; every draw has weights, inputs and
an order of summation of its own, and every other one has other sizes.
"""

import argparse
import fnmatch
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from checks.gates.causes.replay import INHERITED
from checks.gates.comparison.record import WEAK
from checks.gates.corpus.bench import CALIBRATION_INPUTS, CORPUS, SOURCES, Bench, bench
from checks.gates.corpus.fault import Fault
from checks.gates.corpus.models import FLOAT32, POLICIES, Model, models
from checks.gates.corpus.replays import READINGS
from checks.gates.corpus.scores import Alarm, Outcome, Study, outcome, suspected_of, table
from checks.gates.errors import PASSED, WRONG, GateError
from checks.results import replace_text

SEEDS = 3
CLEAN = 6  # clean runs for each model and policy, over all draws: 42 and 36
Say = Callable[[str], None]


def faults(only: str | None = None) -> list[Fault]:
    """Return the faults whose "model: name" matches a pattern such as "ctc_head*"; all by default.

    Raises:
        GateError: the pattern matches none.
    """
    from checks.gates.corpus.faults import (
        front,
        fronts,
        heads,
        ports,
        sequence,
        transformer,
        variants,
    )

    parts = (front, transformer, sequence, heads, ports, variants, fronts)
    every = [f for part in parts for f in part.FAULTS]
    kept = [f for f in every if only is None or fnmatch.fnmatchcase(f.label, f"{only}*")]
    if not kept:
        raise GateError(
            f"no fault matches {only!r}", "--only", 'write "ctc_head*", or leave it out'
        )
    return kept


def study(
    chosen: Sequence[Fault],
    seeds: Sequence[int],
    *,
    clean: int = CLEAN,
    policy: str | None = None,
    source: str = CORPUS,
    say: Say = lambda text: None,
) -> Study:
    """Run faults, and clean runs of their models, in every draw.

    Arguments:
        chosen: the faults.
        seeds: of the draws; even ones have the sizes "tiny", odd ones "other".
        clean: clean runs for each model and policy.
        policy: the one of faults and clean runs; by default faults are in float32, clean runs in
            both.
        source: where limits come from, see `bench`.
        say: called with a line for each draw.
    """
    start = time.perf_counter()
    outcomes: list[Outcome] = []
    alarms: list[Alarm] = []
    doubts: list[Alarm] = []
    suspicions: list[Alarm] = []
    counted = dict.fromkeys(POLICIES, 0)
    names = dict.fromkeys(f.model for f in chosen)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            model = models()[name]
            mine = [f for f in chosen if f.model == name]
            for number, seed in enumerate(seeds):
                place = Path(folder) / f"{name}-{seed}"
                share = clean // len(seeds) + (number < clean % len(seeds))
                for one in model.policies:
                    if policy not in (None, one):
                        continue
                    made = bench(model, seed, place / one, one, _size(model, seed), source)
                    if one == (policy or FLOAT32):
                        outcomes += _faulty(made, mine)
                    for kept, new in zip(
                        (alarms, doubts, suspicions), _clean(made, share), strict=True
                    ):
                        kept += new
                    counted[one] += share
                say(f"{name}, draw {seed}: {len(mine)} faults, {time.perf_counter() - start:.0f} s")
    return Study(outcomes, alarms, counted, time.perf_counter() - start, doubts, suspicions)


def _size(model: Model, seed: int) -> str:
    return list(model.sizes)[seed % len(model.sizes)]


def _faulty(made: Bench, chosen: Sequence[Fault]) -> Iterator[Outcome]:
    """Each fault by the two dumps alone; then with blocks, where one makes what diverged, in one
    reading of two by turns.
    """
    for number, fault in enumerate(chosen):
        inputs = CALIBRATION_INPUTS + number % 4
        run = made.injected(fault, inputs, number)
        result = made.compared(run, inputs)
        yield outcome(fault, made.size, made.number, result)
        if made.has_block(result, inputs):
            reading = READINGS[(made.number + number) % 2]
            again = made.replayed(run, inputs, result, reading)
            yield outcome(fault, made.size, made.number, again, reading)


def _clean(made: Bench, runs: int) -> tuple[list[Alarm], list[Alarm], list[Alarm]]:
    """Clean runs that did not pass; those of which a replay named a cause, where limits of nothing
    had every tensor explained; those in which a tensor looks systematic.
    """
    alarms, doubts, suspicions = [], [], []
    for number in range(runs):
        inputs = CALIBRATION_INPUTS + 4 + number
        run = made.drifted(inputs, 1000 + number)
        result = made.compared(run, inputs)
        if not result.ok:
            first = result.first.name if result.first else None
            named = result.cause.name if result.cause else "unclassified"
            alarms.append(_alarm(made, first, named))
        if result.quiet is not None:
            suspicions.append(_alarm(made, result.quiet.name, suspected_of(result)))
        reading = READINGS[(made.number + number) % 2]
        result = made.replayed(run, inputs, result, reading, tight=True)
        blamed = (r for r in result.rows if r.cause and r.cause.name not in (INHERITED, *WEAK))
        if row := next(blamed, None):
            assert row.cause is not None
            doubts.append(_alarm(made, row.name, row.cause.name))
    return alarms, doubts, suspicions


def _alarm(made: Bench, first: str | None, cause: str) -> Alarm:
    return Alarm(made.model.name, made.policy, made.size, made.number, first, cause)


def lines(found: Study) -> Iterator[str]:
    """Yield the report: a table by cause and model, what went wrong by name, the rates."""
    heads = ("draws", "caught", "placed", "tellable", "right", "wrong")
    for title, outcomes in (("cause", found.plain), ("with blocks", found.replayed)):
        if outcomes:
            yield f"{title:36} {'model':16} " + " ".join(f"{h:>8}" for h in heads)
        for cause, model, counts in table(outcomes):
            yield f"{cause:36} {model:16} " + " ".join(f"{c:8d}" for c in counts)
    for title, bad in (
        ("not caught", found.survivors),
        ("first divergence elsewhere", found.misplaced),
        ("wrong diagnosis", found.misdiagnosed),
        ("choice judged wrong", [o for o in found.plain if o.choice is False]),
    ):
        for o in bad:
            said = f": {', '.join(o.printed)}" if title == "wrong diagnosis" else ""
            place = f": {o.first}, not {' or '.join(o.expected)}" if "elsewhere" in title else ""
            yield f"{title}: {o.label}{place}{said}" + (f" ({o.text})" if said else "")
    silent = dict.fromkeys(f"{o.model}: {o.name}{o.suffix}" for o in found.unexplained)
    for name in silent:
        yield f"unclassified: {name}"
    for title, alarms in (
        ("false alarm", found.alarms),
        ("false diagnosis", found.doubts),
        ("looks systematic", found.suspicions),
    ):
        for a in alarms:
            yield f"{title}: {a.model} {a.policy}, {a.size} {a.number}: {a.first} ({a.cause})"
    yield ""
    for rate in found.rates:
        yield str(rate)
    count = len({(o.model, o.name) for o in found.outcomes})
    yield f"{count} faults, {len(found.outcomes)} runs, {found.seconds:.0f} s"


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare --seeds, --first-seed, --clean, --policy, --limits, --only and --json."""
    command.add_argument("--only", metavar="GLOB", help='faults, such as "ctc_head: *"')
    options(command)
    command.add_argument("--json", metavar="FILE", help="write every outcome")


def options(command: argparse.ArgumentParser) -> None:
    """Declare what only the corpus knows."""
    command.add_argument("--seeds", type=int, metavar="N", help=f"draws, {SEEDS} by default")
    command.add_argument("--first-seed", type=int, metavar="N", help="of the first draw: 0")
    command.add_argument("--clean", type=int, metavar="N", help=f"clean runs of a model: {CLEAN}")
    command.add_argument("--policy", choices=POLICIES, help="of faults and clean runs")
    command.add_argument("--limits", choices=SOURCES, help=f"where limits come from: {CORPUS}")


def main(given: argparse.Namespace) -> int:
    """Run the study, print its report; 0 where every structural fault is caught, nothing clean
    fails or looks systematic and no replay blames a right port, else 1.

    Raises:
        GateError: no fault matches, or the file cannot be written.
    """
    say: Say = lambda text: print(text, file=sys.stderr)  # noqa: E731
    chosen = {n: getattr(given, n, None) for n in ("seeds", "first_seed", "clean", "policy")}
    first = chosen["first_seed"] or 0
    found = study(
        faults(getattr(given, "only", None)),
        range(first, first + max(1, chosen["seeds"] or SEEDS)),
        clean=CLEAN if chosen["clean"] is None else chosen["clean"],
        policy=chosen["policy"],
        source=getattr(given, "limits", None) or CORPUS,
        say=say,
    )
    for line in lines(found):
        print(line)
    if target := getattr(given, "json", None):
        try:
            replace_text(Path(target), json.dumps(found.to_record(), indent=1) + "\n")
        except OSError as error:
            reason = error.strerror or str(error)
            raise GateError(f"cannot be written: {reason}", target, "name another file") from None
    bad = (found.survivors, found.alarms, found.doubts, found.suspicions)
    return WRONG if any(bad) else PASSED
