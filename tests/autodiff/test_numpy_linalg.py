"""np.linalg and np.fft on traced values: the values of the same calls on arrays."""

import itertools
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff.errors import ShapeError, TracerError

RNG = np.random.default_rng(7)
SQUARE = RNG.normal(size=(4, 4)) + 2 * np.eye(4)
SPD = SQUARE @ SQUARE.T + np.eye(4)
TALL, WIDE = RNG.normal(size=(5, 3)), RNG.normal(size=(3, 5))
STACK = RNG.normal(size=(2, 3, 3)) + 2 * np.eye(3)
COMPLEX = RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))

CALLS: dict[str, Any] = {
    "tril": (np.tril, SQUARE, {"k": -1}),
    "triu": (np.triu, TALL, {"k": 1}),
    "inv": (np.linalg.inv, STACK, {}),
    "det": (np.linalg.det, STACK, {}),
    "slogdet": (np.linalg.slogdet, STACK, {}),
    "cholesky": (np.linalg.cholesky, SPD, {}),
    "cholesky_upper": (np.linalg.cholesky, SPD, {"upper": True}),
    "qr": (np.linalg.qr, TALL, {}),
    "qr_wide": (np.linalg.qr, WIDE, {}),
    "qr_r": (np.linalg.qr, STACK, {"mode": "r"}),
    "eigh": (np.linalg.eigh, SQUARE, {}),
    "eigvalsh": (np.linalg.eigvalsh, STACK, {}),
    "eigvalsh_upper": (np.linalg.eigvalsh, STACK, {"UPLO": "U"}),
    "svd": (np.linalg.svd, TALL, {"full_matrices": False}),
    "svd_square": (np.linalg.svd, STACK, {}),
    "svd_values": (np.linalg.svd, WIDE, {"compute_uv": False}),
    "svdvals": (np.linalg.svdvals, WIDE, {}),
    "pinv": (np.linalg.pinv, TALL, {}),
    "pinv_rtol": (np.linalg.pinv, TALL, {"rtol": 1e-3}),
    "matrix_power": (np.linalg.matrix_power, STACK, {"n": -3}),
    "matrix_rank": (np.linalg.matrix_rank, TALL, {}),
    "matrix_rank_stack": (np.linalg.matrix_rank, STACK, {"tol": 1.5}),
    "matrix_rank_vector": (np.linalg.matrix_rank, TALL[0], {}),
    "matrix_transpose": (np.linalg.matrix_transpose, STACK, {}),
    "norm": (np.linalg.norm, STACK, {}),
    "norm_vector": (np.linalg.norm, TALL, {"axis": 0, "ord": 3}),
    "norm_vector_inf": (np.linalg.norm, TALL[0], {"ord": -np.inf}),
    "norm_keepdims": (np.linalg.norm, STACK, {"axis": (0, 2), "ord": 1, "keepdims": True}),
    "norm_all_keepdims": (np.linalg.norm, TALL, {"keepdims": True}),
    "norm_axes_swapped": (np.linalg.norm, STACK, {"axis": (2, 0), "ord": np.inf}),
    "vector_norm": (np.linalg.vector_norm, TALL, {"axis": 1, "ord": 1}),
    "matrix_norm": (np.linalg.matrix_norm, STACK, {"ord": "nuc", "keepdims": True}),
    "cond": (np.linalg.cond, STACK, {}),
    "cond_inf": (np.linalg.cond, STACK, {"p": np.inf}),
    "cond_smallest": (np.linalg.cond, STACK, {"p": -2}),
    "trace": (np.linalg.trace, STACK, {"offset": 1}),
    "diagonal": (np.linalg.diagonal, STACK, {"offset": -1}),
    "tensorinv": (np.linalg.tensorinv, RNG.normal(size=(4, 2, 2)), {"ind": 1}),
    "fft": (np.fft.fft, COMPLEX, {"n": 6, "axis": 0}),
    "ifft": (np.fft.ifft, COMPLEX, {"norm": "ortho"}),
    "rfft": (np.fft.rfft, TALL, {"n": 4, "axis": 0, "norm": "forward"}),
    "irfft": (np.fft.irfft, COMPLEX, {"n": 5}),
    "irfft_default": (np.fft.irfft, COMPLEX, {}),
    "hfft": (np.fft.hfft, COMPLEX, {"norm": "ortho"}),
    "ihfft": (np.fft.ihfft, TALL, {"n": 4, "axis": 0}),
    "fft2": (np.fft.fft2, STACK, {"s": (2, 4)}),
    "ifft2": (np.fft.ifft2, COMPLEX, {}),
    "fftn": (np.fft.fftn, STACK, {"norm": "forward"}),
    "ifftn": (np.fft.ifftn, STACK, {"s": (3, -1), "axes": (0, 2)}),
    "rfft2": (np.fft.rfft2, STACK, {}),
    "rfftn": (np.fft.rfftn, STACK, {"axes": (2, 0)}),
    "irfft2": (np.fft.irfft2, COMPLEX, {"s": (3, 5)}),
    "irfftn": (np.fft.irfftn, COMPLEX, {}),
    "fftshift": (np.fft.fftshift, STACK, {}),
    "ifftshift": (np.fft.ifftshift, TALL, {"axes": 0}),
}


def leaves(value):
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("name", CALLS)
def test_traced_call_has_numpys_values(name):
    function, x, kwargs = CALLS[name]
    expected = function(x, **kwargs)
    traced = ad.vmap(lambda a: function(a, **kwargs))(x[None])
    assert type(traced) is type(expected) or not isinstance(expected, tuple)
    for got, want in zip(leaves(traced), leaves(expected), strict=True):
        assert got.dtype == np.asarray(want).dtype
        np.testing.assert_allclose(got[0], want, rtol=1e-12, atol=1e-13)


def test_calls_with_several_arrays():
    a, b, c = (RNG.normal(size=s) for s in ((2, 7), (7, 3), (3, 4)))
    v, w = RNG.normal(size=2), RNG.normal(size=4)
    cases = [
        (lambda x: np.linalg.solve(x, b[:4, 0]), SQUARE),
        (lambda x: np.linalg.solve(SQUARE, x), SPD),
        (lambda x: np.linalg.multi_dot([x, b, c]), a),
        (lambda x: np.linalg.multi_dot([v, x, b, c, w]), a),
        (lambda x: np.linalg.matmul(x, b), a),
        (lambda x: np.linalg.outer(x, w), v),
        (lambda x: np.linalg.tensordot(x, b, axes=1), a),
        (lambda x: np.linalg.cross(x, TALL[:2]), b[:2]),
        (lambda x: np.linalg.vecdot(x, TALL[:2]), b[:2]),
        (lambda x: np.linalg.tensorsolve(x, SQUARE[0]), RNG.normal(size=(4, 2, 2))),
    ]
    for function, x in cases:
        got = ad.vmap(function)(x[None])[0]
        np.testing.assert_allclose(got, function(x), rtol=1e-12, atol=1e-12)


def test_eigh_of_the_upper_triangle_up_to_signs():
    w, v = (x[0] for x in ad.vmap(lambda a: np.linalg.eigh(a, UPLO="U"))(SQUARE[None]))
    expected = np.linalg.eigh(SQUARE, UPLO="U")
    np.testing.assert_allclose(w, expected.eigenvalues, rtol=1e-13)
    np.testing.assert_allclose(np.abs(v), np.abs(expected.eigenvectors), atol=1e-13)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_lstsq_returns_numpys_four_results(shape):
    a, b = RNG.normal(size=shape), RNG.normal(size=(shape[0], 2))
    expected = np.linalg.lstsq(a, b, rcond=None)
    traced = ad.trace(lambda x: np.linalg.lstsq(x, b, rcond=None), a)
    for got, want in zip(ad.interpret(traced, a), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)


def test_norm_of_rank_three_without_axis_is_over_all():
    x = RNG.normal(size=(2, 3, 2))
    got = ad.grad(np.linalg.norm)(x)
    np.testing.assert_allclose(got, x / np.linalg.norm(x), rtol=1e-14)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: np.linalg.svd(x), "full_matrices=False"),
        (lambda x: np.linalg.qr(x, mode="complete"), "mode='reduced'"),
        (lambda x: np.linalg.svd(x, hermitian=True), "hermitian=False"),
        (lambda x: np.linalg.eigvals(x), "eigvals is not supported"),
    ],
)
def test_arbitrary_factors_are_refused_with_the_way_out(call, message):
    with pytest.raises(TracerError, match=message):
        ad.trace(call, TALL)


def test_norm_over_three_axes_names_them():
    with pytest.raises(ShapeError, match=r"one or two axes, not 3\n.*\nname them: axis=-1"):
        ad.trace(lambda x: np.linalg.norm(x, ord=2), np.zeros((2, 2, 2)))


def test_multi_dot_cuts_like_the_textbook_example():
    # Cormen et al., Introduction to Algorithms, section 15.2: ((A1 (A2 A3)) ((A4 A5) A6))
    from autodiff.numpy_api.linalg import _cuts

    extents = (30, 35, 15, 5, 10, 20, 25)
    cuts = _cuts(list(itertools.pairwise(extents)))
    assert (cuts[0, 5], cuts[0, 2], cuts[3, 5]) == (2, 0, 4)
