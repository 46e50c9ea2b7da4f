"""Rules kept as replayed programs: the same numbers, never those of another rule or parameter."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff import kept, ops
from autodiff.op import OPS
from checks.power.inject import mutated

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(4, 5)), RNG.normal(size=(5, 3))
USES = kept.KEPT_FROM + 3


def network(x: Any, w: Any) -> Any:
    h = np.tanh(x @ w)
    return ops.softmax(h * h + np.sum(x, axis=1, keepdims=True), axis=-1)


def pulled(f: Callable[..., Any], *args: Any) -> list[Any]:
    out, pull = ad.vjp(f, *args)
    return list(pull(np.random.default_rng(1).normal(size=np.shape(out))))


def pushed(f: Callable[..., Any], *args: Any) -> list[Any]:
    rng = np.random.default_rng(2)
    return [ad.jvp(f, args, tuple(rng.normal(size=np.shape(a)) for a in args))[1]]


@pytest.fixture(autouse=True)
def forgotten() -> None:
    kept._kept.cache_clear()


@pytest.mark.parametrize("derivative", [pulled, pushed])
def test_a_kept_rule_gives_what_the_rule_gives(
    monkeypatch: pytest.MonkeyPatch, derivative: Any
) -> None:
    monkeypatch.setattr(kept, "KEPT_FROM", 1 << 30)
    by_rule = derivative(network, X, W)
    monkeypatch.undo()
    for _ in range(USES):
        for a, b in zip(derivative(network, X, W), by_rule, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(("derivative", "rule"), [(pulled, "vjp"), (pushed, "jvp")])
def test_the_rule_itself_is_left_alone_once_kept(derivative: Any, rule: str) -> None:
    calls: list[int] = []
    own = getattr(OPS["SOFTMAX"], rule)

    def counted(*args: Any, **params: Any) -> Any:
        calls.append(1)
        return own(*args, **params)

    with mutated("SOFTMAX", **{rule: counted}):
        counts = []
        for _ in range(USES):
            derivative(lambda x: ops.softmax(x, axis=-1), X)
            counts.append(len(calls))
    assert counts[-1] == counts[-2] == counts[kept.KEPT_FROM - 1] > counts[0] > 0


def test_other_values_of_the_arguments_are_used() -> None:
    for n in range(USES):
        x = X + n
        np.testing.assert_allclose(ad.grad(lambda x: np.sum(x * x * x))(x), 3 * x * x, rtol=1e-13)


def test_a_wrong_rule_put_in_place_is_seen() -> None:
    for _ in range(USES):
        right = pulled(np.tanh, X)[0]
    own = OPS["TANH"].jvp
    assert own is not None
    with mutated("TANH", jvp=lambda p, t, y: -own(p, t, y)):
        for _ in range(USES):
            np.testing.assert_allclose(pulled(np.tanh, X)[0], -right, rtol=1e-13)
    np.testing.assert_allclose(pulled(np.tanh, X)[0], right, rtol=1e-13)


@pytest.mark.parametrize("first", [0, 1])
def test_parameters_of_equal_shapes_are_kept_apart(first: int) -> None:
    weights = RNG.normal(size=X.shape)
    for axis in (first,) * USES + (1 - first,) * USES:
        got = ad.grad(lambda x, axis=axis: np.sum(np.cumsum(x, axis=axis) * weights))(X)
        want = np.flip(np.cumsum(np.flip(weights, axis), axis=axis), axis)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


def test_dtypes_are_kept_apart() -> None:
    for dtype in (np.float64,) * USES + (np.float32,) * USES:
        assert [g.dtype for g in pulled(np.tanh, X.astype(dtype))] == [dtype]


def test_results_without_a_cotangent_are_kept_apart() -> None:
    symmetric = X.T @ X
    values, vectors = np.linalg.eigh(symmetric)
    for part in (0,) * USES + (1,) * USES:
        got = ad.grad(lambda s, part=part: np.sum(np.linalg.eigh(s)[part] ** 2 * np.arange(5)))(
            symmetric
        )
        if part == 0:  # sum k lambda_k^2 has the gradient sum 2 k lambda_k v_k v_k^T
            want = (vectors * (2 * np.arange(5) * values)) @ vectors.T
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
        else:
            gap = values[None, :] - values[:, None] + np.eye(5)
            inner = (vectors.T @ (2 * vectors * np.arange(5))) / gap * (1 - np.eye(5))
            want = vectors @ inner @ vectors.T
            np.testing.assert_allclose(got, (want + want.T) / 2, rtol=1e-8, atol=1e-11)


def test_results_are_the_callers_own() -> None:
    for _ in range(USES):
        (gradient,) = pulled(lambda x: x + 0.0, X)
        gradient[:] = 7.0
    assert not np.any(pulled(lambda x: x + 0.0, X)[0] == 7.0)


@pytest.mark.parametrize("first", [0, 1])
def test_operands_that_are_differentiated_are_kept_apart(first: int) -> None:
    other = RNG.normal(size=X.shape)
    for number in (first,) * USES + (1 - first,) * USES:
        got = ad.grad(lambda x, y: np.sum(x / y), number)(X, other)
        want = 1 / other if number == 0 else -X / other**2
        np.testing.assert_allclose(got, want, rtol=1e-13)
