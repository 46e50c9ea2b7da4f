"""Windows at run-time positions: clamped as jax.lax clamps, in every mode and mapping."""

import itertools

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError

RNG = np.random.default_rng(17)


def real(*shape):
    return RNG.normal(size=shape)


def test_mapped_update_is_moved_inside():
    # jax-ml/jax#9083: the mapped update that ran past the end was dropped
    def f(i):
        return ops.dynamic_update_slice(np.zeros(5), np.ones(3), (i,))

    expected = [[0, 1, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 1, 1, 1]]
    np.testing.assert_array_equal(ad.vmap(f)(np.array([1, 2, 3])), expected)
    np.testing.assert_array_equal([f(np.asarray(i)) for i in (1, 2, 3)], expected)


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("mode", ["jacrev", "jacfwd"])
def test_jacobian_of_a_clamped_gather(mapped, mode):
    # jax-ml/jax#34228: reverse mode gave 0 for an index that was moved inside
    index = np.array([0, 2, 7, -9])

    def f(x):
        def element(i):
            return ops.gather(x, i, mode="clip")

        return ad.vmap(element)(index) if mapped else ops.stack([element(i) for i in index])

    jacobian = getattr(ad, mode)(f)(np.array([10.0, 20.0, 30.0]))
    np.testing.assert_array_equal(jacobian, [[1, 0, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]])


@pytest.mark.parametrize("mode", ["jacrev", "jacfwd"])
def test_jacobian_of_one_element_taken_beyond_its_end(mode):
    def f(x):
        return ad.vmap(lambda i: ops.dynamic_slice(x, (i,), (1,))[0])(np.array([1]))

    np.testing.assert_array_equal(getattr(ad, mode)(f)(np.array([1.0])), [[1.0]])


def test_windows_equal_jax():
    lax = pytest.importorskip("jax.lax")
    x, update = np.arange(12.0).reshape(3, 4), -np.ones((2, 3))
    for starts in itertools.product((-9, -2, -1, 0, 1, 2, 9), repeat=2):
        places = [np.asarray(s, np.int32) for s in starts]
        ours = ops.dynamic_slice(x, places, (2, 3))
        np.testing.assert_array_equal(ours, lax.dynamic_slice(x, starts, (2, 3)))
        ours = ops.dynamic_update_slice(x, update, places)
        np.testing.assert_array_equal(ours, lax.dynamic_update_slice(x, update, starts))


@pytest.mark.parametrize("axes", list(itertools.product((0, None), repeat=3))[:-1])
def test_every_mapping_of_a_window(axes):
    args = (real(2, 4, 3), real(2, 2, 2), np.array([7, -3]))
    given = [a if axis == 0 else a[0] for a, axis in zip(args, axes, strict=True)]

    def f(x, update, i):
        y = ops.dynamic_update_slice(x, update, (i, 1))
        return ops.dynamic_slice(y * y, (1, i), (2, 2))

    rows = [
        f(*(a[b] if axis == 0 else a for a, axis in zip(given, axes, strict=True)))
        for b in range(2)
    ]
    np.testing.assert_array_equal(ad.vmap(f, axes)(*given), rows)


def test_window_errors():
    with pytest.raises(
        ShapeError, match=r"a window of \(4,\) does not fit into an array of \(3,\)"
    ):
        ops.dynamic_slice(real(3), (0,), (4,))
    with pytest.raises(ShapeError, match="starts are missing for 1 axes"):
        ops.dynamic_slice(real(3), (), (2,))
    with pytest.raises(ShapeError, match="the update is float32, the array float64"):
        ad.op.get("DYNAMIC_UPDATE_SLICE").out_specs(
            (ad.Spec((3,), np.float64), ad.Spec((2,), np.float32), ad.Spec((), np.int64)), {}
        )
