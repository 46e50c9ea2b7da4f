"""The mutation study: which wrong rules there are, which of them count, and what catches them."""

import dataclasses
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from autodiff.errors import OpError
from autodiff.op import OPS, Op
from catalogue import ENTRIES, entry
from checks.power.explained import explanation
from checks.power.inject import mutated, patched_table
from checks.power.mutations import MUTATIONS, mutation
from checks.power.record import calls_of, difference
from checks.power.rules import Call, results_of, rule_of
from checks.subject import Subject, subjects_of
from checks.surfaces.base import surface
from checks.tolerances import constant

# which surfaces can see a rule of that name, the likeliest first
VIEWS = {
    "jvp": ("reverse", "second", "special", "forward", "vmap"),
    "transpose": ("forward", "reverse", "second", "special", "vmap"),
    "vjp": ("forward", "reverse", "second", "special", "vmap"),
    "batch": ("vmap",),
}
BESIDE_A_VJP = ("forward", "second", "special", "reverse", "vmap")  # a jvp that reverse mode skips
CAUGHT, SURVIVED, EXPLAINED, EQUIVALENT, BROKEN = STATUSES = (
    "caught",
    "survived",
    "explained",
    "equivalent",
    "broken",
)
SLIPS = ("TypeError", "NameError", "AttributeError", "KeyError", "OpError", "UnboundLocalError")


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One wrong rule: which rule of which op, what is wrong with it, and where."""

    op: str
    rule: str
    mutation: str
    place: str

    @property
    def name(self) -> str:
        """`OP rule: mutation, place`."""
        where = "" if self.place == "all" else f", {self.place}"
        return f"{self.op} {self.rule}: {self.mutation}{where}"

    @property
    def number(self) -> int:
        """A checksum of the name, by which shares are drawn."""
        return zlib.crc32(self.name.encode())


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes:
      status: caught; survived; explained (a survivor with a reason); equivalent (no derivative
        or batched value differs); broken (the wrong rule does not run: the study is at fault).
      difference: the largest relative difference found, where the search stopped.
      sample: the sample at which it was found.
      caught_by: the surfaces that failed; asked: those that were run.
      note: the first failure's message, or the reason of an explanation.
    """

    mutant: Mutant
    status: str
    difference: float = 0.0
    sample: str = ""
    caught_by: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    note: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Options:
    """What part of the study to run, and how.

    Attributes:
      mutations, surfaces: names, None for all.
      share: (i, n): the mutants whose checksum is i - 1 modulo n.
      all_surfaces: run every surface on every mutant, not only until one catches it.
    """

    mutations: tuple[str, ...] | None = None
    surfaces: tuple[str, ...] | None = None
    share: tuple[int, int] | None = None
    all_surfaces: bool = False

    def __post_init__(self) -> None:
        for name in self.mutations or ():
            mutation(name)
        for name in self.surfaces or ():
            surface(name)
        if self.share is not None and not 1 <= self.share[0] <= self.share[1]:
            index, count = self.share
            raise OpError(f"share {index}/{count} does not exist", "the study", f"use 1/{count}")


def mutants_of(kind: str, calls: Sequence[Call], options: Options) -> list[Mutant]:
    """Every mutant of an op that the options select; decided by the rules alone."""
    op, found = OPS[kind], list[Mutant]()
    for rule in VIEWS:
        own = [c for c in calls if c.rule == rule]
        for made in MUTATIONS:
            if rule in made.rules and (options.mutations is None or made.name in options.mutations):
                found += [Mutant(kind, rule, made.name, p) for p in made.places(op, rule, own)]
    if options.share is None:
        return found
    index, count = options.share
    return [m for m in found if m.number % count == index - 1]


def study_op(kind: str, options: Options) -> list[Outcome]:
    """The outcome of every mutant of one op."""
    subjects = sorted(subjects_of(entry(kind)), key=_size)
    calls = calls_of(kind, subjects)
    outcomes, right = [], RightRules(OPS[kind])
    for mutant in mutants_of(kind, calls, options):
        start = time.perf_counter()
        own = [c for c in calls if c.rule == mutant.rule]
        outcome = study_mutant(mutant, own, subjects, options, right)
        outcomes.append(dataclasses.replace(outcome, seconds=time.perf_counter() - start))
    return outcomes


def _size(subject: Subject) -> int:
    return sum(leaf.size for leaf in subject.leaves)


class RightRules:
    """Whether a check passes while the op's rules are right: one that fails anyway is no catch."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.known: dict[tuple[str, str], bool] = {}

    def pass_on(self, surface_name: str, subject: Subject) -> bool:
        """Whether the surface passes on the subject; asked once of each."""
        key = surface_name, subject.sample
        if key not in self.known:
            with patched_table(OPS, self.op.kind, self.op):
                self.known[key] = not failure(surface_name, dataclasses.replace(subject))
        return self.known[key]


def study_mutant(
    mutant: Mutant,
    calls: Sequence[Call],
    subjects: Sequence[Subject],
    options: Options,
    right: RightRules,
) -> Outcome:
    """Whether one mutant counts, and which surfaces catch it."""
    found, sample, crash = counts(mutant, calls)
    if crash:
        return Outcome(mutant, BROKEN, note=crash)
    if not found > constant("mutant_difference"):
        return Outcome(mutant, EQUIVALENT, found)
    views = _views(mutant, options.surfaces)
    first = [s for s in subjects if s.sample == sample]
    ordered = first + [s for s in subjects if s.sample != sample]
    caught: dict[str, str] = {}
    with _in_place(mutant):
        for step in _steps(views, first, ordered, options.all_surfaces):
            name, subject = step
            if name in caught or (caught and not options.all_surfaces):
                continue
            message = failure(name, subject)
            if message.startswith(SLIPS):
                return Outcome(mutant, BROKEN, found, sample, note=message)
            if message and right.pass_on(name, subject):
                caught[name] = message
    asked = tuple(views)
    if caught:
        note = next(iter(caught.values()))
        return Outcome(mutant, CAUGHT, found, sample, tuple(caught), asked, note)
    reason = explanation(mutant.op, mutant.rule, mutant.mutation, mutant.place)
    status = EXPLAINED if reason else SURVIVED
    return Outcome(mutant, status, found, sample, (), asked, reason)


def _views(mutant: Mutant, chosen: tuple[str, ...] | None) -> list[str]:
    """The surfaces to ask, the likeliest first; those chosen that are no likely ones last."""
    beside = mutant.rule == "jvp" and OPS[mutant.op].vjp is not None
    likely = BESIDE_A_VJP if beside else VIEWS[mutant.rule]
    if chosen is None:
        return list(likely)
    return [s for s in likely if s in chosen] + [s for s in chosen if s not in likely]


def _steps(
    views: Sequence[str], first: Sequence[Subject], ordered: Sequence[Subject], every: bool
) -> Iterator[tuple[str, Subject]]:
    """(surface, subject) in the order that finds a difference soonest: the sample that shows it
    on every surface, then the others, surface by surface.
    """
    fresh = {id(s): dataclasses.replace(s) for s in ordered}
    if not every:
        for name in views:
            yield from ((name, fresh[id(s)]) for s in first)
    for name in views:
        yield from ((name, fresh[id(s)]) for s in (ordered if every else ordered[len(first) :]))


def _in_place(mutant: Mutant) -> Any:
    return mutated(mutant.op, **{mutant.rule: wrong_rule(mutant)})


def wrong_rule(mutant: Mutant) -> Callable[..., Any]:
    """The mutant itself."""
    op = OPS[mutant.op]
    right = rule_of(op, mutant.rule)
    if right is None:
        raise OpError(f"op {mutant.op} has no {mutant.rule} rule", "the study", "pick another rule")
    return mutation(mutant.mutation).wrong(op, mutant.rule, right, mutant.place)


def counts(mutant: Mutant, calls: Sequence[Call]) -> tuple[float, str, str]:
    """The first difference that counts (or the largest), its sample, and how the rule crashed.

    The wrong rule is compared with the right one call by call: no surface takes part.
    """
    op, wrong = OPS[mutant.op], wrong_rule(mutant)
    worst, sample = 0.0, ""
    for call in calls:
        try:
            with np.errstate(all="ignore"):
                result = wrong(*call.args, **call.params)
        except Exception as error:  # a loud fault counts; a slip of the study itself does not
            text = f"{type(error).__name__}: {error}"
            return np.inf, call.sample, text if text.startswith(SLIPS) else ""
        found = difference(call.right, results_of(op, mutant.rule, result))
        if found > worst:
            worst, sample = found, call.sample
        if worst > constant("mutant_difference"):
            break
    return worst, sample, ""


def failure(surface_name: str, subject: Subject) -> str:
    """The message of a surface that fails on a subject; empty where it passes or is not asked."""
    from checks.runner import run_subject

    found = surface(surface_name)
    try:
        with np.errstate(all="ignore"):
            claimed = found.claims(subject)
    except Exception:  # a wrong rule may fail here already: the check says how
        claimed = subject.special is None
    if not claimed:
        return ""
    row = run_subject(found, subject, found.dtypes[0])
    return row.message if row.status == "fail" else ""


def study(
    ops: Sequence[str] | None = None, options: Options | None = None, workers: int = 0
) -> Iterator[tuple[str, list[Outcome]]]:
    """Yield (op, outcomes) as they are done, on `workers` processes (0: in this one).

    Raises OpError for unknown ops, mutations and surfaces.
    """
    from checks.power.workers import each

    kinds = [entry(k).kind for k in ops] if ops else sorted(ENTRIES)
    yield from each(_job, [(k, options or Options()) for k in kinds], workers)


def _job(job: tuple[str, Options]) -> tuple[str, list[Outcome]]:
    kind, options = job
    return kind, study_op(kind, options)
