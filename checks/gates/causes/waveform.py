"""What a mel front end does otherwise, told by replaying it from the waveform before it.

The reference's own front end is found first: window, hop, padding and filter bank that give the
reference's mel of the waveform, up to a factor and an offset of its logarithm. The candidate is
then computed with one of these another.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from checks.gates.causes.case import Case, lowest, rms
from checks.gates.causes.mels import LEAST, Bank, banks, fit, fits, fitted, other_banks
from checks.gates.comparison.record import Cause, TensorRow
from checks.gates.formats.readers import Side
from checks.tolerances import constant

_SHORTEST = 256  # samples
_NEAREST = 6  # tensors before the mel
_LONGEST = 1 << 22  # samples that are read
_FEW, _FRAMES = 24, 256  # frames that find the reference's front end; that a cause must explain
_CLOSEST, _OF_PADDED = 3, 2  # fronts that are looked at closer; hops of a waveform padded before
_LOUD = 0.3  # correlation of a mel with the loudness of its frames, at least
_CORRELATED = 3  # frames, at least
_HITS = 2  # fronts that give the reference: others are the same under another name
# Points of the transform, and of the window inside it, centred.
_POINTS = (
    *((400, 400), (512, 400), (512, 512), (1024, 1024), (2048, 2048), (512, 320), (320, 320)),
    *((256, 256), (640, 640), (800, 800), (1024, 800), (64, 64), (128, 128)),
)
_HOPS = (160, 256, 512, 200, 128, 320, 240, 300, 80, 100, 441, 480, 64, 16, 32)
_WINDOWS: dict[str, Callable[[int], Any]] = {
    "periodic Hann": lambda n: 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / n),
    "symmetric Hann": lambda n: np.hanning(n),
    "periodic Hamming": lambda n: 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(n) / n),
    "symmetric Hamming": lambda n: np.hamming(n),
    "rectangular": lambda n: np.ones(n),
}
_OF_REFERENCES = ("periodic Hann", "symmetric Hann", "symmetric Hamming")
_PADDINGS = {"reflected": "reflect", "padded with zeros": "constant", "repeated": "edge"}
_NOT_CENTRED, _BEHIND = "not padded", "not padded but at the signal's end"
_MOST_HOPS = 8  # hops that give as many frames
_PREEMPHASIS = 0.97


@dataclass(frozen=True, slots=True)
class _Front:
    """From a waveform to the power, or the magnitude, by frequency."""

    points: int
    length: int
    hop: int
    window: str = "periodic Hann"
    ends: str = "reflected"
    power: bool = True
    emphasis: bool = False

    def spectrum(self, wave: Any, frames: int) -> Any:
        """(items, frames, bins) of (items, samples); fewer frames where the waveform ends."""
        x = wave
        if self.emphasis:
            x = np.concatenate([x[:, :1], x[:, 1:] - _PREEMPHASIS * x[:, :-1]], axis=1)
        half = self.points // 2
        x = x[:, : frames * self.hop + self.points]
        if self.ends == _BEHIND:
            x = np.pad(x, ((0, 0), (0, self.points)))
        elif self.ends != _NOT_CENTRED:
            x = np.pad(x, ((0, 0), (half, 0)), mode=_PADDINGS[self.ends])  # type: ignore[call-overload]
        if x.shape[1] < self.points:
            return np.empty((len(x), 0, self.points // 2 + 1))
        views = np.lib.stride_tricks.sliding_window_view(x, self.points, axis=1)
        before = (self.points - self.length) // 2
        window = np.zeros(self.points)
        window[before : before + self.length] = _WINDOWS[self.window](self.length)
        found = np.abs(np.fft.rfft(views[:, :: self.hop][:, :frames] * window))
        return found**2 if self.power else found

    def others(self) -> Iterator[tuple[str, "_Front"]]:
        """Yield (what is other, front) of fronts that differ in one thing."""
        for window in _WINDOWS:
            if window != self.window:
                text = f"a {window} window, where the reference has a {self.window} one"
                yield text, replace(self, window=window)
        for ends in (*_PADDINGS, _NOT_CENTRED, _BEHIND):
            if ends != self.ends:
                text = f"the signal's start is {ends}, where the reference has it {self.ends}"
                yield text, replace(self, ends=ends)
        yield "magnitudes, where the reference has powers", replace(self, power=False)
        yield f"preemphasis of {_PREEMPHASIS}", replace(self, emphasis=True)
        for points, length in _POINTS:
            if (points, length) != (self.points, self.length):
                text = f"windows of {length} in {points} points, where the reference has "
                text += f"{self.length} in {self.points}"
                yield text, replace(self, points=points, length=length)


def heard(case: Case, row: TensorRow, left: Side) -> Cause | None:
    """Return what the candidate's mel front end does otherwise, replayed from a waveform that the
    reference holds before the mel.
    """
    if not case.whole or case.r.ndim < 2 or case.r.ndim != case.c.ndim:
        return None
    for name, wave in _waves(row, left, case.r.shape):
        for axis in (-1, -2):
            r, c = (np.moveaxis(v, axis, -1) for v in (case.r, case.c))
            if r.shape[:-2] + r.shape[-1:] != c.shape[:-2] + c.shape[-1:]:
                continue  # more or fewer frames are told, not mels
            r, c = (v.reshape(wave.shape[0], *v.shape[-2:]) for v in (r, c))
            if found := _replayed(Case(r, c, case.limit), wave, name):
                return found
    return None


def waveform_shape(shape: tuple[int, ...], mel: tuple[int, ...]) -> tuple[int, int] | None:
    """Return (items, samples) of a tensor that may be the waveform of a mel, else None."""
    items, size = int(np.prod(mel[:-2])), int(np.prod(shape))
    samples = size // items if items else 0
    fits = shape and samples == shape[-1] and samples >= _SHORTEST and size <= _LONGEST
    return (items, samples) if fits else None


def lacks_source(row: TensorRow, rows: Sequence[TensorRow]) -> bool:
    """Return whether a tensor is a mel by its name, and no tensor before it has the shape of a
    spectrum or a waveform that it may be replayed from.
    """
    words = row.name.partition("#")[0].lower().replace("_", ".").split(".")
    mel = row.shapes[0]
    if mel is None or len(mel) < 2 or not any("mel" in w or "fbank" in w for w in words):
        return False
    turned = (*mel[:-2], mel[-1], mel[-2])
    before = itertools.takewhile(lambda r: r.name != row.name, rows)
    shapes = [r.shapes[0] for r in before if r.shapes[0] is not None]
    return not any(fits(m, s) or waveform_shape(s, mel) for s in shapes for m in (mel, turned))


def _waves(row: TensorRow, left: Side, mel: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    names = list(left.tensors)
    for name in names[: names.index(row.name)][::-1][:_NEAREST]:
        stored = left.tensors[name]
        shape = waveform_shape(stored.tensor.shape, mel)
        if shape is not None:
            values = stored.load()
            if values.dtype.kind in "fV" and np.any(values < 0):
                yield name, values.reshape(shape).astype(np.float64)


def _replayed(case: Case, wave: Any, name: str) -> Cause | None:
    """The reference's front end on a few frames; then others on more of them."""
    alike = max(constant("gate_undone") * rms(case.r - case.r.mean()), case.rounding)
    noise = min(constant("gate_undone_better") * case.size, alike)
    few = Case(case.r[:, :_FEW], case.c[:, :_FEW], case.limit)
    for told in itertools.islice(_reference(few, wave, case.r.shape[1], noise), _HITS):
        explain = _other if case.r.shape == case.c.shape else _of_other_length
        if found := explain(case, wave, *told, noise):
            text = f"another mel front end, replayed from {name}: {found.text}"
            return replace(found, text=text)
    return None


Told = tuple[_Front, Bank, bool]  # and whether there is a logarithm


def _reference(few: Case, wave: Any, frames: int, noise: float) -> Iterator[Told]:
    """Fronts that give the reference: a common one, or the nearest of these in another window and
    other padding.
    """
    near: list[tuple[float, Told]] = []
    count, negative = few.r.shape[2], bool(np.any(few.r < 0))
    for front in _fronts(wave.shape[1], frames):
        spectrum = _of_few(front, wave, few)
        if spectrum is None or not _as_loud(few.r, spectrum):
            continue
        for bank in banks():
            energies = bank.mels(spectrum, count)
            for log in (True, False)[: 1 if negative else 2]:
                left = fit(few, energies, log)[0]
                if left <= noise:
                    yield front, bank, log
                near.append((left, (front, bank, log)))
        near = sorted(near, key=lambda pair: pair[0])[:_CLOSEST]
    for _, (front, bank, log) in near:
        ends = (front.ends,) if front.ends == _NOT_CENTRED else tuple(_PADDINGS)
        for window, end in itertools.product(_OF_REFERENCES, ends):
            other = replace(front, window=window, ends=end)
            spectrum = None if other == front else _of_few(other, wave, few)
            if spectrum is not None and fit(few, bank.mels(spectrum, count), log)[0] <= noise:
                yield other, bank, log


def _as_loud(mel: Any, spectrum: Any) -> bool:
    """Whether a tensor is larger in louder frames at all, as every mel is."""
    mean, power = mel.mean(axis=-1).reshape(-1), spectrum.sum(axis=-1).reshape(-1)
    if mean.size < _CORRELATED:
        return False
    loud = np.log(power + np.finfo(np.float64).tiny)
    with np.errstate(all="ignore"):
        alike = [np.corrcoef(mean, v)[0, 1] for v in (loud, power)]
    return bool(np.nanmax([0.0, *alike]) >= _LOUD)


def _of_few(front: _Front, wave: Any, few: Case) -> Any:
    """The spectrum of as many frames as the case has; None where the waveform ends before."""
    frames = few.r.shape[1]
    spectrum = front.spectrum(wave, frames)
    return spectrum if spectrum.shape[1] == frames else None


def _fronts(samples: int, frames: int) -> Iterator[_Front]:
    """Common fronts that give so many frames; where none does, those of a waveform that was padded
    before.
    """
    found = [
        (hop, size)
        for size, hop in itertools.product(_POINTS, _HOPS)  # of one size after another: see `mels`
        if hop <= size[0] and frames in _counts(samples, hop, size[0])
    ]
    if not found:
        hops = [h for h in _HOPS[:_OF_PADDED] if frames * h > samples]
        found = [(h, s) for h, s in itertools.product(hops, _POINTS) if h <= s[0]]
    for hop, (points, length) in found:
        for ends in ("reflected", _NOT_CENTRED):
            yield _Front(points, length, hop, ends=ends)


def _counts(samples: int, hop: int, points: int) -> tuple[int, int, int]:
    """How many frames there may be: one at each hop, the last one dropped or not, or whole ones."""
    return samples // hop, samples // hop + 1, max(0, samples - points) // hop + 1


def _other(
    case: Case, wave: Any, front: _Front, bank: Bank, log: bool, noise: float
) -> Cause | None:
    """What one change of the reference's front end explains."""
    frames = min(_FRAMES, case.r.shape[1])
    spectrum = front.spectrum(wave, frames)
    frames = min(frames, spectrum.shape[1])
    count = case.r.shape[2]
    part = Case(case.r[:, :frames], case.c[:, :frames], case.limit)
    known = fitted(part, bank.mels(spectrum[:, :frames], count), log, noise)
    if known is None:
        return None
    for text, other in (*front.others(), *_hops(front, wave.shape[1])):
        made = other.spectrum(wave, frames)
        if made.shape[1] >= frames:
            named = ("mel front end", text)
            if found := _explained(part, known(bank.mels(made[:, :frames], count)), log, named):
                return found
    for bank_ in other_banks(bank):
        text = f"filters on a {bank_}, where the reference has a {bank}"
        made = known(bank_.mels(spectrum[:, :frames], count))
        if found := _explained(part, made, log, ("mel filters", text)):
            return found
    return None


def _hops(front: _Front, samples: int) -> Iterator[tuple[str, _Front]]:
    """Fronts of another hop with as many frames, such as 220 and 221 for 220.5 samples."""
    frames = samples // front.hop
    found = range(samples // (frames + 1) + 1, samples // max(frames, 1) + 1)
    for hop in sorted(found, key=lambda h: abs(h - front.hop))[1 : _MOST_HOPS + 1]:
        yield f"a hop of {hop}, where the reference has {front.hop}", replace(front, hop=hop)


def _of_other_length(
    case: Case, wave: Any, front: _Front, bank: Bank, log: bool, noise: float
) -> Cause | None:
    """What explains a mel of more or fewer frames: another hop, or no padding."""
    spectrum = front.spectrum(wave, min(_FRAMES, case.r.shape[1]))
    energies = bank.mels(spectrum, case.r.shape[2])
    part = Case(case.r[:, : spectrum.shape[1]], case.c, case.limit)
    known = fitted(part, energies, log, noise)
    frames = case.c.shape[1]
    for text, other in () if known is None else _of_frames(front, wave.shape[1], frames):
        made = known(bank.mels(other.spectrum(wave, min(_FRAMES, frames)), case.r.shape[2]))
        c = case.c[:, : made.shape[1]]  # the last ones need what is behind the signal's end
        named = ("mel front end", text)
        if found := _explained(Case(np.zeros_like(c), c, case.limit), made, log, named):
            return found
    return None


def _of_frames(front: _Front, samples: int, frames: int) -> Iterator[tuple[str, _Front]]:
    """Fronts of another hop, or without padding, that may give so many frames."""
    for hop in dict.fromkeys((*_HOPS, 2 * front.hop, front.hop // 2)):
        if hop and frames in _counts(samples, hop, front.points):
            text = f"a hop of {hop}, where the reference has {front.hop}"
            yield text, replace(front, hop=hop)
    whole = _counts(samples, front.hop, front.points)[2]
    if front.ends != _NOT_CENTRED and frames in (whole, whole - 1):  # one that is dropped
        text = f"the signal is {_NOT_CENTRED}, where the reference has it {front.ends}"
        yield text, replace(front, ends=_NOT_CENTRED)


def _explained(case: Case, made: Any, log: bool, named: tuple[str, str]) -> Cause | None:
    seen = np.isfinite(made)
    if log:
        floored = (case.r <= lowest(case.r)) & np.any(case.r)
        seen &= ~floored & (case.c > lowest(case.c))
    small = Case(case.r[seen], case.c[seen], case.limit)
    found = small.cause(*named, small.c, made[seen]) if small.r.size else None
    return found if np.count_nonzero(seen) >= LEAST else None
