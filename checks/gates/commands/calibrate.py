"""`gradsweep gate calibrate`: limits from what runs repeat to and drift by."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from checks.gates.commands.compare import limits
from checks.gates.commands.init import dtype

if TYPE_CHECKING:
    from checks.gates.limits.calibration import Calibration, Proposal

HELP = "limits from what several runs repeat to and drift by"


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    limits(command)
    for side, text in (("reference", "at least 3 runs of it"), ("candidate", "its runs")):
        command.add_argument(
            f"--{side}", type=Path, nargs="+", required=True, metavar="RUN", help=text
        )
    command.add_argument(
        "--reference64", type=Path, metavar="RUN", help="the reference computed in float64"
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="default: --tolerances")
    command.add_argument("--names", type=Path, metavar="FILE", help="rules (names.toml)")
    command.add_argument(
        "--because", default="", metavar="TEXT", help="why limits become more than 2 x wider"
    )
    command.add_argument(
        "--understood",
        action="append",
        default=[],
        metavar="GLOB",
        help="tensors whose systematic error --because explains",
    )
    dtype(command)
    command.add_argument("--tighten", action="store_true", help="lower limits too")
    command.add_argument("--dry-run", action="store_true", help="write nothing")


def run(given: argparse.Namespace) -> int:
    """Print the table; write the file unless something speaks against it."""
    from checks.gates.errors import INVALID, PASSED
    from checks.gates.limits.calibration import calibrate
    from checks.gates.limits.contract import write_contract
    from checks.report.wording import plural

    found = calibrate(
        given.tolerances,
        given.reference,
        given.candidate,
        reference64=given.reference64,
        names=given.names,
        because=given.because,
        understood=given.understood,
        tighten=given.tighten,
        dtype=given.dtype,
    )
    _show(found)
    if found.problems:
        print("INVALID: nothing is written")
        return INVALID
    changed = sum(p.new != p.old for p in found.proposals)
    output = given.output or given.tolerances
    text = f"{changed} of {plural(len(found.proposals), 'tensor')} with new limits"
    if given.dry_run:
        print(f"{text}; nothing is written")
        return PASSED
    write_contract(output, found.contract)
    print(f"{output}: {text}")
    return PASSED


def _show(found: "Calibration") -> None:
    from rich.text import Text

    from checks.gates.reports.terminal import printer
    from checks.report.terminal import BAD, QUIET

    out = printer()
    if found.proposals:
        head = f"{'tensor':36} {'max_abs':22} {'by':12} {'mean_abs':22} {'by':12} drift / rms"
        out.print(Text(head, style=QUIET), soft_wrap=True)
    for p in found.proposals:
        out.print(_line(p), soft_wrap=True, markup=False)
    for problem in found.problems:
        out.print(Text(f"INVALID  {problem}", style=BAD), soft_wrap=True)


def _line(p: "Proposal") -> str:
    from checks.gates.limits.contract import LIMITS
    from checks.gates.reports.rows import shown

    text = f"{p.name:36}"
    for key, by in zip(LIMITS, p.decided, strict=True):
        old, new = getattr(p.old, key), getattr(p.new, key)
        text += f" {f'{old:g}' + (f' -> {new:g}' if new != old else ''):22} {by:12}"
    return f"{text} {shown(p.relative)}"
