"""Another mel filter bank, told by the spectrum before it: a tensor of the reference.

Mel scales: O'Shaughnessy, 1987, 2595 log10(1 + f / 700) ("htk"); Slaney, 1998, linear to 1 kHz.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
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
_KEPT = 128  # banks of one or two sizes: a megabyte each at most
LEAST = 64  # entries above the floor of a logarithm


@dataclass(frozen=True, slots=True)
class Bank:
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
        return spectrum @ self.weights(count, spectrum.shape[-1]).T

    def weights(self, count: int, bins: int) -> Any:
        """The triangles (count, bins)."""
        return _weights(self, count, bins)


@functools.lru_cache(maxsize=_KEPT)
def _weights(bank: Bank, count: int, bins: int) -> Any:
    top, points = bank.high or bank.rate / 2, 2 * (bins - 1)
    return mel_weights(count, points, bank.rate, bank.low, top, scale=bank.scale, area=bank.area)


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
            if fits(r.shape, spectrum.shape):
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


def fits(mel: tuple[int, ...], spectrum: tuple[int, ...]) -> bool:
    """Return whether a shape (..., frames, bins) may be the spectrum of one (..., frames, mels): it
    has the same frames, or one that is dropped, and more bins.
    """
    return (
        len(mel) == len(spectrum) > 1
        and mel[:-2] == spectrum[:-2]
        and 0 <= spectrum[-2] - mel[-2] <= 1
        and spectrum[-1] > mel[-1]
    )


def _of(case: Case, spectrum: Any) -> Cause | None:
    noise = constant("gate_undone_better") * rms(case.c - case.r)
    count = case.r.shape[-1]
    for bank, log in itertools.product(banks(), (False, True)):
        known = fitted(case, bank.mels(spectrum, count), log, noise)
        if known is None:
            continue
        for other in other_banks(bank):
            made = known(other.mels(spectrum, count))
            seen = np.isfinite(made) & (case.r > lowest(case.r)) & (case.c > lowest(case.c))
            seen = seen if log else np.isfinite(made)
            small = Case(case.r[seen], case.c[seen], case.limit)
            text = f"another mel filter bank: {other}, where the reference has {bank}"
            found = small.cause("mel filters", text, small.c, made[seen])
            if found and np.count_nonzero(seen) >= LEAST:
                return found
    return None


def fitted(case: Case, energies: Any, log: bool, noise: float) -> Any:
    """Return the function of energies that gives the reference, to within a noise; else None."""
    left, made = fit(case, energies, log)
    return made if left <= noise else None


def fit(case: Case, energies: Any, log: bool) -> tuple[float, Callable[[Any], Any]]:
    """Return what is left (rms; inf where there is no fit) and the function of energies, or of
    their logarithm, that is nearest to the reference above its floor.
    """
    with np.errstate(all="ignore"):
        x = np.log(energies) if log else energies
    seen = np.isfinite(x) & ((case.r > lowest(case.r)) if log else True)
    if np.count_nonzero(seen) < LEAST:
        return math.inf, lambda other: other
    a, b = x[seen], case.r[seen]
    shift = (float(a.mean()), float(b.mean())) if log else (0.0, 0.0)
    a, b = a - shift[0], b - shift[1]
    size = float(np.dot(a, a))
    factor = float(np.dot(a, b)) / size if size else 0.0

    def made(other: Any) -> Any:
        with np.errstate(all="ignore"):
            y = np.log(other) if log else other
        return factor * (y - shift[0]) + shift[1]

    return (rms(factor * a - b) if factor > 0 else math.inf), made


def banks() -> Iterator[Bank]:
    """Yield the banks that are in use."""
    for rate, scale, area in itertools.product(_RATES, ("slaney", "htk"), (True, False)):
        for low, high in ((0.0, 0.0), (0.0, 8000.0), (20.0, 0.0)):
            if high < rate / 2:
                yield Bank(rate, low, high, scale, area)


def other_banks(bank: Bank) -> Iterator[Bank]:
    """Yield banks that differ in one thing."""
    yield replace(bank, scale="htk" if bank.scale == "slaney" else "slaney")
    yield replace(bank, area=not bank.area)
    other = "htk" if bank.scale == "slaney" else "slaney"
    yield replace(bank, scale=other, area=not bank.area)  # the defaults of two common libraries
    yield from (b for b in banks() if sum(_differ(b, bank)) == 1 and b.rate == bank.rate)
    yield from (replace(bank, rate=n, high=0.0) for n in _RATES if n != bank.rate)


def _differ(a: Bank, b: Bank) -> list[bool]:
    return [x != y for x, y in zip(astuple(a), astuple(b), strict=True)]
