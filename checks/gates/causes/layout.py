"""Causes that move values: permuted axes, reversals, shifts, head splits, permuted slices."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from checks.gates.causes.case import Case, listed
from checks.gates.causes.trials import GATE_ORDERS
from checks.gates.comparison.record import Cause

_MOST_AXES = 5
_FEW_SLICES, _MOST_SLICES = 1 << 10, 1 << 14
_MOST_FACTORS = 64
_LEAST_SHIFTED, _MOST_CORRELATED = 4, 1 << 20
_MARGINS = (0, 1, 2)  # entries at either end that a shift need not explain: what lay beyond
_ENDS = 4  # ... of an axis this many times longer


def moved(case: Case) -> Cause | None:
    """Return what moved the values, of two tensors of one shape."""
    if not case.whole or not _same_values(case):
        return None if case.whole else (_reversed(case) or _shifted(case))
    for find in (_axes, _reread, _reversed, _rolled, _regrouped, _slices):
        if found := find(case):
            return found
    text = "the same values in other places; no permutation of axes or slices makes them equal"
    order = np.sort(case.c, axis=None), np.sort(case.r, axis=None)
    return case.cause("same values elsewhere", text, *order)


def _same_values(case: Case) -> bool:
    return case.left(np.sort(case.c, axis=None), np.sort(case.r, axis=None)) is not None


def _orders(case: Case) -> Iterator[tuple[int, ...]]:
    """Every other order of the reference's axes, where they are not too many to try."""
    count = case.r.ndim
    if count <= _MOST_AXES:
        yield from itertools.islice(itertools.permutations(range(count)), 1, None)


def _axes(case: Case) -> Cause | None:
    for order in _orders(case):
        turned = case.c.transpose(order)
        text = f"equals the reference once its axes are permuted by {order}"
        if found := case.cause("transposed", text, turned):
            return found
    return None


def _reread(case: Case) -> Cause | None:
    """The bytes of a permuted array, read under the shape of the other."""
    shape = case.r.shape
    for order in _orders(case):
        stored = tuple(shape[n] for n in order)
        back = case.c.reshape(stored).transpose(np.argsort(order))
        text = f"its values are laid out as {list(stored)}: axes permuted by {order}, shape kept"
        if found := case.cause("reinterpreted", text, back):
            return found
    return None


def _reversed(case: Case) -> Cause | None:
    for axis in range(case.r.ndim):
        if case.r.shape[axis] > 1 and (axis or case.whole):
            text = f"axis {axis} runs backwards"
            if found := case.cause("reversed", text, np.flip(case.c, axis)):
                return found
    return None


def _rolled(case: Case) -> Cause | None:
    for axis, n in enumerate(case.r.shape):
        for by in (1, -1, 2, -2):
            if n > 2:
                text = f"rolled by {by} along axis {axis}"
                if found := case.cause("shifted", text, np.roll(case.c, -by, axis)):
                    return found
    return None


def shifted(case: Case) -> Cause | None:
    """Return a shift along one axis, whose entries at the end came from elsewhere."""
    return _shifted(case)


def _shifted(case: Case) -> Cause | None:
    for margin in _MARGINS:
        for axis, n in enumerate(case.r.shape):
            for by in _lags(case, axis) if n >= _LEAST_SHIFTED else ():
                if margin and n < _ENDS * (abs(by) + 2 * margin):
                    continue
                if found := _shift(case, axis, by, margin):
                    return found
    return None


def _lags(case: Case, axis: int) -> list[int]:
    """Shifts worth a try: by one, and where the two correlate best."""
    n = case.r.shape[axis]
    found = [1, -1]
    if case.r.size <= _MOST_CORRELATED:
        spectra = [
            np.fft.rfft(v - v.mean(axis=axis, keepdims=True), 2 * n, axis) for v in (case.r, case.c)
        ]
        product = np.moveaxis(np.conj(spectra[0]) * spectra[1], axis, -1).reshape(-1, n + 1)
        best = int(np.argmax(np.fft.irfft(product.sum(axis=0), 2 * n)))
        best -= 2 * n if best >= n else 0
        if best and abs(best) <= n // 2 and best not in found:
            found.append(best)
    return found


def _shift(case: Case, axis: int, by: int, margin: int) -> Cause | None:
    n = case.r.shape[axis]
    ahead = _slice(axis, abs(by) + margin, n - margin)
    behind = _slice(axis, margin, n - abs(by) - margin)
    mine, theirs = (ahead, behind) if by > 0 else (behind, ahead)
    text = f"shifted by {by} along axis {axis} (entry n holds entry n - {by})"
    text = text.replace("- -", "+ ") + (f", but for {margin} at either end" if margin else "")
    if margin and not np.any(np.abs(case.c - case.r)[mine] > case.limit.max_abs):
        return None
    return case.cause("shifted", text, case.c[mine], case.r[theirs])


def _slice(axis: int, start: int | None, stop: int | None) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(start, stop))


def _regrouped(case: Case) -> Cause | None:
    """An axis of n = g m entries read as (g, m) on one side and as (m, g) on the other."""
    for axis, n in enumerate(case.r.shape):
        for groups in _factors(n):
            back = _turned(case.c, axis, groups)
            each = n // groups
            text = (
                f"axis {axis} ({n}) is interleaved otherwise: undone by reading it as "
                f"({groups}, {each}) and exchanging the two"
            )
            if 2 in (groups, each):
                text += " (interleaved pairs against halves, as in rotary embeddings)"
            else:
                text += " (heads and their dimension exchanged)"
            if found := case.cause("interleaved", text, back):
                return found
    return None


def _factors(n: int) -> list[int]:
    found = [k for k in range(2, min(n, 4096)) if n % k == 0]
    return sorted(found, key=lambda k: (min(k, n // k), k))[:_MOST_FACTORS]


def _turned(x: Any, axis: int, groups: int) -> Any:
    shape = x.shape
    split = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    return x.reshape(split).swapaxes(axis, axis + 1).reshape(shape)


def _slices(case: Case) -> Cause | None:
    """The slices along one axis, in another order: channels or heads."""
    for axis, n in enumerate(case.r.shape):
        if not 2 <= n <= _MOST_SLICES:
            continue
        order = _matched(case, axis)
        if np.unique(order).size < n:
            continue
        text = f"the slices along axis {axis} come in another order: {listed(order, 12)}"
        text += _in_parts(order)
        if found := case.cause("slices permuted", text, np.take(case.c, order, axis)):
            return found
    return None


def _in_parts(order: Any) -> str:
    """What parts of equal length are exchanged: a recurrent cell's gates, or queries and keys."""
    for parts in (4, 3):
        each, rest = divmod(order.size, parts)
        if rest or each < 2:
            continue
        blocks = order.reshape(parts, each)
        firsts = tuple(int(n) // each for n in blocks[:, 0])
        if np.array_equal(blocks, each * np.array(firsts)[:, None] + np.arange(each)):
            known = GATE_ORDERS.get(firsts)
            return f", in {parts} parts as {firsts}" + (f" (gates {known})" if known else "")
    return ""


def _matched(case: Case, axis: int) -> Any:
    """For each slice of the reference the candidate's nearest, where it is not in its place
    already; of many, the one of equal rank under one projection.
    """
    r = np.moveaxis(case.r, axis, 0).reshape(case.r.shape[axis], -1)
    c = np.moveaxis(case.c, axis, 0).reshape(r.shape)
    if r.shape[0] <= _FEW_SLICES:
        order = np.arange(r.shape[0])
        off = np.flatnonzero(~(np.abs(c - r).max(axis=1) <= case.limit.max_abs))
        mine, theirs = c[off], r[off]
        nearest = np.argmin(np.sum(mine**2, axis=1) - 2 * (theirs @ mine.T), axis=1)
        order[off] = off[nearest]
        return order
    weights = np.random.default_rng(r.shape[1]).normal(size=r.shape[1])
    order = np.empty(r.shape[0], np.int64)
    order[np.argsort(r @ weights)] = np.argsort(c @ weights)
    return order


def reshaped(case: Case) -> Cause | None:
    """Return what would make two tensors of different shapes equal."""
    if not case.whole:
        return None
    if case.r.size == case.c.size and case.r.size:
        for text, back in _same_size(case):
            if found := case.cause("wrong shape", text, back):
                return found
        order = np.sort(case.c, axis=None), np.sort(case.r, axis=None)
        return case.cause("wrong shape", "the same values in another order", *order)
    return _lengths(case) or _repeated(case)


def _same_size(case: Case) -> Iterator[tuple[str, Any]]:
    r, c = case.r, case.c
    yield f"equal once reshaped to {list(r.shape)}", c.reshape(r.shape)
    if c.ndim == r.ndim <= _MOST_AXES:
        for order in itertools.permutations(range(c.ndim)):
            if tuple(c.shape[n] for n in order) == r.shape:
                yield f"equal once its axes are permuted by {order}", c.transpose(order)
    for split, name in ((r.shape, "reference"), (c.shape, "candidate")):
        if len(split) > _MOST_AXES:
            continue
        for order in itertools.permutations(range(len(split))):
            if name == "candidate":
                back = c.transpose(order).reshape(r.shape)
                yield f"equal once permuted by {order} and reshaped to {list(r.shape)}", back
            else:
                inverse = tuple(split[n] for n in order)
                back = c.reshape(inverse).transpose(np.argsort(order))
                text = f"equal once reshaped to {list(inverse)} and permuted to {list(split)}"
                yield text, back


def _lengths(case: Case) -> Cause | None:
    """One axis is longer on one side: the rest agrees, from the start or moved."""
    r, c = case.r, case.c
    if r.ndim != c.ndim:
        return None
    off = [n for n in range(r.ndim) if r.shape[n] != c.shape[n]]
    if len(off) != 1:
        return None
    (axis,) = off
    common = min(r.shape[axis], c.shape[axis])
    over = abs(r.shape[axis] - c.shape[axis])
    for lead in dict.fromkeys((0, over, *range(1, min(over, 4)))):
        mine, theirs = (0, lead) if r.shape[axis] > c.shape[axis] else (lead, 0)
        a = c[_slice(axis, mine, mine + common)]
        b = r[_slice(axis, theirs, theirs + common)]
        longer = "reference" if r.shape[axis] > c.shape[axis] else "candidate"
        text = f"axis {axis} is {over} longer on the {longer}; the overlap agrees from entry {lead}"
        if common and (found := case.cause("length", text, a, b)):
            return found
    return None


def _repeated(case: Case) -> Cause | None:
    for small, large, who in ((case.r, case.c, "candidate"), (case.c, case.r, "reference")):
        try:
            spread = np.broadcast_to(small, large.shape)
        except ValueError:
            continue
        text = f"the {who} is the other one broadcast from {list(small.shape)}"
        mine, theirs = (large, spread) if who == "candidate" else (spread, large)
        if math.prod(large.shape) and (found := case.cause("broadcast", text, mine, theirs)):
            return found
    return None
