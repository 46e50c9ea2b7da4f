"""`gradsweep gate compare`: dumps against a reference and a tolerance file."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from checks.gates.comparison.policy import Policy
    from checks.gates.comparison.record import Problem, Result, TensorRow
    from checks.gates.comparison.several import Comparison

HELP = "one or several dumps against a reference and a tolerance file"
SAVED = "what `gradsweep gate compare --json` wrote"


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    both(command, several=True)
    limits(command)
    command.add_argument("--names", type=Path, metavar="FILE", help="rules and roles (names.toml)")
    command.add_argument("--only", metavar="GLOB", help="only these names")
    command.add_argument(
        "--reference64", type=Path, metavar="DUMP", help="the reference computed in float64"
    )
    command.add_argument(
        "--tokens",
        action="append",
        default=[],
        metavar="GLOB",
        help="tensors that hold tokens, besides *.tokens, *.token_ids, *.ids",
    )
    command.add_argument("--blocks", metavar="MODULE:NAME", help="blocks to run again for a cause")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    command.add_argument("--quiet", action="store_true", help="print failing tensors alone")
    policies(command)
    written(command)


def both(
    command: argparse.ArgumentParser, *, several: bool = False, optional: bool = False
) -> None:
    """Declare the two sides."""
    command.add_argument(
        "reference",
        type=Path,
        metavar="REFERENCE",
        help="dump of the model that is right: a folder, or an .npz or .safetensors file",
    )
    if several:
        text = "dump of the port; several, such as one for each backend, stand side by side"
        command.add_argument("candidates", type=Path, metavar="CANDIDATE", nargs="+", help=text)
    else:
        command.add_argument(
            "candidate",
            type=Path,
            metavar="CANDIDATE",
            nargs="?" if optional else None,
            help="dump of the port",
        )


def limits(command: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Declare the tolerance file."""
    command.add_argument(
        "--tolerances",
        type=Path,
        required=required,
        metavar="FILE",
        help="JSON of max_abs and mean_abs by tensor (`gradsweep gate init` writes a first one)",
    )


def policies(command: argparse.ArgumentParser) -> None:
    """Declare what else than limits decides."""
    command.add_argument(
        "--systematic",
        choices=("warn", "fail"),
        default="warn",
        help="tensors within their limits whose error is systematic and more than rounding",
    )
    command.add_argument(
        "--understood",
        action="append",
        default=[],
        metavar="GLOB",
        help="tensors whose systematic error is meant",
    )
    command.add_argument(
        "--transcript",
        choices=("warn", "fail"),
        default="warn",
        help="tokens or words that changed although every tensor passes",
    )


def policy_of(given: argparse.Namespace) -> "Policy":
    """Return what the options of `policies` say."""
    from checks.gates.comparison.policy import Policy

    return Policy(given.systematic, tuple(given.understood), given.transcript)


def written(command: argparse.ArgumentParser) -> None:
    """Declare the files that a report is rendered to."""
    command.add_argument("--html", type=Path, metavar="FILE", help="write a page there")
    command.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML there")


def run(given: argparse.Namespace) -> int:
    """Compare, print each row as it is made, write; return the exit code."""
    from checks.gates.comparison.several import compare_all
    from checks.gates.comparison.verdict import compare, tensor_names
    from checks.gates.reports.terminal import printer, show

    apart(given)
    out = printer()
    options = {n: getattr(given, n) for n in ("names", "only", "reference64", "tokens")}
    options["policy"] = policy_of(given)
    if given.blocks is not None:
        from checks.gates.blocks.loading import blocks_of

        options["blocks"] = blocks_of(given.blocks)
    several = len(given.candidates) > 1
    report: Result | Comparison
    names = tensor_names(given.reference)
    with _steps(names, len(given.candidates), out, given.quiet) as (step, known):
        if several:
            report = compare_all(
                given.reference,
                given.candidates,
                given.tolerances,
                step=step,
                known=known,
                **options,
            )
        else:
            report = compare(
                given.reference,
                given.candidates[0],
                given.tolerances,
                step=partial(step, ""),
                known=partial(known, ""),
                **options,
            )
    show(report, out)
    render(report, given)
    return report.exit_code


def apart(given: argparse.Namespace) -> None:
    """Refuse to write one file twice, or over a file that is read.

    Raises:
        GateError: two of the paths are one.
    """
    from checks.gates.errors import GateError

    seen: dict[Path, str] = {}
    for option in ("tolerances", "names", "json", "html", "junit"):
        path = getattr(given, option, None)
        if path is not None:
            other = seen.setdefault(path.resolve(), option)
            if other != option:
                what = f"--{option} and --{other} are one file"
                raise GateError(what, str(path), "name another file")


def render(report: "Result | Comparison", given: argparse.Namespace) -> None:
    """Write the files that were asked for, all that can be.

    Raises:
        GateError: one cannot be written.
    """
    from checks.gates.errors import GateError
    from checks.gates.reports.junit import junit
    from checks.gates.reports.page import page
    from checks.gates.reports.terminal import to_json, write

    errors = []
    for option, make in (("json", to_json), ("html", page), ("junit", junit)):
        path = getattr(given, option, None)
        if path is not None:
            try:
                write(path, make(report), f"--{option}")
            except GateError as error:
                errors.append(error)
    if errors:
        raise errors[0]


@contextmanager
def _steps(
    names: Sequence[str], candidates: int, out: "Console", quiet: bool
) -> Iterator[tuple["Callable[[str, TensorRow], None]", "Callable[[str, Problem], None]"]]:
    """Print rows, and problems known before them, as they come, those that one side alone has
    behind a candidate's others; on a terminal a progress bar stays below them.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    from checks.gates.reports.rows import HANG, columns_of, folded, heading, line, say, width_of
    from checks.gates.reports.terminal import invalid

    # One console for both where both are terminals: else a row would be written into the bar.
    console = out if out.is_terminal else Console(stderr=True)
    last = ""
    aside: dict[str, list[TensorRow]] = {}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("compare", total=len(names) * candidates)
        width, columns = width_of(names), columns_of(out)

        def put(label: str, text: "Text") -> None:
            nonlocal last
            if label != last:
                fold(label)
                out.print(heading(label))
                last = label
            say(out, text, hang=HANG)

        def fold(but: str | None = None) -> None:
            for label in [n for n in aside if n != but]:
                for text in folded(aside.pop(label), width, columns):
                    put(label, text)

        def step(label: str, row: "TensorRow") -> None:
            if row.aside and not quiet:
                aside.setdefault(label, []).append(row)
            elif row.failed or not quiet:
                put(label, line(row, width, columns))
            bar.update(task, advance=1, description=escape(row.name))

        yield step, lambda label, problem: put(label, invalid(problem))
        fold()
