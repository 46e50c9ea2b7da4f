"""`gradsweep power`: the mutation study and the false alarms, on the terminal."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checks.power.checker import CheckerOutcome


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare the sub-command's arguments."""
    command.add_argument("--op", action="append", metavar="KIND", help="only this op (repeatable)")
    command.add_argument("--mutation", action="append", metavar="NAME", help="only this mutation")
    command.add_argument("--surface", action="append", metavar="NAME", help="only this surface")
    command.add_argument("--workers", type=int, default=2, help="processes (0: none; default 2)")
    command.add_argument(
        "--sample-share", type=share, metavar="I/N", help="the mutants of one part of N"
    )
    command.add_argument(
        "--every-surface", action="store_true", help="show each mutant to all surfaces"
    )
    command.add_argument(
        "--seeds",
        type=int,
        default=0,
        metavar="N",
        help="run the derivative surfaces over right rules with N seeds instead: false alarms",
    )
    command.add_argument(
        "--checker",
        action="store_true",
        help="show wrong hand-written gradients to check_gradients, nothing else",
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write every mutant there")
    command.add_argument("-v", "--verbose", action="store_true", help="name equivalent mutants")
    command.set_defaults(run=run)


def share(text: str) -> tuple[int, int]:
    """I/N as two numbers."""
    part, slash, count = text.partition("/")
    if not (slash and part.isdigit() and count.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N, such as 1/20")
    return int(part), int(count)


def run(given: argparse.Namespace) -> int:
    """Run the study with wrong gradients at its end (or one part of it); returns the exit code."""
    from checks.pool import prepare_worker

    if given.workers <= 0 or given.checker:
        prepare_worker()
    if given.checker:
        return _checker(given)
    return _alarms(given) if given.seeds else _study(given)


def _study(given: argparse.Namespace) -> int:
    from autodiff.errors import OpError
    from catalogue import ENTRIES
    from checks.power import report
    from checks.power.study import Options, Outcome, study
    from checks.report.terminal import console, progress

    options = Options(
        mutations=tuple(given.mutation) if given.mutation else None,
        surfaces=tuple(given.surface) if given.surface else None,
        share=given.sample_share,
        all_surfaces=given.every_surface,
    )
    clock, outcomes, out = time.perf_counter(), list[Outcome](), console()
    with progress(len(given.op or ENTRIES), label="power") as advance:
        for _, new in study(given.op, options, given.workers):
            outcomes += new
            advance()
    if not outcomes:
        raise OpError("the selection holds no mutant", "gradsweep power", "widen the filter")
    wall = time.perf_counter() - clock
    outcomes.sort(key=lambda o: o.mutant.name)
    report.print_study(out, outcomes, wall=wall, every=given.every_surface, verbose=given.verbose)
    whole = not (given.op or given.mutation or given.surface or given.sample_share)
    stale = report.stale_explanations(outcomes) if whole else []
    for known in stale:
        out.print(f"{known.op} {known.rule}, {known.mutation}: the explanation is not needed")
    checker = _gradients() if whole else []
    if given.json:
        report.write_json(given.json, wall, outcomes, checker=checker)
    return report.exit_code(outcomes, checker=checker, stale=len(stale))


def _gradients() -> "list[CheckerOutcome]":
    from checks.power import report
    from checks.power.checker import study_checker
    from checks.report.terminal import console

    clock = time.perf_counter()
    found = list(study_checker())
    out = console()
    out.print()
    report.print_checker(out, found, time.perf_counter() - clock)
    return found


def _checker(given: argparse.Namespace) -> int:
    from checks.power import report

    clock = time.perf_counter()
    found = _gradients()
    if given.json:
        report.write_json(given.json, time.perf_counter() - clock, checker=found)
    return report.exit_code(checker=found)


def _alarms(given: argparse.Namespace) -> int:
    from catalogue import ENTRIES
    from checks.power import alarms, report
    from checks.report.terminal import console, progress

    surfaces = tuple(given.surface or alarms.SURFACES)
    clock, found = time.perf_counter(), list[alarms.Alarms]()
    with progress(len(given.op or ENTRIES), label="power") as advance:
        for _, new in alarms.false_alarms(given.seeds, given.op, surfaces, given.workers):
            found.append(new)
            advance(new.rows)
    wall = time.perf_counter() - clock
    report.print_alarms(console(), found, given.seeds, wall)
    if given.json:
        report.write_json(given.json, wall, alarms=found)
    return report.exit_code(alarms=found)
