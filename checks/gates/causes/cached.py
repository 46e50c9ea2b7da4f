"""A cache of keys or values that is off in its newest entries: another place, another position."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from checks.gates.causes.case import Case, listed, rms
from checks.gates.causes.rotary import BASES, Turn, widths
from checks.gates.comparison.record import Cause
from checks.tolerances import constant

_LEAST, _FEW = 4, 4  # entries of the axis; a quarter of them at most is off
_VALUES = 16  # that tell a rotation
_BY = (1, -1, 2, -2)


def cached(case: Case) -> Cause | None:
    """Return whether a few entries along one axis stand elsewhere, or are turned for elsewhere.

    All other entries pass. An entry that another one should be must hold that one's values; one
    that is turned for another position must be right once it is turned back.
    """
    if not case.whole:
        return None
    e = np.abs(case.c - case.r)
    for axis in range(case.r.ndim - 1):
        rest = tuple(k for k in range(e.ndim) if k != axis)
        bad = np.flatnonzero(~(e.max(axis=rest) <= case.limit.max_abs))
        n = case.r.shape[axis]
        if n < _LEAST or not 0 < bad.size <= max(2, n // _FEW) < n:
            continue
        d = np.delete(e, bad, axis)
        if not case.limit.passes(float(d.max()), float(d.mean())):
            continue
        r, c = (np.moveaxis(v, axis, 0) for v in (case.r, case.c))
        found = _elsewhere(case, axis, r, c, bad) or _turned(case, axis, r, c, bad)
        if found:
            return found
    return None


def _elsewhere(case: Case, axis: int, r: Any, c: Any, bad: Any) -> Cause | None:
    """Each entry n holds the reference's entry n - by, whose own place was not written to: it is
    empty. Where it is right as well, or another, entries are repeated or are other ones, which
    says nothing of a cache.
    """
    for by in _BY:
        held = np.array([n for n in bad if 0 <= n - by < len(r)], np.int64)
        held = np.array([n for n in held if _alike(case, c[n], r[n], r[n - by])], np.int64)
        left = np.setdiff1d(bad, held)
        empty = left.size and not np.any(c[left])
        if not held.size or not empty or not np.all(np.isin(left, held - by)):
            continue
        way = f"{abs(by)} place{'s' if abs(by) > 1 else ''} {'late' if by > 0 else 'early'}"
        text = f"entries {listed(held)} of axis {axis} hold the reference's {listed(held - by)}: "
        text += f"a cache that is written {way}"
        seen = Case(r[held], c[held], case.limit)
        if found := seen.cause("cache place", text, seen.c, r[held - by]):
            return found
    return None


def _alike(case: Case, held: Any, own: Any, other: Any) -> bool:
    """Whether an entry is another one, which is not its own and no constant."""
    if np.ptp(other) == 0:
        return False
    return Case(own, held, case.limit).left(held, other) is not None


def _turned(case: Case, axis: int, r: Any, c: Any, bad: Any) -> Cause | None:
    """Keys behind a rotary embedding, turned for another position: a turn keeps their length."""
    r, c = r[bad], c[bad]
    for width in widths(r.shape[-1]):
        ours, theirs = (v.reshape(len(bad), -1, width) for v in (r, c))
        sizes = [np.sqrt(np.sum(v**2, axis=-1)) for v in (ours, theirs)]
        apart = rms(sizes[1] - sizes[0])
        if ours.size < _VALUES or apart > constant("gate_undone_better") * rms(theirs - ours):
            continue
        small = Case(ours, theirs, case.limit)
        for base, interleaved, by in _guesses(bad):
            back = _back(theirs, base, interleaved, by)
            told = [f"{n} is turned as {n + k}" for n, k in zip(bad, by, strict=True)]
            text = f"of axis {axis}, entry {', '.join(told)}: positions of a step that are off"
            if found := small.cause("cache position", text, back):
                return found
    return None


def _guesses(bad: Any) -> Iterator[tuple[float, bool, Any]]:
    """Bases, pairs, and how far each entry's position is off: all alike, or all from zero on."""
    offsets = [np.full(len(bad), by) for by in _BY] + [-np.full(len(bad), bad[0])]
    for base in BASES:
        for interleaved in (False, True):
            for by in offsets:
                if np.any(by):
                    yield base, interleaved, by


def _back(x: Any, base: float, interleaved: bool, by: Any) -> Any:
    """x (entries, vectors, width), each entry turned back by so many positions."""
    made = [
        Turn(interleaved, base, int(k))(x[n][:, None], undo=True)[:, 0] for n, k in enumerate(by)
    ]
    return np.stack(made)
