"""`gradsweep gate`: its sub-commands, their order in the help, their exit codes."""

import argparse
import importlib
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from checks.gates.errors import UNUSABLE, GateError

# A module of `checks.gates.commands` each, light to import: what it works with comes when it runs.
COMMANDS = ("compare", "inspect", "init")


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
    for name in COMMANDS:
        module = importlib.import_module(f"checks.gates.commands.{name}")
        parser = commands.add_parser(name, help=module.HELP)
        module.arguments(parser)
        parser.set_defaults(run=_guarded(module.run))


def _no_command(command: argparse.ArgumentParser) -> int:
    command.print_help(sys.stderr)
    return UNUSABLE


def _guarded(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """The exit code of an error is its own: 2 or 3."""

    def guarded(given: argparse.Namespace) -> int:
        try:
            return run(given)
        except GateError as error:
            print(f"gradsweep gate: {error}", file=sys.stderr)
            return error.code

    return guarded
