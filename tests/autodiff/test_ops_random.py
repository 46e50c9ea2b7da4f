"""Random numbers: known answers, bit-equality with JAX, keys as operands, derivatives."""

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError
from autodiff.kernels.random import threefry

KEY = ops.rng_key(42)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_known_answers_of_random123(counter, key, expected):
    # kat_vectors of the Random123 distribution, threefry 2 32 20
    words = [np.array([c], np.uint32) for c in counter]
    got = threefry(np.array(key, np.uint32), *words)
    assert (int(got[0][0]), int(got[1][0])) == expected


def test_positions_beyond_32_bits_use_the_high_word():
    # a word depends on its 64-bit position alone, not on the shape it is drawn in
    np.testing.assert_array_equal(ops.rng_bits(KEY, (2, 3)).ravel(), ops.rng_bits(KEY, 6))
    np.testing.assert_array_equal(ops.rng_bits(KEY, 6)[:4], ops.rng_bits(KEY, 4))


@pytest.mark.parametrize(
    ("shape", "dtype"), [((), np.float32), ((37, 5), np.float32), ((37, 5), np.float64)]
)
def test_bits_and_uniform_are_jaxs_bit_for_bit(shape, dtype):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True), jax.threefry_partitionable(True):
        key = jax.random.key(42)
        word = {np.float32: "uint32", np.float64: "uint64"}[dtype]
        bits = ops.rng_bits(KEY, shape, 8 * np.dtype(dtype).itemsize)
        np.testing.assert_array_equal(jax.random.bits(key, shape, word), bits)
        uniform = ops.rng_uniform(KEY, shape, dtype=dtype)
        assert uniform.dtype == dtype
        np.testing.assert_array_equal(jax.random.uniform(key, shape, dtype), uniform)
        coins = ops.bernoulli(KEY, dtype(0.3), shape)
        np.testing.assert_array_equal(jax.random.bernoulli(key, dtype(0.3), shape), coins)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_is_jaxs_within_the_inverse_error_function(dtype):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True), jax.threefry_partitionable(True):
        expected = np.asarray(jax.random.normal(jax.random.key(42), (2000,), dtype))
    got = ops.rng_normal(KEY, 2000, dtype=dtype)
    # XLA's erf_inv: 65 ulp at best, more near 0
    np.testing.assert_allclose(got, expected, rtol=256 * np.finfo(dtype).eps)


def test_keys_split_and_fold_as_jaxs():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True), jax.threefry_partitionable(True):
        for seed in (2**40 + 3, -1):
            key = jax.random.key(seed)
            ours = ops.rng_key(seed)
            np.testing.assert_array_equal(jax.random.key_data(key), ours)
            split = jax.random.key_data(jax.random.split(key, (3, 2)))
            np.testing.assert_array_equal(split, ops.rng_split(ours, (3, 2)))
            folded = jax.random.key_data(jax.random.fold_in(key, 12345))
            np.testing.assert_array_equal(folded, ops.rng_fold_in(ours, 12345))


def test_vmap_over_keys_draws_each_keys_numbers():
    keys = ops.rng_split(KEY, 4)
    mapped = ad.vmap(lambda k: ops.rng_uniform(k, (3,), dtype=np.float64))(keys)
    np.testing.assert_array_equal(
        mapped, np.stack([ops.rng_uniform(k, (3,), dtype=np.float64) for k in keys])
    )
    np.testing.assert_array_equal(mapped, ops.rng_uniform(keys, (3,), dtype=np.float64))


def test_parameters_have_reparameterised_derivatives_and_keys_none():
    low, high = np.array([0.5, -1.0, 2.0]), np.float64(3.0)

    def draw(key, low, high):
        return ops.rng_uniform(key, (3,), low, high, np.float64)

    u = ops.rng_uniform(KEY, (3,), dtype=np.float64)
    ct = np.array([1.0, 2.0, -3.0])
    key_bar, low_bar, high_bar = ad.vjp(draw, KEY, low, high)[1](ct)
    assert key_bar is None
    np.testing.assert_array_equal(low_bar, ct * (1 - u))
    np.testing.assert_allclose(high_bar, np.sum(ct * u), rtol=1e-15)
    scale_bar = ad.grad(lambda s: np.sum(ct * ops.rng_normal(KEY, 3, 1.0, s, np.float64)))(2.0)
    z = ops.rng_normal(KEY, 3, dtype=np.float64)
    np.testing.assert_allclose(scale_bar, np.sum(ct * z), rtol=1e-14)


def test_draws_have_the_moments_of_their_distribution():
    u = ops.rng_uniform(KEY, 100_000, dtype=np.float64)
    z = ops.rng_normal(KEY, 100_000, 2.0, 3.0, np.float64)
    assert abs(u.mean() - 0.5) < 5e-3 and abs(u.var() - 1 / 12) < 2e-3
    assert abs(z.mean() - 2) < 5e-2 and abs(z.std() - 3) < 5e-2
    assert u.min() >= 0 and u.max() < 1 and np.isfinite(z).all()


def test_dropout_keeps_the_mean_and_the_mask():
    x = np.ones((200, 50))
    y = ops.dropout(KEY, x, 0.2)
    assert set(np.unique(y)) == {0.0, 1.25}
    assert abs(y.mean() - 1) < 0.02
    np.testing.assert_array_equal(ad.grad(lambda x: np.sum(2 * ops.dropout(KEY, x, 0.2)))(x), 2 * y)
    np.testing.assert_array_equal(ops.dropout(KEY, x, 0.0), x)
    np.testing.assert_array_equal(ops.dropout(KEY, x, 1.0), 0 * x)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: ops.rng_uniform(np.zeros(2), 3),
            ShapeError,
            r"takes keys of two uint32, got float64\[2\]\n.*\nmake one with autodiff.ops.rng_key",
        ),
        (
            lambda: ops.rng_uniform(KEY, 3, np.zeros(2)),
            ShapeError,
            r"cannot broadcast parameters \(2,\) and \(\) to \(3,\)",
        ),
        (
            lambda: ops.rng_normal(KEY, dtype=np.float16),
            ShapeError,
            "draws float32 or float64, not float16\n.*\ndraw float32 and convert",
        ),
        (lambda: ops.dropout(KEY, np.ones(2), 1.5), ShapeError, "DROPOUT cannot drop 1.5"),
        (lambda: ops.rng_key(2**64), ValueError, "does not fit in 64 bits"),
    ],
    ids=["key", "broadcast", "dtype", "rate", "seed"],
)
def test_errors_say_what_and_the_way_out(call, error, text):
    with pytest.raises(error, match=text):
        call()
