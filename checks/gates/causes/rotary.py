"""Rotary embeddings of another kind: other pairs, base, positions, or a bias before the turn.

A rotation keeps the length of every head's vector, so that what turns vectors otherwise can be told
from all else before any rotation is tried; each guess is then undone in full. Su et al., 2021,
equation 34; pairs are (i, i + n / 2), "halves", or (2 i, 2 i + 1), "pairs".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from checks.gates.causes.case import Case, figure, rms
from checks.gates.comparison.record import Cause
from checks.tolerances import constant

BASES = (10000.0, 500000.0, 1000000.0, 100000.0)
_LEAST, _LARGEST = 3, 512  # positions; width of a head
_MOST_WIDTHS = 8
_MOST = 1 << 16  # entries: of larger tensors the first positions tell


@dataclass(frozen=True, slots=True)
class Turn:
    """One way to turn vectors by their positions.

    Arguments:
        interleaved: pairs for halves.
        base: of the angles; 0 for none.
        first: position of the first entry.
        share: of the vector that is turned: 1, or 2 for its first half.
        back: turned the other way.
    """

    interleaved: bool
    base: float
    first: int = 0
    share: int = 1
    back: bool = False

    def __call__(self, x: Any, *, undo: bool = False) -> Any:
        """Turn x (..., positions, n), or turn it back."""
        n = x.shape[-1] // self.share
        if not self.base or n % 2:
            return x
        at = np.arange(self.first, self.first + x.shape[-2])[:, None]
        angle = at * self.base ** (-2 * np.arange(n // 2) / n)
        sine = np.sin(angle) * (-1 if undo != self.back else 1)
        a, b = _halves(x[..., :n], self.interleaved)
        turned = a * np.cos(angle) - b * sine, b * np.cos(angle) + a * sine
        return np.concatenate([_joined(*turned, self.interleaved), x[..., n:]], axis=-1)

    def __str__(self) -> str:
        if not self.base:
            return "does not turn them"
        kind = "pairs (2 i, 2 i + 1)" if self.interleaved else "halves (i, i + n / 2)"
        text = f"turns {kind} with base {figure(self.base)}, positions from {self.first}"
        text += ", of the first half alone" if self.share > 1 else ""
        return text + (", backwards" if self.back else "")


def _halves(x: Any, interleaved: bool) -> tuple[Any, Any]:
    n = x.shape[-1]
    return (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., : n // 2], x[..., n // 2 :])


def _joined(a: Any, b: Any, interleaved: bool) -> Any:
    if interleaved:
        return np.stack([a, b], axis=-1).reshape(*a.shape[:-1], -1)
    return np.concatenate([a, b], axis=-1)


def turned(case: Case) -> Cause | None:
    """Return how the candidate turns vectors otherwise than the reference."""
    for r, c in _views(case):
        sizes = [np.sqrt(np.sum(v**2, axis=-1)) for v in (r, c)]
        error = rms(c - r)
        if rms(sizes[1] - sizes[0]) <= constant("gate_undone_better") * error:
            found = _otherwise(case, r, c)
        else:
            found = _biased(case, r, c)
        if found:
            return found
    return None


def _views(case: Case) -> Iterator[tuple[Any, Any]]:
    """Both sides as (others, positions, head), for every axis that may be positions or hold heads.

    An axis of one head alone cannot be told from one of several: each even part is tried.
    """
    shape = case.r.shape
    if len(shape) < 2 or not case.whole:
        return
    for axis in range(len(shape) - 1):
        count = shape[axis]
        if count < _LEAST:
            continue
        kept = max(_LEAST, min(count, _MOST * count // max(case.r.size, 1)))
        moved = [np.moveaxis(v, axis, -2)[..., :kept, :] for v in (case.r, case.c)]
        for width in widths(shape[-1]):
            yield tuple(  # type: ignore[misc]
                np.moveaxis(v.reshape(-1, kept, shape[-1] // width, width), 1, 2) for v in moved
            )


def widths(n: int) -> list[int]:
    """Return the even divisors: the widths that a head may have."""
    fits = [w for w in range(min(n, _LARGEST), 3, -1) if n % w == 0 and w % 2 == 0]
    return fits[:_MOST_WIDTHS]


def _otherwise(case: Case, r: Any, c: Any) -> Cause | None:
    small = Case(r, c, case.limit)
    for ours in _references():
        flat = ours(r, undo=True)
        for theirs in _candidates(ours):
            back = ours(theirs(c, undo=True))
            text = f"the candidate {theirs}, where the reference {ours}"
            if found := small.cause("rotary", text, back):
                return found
        for name, order in _orders(r.shape[-1]):
            text = f"its weights are laid out for {name}: the reference {ours}"
            if found := small.cause("rotary", text, c, ours(flat[..., order])):
                return found
    return None


def _references() -> Iterator[Turn]:
    for base in BASES:
        for interleaved in (False, True):
            yield Turn(interleaved, base)


def _candidates(ours: Turn) -> Iterator[Turn]:
    """Ways that differ from the reference's in one thing."""
    yield Turn(not ours.interleaved, ours.base)
    yield Turn(ours.interleaved, 0.0)
    for base in BASES:
        if base != ours.base:
            yield Turn(ours.interleaved, base)
    for first in (1, -1, 2, -2):
        yield Turn(ours.interleaved, ours.base, first)
    yield Turn(ours.interleaved, ours.base, share=2)
    yield Turn(ours.interleaved, ours.base, back=True)


def _orders(n: int) -> list[tuple[str, Any]]:
    """Places of a head's entries as pairs and as halves, one read as the other."""
    pairs = np.arange(n).reshape(2, -1).T.reshape(-1)
    return [("pairs", np.argsort(pairs)), ("halves", pairs)]


def _biased(case: Case, r: Any, c: Any) -> Cause | None:
    """A constant added before the turn: the difference, turned back, is one at every position."""
    if r.shape[-2] < _LEAST + 1:
        return None
    length = np.sqrt(np.sum((c - r) ** 2, axis=-1))
    if rms(length - length.mean(axis=-1, keepdims=True)) > constant("gate_undone_better") * rms(
        length
    ):
        return None  # a turn keeps its length
    small = Case(r, c, case.limit)
    for ours in _references():
        by = ours(c - r, undo=True).mean(axis=-2, keepdims=True)
        text = f"an offset for each entry of a head before the rotary embedding ({ours}), "
        text += f"from {figure(by.min())} to {figure(by.max())}: a bias"
        added = ours(np.broadcast_to(by, r.shape))
        if found := small.cause("offset per slice", text, c - added):
            return found
    return None
