"""`gradsweep gate bisect`: where a candidate goes from good to bad."""

import argparse
import shlex
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from checks.gates.commands.compare import both, limits
from checks.gates.errors import GateError

if TYPE_CHECKING:
    from checks.gates.blocks.bisection import Bisection, Run

HELP = "where a candidate goes from good to bad, by running it again"


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    both(command, optional=True)
    command.add_argument(
        "--command",
        metavar="CMD",
        help="runs the candidate; {out} is GATE_DUMP_DIR, GATE_DUMP_ONLY names what to dump",
    )
    command.add_argument(
        "--replace",
        action="store_true",
        help="replace the first tensors by the reference's ({in} is GATE_INJECT_DIR)",
    )
    command.add_argument("--blocks", metavar="MODULE:NAME", help="the candidate's blocks")
    command.add_argument("--final", metavar="NAME", help="with --replace: the tensor to judge")
    command.add_argument(
        "--check", metavar="CMD", help="with --replace: judges {out}: 0 good, 1 bad"
    )
    limits(command, required=False)
    command.add_argument("--names", type=Path, metavar="FILE", help="rules for names (names.toml)")
    command.add_argument("--only", metavar="GLOB", help="only these names")
    command.add_argument("--work", type=Path, metavar="DIR", help="keep the runs' folders there")
    command.add_argument("--timeout", type=float, metavar="SECONDS", help="for each run")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the report there")


def run(given: argparse.Namespace) -> int:
    """Bisect, print, write; return the exit code."""
    from checks.gates.reports.bisection import show, to_json
    from checks.gates.reports.terminal import printer, write

    _check(given)
    with tempfile.TemporaryDirectory() as folder:
        work = given.work or Path(folder)
        found = _replaced(given, work) if given.replace else _dumped(given, work)
    show(found, printer())
    if given.json is not None:
        write(given.json, to_json(found), "--json")
    return found.exit_code


def _check(given: argparse.Namespace) -> None:
    for name in ("final", "check"):
        if getattr(given, name) is not None and not given.replace:
            raise GateError(f"--{name} goes with --replace", f"--{name}", "add --replace")
    if given.replace and given.command is None and given.blocks is None:
        fix = '--command "./port --dump {out}", or --blocks my_port:blocks'
        raise GateError("nothing to run", "--replace", fix)
    if not given.replace and given.command is None and given.candidate is None:
        fix = 'name the candidate\'s dump, or --command "./port --dump {out}"'
        raise GateError("nothing to compare with", "gradsweep gate bisect", fix)


def _dumped(given: argparse.Namespace, work: Path) -> "Bisection":
    from checks.gates.blocks.bisection import bisect
    from checks.gates.blocks.loading import blocks_of
    from checks.gates.blocks.running import run_command

    def again(names: Sequence[str]) -> Path:
        return run_command(given.command, work / "out", only=names, timeout=given.timeout)

    return bisect(
        given.reference,
        None if given.command is None else again,
        given.tolerances,
        candidate=given.candidate,
        blocks=() if given.blocks is None else blocks_of(given.blocks),
        names=given.names,
        only=given.only,
        step=_printer("dump"),
    )


def _replaced(given: argparse.Namespace, work: Path) -> "Bisection":
    from checks.gates.blocks.loading import blocks_of
    from checks.gates.blocks.replacing import bisect_replaced, chain

    blocks = () if given.blocks is None else blocks_of(given.blocks)
    by_command = given.command is not None
    return bisect_replaced(
        given.reference,
        _injecting(given, work) if by_command else chain(given.reference, blocks, work / "out"),
        given.tolerances,
        final=given.final,
        check=_judge(given),
        blocks=blocks,
        names=given.names,
        only=given.only,
        step=_printer("replace"),
    )


def _injecting(given: argparse.Namespace, work: Path) -> "Run":
    from checks.gates.blocks.injection import injected
    from checks.gates.blocks.running import run_command

    def again(replaced: Sequence[str]) -> Path:
        made = injected(work, given.reference, names=given.names, only=replaced)
        return run_command(given.command, made.out, inject=made.given, timeout=given.timeout)

    return again


def _judge(given: argparse.Namespace) -> Callable[[Path], bool] | None:
    from checks.gates.blocks.running import status

    if given.check is None:
        return None

    def judge(folder: Path) -> bool:
        words = [w.replace("{out}", str(folder)) for w in shlex.split(given.check)]
        return status(words, timeout=given.timeout) == 0

    return judge


def _printer(kind: str) -> Callable[..., None]:
    from checks.gates.reports.bisection import line
    from checks.gates.reports.terminal import printer

    out = printer()
    return lambda step: out.print(line(step, kind), soft_wrap=True)
