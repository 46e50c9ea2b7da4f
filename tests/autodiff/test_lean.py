"""Lean spellings of `jax.numpy` functions and the series behind special functions."""

import itertools

import numpy as np
import pytest
import scipy.special

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

from autodiff.kernels import matrix_functions as kernels
from autodiff.lower import lean, series
from autodiff.lower.jax import rules

DTYPES = ("float32", "bfloat16", "float16", "int32", "bool", "complex64")
BINARY = ("add", "divide", "maximum", "multiply", "logical_or", "where")
REDUCTIONS = ("all", "any", "max", "min", "sum")
SHAPES = (((2, 3), (2, 3)), ((2, 3), ()), ((2, 1), (1, 3)), ((3,), (2, 3)), ((0, 3), (3,)))


def drawn(shape, dtype, rng):
    if dtype == "bool":
        return jnp.asarray(rng.random(shape) < 0.5)
    x = np.round(4 * rng.standard_normal(shape))
    if dtype != "int32":
        x = np.where(rng.random(shape) < 0.2, rng.choice([np.nan, np.inf, -np.inf], shape), x / 2)
    return jnp.asarray(x.astype("complex64") if dtype == "complex64" else x).astype(dtype)


def same(ours, theirs):
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    # NumPy's comparison takes NaN of 16-bit types for unequal
    ours, theirs = (np.asarray(v).astype(np.complex128) for v in (ours, theirs))
    np.testing.assert_array_equal(ours, theirs)


def calls(dtype):
    """(name, arrays, parameters) of calls of functions that ops name."""
    rng = np.random.default_rng(3)
    x = drawn((2, 3, 4), dtype, rng)
    for name in ("isinf", "isnan", "isfinite", "negative", "rint", "sign", "exp"):
        yield name, [x], {}
    for name, shapes in itertools.product(BINARY, SHAPES):
        condition = [drawn(shapes[0], "bool", rng)] if name == "where" else []
        yield name, [*condition, *(drawn(s, dtype, rng) for s in shapes)], {}
    axes = ((0,), (2, 0), (), (0, 1, 2))
    for name, axis, keepdims in itertools.product(REDUCTIONS, axes, (False, True)):
        yield name, [x], {"axis": axis, "keepdims": keepdims}


def refuses(function, args, params):
    try:
        jax.eval_shape(lambda *xs: function(*xs, **params), *args)
    except TypeError:
        return True
    return False


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
@pytest.mark.parametrize("dtype", DTYPES)
def test_direct_functions_are_those_of_jax_numpy(dtype):
    allowed = []
    for name, args, params in calls(dtype):
        pair = (lean.DIRECT[f"jnp.{name}"], getattr(jnp, name))
        ours, theirs = (refuses(f, args, params) for f in pair)
        assert ours == theirs, (name, dtype)
        if not theirs:
            allowed.append((name, pair, args, params))
    assert len(allowed) > 60
    every = jax.jit(  # one module: compiling each would be most of the time
        lambda arrays: [
            [f(*xs, **c[3]) for f in c[1]] for c, xs in zip(allowed, arrays, strict=True)
        ]
    )
    for (name, *_), (ours, theirs) in zip(allowed, every([c[2] for c in allowed]), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, (name, dtype)
        same(ours, theirs)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sums_of_16_bit_values_are_wide_inside(dtype):
    rule = lean.DIRECT["jnp.sum"]
    text = str(jax.make_jaxpr(lambda x: rule(x, axis=(0,), keepdims=False))(jnp.ones(5, dtype)))
    assert "new_dtype=float32" in text and "reduce_sum" in text


def test_spread_is_broadcasting():
    x = jnp.arange(3.0).reshape(3, 1)
    same(lean.spread(x, (2, 3, 4), x.dtype), jnp.broadcast_to(x, (2, 3, 4)))
    same(lean.spread(0.5, (2,), np.float32), jnp.full((2,), 0.5, np.float32))


def test_numbers_follow_the_dtype_of_the_array():
    x = jnp.asarray([1.0, -1.0], "bfloat16")
    same(lean.where(x > 0, x, 7), jnp.asarray([1, 7], "bfloat16"))


def test_take_along_permutes_rows_of_each_matrix():
    x = jnp.arange(24.0).reshape(2, 4, 3)
    order = jnp.asarray([[3, 0, 1, 2], [1, 0, 3, 2]])
    want = np.take_along_axis(np.asarray(x), np.asarray(order)[..., None], 1)
    np.testing.assert_array_equal(np.asarray(lean.take_along(x, order, -2)), want)


@pytest.mark.parametrize("order", range(5))
def test_digammas(order):
    x = np.concatenate([np.geomspace(1e-6, 1e6, 97), np.linspace(1, 3, 31)])
    want = scipy.special.psi(x) if order == 0 else scipy.special.polygamma(order, x)
    scale = np.maximum(np.abs(want), 1 if order == 0 else 0)
    for dtype, rtol in ((np.float64, 1e-14), (np.float32, 3e-6)):
        with jax.enable_x64(True):
            got = np.asarray(jax.jit(lambda v: series.digammas(order, v))(x.astype(dtype)))
        assert got.dtype == dtype
        fits = np.abs(want) < np.finfo(dtype).max
        fits &= np.abs(want) > np.finfo(dtype).tiny
        assert np.all(np.abs(got - want)[fits] <= rtol * scale[fits])


def test_a_series_keeps_the_terms_its_dtype_needs():
    terms = [0.5**k for k in range(80)]
    short, long = (series.enough(terms, 1.0, d, 1.0) for d in (np.float32, np.float64))
    assert len(short) == 26 and len(long) == 55 and long == terms[:55]
    assert series.enough([0.0, 1e-9], 1.0, jnp.bfloat16, 1.0) == [0.0]


def test_exponentials_are_right_to_round_off_at_every_scale():
    rng = np.random.default_rng(6)
    expm = jax.jit(rules()["expm"])
    for n, size in ((1, 0.9), (2, 1.0), (3, 1.99), (4, 2.0), (5, 7.0), (3, 60.0), (3, 1e-30)):
        for a in (rng.standard_normal((n, n)), 0.01 * rng.standard_normal((n, n)) - np.eye(n)):
            a = a / np.abs(a).sum(0).max() * size
            want = kernels.expm(a)
            with jax.enable_x64(True):
                got = np.asarray(expm(a))
            assert np.abs(got - want).max() <= 1e-15 * max(1, size) * np.abs(want).max()


def test_a_matrix_without_an_exponential_leaves_its_neighbours_alone():
    expm = jax.jit(rules()["expm"])
    a = np.zeros((4, 2, 2), np.float32)
    a[0, 0, 1], a[1, 1, 1], a[2] = np.nan, np.inf, -3e38 * np.eye(2)
    got = np.asarray(expm(a))
    assert np.isnan(got[:2]).all()
    np.testing.assert_array_equal(got[2:], [np.zeros((2, 2)), np.eye(2)])
    np.testing.assert_array_equal(np.asarray(expm(a[3])), np.eye(2))


@pytest.mark.parametrize("size", [0.0, 1e-36, 1e-30, 1.0, 1e30])
def test_directions_of_any_size_cost_no_digits(size):
    rng = np.random.default_rng(7)
    a, t = (rng.standard_normal((3, 3)).astype(np.float32) for _ in range(2))
    got = np.asarray(jax.jit(rules()["expm_frechet"])(a, np.float32(size) * t))
    want = size * kernels.expm_frechet(a.astype(np.float64), t.astype(np.float64))
    assert np.abs(got - want).max() <= 3e-6 * np.abs(want).max()
