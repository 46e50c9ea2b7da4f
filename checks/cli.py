"""The `gradsweep` command."""

import argparse
import datetime
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

REPORT = Path("build/op-sweep")
COMMANDS = ("sweep", "report", "check", "power", "gate", "doctor")
# 2 is argparse's own. Of a gate it says that no comparison is valid (docs/gates.md).
WRONG_USE, GATE_USE, INTERRUPTED = 2, 3, 130
NOT_INSTALLED = "(run from its source folder, not installed)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; returns the exit code. A user's mistake is three lines, no traceback."""
    try:
        return _run(argv)
    except KeyboardInterrupt:
        print("gradsweep: stopped", file=sys.stderr)
        return INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    found = parser()
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        return _unknown(words[0])
    arguments = found.parse_args(words)
    if not hasattr(arguments, "run"):
        found.print_help()
        return WRONG_USE
    from autodiff.errors import AutodiffError
    from checks.results import ResultsError
    from checks.tolerance_file import ToleranceTableError

    try:
        return int(arguments.run(arguments))
    except (AutodiffError, ResultsError, ToleranceTableError) as error:
        print(f"gradsweep: {error}", file=sys.stderr)
        return GATE_USE if arguments.command == "gate" else WRONG_USE


def _unknown(word: str) -> int:
    from autodiff.errors import nearest

    fix = nearest(word, COMMANDS) or f"use one of {', '.join(COMMANDS)}"
    print(f"gradsweep: there is no command {word!r}\n  {fix}", file=sys.stderr)
    return WRONG_USE


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="gradsweep", description="Is this derivative right, on every path it will be run on?"
    )
    top.add_argument("--version", action=_Version, help="print the version and exit")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    _sweep_arguments(commands.add_parser("sweep", help="every op, every sample, every surface"))
    report = commands.add_parser("report", help="write the page anew from a folder's JSON lines")
    report.add_argument("folder", nargs="?", default=REPORT, type=Path, help=f"default {REPORT}")
    report.set_defaults(run=_report)
    _check_arguments(commands)
    _power_arguments(commands)
    _gate_arguments(commands)
    doctor = commands.add_parser("doctor", help="what is installed, missing or in the way")
    doctor.set_defaults(run=_doctor)
    return top


class _Version(argparse.Action):
    """Look the version up only where it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"gradsweep {versions().get('gradsweep', NOT_INSTALLED)}")
        parser.exit()


def _check_arguments(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    from checks.gradients.command import arguments

    arguments(commands.add_parser("check", help="the derivatives of one function of yours"))


def _power_arguments(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    from checks.power.command import arguments

    arguments(commands.add_parser("power", help="wrong rules of every op: which are caught"))


def _gate_arguments(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    from checks.gates.command import arguments

    arguments(commands.add_parser("gate", help="dumps of two programs, tensor by tensor"))


def _sweep_arguments(sweep: argparse.ArgumentParser) -> None:
    sweep.add_argument("--op", action="append", metavar="KIND", help="only this op (repeatable)")
    sweep.add_argument("--surface", action="append", metavar="NAME", help="only this (repeatable)")
    sweep.add_argument(
        "--sample", metavar="NAME", help="only this sample of one --op; writes no report"
    )
    sweep.add_argument("--shard", type=_shard, metavar="I/N", help="the ops of one part of N")
    sweep.add_argument("--workers", type=_count, default=2, help="processes (0: none; default 2)")
    sweep.add_argument(
        "--report",
        type=Path,
        default=REPORT,
        metavar="DIR",
        help=f"where the report goes, over an earlier one (default {REPORT})",
    )
    sweep.add_argument(
        "--allow-missing",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="do not exit 3 where surfaces are skipped for want of this package",
    )
    sweep.add_argument("--strict-tolerances", action="store_true", help="ignore all overrides")
    sweep.add_argument(
        "--list", action="store_true", help="list surfaces, ops, samples of --op; run nothing"
    )
    sweep.set_defaults(run=_sweep)


def _shard(text: str) -> tuple[int, int]:
    part, slash, count = text.partition("/")
    if not (slash and part.isdigit() and count.isdigit() and 1 <= int(part) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with I from 1 to N, such as 1/4")
    return int(part), int(count)


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes, such as 2")
    return int(text)


def _sweep(arguments: argparse.Namespace) -> int:
    import os

    if arguments.strict_tolerances:
        os.environ["GRADSWEEP_STRICT_TOLERANCES"] = "1"
    from checks import runner

    found = runner.items(arguments.op, arguments.surface, arguments.shard)
    if arguments.list:
        return _listed(found, samples=bool(arguments.op))
    runner.check_names()
    if arguments.sample is not None:
        return _one_sample(arguments, found)
    return _full(arguments, found)


def _listed(found: Sequence[object], samples: bool) -> int:
    from checks.runner import Item, subjects
    from checks.surfaces.base import surface

    items = [i for i in found if isinstance(i, Item)]
    for name in dict.fromkeys(i.surface for i in items):
        print(f"{name:12} {surface(name).compares}")
    ops = sorted({i.op for i in items})
    print(f"{len(ops)} op{'s' * (len(ops) != 1)}: {' '.join(ops)}")
    for op in ops if samples else ():
        print(f"samples of {op}: {' '.join(dict.fromkeys(s.sample for s in subjects(op)))}")
    return 0


def _one_sample(arguments: argparse.Namespace, found: Sequence[object]) -> int:
    from autodiff.errors import OpError
    from checks.pool import prepare_worker
    from checks.report.terminal import print_report
    from checks.results import exit_code
    from checks.runner import Item, run_item

    if not arguments.op or len(arguments.op) != 1:
        raise OpError("--sample needs one op", "gradsweep sweep", "add --op KIND")
    prepare_worker()
    rows = []
    for item in found:
        assert isinstance(item, Item)
        rows += run_item(item, arguments.sample)
    if not rows:
        asked = " or ".join(arguments.surface or ["any surface"])
        raise OpError(
            f"{asked} says nothing about sample {arguments.sample!r} of {arguments.op[0]}",
            "gradsweep sweep: a surface leaves out samples that it cannot judge, such as "
            "derivatives at the end of a domain",
            "leave out --surface: every surface that has something to say runs",
        )
    notes = [f"{r.surface} skipped: {r.reason}" for r in rows if r.status == "skipped"]
    return exit_code(print_report(rows, notes=notes), arguments.allow_missing)


def _full(arguments: argparse.Namespace, found: Sequence[object]) -> int:
    from checks import pool
    from checks.report import Meta, write_all
    from checks.report.terminal import print_report, progress
    from checks.results import exit_code
    from checks.runner import Item
    from checks.tolerances import stale_overrides

    items = [i for i in found if isinstance(i, Item)]
    _writable(arguments.report)
    started, clock = datetime.datetime.now(datetime.UTC), time.perf_counter()
    rows = []
    # `results` is closed first: its processes have ended before the bar does.
    with progress(len(items)) as advance, closing(pool.run(items, arguments.workers)) as results:
        for _, new in results:
            rows += new
            advance(new)
    wall = time.perf_counter() - clock
    partial = bool(arguments.op or arguments.surface or arguments.shard)
    stale = [] if arguments.strict_tolerances else stale_overrides(rows, partial=partial)
    meta = Meta(
        title="gradsweep op sweep",
        started=started.isoformat(timespec="seconds"),
        wall=wall,
        workers=max(arguments.workers, 1),
        command=" ".join(["gradsweep", *sys.argv[1:]]),
        versions=versions(),
        machine=machine(),
    )
    paths = write_all(rows, arguments.report, meta)
    found_summary = print_report(rows, wall=wall, path=paths.page, notes=[str(s) for s in stale])
    code = exit_code(found_summary, arguments.allow_missing)
    return code or (1 if stale else 0)


def _writable(folder: Path) -> None:
    """Raise before a run whose report could not be written after it."""
    import tempfile

    from checks.results import ResultsError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ResultsError(
            f"the report cannot be written: {error.strerror}",
            f"to {folder}",
            "name a folder that can be written with --report DIR",
        ) from None


def _report(arguments: argparse.Namespace) -> int:
    from checks.report import rebuild

    print(f"report: {rebuild(arguments.folder).page}")
    return 0


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    import importlib.metadata
    import platform

    found = {"python": platform.python_version()}
    for name in ("gradsweep", "numpy", "scipy", "mpmath", "python-flint", "jax", "jaxlib", "torch"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine() -> str:
    """The machine in a few words."""
    import os
    import platform

    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"


def _doctor(arguments: argparse.Namespace) -> int:
    from checks.doctor import report

    del arguments
    return report()


if __name__ == "__main__":
    sys.exit(main())
