"""What a study found: an outcome for each fault and draw, and the four rates."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from checks.gates.comparison.record import Result
from checks.gates.corpus.fault import CAUSES, Fault


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the gate said of one fault in one draw of weights and inputs.

    Arguments:
        model, name, cause, structural, expected, causes: of the fault.
        size, number: of the draw.
        caught: the verdict was no pass.
        first: the tensor named as the first divergence; None where nothing diverged.
        printed: the names of the causes printed of it.
        text: the cause in a sentence.
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
        draw = f"{self.size} {self.number}"
        return f"{self.model}: {self.name} ({self.cause} {CAUSES[self.cause]}), {draw}"


def outcome(fault: Fault, size: str, number: int, result: Result) -> Outcome:
    """Read a result."""
    first, cause = result.first, result.cause
    printed = (cause.name,) if cause else ()
    return Outcome(
        fault.model,
        fault.name,
        fault.cause,
        fault.structural,
        fault.first,
        fault.causes,
        size,
        number,
        caught=not result.ok,
        first=first.name if first else None,
        printed=printed,
        text=cause.text if cause else "",
    )


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
    """

    outcomes: Sequence[Outcome]
    alarms: Sequence[Alarm]
    clean: dict[str, int]
    seconds: float = 0.0

    @property
    def detection(self) -> Rate:
        """Structural faults that the gate did not let pass."""
        found = [o for o in self.outcomes if o.structural]
        return Rate("structural faults caught", sum(o.caught for o in found), len(found))

    @property
    def localisation(self) -> Rate:
        """Caught faults whose first divergence is where it must be."""
        found = [o for o in self.outcomes if o.caught]
        return Rate("first divergence right", sum(o.placed for o in found), len(found))

    @property
    def precision(self) -> Rate:
        """Printed diagnoses that describe the fault."""
        found = [o for o in self.outcomes if o.caught and o.printed]
        return Rate("printed diagnoses right", sum(o.right for o in found), len(found))

    @property
    def recall(self) -> Rate:
        """Faults that two arrays can tell, with a right cause printed."""
        found = [o for o in self.outcomes if o.caught and o.causes]
        return Rate("diagnosable faults explained", sum(o.right for o in found), len(found))

    def false_positives(self, policy: str) -> Rate:
        """Clean runs that did not pass."""
        name = f"false positives in clean {policy} runs"
        return Rate(name, sum(a.policy == policy for a in self.alarms), self.clean[policy])

    @property
    def rates(self) -> tuple[Rate, ...]:
        """All of them."""
        first = (self.detection, self.localisation, self.precision, self.recall)
        return (*first, *(self.false_positives(p) for p in self.clean))

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
            "seconds": round(self.seconds, 1),
        }


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
