"""Errors of ops name the user's line; parameters that should be whole numbers are never cut off."""

import functools

import numpy as np
import pytest

import autodiff as ad
from autodiff.errors import ShapeError, TracerError

X = np.arange(6.0).reshape(2, 3)
IMAGE = np.ones((1, 1, 4, 4))


def test_writing_a_traced_value_into_an_array_names_line_and_fix():
    def f(x):
        y = np.zeros(2)
        y[0] = x[0, 0]  # NumPy's own error: setting an array element with a sequence
        return np.sum(y)

    for call in (ad.grad(f), ad.compile(f), ad.jacfwd(f), ad.hessian(f)):
        with pytest.raises(TracerError) as caught:
            call(X)
        what, where, fix = str(caught.value).splitlines()
        assert what == "a traced value was written into an element of a NumPy array"
        assert "in f: `y[0] = x[0, 0]" in where
        assert "autodiff.ops.index_update(a, index, value)" in fix


def test_another_value_error_of_the_function_is_its_own():
    def f(x):
        raise ValueError("setting an array of my own")

    with pytest.raises(ValueError, match="of my own"):
        ad.grad(f)(X)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x + np.ones(4),
        lambda x: x @ np.ones((4, 2)),
        lambda x: x.reshape(5),
        lambda x: x.sum(axis=2),
        lambda x: np.concatenate([x, x[0]]),
        lambda x: np.einsum("ij,ij->k", x, x),
        lambda x: np.linalg.solve(x, x),
        lambda x: x + None,
        lambda x: ad.vmap(lambda row: row @ np.ones(4))(x),
    ],
    ids="add matmul reshape axis join einsum solve none inside".split(),
)
def test_an_op_s_error_names_the_line_that_called_it(f):
    with pytest.raises(ShapeError) as caught:
        ad.grad(f)(X)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert "test_error_lines.py:" in lines[1] and "`lambda x: " in lines[1]
    assert lines[1].count(" at ") == 1


def test_library_code_between_is_not_the_user_s_line():
    def f(x):
        return functools.partialmethod(lambda self, y: y @ y).__get__(object())(x)

    with pytest.raises(ShapeError, match="test_error_lines.py"):
        ad.grad(f)(X)


WHOLE = {
    "sum": lambda x: x.sum(1.0),
    "reshape": lambda x: x.reshape(2.5, 2),
    "transpose": lambda x: ad.ops.transpose(x, (0, 1.0)),
    "moveaxis": lambda x: np.moveaxis(x, 0.5, 0),
    "squeeze": lambda x: np.squeeze(x[None], 0.0),
    "broadcast": lambda x: np.broadcast_to(x, (2.5, 2, 3)),
    "roll": lambda x: np.roll(x, 1.5),
    "tile": lambda x: ad.ops.tile(x, 1.5),
    "repeat": lambda x: np.repeat(x, [1.5, 1], axis=0),
    "trace": lambda x: np.trace(x, 0.5),
    "diag": lambda x: np.diag(x[0], 0.5),
    "tril": lambda x: np.tril(x, 0.5),
    "top_k": lambda x: ad.ops.top_k(x, 1.5),
    "fft": lambda x: np.fft.fft(x, n=2.5),
    "one_hot": lambda x: ad.ops.one_hot(np.array([1]), 2.5) + x[0, 0],
    "dynamic_slice": lambda x: ad.ops.dynamic_slice(x, (0, 0), (1.5, 2)),
    "stride": lambda x: ad.ops.conv2d(IMAGE, x[None, None], stride=1.5),
    "padding": lambda x: ad.ops.conv2d(IMAGE, x[None, None], padding=[(1.5, 0), 0]),
    "groups": lambda x: ad.ops.conv2d(IMAGE, x[None, None], groups=1.0),
    "scan": lambda x: ad.scan(lambda c, _: (c, None), x, None, length=2.0)[0],
    "max_steps": lambda x: ad.while_loop(lambda c: c[0, 0] > 0, lambda c: c - 1, x, max_steps=2.5),
    "take": lambda x: np.take(x, [1.5]),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_fraction_is_never_cut_off(name):
    with pytest.raises(ShapeError) as caught:
        ad.trace(WHOLE[name], X)
    assert len(str(caught.value).splitlines()) == 3
    assert "integer" in str(caught.value) or "indices are float64" in str(caught.value)


def test_axes_out_of_range_do_not_wrap():
    for axes in ((0, 3), (-3, 0)):
        with pytest.raises(ShapeError, match="out of bounds for 2 axes"):
            ad.trace(lambda x, a=axes: np.transpose(x, a), X)
    with pytest.raises(ShapeError, match="extents are not negative"):
        ad.trace(lambda x: x.reshape(-2, -3), X)


def test_counts_and_formats_of_traced_values_name_line_and_fix():
    for f, words in (
        (lambda x: sum(range(x[0, 0])), "used as a Python index or count"),
        (lambda x: [1, 2][x[0, 0]], "used as a Python index or count"),
        (lambda x: f"{x[0, 0]:.3f}", "no digits to write with the format '.3f'"),
    ):
        with pytest.raises(TracerError, match=words) as caught:
            ad.grad(f)(X)
        assert len(str(caught.value).splitlines()) == 3
    seen = []
    ad.grad(lambda x: seen.append(f"{x}") or np.sum(x))(X)
    assert seen == ["Tracer(float64[2,3])"]
