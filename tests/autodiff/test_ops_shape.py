"""Shape ops: adjoints, extents from other operands, errors."""

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError

RNG = np.random.default_rng(2)


def real(*shape):
    return RNG.normal(size=shape)


def kinds(program):
    return {eq.op.kind for eq in program.equations}


def test_slices_with_strides_and_their_adjoint_cover_every_remainder():
    for n in range(8):
        for start in range(n + 1):
            for stop in range(start, n + 1):
                for stride in range(1, 5):
                    x = real(n)
                    bounds = (start, stop, stride)
                    y, pullback = ad.vjp(lambda x, b=bounds: ops.slice_(x, *b), x)
                    np.testing.assert_array_equal(y, x[start:stop:stride])
                    ct = real(*y.shape)
                    expected = np.zeros(n)
                    expected[start:stop:stride] = ct
                    np.testing.assert_array_equal(pullback(ct)[0], expected)


def test_padding_and_its_adjoint_cover_every_width():
    for n in range(4):
        for low in range(3):
            for high in range(3):
                for gap in range(3):
                    x = real(n)
                    y, pullback = ad.vjp(lambda x, w=(low, high, gap): ops.pad(x, *w, 9.0), x)
                    assert y.shape == (low + n + max(n - 1, 0) * gap + high,)
                    own = np.arange(n) * (gap + 1) + low
                    expected = np.full(y.size, 9.0)
                    expected[own] = x
                    np.testing.assert_array_equal(y, expected)
                    ct = real(*y.shape)
                    np.testing.assert_array_equal(pullback(ct)[0], ct[own])


def test_joining_many_arrays_splits_the_cotangent_once():
    xs = [real(2, n) for n in (1, 3, 0, 2)]
    program = ad.trace(lambda xs: ad.grad(lambda xs: (np.concatenate(xs, 1) ** 2).sum())(xs), xs)
    assert [eq.op.kind for eq in program.equations].count("SPLIT") == 1
    for x, bar in zip(xs, ad.interpret(program, xs), strict=True):
        np.testing.assert_array_equal(bar, 2 * x)


def test_splitting_joins_the_cotangents_once():
    x = real(6, 2)
    w = [real(3, 2), real(3, 2)]

    def loss(x):
        a, b = np.split(x, 2)
        return (a * w[0]).sum() + (a * b * w[1]).sum()

    program = ad.trace(ad.grad(loss), x)
    assert [eq.op.kind for eq in program.equations].count("CONCAT") == 1
    np.testing.assert_allclose(
        ad.grad(loss)(x), np.concatenate([w[0] + x[3:] * w[1], x[:3] * w[1]]), rtol=1e-15
    )


def test_an_unused_part_has_cotangent_zero():
    bar = ad.grad(lambda x: np.split(x, 3)[1].sum())(real(6))
    np.testing.assert_array_equal(bar, [0, 0, 1, 1, 0, 0])


def test_padding_with_infinity_leaves_the_gradient_finite():
    # padding for a maximum: the gap is constant, its cotangent is dropped and not multiplied by 0
    bar = ad.grad(lambda x: np.max(ops.pad(x, 1, 1, value=-np.inf)))(np.array([1.0, 3.0, 2.0]))
    np.testing.assert_array_equal(bar, [0, 1, 0])


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("in_axis", [0, 1, 2, 3, -1])
def test_axis_parameters_under_mapping(axis, in_axis):
    # ml-explore/mlx#4332, #4288: a negative axis compared with the batch axis
    x = real(2, 3, 4, 5)

    def f(x):
        rolled = np.roll(ops.reverse(x, axis), 1, axis)
        pieces = np.split(np.concatenate([rolled, x], axis), [1], axis)
        return np.moveaxis(np.expand_dims(pieces[1], axis), axis, 0).repeat(2, axis)

    rows = [f(np.take(x, b, in_axis)) for b in range(x.shape[in_axis])]
    np.testing.assert_array_equal(ad.vmap(f, in_axis, -1)(x), np.stack(rows, -1))


def test_batches_of_one_and_none():
    # pytorch/pytorch#91041, #46846: a squeeze of the data axis took the batch axis with it
    assert ad.vmap(np.squeeze)(real(1, 1)).shape == (1,)
    assert ad.vmap(lambda x: np.squeeze(x, -1))(real(1, 3, 1)).shape == (1, 3)
    assert ad.vmap(np.squeeze)(real(0, 1, 3)).shape == (0, 3)
    assert ad.vmap(lambda x: np.stack([x, x]))(real(0, 3)).shape == (0, 2, 3)
    assert ad.vmap(lambda x: np.split(x, 3))(real(0, 3))[2].shape == (0, 1)


# --- extents from another operand -----------------------------------------------------------------

PAIRS = {
    "broadcast_like": (
        lambda x, t: ops.broadcast_like(x, t),
        (3,),
        (2, 3),
        {"BROADCAST_LIKE", "SUM_TO"},
    ),
    "slice_like": (
        lambda x, t: ops.slice_like(x, t, (1, 0)),
        (3, 4),
        (2, 3),
        {"SLICE_LIKE", "PAD_LIKE"},
    ),
    "pad_like": (
        lambda x, t: ops.pad_like(x, t, (1, 0)),
        (2, 3),
        (3, 4),
        {"SLICE_LIKE", "PAD_LIKE"},
    ),
    "slice_at": (lambda x, t: ops.slice_at(x, t, (9, -1)), (3, 4), (2, 3), {"SLICE_AT", "PAD_TO"}),
    "pad_to": (lambda x, t: ops.pad_to(x, t, (9, -1)), (2, 3), (3, 4), {"SLICE_AT", "PAD_TO"}),
    "check": (ops.check_shape_like, (2, 3), (2, 3), {"CHECK_SHAPE_LIKE"}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_closed_under_differentiation(name):
    f, shape, template, allowed = PAIRS[name]
    x, t = real(*shape), np.full(template, np.nan)

    def loss(x):
        return (f(x, t) ** 3).sum()

    linear = {"BROADCAST_LIKE", "SUM_TO", "SLICE_LIKE", "PAD_LIKE", "SLICE_AT", "PAD_TO"}
    linear |= {"CHECK_SHAPE_LIKE", "SLICE", "PAD", "DYNAMIC_SLICE", "DYNAMIC_UPDATE_SLICE"}
    g = ad.grad(loss)
    for derivative in (
        g,
        lambda x: ad.hvp(loss, (x,), (x,)),
        ad.grad(lambda x: (g(x) * x).sum()),
        ad.grad(lambda x: (ad.hvp(loss, (x,), (x,)) * x).sum()),
    ):
        used = kinds(ad.trace(derivative, x)) & linear
        assert used and used <= allowed
    np.testing.assert_allclose(ad.hvp(loss, (x,), (x,)), 2 * ad.grad(loss)(x), rtol=1e-14)


@pytest.mark.parametrize("name", PAIRS)
def test_a_template_gives_its_shape_alone(name):
    f, shape, template, _ = PAIRS[name]
    x, t = real(*shape), np.full(template, np.nan)
    y, pullback = ad.vjp(f, x, t)
    assert np.all(np.isfinite(y))
    x_bar, t_bar = pullback(np.ones(np.shape(y)))
    assert np.all(np.isfinite(x_bar))
    np.testing.assert_array_equal(t_bar, np.zeros(template))
    batch = ad.vmap(f, (None, 0))(x, np.stack([t, t]))
    np.testing.assert_array_equal(batch, np.stack([y, y]))


def test_templates_that_do_not_fit():
    for f, message in (
        (lambda: ops.broadcast_like(real(2), real(2, 3)), "does not fit a template"),
        (lambda: ops.slice_like(real(3), real(2), 2), r"a window of \(2,\) at \(2,\) does not fit"),
        (lambda: ops.pad_like(real(3), real(2)), r"a window of \(3,\) at \(0,\) does not fit"),
        (lambda: ops.slice_at(real(3), real(2), ()), "starts are missing for 1 axes"),
        (lambda: ops.check_shape_like(real(3), real(2)), "both must have one shape"),
    ):
        with pytest.raises(ShapeError, match=message) as error:
            f()
        assert len(str(error.value).splitlines()) == 3


# --- errors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: ops.reshape(x, (4, 2)), r"cannot reshape \(2, 3\)"),
        (lambda x: ops.reshape(x, (-1, -1)), r"at most one -1"),
        (lambda x: ops.broadcast_to(x, (3, 2)), r"cannot broadcast \(2, 3\) to \(3, 2\)"),
        (lambda x: ops.transpose(x, (0, 0)), r"axes \(0, 0\) do not permute 2 axes"),
        (lambda x: ops.slice_(x, 0, (3, 3)), r"cannot slice \(2, 3\) from \(0, 0\) to \(3, 3\)"),
        (lambda x: ops.slice_(x, (0,), (1,)), r"start \(0,\) has 1 entries for 2 axes"),
        (lambda x: ops.pad(x, -1, 0), r"cannot pad \(2, 3\) by low \(-1, -1\)"),
        (lambda x: ops.concatenate([x, x[:1]], 1), r"cannot join float64\[2,3\], float64\[1,3\]"),
        (lambda x: ops.concatenate([]), "need at least one array to concatenate"),
        (lambda x: ops.stack([x, x[0]]), r"cannot stack float64\[2,3\], float64\[3\]"),
        (lambda x: ops.stack([]), "need at least one array to stack"),
        (lambda x: ops.split(x, 2, 1), "cannot split an extent of 3 into 2 equal parts"),
        (lambda x: ops.squeeze(x, 0), r"cannot drop axes \(0,\) of shape \(2, 3\)"),
        (lambda x: ops.reverse(x, 2), "axis 2 is out of bounds for 2 axes"),
        (lambda x: ops.tile(x, (1, -1)), r"cannot tile \(2, 3\) by \(1, -1\)"),
        (lambda x: ops.repeat(x, [1, 2], 1), r"repeats \(1, 2\) do not fit axis 1"),
        (lambda x: np.moveaxis(x, (0, 1), 0), r"cannot move axes \(0, 1\) to 0"),
    ],
)
def test_shape_errors_have_three_lines(f, message):
    with pytest.raises(ShapeError, match=message) as error:
        ad.trace(f, real(2, 3))
    assert len(str(error.value).splitlines()) == 3
