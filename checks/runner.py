"""The sweep: every op of the catalogue, every sample, every surface; and a user's own function."""

import dataclasses
import functools
import re
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from autodiff.errors import AutodiffError, OpError, nearest
from autodiff.native import quiet
from catalogue import ENTRIES, EXCLUSIONS, entry
from catalogue.entry import Exclusion
from checks import tolerances
from checks.judge import CheckError, Finding, Judge
from checks.results import Row
from checks.subject import Subject, from_function, subjects_of
from checks.surfaces.base import Surface, load, surface

Rows = list[Row]


@dataclasses.dataclass(frozen=True)
class Item:
    """One unit of a sweep: one op on one surface; its samples are looped inside."""

    op: str
    surface: str

    @property
    def id(self) -> str:
        """`OP-surface`."""
        return f"{self.op}-{self.surface}"


def items(
    ops: Sequence[str] | None = None,
    surfaces: Sequence[str] | None = None,
    shard: tuple[int, int] | None = None,
) -> list[Item]:
    """The items of a sweep, grouped by surface; None selects all.

    `shard` (i, n) keeps the ops whose name's checksum is i - 1 modulo n.
    Raises OpError for unknown names (the nearest is suggested) and where nothing is selected.
    """
    names = [surface(s).name for s in surfaces] if surfaces else list(load())
    kinds = [entry(k).kind for k in ops] if ops else sorted(ENTRIES)
    if shard is not None:
        index, count = shard
        if not 1 <= index <= count:
            raise OpError(
                f"shard {index}/{count} does not exist",
                "--shard of gradsweep sweep, --sweep-shard of pytest",
                f"use I/{max(count, 1)} with I from 1 to {max(count, 1)}",
            )
        kinds = [k for k in kinds if zlib.crc32(k.encode()) % count == index - 1]
    found = [Item(k, s) for s in names for k in kinds]
    found.sort(key=_order)
    if not found:
        raise OpError(
            "the selection holds no check",
            f"ops {list(ops or ['all'])}, surfaces {list(surfaces or ['all'])}, shard {shard}",
            "widen the filter; gradsweep sweep --list shows what there is",
        )
    return found


def _order(item: Item) -> tuple[str, int, str, str]:
    """Items that share what they prepare stand together, so that one worker gets them."""
    found = surface(item.surface)
    part = 0
    if found.chunk or found.group:
        part = _position(item.op) // (found.chunk or 1)
    return (found.group or found.name, part, found.name, item.op)


@functools.lru_cache(maxsize=4096)
def _position(op: str) -> int:
    return sorted(ENTRIES).index(op)


@functools.lru_cache(maxsize=512)
def subjects(op: str) -> tuple[Subject, ...]:
    """The subjects of one op, drawn once."""
    return tuple(subjects_of(entry(op)))


def run_item(item: Item, sample: str | None = None, *, prepared: bool = False) -> Rows:
    """All rows of one op on one surface.

    `sample` selects one sample by name; `prepared` says that the subjects are prepared, so that
    neighbouring ops are not looked at. A surface whose package is missing gives one skipped row.
    """
    found = surface(item.surface)
    if found.missing:
        return [_skipped(item.op, found)]
    chosen = [s for s in subjects(item.op) if sample is None or s.sample == sample]
    if not chosen:
        known = [s.sample for s in subjects(item.op)]
        raise OpError(
            f"op {item.op} has no sample {sample!r}",
            "in its entry of the catalogue",
            nearest(str(sample), known) or f"gradsweep sweep --op {item.op} --list names them",
        )
    rows = []
    for dtype in found.dtypes:
        claimed = [s for s in chosen if _claims(found, s)]
        if found.prepare is not None and sample is not None:
            found.prepare(claimed, dtype)
        elif claimed and not prepared:
            _prepare(found, item, claimed, dtype)
        rows += [run_subject(found, s, dtype) for s in claimed]
    return rows if sample is not None else rows + unmatched(item, rows)


def run_chunk(surface_name: str, ops: Sequence[str]) -> list[Rows]:
    """Rows of several ops on one surface, prepared together; one list per op."""
    found = surface(surface_name)
    if found.missing:
        return [[_skipped(op, found)] for op in ops]
    if found.prepare is not None:
        for dtype in found.dtypes:
            found.prepare([s for op in ops for s in subjects(op) if _claims(found, s)], dtype)
    return [run_item(Item(op, surface_name), prepared=True) for op in ops]


def _claims(found: Surface, subject: Subject) -> bool:
    """Whether the surface speaks about the subject; a failure to say is left to the check."""
    try:
        with quiet():  # it may evaluate the function
            return found.claims(subject)
    except Exception:
        return subject.special is None


def _prepare(found: Surface, item: Item, claimed: Sequence[Subject], dtype: str) -> None:
    """Prepare a whole chunk of neighbouring ops at once: modules and processes are shared."""
    if found.prepare is None:
        return
    group = list(claimed)
    if found.chunk and all(not s.user for s in claimed):
        kinds = sorted(ENTRIES)
        at = kinds.index(item.op) // found.chunk * found.chunk
        for kind in kinds[at : at + found.chunk]:
            if kind != item.op:
                group += [s for s in subjects(kind) if _claims(found, s)]
    found.prepare(group, dtype)


def run_subject(found: Surface, subject: Subject, dtype: str) -> Row:
    """One check of one subject at one dtype, exclusions applied."""
    judge = Judge(found.name, dtype, None if subject.user else subject.name, subject.sample)
    start = time.perf_counter()
    problem = ""
    try:
        with quiet():
            found.check(subject, dtype, judge)
    except (CheckError, AutodiffError) as error:
        problem = f"{type(error).__name__}: {error}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__}: {error}\n  at {last.name}, line {last.lineno}"
    row = _row(found, subject, dtype, judge, problem, time.perf_counter() - start)
    return row if subject.user else _with_exclusion(row)


def _row(
    found: Surface, subject: Subject, dtype: str, judge: Judge, problem: str, seconds: float
) -> Row:
    worst = judge.worst
    failed = bool(problem) or (worst is not None and not worst.ok)
    message = problem or (_message(found, subject, worst) if failed and worst else "")
    repro = (
        f"checks.check_function({subject.name}, *args, surfaces=({found.name!r},))"
        if subject.user
        else f"gradsweep sweep --op {subject.name} --surface {found.name} --sample {subject.sample}"
    )
    return Row(
        op=subject.name,
        sample=subject.sample,
        surface=found.name,
        dtype=dtype,
        status=_status(failed, worst),
        reason="" if failed or worst is not None else NOTHING,
        message=message,
        repro=repro,
        seed=subject.seed,
        seconds=seconds,
        evaluations=judge.evaluations,
        **({} if worst is None else _measured(worst)),
    )


NOTHING = "nothing was compared: the road does not exist for this subject, or decides nothing"


def _status(failed: bool, worst: Finding | None) -> str:
    """A check that compared nothing has not passed."""
    if failed:
        return "fail"
    return "skipped" if worst is None else "pass"


def _measured(worst: Finding) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        "error": worst.error,
        "tolerance": worst.allowed,
        "unit": worst.tolerance.unit,
        "tolerance_source": worst.tolerance.source,
        "default_tolerance": worst.tolerance.default,
    }
    found = worst.comparison
    if found is not None:
        numbers |= {
            "componentwise": found.componentwise,
            "ulp": found.ulp,
            "worst_index": found.index,
            "got": found.got,
            "expected": found.expected,
        }
    return numbers


def _message(found: Surface, subject: Subject, worst: Finding) -> str:
    unit = {"relative": "", "ulp": " ulp", "exact": " entries"}[worst.tolerance.unit]
    lines = [
        f"{subject.name} {subject.sample}: {worst.label}: error {worst.error:.3g}{unit}, "
        f"allowed {worst.allowed:.3g}{unit} ({found.compares})"
    ]
    c = worst.comparison
    if c is not None and c.index is not None:
        lines.append(f"worst at {list(c.index)}: got {c.got!r}, expected {c.expected!r}")
    if worst.detail:
        lines.append(worst.detail)
    return "\n".join(lines)


def _skipped(op: str, found: Surface) -> Row:
    package = found.missing
    extra = _EXTRAS.get(package, package)
    return Row(
        op=op,
        sample="all",
        surface=found.name,
        dtype=found.dtypes[0],
        status="skipped",
        reason=f"package {package} is not installed: pip install gradsweep[{extra}]",
        missing=package,
    )


_EXTRAS = {"flint": "exact"}

# --- exclusions ----------------------------------------------------------------------------


def _with_exclusion(row: Row) -> Row:
    for known in EXCLUSIONS:
        if known.covers(row.op, row.surface, row.sample, row.dtype):
            return _judged(row, known)
    return row


def _judged(row: Row, known: Exclusion) -> Row:
    """An excluded check: it must fail, and for the stated reason."""
    if row.status in ("pass", "skipped"):
        return dataclasses.replace(
            row,
            status="stale",
            reason=f"excluded as {known.kind} ({known.reason}) but passes: remove the exclusion",
            link=known.link,
        )
    if not re.search(known.error, row.message):
        text = f"{row.message}\nexcluded for another reason: expected an error like {known.error!r}"
        return dataclasses.replace(row, message=text, link=known.link)
    return dataclasses.replace(
        row, status="excluded", reason=f"{known.kind}: {known.reason}", link=known.link
    )


def unmatched(item: Item, rows: Iterable[Row]) -> Rows:
    """A stale row for each exclusion of the item, or part of one, that covered no check."""
    ran = {(r.sample, r.dtype) for r in rows}
    found = []
    for known in EXCLUSIONS:
        if (known.op, known.surface) != (item.op, item.surface):
            continue
        names = known.samples or ("*",)
        for name in names:
            hit = any(
                (name in ("*", s)) and (known.dtypes is None or d in known.dtypes) for s, d in ran
            )
            if not hit:
                found.append(
                    Row(
                        op=item.op,
                        sample=name if name != "*" else "none",
                        surface=item.surface,
                        dtype=(known.dtypes or surface(item.surface).dtypes)[0],
                        status="stale",
                        reason="the exclusion matches no check: correct its sample or remove it",
                        link=known.link,
                    )
                )
    return found


def check_names() -> None:
    """Raise where an exclusion or a tolerance override names an op, surface or sample that does
    not exist.
    """
    load()
    samples = {k: {s.sample for s in subjects(k)} for k in ENTRIES}
    for known in EXCLUSIONS:
        entry(known.op)
        surface(known.surface)
    tolerances.check_override_names(samples)


def sweep(
    ops: Sequence[str] | None = None,
    surfaces: Sequence[str] | None = None,
    *,
    workers: int = 0,
    shard: tuple[int, int] | None = None,
) -> Rows:
    """Run the sweep (or the part that `ops`, `surfaces` and `shard` select) and return its rows.

    `workers` processes take part; 0 runs everything in this one.
    Raises OpError for unknown names and for a selection that holds nothing.
    """
    from checks.pool import run

    check_names()
    return [row for _, rows in run(items(ops, surfaces, shard), workers) for row in rows]


# --- user functions ------------------------------------------------------------------------


def check_function(
    function: Callable[..., Any],
    *args: Any,
    surfaces: Sequence[str] | None = None,
    name: str | None = None,
) -> Rows:
    """Hold a function of arrays against itself on every surface, at its own arguments.

    Narrow floating arguments are taken at float64; each surface has the dtypes it runs at.
    Arguments: a traceable function, its positional arguments (arrays in any containers), the
    surfaces to run (all that speak about functions by default). Returns one Row per surface and
    dtype; a surface whose package is missing gives a skipped row.
    """
    subject = from_function(function, args, name)
    rows = []
    for surface_name in surfaces or [s for s in load() if s != "special"]:
        found = surface(surface_name)
        if found.missing:
            rows.append(_skipped(subject.name, found))
            continue
        if not _claims(found, subject):
            continue
        for dtype in found.dtypes:
            if found.prepare is not None:
                found.prepare([subject], dtype)
            rows.append(run_subject(found, subject, dtype))
    return rows
