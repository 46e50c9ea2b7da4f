"""`gradsweep gate power`: what a tolerance file lets through; without a dump, the fault corpus."""

import argparse
import fnmatch
import importlib
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checks.gates.limits.sensitivity import Sensitivity

HELP = "what a tolerance file lets through; without a dump, the corpus of faults"
_STUDY = "checks.gates.corpus.study"
_OF_CORPUS = ("seeds", "first_seed", "clean", "policy", "limits")
# Of the corpus, which is not imported for the sake of help.
POLICIES = ("float32", "bfloat16")
SOURCES = ("corpus", "init", "calibrate")


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    command.add_argument(
        "reference", type=Path, nargs="?", metavar="REFERENCE", help="a dump of the reference"
    )
    command.add_argument(
        "--tolerances", type=Path, metavar="FILE", help="with REFERENCE: the limits to try"
    )
    command.add_argument("--names", type=Path, metavar="FILE", help="rules and roles (names.toml)")
    command.add_argument("--only", metavar="GLOB", help="only these tensors; of the corpus, faults")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    command.add_argument(
        "--least",
        type=_share,
        metavar="SHARE",
        help="exit with 1 where a smaller share is caught, such as 0.9",
    )
    command.add_argument("--seeds", type=int, metavar="N", help="of the corpus: draws")
    command.add_argument("--first-seed", type=int, metavar="N", help="of the corpus: first draw")
    command.add_argument("--clean", type=int, metavar="N", help="of the corpus: clean runs a model")
    command.add_argument(
        "--policy", metavar="DTYPE", choices=POLICIES, help="of the corpus: float32 or bfloat16"
    )
    command.add_argument(
        "--limits", choices=SOURCES, help="of the corpus: where the limits come from"
    )


def run(given: argparse.Namespace) -> int:
    """Print a line for each tensor; return 0, or 1 below --least."""
    from checks.gates.errors import PASSED, WRONG, GateError
    from checks.gates.limits.sensitivity import counted, sensitivity, to_record
    from checks.gates.reports.terminal import printer, write

    if given.reference is None:
        return _corpus(given)
    if given.tolerances is None:
        raise GateError("the limits are absent", "--tolerances", "name the tolerance file")
    for option in _OF_CORPUS:
        if getattr(given, option) is not None:
            word = "--" + option.replace("_", "-")
            raise GateError(f"{word} is of the corpus", word, f"leave out the dump, or {word}")
    out, found = printer(), []
    only = given.only or "*"
    for tensor in sensitivity(
        given.reference,
        given.tolerances,
        names=given.names,
        only=lambda name: fnmatch.fnmatchcase(name, only),
    ):
        found.append(tensor)
        out.print(_line(tensor), soft_wrap=True, markup=False)
    caught, tried = counted(found)
    share = caught / tried if tried else 1.0
    low = given.least is not None and share < given.least
    text = f"{caught} of {tried} mutants of the gates caught ({share:.1%})"
    out.print(text + (f", fewer than {given.least:.1%}" if low else ""), markup=False)
    if given.json is not None:
        record = to_record(found, str(given.reference), str(given.tolerances))
        write(given.json, json.dumps(record, indent=1, allow_nan=False) + "\n", "--json")
    return WRONG if low else PASSED


def _corpus(given: argparse.Namespace) -> int:
    from checks.gates.errors import GateError

    for option in ("tolerances", "names", "least"):
        if getattr(given, option) is not None:
            fix = "name the reference's dump, or leave the option out"
            raise GateError("there is no dump to mutate", f"--{option}", fix)
    if not _present(_STUDY):
        raise GateError("the corpus of faults is not installed", _STUDY, "name a dump: REFERENCE")
    code: int = importlib.import_module(_STUDY).main(given)
    return code


def _present(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _line(tensor: "Sensitivity") -> str:
    from checks.gates.reports.rows import shown

    caught = len(tensor.tried) - len(tensor.let_through)
    text = f"{tensor.name:36} {tensor.role:13} {caught} of {len(tensor.tried)} caught"
    words = []
    for t in tensor.let_through:
        word = f"{t.mutant} ({shown(t.used)} of the limit"
        words.append(word + (", systematic)" if t.systematic else ")"))
    return text + (f"; lets through {', '.join(words)}" if words else "")


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share between 0 and 1")
    return value
