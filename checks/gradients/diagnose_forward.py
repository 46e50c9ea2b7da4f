"""Why a tangent is wrong: faults of the results' tangents first, then of what comes from each entry
of the arguments.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from checks.gradients.causes import rearranged
from checks.gradients.evidence import FEW, Direction, Evidence, entries
from checks.gradients.factors import named
from checks.gradients.ladder import Estimate
from checks.gradients.pattern import where, words
from checks.gradients.report import Cause, Worst
from checks.gradients.target import Target, size_of, wide
from checks.gradients.trial import MEASURED, bends

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
    few = sum(y.size for y in target.centre) <= FEW
    seen = _looked(full, 0) if few else None
    if seen is not None and any(np.any(b) for b in seen.bad):
        pattern = _lies(target, seen)
        repair = _of_results(target, seen)
        if repair is not None:
            again = _looked(full, 1)
            if again is not None and again.agrees(repair[2](again.claim)):
                return Cause(repair[0], repair[1]), pattern, worst
    else:
        pattern = ""
    total = sum(x.size * (2 if x.dtype.kind == "c" else 1) for x in target.points)
    if total > MEASURED:
        return None, pattern, worst
    from checks.gradients.diagnose import diagnose_gradient, opened

    full.gradient = _dense(full)
    cause, lies, found = diagnose_gradient(opened(full), None, None, notes, "tangent along")
    if cause is not None:
        text = cause.text.replace("tangent along of", "tangent along")
        return dataclasses.replace(cause, text=text), lies, worst or found
    return None, pattern or lies, worst or found


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


def _of_results(target: Target, seen: Tangents) -> Any:
    """A fault of the tangents themselves: name, sentence, repair; None where there is none."""
    wrong = [k for k, b in enumerate(seen.bad) if np.any(b)]
    if len(wrong) > 1 and all(not np.any(seen.claim[k]) for k in wrong):
        return None
    for k in wrong:
        found = _of_one(target, seen, k)
        if found is None:
            return None
        name, text, repair = found

        def whole(claim: list[Array], repair: Any = repair) -> list[Array]:
            return [repair(c) if j in wrong else c for j, c in enumerate(claim)]

        if seen.agrees(whole(seen.claim)):
            names = " and ".join(_name(target, j) for j in wrong)
            return name, f"the tangent of {names} {text}", whole
    return None


def _of_one(target: Target, seen: Tangents, k: int) -> Any:
    claim, true, bad = seen.claim[k], seen.true[k], seen.bad[k]
    for name, text, new in rearranged(claim) if bad.size > 1 else ():
        if np.all(np.abs(new - true) <= seen.allowed[k]) and not np.array_equal(new, claim):
            return name, text, _rearranger(name, text)
    inside = bad & (claim != 0)
    if not np.any(inside) or np.any(bad & ~inside):
        return None
    at = int(np.argmax(np.where(inside, np.abs(true), 0.0)))
    t, c = true.ravel()[at], claim.ravel()[at]
    if not t:
        return None
    ratio = c / t
    if abs(np.imag(ratio)) > seen.allowed[k].ravel()[at] / abs(t):
        return None
    factor = named(
        target, float(np.real(ratio)), 4 * float(seen.allowed[k].ravel()[at] / abs(t)) * abs(ratio)
    )
    exact = round(np.real(ratio)) if factor.name.lstrip("-").isdigit() else np.real(ratio)
    lie = ""
    if np.count_nonzero(bad) < bad.size:
        spot = where(
            bad, bad | (np.abs(true) > seen.allowed[k]), target.centre[k], _name(target, k)
        )
        lie = f" in {spot}" if spot and not spot.startswith("all whose") else ""
    if factor.name == "-1":
        return "sign", f"has the wrong sign{lie}", lambda c: np.where(bad, -c, c)
    if not factor.is_simple and np.count_nonzero(inside) < 3:
        return None
    return "factor", f"{factor.phrase}{lie}", lambda c: np.where(bad, c / exact, c)


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


__all__ = ["Estimate", "Tangents", "diagnose_forward"]
