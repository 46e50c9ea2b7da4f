"""`gradsweep gate`: compare two dumps, look into one, make a first tolerance file."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from checks.gates.errors import UNUSABLE, GateError

if TYPE_CHECKING:
    from checks.gates.record import TensorRow


class Parser(argparse.ArgumentParser):
    """A parser whose usage errors exit with 3: 2 says that no comparison is valid."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message; exit with 3."""
        self.print_usage(sys.stderr)
        self.exit(UNUSABLE, f"{self.prog}: {message}\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is left over here, where the exit code is known."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their arguments."""
    commands = command.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    command.set_defaults(run=lambda given: _no_command(command))
    _compare_arguments(commands.add_parser("compare", help="two dumps against a tolerance file"))
    inspect = commands.add_parser("inspect", help="what one dump holds")
    inspect.add_argument("side", type=Path, metavar="DUMP")
    inspect.add_argument("--only", metavar="GLOB", help="only these names")
    inspect.set_defaults(run=_guarded(_inspect))
    init = commands.add_parser("init", help="first tolerances from one or more reference runs")
    init.add_argument("runs", type=Path, nargs="+", metavar="DUMP")
    init.add_argument("--output", type=Path, required=True, metavar="FILE")
    init.add_argument("--only", metavar="GLOB", help="only these names")
    init.add_argument("--force", action="store_true", help="replace the file where it exists")
    init.set_defaults(run=_guarded(_init))


def _no_command(command: argparse.ArgumentParser) -> int:
    command.print_help(sys.stderr)
    return UNUSABLE


def _compare_arguments(compare: argparse.ArgumentParser) -> None:
    compare.add_argument("reference", type=Path, metavar="REFERENCE")
    compare.add_argument("candidate", type=Path, metavar="CANDIDATE")
    compare.add_argument("--tolerances", type=Path, required=True, metavar="FILE")
    compare.add_argument("--names", type=Path, metavar="FILE", help="rules and roles (names.toml)")
    compare.add_argument("--only", metavar="GLOB", help="only these names")
    compare.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    compare.add_argument("--html", type=Path, metavar="FILE", help="write a page there")
    compare.add_argument("--quiet", action="store_true", help="print failing tensors alone")
    compare.set_defaults(run=_guarded(_compare))


def _guarded(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """The exit code of an error is its own: 2 or 3."""

    def guarded(given: argparse.Namespace) -> int:
        try:
            return run(given)
        except GateError as error:
            print(f"gradsweep gate: {error}", file=sys.stderr)
            return error.code

    return guarded


def _compare(given: argparse.Namespace) -> int:
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


def _inspect(given: argparse.Namespace) -> int:
    from checks.gates.overview import inspect
    from checks.gates.reports.terminal import printer

    out = printer()
    for text in inspect(given.side, given.only):
        out.print(text, soft_wrap=True, markup=False)
    return 0


def _init(given: argparse.Namespace) -> int:
    from checks.gates.overview import first_contract
    from checks.report.wording import plural

    contract = first_contract(given.runs, given.output, given.only, force=given.force)
    print(f"{given.output}: provisional limits of {plural(len(contract.limits), 'tensor')}")
    return 0
