"""`gradsweep gate init`: first tolerances from one or more reference runs."""

import argparse
from pathlib import Path

HELP = "first tolerances from one or more reference runs"


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    command.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="DUMP",
        help="of the reference; of several, the widest limits",
    )
    command.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="where to write"
    )
    command.add_argument("--only", metavar="GLOB", help="only these names")
    dtype(command)
    command.add_argument("--force", action="store_true", help="replace the file where it exists")


def dtype(command: argparse.ArgumentParser) -> None:
    """Declare what a run was computed in."""
    command.add_argument(
        "--dtype",
        metavar="DTYPE",
        help="computed in, such as bf16, where the runs' dtypes and policy do not say it",
    )


def run(given: argparse.Namespace) -> int:
    """Write the file; return 0."""
    from checks.gates.overview import first_contract
    from checks.report.wording import plural

    contract = first_contract(
        given.runs, given.output, given.only, force=given.force, dtype=given.dtype
    )
    print(f"{given.output}: provisional limits of {plural(len(contract.limits), 'tensor')}")
    for line in contract.comment:
        if line.startswith("Floor of "):
            print(line)
    return 0
