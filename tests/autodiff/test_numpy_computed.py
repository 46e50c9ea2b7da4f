"""NumPy functions composed of ops: computed pads, polyfit, reduceat, frexp, integer ufuncs."""

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import AutodiffError, TracerError

X = np.array([0.6, 1.7, -2.3, 3.1, 0.25])
A = np.array([[2.0, 1.1, 0.5, 0.7], [0.3, 3.0, 1.3, -1.0], [1.2, 0.2, 4.0, 0.1]])
CALLS: dict[str, tuple[Callable[..., Any], Any]] = {
    **{
        f"pad {mode}": (lambda x, mode=mode: np.pad(x, ((1, 2), (3, 0)), mode=mode), A)
        for mode in ("mean", "maximum", "minimum", "median", "linear_ramp")
    },
    "pad stat_length": (
        lambda x: np.pad(x, 2, mode="mean", stat_length=((1, 2), (9, 3))),
        A,
    ),
    "pad ramp to": (lambda x: np.pad(x, (2, 3), mode="linear_ramp", end_values=(1.0, -2.0)), X),
    "pad odd": (lambda x: np.pad(x, (7, 2), mode="reflect", reflect_type="odd"), X),
    "pad odd symmetric": (lambda x: np.pad(x, 3, mode="symmetric", reflect_type="odd"), A),
    "polyfit": (lambda y: np.polyfit(np.arange(5.0), y, 2), X),
    "polyfit in x": (lambda x: np.polyfit(x, np.arange(5.0), 1), X),
    "polyfit weighted": (lambda y: np.polyfit(np.arange(3.0), y, 1, w=np.array([1.0, 2, 3])), A),
    "add.reduceat": (lambda x: np.add.reduceat(x, [0, 2, 3]), X),
    "multiply.reduceat": (lambda x: np.multiply.reduceat(x, [3, 0, 2], axis=1), A),
    "maximum.reduceat": (lambda x: np.maximum.reduceat(x, [0, 3, 2]), X),
    "frexp": (lambda x: np.frexp(x)[0], X + 0.01),
}


@pytest.mark.parametrize("name", CALLS)
def test_values_and_slopes(name: str):
    f, x = CALLS[name]
    want = f(x)
    for y in (ad.compile(f)(x), ad.vjp(f, x)[0]):
        np.testing.assert_allclose(y, want, rtol=1e-12, atol=1e-14, strict=True)
    v = np.random.default_rng(0).normal(size=x.shape)
    h = 1e-6
    slope = (f(x + h * v) - f(x - h * v)) / (2 * h)
    y, pull = ad.vjp(f, x)
    u = np.random.default_rng(1).normal(size=want.shape)
    np.testing.assert_allclose(ad.jvp(f, (x,), (v,))[1], slope, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(np.sum(pull(u)[0] * v), np.sum(u * slope), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8, np.bool_])
def test_integer_ufuncs(dtype: Any):
    x = np.array([0, 1, 2, 5, 100, 127]).astype(dtype)
    if np.dtype(dtype).kind == "i":
        x = np.concatenate([x, -x])
    calls: list[Callable[[Any], Any]] = [np.reciprocal, np.square, lambda v: v**2]
    if dtype is not np.bool_:
        calls += [functools.partial(lambda n, v: v << n, n) for n in (0, 1, 3, 6, 7)]
        calls += [functools.partial(lambda n, v: np.right_shift(v, n), n) for n in (0, 1, 3, 7)]
    calls.append(lambda v: np.pad(v, 2, mode="mean"))
    calls.append(lambda v: np.pad(v, 3, mode="linear_ramp"))
    with np.errstate(all="ignore"):
        for f in calls[: -2 if dtype is np.bool_ else None]:
            np.testing.assert_array_equal(ad.compile(f)(x), f(x), strict=True)


def test_frexp_of_edges():
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -1e308, 0.5, 1.0])
    m, e = ad.compile(np.frexp)(x)
    want, exponent = np.frexp(x)
    np.testing.assert_array_equal(m, want, strict=True)
    np.testing.assert_array_equal(e[np.isfinite(x)], exponent[np.isfinite(x)])
    assert e.dtype == exponent.dtype


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda x: np.add.reduceat(x, [0, 5]), "np.add.reduceat takes a vector of indices"),
        (lambda x: np.polyfit(x, x, 1, full=True), "np.polyfit of traced values with full=True"),
        (lambda x: np.polyfit(x, x[:3], 1), "np.polyfit takes a vector x"),
        (lambda x: np.pad(x, 1, mode="mean", stat_length=0), "stat_length of 0"),
        (lambda x: np.pad(x[:0], 1, mode="mean"), "can't extend empty axis 0"),
        (lambda x: np.pad(x, 1, mode="mean", end_values=0), "np.pad with mode='mean'"),
        (lambda x: np.left_shift(x, 1), "a shift of float64 by"),
    ],
    ids=["reduceat", "full", "lengths", "stat_length", "empty", "option", "shift"],
)
def test_refusals_have_three_lines(f: Any, what: str):
    with pytest.raises(AutodiffError) as caught:
        ad.trace(f, X)
    assert str(caught.value).startswith(what)
    assert len(str(caught.value).splitlines()) == 3


# --- dtypes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.longdouble, np.clongdouble])
def test_floats_wider_than_float64_are_refused(dtype: Any):
    if np.dtype(dtype).itemsize <= 16 and np.dtype(dtype).kind == "c":
        pytest.skip("long double is double here")
    for call in (ad.trace, ad.vjp):
        with pytest.raises(TracerError, match="wider than (float64|complex128)") as caught:
            call(lambda x: x * x, np.ones(2, dtype))
        assert caught.value.fix.startswith("convert it: x.astype(np.")
        assert len(str(caught.value).splitlines()) == 3


HALF = np.asarray(0.5, ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: ad.while_loop(lambda c: c < 3, lambda c: c * 2.0, x, max_steps=4),
        lambda x: ad.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2.0), (0, x), 4)[1],
        lambda x: ad.scan(lambda c, _: (c * 2.0, c), x, None, 3)[0],
        lambda x: ops.betainc(x, x, x),
        lambda x: ad.grad(lambda v: ops.betainc(v, v, v))(x),
        lambda x: ad.grad(lambda v: ops.igamma(v, x))(x),
    ],
    ids=["while", "while of two", "scan", "betainc", "betainc slope", "igamma slope"],
)
def test_bfloat16_scalars_stay_in_16_bits(f: Any):
    want = float(f(np.float64(0.5)))
    slope = float(ad.grad(f)(np.float64(0.5)))
    for run in (f, ad.compile(f)):
        value = run(HALF)
        assert value.dtype == ml_dtypes.bfloat16
        np.testing.assert_allclose(float(value), want, rtol=2e-2)
    g = ad.grad(f)(HALF)
    assert g.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(float(g), slope, rtol=5e-2, atol=2e-2)


def test_compiled_constants_of_16_bits_are_concatenated_as_they_are():
    x, w = np.ones((2, 3, 5), np.float16), np.ones((3, 4), np.float16)
    for y in ad.compile(lambda x, w: ops.causal_conv1d(x, w))(x, w):
        assert y.dtype == np.float16
    zeros = np.zeros(3, np.float16)
    joined = ad.compile(lambda v: np.concatenate([zeros, v, zeros]))(np.ones(2, np.float16))
    np.testing.assert_array_equal(
        joined, np.asarray([0, 0, 0, 1, 1, 0, 0, 0], np.float16), strict=True
    )
