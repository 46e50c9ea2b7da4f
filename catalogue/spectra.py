"""Entries of spectra of signals over time."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import POSITIVE, REAL
from catalogue.entry import Entry, Sample, Special, define
from catalogue.linalg import Rng, named

HANN = np.hanning(6)[1:-1]


def _stft_samples(rng: Rng) -> Iterable[Sample]:
    yield named("overlapping", REAL.draw(rng, (11,)), HANN, hop=2)
    yield named("apart", REAL.draw(rng, (2, 9)), HANN, hop=5)
    yield named("padded", REAL.draw(rng, (8,)), REAL.draw(rng, (3,)), hop=2, n_fft=5)
    yield named("one_frame", REAL.draw(rng, (4,)), HANN, hop=1)
    yield named("no_frame", REAL.draw(rng, (3,)), HANN, hop=1, tags=["empty"])
    yield named("no_rows", np.zeros((0, 8)), HANN, hop=2, tags=["empty"])


define(Entry("STFT", ops.stft, _stft_samples, contracts=True))


def _mel_samples(rng: Rng) -> Iterable[Sample]:
    yield named("even", POSITIVE.draw(rng, (9,)), n_mels=3, sample_rate=800.0)
    yield named("frames", POSITIVE.draw(rng, (2, 5)), n_mels=2, sample_rate=800.0, low=20.0)
    slaney: dict[str, Any] = {"scale": "slaney", "area": True}
    yield named("slaney", POSITIVE.draw(rng, (9,)), n_mels=3, sample_rate=8000.0, **slaney)
    yield named("odd", POSITIVE.draw(rng, (4,)), n_mels=2, sample_rate=100.0, high=45.0, n_fft=7)
    yield named("no_frames", np.zeros((0, 9)), n_mels=3, sample_rate=800.0, tags=["empty"])


define(Entry("MEL_FILTERBANK", ops.mel_filterbank, _mel_samples, contracts=True))


def _log_mel_samples(rng: Rng) -> Iterable[Sample]:
    mel: dict[str, Any] = {"hop": 4, "n_mels": 2, "sample_rate": 800.0}
    window = np.hanning(10)[1:-1]
    yield named("rows", 3 + REAL.draw(rng, (2, 14)), window, **mel)
    yield named("padded", 3 + REAL.draw(rng, (12,)), window, n_fft=10, **mel)
    yield named("slaney", 3 + REAL.draw(rng, (14,)), window, scale="slaney", area=True, **mel)
    yield named("no_frame", np.zeros(3), window, tags=["empty"], **mel)


define(
    Entry(
        "LOG_MEL",
        ops.log_mel,
        _log_mel_samples,
        contracts=True,
        specials=(
            Special(
                "silence",
                (np.zeros(4), HANN),
                np.log([[1e-10]]),
                kwargs={"hop": 4, "n_mels": 1, "sample_rate": 800.0},
                cotangent=[[2.0]],
                gradients=(np.zeros(4), np.zeros(4)),
            ),
        ),
    )
)
