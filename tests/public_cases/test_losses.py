"""Cross entropy, attention and divergences where a class is masked, unweighted or hopeless."""

from typing import Any

import numpy as np
import pytest
import scipy.special as special

import autodiff as ad
from autodiff import ops
from tests.public_cases.cases import right
from tests.public_cases.roads import hold, slopes, values

INF = float("inf")

# --- B01: a masked class --------------------------------------------------------------------

MASKED, LABEL = np.array([-INF, 0.0]), np.array([0.0, 1.0])


def guarded(z: Any) -> Any:
    return -np.sum(np.where(LABEL == 0, 0.0, LABEL * ops.log_softmax(z)))


@pytest.mark.parametrize(
    "loss",
    [lambda z: ops.cross_entropy(z, LABEL), guarded],
    ids=["cross_entropy", "guarded by hand"],
)
def test_b01_a_masked_class_without_weight_costs_nothing(loss: Any) -> None:
    hold(values(loss, MASKED), "B01", "loss")
    hold(slopes(loss, MASKED), "B01", "gradient")


def test_b01_weight_on_a_masked_class_is_an_infinite_loss_not_nan() -> None:
    smoothed = np.array([0.05, 0.95])
    found = values(lambda z: ops.cross_entropy(z, smoothed), MASKED)
    hold(found, "B01", "loss with a weight on the masked class")


# --- B03: a query that sees no key ----------------------------------------------------------

SEEN = np.array([[True, True], [False, False]])
QUERY, KEY, VALUE = np.array([0.5, 1.0]), np.array([0.3, -0.7]), np.array([2.0, -1.0])


def attended(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (a[:, None] for a in (q, k, v))
    return ops.scaled_dot_product_attention(q, k, v, mask=SEEN)[:, 0]


def finite_before_the_product(q: Any, k: Any, v: Any) -> Any:
    weights = ops.softmax(np.where(SEEN, np.outer(q, k), -INF))
    return np.where(np.any(SEEN, axis=1, keepdims=True), weights, 0.0) @ v


@pytest.mark.parametrize("attention", [attended, finite_before_the_product])
def test_b03_a_row_that_sees_nothing_leaves_shared_gradients_clean(attention: Any) -> None:
    def first_row(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v)[0]

    hold(values(first_row, QUERY, KEY, VALUE), "B03", "row 0")
    for n, what in enumerate(("gradient in q", "gradient in k", "gradient in v")):
        hold(slopes(first_row, QUERY, KEY, VALUE, argnum=n), "B03", what)


def test_b03_the_empty_row_itself_is_zero_and_so_are_its_slopes() -> None:
    for n in range(3):
        for road, j in slopes(attended, QUERY, KEY, VALUE, argnum=n).items():
            assert np.all(np.isfinite(j)) and not np.any(j[1]), road


# --- B04: a target with zeros ---------------------------------------------------------------

LOGITS, TARGET = np.array([0.5, 1.0, 2.0, -1.0]), np.array([0.0, 0.4, 0.6, 0.0])
PREDICTED = np.asarray(ops.log_softmax(LOGITS))


def by_xlogy(q: Any, logp: Any) -> Any:
    return np.sum(special.xlogy(q, q) - q * logp)


def by_entr(q: Any, logp: Any) -> Any:
    return np.sum(-special.entr(q) - q * logp)


def by_where(q: Any, logp: Any) -> Any:
    safe = np.where(q > 0, q, 1.0)
    return np.sum(np.where(q > 0, q * (np.log(safe) - logp), 0.0))


@pytest.mark.parametrize("divergence", [by_xlogy, by_entr, by_where])
def test_b04_divergence_from_a_target_with_zeros(divergence: Any) -> None:
    hold(values(divergence, TARGET, PREDICTED), "B04", "value")
    hold(slopes(divergence, TARGET, PREDICTED, argnum=1), "B04", "slope in l")
    in_q = slopes(divergence, TARGET, PREDICTED)
    hold({road: g[1:3] for road, g in in_q.items()}, "B04", "slope in q where q > 0")


@pytest.mark.parametrize("divergence", [by_xlogy, by_entr])
def test_b04_the_slope_at_a_zero_of_the_target_is_minus_infinity(divergence: Any) -> None:
    accepted = right("B04", "slope in q where q = 0").one_of
    assert accepted is not None and "-inf" in accepted
    gradient = ad.grad(divergence)(TARGET, PREDICTED)
    np.testing.assert_array_equal(gradient[[0, 3]], -INF)


def test_b04_a_masked_prediction_without_weight() -> None:
    masked = np.array([*PREDICTED[:3], -INF])

    def by_products(q: Any, logp: Any) -> Any:
        return np.sum(special.xlogy(q, q) - special.xlogy(q, np.exp(logp)))

    for divergence in (by_where, by_products):
        hold(values(divergence, TARGET, masked), "B04", "value with a masked prediction")


# --- B06: a hopeless label ------------------------------------------------------------------

FAR = [-431.0, 279.0, 427.0]


@pytest.mark.parametrize(
    "loss",
    [
        lambda z: -ops.log_softmax(z)[0],
        lambda z: ops.cross_entropy(z, np.array(0)),
        lambda z: ops.cross_entropy(z, np.array([1.0, 0.0, 0.0])),
        lambda z: ops.logsumexp(z) - z[0],
    ],
    ids=["log_softmax", "label", "one-hot", "logsumexp"],
)
def test_b06_a_dominant_wrong_class(loss: Any) -> None:
    hold(values(loss, FAR), "B06", "loss")
    hold(slopes(loss, FAR), "B06", "gradient")


def test_b06_the_sum_of_softmax_is_flat() -> None:
    found = slopes(lambda z: np.sum(ops.softmax(z)), [-1047.0, -981.0, 1891.0])
    hold(found, "B06", "gradient of the sum of softmax")
