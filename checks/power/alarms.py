"""False alarms: the derivative surfaces over right rules, with other random numbers each time."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from catalogue import ENTRIES
from checks.results import FAIL, STALE, Row
from checks.surfaces.base import surface

SURFACES = ("reverse", "forward", "second", "vmap")


@dataclasses.dataclass(frozen=True)
class Alarms:
    """What the right rules of some ops were accused of.

    Attributes:
      checks: how many checks (subject x surface x seed) were run.
      rows: those that failed though every rule is right; each carries its seed.
    """

    checks: int
    rows: tuple[Row, ...]


def alarms_of(op: str, surfaces: Sequence[str], offsets: Sequence[int]) -> Alarms:
    """The false alarms of one op: its subjects on these surfaces, once for each seed offset."""
    from checks.runner import run_subject, subjects

    count, bad = 0, []
    for subject in subjects(op):
        for offset in offsets:
            seeded = dataclasses.replace(subject, offset=offset)
            for name in surfaces:
                found = surface(name)
                with np.errstate(all="ignore"):
                    claimed = found.claims(seeded)
                if not claimed:
                    continue
                row = run_subject(found, seeded, found.dtypes[0])
                count += 1
                if row.status in (FAIL, STALE):
                    again = f"{row.message or row.reason}\nwith seed offset {offset}"
                    bad.append(dataclasses.replace(row, message=again))
    return Alarms(count, tuple(bad))


def false_alarms(
    seeds: int,
    ops: Sequence[str] | None = None,
    surfaces: Sequence[str] = SURFACES,
    workers: int = 0,
) -> Iterator[tuple[str, Alarms]]:
    """Yield (op, its false alarms over `seeds` seeds) as they are done, on `workers` processes."""
    from checks.power.workers import each

    offsets = range(1, seeds + 1)
    jobs = [(op, tuple(surfaces), tuple(offsets)) for op in ops or sorted(ENTRIES)]
    yield from each(_job, jobs, workers)


def _job(job: tuple[str, tuple[str, ...], tuple[int, ...]]) -> tuple[str, Alarms]:
    op, surfaces, offsets = job
    return op, alarms_of(op, surfaces, offsets)
