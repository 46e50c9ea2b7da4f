"""Gather, scatter and look-ups: errors, padding rows, segments, and what JAX is told."""

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import IndexingError, ShapeError
from autodiff.lower.jax import lower_jax
from autodiff.lower.stablehlo import eval_stablehlo, lower_stablehlo

RNG = np.random.default_rng(19)


def real(*shape):
    return RNG.normal(size=shape)


# --- gather, embedding, segments ----------------------------------------------------------------


def test_gather_errors():
    with pytest.raises(IndexingError, match="index 3 is out of bounds for axis 1 with size 3"):
        ops.gather(real(2, 3), [0, 3], axis=-1)
    with pytest.raises(IndexingError, match="indices are float64, not integers"):
        ops.gather(real(3), real(2))
    with pytest.raises(IndexingError, match="mode 'fill' is unknown"):
        ops.gather(real(3), [0], mode="fill")
    with pytest.raises(ShapeError, match="axis 2 is out of bounds"):
        ops.gather(real(3), [0], axis=2)


def test_padding_row_is_zero_even_where_the_table_is_not_finite():
    table = np.array([[np.nan, np.inf], [1.0, 2.0]])
    ids = np.array([[0, 1], [1, 0]])
    rows, pullback = ad.vjp(lambda t: ops.embedding(t, ids, padding_index=0), table)
    np.testing.assert_array_equal(rows, [[[0, 0], [1, 2]], [[1, 2], [0, 0]]])
    (bar,) = pullback(np.full((2, 2, 2), np.inf))
    np.testing.assert_array_equal(bar, [[0, 0], [np.inf, np.inf]])


def test_embedding_errors():
    with pytest.raises(ShapeError, match=r"padding index 9 is not a row[\s\S]*between 0 and 1"):
        ops.embedding(real(2, 3), [0], padding_index=9)
    with pytest.raises(IndexingError, match="index 2 is out of bounds for axis 0 with size 2"):
        ops.embedding(real(2, 3), [2])


def test_segment_sum_of_unsorted_ids():
    data, ids = real(6, 2), np.array([2, 0, 2, 2, 0, 3])
    expected = [data[ids == s].sum(axis=0) for s in range(5)]
    np.testing.assert_allclose(ops.segment_sum(data, ids, 5), expected, rtol=1e-15, atol=1e-15)


# --- lowered to JAX ------------------------------------------------------------------------------


def test_the_last_update_wins_on_jax_too():
    # XLA leaves the order of duplicates open: ours are resolved before
    pytest.importorskip("jax")
    index = RNG.integers(-7, 7, (400,))
    value = real(400, 2)
    program = ad.trace(lambda v, i: ops.index_update(np.zeros((7, 2)), i, v), value, index)
    expected = np.zeros((7, 2))
    expected[index] = value
    np.testing.assert_array_equal(lower_jax(program)(value, index), expected)
    tail = index[:, None] * 0 + index
    program = ad.trace(
        lambda v, i, j: ops.index_update(np.zeros((7, 7)), (i, j), v),
        tail * 1.0,
        index[:, None],
        index,
    )
    expected = np.zeros((7, 7))
    expected[index[:, None], index] = tail
    np.testing.assert_array_equal(lower_jax(program)(tail * 1.0, index[:, None], index), expected)


def test_the_reference_interpreter_leaves_scattered_arrays_alone():
    # jaxlib's interpreter writes into a scatter's operand, which others may still read
    def f(x, v, i):
        return ops.scatter(x, i, v), ops.gather(x, i), ops.scatter_add(x, [0], v[:1]) + x

    x, v, i = real(3), real(2), np.array([2, 2])
    program = ad.trace(f, x, v, i)
    found = eval_stablehlo(lower_stablehlo(program), [x, v, i])
    for got, expected in zip(found, f(x, v, i), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-15)


def test_jax_marks_positions_outside_with_nan():
    pytest.importorskip("jax")
    program = ad.trace(lambda x, i: x[i], real(3), np.array([0, 1]))
    out = np.asarray(lower_jax(program)(np.arange(3.0), np.array([-1, 3])))
    assert out[0] == 2.0 and np.isnan(out[1])
