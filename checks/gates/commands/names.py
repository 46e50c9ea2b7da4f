"""`gradsweep gate names`: which names match; with --suggest, rules for those that do not."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from checks.gates.commands.compare import both

if TYPE_CHECKING:
    from checks.gates.naming.suggest import Suggestion

HELP = "which names match, and rules proposed for the others"


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    both(command)
    command.add_argument("--names", type=Path, metavar="FILE", help="rules to apply first")
    command.add_argument("--suggest", action="store_true", help="print a names.toml to look at")
    command.add_argument("--output", type=Path, metavar="FILE", help="write it there, if new")


def run(given: argparse.Namespace) -> int:
    """Print the names, or the rules; return 0."""
    from checks.gates.errors import PASSED, GateError
    from checks.gates.formats.readers import open_side
    from checks.gates.naming.names import Names, read_names, renamed
    from checks.gates.naming.suggest import matching, suggest, to_toml
    from checks.gates.reports.terminal import write
    from checks.report.wording import plural

    if given.output is not None and not given.suggest:
        raise GateError("there is nothing to write", "--output", "add --suggest")
    if given.output is not None and given.output.exists():
        raise GateError("the file exists", str(given.output), "name another one; merge by hand")
    rules = Names() if given.names is None else read_names(given.names)
    left = renamed(open_side(given.reference), rules, "reference")
    right = renamed(open_side(given.candidate), rules, "candidate")
    if not given.suggest:
        _list(matching(left, right))
        return PASSED
    found = suggest(left, right)
    text = to_toml(found, str(given.reference), str(given.candidate))
    if given.output is None:
        print(text, end="")
        return PASSED
    write(given.output, text, "--output")
    counts = f"{plural(len(found.rules), 'rule')} proposed for {given.candidate}, "
    print(f"{given.output}: {counts}{len(found.ambiguous or {})} open; read them before use")
    return PASSED


def _list(found: "Suggestion") -> None:
    from checks.report.wording import plural

    unlike = f", {len(found.unlike)} of another shape or dtype:" if found.unlike else ""
    print(f"{plural(len(found.both), 'name')} on both sides{unlike}")
    for name, labels in found.unlike.items():
        print(f"  {name:40} {labels}")
    for side, names in (("reference", found.left), ("candidate", found.right)):
        print(f"{plural(len(names), 'name')} on the {side} alone" + (":" if names else ""))
        for name, label in names.items():
            print(f"  {name:40} {label}")
