"""Which tensors of two sides are one: by values, by statistics, by shape alone."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from checks.gates.causes.case import figure, rms
from checks.gates.formats.manifest import Statistics
from checks.gates.formats.readers import Side
from checks.gates.formats.statistics import Doubles, statistics
from checks.gates.formats.stored import Stored
from checks.tolerances import constant

VALUES, STATISTICS, ALONE = GRADES = ("sure", "likely", "weak")
_SAMPLE, _LEAST, _MOST_AXES = 1 << 12, 8, 5  # fewer entries may agree by chance
_FIGURES = ("min", "max", "mean", "rms", "p99_abs")


@dataclass(frozen=True, slots=True)
class Fit:
    """Two tensors that may be one.

    Arguments:
        reference, candidate: their names.
        transpose: the order of the candidate's axes that gives the reference's shape; () as is.
        grade: sure (values agree), likely (statistics agree), weak (shape and dtype alone).
        distance: relative rms of the difference, or of the statistics'.
        grounds: the same in words.
    """

    reference: str
    candidate: str
    transpose: tuple[int, ...]
    grade: str
    distance: float
    grounds: str

    @property
    def rank(self) -> tuple[int, float]:
        """Smaller is better."""
        return GRADES.index(self.grade), self.distance

    def clearly_before(self, other: "Fit") -> bool:
        """Whether it is so much better than another that chance does not decide."""
        if self.grade != other.grade:
            return self.rank < other.rank
        return other.distance > constant("gate_suggest_better") * self.distance


@dataclass(frozen=True, slots=True)
class Known:
    """What is looked at of one tensor: its first call."""

    name: str
    stored: Stored
    calls: int
    figures: Statistics

    @property
    def kind(self) -> str:
        """Bool, int, float or complex; another width is another precision, another kind is not."""
        name = self.stored.tensor.dtype.lstrip("u").rstrip("0123456789")
        return "float" if "float" in name else name

    @property
    def label(self) -> str:
        """Dtype and shape, for messages."""
        return f"{self.stored.tensor.dtype} {list(self.stored.tensor.shape)}"


def known(side: Side, names: Sequence[str]) -> list[Known]:
    """Return what is known of some tensors of a side; their values are read once."""
    found = []
    for name in names:
        keys = side.calls(name)
        stored = side.tensors[keys[0]]
        found.append(Known(name, stored, len(keys), statistics(stored.chunks())))
    return found


def fits(left: Sequence[Known], right: Sequence[Known]) -> list[Fit]:
    """Return every pair of a reference and a candidate tensor that may be one."""
    samples = _Samples()
    found = []
    for c in right:
        alike = [r for r in left if _alike(r, c)]
        for r in alike:
            if fit := _fit(r, c, samples):
                found.append(fit)
        samples.forget(c.name)
    return found + _alone(left, right, {f.reference for f in found})


def orders(candidate: tuple[int, ...], reference: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the orders of a candidate's axes that give the reference's shape, none first."""
    axes = tuple(range(len(candidate)))
    if len(axes) > _MOST_AXES:
        every = [axes, (*axes[:-2], axes[-1], axes[-2]), axes[::-1]]
    else:
        every = list(itertools.permutations(axes))
    wide: dict[tuple[int, ...], tuple[int, ...]] = {}
    for order in every:
        if tuple(candidate[n] for n in order) == reference:
            wide.setdefault(tuple(n for n in order if candidate[n] > 1), order)
    return list(wide.values())


def _alike(r: Known, c: Known) -> bool:
    shapes = [sorted(k.stored.tensor.shape) for k in (r, c)]
    return r.kind == c.kind and r.calls == c.calls and shapes[0] == shapes[1]


class _Samples:
    """A few thousand entries of each tensor, at the same places of both sides."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str, tuple[int, ...]], Doubles] = {}
        self._whole: dict[str, Any] = {}

    def of(self, side: str, known: Known, order: tuple[int, ...]) -> Doubles:
        """Return entries of a tensor, its axes in an order."""
        key = (side, known.name, order)
        if key not in self._of:
            if known.name not in self._whole or side == "reference":
                self._whole[known.name] = known.stored.load()
            self._of[key] = _sampled(self._whole[known.name].transpose(order))
            if side == "reference":
                del self._whole[known.name]
        return self._of[key]

    def forget(self, name: str) -> None:
        """Leave a candidate's values, which are not looked at again."""
        self._whole.pop(name, None)
        self._of = {k: v for k, v in self._of.items() if k[:2] != ("candidate", name)}


def _sampled(array: Any) -> Doubles:
    places = np.arange(array.size)
    if array.size > _SAMPLE:
        places = np.random.default_rng(0).integers(0, array.size, _SAMPLE)
    picked = array[np.unravel_index(places, array.shape)] if array.ndim else array.reshape(1)
    if picked.dtype.kind == "c":
        picked = np.concatenate([picked.real, picked.imag])
    with np.errstate(all="ignore"):
        doubled: Doubles = picked.astype(np.float64)
    return doubled


def _fit(r: Known, c: Known, samples: _Samples) -> Fit | None:
    possible = orders(c.stored.tensor.shape, r.stored.tensor.shape)
    apart = _apart(r.figures, c.figures)
    if not possible or apart > constant("gate_suggest_statistics"):
        return None
    same = tuple(range(len(r.stored.tensor.shape)))
    values = samples.of("reference", r, same)
    measured = [(_relative(values, samples.of("candidate", c, order)), order) for order in possible]
    miss, order = min(measured, key=lambda m: m[0])
    plain = () if order == same else order
    if miss <= constant("gate_suggest_values") and values.size >= _LEAST:
        grounds = f"values agree, relative rms {figure(miss)}"
        return Fit(r.name, c.name, plain, VALUES, miss, grounds)
    grounds = f"statistics agree to {figure(apart)} of the rms"
    if len(possible) > 1:
        grounds += ", which order of the axes is open"
    plain = () if possible[0] == same else possible[0]
    return Fit(r.name, c.name, plain, STATISTICS, apart, grounds)


def _apart(a: Statistics, b: Statistics) -> float:
    """The largest difference of two figures, of the reference's rms."""
    if a.nonfinite != b.nonfinite:
        return math.inf
    pairs = [(getattr(a, n), getattr(b, n)) for n in _FIGURES]
    if any(x is None or y is None for x, y in pairs):
        return 0.0 if pairs[0] == (None, None) else math.inf
    most = max(abs(x - y) for x, y in pairs)
    return most / a.rms if a.rms else (math.inf if most else 0.0)


def _relative(r: Doubles, c: Doubles) -> float:
    good = np.isfinite(r) & np.isfinite(c)
    if not good.any():
        return math.inf
    size, error = rms(r[good]), rms(c[good] - r[good])
    return error / size if size else (math.inf if error else 0.0)


def _alone(left: Sequence[Known], right: Sequence[Known], paired: set[str]) -> list[Fit]:
    """Pairs of one shape and dtype, of references that nothing fits better: guesses."""
    found = []
    for r in (r for r in left if r.name not in paired):
        for c in (c for c in right if _alike(r, c)):
            possible = orders(c.stored.tensor.shape, r.stored.tensor.shape)
            if possible:
                plain = () if possible[0] == tuple(range(len(possible[0]))) else possible[0]
                grounds = f"shape and dtype alone, {r.label}; the values differ"
                found.append(Fit(r.name, c.name, plain, ALONE, 1.0, grounds))
    return found
