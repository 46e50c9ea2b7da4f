"""Normalisation layers: offsets, scales, constant rows, reported cases, error texts."""

from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError
from tests.autodiff import softmax_reference as exact


def plain_layer_norm(x: Any, eps: float = 1e-5, axis: int = -1) -> Any:
    mean = np.mean(x, axis, keepdims=True)
    var = np.mean((x - mean) ** 2, axis, keepdims=True)
    return (x - mean) / np.sqrt(var + eps)


def plain_gradient(x: np.ndarray, g: np.ndarray, eps: float) -> np.ndarray:
    y = plain_layer_norm(x, eps)
    sigma = np.sqrt(np.var(x, -1, keepdims=True) + eps)
    mixed = np.mean(g * y, -1, keepdims=True)
    return (g - np.mean(g, -1, keepdims=True) - y * mixed) / sigma


# --- layer norm ------------------------------------------------------------------------------


def test_layer_norm_with_a_large_common_offset():
    rng = np.random.default_rng(0)
    x = (1e4 + rng.normal(size=(20, 64))).astype(np.float32)
    g = rng.normal(size=x.shape).astype(np.float32)
    wide = x.astype(np.float64)
    want, slope = plain_layer_norm(wide), plain_gradient(wide, g.astype(np.float64), 1e-5)
    for road, y in exact.roads(ops.layer_norm, x).items():
        assert np.max(np.abs(y - want)) <= 2e-6, road
    for road, y in exact.roads(lambda v, c: ad.vjp(ops.layer_norm, v)[1](c)[0], x, g).items():
        assert np.max(np.abs(y - slope)) <= 4e-6 * np.max(np.abs(slope)), road
    # one pass over the mean leaves its rounding error in every entry
    assert np.max(np.abs(plain_layer_norm(x) - want)) > 1e-5


def test_layer_norm_gradient_of_a_varied_cotangent():
    # HomericIntelligence/Mnemosyne#730, chainer/chainer#3541
    x = np.asarray([0.2, -1.0, 0.5, 2.0])
    g = np.asarray([-0.3, -0.05, 0.2, 0.45])
    want = [-0.3111695106474865, 0.1348377651231914, 0.10372317021582883, 0.0726085753084663]
    (y,) = ad.vjp(ops.layer_norm, x)[1](g)
    np.testing.assert_allclose(y, want, rtol=1e-13)
    (y,) = ad.vjp(ops.layer_norm, x)[1](np.ones(4))
    np.testing.assert_allclose(y, np.zeros(4), atol=1e-15)


def test_layer_norm_parameters():
    rng = np.random.default_rng(1)
    x, w, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    flat = plain_layer_norm(x.reshape(2, 12)).reshape(2, 3, 4)
    axis = (1, 2)
    np.testing.assert_allclose(ops.layer_norm(x, w, b, axis=axis), flat * w + b, rtol=1e-12)
    np.testing.assert_allclose(ops.layer_norm(x, bias=b, axis=axis), flat + b, rtol=1e-12)
    ct = rng.normal(size=x.shape)
    _, gw, gb = ad.vjp(lambda u, v, c: ops.layer_norm(u, v, c, axis), x, w, b)[1](ct)
    np.testing.assert_allclose(gw, np.sum(ct * flat, 0), rtol=1e-12)
    np.testing.assert_allclose(gb, np.sum(ct, 0), rtol=1e-12)


def test_constant_rows():
    np.testing.assert_array_equal(ops.layer_norm(np.full(5, 1e4 / 3)), np.zeros(5))
    assert np.all(np.isnan(ops.layer_norm(np.full(3, 2.0), eps=0)))
    g = ad.vjp(lambda v: ops.layer_norm(v, eps=0.25), np.full(2, 2.0))[1](np.asarray([1.0, 3.0]))
    np.testing.assert_array_equal(g[0], [-2.0, 2.0])


@pytest.mark.parametrize("f", [ops.layer_norm, ops.rms_norm], ids=["layer", "rms"])
@pytest.mark.parametrize(("scale", "dtype"), [(1e200, np.float64), (1e30, np.float32)])
def test_squares_do_not_overflow(f: Any, scale: float, dtype: Any):
    x = np.asarray([1.0, -2.0, 4.0, 0.5], dtype)
    want = f(x, eps=0.0)
    rtol = 1e-13 if dtype is np.float64 else 1e-6
    np.testing.assert_allclose(f((x * dtype(scale)).astype(dtype)), want, rtol=rtol)
    np.testing.assert_allclose(f((x / dtype(scale)).astype(dtype), eps=0.0), want, rtol=rtol)
    g = np.asarray([0.3, -0.1, 0.7, 0.2], dtype)
    (at_scale,) = ad.vjp(f, (x * dtype(scale)).astype(dtype))[1](g)
    (base,) = ad.vjp(lambda v: f(v, eps=0.0), x)[1](g)
    np.testing.assert_allclose(at_scale.astype(np.float64) * scale, base, rtol=1e-5)


# --- RMS norm --------------------------------------------------------------------------------


def test_rms_norm_has_eps_inside_the_root():
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(3, 5)), rng.normal(size=5)
    for eps in (1e-6, 0.5):
        want = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * w
        np.testing.assert_allclose(ops.rms_norm(x, w, eps), want, rtol=1e-14)
    tiny = np.asarray([1e-30, -1e-30], np.float32)
    np.testing.assert_allclose(ops.rms_norm(tiny), tiny * np.float32(1e3), rtol=1e-6)
    np.testing.assert_array_equal(ops.rms_norm(np.zeros(3)), np.zeros(3))


# --- batch, group and instance norm ----------------------------------------------------------


def test_batch_norm_statistics():
    # pytorch/pytorch#19902
    x = np.asarray([[1.0, 2.0, 0.0], [3.0, 3.0, 1.0], [3.0, 4.0, 3.0]])
    y, mean, var = ops.batch_norm(x)
    np.testing.assert_allclose(mean, [7 / 3, 3.0, 4 / 3], rtol=1e-15)
    np.testing.assert_allclose(var, [8 / 9, 2 / 3, 14 / 9], rtol=1e-14)
    want = [
        [-1.4142056074889262, -1.2247356859083902, -1.0690415314502972],
        [0.7071028037444629, 0.0, -0.2672603828625743],
        [0.7071028037444629, 1.2247356859083902, 1.3363019143128718],
    ]
    np.testing.assert_allclose(y, want, rtol=1e-13, atol=1e-15)
    evaluated = (x - mean) / np.sqrt(var * 3 / 2 + 1e-5)
    np.testing.assert_allclose(
        evaluated[0], [-1.1546962082765895, -0.9999950000374997, -0.8728696905109223]
    )


def test_batch_norm_of_images():
    rng = np.random.default_rng(3)
    x, w, b = rng.normal(size=(4, 3, 2, 5)), rng.normal(size=3), rng.normal(size=3)
    y, mean, var = ops.batch_norm(x, w, b, axis=(0, 2, 3))
    shape = (1, 3, 1, 1)
    want = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + 1e-5)
    np.testing.assert_allclose(y, want * w.reshape(shape) + b.reshape(shape), rtol=1e-12)
    np.testing.assert_allclose(var, np.var(x, (0, 2, 3)), rtol=1e-13)
    # all outputs are differentiable: the running statistics may be part of a loss
    ct = rng.normal(size=3)
    g = ad.vjp(lambda v: ops.batch_norm(v, axis=(0, 2, 3))[2], x)[1](ct)[0]
    np.testing.assert_allclose(
        g, 2 * (x - mean.reshape(shape)) / 40 * ct.reshape(shape), atol=1e-14
    )


def test_group_and_instance_norm_are_layer_norms_of_parts():
    rng = np.random.default_rng(4)
    x, w, b = rng.normal(size=(2, 6, 4)), rng.normal(size=6), rng.normal(size=6)
    affine = (w[None, :, None], b[None, :, None])
    parts = plain_layer_norm(x.reshape(2, 3, 8)).reshape(x.shape)
    got = ops.group_norm(x, 3, w, b)
    np.testing.assert_allclose(got, parts * affine[0] + affine[1], rtol=1e-12)
    got = ops.instance_norm(x, w, b)
    np.testing.assert_allclose(got, plain_layer_norm(x) * affine[0] + affine[1], rtol=1e-12)
    np.testing.assert_allclose(ops.group_norm(x, 6), ops.instance_norm(x), rtol=1e-14)


def test_per_example_gradients():
    # a layer that mixes no examples: vmap of the gradient is the gradient of each
    rng = np.random.default_rng(5)
    x, w = rng.normal(size=(4, 6)), rng.normal(size=6)

    def loss(weight: Any, row: Any) -> Any:
        return np.sum(np.tanh(ops.rms_norm(row, weight)))

    got = ad.vmap(ad.grad(loss), in_axes=(None, 0))(w, x)
    np.testing.assert_allclose(got, np.stack([ad.grad(loss)(w, row) for row in x]), rtol=1e-13)


# --- unit vectors ----------------------------------------------------------------------------


def test_l2_normalize():
    x = np.asarray([[3.0, 4.0], [3e200, 4e200], [3e-200, 4e-200]])
    np.testing.assert_allclose(ops.l2_normalize(x, eps=0), np.tile([0.6, 0.8], (3, 1)), rtol=1e-15)
    h = ad.jacrev(lambda v: ops.l2_normalize(v, eps=0.5))(np.zeros(2))
    np.testing.assert_array_equal(h, 2 * np.eye(2))
    second = ad.jacrev(ad.jacrev(lambda v: ops.l2_normalize(v, eps=0.5)))(np.zeros(2))
    assert not second.any()


# --- errors ----------------------------------------------------------------------------------


def test_error_texts():
    with pytest.raises(ShapeError) as caught:
        ops.layer_norm(np.ones((2, 3)), np.ones(2))
    assert str(caught.value).splitlines() == [
        "LAYERNORM weight has shape (2,), expected (3,)",
        "in op LAYERNORM, operand float64[2,3]",
        "give one weight per element of the normalised axes (1,)",
    ]
    with pytest.raises(ShapeError, match=r"BATCHNORM bias has shape \(1,\), expected \(3,\)"):
        ops.batch_norm(np.ones((2, 3)), np.ones(3), np.ones(1))
    with pytest.raises(ShapeError) as caught:
        ops.group_norm(np.ones((2, 4, 3)), 3)
    assert str(caught.value).splitlines() == [
        "GROUPNORM cannot part float64[2,4,3] into 3 groups of channels",
        "in op GROUPNORM, axis 1",
        "x is (batch, channels, ...) and groups divides the channels",
    ]
    with pytest.raises(ShapeError, match=r"INSTANCENORM needs axes after \(batch, channels\)"):
        ops.instance_norm(np.ones((2, 4)))
