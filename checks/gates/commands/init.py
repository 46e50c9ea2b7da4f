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
    command.add_argument("--force", action="store_true", help="replace the file where it exists")


def run(given: argparse.Namespace) -> int:
    """Write the file; return 0."""
    from checks.gates.overview import first_contract
    from checks.report.wording import plural

    contract = first_contract(given.runs, given.output, given.only, force=given.force)
    print(f"{given.output}: provisional limits of {plural(len(contract.limits), 'tensor')}")
    return 0
