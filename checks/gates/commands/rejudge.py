"""`gradsweep gate rejudge`: a saved JSON report against another tolerance file."""

import argparse
from pathlib import Path

from checks.gates.commands.compare import (
    SAVED,
    apart,
    limits,
    policies,
    policy_of,
    render,
    written,
)

HELP = "a saved JSON report against another tolerance file, without the dumps"


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    command.add_argument("report", type=Path, metavar="REPORT.json", help=SAVED)
    limits(command)
    command.add_argument(
        "--isolated",
        type=Path,
        metavar="FILE",
        help="what `gradsweep gate isolate --json` wrote: its causes are taken over",
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write the new report there")
    command.add_argument("--quiet", action="store_true", help="print failing tensors alone")
    policies(command)
    written(command)


def run(given: argparse.Namespace) -> int:
    """Judge, print, write; return the exit code."""
    from checks.gates.comparison.rejudging import rejudge
    from checks.gates.reports.terminal import printer, show_rows

    apart(given)
    report = rejudge(given.report, given.tolerances, given.isolated, policy_of(given))
    show_rows(report, printer(), quiet=given.quiet)
    render(report, given)
    return report.exit_code
