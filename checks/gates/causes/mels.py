"""Another mel filter bank, told by the spectrum before it: a tensor of the reference.

Mel scales: O'Shaughnessy, 1987, 2595 log10(1 + f / 700) ("htk"); Slaney, 1998, linear to 1 kHz.
"""

import itertools
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from autodiff.ops import mel_weights
from checks.gates.causes.case import Case, lowest, rms
from checks.gates.comparison.record import Cause, TensorRow
from checks.gates.formats.readers import Side
from checks.tolerances import constant

_RATES = (16000, 22050, 24000, 44100, 48000, 32000, 8000)
_NEAREST, _FRAMES = 4, 256
_LEAST = 64  # entries above the floor of a logarithm


@dataclass(frozen=True, slots=True)
class _Bank:
    """A bank of triangles on a mel scale; high is 0 for half the rate."""

    rate: int
    low: float = 0.0
    high: float = 0.0
    scale: str = "slaney"
    area: bool = True

    def __str__(self) -> str:
        high = self.high or self.rate / 2
        area = "of one area" if self.area else "of one height"
        return f"{self.scale} scale, {self.low:g} to {high:g} Hz at {self.rate:,} Hz, {area}"

    def mels(self, spectrum: Any, count: int) -> Any:
        """The energies (..., count) of a spectrum (..., bins)."""
        top = self.high or self.rate / 2
        points = 2 * (spectrum.shape[-1] - 1)
        weights = mel_weights(
            count, points, self.rate, self.low, top, scale=self.scale, area=self.area
        )
        return spectrum @ weights.T


def filtered(case: Case, row: TensorRow, left: Side) -> Cause | None:
    """Return which filter bank the candidate has where the reference has another.

    The reference must be the mel energies of one of its tensors before it, or their logarithm times
    a factor and plus an offset, above a floor; the candidate is then computed from the same
    spectrum, with a bank that differs in one thing.
    """
    if not case.whole or case.r.ndim < 2 or case.r.shape != case.c.shape:
        return None
    for spectrum in _spectra(row, left):
        for axis in (-1, -2):
            r, c = (np.moveaxis(v, axis, -1) for v in (case.r, case.c))
            frames = min(r.shape[-2], _FRAMES)
            if _fits(r, spectrum):
                r, c, x = (v[..., :frames, :] for v in (r, c, spectrum))
                if found := _of(Case(r, c, case.limit), x):
                    return found
    return None


def _spectra(row: TensorRow, left: Side) -> Iterator[Any]:
    """Tensors in front of a row, the nearest first, that may hold power by frequency."""
    names = list(left.tensors)
    before = names[: names.index(row.name)][::-1]
    for name in before[:_NEAREST]:
        stored = left.tensors[name]
        if stored.tensor.size and len(stored.tensor.shape) > 1 and stored.tensor.shape[-1] > 2:
            values = stored.load()
            if values.dtype.kind in "fV" and not np.any(values < 0):
                yield values.astype(np.float64)


def _fits(mels: Any, spectrum: Any) -> bool:
    """Whether a spectrum has the same frames, or one that is dropped, and more bins."""
    ours, theirs = mels.shape, spectrum.shape
    return (
        len(ours) == len(theirs)
        and ours[:-2] == theirs[:-2]
        and 0 <= theirs[-2] - ours[-2] <= 1
        and theirs[-1] > ours[-1]
    )


def _of(case: Case, spectrum: Any) -> Cause | None:
    noise = constant("gate_undone_better") * rms(case.c - case.r)
    count = case.r.shape[-1]
    for bank, log in itertools.product(_banks(), (False, True)):
        fit = _fitted(case, bank.mels(spectrum, count), log, noise)
        if fit is None:
            continue
        for other in _others(bank):
            made = fit(other.mels(spectrum, count))
            seen = np.isfinite(made) & (case.r > lowest(case.r)) & (case.c > lowest(case.c))
            seen = seen if log else np.isfinite(made)
            small = Case(case.r[seen], case.c[seen], case.limit)
            text = f"another mel filter bank: {other}, where the reference has {bank}"
            found = small.cause("mel filters", text, small.c, made[seen])
            if found and np.count_nonzero(seen) >= _LEAST:
                return found
    return None


def _fitted(case: Case, energies: Any, log: bool, noise: float) -> Any:
    """The function of energies that gives the reference, to within a tenth of the error."""
    with np.errstate(all="ignore"):
        x = np.log(energies) if log else energies
    seen = np.isfinite(x) & ((case.r > lowest(case.r)) if log else True)
    if np.count_nonzero(seen) < _LEAST:
        return None
    a, b = x[seen], case.r[seen]
    shift = (float(a.mean()), float(b.mean())) if log else (0.0, 0.0)
    a, b = a - shift[0], b - shift[1]
    size = float(np.dot(a, a))
    factor = float(np.dot(a, b)) / size if size else 0.0
    if factor <= 0 or rms(factor * a - b) > noise:
        return None

    def made(other: Any) -> Any:
        with np.errstate(all="ignore"):
            y = np.log(other) if log else other
        return factor * (y - shift[0]) + shift[1]

    return made


def _banks() -> Iterator[_Bank]:
    for rate, scale, area in itertools.product(_RATES, ("slaney", "htk"), (True, False)):
        for low, high in ((0.0, 0.0), (0.0, 8000.0), (20.0, 0.0)):
            if high < rate / 2:
                yield _Bank(rate, low, high, scale, area)


def _others(bank: _Bank) -> Iterator[_Bank]:
    """Banks that differ in one thing."""
    yield replace(bank, scale="htk" if bank.scale == "slaney" else "slaney")
    yield replace(bank, area=not bank.area)
    yield from (b for b in _banks() if sum(_differ(b, bank)) == 1 and b.rate == bank.rate)
    yield from (replace(bank, rate=n, high=0.0) for n in _RATES if n != bank.rate)


def _differ(a: _Bank, b: _Bank) -> list[bool]:
    return [x != y for x, y in zip(astuple(a), astuple(b), strict=True)]
