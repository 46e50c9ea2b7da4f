"""Softmax, log-softmax and logsumexp: digits at any margin, derivatives, edges, public reports."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError
from tests.autodiff import softmax_reference as exact

INF, NAN = float("inf"), float("nan")
MARGINS = (1.0, 2.0, 5.0, 10.0, 14.0, 16.0, 16.75, 17.0, 20.0, 30.0, 50.0, 87.0)


def pull(f: Any) -> Any:
    """(x, g) -> the pullback of f at x applied to g."""
    return lambda x, g: ad.vjp(f, x)[1](g)[0]


def push(f: Any) -> Any:
    return lambda x, t: ad.jvp(f, (x,), (t,))[1]


def worst(got: np.ndarray, want: list[Any], measure: Any = exact.relative) -> float:
    return max(measure(g, w) for g, w in zip(got, want, strict=True))


# --- values ----------------------------------------------------------------------------------


def test_log_softmax_of_the_dominant_class_keeps_its_digits():
    # differences exact in float32: the rounding of z itself (a condition) is then no part of it
    x = np.stack([[m, 0.0, -0.5, -1.25] for m in MARGINS])
    want = [exact.log_softmax(row)[:1] for row in x]
    for road, y in exact.roads(ops.log_softmax, x).items():
        assert worst(y[:, :1], want) <= 1e-6, road
    plain = np.log(ops.softmax(x.astype(np.float32)))[:, :1]
    assert worst(plain, want) == 1.0  # the textbook form is 0 there


def test_log_softmax_of_any_row_is_right_to_the_rounding_of_its_logits():
    x = exact.margins(np.random.default_rng(0), MARGINS)
    want = [exact.log_softmax(row) for row in x]
    for road, y in exact.roads(ops.log_softmax, x).items():
        assert worst(y, want) <= 4e-6, road
    assert worst(ops.log_softmax(x), want) <= 1e-14


def test_softmax_keeps_relative_accuracy_in_every_entry():
    x = exact.margins(np.random.default_rng(1), MARGINS[:-1])
    want = [exact.softmax(row) for row in x]
    for road, y in exact.roads(ops.softmax, x).items():
        assert worst(y, want) <= 4e-6, road
    assert worst(ops.softmax(x), want) <= 1e-14


def test_logsumexp_adds_small_classes_to_a_large_one():
    # scipy/scipy#19521: the excess over the maximum, not the sum, is what must be accurate
    x = np.asarray([1e-20, -50.0])
    want = exact.MP.log(exact.MP.fsum(exact.MP.exp(v) for v in exact.numbers(x)))
    assert abs(float(ops.logsumexp(x) / want) - 1) <= 2e-16


@pytest.mark.parametrize("classes", [50_000])
def test_many_classes(classes: int):
    x = np.random.default_rng(2).normal(size=classes).astype(np.float32)
    want = scipy.special.log_softmax(x.astype(np.float64))
    for road, y in exact.roads(ops.log_softmax, x).items():
        assert np.max(np.abs(y - want)) <= 2e-6, road


def test_float16_sums_of_many_classes_do_not_overflow():
    # jax-ml/jax#40409: 2^16 equal classes sum to more than float16 holds
    x = np.zeros(1 << 16, np.float16)
    assert ops.logsumexp(x) == np.float16(16 * np.log(2))
    assert ops.log_softmax(x)[7] == np.float16(-16 * np.log(2))
    g = np.zeros_like(x)
    g[0] = 1
    (gradient,) = ad.vjp(ops.log_softmax, x)[1](g)
    assert gradient.dtype == np.float16
    assert np.all(np.isfinite(gradient)) and gradient[0] == 1


# --- first derivatives -----------------------------------------------------------------------


def test_log_softmax_pullback_of_the_dominant_class():
    # jax-ml/jax#40386, pytorch/pytorch#113708: g - p sum(g) is 0 for the class itself
    x = exact.margins(np.random.default_rng(3), [0.0, 1.0, 5.0, 10.0, 15.0, 20.0, 40.0])
    g = np.zeros_like(x)
    g[:, 2] = 1.0
    want = [exact.log_softmax_vjp(a, b) for a, b in zip(x, g, strict=True)]
    for road, y in exact.roads(pull(ops.log_softmax), x, g).items():
        assert worst(y, want) <= 4e-6, road
    p = ops.softmax(x.astype(np.float32))
    plain = g - p * g.sum(-1, keepdims=True)
    assert worst(plain[-1:, 2:3], [want[-1][2:3]]) == 1.0


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_softmax_pullback_under_an_offset_of_the_cotangent(offset: float):
    # jax-ml/jax#40384, #40344
    rng = np.random.default_rng(4)
    x = exact.margins(rng, [0.0, 5.0, 10.0, 15.0] * 4)
    g = (offset + rng.normal(size=x.shape)).astype(np.float32).astype(np.float64)
    want = [exact.softmax_vjp(a, b) for a, b in zip(x, g, strict=True)]
    for direction in (pull, push):
        for road, y in exact.roads(direction(ops.softmax), x, g).items():
            assert worst(y, want) <= 1e-4, road
            assert worst(y, want, exact.of_largest) <= 2e-6, road
    p, c = ops.softmax(x.astype(np.float32)), g.astype(np.float32)
    plain = p * (c - np.sum(p * c, -1, keepdims=True))
    assert offset == 0 or worst(plain, want) > 1.0


def test_log_softmax_tangent_under_an_offset():
    rng = np.random.default_rng(5)
    x = exact.margins(rng, [0.0, 5.0, 10.0, 15.0])
    t = (1000 + rng.normal(size=x.shape)).astype(np.float32).astype(np.float64)
    want = [exact.log_softmax_jvp(a, b) for a, b in zip(x, t, strict=True)]
    for road, y in exact.roads(push(ops.log_softmax), x, t).items():
        assert worst(y, want) <= 1e-4, road


@pytest.mark.parametrize("f", [ops.softmax, ops.log_softmax], ids=["softmax", "log_softmax"])
def test_gradient_rows_sum_to_zero(f: Any):
    rng = np.random.default_rng(6)
    x, g = 4 * rng.normal(size=(200, 50)), rng.normal(size=(200, 50))
    for road, y in exact.roads(pull(f), x, g).items():
        rows = np.abs(np.sum(y.astype(np.float64), axis=1)) / np.max(np.abs(y), axis=1)
        assert np.max(rows) <= 1e-6, road


def row_sums(y: Any) -> Any:
    """The largest sum of a row, in units of its largest entry."""
    y = np.asarray(y, np.float64)
    return np.max(np.abs(np.sum(y, axis=-1)) / np.max(np.abs(y), axis=-1))


COTANGENTS: dict[str, Callable[..., Any]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "positive": lambda rng, shape: rng.uniform(size=shape),
    "one": lambda rng, shape: np.eye(shape[1])[rng.integers(0, shape[1], shape[0])],
}


@pytest.mark.parametrize("cotangents", COTANGENTS)
@pytest.mark.parametrize(("rows", "classes"), [(50, 10), (20, 50), (4, 1000)])
@pytest.mark.parametrize("f", [ops.softmax, ops.log_softmax], ids=["softmax", "log_softmax"])
def test_gradient_rows_of_equal_and_of_unequal_classes_sum_to_zero(
    f: Any, rows: int, classes: int, cotangents: str
):
    # entries that share one error of p times the sum of cotangents, and one of the last rounding
    pytest.importorskip("jax")
    rng = np.random.default_rng(30)
    g = COTANGENTS[cotangents](rng, (rows, classes))
    for spread in (0.0, 1.0, 5.0):
        x = spread * rng.normal(size=g.shape)
        for road, y in exact.roads(pull(f), x, g).items():
            assert row_sums(y) <= 1e-6, (road, spread)
        x, g = x.astype(np.float32), g.astype(np.float32)
        runs: list[Callable[..., Any]] = [ad.compile(pull(f))]
        if spread == 0:
            runs.append(ad.lower_jax(ad.trace(pull(f), x, g)))
        for run in runs:
            y = np.asarray(run(x, g))
            assert y.dtype == np.float32 and row_sums(y) <= 1e-6, spread


@pytest.mark.parametrize("kept", [slice(None), slice(1, None, 3)], ids=["all", "masked"])
def test_taking_a_row_sum_off_changes_entries_by_ulps(kept: slice):
    rng = np.random.default_rng(31)
    x, g = rng.normal(size=(20, 1000)), rng.normal(size=(20, 1000))
    x[:, kept] -= 0.0 if kept == slice(None) else np.inf
    x, g = (v.astype(np.float32).astype(np.float64) for v in (x, g))
    p = scipy.special.softmax(x, -1)
    want = g - p * np.sum(g, -1, keepdims=True)
    size = np.abs(g) + p * np.sum(np.abs(g), -1, keepdims=True)
    for road, y in exact.roads(pull(ops.log_softmax), x, g).items():
        assert np.max(np.abs(y - want) / size) <= 1e-6, road
        assert np.array_equal(y[p == 0], g[p == 0]), road


def test_balanced_gradients_keep_second_derivatives():
    rng = np.random.default_rng(32)
    x, g, v = (rng.normal(size=(2, 40)) for _ in range(3))
    p = scipy.special.softmax(x, -1)
    tangent = p * (v - np.sum(p * v, -1, keepdims=True))
    _, found = ad.jvp(lambda x: pull(ops.log_softmax)(x, g), (x,), (v,))
    np.testing.assert_allclose(
        found, -tangent * np.sum(g, -1, keepdims=True), rtol=1e-9, atol=1e-13
    )


def test_softmax_pullback_of_a_constant_is_exactly_zero():
    x = np.random.default_rng(7).normal(size=(5, 9)) * 10
    for g in (1.0, 1e8 / 3):
        (y,) = ad.vjp(ops.softmax, x)[1](np.full_like(x, g))
        assert not y.any()


def test_public_report_of_a_dominant_class():
    # jax-ml/jax#40384
    z, g = np.asarray([37.42994775023705, 0.0]), np.asarray([1.0, 0.0])
    (y,) = ad.vjp(ops.softmax, z)[1](g)
    np.testing.assert_array_equal(y, [5.551115123125776e-17, -5.551115123125776e-17])


def test_common_offset_of_the_logits_is_shifted_out_first():
    # jax-ml/jax#13529, ml-explore/mlx#4188: lse - x cancels at a large common offset
    x = np.asarray([0.25, -0.5, 0.125])
    for offset in (2.0**12, -(2.0**12)):
        shifted = (x + offset).astype(np.float32)
        np.testing.assert_array_equal(
            ops.log_softmax(shifted), ops.log_softmax(x.astype(np.float32))
        )


def test_derived_rules_agree_where_both_are_accurate():
    rng = np.random.default_rng(8)
    x, g, t = (rng.normal(size=(3, 5)) for _ in range(3))
    p = ops.softmax(x)
    mixed = np.sum(p * g, -1, keepdims=True)
    np.testing.assert_allclose(pull(ops.softmax)(x, g), p * (g - mixed), rtol=1e-13, atol=1e-16)
    plain = g - p * g.sum(-1, keepdims=True)
    np.testing.assert_allclose(pull(ops.log_softmax)(x, g), plain, rtol=1e-13, atol=1e-15)
    weighted = np.sum(p * t, -1)
    lse = push(lambda v: ops.logsumexp(v, -1))(x, t)
    np.testing.assert_allclose(lse, weighted, rtol=1e-13)


# --- second derivatives ----------------------------------------------------------------------


@pytest.mark.parametrize("margin", [0.0, 3.0, 15.0, 30.0])
def test_hessian_of_logsumexp(margin: float):
    x = exact.margins(np.random.default_rng(9), [margin])[0]
    h = ad.hessian(ops.logsumexp)(x)
    p = exact.softmax(x)
    want = np.asarray(
        [[float(p[i] * ((i == j) - p[j])) for j in range(6)] for i in range(6)], np.float64
    )
    np.testing.assert_allclose(h - np.diag(np.diag(h)), want - np.diag(np.diag(want)), rtol=1e-13)
    np.testing.assert_allclose(
        np.diag(h)[[0, 1, 3, 4, 5]], np.diag(want)[[0, 1, 3, 4, 5]], rtol=1e-13
    )
    # the dominant diagonal entry p (1 - p) in relative terms too
    q = float(p[2] * exact.MP.fsum(v for i, v in enumerate(p) if i != 2))
    assert abs(h[2, 2] / q - 1) <= 1e-12
    assert np.max(np.abs(h @ np.ones(6))) <= 1e-15 * np.max(np.abs(h)) + 1e-30
    direction = np.ones(6)
    assert not ad.hvp(ops.logsumexp, (x,), (direction,)).any()
    assert np.linalg.eigvalsh((h + h.T) / 2).min() >= -1e-16 * max(1, np.abs(h).max())


def test_second_derivatives_at_a_tie():
    x = np.asarray([1.0, 1.0, 0.0])
    p = scipy.special.softmax(x)
    np.testing.assert_allclose(
        ad.hessian(ops.logsumexp)(x), np.diag(p) - np.outer(p, p), atol=1e-15
    )
    w = np.asarray([0.3, -1.0, 2.0])
    h = ad.hessian(lambda v: np.sum(w * ops.log_softmax(v)))(x)
    np.testing.assert_allclose(h, -np.sum(w) * (np.diag(p) - np.outer(p, p)), atol=1e-15)


def test_batched_gradients_keep_the_accurate_rule():
    x = exact.margins(np.random.default_rng(10), [10.0, 20.0, 30.0])
    row = lambda v: ops.log_softmax(v)[2]  # noqa: E731
    batched = ad.vmap(ad.grad(row))(x)
    np.testing.assert_array_equal(batched, np.stack([ad.grad(row)(v) for v in x]))
    nested = ad.vmap(ad.hessian(row))(x)
    np.testing.assert_allclose(nested, np.stack([ad.hessian(row)(v) for v in x]), rtol=1e-13)


# --- edges -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("row", "log_probabilities", "total"),
    [
        ([5.0, 5.0], [-np.log(2), -np.log(2)], 5 + np.log(2)),
        ([3.0], [0.0], 3.0),
        ([0.0, -INF], [0.0, -INF], 0.0),
        ([-INF, -INF], [NAN, NAN], -INF),
        ([INF, 0.0], [NAN, NAN], INF),
        ([INF, INF], [NAN, NAN], INF),
        ([0.0, NAN, INF], [NAN, NAN, NAN], NAN),
        ([1e30, 0.0], [0.0, -1e30], 1e30),
        ([1e8, 1e8], [-np.log(2), -np.log(2)], 1e8),
    ],
)
def test_edge_rows(row: list[float], log_probabilities: list[float], total: float, dtype: Any):
    x = np.asarray(row, dtype)
    np.testing.assert_allclose(ops.log_softmax(x), np.asarray(log_probabilities, dtype), rtol=1e-6)
    np.testing.assert_allclose(
        ops.softmax(x), np.exp(np.asarray(log_probabilities, dtype)), rtol=1e-6
    )
    np.testing.assert_allclose(ops.logsumexp(x), np.asarray(total, dtype), rtol=1e-6)


def test_masked_class_gets_no_gradient_through_softmax():
    x, g = np.asarray([0.5, -INF, 1.0]), np.asarray([1.0, 7.0, 2.0])
    y = pull(ops.softmax)(x, g)
    assert y[1] == 0 and np.all(np.isfinite(y))
    assert pull(ops.log_softmax)(x, g)[1] == 7.0


def test_far_wrong_class():
    # FluxML/NNlib.jl#68
    z = np.asarray([-431.0, 279.0, 427.0])
    value, gradient = ad.value_and_grad(lambda v: -ops.log_softmax(v)[0])(z)
    assert value == 858.0
    np.testing.assert_allclose(gradient, [-1.0, 5.301718666092324e-65, 1.0], rtol=1e-13)
    z2 = np.asarray([-1047.0, -981.0, 1891.0])
    assert not ad.grad(lambda v: np.sum(ops.softmax(v)))(z2).any()


# --- logsumexp with masks and weights --------------------------------------------------------


def test_logsumexp_against_scipy():
    rng = np.random.default_rng(11)
    x, b = 3 * rng.normal(size=(4, 5)), rng.uniform(0.1, 2, size=(4, 5))
    for axis, keepdims in ((None, False), (0, True), (-1, False), ((0, 1), True)):
        want = scipy.special.logsumexp(x, axis=axis, keepdims=keepdims)
        got = ops.logsumexp(x, axis, keepdims=keepdims)
        np.testing.assert_allclose(got, want, rtol=1e-14)
        want = scipy.special.logsumexp(x, axis=axis, b=b, keepdims=keepdims)
        got = ops.logsumexp(x, axis, b=b, keepdims=keepdims)
        np.testing.assert_allclose(got, want, rtol=1e-13)


def test_logsumexp_of_a_mask():
    rng = np.random.default_rng(12)
    x, mask = rng.normal(size=(3, 4)), np.asarray([[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]], bool)
    y = ops.logsumexp(x, 1, where=mask)
    np.testing.assert_allclose(y[[0, 2]], [scipy.special.logsumexp(x[0, [0, 2, 3]]), x[2, 1]])
    assert y[1] == -INF
    ct = np.asarray([1.0, 2.0, 3.0])
    (g,) = ad.vjp(lambda v: ops.logsumexp(v, 1, where=mask), x)[1](ct)
    assert np.all(np.isfinite(g)) and not g[~mask].any()
    np.testing.assert_allclose(g.sum(1), [1.0, 0.0, 3.0])
    t = rng.normal(size=x.shape)
    _, dot = ad.jvp(lambda v: ops.logsumexp(v, 1, where=mask), (x,), (t,))
    np.testing.assert_allclose(np.sum(ct * dot), np.sum(g * t))


def test_logsumexp_weights_of_zero_and_below():
    x = np.asarray([1.0, 2.0, 3.0])
    b = np.asarray([2.0, 0.0, -0.1])
    np.testing.assert_allclose(ops.logsumexp(x, b=b), scipy.special.logsumexp(x, b=b), rtol=1e-14)
    gx, gb = ad.vjp(lambda u, v: ops.logsumexp(u, b=v), x, b)[1](np.asarray(2.0))
    total = np.sum(b * np.exp(x))
    np.testing.assert_allclose(gb, 2 * np.exp(x) / total, rtol=1e-14)
    np.testing.assert_allclose(gx, 2 * b * np.exp(x) / total, rtol=1e-14)
    masked = ops.logsumexp(x, where=np.asarray([True, True, False]), b=b)
    np.testing.assert_allclose(masked, 1 + np.log(2), rtol=1e-15)


def test_lowered_form_is_the_same_formula():
    pytest.importorskip("jax")
    x = np.stack([[m, 0.0, -0.5, -1.25] for m in MARGINS[:-1]]).astype(np.float32)
    g = np.zeros_like(x)
    g[:, 0] = 1.0

    def both(v: Any, c: Any) -> Any:
        return ops.log_softmax(v), pull(ops.log_softmax)(v, c)

    from autodiff.lower.jax import lower_jax

    y, gradient = lower_jax(ad.trace(both, x, g))(x, g)
    want = [exact.log_softmax(row)[:1] for row in x]
    assert worst(np.asarray(y)[:, :1], want) <= 1e-6
    slopes = [exact.log_softmax_vjp(a, b)[:1] for a, b in zip(x, g, strict=True)]
    assert worst(np.asarray(gradient)[:, :1], slopes) <= 2e-6


# --- errors ----------------------------------------------------------------------------------


def test_error_texts():
    with pytest.raises(ShapeError) as caught:
        ops.softmax(np.ones(3) * 1j)
    assert str(caught.value).splitlines() == [
        "SOFTMAX is not defined for complex128",
        "in op SOFTMAX, operands complex128[3]",
        "convert the operands to one real floating dtype with astype",
    ]
    with pytest.raises(ShapeError, match=r"axis 2 is out of bounds for 1 axes\nin op LOGSUMEXP"):
        ops.logsumexp(np.ones(3), axis=2)
