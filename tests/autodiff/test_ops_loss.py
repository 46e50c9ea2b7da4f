"""Losses: labels, masked classes, saturated logits, public reports, error texts."""

from typing import Any

import numpy as np
import pytest
import scipy.special

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError
from tests.autodiff import softmax_reference as exact

INF, NAN = float("inf"), float("nan")

# --- cross entropy ---------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_labels_and_one_hot_probabilities_agree(axis: int):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4, 2))
    rows = tuple(n for i, n in enumerate(x.shape) if i != axis % 3)
    labels = rng.integers(0, x.shape[axis], rows)
    one_hot = np.moveaxis(np.eye(x.shape[axis])[labels], -1, axis)
    want = -np.sum(one_hot * scipy.special.log_softmax(x, axis=axis), axis=axis)
    np.testing.assert_allclose(ops.cross_entropy(x, labels, axis), want, rtol=1e-14)
    np.testing.assert_allclose(ops.cross_entropy(x, one_hot, axis), want, rtol=1e-14)
    ct = rng.normal(size=rows)
    (g,) = ad.vjp(lambda v: ops.cross_entropy(v, labels, axis), x)[1](ct)
    p = scipy.special.softmax(x, axis=axis)
    np.testing.assert_allclose(g, (p - one_hot) * np.expand_dims(ct, axis), atol=1e-15)


def test_gradient_of_a_label_that_is_nearly_certain():
    # p - 1 is 0 once p rounds to 1; minus the sum of the others is not
    x = exact.margins(np.random.default_rng(1), [5.0, 10.0, 17.0, 25.0, 40.0])
    label = np.full(5, 2)

    def gradient(v: Any) -> Any:
        return ad.grad(lambda u: np.sum(ops.cross_entropy(u, label)))(v)

    want = []
    for row in x:
        p = exact.softmax(row)
        rest = exact.MP.fsum(v for i, v in enumerate(p) if i != 2)
        want.append([v if i != 2 else -rest for i, v in enumerate(p)])
    for road, y in exact.roads(gradient, x).items():
        errors = [exact.relative(a, b) for a, b in zip(y, want, strict=True)]
        assert max(errors) <= 4e-6, road
        assert np.max(np.abs(np.sum(y, 1)) / np.max(np.abs(y), 1)) <= 1e-6, road


def test_hessian_is_positive_semidefinite_and_kills_constants():
    x = np.asarray([12.0, 0.5, -3.0, 1.0])
    for labels in (np.asarray(0), np.asarray(1), np.asarray([0.7, 0.1, 0.1, 0.1])):
        h = ad.hessian(lambda v, y=labels: ops.cross_entropy(v, y))(x)
        p = scipy.special.softmax(x)
        np.testing.assert_allclose(h, np.diag(p) - np.outer(p, p), atol=1e-16)
        assert np.max(np.abs(h @ np.ones(4))) <= 1e-20
        assert np.linalg.eigvalsh(h).min() >= -1e-20


def test_masked_class_without_weight():
    # google-deepmind/optax#896: 0 * -inf in the loss
    z, y = np.asarray([-INF, 0.0]), np.asarray([0.0, 1.0])
    assert ops.cross_entropy(z, y) == 0
    np.testing.assert_array_equal(ad.grad(lambda v: ops.cross_entropy(v, y))(z), [0.0, 0.0])
    assert ops.cross_entropy(z, np.asarray([0.05, 0.95])) == INF
    # the loss is linear in the probabilities, also at 0
    p = np.asarray([0.0, 0.25, 0.75])
    x = np.asarray([1.0, 2.0, 4.0])
    slope = ad.grad(lambda v: ops.cross_entropy(x, v))(p)
    np.testing.assert_allclose(slope, -scipy.special.log_softmax(x), rtol=1e-14)


def test_labels_that_name_no_class():
    x = np.random.default_rng(2).normal(size=(4, 3))
    labels = np.asarray([0, 3, -1, 2])
    y = ops.cross_entropy(x, labels)
    np.testing.assert_array_equal(np.isnan(y), [False, True, True, False])
    (g,) = ad.vjp(lambda v: ops.cross_entropy(v, labels), x)[1](np.asarray([1.0, 2.0, 3.0, 4.0]))
    assert not g[1:3].any() and np.all(g[[0, 3]])


def test_nll_of_log_softmax_is_cross_entropy():
    rng = np.random.default_rng(3)
    x, labels = rng.normal(size=(5, 4)), rng.integers(0, 4, 5)
    np.testing.assert_array_equal(ops.nll(ops.log_softmax(x), labels), ops.cross_entropy(x, labels))
    small = labels.astype(np.int8)
    np.testing.assert_array_equal(ops.cross_entropy(x, small), ops.cross_entropy(x, labels))


# --- elementwise losses ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sigmoid_cross_entropy_keeps_small_losses_and_gradients(dtype: Any):
    x, y = np.asarray([20.0, -30.0, 60.0], dtype), np.asarray([1.0, 0.0, 1.0], dtype)
    small = np.exp(-np.abs(x.astype(np.float64)))
    np.testing.assert_allclose(ops.sigmoid_cross_entropy(x, y), np.log1p(small), rtol=2e-6)
    gradient = ad.grad(lambda v: np.sum(ops.sigmoid_cross_entropy(v, y)))(x)
    want = np.asarray([-1.0, 1.0, -1.0]) * small / (1 + small)
    np.testing.assert_allclose(gradient, want, rtol=2e-6)


def test_sigmoid_cross_entropy_of_soft_labels_and_infinite_logits():
    rng = np.random.default_rng(4)
    x, y = 3 * rng.normal(size=20), rng.random(20)
    p = scipy.special.expit(x)
    want = -(y * np.log(p) + (1 - y) * np.log1p(-p))
    np.testing.assert_allclose(ops.sigmoid_cross_entropy(x, y), want, rtol=1e-12)
    gx, gy = ad.grad(lambda u, v: np.sum(ops.sigmoid_cross_entropy(u, v)), argnums=(0, 1))(x, y)
    np.testing.assert_allclose(gx, p - y, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(gy, -x, rtol=1e-12)
    infinite = np.asarray([INF, -INF, INF, -INF])
    labels = np.asarray([1.0, 0.0, 0.5, 1.0])
    np.testing.assert_array_equal(ops.sigmoid_cross_entropy(infinite, labels), [0, 0, INF, INF])


def test_huber_is_quadratic_then_linear():
    r = np.asarray([0.0, 0.3, -0.5, 2.0, -3.0, 1e200])
    got = ops.huber(r, 0.0, delta=0.5)
    want = np.where(np.abs(r) <= 0.5, 0.5 * np.minimum(np.abs(r), 1) ** 2, 0.5 * (np.abs(r) - 0.25))
    np.testing.assert_allclose(got, want)
    slope = ad.grad(lambda v: np.sum(ops.huber(v, 0.0, delta=0.5)))(r)
    np.testing.assert_allclose(slope, np.clip(r, -0.5, 0.5))
    curvature = [ad.hessian(lambda v: ops.huber(v, 0.0, delta=0.5))(np.asarray(v)) for v in r]
    np.testing.assert_array_equal(curvature, [1, 1, 1, 0, 0, 0])


def test_mse_and_cosine_similarity():
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    np.testing.assert_allclose(ops.mse(x, y), np.mean((x - y) ** 2))
    np.testing.assert_allclose(ops.mse(x, y, axis=0), np.mean((x - y) ** 2, axis=0))
    cosine = np.sum(x * y, -1) / (np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1))
    np.testing.assert_allclose(ops.cosine_similarity(x, y), cosine, rtol=1e-14)
    np.testing.assert_allclose(ops.cosine_similarity(1e200 * x, 1e-200 * y, eps=0), cosine)


# --- errors ----------------------------------------------------------------------------------


def test_error_texts():
    with pytest.raises(ShapeError) as caught:
        ops.cross_entropy(np.ones((2, 3)), np.zeros(3, np.int64))
    assert str(caught.value).splitlines() == [
        "CROSS_ENTROPY takes integer labels of shape (2,), got int64[3]",
        "in op CROSS_ENTROPY, logits float64[2,3], axis 1",
        "labels have the logits' shape without the class axis",
    ]
    with pytest.raises(
        ShapeError, match=r"takes probabilities of shape \(2, 3\), got float64\[2\]"
    ):
        ops.cross_entropy(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ShapeError, match=r"NLL takes integer labels of shape \(2,\), got float64"):
        ops.nll(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ShapeError, match=r"labels must be integers, got float64\nin op LABEL_MASK"):
        ops.label_mask(np.ones(2), 3)
    with pytest.raises(ShapeError, match=r"HUBER needs delta > 0, got 0.0\n.*\npass delta=1.0"):
        ops.huber(1.0, 2.0, delta=0)
