"""Entries of Fourier transforms and convolution."""

from collections.abc import Iterable

import numpy as np

from autodiff import ops
from catalogue.domain import COMPLEX, REAL
from catalogue.entry import Entry, Sample, Special, define
from catalogue.linalg import Rng, named


def _fft_samples(rng: Rng) -> Iterable[Sample]:
    for n in (1, 2, 5, 8):
        yield named(f"points_{n}", COMPLEX.draw(rng, (n,)), tags=["complex"])
    yield named("real", REAL.draw(rng, (6,)))
    yield named("cut", COMPLEX.draw(rng, (2, 5)), n=3, tags=["complex"])
    yield named("padded", REAL.draw(rng, (3, 2)), n=5, axis=0, norm="ortho")
    yield named("forward", COMPLEX.draw(rng, (2, 3, 2)), axis=-2, norm="forward", tags=["complex"])
    yield named("no_stack", np.zeros((0, 3)), tags=["empty"])


define(
    Entry(
        "FFT",
        ops.fft,
        _fft_samples,
        contracts=True,
        specials=(
            # the transpose pairs without conjugation: column 1 of the symmetric matrix
            Special("impulse", ([0.0, 1.0, 0.0, 0.0],), [1, -1j, -1, 1j]),
        ),
    )
)
define(Entry("IFFT", ops.ifft, _fft_samples, contracts=True))


def _rfft_samples(rng: Rng) -> Iterable[Sample]:
    for n in (1, 2, 5, 8):
        yield named(f"points_{n}", REAL.draw(rng, (n,)))
    yield named("cut_even", REAL.draw(rng, (2, 5)), n=4)
    yield named("padded_odd", REAL.draw(rng, (3, 2)), n=5, axis=0, norm="ortho")
    yield named("forward", REAL.draw(rng, (2, 4, 2)), axis=1, norm="forward")
    yield named("no_stack", np.zeros((0, 3)), tags=["empty"])


define(Entry("RFFT", ops.rfft, _rfft_samples, contracts=True))


def _irfft_samples(rng: Rng) -> Iterable[Sample]:
    for m in (2, 3, 5):
        yield named(f"frequencies_{m}", COMPLEX.draw(rng, (m,)), tags=["complex"])
        yield named(f"odd_{m}", COMPLEX.draw(rng, (m,)), n=2 * m - 1, tags=["complex"])
    yield named("one_point", COMPLEX.draw(rng, (1,)), n=1, tags=["complex"])
    yield named("cut", COMPLEX.draw(rng, (2, 5)), n=4, norm="ortho", tags=["complex"])
    yield named("padded", COMPLEX.draw(rng, (2, 3)), n=7, axis=0, norm="forward", tags=["complex"])
    yield named("real", REAL.draw(rng, (4,)))
    yield named("no_stack", np.zeros((0, 3), np.complex128), tags=["empty", "complex"])


define(
    Entry(
        "IRFFT",
        ops.irfft,
        _irfft_samples,
        contracts=True,
        specials=(
            # imaginary parts of the first and, for an even n, the last frequency are not read
            Special(
                "unread_parts",
                ([4.0 + 3.0j, 5.0j],),
                [2.0, 2.0],
                kwargs={"n": 2},
                cotangent=[2.0, 4.0],
                gradients=([3.0, -1.0],),
            ),
        ),
    )
)


def _convolve_samples(rng: Rng) -> Iterable[Sample]:
    x, y = REAL.draw(rng, (6,)), REAL.draw(rng, (3,))
    for mode in ("full", "same", "valid"):
        yield named(mode, x, y, mode=mode)
        yield named(f"{mode}_even", REAL.draw(rng, (3,)), REAL.draw(rng, (4,)), mode=mode)
    yield named("one", [2.0], [3.0])
    yield named("rows", REAL.draw(rng, (2, 4)), y)
    yield named("broadcast", REAL.draw(rng, (2, 1, 3)), REAL.draw(rng, (3, 2)), mode="same")
    yield named("no_rows", np.zeros((0, 4)), y, tags=["empty"])
    yield named("complex", COMPLEX.draw(rng, (4,)), COMPLEX.draw(rng, (2,)), tags=["complex"])
    yield named("integers", rng.integers(-4, 4, 5), rng.integers(-4, 4, 2), tags=["integer"])


define(Entry("CONVOLVE", ops.convolve, _convolve_samples, contracts=True))
