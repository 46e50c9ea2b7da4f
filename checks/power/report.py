"""What a mutation study found: totals, a table by surface and one by mutation, names, JSON."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from checks.power.alarms import Alarms
from checks.power.checker import FAULTS, CheckerOutcome
from checks.power.explained import EXPLAINED, Explained
from checks.power.mutations import MUTATIONS
from checks.power.study import (
    BROKEN,
    CAUGHT,
    EQUIVALENT,
    SURVIVED,
    VIEWS,
    Outcome,
)
from checks.power.study import (
    EXPLAINED as WITH_REASON,
)
from checks.report.terminal import BAD
from checks.report.wording import duration, number, plural
from checks.tolerances import constant


@dataclasses.dataclass(frozen=True)
class Totals:
    """Counts of a study: mutants, those that count, and what became of them."""

    mutants: int
    equivalent: int
    broken: int
    caught: int
    explained: int
    survived: int

    @property
    def counted(self) -> int:
        """Mutants whose derivative or batched value is wrong somewhere."""
        return self.caught + self.explained + self.survived

    @property
    def share(self) -> float:
        """The share of them that is caught."""
        return self.caught / self.counted if self.counted else 1.0


def totals(outcomes: Sequence[Outcome]) -> Totals:
    """Count outcomes by status."""
    status = [o.status for o in outcomes]
    return Totals(
        mutants=len(status),
        equivalent=status.count(EQUIVALENT),
        broken=status.count(BROKEN),
        caught=status.count(CAUGHT),
        explained=status.count(WITH_REASON),
        survived=status.count(SURVIVED),
    )


def stale_explanations(
    outcomes: Sequence[Outcome], table: Sequence[Explained] = EXPLAINED
) -> list[Explained]:
    """Explanations of mutants that are caught, or that do not exist among these outcomes."""
    found = []
    for known in table:
        fields = [
            o
            for o in outcomes
            if known.covers(o.mutant.op, o.mutant.rule, o.mutant.mutation, o.mutant.place)
        ]
        if not any(o.status == WITH_REASON for o in fields):
            found.append(known)
    return found


def exit_code(
    outcomes: Sequence[Outcome] = (),
    alarms: Sequence[Alarms] = (),
    checker: Sequence[CheckerOutcome] = (),
    stale: int = 0,
) -> int:
    """0 where enough is caught and nothing else is wrong: no broken mutant, no false alarm, no
    explanation of what needs none, no wrong gradient passed or right one refused.
    """
    found = totals(outcomes)
    wrong = found.broken or stale or any(a.rows for a in alarms) or not all(map(holds, checker))
    return 1 if wrong or found.share < constant("power_share") else 0


def holds(outcome: CheckerOutcome) -> bool:
    """Whether `check_gradients` said what it should, and where."""
    return outcome.caught and outcome.named is not False


# --- on the terminal -----------------------------------------------------------------------


def print_study(
    out: Console,
    outcomes: Sequence[Outcome],
    *,
    wall: float,
    every: bool = False,
    verbose: bool = False,
) -> None:
    """Print the tables, the survivors and broken mutants by name, and the totals; `every` says
    that each mutant was shown to every surface.
    """
    out.print(by_mutation(outcomes))
    out.print()
    out.print(by_surface(outcomes, every))
    out.print()
    for status, title in ((BROKEN, "does not run"), (SURVIVED, "SURVIVES")):
        for o in (o for o in outcomes if o.status == status):
            text = f"{o.mutant.name} {title}: differs by {number(o.difference)} at {o.sample}"
            out.print(Text(f"{text}{_note(o)}", style=BAD), soft_wrap=True)
    for o in (o for o in outcomes if o.status == WITH_REASON):
        out.print(Text(f"{o.mutant.name} is explained: {o.note}"), soft_wrap=True)
    if verbose:
        for o in (o for o in outcomes if o.status == EQUIVALENT):
            out.print(Text(f"{o.mutant.name} is equivalent", style="grey58"), soft_wrap=True)
    found = totals(outcomes)
    out.print(
        Text(
            f"{plural(found.mutants, 'mutant')} in {duration(wall)}: "
            f"{found.equivalent:,} equivalent, {found.counted:,} count; "
            f"{found.caught:,} caught ({_percent(found.caught, found.counted)}), "
            f"{found.explained:,} explained, {found.survived:,} survive"
            + (f", {found.broken:,} broken" if found.broken else "")
        ),
        soft_wrap=True,
    )


def _note(outcome: Outcome) -> str:
    return f"; {outcome.note.splitlines()[0]}" if outcome.note else ""


def by_mutation(outcomes: Sequence[Outcome]) -> Table:
    """One line per mutation."""
    table = _table("mutation", "mutants", "equivalent", "count", "caught", "share")
    for made in MUTATIONS:
        own = [o for o in outcomes if o.mutant.mutation == made.name]
        if own:
            _line(table, made.name, own)
    _line(table, "all", outcomes, style="bold")
    return table


def _line(table: Table, name: str, outcomes: Sequence[Outcome], style: str = "") -> None:
    found = totals(outcomes)
    cells = (found.mutants, found.equivalent, found.counted, found.caught)
    share = _percent(found.caught, found.counted)
    table.add_row(name, *(f"{n:,}" for n in cells), share, style=style)


def by_surface(outcomes: Sequence[Outcome], every: bool) -> Table:
    """One line per surface: of the mutants that count and were shown to it, how many it caught.

    Where the search stops at the first catch, a surface was shown those that came as far as it.
    """
    heading = "asked" if every else "asked in turn"
    table = _table("surface", heading, "caught", "share", *VIEWS)
    counted = [o for o in outcomes if o.status in (CAUGHT, SURVIVED, WITH_REASON)]
    for name in dict.fromkeys(s for o in counted for s in o.asked):
        asked = [o for o in counted if name in (o.asked if every else _shown(o))]
        if not asked:
            continue
        caught = [o for o in asked if name in o.caught_by]
        parts = []
        for rule in VIEWS:
            own = [o for o in asked if o.mutant.rule == rule]
            hits = sum(name in o.caught_by for o in own)
            parts.append(f"{hits:,}/{len(own):,}" if own else "")
        share = _percent(len(caught), len(asked))
        table.add_row(name, f"{len(asked):,}", f"{len(caught):,}", share, *parts)
    return table


def _shown(outcome: Outcome) -> tuple[str, ...]:
    """The surfaces asked until the first that caught it."""
    if not outcome.caught_by:
        return outcome.asked
    return outcome.asked[: outcome.asked.index(outcome.caught_by[0]) + 1]


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "-"


def print_alarms(out: Console, alarms: Sequence[Alarms], seeds: int, wall: float) -> None:
    """Print every false alarm, then how many checks there were."""
    rows = [row for a in alarms for row in a.rows]
    for row in rows:
        name = f"{row.op} {row.sample} {row.surface} (seed {row.seed})"
        out.print(Text(f"FALSE ALARM {name}: {row.message}", style=BAD), soft_wrap=True)
    checks = sum(a.checks for a in alarms)
    out.print(
        Text(
            f"right rules, {plural(seeds, 'seed')}: {plural(checks, 'check')} in "
            f"{duration(wall)}, {plural(len(rows), 'false alarm')}"
        ),
        soft_wrap=True,
    )


def print_checker(out: Console, found: Sequence[CheckerOutcome], wall: float) -> None:
    """Print how many wrong gradients `check_gradients` caught and located, and those it missed."""
    table = _table("hand-written gradient", "shown", "right verdict", "entry named")
    for fault in FAULTS:
        own = [o for o in found if o.fault == fault.name]
        judged, named = sum(o.caught for o in own), [o.named for o in own if o.named is not None]
        where = f"{sum(named):,}/{len(named):,}" if named else ""
        table.add_row(fault.name, f"{len(own):,}", f"{judged:,}", where)
    out.print(table)
    out.print()
    for o in (o for o in found if not holds(o)):
        where = "" if o.named is not False else ", another entry named"
        out.print(Text(f"{o.name} was {o.verdict}{where}", style=BAD), soft_wrap=True)
    good = sum(map(holds, found))
    calls = max((o.evaluations for o in found), default=0)
    out.print(
        Text(
            f"check_gradients on {plural(len(found), 'gradient')} in {duration(wall)}: "
            f"{good:,} judged right, at most {plural(calls, 'call')} of the function"
        ),
        soft_wrap=True,
    )


# --- JSON ----------------------------------------------------------------------------------


def write_json(
    path: Path,
    seconds: float,
    outcomes: Sequence[Outcome] = (),
    alarms: Sequence[Alarms] = (),
    checker: Sequence[CheckerOutcome] = (),
) -> None:
    """Write totals, every mutant, every wrong gradient and every false alarm as one JSON object."""
    found = totals(outcomes)
    record: dict[str, Any] = {
        "totals": {
            **dataclasses.asdict(found),
            "counted": found.counted,
            "share": found.share,
            "gradients": len(checker),
            "gradients_judged_right": sum(map(holds, checker)),
            "checks_of_right_rules": sum(a.checks for a in alarms),
            "false_alarms": sum(len(a.rows) for a in alarms),
            "seconds": round(seconds, 3),
        },
        "mutants": [_record(o) for o in sorted(outcomes, key=lambda o: o.mutant.name)],
        "gradients": [dataclasses.asdict(o) for o in checker],
        "false_alarms": [json.loads(row.to_json()) for a in alarms for row in a.rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")


def _record(outcome: Outcome) -> dict[str, Any]:
    record = dataclasses.asdict(outcome) | dataclasses.asdict(outcome.mutant)
    del record["mutant"]
    finite = outcome.difference < float("inf")
    record["difference"] = outcome.difference if finite else "Infinity"
    return record
