"""`gradsweep gate`: its sub-commands, their order in the help, their exit codes."""

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from io import TextIOWrapper
from types import MethodType
from typing import Any, NoReturn

from checks.gates.errors import UNUSABLE, GateError

# A module of `checks.gates.commands` each, light to import: what it works with comes when it runs.
COMMANDS = (
    "inspect",
    "names",
    "init",
    "compare",
    "report",
    "rejudge",
    "isolate",
    "bisect",
    "calibrate",
    "power",
)


class Parser(argparse.ArgumentParser):
    """A parser whose usage errors exit with 3: 2 says that no comparison is valid."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message; exit with 3."""
        self.print_usage(sys.stderr)
        self.exit(UNUSABLE, f"{self.prog}: {message}\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is left over here, where the exit code is known."""
        return all_known(self, super().parse_known_args(args, namespace))


def all_known(parser: argparse.ArgumentParser, parsed: Any) -> Any:
    """Return what a parser made of its arguments, where none is left over."""
    if parsed[1]:
        parser.error(f"unrecognized arguments: {' '.join(parsed[1])}")
    return parsed


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their arguments."""
    # The parser of `gate` itself is made by its caller.
    command.error = MethodType(Parser.error, command)  # type: ignore[method-assign]
    plain = command.parse_known_args

    def parse(args: Any = None, namespace: Any = None) -> Any:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            command.exit(UNUSABLE, _unknown(args[0]))
        try:
            return all_known(command, plain(args, namespace))
        except Exception as error:
            sys.exit(internal(error))

    command.parse_known_args = parse  # type: ignore[method-assign]
    commands = command.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    command.set_defaults(run=lambda given: _no_command(command))
    for name in COMMANDS:
        try:
            module = importlib.import_module(f"checks.gates.commands.{name}")
            parser = commands.add_parser(name, help=module.HELP)
            module.arguments(parser)
        except Exception as error:
            sys.exit(internal(error))
        parser.set_defaults(run=_guarded(module.run))


def _unknown(word: str) -> str:
    from autodiff.errors import nearest

    fix = nearest(word, COMMANDS) or f"use one of {', '.join(COMMANDS)}"
    return f"gradsweep gate: there is no command {word!r}\n  {fix}\n"


def _no_command(command: argparse.ArgumentParser) -> int:
    command.print_help(sys.stderr)
    return UNUSABLE


def _guarded(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """The exit code of an error is its own, 2 or 3; of a crash 3: 1 blames the candidate."""

    def guarded(given: argparse.Namespace) -> int:
        from autodiff.errors import AutodiffError
        from checks.report.wording import printable
        from checks.results import ResultsError
        from checks.tolerance_file import ToleranceTableError

        if sys.stdout is None:  # closed by the caller: >&-
            sys.stdout = open(os.devnull, "w", encoding="utf-8")
        if isinstance(sys.stdout, TextIOWrapper):  # of an encoding that may lack a character
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            return run(given)
        except GateError as error:
            print(f"gradsweep gate: {printable(str(error))}", file=sys.stderr)
            return error.code
        except OSError as error:
            where = f"\n  at {error.filename}" if error.filename else ""
            text = f"cannot be read or written: {error.strerror or error}{where}"
            print(f"gradsweep gate: {printable(text)}\n  check the path", file=sys.stderr)
            return UNUSABLE
        except (AutodiffError, ResultsError, ToleranceTableError):
            raise  # a user's mistake: `gradsweep` prints it and exits with 3
        except SystemExit as error:
            text = f"a module that was loaded ended the process with {error.code!r}"
            fix = 'let its program stand under if __name__ == "__main__":'
            print(f"gradsweep gate: {text}\n  at {_place(error)}\n  {fix}", file=sys.stderr)
            return UNUSABLE
        except Exception as error:
            return internal(error)

    return guarded


def internal(error: Exception) -> int:
    """Print the traceback of a fault of the gate's own, and what to do; return the exit code."""
    from checks.report.wording import printable

    traceback.print_exception(error, file=sys.stderr)
    text = f"internal error: {type(error).__name__}: {error}\n  at {_place(error)}"
    fix = "nothing is said of the candidate; please report this, with the traceback above"
    print(f"gradsweep gate: {printable(text)}\n  {fix}", file=sys.stderr)
    return UNUSABLE


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown line"
