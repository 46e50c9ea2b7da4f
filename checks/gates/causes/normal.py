"""A normalisation of another kind, told by its input: another tensor of the reference."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from checks.gates.causes.case import Case, rms
from checks.gates.comparison.record import Cause
from checks.tolerances import constant

_LEAST, _MOST = 5, 1 << 18  # rows that tell a weight and an offset for each column; entries
_NEAREST = 8
_AS_GOOD = 2  # times what is left of the error by the best epsilon
_FEW_ROWS = 8  # one of so many tells an epsilon
# In the order of how common they are; 0 is none.
_EPSILONS = (*(10.0**-n for n in (5, 6, 12, 8, 7, 4, 3, 2)), 0.0)
Rows = Callable[[Any, float], Any]


def _layer(x: Any, eps: float) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)


def _root(x: Any, eps: float) -> Any:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)


def _unbiased(x: Any, eps: float) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    squares = (centred**2).sum(axis=-1, keepdims=True) / (x.shape[-1] - 1)
    return centred / np.sqrt(squares + eps)


def _outside(x: Any, eps: float) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / (np.sqrt((centred**2).mean(axis=-1, keepdims=True)) + eps)


def _root_outside(x: Any, eps: float) -> Any:
    return x / (np.sqrt((x**2).mean(axis=-1, keepdims=True)) + eps)


_KINDS: dict[str, Rows] = {
    "layer norm": _layer,
    "RMS norm": _root,
    "layer norm of the unbiased variance": _unbiased,
    "layer norm, epsilon outside the root,": _outside,
    "RMS norm, epsilon outside the root,": _root_outside,
}
_COMMON = ("layer norm", "RMS norm")


def normalised(
    case: Case, others: Iterator[tuple[str, Any]], *, left_out: bool = True
) -> Cause | None:
    """Return which normalisation of which tensor the candidate is, where the reference is another.

    The reference must be a known one of that tensor, times a weight and plus an offset for each
    column; the candidate must be the other one with the same weight and offset, or without it.
    With `left_out`, one side may instead be a normalisation of the other.
    """
    if case.r.ndim < 2 or case.r.shape[-1] < _LEAST or not _LEAST * case.r.shape[-1] <= case.r.size:
        return None
    r, c = (
        v.reshape(-1, v.shape[-1])[: max(_LEAST, _MOST // v.shape[-1])] for v in (case.r, case.c)
    )
    e = np.abs(c - r)
    if case.limit.passes(float(e.max()), float(e.mean())):
        return None
    small = Case(r, c, case.limit)
    if left_out and (found := _left_out(small)):
        return found
    for name, other in itertools.islice(others, _NEAREST):
        x = other.reshape(-1, other.shape[-1])[: r.shape[0]]
        if found := _of(small, x, name):
            return found
    return None


def _left_out(case: Case) -> Cause | None:
    """One side is a normalisation of the other, with a weight and an offset for each column."""
    missing = "the candidate is not normalised: the reference is its {} with epsilon {:g}"
    twice = "the candidate is the {} with epsilon {:g} of the reference, which is not normalised"
    for text, x, y in ((missing, case.c, case.r), (twice, case.r, case.c)):
        for kind in _COMMON:
            made = [(rms(_fitted(y, x, kind, eps)[0] - y), eps) for eps in _EPSILONS[:3]]
            eps = min(made)[1]
            model, weight, _ = _fitted(y, x, kind, eps)
            said = text.format(kind, eps)
            if np.any(weight) and (found := case.cause("normalisation", said, model, y)):
                return found
    return None


def _of(case: Case, x: Any, name: str) -> Cause | None:
    noise = constant("gate_undone_better") * rms(case.c - case.r)
    for kind in _COMMON:
        if 2 * rms(_fitted(case.r, x, kind, _EPSILONS[1])[0] - case.r) > rms(case.r):
            continue  # a tensor that has nothing to do with it
        best = min((rms(_fitted(case.r, x, kind, e)[0] - case.r), e) for e in _EPSILONS[:3])
        if not best[0] <= noise:
            continue
        told, weight, offset = _fitted(case.r, x, kind, best[1])
        del told
        asked = _epsilon(case.c, x, kind, weight, offset)
        for other, rows in _KINDS.items():
            own = [float(f"{asked:.{n}e}") for n in (0, 1)] if other == kind else []
            seen: list[Cause] = []
            for eps in dict.fromkeys((*_EPSILONS, *own)):
                if (other, eps) == (kind, best[1]):
                    continue
                for shift, words in ((offset, ""), (0.0, " and no offset")):
                    text = f"the candidate is the {other} of {name} with epsilon {eps:g}{words}, "
                    text += f"the reference its {kind} with epsilon {best[1]:g}"
                    model = rows(x, eps) * weight + shift
                    if found := case.cause("normalisation", text, case.c, model):
                        seen.append(found)
            if seen:  # the first of those that are as good: a common one
                least = min(s.left for s in seen)
                return next(s for s in seen if s.left <= _AS_GOOD * least)
    return None


def _fitted(y: Any, x: Any, kind: str, eps: float) -> tuple[Any, Any, Any]:
    """y as weight x normalised + offset for each column, by least squares."""
    rows = _KINDS[kind](x, eps)
    centred = rows - rows.mean(axis=0)
    size = (centred**2).sum(axis=0)
    weight = np.divide((centred * y).sum(axis=0), size, out=np.zeros_like(size), where=size > 0)
    offset = y.mean(axis=0) - weight * rows.mean(axis=0)
    return rows * weight + offset, weight, offset


def _epsilon(c: Any, x: Any, kind: str, weight: Any, offset: Any) -> float:
    """The epsilon that the rows of least variance ask for; 0.0 where none does.

    c - offset = weight centred / sqrt(variance + epsilon) in each row.
    """
    centred = x - x.mean(axis=-1, keepdims=True) if kind == "layer norm" else x
    variance = (centred**2).mean(axis=-1)
    rows = centred * weight
    size = ((c - offset) * rows).sum(axis=-1)
    with np.errstate(all="ignore"):
        asked = ((rows**2).sum(axis=-1) / size) ** 2 - variance
    least = np.argsort(variance)[: max(1, variance.size // _FEW_ROWS)]
    found = float(np.median(asked[least]))
    return found if np.isfinite(found) and found > 0 else 0.0
