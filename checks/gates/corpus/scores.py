"""What a study found: an outcome for each fault and draw, and the four rates."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from checks.gates.causes.replay import INHERITED, MISMATCH
from checks.gates.comparison.record import Result
from checks.gates.corpus.fault import CAUSES, Fault
from checks.gates.corpus.replays import INHERITS, told_by


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the gate said of one fault in one draw of weights and inputs.

    Arguments:
        model, name, cause, structural, expected, causes: of the fault.
        size, number: of the draw.
        caught: the verdict was no pass.
        first: the tensor named as the first divergence; None where nothing diverged.
        printed: the names of the causes printed of it; a place alone, the block which makes the
            right tensor or one before it, is no cause where it is true.
        text: the cause in a sentence.
        reading: of the blocks that were given, one of `replays.READINGS`; "" where none were.
        choice: where a choice was to change: whether it did, and was called explained by its margin
            or not as it should be; None where it was not.
        suspected: the cause of the first tensor that passes and looks systematic, "unclassified"
            where none was found; "" where no tensor looks so.
    """

    model: str
    name: str
    cause: int
    structural: bool
    expected: tuple[str, ...]
    causes: tuple[str, ...]
    size: str
    number: int
    caught: bool
    first: str | None
    printed: tuple[str, ...]
    text: str = ""
    reading: str = ""
    choice: bool | None = None
    suspected: str = ""

    @property
    def placed(self) -> bool:
        """The first divergence is where it must be."""
        return self.first in self.expected

    @property
    def right(self) -> bool:
        """A cause that describes the fault was printed, and none that does not."""
        return bool(self.printed) and set(self.printed) <= set(self.causes)

    @property
    def wrong(self) -> bool:
        """A cause was printed that does not describe the fault."""
        return not set(self.printed) <= set(self.causes)

    @property
    def label(self) -> str:
        """One line that names it."""
        draw = f"{self.size} {self.number}{self.suffix}"
        return f"{self.model}: {self.name} ({self.cause} {CAUSES[self.cause]}), {draw}"

    @property
    def suffix(self) -> str:
        """Which blocks were given, to put behind a name."""
        return f", {self.reading} blocks" if self.reading else ""


def outcome(fault: Fault, size: str, number: int, result: Result, reading: str = "") -> Outcome:
    """Read a result; `reading` says which blocks were given."""
    first, cause = result.first, result.cause
    placed = first is not None and first.name in fault.first
    place = INHERITED if fault.name in INHERITS.get(fault.model, ()) else MISMATCH
    hint = result.hint
    if hint is not None and hint.name in fault.first:  # named in the same breath
        first, cause, placed = hint, hint.cause, True
    printed = () if cause is None or (placed and cause.name == place) else (cause.name,)
    told = told_by(fault, reading) if reading else ()
    return Outcome(
        fault.model,
        fault.name,
        fault.cause,
        fault.structural,
        fault.first,
        (*fault.causes, *told),
        size,
        number,
        caught=not result.ok,
        first=first.name if first else None,
        printed=printed,
        text=cause.text if cause else "",
        reading=reading,
        choice=None if fault.explained is None else _chosen(result) == [fault.explained],
        suspected=suspected_of(result),
    )


def _chosen(result: Result) -> list[bool | None]:
    """What was said of the choices that changed: whether their margins explain that."""
    return list(dict.fromkeys(c.explained for c in result.changes if c.changed))


def suspected_of(result: Result) -> str:
    """Return the cause of the first tensor that passes and looks systematic; "" without one."""
    quiet = result.quiet
    return "" if quiet is None else quiet.cause.name if quiet.cause else "unclassified"


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with its counts."""

    name: str
    good: int
    of: int

    @property
    def share(self) -> float:
        """good / of; 1 of nothing."""
        return self.good / self.of if self.of else 1.0

    def __str__(self) -> str:
        return f"{self.name}: {self.good} of {self.of} ({100 * self.share:.1f}%)"


@dataclass(frozen=True, slots=True)
class Alarm:
    """A clean run that did not pass."""

    model: str
    policy: str
    size: str
    number: int
    first: str | None
    cause: str


@dataclass(frozen=True, slots=True)
class Study:
    """Outcomes of faults and of clean runs.

    Arguments:
        outcomes: of every fault in every draw.
        alarms: clean runs that did not pass.
        clean: clean runs by policy.
        seconds: how long it took.
        doubts: clean runs of which a replay named a cause, where limits of nothing asked for it.
        suspicions: clean runs in which a tensor looks systematic within its limits.
    """

    outcomes: Sequence[Outcome]
    alarms: Sequence[Alarm]
    clean: dict[str, int]
    seconds: float = 0.0
    doubts: Sequence[Alarm] = ()
    suspicions: Sequence[Alarm] = ()

    @property
    def plain(self) -> list[Outcome]:
        """By two dumps alone."""
        return [o for o in self.outcomes if not o.reading]

    @property
    def replayed(self) -> list[Outcome]:
        """With blocks given."""
        return [o for o in self.outcomes if o.reading]

    @property
    def detection(self) -> Rate:
        """Structural faults that the gate did not let pass."""
        return _detection(self.plain)

    @property
    def localisation(self) -> Rate:
        """Caught faults whose first divergence is where it must be."""
        return _localisation(self.plain)

    @property
    def precision(self) -> Rate:
        """Printed diagnoses that describe the fault."""
        return _precision(self.plain)

    @property
    def recall(self) -> Rate:
        """Faults that two arrays can tell, with a right cause printed."""
        return _recall(self.plain)

    def false_positives(self, policy: str) -> Rate:
        """Clean runs that did not pass."""
        name = f"false positives in clean {policy} runs"
        return Rate(name, sum(a.policy == policy for a in self.alarms), self.clean[policy])

    @property
    def rates(self) -> tuple[Rate, ...]:
        """All of them."""
        first = [self.detection, self.localisation, self.precision, self.recall]
        if chosen := [o.choice for o in self.plain if o.choice is not None]:
            first.append(Rate("changed choices judged right", sum(chosen), len(chosen)))
        if within := [o for o in self.plain if o.causes and not o.structural and not o.caught]:
            named = sum(o.suspected in o.causes for o in within)
            first.append(Rate("within the limits, and named as systematic", named, len(within)))
        clean = [self.false_positives(p) for p in self.clean]
        count = sum(self.clean.values())
        clean.append(Rate("clean runs that look systematic", len(self.suspicions), count))
        return (*first, *clean, *self.with_blocks)

    @property
    def with_blocks(self) -> tuple[Rate, ...]:
        """The four of comparisons with blocks, and what a replay blames of clean runs; none where
        no fault was replayed.
        """
        found = self.replayed
        if not found:
            return ()
        rates = [f(found) for f in (_detection, _localisation, _precision, _recall)]
        rates.append(
            Rate("false diagnoses of clean runs", len(self.doubts), sum(self.clean.values()))
        )
        return tuple(replace(r, name=f"with blocks: {r.name}") for r in rates)

    @property
    def survivors(self) -> list[Outcome]:
        """Structural faults that passed."""
        return [o for o in self.outcomes if o.structural and not o.caught]

    @property
    def misplaced(self) -> list[Outcome]:
        """Caught elsewhere than they are."""
        return [o for o in self.outcomes if o.caught and not o.placed]

    @property
    def misdiagnosed(self) -> list[Outcome]:
        """Explained by something else."""
        return [o for o in self.outcomes if o.caught and o.wrong]

    @property
    def unexplained(self) -> list[Outcome]:
        """Two arrays can tell the cause, and none was printed."""
        return [o for o in self.outcomes if o.caught and o.causes and not o.printed]

    def to_record(self) -> dict[str, Any]:
        """Return the whole as one JSON object."""
        return {
            "rates": {r.name: {"good": r.good, "of": r.of} for r in self.rates},
            "outcomes": [asdict(o) for o in self.outcomes],
            "alarms": [asdict(a) for a in self.alarms],
            "doubts": [asdict(a) for a in self.doubts],
            "suspicions": [asdict(a) for a in self.suspicions],
            "seconds": round(self.seconds, 1),
        }


def _detection(outcomes: Iterable[Outcome]) -> Rate:
    found = [o for o in outcomes if o.structural]
    return Rate("structural faults caught", sum(o.caught for o in found), len(found))


def _localisation(outcomes: Iterable[Outcome]) -> Rate:
    found = [o for o in outcomes if o.caught]
    return Rate("first divergence right", sum(o.placed for o in found), len(found))


def _precision(outcomes: Iterable[Outcome]) -> Rate:
    found = [o for o in outcomes if o.caught and o.printed]
    return Rate("printed diagnoses right", sum(o.right for o in found), len(found))


def _recall(outcomes: Iterable[Outcome]) -> Rate:
    found = [o for o in outcomes if o.caught and o.causes]
    return Rate("diagnosable faults explained", sum(o.right for o in found), len(found))


def table(outcomes: Iterable[Outcome]) -> Iterable[tuple[str, str, list[int]]]:
    """Yield cause, model and counts: draws, caught, placed, diagnosable, right, wrong."""
    groups: dict[tuple[int, str], list[Outcome]] = {}
    for o in outcomes:
        groups.setdefault((o.cause, o.model), []).append(o)
    for (cause, model), found in sorted(groups.items()):
        counts = [
            len(found),
            sum(o.caught for o in found),
            sum(o.caught and o.placed for o in found),
            sum(bool(o.causes) for o in found),
            sum(o.caught and o.right for o in found),
            sum(o.caught and o.wrong for o in found),
        ]
        yield f"{cause:2d} {CAUSES[cause]}", model, counts
