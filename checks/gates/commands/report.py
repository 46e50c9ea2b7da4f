"""`gradsweep gate report`: a saved JSON report rendered again."""

import argparse
from pathlib import Path

from checks.gates.commands.compare import SAVED, apart, render, written

HELP = "a saved JSON report on the terminal, as a page or as JUnit"


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    command.add_argument("report", type=Path, metavar="REPORT.json", help=SAVED)
    command.add_argument("--quiet", action="store_true", help="print failing tensors alone")
    written(command)


def run(given: argparse.Namespace) -> int:
    """Print and write; return the exit code of the comparison."""
    from checks.gates.reports.saved import read_report
    from checks.gates.reports.terminal import printer, show_rows

    apart(given)
    report = read_report(given.report)
    show_rows(report, printer(), quiet=given.quiet)
    render(report, given)
    return report.exit_code
