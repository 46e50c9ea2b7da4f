"""Soft cross entropy and KL divergence: students close to their teacher, far from it, masked."""

from typing import Any

import numpy as np
import pytest
import scipy.special

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError
from tests.autodiff import softmax_reference as exact

INF, NAN = float("inf"), float("nan")


def student_gradient(s: Any, t: Any) -> Any:
    return ad.grad(lambda v: np.sum(ops.soft_cross_entropy(v, t)))(s)


def teacher_gradient(t: Any, s: Any) -> Any:
    return ad.grad(lambda v: np.sum(ops.kl_divergence(v, s)))(t)


def rows(
    seed: int, n: int, spread: float, distance: float, offset: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Students at a distance from their teachers, exact in float32."""
    rng = np.random.default_rng(seed)
    t = (spread * rng.normal(size=(12, n))).astype(np.float32)
    s = (t + distance * rng.normal(size=t.shape) + offset).astype(np.float32)
    return s.astype(np.float64), t.astype(np.float64)


def worst(got: np.ndarray, want: list[Any], measure: Any = exact.of_largest) -> float:
    return max(measure(g, w) for g, w in zip(got, want, strict=True))


# --- student ---------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 3.0, 100.0])
@pytest.mark.parametrize(("n", "spread"), [(3, 1.0), (10, 1.0), (10, 5.0), (300, 1.0)])
def test_student_next_to_its_teacher(n: int, spread: float, offset: float):
    s, t = rows(0, n, spread, 1e-6, offset)
    want = [exact.student_gradient(a, b) for a, b in zip(s, t, strict=True)]
    used = [i for i, w in enumerate(want) if any(w)]  # float32 may have made some rows equal
    assert len(used) >= 10
    for road, y in exact.roads(student_gradient, s, t).items():
        assert worst(y[used], [want[i] for i in used]) <= 1e-5, road
    s32, t32 = s.astype(np.float32), t.astype(np.float32)
    plain = ops.softmax(s32) - ops.softmax(t32)
    assert worst(plain[used], [want[i] for i in used]) > 0.01


@pytest.mark.parametrize("distance", [1e-6, 1.0])
@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("n", [10, 1000])
def test_gradient_rows_sum_to_zero(n: int, spread: float, distance: float):
    s, t = rows(20, n, spread, distance)
    ct = np.random.default_rng(21).normal(size=(12, 1))

    def student(s: Any, t: Any) -> Any:
        return ad.grad(lambda v: np.sum(ops.soft_cross_entropy(v, t) * ct[:, 0].astype(s.dtype)))(s)

    for f, x, y in ((student, s, t), (teacher_gradient, t, s)):
        for road, g in exact.roads(f, x, y).items():
            sums = np.abs(np.sum(g.astype(np.float64), -1)) / np.max(np.abs(g), -1)
            assert np.max(sums) <= 1e-6, road


@pytest.mark.parametrize("distance", [1e-4, 1e-2, 0.3, 1.0, 5.0, 50.0])
def test_student_at_any_distance(distance: float):
    s, t = rows(1, 10, 2.0, distance)
    want = [exact.student_gradient(a, b) for a, b in zip(s, t, strict=True)]
    for road, y in exact.roads(student_gradient, s, t).items():
        assert worst(y, want) <= 2e-6, road
    assert worst(student_gradient(s, t), want) <= 2e-14


def test_student_gradient_rows_sum_to_zero():
    for distance in (1e-6, 1.0):
        s, t = rows(2, 40, 3.0, distance)
        for road, y in exact.roads(student_gradient, s, t).items():
            total = np.abs(np.sum(y.astype(np.float64), 1)) / np.max(np.abs(y), 1)
            assert np.max(total) <= 1e-6, road


def test_dominant_class_of_both_keeps_its_digits():
    s, t = np.asarray([25.0, 0.0, 1.0]), np.asarray([24.0, 0.5, 1.0])
    want = exact.student_gradient(s, t)
    for road, y in exact.roads(student_gradient, s, t).items():
        assert exact.relative(y, want) <= 2e-6, road


def test_underflowed_teacher_probabilities_do_not_hide_the_student():
    # float32: exp(-200) is 0, exp(400) is inf, and 0 * inf or 0 alone would be wrong
    for s, t in (([0.0, -200.0], [-200.0, 0.0]), ([60.0, 0.0, 0.0], [-60.0, 0.0, 0.0])):
        want = exact.student_gradient(s, t)
        for road, y in exact.roads(student_gradient, s, t).items():
            assert exact.of_largest(y, want) <= 1e-6, road


# --- KL and the teacher ----------------------------------------------------------------------


@pytest.mark.parametrize("distance", [1e-6, 1e-4, 1e-2, 1.0, 20.0])
def test_kl_divergence_and_its_teacher_gradient(distance: float):
    s, t = rows(3, 10, 1.0, distance)
    pairs = list(zip(t, s, strict=True))
    values = [[exact.kl(*p)] for p in pairs]
    for road, y in exact.roads(ops.kl_divergence, t, s).items():
        assert worst(y, values, exact.relative) <= 1e-6, road
        assert np.min(y) >= 0, road
    gradients = [exact.kl_teacher_gradient(*p) for p in pairs]
    for road, y in exact.roads(teacher_gradient, t, s).items():
        assert worst(y, gradients) <= 2e-6, road
    if distance <= 1e-4:
        s32, t32 = s.astype(np.float32), t.astype(np.float32)
        p = ops.softmax(t32)
        plain = np.sum(p * (ops.log_softmax(t32) - ops.log_softmax(s32)), -1)
        assert worst(plain, values, exact.relative) > 1.0


def test_soft_cross_entropy_is_kl_plus_entropy():
    s, t = rows(4, 6, 2.0, 1.0)
    p = scipy.special.softmax(t, axis=-1)
    entropy = -np.sum(p * scipy.special.log_softmax(t, axis=-1), -1)
    both = ops.kl_divergence(t, s) + entropy
    np.testing.assert_allclose(ops.soft_cross_entropy(s, t), both, rtol=1e-13)


def test_second_derivatives():
    s, t = rows(5, 5, 1.0, 0.3)
    s, t = s[0], t[0]
    p, q = scipy.special.softmax(t), scipy.special.softmax(s)
    of_s = ad.hessian(lambda v: ops.soft_cross_entropy(v, t))(s)
    np.testing.assert_allclose(of_s, np.diag(q) - np.outer(q, q), rtol=1e-13, atol=1e-16)
    assert not ad.hvp(lambda v: ops.soft_cross_entropy(v, t), (s,), (np.ones(5),)).any()
    assert np.linalg.eigvalsh(of_s).min() >= -1e-16
    mixed = ad.jacrev(ad.grad(lambda v, w: ops.kl_divergence(w, v)), argnums=1)(s, t)
    np.testing.assert_allclose(mixed, -(np.diag(p) - np.outer(p, p)), rtol=1e-12, atol=1e-16)
    of_t = ad.hessian(lambda v: ops.kl_divergence(v, t))(t)
    np.testing.assert_allclose(of_t, np.diag(p) - np.outer(p, p), rtol=1e-12, atol=1e-16)


def test_batched_gradients_keep_the_accurate_rule():
    s, t = rows(6, 8, 1.0, 1e-6)
    alone = np.stack([student_gradient(a, b) for a, b in zip(s, t, strict=True)])
    np.testing.assert_allclose(ad.vmap(student_gradient)(s, t), alone, rtol=1e-13, atol=0)
    shared = ad.vmap(student_gradient, in_axes=(0, None))(s, t[0])
    np.testing.assert_allclose(shared[0], alone[0], rtol=1e-13, atol=0)


# --- edges -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("s", "t", "cross_entropy", "kl", "gradient"),
    [
        ([0.0, -INF], [1.0, -INF], 0.0, 0.0, [0.0, 0.0]),
        ([0.0, 0.0], [0.0, -INF], np.log(2), np.log(2), [-0.5, 0.5]),
        ([0.0, -INF], [0.0, 0.0], INF, INF, [0.5, -0.5]),
        ([0.0, -INF], [-INF, 0.0], INF, INF, [1.0, -1.0]),
        ([3.0], [-2.0], 0.0, 0.0, [0.0]),
        ([1e30, 0.0], [1e30, 0.0], 0.0, 0.0, [0.0, 0.0]),
        ([3e38, -3e38], [-3e38, 3e38], None, None, [1.0, -1.0]),
        ([NAN, 0.0], [0.0, 0.0], NAN, NAN, [NAN, NAN]),
        ([0.0, 0.0], [-INF, -INF], NAN, NAN, [NAN, NAN]),
    ],
)
def test_edge_rows(
    s: list[float], t: list[float], cross_entropy: Any, kl: Any, gradient: list[float], dtype: Any
):
    x, y = np.asarray(s, dtype), np.asarray(t, dtype)
    if cross_entropy is not None:
        np.testing.assert_allclose(ops.soft_cross_entropy(x, y), cross_entropy, rtol=1e-6)
        np.testing.assert_allclose(ops.kl_divergence(y, x), kl, rtol=1e-6)
    np.testing.assert_allclose(student_gradient(x, y), gradient, rtol=1e-6)
    of_kl = ad.grad(lambda v: np.sum(ops.kl_divergence(y, v)))(x)
    np.testing.assert_allclose(of_kl, gradient, rtol=1e-6)


def test_teacher_gradient_ignores_classes_masked_in_both():
    t, s = np.asarray([0.5, -INF, 1.0]), np.asarray([1.0, -INF, 0.25])
    for loss in (lambda v, w: ops.soft_cross_entropy(w, v), ops.kl_divergence):
        got, want = ad.grad(loss)(t, s), ad.grad(loss)(t[[0, 2]], s[[0, 2]])
        assert got[1] == 0
        np.testing.assert_allclose(got[[0, 2]], want, rtol=1e-14)


def test_operands_broadcast():
    s, t = rows(7, 4, 1.0, 1.0)
    got = ops.soft_cross_entropy(s, t[0])
    np.testing.assert_allclose(got, ops.soft_cross_entropy(s, np.broadcast_to(t[0], s.shape)))
    with pytest.raises(ShapeError) as caught:
        ops.kl_divergence(np.ones((2, 3)), np.ones(4))
    what, where, _ = str(caught.value).splitlines()
    assert what == "KL_DIVERGENCE operands do not broadcast: (2, 3), (4,)"
    assert where == "in op KL_DIVERGENCE"


def test_expm1_remainder_near_zero():
    z = np.asarray([1e-12, -1e-6, 1e-3, 0.3, 0.9999, -1.0, 1.0, 3.0, -40.0])
    want = [exact.MP.expm1(v) - v for v in exact.numbers(z)]
    assert exact.relative(ops.expm1_remainder(z), want) <= 2e-15
    narrow = z.astype(np.float32)
    want = [exact.MP.expm1(v) - v for v in exact.numbers(narrow)]
    for road, y in exact.roads(ops.expm1_remainder, narrow).items():
        assert exact.relative(y, want) <= 1e-6, road
