"""What to do next: commands that a comparison which tells too little ends with."""

import shlex
from collections.abc import Container, Iterable

from checks.gates.comparison.record import (
    MISSING,
    NO_CANDIDATE,
    NO_REFERENCE,
    NOWHERE,
    SHAPE,
    WEAK,
    Result,
)
from checks.gates.errors import WRONG
from checks.report.wording import plural

NEXT = "next: "


def next_steps(result: Result) -> list[str]:
    """Return the commands that tell more than a comparison does, each with its reason.

    Blocks that were run again for the first divergence, by the comparison or by an isolation
    since, are not offered to be.
    """
    if result.inputs == "different":
        return []
    sides = f"{shlex.quote(result.reference)} {shlex.quote(result.candidate)}"
    if reason := _other_names(result):
        return [f"{NEXT}gradsweep gate names {sides} --suggest ({reason})"]
    first = result.first
    if result.exit_code != WRONG or first is None or first.status in MISSING:
        return []
    if result.replayed and (first.detail is not None or first.status == SHAPE):
        return []
    if first.name in result.isolated:
        return []
    if first.cause is not None and first.cause.name not in WEAK:
        return []
    backward = " --backward" if first.name.startswith("grad.") else ""
    command = f"gradsweep gate isolate {sides} --blocks MODULE:NAME{backward}"
    return [f"{NEXT}{command} (give each Block its weights)"]


def _other_names(result: Result) -> str:
    """Why the names of both sides look different: most of the contract is missing on one of them,
    which has other tensors, whether or not they were chosen.
    """
    contract = [r for r in result.rows if r.contract and r.status != NOWHERE]
    for side, missing, others in (
        ("candidate", NO_CANDIDATE, result.alone[1]),
        ("reference", NO_REFERENCE, result.alone[0]),
    ):
        absent = sum(r.status == missing for r in contract)
        if others and 2 * absent > len(contract):
            verb = "is" if absent == 1 else "are"
            text = f"{plural(absent, 'contract tensor')} {verb} missing on the {side}, "
            return text + f"{others:,} {'other is' if others == 1 else 'others are'} there"
    return ""


def alone(left: Iterable[str], right: Iterable[str], contract: Container[str]) -> tuple[int, int]:
    """Return how many keys that are in no contract the left and the right side alone have."""
    ours, theirs = (
        {k for k in side if k.partition("#")[0] not in contract} for side in (left, right)
    )
    return len(ours - theirs), len(theirs - ours)
