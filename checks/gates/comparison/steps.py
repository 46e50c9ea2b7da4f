"""What to do next: commands that a comparison which tells too little ends with."""

import shlex
from collections.abc import Sequence

from checks.gates.comparison.record import (
    MISSING,
    NO_CANDIDATE,
    NO_REFERENCE,
    NOWHERE,
    Result,
    TensorRow,
)
from checks.gates.errors import WRONG
from checks.report.wording import plural

NEXT = "next: "
# Causes that say where a tensor is off and not why.
WEAK = ("after the first", "before the last", "partial")


def next_steps(result: Result, *, replayed: bool = False) -> list[str]:
    """Return the commands that tell more than a comparison does, each with its reason.

    Arguments:
        result: the comparison.
        replayed: whether blocks were given to it: then they were run again already.
    """
    if result.inputs == "different":
        return []
    sides = f"{shlex.quote(result.reference)} {shlex.quote(result.candidate)}"
    if reason := _other_names(result.rows):
        return [f"{NEXT}gradsweep gate names {sides} --suggest ({reason})"]
    first = result.first
    if replayed or result.exit_code != WRONG or first is None or first.status in MISSING:
        return []
    if first.cause is not None and first.cause.name not in WEAK:
        return []
    backward = " --backward" if first.name.startswith("grad.") else ""
    command = f"gradsweep gate isolate {sides} --blocks MODULE:NAME{backward}"
    return [f"{NEXT}{command} (give each Block its weights)"]


def _other_names(rows: Sequence[TensorRow]) -> str:
    """Why the names of both sides look different: most of the contract is missing on one of them,
    which has other tensors.
    """
    contract = [r for r in rows if r.contract and r.status != NOWHERE]
    for side, missing, alone in (
        ("candidate", NO_CANDIDATE, NO_REFERENCE),
        ("reference", NO_REFERENCE, NO_CANDIDATE),
    ):
        absent = sum(r.status == missing for r in contract)
        others = sum(r.status == alone and not r.contract for r in rows)
        if others and 2 * absent > len(contract):
            verb = "is" if absent == 1 else "are"
            text = f"{plural(absent, 'contract tensor')} {verb} missing on the {side}, "
            return text + f"{others:,} {'other is' if others == 1 else 'others are'} there"
    return ""
