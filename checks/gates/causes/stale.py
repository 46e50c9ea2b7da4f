"""A tensor that still holds an earlier step: a cache or a state that was not updated."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from checks.gates.causes.case import Case, listed
from checks.gates.comparison.record import Cause
from checks.gates.formats.readers import Side
from checks.gates.formats.stored import Stored
from checks.report.wording import plural

_MOST = 16  # steps back
_LEAST = 4  # entries that changed since, so that being equal is no chance
# A name's count of steps, as in dec.gen2.block.0.out; the 0 of the block is none.
_STEP = re.compile(r"(?<![A-Za-z])(gen|step|chunk)([._]?)(\d+)(?![A-Za-z0-9])")


def stale(case: Case, key: str, left: Side) -> Cause | None:
    """Return whether the candidate is the reference's tensor of an earlier step, in all entries
    along an axis or in some, the others being right.

    Arguments:
        case: the pair.
        key: of the tensor. Its earlier steps are the calls of its name before it, "k_cache#1"
            before "k_cache#2", or names of a lower step, "dec.gen1.k" before "dec.gen2.k".
        left: the reference's dump.
    """
    if not case.r.size or case.parts is not None:
        return None
    for back, name in _earlier(key, left):
        earlier = _values(left.tensors[name], case)
        if earlier is None:
            continue
        if found := _whole(case, earlier, back, name) or _some(case, earlier, back, name):
            return found
    return None


def _earlier(key: str, left: Side) -> Iterator[tuple[int, str]]:
    """How many steps back, and the key there, the nearest first."""
    name, _, call = key.partition("#")
    for n in range(int(call or 0) - 1, -1, -1)[:_MOST]:
        before = f"{name}#{n}" if n else name
        if before in left.tensors:
            yield int(call) - n, before
    if call or not (found := list(_STEP.finditer(name))):
        return
    step = found[-1]
    last = int(step[3])
    for n in range(last - 1, -1, -1)[:_MOST]:
        before = f"{name[: step.start(3)]}{n}{name[step.end(3) :]}"
        if before in left.tensors:
            yield last - n, before


def _values(stored: Stored, case: Case) -> Any:
    """An earlier tensor of the candidate's shape, as much of it as the case holds; None where it
    is of another shape, or constant: zeros are what was never written.
    """
    held, shape = case.c.shape, stored.tensor.shape
    if not shape or len(shape) != len(held) or shape[1:] != held[1:]:
        return None
    if shape[0] != held[0] and (case.whole or shape[0] < held[0]):
        return None
    values = stored.load(None if case.whole else held[0])
    if values.dtype.kind not in "fV" or not values.size:
        return None
    wide = values.astype(np.float64)
    return wide if np.isfinite(wide).all() and np.ptp(wide) else None


def _whole(case: Case, earlier: Any, back: int, name: str) -> Cause | None:
    if case.r.shape == earlier.shape and np.count_nonzero(earlier != case.r) < _LEAST:
        return None
    text = f"stale by {plural(back, 'step')}: the candidate holds the reference's {name}"
    return case.cause("stale", text, case.c, earlier)


def _some(case: Case, earlier: Any, back: int, name: str) -> Cause | None:
    """Entries of one axis, such as the items of a batch: all others are within the limits."""
    if case.r.shape != case.c.shape:
        return None
    e = np.abs(case.c - case.r)
    for axis in range(case.r.ndim - 1):
        rest = tuple(k for k in range(e.ndim) if k != axis)
        bad = np.flatnonzero(~(e.max(axis=rest) <= case.limit.max_abs))
        good = np.delete(e, bad, axis)
        if not bad.size or not good.size:
            continue
        if not case.limit.passes(float(good.max()), float(good.mean())):
            continue
        r, c, old = (np.take(v, bad, axis) for v in (case.r, case.c, earlier))
        changed = np.moveaxis(old != r, axis, 0).reshape(bad.size, -1).sum(axis=1)
        if changed.min() < _LEAST:
            continue
        text = f"stale by {plural(back, 'step')} in entries {listed(bad)} of axis {axis}: there "
        text += f"the candidate holds the reference's {name}, the other entries agree"
        seen = Case(r, c, case.limit)
        if found := seen.cause("stale", text, c, old):
            return found
    return None
