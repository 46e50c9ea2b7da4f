"""The verdict of one claimed derivative: wrong, at a kink, outside the domain, or right."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from checks.gradients.abrupt import STAIRCASE, agrees_nearby, jumping
from checks.gradients.evidence import Direction, Evidence, Probe
from checks.gradients.ladder import Estimate, one_sided
from checks.gradients.locate import (
    Entry,
    Place,
    kink,
    kinked,
    locate,
    look,
    numbers,
    place_of,
    search,
)
from checks.gradients.report import (
    DOMAIN,
    INCONCLUSIVE,
    KINK,
    PASS,
    VACUOUS,
    WRONG,
    Check,
    Worst,
)
from checks.gradients.target import closer
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
FROZEN = 8
FINE = 2.0**-16


@dataclasses.dataclass(frozen=True)
class Judged:
    """A check, with the ladder its verdict was read from and the entries held still for it."""

    check: Check
    probe: Probe
    estimate: Estimate
    notes: tuple[str, ...] = ()
    kinks: tuple[Entry, ...] = ()


def judge(evidence: Evidence, name: str, direction: Direction) -> Judged:
    """Hold a derivative against differences along a direction.

    Where that fails and the entries of an argument lie close together far from 0 (data with an
    offset), the steps may have left what the function sees: steps of the size of the spread decide.
    """
    found = _judge(evidence, name, direction)
    if found.check.verdict in (PASS, VACUOUS):
        return found
    near = closer(evidence.target, direction)
    return _unless_abrupt(evidence, found if near is None else _judge(evidence, name, near))


def _unless_abrupt(evidence: Evidence, found: Judged) -> Judged:
    """A wrong derivative, unless the function jumps at the point itself or is a staircase."""
    if found.check.verdict != WRONG:
        return found
    probe, name = found.probe, found.check.name
    if found.estimate.diverges[0]:
        jumps = jumping(evidence, probe.direction)
        if jumps:
            return _beside_jumps(evidence, found, jumps)
    if agrees_nearby(evidence, probe):
        share = probe.allowed / (probe.size or 1.0)
        detail = f"{numbers_of(probe)}; {STAIRCASE}"
        check = Check(name, INCONCLUSIVE, found.check.error, share, share, detail)
        return dataclasses.replace(found, check=check)
    return found


def _beside_jumps(evidence: Evidence, found: Judged, jumps: Sequence[int]) -> Judged:
    """The verdict of the points at which nothing jumps; a kink where that is right."""
    rest = [np.zeros_like(d) if k in jumps else d for k, d in enumerate(found.probe.direction)]
    paths = ", ".join(evidence.target.point_paths[k] for k in jumps)
    text = f"the function jumps at the very value of {paths}, to both sides: compared for equality?"
    check = Check(found.check.name, KINK, 0.0, 0.0, 0.0, text)
    if not any(np.any(d) for d in rest):
        return dataclasses.replace(found, check=check)
    again = _judge(evidence, found.check.name, rest)
    right = again.check.verdict in (PASS, VACUOUS, KINK)
    return dataclasses.replace(again, check=check) if right else again


def _judge(evidence: Evidence, name: str, direction: Direction) -> Judged:
    """Hold a derivative against differences along one direction.

    Entries at kinks and at the domain's end are found, judged by one-sided slopes and held still;
    what is left must agree.
    """
    kinks: list[Entry] = []
    notes: list[str] = []
    for _ in range(FROZEN):
        probe, estimate = evidence.careful(direction)
        evidence.adopt(estimate)
        if not math.isfinite(probe.error):
            outside = _outside(evidence, name, direction, notes)
            if isinstance(outside, Check):
                return Judged(outside, probe, estimate, tuple(notes), tuple(kinks))
            direction = outside
            continue
        unsure = estimate.allowed[0] > constant("fine_unsure") * abs(float(estimate.value[0]))
        hinted = _is_bent(estimate) or unsure
        if not probe.agrees or _is_bent(estimate):
            probe, estimate = evidence.confirmed(probe, estimate)
            evidence.adopt(estimate)
        bent = _is_bent(estimate)
        if probe.doubtful and not estimate.diverges[0]:
            return Judged(_doubtful(name, probe), probe, estimate, tuple(notes), tuple(kinks))
        if probe.agrees and not bent:
            return _settled(evidence, name, probe, estimate, kinks, notes)
        entry = _bent_entry(evidence, probe) if probe.agrees else search(evidence, probe)
        if entry is not None and (entry.is_kink or (hinted and not entry.probe.agrees)):
            entry = kinked(evidence, entry)
        if entry is None and not probe.agrees:
            return Judged(_wrong(evidence, name, probe, None), probe, estimate, tuple(notes))
        if entry is None or not entry.is_kink:
            if entry is not None and not entry.probe.agrees:
                return Judged(_wrong(evidence, name, probe, entry), probe, estimate, tuple(notes))
            if not probe.agrees:  # the entry is right: another is not, or noise led to it
                check = _contradicted(evidence, name, probe, entry)
                return Judged(check, probe, estimate, tuple(notes), tuple(kinks))
            return _settled(evidence, name, probe, estimate, kinks, notes)
        if not entry.is_inside:
            return Judged(_wrong(evidence, name, probe, entry), probe, estimate, tuple(notes))
        kinks.append(entry)
        direction, shared = _freeze(evidence, entry.place, direction)
        unfit = _shared(evidence, name, entry, shared, direction)
        if unfit is not None:
            return Judged(unfit, probe, estimate, tuple(notes), tuple(kinks))
        if not any(np.any(d) for d in direction):
            return Judged(_kinked(evidence, name, kinks), probe, estimate, tuple(notes))
    text = f"more than {FROZEN} kinks or domain ends: move the point away from them"
    return Judged(
        Check(name, KINK if kinks else DOMAIN, detail=text), probe, estimate, tuple(notes)
    )


def _doubtful(name: str, probe: Probe) -> Check:
    size = probe.size or 1.0
    text = f"{numbers_of(probe)}; differences at other steps say otherwise: the function is noisy"
    error = abs(probe.residual) / size
    return Check(name, INCONCLUSIVE, error, error, error, text)


def _contradicted(evidence: Evidence, name: str, probe: Probe, entry: Entry | None) -> Check:
    """A direction that disagrees, while the entry that it led to agrees: WRONG without a place
    where both are sharp enough to mean it.
    """
    off = abs(probe.residual) / constant("bend")
    if entry is not None and max(probe.allowed, entry.probe.allowed) < off:
        return _wrong(evidence, name, probe, None)
    return _doubtful(name, probe)


def _is_bent(estimate: Estimate) -> bool:
    return bool(estimate.jump[0]) or bool(estimate.diverges[0])


def _settled(
    evidence: Evidence,
    name: str,
    probe: Probe,
    estimate: Estimate,
    kinks: Sequence[Entry],
    notes: Sequence[str],
) -> Judged:
    check = _kinked(evidence, name, kinks) if kinks else agreed(evidence, name, probe)
    return Judged(check, probe, estimate, tuple(notes), tuple(kinks))


def agreed(evidence: Evidence, name: str, probe: Probe) -> Check:
    """The check of a probe that agrees: PASS, unless it says nothing."""
    allowed = probe.allowed / probe.size if probe.size else 0.0
    error = abs(probe.residual) / probe.size if probe.size else 0.0
    detail = numbers_of(probe)
    if is_vacuous(evidence, probe):
        return Check(name, VACUOUS, error, allowed, math.inf, ZERO)
    if allowed > constant("meaningful"):
        text = f"{detail}; an error of {allowed:.1g} of the largest entry would pass"
        return Check(name, INCONCLUSIVE, error, allowed, allowed, text)
    return Check(name, PASS, error, allowed, allowed, detail)


ZERO = "the derivative and the difference are zero to rounding: nothing was tested"


def is_vacuous(evidence: Evidence, probe: Probe) -> bool:
    """Whether claim and difference are both below the rounding of the results."""
    rounding = constant("vacuous_units") * evidence.target.unit
    rounding *= evidence.size_of(evidence.target.centre)
    noise = constant("richardson_error_factor") * probe.error
    claim = evidence.largest(probe.direction) or abs(probe.claimed)
    return claim <= rounding and abs(probe.difference) <= rounding + noise


def numbers_of(probe: Probe) -> str:
    """Claim and difference in one line."""
    return f"derivative {probe.claimed:.9g}, difference {probe.difference:.9g} +- {probe.error:.1e}"


def _wrong(evidence: Evidence, name: str, probe: Probe, entry: Entry | None) -> Check:
    size = probe.size or 1.0
    if not math.isfinite(probe.claimed):
        entry = entry or _not_finite(evidence, probe)
    worst = None if entry is None else worst_of(evidence, entry)
    error = abs(probe.residual) / size
    allowed = probe.allowed / size
    return Check(name, WRONG, error, allowed, allowed, numbers_of(probe), worst)


def _not_finite(evidence: Evidence, probe: Probe) -> Entry | None:
    """The first entry of a gradient that is NaN or infinite."""
    for k, g in enumerate(evidence.gradient or ()):
        bad = np.argwhere(~np.isfinite(g))
        if len(bad):
            return look(evidence, Place(k, tuple(int(i) for i in bad[0])), probe.direction)
    return None


def worst_of(evidence: Evidence, entry: Entry) -> Worst:
    """An entry in the report's words; a complex one is completed by a second ladder."""
    target, place = evidence.target, entry.place
    path = target.point_paths[place.point]
    if target.points[place.point].dtype.kind == "c":
        derivative, difference = _complex(evidence, entry)
        return Worst(path, place.index, derivative, difference, entry.error)
    sign = math.copysign(1.0, float(entry.probe.direction[place.point][place.index]))
    left, right = entry.sides if sign > 0 else tuple(-s for s in reversed(entry.sides))
    unit = _unit(evidence)
    left, right = left / unit, right / unit
    return Worst(
        path,
        place.index,
        sign * entry.derivative / unit,
        sign * entry.difference / unit,
        entry.error / abs(unit),
        left=left if entry.is_kink else None,
        right=right if entry.is_kink else None,
    )


def _unit(evidence: Evidence) -> float:
    """The cotangent of the only result of a scalar function, so that its own derivative shows."""
    u = evidence.cotangents
    if len(u) == 1 and u[0].size == 1 and u[0].dtype.kind != "c":
        return float(u[0].ravel()[0]) or 1.0
    return 1.0


def _complex(evidence: Evidence, entry: Entry) -> tuple[complex, complex]:
    """Both parts of a complex entry, from steps along 1 and along i."""
    k, at = entry.place.point, entry.place.index
    parts = []
    for phase in (1.0, 1j):
        direction = [np.zeros_like(d) for d in entry.probe.direction]
        direction[k][at] = phase * entry.step
        probe, _ = evidence.careful(direction)
        parts.append((probe.claimed / entry.step, probe.difference / entry.step))
    (a, b), (c, d) = parts
    return complex(a, -c), complex(b, -d)  # Re(g v) with g = g1 + i g2: along i it is -g2


# --- kinks ---------------------------------------------------------------------------------


def _kinked(evidence: Evidence, name: str, kinks: Sequence[Entry]) -> Check:
    entry = kinks[0]
    left, right = entry.sides
    worst = worst_of(evidence, entry)
    if entry.estimate.diverges[0]:
        text = "a jump: the one-sided slopes grow without bound"
    else:
        text = f"slope {worst.left:.6g} on the left, {worst.right:.6g} on the right"
    also = f", and {len(kinks) - 1} more kinks" if len(kinks) > 1 else ""
    detail = f"{text}; the derivative took {worst.derivative:.6g}{also}"
    return Check(name, KINK, 0.0, 0.0, abs(right - left), detail, worst)


def _bent_entry(evidence: Evidence, probe: Probe) -> Entry | None:
    """The entry at whose kink a probe bends: found by the even part at a fine step."""
    step = max(FINE, 4 * math.sqrt(evidence.target.unit))
    base = evidence.quick(probe.direction, step)
    place = locate(evidence, base, kink, step)
    return None if place is None else look(evidence, place, probe.direction)


def _freeze(
    evidence: Evidence, place: Place, direction: Sequence[Array]
) -> tuple[Direction, Direction]:
    """A direction without the entries of a point that equal the one at a kink; and those alone,
    all with one sign.
    """
    x = evidence.target.points[place.point]
    same = x == x[place.index]
    kept = [np.where(same, 0.0, d) if k == place.point else d for k, d in enumerate(direction)]
    shared = [
        np.where(same & (d != 0), np.abs(d), 0.0) if k == place.point else np.zeros_like(d)
        for k, d in enumerate(direction)
    ]
    return kept, shared


def _shared(
    evidence: Evidence, name: str, entry: Entry, shared: Direction, rest: Sequence[Array]
) -> Check | None:
    """Equal entries moved together: ties become smooth, and their shares must add up."""
    del rest
    if np.count_nonzero(shared[entry.place.point]) < 2:
        return None
    probe, estimate = evidence.careful(shared)
    if abs(probe.residual) <= probe.allowed + abs(float(estimate.jump[0])):
        return None
    if estimate.diverges[0]:
        return None
    found = _wrong(evidence, name, probe, entry)
    text = f"entries equal to that one, moved together: {numbers_of(probe)}"
    return dataclasses.replace(found, detail=text)


# --- the domain's end ----------------------------------------------------------------------


def _outside(
    evidence: Evidence, name: str, direction: Direction, notes: list[str]
) -> Check | Direction:
    """Judge an entry whose probes leave the domain by one-sided slopes, and hold it still."""
    target = evidence.target
    ids = numbers(evidence)
    place = _leaving(evidence, direction, ids)
    path = f"{target.point_paths[place.point]}{bracket(place.index)}"
    x = target.points[place.point][place.index]
    single = [np.zeros_like(d) for d in direction]
    single[place.point] = np.where(
        ids[place.point] == ids[place.point][place.index], direction[place.point], 0.0
    )
    line = evidence.line(single)
    claimed = evidence.claimed(single)
    slopes = [one_sided(line, s) for s in (1.0, -1.0)]
    finite = [(float(v[0]), float(e[0])) for v, e in slopes if np.isfinite(v[0] + e[0])]
    size = max(abs(claimed), *(abs(v) for v, _ in finite), 0.0)
    size = size if math.isfinite(size) else 1.0
    for value, error in finite:
        allowed = max(constant("richardson_error_factor") * error, evidence.tolerance * size)
        if abs(value - claimed) <= allowed and allowed <= constant("meaningful") * max(
            size, 1e-300
        ):
            notes.append(f"{path} = {x:.6g} lies at the end of the domain: judged from one side")
            return _freeze(evidence, place, direction)[0]
    sides = ", ".join(f"{v:.6g} +- {e:.1g}" for v, e in finite) or "none is finite"
    step = float(np.abs(single[place.point][place.index])) or 1.0
    text = (
        f"{path} = {x:.6g}: every step leaves the domain; "
        f"derivative {claimed / step:.6g}, one-sided slopes times {step:.3g}: {sides}"
    )
    if target.tally.refused:
        text += f"; outside it raises {target.tally.refused}"
    worst = Worst(target.point_paths[place.point], place.index, claimed / step, math.nan, math.inf)
    return Check(name, DOMAIN, math.inf, 0.0, math.inf, text, worst)


def _leaving(evidence: Evidence, direction: Sequence[Array], ids: Sequence[Array]) -> Place:
    """An entry that leaves the domain when moved, found by halving."""
    low, high = 0, sum(i.size for i in ids)
    step = FINE  # the first at which the whole direction leaves: a finer one may stay inside
    while step < 1 and math.isfinite(evidence.quick(list(direction), step).difference):
        step *= 4
    while high - low > 1:
        cut = (low + high) // 2
        part = [
            np.where((i >= low) & (i < cut), d, 0.0) for i, d in zip(ids, direction, strict=True)
        ]
        left = not math.isfinite(evidence.quick(part, step).difference)
        low, high = (low, cut) if left else (cut, high)
    return place_of(evidence, low)


def bracket(index: tuple[int, ...]) -> str:
    """An index as Python writes it; nothing for a scalar."""
    return f"[{', '.join(map(str, index))}]" if index else ""


Result = tuple[int, tuple[int, ...]]


def result_cotangents(results: Sequence[Array], number: int) -> tuple[Result, list[Array]]:
    """The cotangents that pick one entry of the results (numbered as in `entries`), and which."""
    made = [np.zeros(y.shape, np.complex128 if y.dtype.kind == "c" else float) for y in results]
    for k, y in enumerate(results):
        count = y.size * (2 if y.dtype.kind == "c" else 1)
        if number < count:
            index = tuple(int(i) for i in np.unravel_index(number % y.size, y.shape))
            made[k][index] = 1.0 if number < y.size else -1j
            return (k, index), made
        number -= count
    raise IndexError(number)
