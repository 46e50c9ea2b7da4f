"""A mel front end that differs, told from the waveform and the mel alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from tests.checks.gates.sides import judged, normal

RATE, MELS, SAMPLES = 16000, 40, 6400
WAVE = np.float32(0.1 * normal(2, SAMPLES) * np.linspace(0.5, 1, SAMPLES))
HANN = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)


def mel(
    wave: Any = WAVE,
    window: Any = HANN,
    pad: str = "reflect",
    power: int = 2,
    scale: str = "slaney",
    low: float = 0.0,
    points: int = 400,
    hop: int = 160,
    area: bool = True,
) -> Any:
    """Whisper's log-mel: frames every 160 samples, the last one dropped, cut far below the top."""
    ends = {"end": (0, points), "none": (0, 0)}.get(pad, (points // 2,) * 2)
    mode = pad if pad in ("reflect", "constant", "edge") else "constant"
    x = np.pad(wave.astype(np.float64), ((0, 0), ends), mode=mode)  # type: ignore[call-overload]
    views = np.lib.stride_tricks.sliding_window_view(x, points, axis=1)[:, ::hop]
    spectrum = np.abs(np.fft.rfft(views * window)) ** power
    bank = ad.ops.mel_weights(MELS, points, RATE, low, RATE / 2, scale=scale, area=area)
    found = np.log10(np.maximum(spectrum[:, :-1] @ bank.T, 1e-10)).swapaxes(1, 2)
    return np.float32((np.maximum(found, found.max((1, 2), keepdims=True) - 8) + 4) / 4)


def emphasised(wave: Any) -> Any:
    return np.concatenate([wave[:, :1], wave[:, 1:] - np.float32(0.97) * wave[:, :-1]], axis=1)


FRONTS: dict[str, tuple[Any, Any, str, str]] = {
    "htk": (mel(), mel(scale="htk"), "mel filters", "filters on a htk scale, 0 to 8000 Hz"),
    "low": (mel(), mel(low=20.0), "mel filters", "filters on a slaney scale, 20 to 8000 Hz"),
    "window": (
        *(mel(), mel(window=np.hamming(400)), "mel front end"),
        "a symmetric Hamming window, where the reference has a periodic Hann one",
    ),
    "another reference": (
        *(mel(window=np.hanning(400)), mel(), "mel front end"),
        "a periodic Hann window, where the reference has a symmetric Hann one",
    ),
    "zeros": (
        *(mel(), mel(pad="constant"), "mel front end"),
        "the signal's start is padded with zeros, where the reference has it reflected",
    ),
    "both defaults": (
        *(mel(), mel(scale="htk", area=False), "mel filters"),
        "filters on a htk scale, 0 to 8000 Hz at 16,000 Hz, of one height",
    ),
    "hop": (mel(), mel(hop=159), "mel front end", "a hop of 159, where the reference has 160"),
    "half the hop": (mel(), mel(hop=80), "mel front end", "a hop of 80, where the reference has"),
    "twice the hop": (mel(), mel(hop=320), "mel front end", "a hop of 320, where the reference"),
    "not centred": (
        *(mel(), mel(pad="end"), "mel front end"),
        "the signal's start is not padded but at the signal's end, where the reference has it",
    ),
    "not padded": (
        *(mel(), mel(pad="none"), "mel front end"),
        "the signal is not padded, where the reference has it reflected",
    ),
    "magnitude": (mel(), mel(power=1), "mel front end", "magnitudes, where the reference has"),
    "emphasis": (mel(), mel(emphasised(WAVE)), "mel front end", "preemphasis of 0.97"),
}


@pytest.mark.parametrize("name", FRONTS)
def test_a_front_end_is_told_from_the_waveform(tmp_path: Path, name: str) -> None:
    reference, candidate, cause, words = FRONTS[name]
    result = judged(tmp_path, {"wave": WAVE, "mel": reference}, {"wave": WAVE, "mel": candidate})
    assert result.first is not None and result.first.name == "mel" and result.cause is not None
    assert result.cause.name == cause, result.cause
    assert (result.first.status == "SHAPE") == (reference.shape != candidate.shape)
    assert "another mel front end, replayed from wave: " in result.cause.text
    assert words in result.cause.text


def test_what_no_front_end_explains_has_no_name(tmp_path: Path) -> None:
    other = mel() + np.float32(0.05 * normal(2, MELS, SAMPLES // 160, seed=4))
    unknown = judged(tmp_path / "a", {"wave": WAVE, "mel": mel()}, {"wave": WAVE, "mel": other})
    assert unknown.cause is None
    noise = normal(2, SAMPLES, seed=5)  # not the waveform of this mel
    another = {"wave": noise, "mel": mel()}
    assert judged(tmp_path / "b", another, {"wave": noise, "mel": mel(scale="htk")}).cause is None


@pytest.mark.parametrize(("samples", "frames"), [(256, 1), (256, 16), (300, 2), (4096, 1)])
def test_a_waveform_shorter_than_windows_names_nothing(
    tmp_path: Path, samples: int, frames: int
) -> None:
    for items in (1, 2):
        wave = {"wave": WAVE[:items, :samples]}
        ours, theirs = ({"mel": np.abs(normal(items, MELS, frames, seed=s))} for s in (6, 7))
        assert judged(tmp_path / str(items), wave | ours, wave | theirs).cause is None


def test_the_answer_says_what_would_tell(tmp_path: Path) -> None:
    ours, theirs = {"enc.mel.in": mel()}, {"enc.mel.in": mel(window=np.hamming(400))}
    alone = judged(tmp_path / "alone", ours, theirs)
    text = "neither its power spectrum nor its waveform is dumped before it"
    assert text in alone.answers[2].text
    sides = [{"x": side["enc.mel.in"]} for side in (ours, theirs)]
    assert text not in judged(tmp_path / "x", *sides).answers[2].text
    other = {"enc.mel.in": mel() + np.float32(0.05 * normal(2, MELS, 40, seed=4))}
    wave = {"wave": WAVE}
    beside = judged(tmp_path / "beside", wave | ours, wave | other)
    assert beside.cause is None and text not in beside.answers[2].text
