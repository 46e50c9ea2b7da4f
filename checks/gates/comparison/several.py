"""Several candidates against one reference: is it one backend, or the port?"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from checks.gates.blocks.block import Block
from checks.gates.causes.case import figure
from checks.gates.comparison.apart import Apart, apart
from checks.gates.comparison.plain import plain
from checks.gates.comparison.policy import Policy
from checks.gates.comparison.questions import answers
from checks.gates.comparison.record import SCHEMA, Problem, Result, TensorRow
from checks.gates.comparison.verdict import compare, opened
from checks.gates.errors import INVALID, PASSED, WRONG, GateError
from checks.tolerances import constant

StepOf = Callable[[str, TensorRow], None]
KnownOf = Callable[[str, Problem], None]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One reference and its candidates.

    Arguments:
        labels: a short name for each candidate.
        results: one for each, of equal reference and tolerance file.
        between: by tensor, the distances between reference (0) and candidates (1, ...), where all
            have it in one shape and a candidate differs.
    """

    labels: tuple[str, ...]
    results: tuple[Result, ...]
    between: Mapping[str, Apart]

    @property
    def exit_code(self) -> int:
        """1 where a valid comparison found its candidate wrong; else 2 where a comparison is not
        valid; else 0: a fault that is proven is told whatever else could not be judged.
        """
        codes = [r.exit_code for r in self.results]
        return next((c for c in (WRONG, INVALID) if c in codes), PASSED)

    @property
    def ok(self) -> bool:
        """Whether every candidate passes."""
        return self.exit_code == PASSED

    @property
    def first(self) -> TensorRow | None:
        """The first divergence of any candidate, in execution order."""
        found = [r.first for r in self.results if r.first is not None]
        return min(found, key=lambda row: _place(self.results, row), default=None)

    @property
    def backend(self) -> str:
        """The answer to the sixth question; "" where all pass."""
        return backend(self)

    def to_record(self) -> dict[str, Any]:
        """Return the whole as one JSON object: `Result.to_record` of each, and the distances."""
        first = self.first
        return {
            "schema": SCHEMA,
            "exit_code": self.exit_code,
            "first": first.name if first else None,
            "cause": (first.cause.name if first.cause else "unclassified") if first else None,
            "backend": self.backend,
            "labels": list(self.labels),
            "results": [r.to_record() for r in self.results],
            "between": {name: plain(asdict(a)) for name, a in self.between.items()},
        }

    @classmethod
    def from_record(cls, record: Any, where: str = "report") -> "Comparison":
        """Return what `to_record` gave.

        Raises:
            GateError: it is no such record: the field at fault is named.
        """
        from checks.gates.reports.saved import comparison_of

        return comparison_of(record, where)


def compare_all(
    reference: str | Path,
    candidates: Sequence[str | Path],
    tolerances: str | Path,
    *,
    names: str | Path | None = None,
    only: str | None = None,
    step: StepOf | None = None,
    reference64: str | Path | None = None,
    tokens: Sequence[str] = (),
    blocks: Sequence[Block] = (),
    known: KnownOf | None = None,
    policy: Policy | None = None,
) -> Comparison:
    """Compare several dumps, of several backends, with one reference and with each other.

    Arguments:
        reference, tolerances, names, only, reference64, tokens, blocks, policy: see `compare`.
        candidates: a dump each.
        step: called with the candidate's label and each row as it is made.
        known: called with the label and each problem that is known before the rows are.

    Returns:
        A result for each; their sixth answer is drawn from all of them.

    Raises:
        GateError: a file cannot be used; no candidate is given, or one twice.
    """
    paths = [Path(c) for c in candidates]
    if not paths or len({p.resolve() for p in paths}) < len(paths):
        what = "a candidate is given twice" if paths else "no candidate is given"
        raise GateError(what, ", ".join(map(str, paths)) or "candidates", "name each dump once")
    labels = labels_of(paths)
    results = []
    for label, path in zip(labels, paths, strict=True):
        results.append(
            compare(
                reference,
                path,
                tolerances,
                names=names,
                only=only,
                step=None if step is None else partial(step, label),
                reference64=reference64,
                tokens=tokens,
                blocks=blocks,
                known=None if known is None else partial(known, label),
                policy=policy,
            )
        )
    between: dict[str, Apart] = {}
    if len(paths) > 1:
        sides = [opened(reference, p, tolerances, names=names) for p in paths]
        for name in _shared(results):
            stored = [sides[0].left.tensors[name], *(s.right.tensors[name] for s in sides)]
            between[name] = apart(stored)
    return answered(Comparison(labels, tuple(results), between))


def answered(comparison: Comparison) -> Comparison:
    """Return the comparison with the sixth answer, of each result that failed, from all."""
    if len(comparison.results) < 2:
        return comparison
    text = comparison.backend
    made = [
        replace(r, answers=answers(r, text)) if r.first is not None else r
        for r in comparison.results
    ]
    return replace(comparison, results=tuple(made))


def labels_of(paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the last parts of each path, as many as tell all of them apart."""
    parts = [p.absolute().parts for p in paths]
    for count in range(1, max((len(p) for p in parts), default=0) + 1):
        labels = tuple("/".join(p[-count:]) for p in parts)
        if len(set(labels)) == len(labels):
            return labels
    return tuple(map(str, paths))


def _shared(results: Sequence[Result]) -> Iterator[str]:
    """Contract tensors that all candidates have in one shape, and not all equal."""
    by_name = [{r.name: r for r in result.rows} for result in results]
    for name, first in by_name[0].items():
        rows = [rows.get(name) for rows in by_name]
        measured = [r.measured for r in rows if r is not None and r.measured is not None]
        if first.contract and len(measured) == len(results) and any(m.differing for m in measured):
            yield name


# --- the sixth question ---


def backend(comparison: Comparison) -> str:
    """Return what all candidates say together: one backend, the port, or each its own way."""
    first = comparison.first
    if first is None:
        return ""
    rows = {
        label: next((r for r in result.rows if r.name == first.name), None)
        for label, result in zip(comparison.labels, comparison.results, strict=True)
        if result.inputs != "different"
    }
    off = [label for label, row in rows.items() if row is not None and row.failed]
    fine = [label for label in rows if label not in off]
    if len(rows) == 1 < len(comparison.labels):
        text = f"{off[0]} alone could be judged, and is off at {first.name}"
    else:
        text = _one(comparison, first, off, fine) if fine else _alike(comparison, first, off)
    invalid = [
        label
        for label, r in zip(comparison.labels, comparison.results, strict=True)
        if r.exit_code == INVALID
    ]
    if invalid:
        text += f"; no valid comparison: {', '.join(invalid)}"
    split = next((r for r in rows.values() if r is not None and r.three_way), None)
    return text if split is None else f"{text}; {_splits(rows)}"


def _one(comparison: Comparison, first: TensorRow, off: list[str], fine: list[str]) -> str:
    """Some candidates are off where others are not."""
    later = {
        label: r.first.name
        for label, r in zip(comparison.labels, comparison.results, strict=True)
        if label in fine and r.first is not None
    }
    good = [label for label in fine if label not in later]
    text = f"yes: at {first.name} only {_and(off)} {_is(off)} off, {_and(fine)} {_is(fine)} not"
    if later:
        told = ", ".join(f"{label} at {name}" for label, name in later.items())
        text = f"partly: {text.removeprefix('yes: ')}; later {told}"
    elif good:
        text += f": a fault of {'that backend' if len(off) == 1 else 'those backends'}"
    return text + _distance(comparison, first, off + fine)


def _alike(comparison: Comparison, first: TensorRow, off: list[str]) -> str:
    """All candidates are off at one tensor."""
    between = comparison.between.get(first.name)
    if between is None:
        kinds = {
            (r.status, r.shapes[1])
            for label, result in zip(comparison.labels, comparison.results, strict=True)
            for r in result.rows
            if label in off and r.name == first.name
        }
        if len(kinds) == 1:
            return f"no: all are off alike at {first.name} ({first.status}): the port"
        return f"each is off in its own way at {first.name}: see the rows of each"
    both = combinations([comparison.labels.index(label) + 1 for label in off], 2)
    cosines = {p: between.correlation(*p) for p in both}
    known = {p: v for p, v in cosines.items() if not math.isnan(v)}
    least = min(known.values(), default=math.nan)
    if known and least >= constant("gate_alike"):
        text = f"no: all are off alike at {first.name}, their errors correlate "
        text += f"(cosine at least {figure(least)}): the port"
    else:
        names = ("", *comparison.labels)
        pairs = [f"{names[a]} and {names[b]} {figure(v)}" for (a, b), v in known.items()]
        text = f"each is off in its own way at {first.name}, their errors do not correlate "
        text += f"({', '.join(pairs) or 'not finite'}): rounding, or a fault of each backend"
    return text + _distance(comparison, first, off)


def _distance(comparison: Comparison, first: TensorRow, pair: list[str]) -> str:
    """How far two candidates are from each other, beside how far each is from the reference; ""
    for more than two.
    """
    between = comparison.between.get(first.name)
    if between is None or len(pair) != 2:
        return ""
    a, b = (comparison.labels.index(label) + 1 for label in pair)
    rms = between.rms
    return (
        f"; {pair[0]} is {figure(rms[0][a])} (rms) from the reference, {pair[1]} "
        f"{figure(rms[0][b])}, they are {figure(rms[a][b])} from each other"
    )


def _splits(rows: Mapping[str, TensorRow | None]) -> str:
    told = [
        f"{label} {figure(row.three_way.ratio)} ({row.three_way.text})"
        for label, row in rows.items()
        if row is not None and row.three_way is not None
    ]
    return f"against the reference's own distance from reference64 (B / A): {', '.join(told)}"


def _place(results: Sequence[Result], row: TensorRow) -> tuple[bool, int]:
    """Gates before informational tensors, as in `Result.first`; then in execution order."""
    order = [r.name for result in results for r in result.rows]
    return row.role != "gate", order.index(row.name)


def _and(labels: Sequence[str]) -> str:
    *most, last = labels
    return f"{', '.join(most)} and {last}" if most else last


def _is(labels: Sequence[str]) -> str:
    return "is" if len(labels) == 1 else "are"
