"""`gradsweep gate compare`: two dumps against a tolerance file."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checks.gates.record import TensorRow

HELP = "two dumps against a tolerance file"


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    command.add_argument("reference", type=Path, metavar="REFERENCE")
    command.add_argument("candidate", type=Path, metavar="CANDIDATE")
    command.add_argument("--tolerances", type=Path, required=True, metavar="FILE")
    command.add_argument("--names", type=Path, metavar="FILE", help="rules and roles (names.toml)")
    command.add_argument("--only", metavar="GLOB", help="only these names")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    command.add_argument("--html", type=Path, metavar="FILE", help="write a page there")
    command.add_argument("--quiet", action="store_true", help="print failing tensors alone")


def run(given: argparse.Namespace) -> int:
    """Compare, print, write; return the exit code."""
    from checks.gates.reports.page import page
    from checks.gates.reports.terminal import line, printer, show, to_json, write
    from checks.gates.verdict import compare, tensor_count

    out = printer()
    with _steps(tensor_count(given.reference)) as step:
        result = compare(
            given.reference,
            given.candidate,
            given.tolerances,
            names=given.names,
            only=given.only,
            step=step,
        )
    for row in result.rows:
        if row.failed or not given.quiet:
            out.print(line(row), soft_wrap=True)
    show(result, out)
    if given.json is not None:
        write(given.json, to_json(result), "--json")
    if given.html is not None:
        write(given.html, page(result), "--html")
    return result.exit_code


@contextmanager
def _steps(total: int) -> Iterator["Callable[[TensorRow], None]"]:
    """A progress bar on a terminal; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("compare", total=total)

        def step(row: "TensorRow") -> None:
            bar.update(task, advance=1, description=row.name)

        yield step
