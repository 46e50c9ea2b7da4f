"""The checks of a report in a few lines: what failed, what passed, what is not defined and why."""

import math
import re
import textwrap
from collections.abc import Sequence

from checks.compare import short
from checks.gradients.page import Page, Row
from checks.gradients.report import (
    INCONCLUSIVE,
    KINK,
    PASS,
    PRECEDENCE,
    UNDEFINED,
    VACUOUS,
    WRONG,
    Check,
)

REASON = 60  # columns of a reason
# What frameworks say at length of a function that lacks a transform.
MISSING = (
    ("implement the jvp", "the autograd.Function has no jvp"),
    ("does not have vmap support", "the autograd.Function has no vmap rule"),
    ("setup_context staticmethod", "the autograd.Function has no setup_context"),
    ("to a custom_vjp function", "a custom_vjp has none"),
    ("@once_differentiable", "the backward is marked once_differentiable"),
)


def listed(page: Page, checks: Sequence[Check], main: Check | None, room: int) -> list[Row]:
    """One line for each failed check, one for all that passed, one for what is not defined.

    Arguments:
        page, room: how wide a line is, and how many there are.
        checks, main: all of a report, and the one that decided.
    """
    rank = {v: i for i, v in enumerate(PRECEDENCE)}
    failed = sorted(
        (c for c in checks if c.verdict not in (PASS, UNDEFINED)), key=lambda c: rank[c.verdict]
    )
    few = failed if len(failed) <= max(room - 2, 1) else failed[: max(room - 3, 1)]
    name = max((len(c.name) for c in few), default=0)
    verdict = max((len(c.verdict) for c in few), default=0)
    made: list[Row] = []
    told = {main.detail} if main is not None else set()
    for c in few:
        said = "" if c.detail in told or c.verdict == KINK else _measured(c)
        said = _measured(c) if c.verdict == WRONG else said
        line = f"{c.name:<{name}}  {c.verdict:<{verdict}}  {said}".rstrip()
        made += page.wrapped(" " if made else "checks", line, _tint(c), 1)
    if len(few) < len(failed):
        made.append((" ", f"and {len(failed) - len(few)} more: {_tally(failed[len(few) :])}", ""))
    label = "passed" if made else "checks"
    passed = grouped([c.name for c in checks if c.verdict == PASS])
    made += page.wrapped(label, passed, "dim", 1) if passed else []
    missing = _missing([c for c in checks if c.verdict == UNDEFINED])
    made += page.wrapped("not defined", missing, "dim", 1) if missing else []
    return made


def _missing(checks: Sequence[Check]) -> str:
    """What is not defined, and why in a few words; what has one reason together."""
    reasons: dict[str, list[str]] = {}
    for c in checks:
        reasons.setdefault(_reason(c.detail), []).append(c.name)
    parts = [
        f"{grouped(names)} ({reason})" if reason else grouped(names)
        for reason, names in reasons.items()
    ]
    return "; ".join(parts)


def _reason(detail: str) -> str:
    """An exception's text in a few words."""
    for words, told in MISSING:
        if words in detail:
            return told
    plain = re.sub(r"^\w*(Error|Exception): ", "", detail)
    return textwrap.shorten(plain, REASON, placeholder=" ...")


def grouped(names: Sequence[str]) -> str:
    """Names, those of one family once: "reverse, forward, second (5), vmap (3)"."""
    counts: dict[str, int] = {}
    for name in names:
        family = name.split(":")[0].split(",")[0]
        counts[family] = counts.get(family, 0) + 1
    return ", ".join(f"{k} ({n})" if n > 1 else k for k, n in counts.items())


def _said(check: Check) -> str:
    return "not defined" if check.verdict == UNDEFINED else check.verdict


def _tint(check: Check) -> str:
    if check.verdict in (PASS, UNDEFINED):
        return "dim"
    return "yellow" if check.verdict in (KINK, INCONCLUSIVE, VACUOUS) else "red"


def _measured(check: Check) -> str:
    if check.verdict == UNDEFINED:
        return check.detail
    if check.verdict in (PASS, WRONG) and math.isfinite(check.error) and check.allowed:
        return f"relative error {_small(check.error)}, allowed {_small(check.allowed)}"
    return check.detail


def _small(number: float) -> str:
    shown = short(number) if number else "0"
    return f"{number:.1e}" if "e-" in shown else shown


def _tally(checks: Sequence[Check]) -> str:
    counts: dict[str, int] = {}
    for c in checks:
        counts[c.verdict] = counts.get(c.verdict, 0) + 1
    return ", ".join(f"{n} {_said(Check('', v))}" for v, n in counts.items())
