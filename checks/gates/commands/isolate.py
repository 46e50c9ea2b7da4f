"""`gradsweep gate isolate`: each block on the reference's inputs."""

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from checks.gates.commands.compare import both, limits
from checks.gates.errors import GateError

if TYPE_CHECKING:
    from checks.gates.blocks.isolated import Isolation

HELP = "each block of a candidate on the reference's inputs"


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    both(command, optional=True)
    command.add_argument(
        "--blocks", metavar="MODULE:NAME", help="a function that returns the candidate's blocks"
    )
    command.add_argument(
        "--command",
        metavar="CMD",
        help="runs the candidate; {in} and {out} are GATE_INJECT_DIR and GATE_DUMP_DIR",
    )
    command.add_argument("--inject", type=Path, metavar="DIR", help="keep both folders there")
    command.add_argument(
        "--prepare", type=Path, metavar="DIR", help="write the reference's tensors, no more"
    )
    command.add_argument(
        "--from", type=Path, dest="source", metavar="DIR", help="read what a candidate wrote there"
    )
    limits(command, required=False)
    command.add_argument("--names", type=Path, metavar="FILE", help="rules for names (names.toml)")
    command.add_argument("--backward", action="store_true", help="the blocks' derivatives too")
    command.add_argument("--framework", metavar="NAME", help="of the blocks: numpy, jax or torch")
    command.add_argument("--no-causes", action="store_true", help="look for none: that takes time")
    command.add_argument("--timeout", type=float, metavar="SECONDS", help="for --command")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the report there")


def run(given: argparse.Namespace) -> int:
    """Isolate, print, write; return the exit code."""
    from checks.gates.reports.blocks import show, to_json
    from checks.gates.reports.terminal import printer, write

    _check(given)
    if given.prepare is not None:
        return _prepare(given)
    with tempfile.TemporaryDirectory() as folder:
        found = _by_injection(given, Path(folder)) if _injects(given) else _by_blocks(given)
    show(found, printer())
    if given.json is not None:
        write(given.json, to_json(found), "--json")
    return found.exit_code


def _injects(given: argparse.Namespace) -> bool:
    return given.command is not None or given.source is not None


def _check(given: argparse.Namespace) -> None:
    ways = [w for w in ("prepare", "source", "command") if getattr(given, w) is not None]
    if len(ways) > 1:
        names = {"source": "--from"}
        what = " and ".join(names.get(w, f"--{w}") for w in ways) + " exclude one another"
        raise GateError(what, "gradsweep gate isolate", "give one of them")
    if not ways and given.blocks is None:
        fix = '--blocks my_port:blocks, or --command "./port --dump {out}"'
        raise GateError("nothing to run", "gradsweep gate isolate", fix)
    if given.inject is not None and given.command is None:
        fix = '--command "./port --dump {out}", or --prepare DIR and --from DIR'
        raise GateError("--inject has no command to run", "--inject", fix)
    if ways and given.backward:
        what = "an injection has no backward pass"
        raise GateError(what, "--backward", "use --blocks alone")


def _prepare(given: argparse.Namespace) -> int:
    from checks.gates.blocks.injection import injected
    from checks.report.wording import plural

    made = injected(given.prepare, given.reference, names=given.names)
    count = plural(len(list(made.given.glob("*.json"))) - 1, "tensor")
    print(f"{made.given}: {count}; run the candidate, then read it:")
    print(f"  GATE_INJECT_DIR={made.given} GATE_DUMP_DIR={made.out} CMD")
    candidate = f" {given.candidate}" if given.candidate else ""
    print(f"  gradsweep gate isolate {given.reference}{candidate} --from {given.prepare}")
    return 0


def _by_injection(given: argparse.Namespace, folder: Path) -> "Isolation":
    from checks.gates.blocks.injection import Injection, injected
    from checks.gates.blocks.loading import blocks_of
    from checks.gates.reports.blocks import HANG, heading, line
    from checks.gates.reports.rows import say
    from checks.gates.reports.terminal import printer

    blocks = () if given.blocks is None else blocks_of(given.blocks)
    if given.source is not None:
        made = Injection(given.source, given.reference, given.names)
    else:
        made = injected(given.inject or folder, given.reference, names=given.names)
        made.run(given.command, given.timeout)
    found = made.read(given.tolerances, candidate=given.candidate, blocks=blocks)
    out = printer()
    out.print(heading())
    for row in found.rows:
        say(out, line(row), hang=HANG)
    return found


def _by_blocks(given: argparse.Namespace) -> "Isolation":
    from checks.gates.blocks.isolation import isolate
    from checks.gates.blocks.loading import blocks_of
    from checks.gates.reports.blocks import HANG, heading, line
    from checks.gates.reports.rows import say
    from checks.gates.reports.terminal import printer

    out = printer()
    blocks = blocks_of(given.blocks)
    out.print(heading())
    return isolate(
        given.reference,
        blocks,
        given.tolerances,
        candidate=given.candidate,
        names=given.names,
        backward=given.backward,
        framework=given.framework,
        causes=not given.no_causes,
        step=lambda row: say(out, line(row), hang=HANG),
    )
