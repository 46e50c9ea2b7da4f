"""Why a tangent is wrong: faults of the results' tangents first, then of what comes from each entry
of the arguments.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from checks.gradients.diagnosis.causes import located, rearranged
from checks.gradients.diagnosis.factors import named
from checks.gradients.diagnosis.pattern import where, words
from checks.gradients.diagnosis.trial import MEASURED, bends
from checks.gradients.evidence import FEW, Direction, Evidence, entries
from checks.gradients.report import Cause, Worst
from checks.gradients.target import Target, size_of, wide

Array = np.ndarray[Any, Any]
Diagnosis = tuple[Cause | None, str, Worst | None]


@dataclasses.dataclass(frozen=True, eq=False)
class Tangents:
    """One direction: the claimed tangents, the true ones, what the difference explains."""

    claim: list[Array]
    true: list[Array]
    allowed: list[Array]

    @property
    def bad(self) -> list[Array]:
        """Wrong entries of each result."""
        return [
            ~(np.abs(c - t) <= a)
            for c, t, a in zip(self.claim, self.true, self.allowed, strict=True)
        ]

    def agrees(self, new: list[Array]) -> bool:
        """Whether repaired tangents are right."""
        return all(
            bool(np.all(np.abs(n - t) <= a))
            for n, t, a in zip(new, self.true, self.allowed, strict=True)
        )


def diagnose_forward(evidence: Evidence, worst: Worst | None, notes: list[str]) -> Diagnosis:
    """The cause, pattern and worst entry of a wrong forward mode."""
    target = evidence.target
    full = dataclasses.replace(
        evidence, cotangents=list(map(wide, target.cotangents())), probes=[], step=0.0
    )
    pattern = ""
    few = sum(y.size for y in target.centre) <= FEW
    seen = _looked(full, 0) if few else None
    if seen is not None and any(np.any(b) for b in seen.bad):
        pattern = _lies(target, seen)
        again = _looked(full, 1)
        found = None if again is None else _of_results(target, seen, again)
        if found is not None:
            return found, pattern, worst
    total = sum(x.size * (2 if x.dtype.kind == "c" else 1) for x in target.points)
    if total > MEASURED:
        return None, pattern, worst
    from checks.gradients.diagnosis.diagnose import diagnose_gradient, opened

    full.gradient = _dense(full)
    cause, lies, entry = diagnose_gradient(opened(full), None, None, notes, "tangent along")
    if cause is not None:
        return cause, lies, worst or entry
    return None, pattern or lies, worst or entry


def _looked(evidence: Evidence, number: int) -> Tangents | None:
    """Both sides along a fresh direction; None where it stands on a kink."""
    target = evidence.target
    rng = target.rng(f"tangents {number}")
    direction = [d * (0.5 + rng.random(d.shape)) for d in target.direction(f"tangents {number}")]
    for k in target.symmetric_points:
        direction[k] = (direction[k] + np.swapaxes(direction[k], -1, -2)) / 2
    assert evidence.push is not None
    claim = [wide(y) for y in evidence.push(direction)]
    _, found = evidence.careful(direction)
    if bends(found) or not np.isfinite(found.error[0]):
        return None
    true = _split(target, found.value[1:])
    allowed = _split(target, found.allowed[1:])
    limits = [
        np.maximum(np.abs(a), evidence.tolerance * float(np.max(np.abs(t), initial=0.0)))
        for a, t in zip(allowed, true, strict=True)
    ]
    return Tangents(claim, true, limits)


def _split(target: Target, values: Array) -> list[Array]:
    """Readings of all results as arrays of their shapes."""
    made, start = [], 0
    for y in target.centre:
        real = values[start : start + y.size].reshape(y.shape)
        start += y.size
        if y.dtype.kind == "c":
            imag = values[start : start + y.size].reshape(y.shape)
            start += y.size
            real = real + 1j * imag
        made.append(real)
    assert start == entries([wide(y) for y in target.centre]).size
    return made


def _lies(target: Target, seen: Tangents) -> str:
    """Which tangents are wrong, in words."""
    texts = []
    for k, bad in enumerate(seen.bad):
        count = int(np.count_nonzero(bad))
        if count:
            lie = _lie(target, seen, k)
            texts.append(words(count, bad.size, lie, f"the tangent of {_name(target, k)}"))
    return "; ".join(texts)


def _lie(target: Target, seen: Tangents, k: int) -> str:
    """Where the wrong tangents of one result lie."""
    relevant = seen.bad[k] | (np.abs(seen.true[k]) > seen.allowed[k])
    name = "result" if len(target.centre) == 1 else _name(target, k)
    return where(seen.bad[k], relevant, target.centre[k], name)


def _name(target: Target, k: int) -> str:
    return "the result" if len(target.centre) == 1 else f"result {target.smooth[k]}"


@dataclasses.dataclass(frozen=True, eq=False)
class Repair:
    """A fault of one result's tangents: its name, what the tangent is, and how to undo it."""

    name: str
    text: str
    undo: Callable[[Array], Array]


def _of_results(target: Target, seen: Tangents, again: Tangents) -> Cause | None:
    """A fault of the tangents themselves, undone along a second direction."""
    wrong = [k for k, b in enumerate(seen.bad) if np.any(b)]
    names = " and ".join(_name(target, k) for k in wrong)
    if all(not np.any(t.claim[k][seen.bad[k]]) for k in wrong for t in (seen, again)):
        lies = [_lie(target, seen, k) for k in wrong]
        lie = f" {located(lies[0])}" if len(wrong) == 1 and _is_part(seen, wrong[0]) else ""
        return Cause("zero", f"the tangent of {names} is zero{lie}")
    for k in wrong:
        repair = _of_one(target, seen, k)
        if repair is None:
            return None
        made = [repair.undo(c) if j in wrong else c for j, c in enumerate(again.claim)]
        if again.agrees(made):
            return Cause(repair.name, f"the tangent of {names} {repair.text}")
    return None


def _is_part(seen: Tangents, k: int) -> bool:
    """Whether some entries of a result are right, other than zeros."""
    right = ~seen.bad[k] & (np.abs(seen.true[k]) > seen.allowed[k])
    return bool(np.any(right))


def _of_one(target: Target, seen: Tangents, k: int) -> Repair | None:
    claim, true, bad = seen.claim[k], seen.true[k], seen.bad[k]
    for name, text, new in rearranged(claim) if bad.size > 1 else ():
        if np.all(np.abs(new - true) <= seen.allowed[k]) and not np.array_equal(new, claim):
            return Repair(name, text, _rearranger(name, text))
    if np.any(bad & ((claim == 0) | (true == 0))):
        return None
    at = int(np.argmax(np.where(bad, np.abs(true), 0.0)))
    t, c = complex(true.ravel()[at]), complex(claim.ravel()[at])
    ratio, blur = c / t, float(seen.allowed[k].ravel()[at]) / abs(t)
    if abs(ratio.imag) > blur:
        return None
    factor = named(target, ratio.real, 4 * blur * abs(ratio))
    if not factor.is_simple and np.count_nonzero(bad) < 3:
        return None
    exact = round(ratio.real) if factor.name.lstrip("-").isdigit() else ratio.real
    lie = f" {located(_lie(target, seen, k))}" if _is_part(seen, k) else ""
    if factor.name == "-1":
        return Repair("sign", f"has the wrong sign{lie}", lambda c: np.where(bad, -c, c))
    return Repair("factor", f"{factor.phrase}{lie}", lambda c: np.where(bad, c / exact, c))


def _rearranger(name: str, text: str) -> Callable[[Array], Array]:
    """The rearrangement of that name, for another claim."""
    return lambda claim: next(n for a, b, n in rearranged(claim) if (a, b) == (name, text))


def _dense(evidence: Evidence) -> list[Array]:
    """The gradient of `Re sum(u * f)` from one tangent per entry."""
    made = []
    for k, x in enumerate(evidence.target.points):
        g = np.zeros(x.shape, wide(x).dtype)
        size = size_of(x)
        for index in np.ndindex(x.shape):
            parts = [
                evidence.claimed(_unit(evidence, k, index, phase * float(size[index])))
                / float(size[index])
                for phase in ((1.0, 1j) if x.dtype.kind == "c" else (1.0,))
            ]
            g[index] = parts[0] if len(parts) == 1 else complex(parts[0], -parts[1])
        made.append(g)
    return made


def _unit(evidence: Evidence, k: int, index: tuple[int, ...], step: complex) -> Direction:
    direction = [np.zeros(x.shape, wide(x).dtype) for x in evidence.target.points]
    direction[k][index] = step if direction[k].dtype.kind == "c" else np.real(step)
    return direction


__all__ = ["Tangents", "diagnose_forward"]
