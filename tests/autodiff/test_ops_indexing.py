"""Indexing: NumPy's rules, duplicates, windows, and public bug reports."""

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import GuardError, IndexingError, ShapeError, TracerError
from autodiff.lower.jax import lower_jax

RNG = np.random.default_rng(11)


def real(*shape):
    return RNG.normal(size=shape)


def kinds(program):
    return [eq.op.kind for eq in program.equations]


# --- NumPy's rules ---------------------------------------------------------------------------


def random_index(shape):
    """An index expression with every kind of entry, from NumPy's grammar."""
    family = [(3,), (2, 3), (1, 3), (2, 1)][RNG.integers(4)]
    index, axis, dotted = [], 0, False
    while axis < len(shape) and RNG.random() < 0.9:
        n, kind = shape[axis], RNG.integers(9)
        if kind == 0:
            index.append(None)
            continue
        if kind == 1:
            if not dotted:
                index.append(...)
                dotted = True
                axis += RNG.integers(2)
            continue
        if kind in (2, 3):
            a, b = RNG.integers(-n - 1, n + 2, 2)
            ends = [None if RNG.random() < 0.3 else int(v) for v in (a, b)]
            index.append(slice(*ends, int(RNG.choice([-2, -1, 1, 2, 3]))))
        elif kind == 4:
            index.append(int(RNG.integers(-n, n)))
        elif kind in (5, 6):
            index.append(RNG.integers(-n, n, family))
        elif kind == 7:
            index.append(RNG.random(n) < 0.5)
        else:
            index.append(bool(RNG.random() < 0.5))
            continue
        axis += 1
    return tuple(index)


def indexed(x, arrays, index):
    """x[index] with its integer arrays given apart, so that they can be traced."""
    given = iter(arrays)
    return x[tuple(next(given) if is_integers(i) else i for i in index)]


def is_integers(entry):
    return isinstance(entry, np.ndarray) and entry.dtype != np.bool_


def test_random_index_expressions_equal_numpy():
    compared = 0
    for _ in range(400):
        shape = tuple(int(n) for n in RNG.integers(1, 5, RNG.integers(1, 5)))
        x, index = real(*shape), random_index(shape)
        try:
            expected = x[index]
        except IndexError:
            with pytest.raises(IndexError):
                ops.index(x, index)
            continue
        compared += 1
        where = f"x of shape {shape}, index {index}"
        np.testing.assert_array_equal(ops.index(x, index), expected, err_msg=where)
        arrays = [i for i in index if is_integers(i)]
        program = ad.trace(lambda x, a, index=index: indexed(x, a, index), x, arrays)
        assert program.out_specs[0].shape == np.shape(expected), where
        np.testing.assert_array_equal(ad.interpret(program, x, arrays), expected, err_msg=where)
        ct = RNG.normal(size=np.shape(expected))
        _, pullback = ad.vjp(lambda x, index=index: x[index], x)
        sums = np.zeros(shape)
        np.add.at(sums, index, ct)
        np.testing.assert_allclose(pullback(ct)[0], sums, rtol=0, atol=1e-13, err_msg=where)
        assigned = x.copy()
        assigned[index] = ct
        np.testing.assert_array_equal(ops.index_update(x, index, ct), assigned, err_msg=where)
        np.testing.assert_allclose(ops.scatter_add(x, index, ct), x + sums, rtol=0, atol=1e-13)
    assert compared > 300


def test_ellipsis_of_no_axes_separates_arrays():
    # NumPy puts the axes first here although nothing lies between the arrays
    x = real(4, 5, 6)
    rows, columns = [0, 1], [2, 3]
    assert x[:3, rows, ..., columns].shape == (2, 3)
    np.testing.assert_array_equal(
        ops.index(x, (slice(3), rows, ..., columns)), x[:3, rows, ..., columns]
    )


def test_index_arrays_are_read_as_numpy_reads_them():
    x = real(3, 4)
    for index in ([], [[]], (0, []), np.uint8([2, 1]), (np.asarray(1), [0]), [True, False, True]):
        expected = x[index]
        np.testing.assert_array_equal(ops.index(x, index), expected)


def test_lists_of_traced_integers_are_stacked():
    x = real(4)
    program = ad.trace(lambda x, i: x[[i, 0, i + 1]], x, np.asarray(2))
    np.testing.assert_array_equal(ad.interpret(program, x, np.asarray(1)), x[[1, 0, 2]])


def test_traced_indices_vary_without_a_guard():
    x, i = real(5), np.array([1, -1])
    program = ad.trace(lambda x, i: x[i], x, i)
    assert "GUARD" not in kinds(program)
    np.testing.assert_array_equal(ad.interpret(program, x, np.array([4, 0])), x[[4, 0]])
    with pytest.raises(IndexError):
        ad.interpret(program, x, np.array([5, 0]))


def test_a_concrete_mask_becomes_a_guard():
    x = np.array([1.0, -2.0, 3.0])
    value, gradient = ad.value_and_grad(lambda x: (x[x > 0] ** 2).sum())(x)
    assert value == 10.0
    np.testing.assert_array_equal(gradient, [2.0, 0.0, 6.0])
    program = ad.trace(lambda x: x[x > 0], x)
    with pytest.raises(GuardError):
        ad.interpret(program, -x)


def test_a_mask_without_a_value_names_where():
    with pytest.raises(TracerError) as error:
        ad.vmap(lambda x: x[x > 0])(real(2, 3))
    what, where, fix = str(error.value).splitlines()
    assert what.startswith("a traced boolean mask is used as an index")
    assert "test_ops_indexing.py" in where and "x[x > 0]" in where
    assert fix.startswith("use np.where(mask, x, 0)")


def test_assignment_under_a_mask_needs_no_value():
    x = real(2, 3)
    batch = ad.vmap(lambda x: ops.index_update(x, x > 0, 0.5))(x)
    np.testing.assert_array_equal(batch, np.where(x > 0, 0.5, x))
    added = ad.vmap(lambda x: ops.scatter_add(x, x > 0, x[0]))(x)
    np.testing.assert_array_equal(added, np.where(x > 0, x + x[:, :1], x))
    rows = ad.vmap(lambda x, m: ops.index_update(x, m, np.array([7.0, 8.0])))(
        np.ones((2, 3, 2)), np.array([[True, False, True]] * 2)
    )
    np.testing.assert_array_equal(rows[0], [[7, 8], [1, 1], [7, 8]])


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ((0, 0, 0), "too many indices: array is 2-d, but 3 were indexed"),
        ((..., ...), "an index can only have a single ellipsis"),
        (3, "index 3 is out of bounds for axis 0 with size 3"),
        ((0, [1, -5]), "index -5 is out of bounds for axis 1 with size 4"),
        (1.5, "1.5 of type float is not an index"),
        ("name", "'name' of type str is not an index"),
        (np.ones(2), "of type ndarray is not an index"),
        ([True, False], "boolean index did not match indexed array along axis 0"),
        (([0, 1], [0, 1, 2]), r"index arrays do not broadcast: \(2,\), \(3,\)"),
    ],
)
def test_bad_indices_raise_as_numpy_and_say_why(index, message):
    x = real(3, 4)
    with pytest.raises(IndexError):
        x[index]
    with pytest.raises(ShapeError, match=message):
        ops.index(x, index)
    with pytest.raises(ShapeError, match=message):
        ad.grad(lambda x: x[index].sum())(x)


def test_index_errors_have_three_lines_and_name_the_line():
    with pytest.raises(IndexingError) as error:
        ad.grad(lambda x: x[7])(real(3))
    what, where, fix = str(error.value).splitlines()
    assert what == "index 7 is out of bounds for axis 0 with size 3"
    assert where.startswith("indexing an array of shape (3,) at ") and "x[7]" in where
    assert fix == "use integers, slices, ..., None, and integer or boolean arrays"


# --- duplicates ------------------------------------------------------------------------------


def test_every_copy_of_an_element_sends_its_cotangent():
    # pytorch/pytorch#1528: only the last copy of a duplicated element had a gradient
    for place in (0, 1):
        assert ad.grad(lambda x, place=place: x[[0, 0]][place])(np.ones(1)) == 1.0


def test_overwritten_updates_have_no_gradient():
    # tensorflow/tensorflow#56961 sums the gradients of duplicates of an assignment
    x, value = real(3), real(4)
    index, weights = np.array([1, 1, 2, 1]), real(3)
    bars = ad.grad(lambda x, v: ops.index_update(x, index, v) @ weights, (0, 1))(x, value)
    np.testing.assert_array_equal(bars[0], [weights[0], 0, 0])
    np.testing.assert_array_equal(bars[1], [0, 0, weights[2], weights[1]])


def test_one_value_written_twice_counts_once():
    # pytorch/pytorch#57006: index_fill counted the value's gradient once for each duplicate
    weights = real(5)
    slope = ad.grad(lambda v: ops.index_update(np.ones(5), [2, 2], v) @ weights)(np.float64(-2.5))
    assert slope == weights[2]


def test_overwritten_array_has_no_influence():
    # tensorflow/tensorflow#7397: a fully overwritten operand of dynamic_stitch had slope 1
    jacobian = ad.jacrev(lambda x: ops.index_update(x, slice(None), np.ones(3)))(real(3))
    np.testing.assert_array_equal(jacobian, np.zeros((3, 3)))


def test_overwriting_a_nan_keeps_the_rest_exact():
    x = np.array([np.nan, 2.0])
    value, bar = ad.value_and_grad(lambda x: (ops.index_update(x, 0, 3.0) ** 2).sum())(x)
    assert value == 13.0
    np.testing.assert_array_equal(bar, [0.0, 4.0])


@pytest.mark.parametrize("kind", ["index_update", "scatter_add"])
def test_second_derivatives_with_duplicates(kind):
    f = getattr(ops, kind)
    x, value, direction = real(3), real(4), real(4)
    index = np.array([1, 1, 0, 1])

    def loss(v):
        return (f(x, index, v) ** 3).sum()

    g = ad.grad(loss)
    h = 1e-5
    slope = (g(value + h * direction) - g(value - h * direction)) / (2 * h)
    np.testing.assert_allclose(ad.hvp(loss, (value,), (direction,)), slope, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("n", [1, 3, 200])
@pytest.mark.parametrize("rest", [(), (1,), (4,), (2, 3), (0,)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int64, np.bool_])
def test_scatter_add_equals_add_at(n, rest, dtype):
    x = RNG.integers(0, 9, (5, *rest)).astype(dtype)
    index = RNG.integers(-5, 5, (n, 2))
    updates = RNG.integers(0, 9, (n, 2, *rest)).astype(dtype)
    expected = x.copy()
    np.add.at(expected, index, updates)
    out = ops.scatter_add(x, index, updates)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, expected)


def test_scatter_add_spreads_nan_to_its_own_rows_alone():
    index = np.array([0, 0, 2, 2] * 20)
    updates = np.ones((80, 3))
    updates[0, 1], updates[2, 2] = np.nan, np.inf
    out = ops.scatter_add(np.zeros((4, 3)), index, updates)
    assert np.isnan(out[0, 1]) and out[2, 2] == np.inf
    out[0, 1] = out[2, 2] = 40
    np.testing.assert_array_equal(out, [[40] * 3, [0] * 3, [40] * 3, [0] * 3])


@pytest.mark.parametrize("order", ["columns", "backwards", "transposed"])
def test_the_last_value_wins_whatever_the_memory_order(order):
    # NumPy itself assigns in the order of memory where index and value agree on it
    for _ in range(20):
        index = RNG.integers(0, 3, (4, 5))
        if order == "columns":
            index = np.asfortranarray(index)
        else:
            index = index[::-1, ::-1] if order == "backwards" else RNG.integers(0, 3, (5, 4)).T
        value = np.asfortranarray(real(4, 5))
        expected, winners = np.zeros(3), {}
        for place, at in zip(index.ravel(), np.ndindex(4, 5), strict=True):
            expected[place], winners[place] = value[at], at
        np.testing.assert_array_equal(ops.scatter(np.zeros(3), index, value), expected)
        np.testing.assert_array_equal(ops.index_update(np.zeros(3), index, value), expected)
        bar = ad.grad(lambda v, i=index: ops.scatter(np.zeros(3), i, v).sum())(value)
        assert {tuple(at) for at in np.argwhere(bar)} == set(winners.values())


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_mapped_arrays_gathered_at_mapped_indices(axis):
    x, index = real(5, 2, 3, 4), RNG.integers(-2, 2, (5, 2))
    out = ad.vmap(lambda x, i: ops.gather(x, i, axis))(x, index)
    np.testing.assert_array_equal(out, [np.take(r, i, axis) for r, i in zip(x, index, strict=True)])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_one_array_gathered_at_mapped_indices(axis):
    x, index = real(2, 3, 4), RNG.integers(-2, 2, (5, 2))
    out = ad.vmap(lambda i: ops.gather(x, i, axis))(index)
    np.testing.assert_array_equal(out, [np.take(x, i, axis) for i in index])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint64])
def test_narrow_index_types_on_long_axes(dtype):
    x, i = real(300), np.array([5, 127, 5], dtype)
    np.testing.assert_array_equal(ops.gather(x, i, mode="clip"), x[i])
    np.testing.assert_array_equal(ops.gather(x, i, mode="wrap"), x[i])
    assert ops.one_hot(i, 300).sum() == 3 and ops.one_hot(i, 300)[1, 127] == 1
    table = real(300, 1)
    rows = ad.vmap(lambda k: ops.embedding(table, k, padding_index=127))(i)
    np.testing.assert_array_equal(rows, table[i] * (i != 127)[:, None])
    windows = ad.vmap(lambda s: ops.dynamic_slice(x, (s,), (2,)))(i)
    np.testing.assert_array_equal(windows, x[i.astype(int)[:, None] + [0, 1]])
    updates = ad.trace(lambda x, i: ops.scatter(x, i, 1.0), x, i)
    expected = x.copy()
    expected[i] = 1.0
    np.testing.assert_array_equal(ad.interpret(updates, x, i), expected)
    np.testing.assert_array_equal(lower_jax(updates)(x, i), expected)


def test_values_that_do_not_fit_their_array_are_refused():
    with pytest.raises(
        ShapeError, match=r"float64 value is put into an array of int64[\s\S]*astype"
    ):
        ops.index_update(np.zeros(3, int), 0, 1.5)
    with pytest.raises(ShapeError, match="complex128 value is put into an array of float64"):
        ad.grad(lambda x: ops.scatter_add(x, 0, 1j).sum())(real(3))
    with pytest.raises(ShapeError, match=r"cannot broadcast \(2,\) to \(3,\)"):
        ops.index_update(real(3), slice(None), real(2))


def test_inputs_are_neither_changed_nor_returned():
    x, frozen = real(3, 3), None
    x.flags.writeable = False
    before = x.copy()
    for out in (
        ops.index(x, slice(None)),
        ops.index_update(x, (0, 0), 1.0),
        ops.scatter_add(x, [0, 0], 1.0),
        ad.vmap(lambda r: r[::-1])(x),
        ops.dynamic_slice(x, (0, 0), (3, 3)),
        ops.take_along_axis(x, np.zeros((3, 3), int)),
    ):
        frozen = out
        if out is not x:
            assert not np.may_share_memory(out, x)
    np.testing.assert_array_equal(x, before)
    assert frozen is not None


# --- mapping -----------------------------------------------------------------------------------


def test_index_computed_from_the_mapped_value():
    # jax-ml/jax#275: a gather at indices that depend on the mapped argument
    x = real(10, 3)
    out = ad.vmap(lambda v: v[np.argsort(v)])(x)
    np.testing.assert_array_equal(out, np.sort(x, axis=1))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("kind", ["index_update", "scatter_add"])
def test_scatter_mapped_over_any_axis(axis, kind):
    # ml-explore/mlx#4321: updates were transposed when the mapped axis was 2 or later
    f = getattr(ops, kind)
    x, value = real(2, 3, 4), real(2, 3, 4)
    index = np.array([1, 0])

    def one(x, v):
        return f(x, index, v[:2])

    out = ad.vmap(one, axis, axis)(x, value)
    rows = [one(np.take(x, b, axis), np.take(value, b, axis)) for b in range(x.shape[axis])]
    np.testing.assert_array_equal(out, np.stack(rows, axis))


def test_equation_count_does_not_depend_on_the_batch():
    def f(x, i, v):
        y = ops.index_update(x, (i, slice(None), i), v)
        return ops.embedding(y[..., 0], i, padding_index=1).sum() + y[i, :, i].sum()

    def count(size):
        args = (real(size, 3, 2, 3), RNG.integers(0, 3, (size, 4)), real(size, 4, 2))
        return len(ad.trace(lambda *a: ad.vmap(ad.grad(f))(*a), *args).equations)

    assert count(3) == count(300)
