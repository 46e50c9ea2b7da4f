"""Fourier transforms, convolution and spectra."""

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError

RNG = np.random.default_rng(9)


def pairing(u, v):
    return np.sum(np.real(u * v))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transposes_pair_without_conjugation(n, norm):
    m = n // 2 + 1
    x, z = RNG.normal(size=n), RNG.normal(size=n) + 1j * RNG.normal(size=n)
    spectrum = RNG.normal(size=m) + 1j * RNG.normal(size=m)
    cases = [
        (lambda v: ops.fft(v, norm=norm), z, z[::-1]),
        (lambda v: ops.ifft(v, norm=norm), z, z[::-1]),
        (lambda v: ops.rfft(v, norm=norm), x, spectrum),
        (lambda v: ops.irfft(v, n, norm=norm), spectrum, x),
    ]
    for f, primal, cotangent in cases:
        y, pull = ad.vjp(f, primal)
        (pulled,) = pull(cotangent)
        np.testing.assert_allclose(pairing(cotangent, y), pairing(pulled, primal), rtol=1e-12)
        # every single entry: the matrix of the map, transposed
        basis = np.eye(primal.size, dtype=primal.dtype)
        columns = np.stack([f(row) for row in basis])
        expected = np.array([pairing(cotangent, c) for c in columns])
        np.testing.assert_allclose(np.real(pulled), expected, rtol=1e-11, atol=1e-12)
        if primal.dtype.kind == "c":
            expected = np.array([-pairing(cotangent, f(1j * row)) for row in basis])
            np.testing.assert_allclose(np.imag(pulled), expected, rtol=1e-11, atol=1e-12)


def test_gradient_of_power_spectrum_is_real_and_known():
    x = RNG.normal(size=6)
    # Parseval: sum |fft x|^2 = n sum x^2
    got = ad.grad(lambda x: np.sum(np.abs(np.fft.fft(x)) ** 2))(x)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, 12 * x, rtol=1e-12)


@pytest.mark.parametrize("function", [ops.fft, ops.ifft, ops.rfft])
def test_single_precision_stays_single(function):
    assert function(np.ones(4, np.float32)).dtype == np.complex64
    assert ops.irfft(np.ones(3, np.complex64)).dtype == np.float32
    assert function(np.ones(4, np.int64)).dtype == np.complex128


def test_imaginary_parts_that_irfft_does_not_read_have_no_slope():
    z = RNG.normal(size=3) + 1j * RNG.normal(size=3)
    (even,) = ad.vjp(lambda z: ops.irfft(z, 4), z)[1](RNG.normal(size=4))
    assert even[0].imag == even[2].imag == 0 and even[1].imag != 0
    (odd,) = ad.vjp(lambda z: ops.irfft(z, 5), z)[1](RNG.normal(size=5))
    assert odd[0].imag == 0 and odd[2].imag != 0


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(("n", "m"), [(5, 3), (3, 5), (4, 4), (5, 2), (1, 1)])
def test_convolve_is_numpys(mode, n, m):
    x, y = RNG.normal(size=n), RNG.normal(size=m)
    np.testing.assert_allclose(ops.convolve(x, y, mode), np.convolve(x, y, mode), atol=1e-14)


def test_convolve_rows_share_a_kernel():
    x, y = RNG.normal(size=(3, 5)), RNG.normal(size=2)
    expected = [np.convolve(row, y) for row in x]
    np.testing.assert_allclose(ops.convolve(x, y), expected, atol=1e-14)
    ct = RNG.normal(size=(3, 6))
    dx, dy = ad.vjp(ops.convolve, x, y)[1](ct)
    np.testing.assert_allclose(dx, [np.correlate(c, y, "valid") for c in ct], atol=1e-14)
    pairs = zip(ct, x, strict=True)
    np.testing.assert_allclose(dy, sum(np.correlate(c, r, "valid") for c, r in pairs), atol=1e-13)


def test_stft_frames_start_at_the_first_sample():
    x, window = RNG.normal(size=10), RNG.normal(size=4)
    got = ops.stft(x, window, hop=3, n_fft=6)
    expected = [np.fft.rfft(window * x[s : s + 4], 6) for s in (0, 3, 6)]
    np.testing.assert_allclose(got, expected, rtol=1e-13)


def test_mel_filters_are_triangles_of_height_one():
    weights = ops.mel_weights(4, 4096, 8000.0, low=100.0, high=3000.0)
    frequencies = np.arange(2049) * 8000 / 4096
    first, last = (2595 * np.log10(1 + f / 700) for f in (100, 3000))
    edges = 700 * (10 ** (np.linspace(first, last, 6) / 2595) - 1)
    assert np.all(weights[:, (frequencies < 100) | (frequencies > 3000)] == 0)
    peaks = frequencies[np.argmax(weights, axis=1)]
    np.testing.assert_allclose(peaks, edges[1:-1], atol=2.0)
    inner = (frequencies > edges[1]) & (frequencies < edges[-2])
    np.testing.assert_allclose(weights[:, inner].sum(axis=0), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ops.fft(np.ones(0)), "FFT needs one point at least, got n=0\nin op FFT, .*axis 0"),
        (lambda: ops.fft(np.ones(3), norm="unitary"), "FFT has no norm 'unitary'\n.*\nuse one of"),
        (lambda: ops.rfft(1j * np.ones(3)), "RFFT cannot transform complex128"),
        (lambda: ops.irfft(np.ones(1)), "IRFFT needs one point at least, got n=0"),
        (lambda: ops.convolve(np.ones(0), np.ones(2)), "CONVOLVE cannot convolve"),
        (lambda: ops.convolve(np.ones(3), np.ones(2), "wrap"), "CONVOLVE has no mode 'wrap'"),
        (lambda: ops.stft(np.ones(9), np.ones(4), 2, 3), "STFT cannot transform .*n_fft=3"),
        (lambda: ops.mel_weights(3, 8, 100.0, 60.0), "no 3 mel filters between 60.0 and 50.0 Hz"),
        (lambda: ops.mel(1.0, "slany"), "no mel scale 'slany'\nin mel\n.*'slaney'"),
    ],
    ids=["points", "norm", "complex", "irfft", "empty", "mode", "window", "mel", "scale"],
)
def test_errors_name_the_op(call, text):
    with pytest.raises(ShapeError, match=text):
        call()
