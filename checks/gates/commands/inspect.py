"""`gradsweep gate inspect`: what one dump holds."""

import argparse
from pathlib import Path

HELP = "what one dump holds"


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    command.add_argument(
        "side", type=Path, metavar="DUMP", help="a folder, or an .npz or .safetensors file"
    )
    command.add_argument("--only", metavar="GLOB", help="only these names")


def run(given: argparse.Namespace) -> int:
    """Print a line for each tensor; return 0."""
    from checks.gates.overview import inspect
    from checks.gates.reports.terminal import printer
    from checks.report.wording import printable

    out = printer()
    for text in inspect(given.side, given.only):
        out.print(printable(text), soft_wrap=True, markup=False)
    return 0
