"""Entries of attention, rotary positions and the gated unit."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import REAL
from catalogue.entry import Entry, Sample, Special, define, elementwise

INF, NAN = np.inf, np.nan


def _attention(rng: np.random.Generator) -> Iterable[Sample]:
    shapes: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
        ("single_head", ((3, 2), (4, 2), (4, 3)), {}),
        ("heads", ((2, 2, 3, 2), (2, 2, 3, 2), (2, 2, 3, 2)), {}),
        ("causal", ((2, 3, 2), (2, 3, 2), (2, 3, 2)), {"is_causal": True}),
        ("causal_more_keys", ((1, 2, 2), (1, 4, 2), (1, 4, 2)), {"is_causal": True}),
        ("causal_more_queries", ((4, 2), (2, 2), (2, 1)), {"is_causal": True}),
        ("grouped_queries", ((1, 4, 2, 3), (1, 2, 3, 3), (1, 2, 3, 2)), {"scale": 0.4}),
        ("one_kv_head", ((3, 2, 2), (1, 3, 2), (1, 3, 2)), {"is_causal": True}),
        ("broadcast_batch", ((2, 1, 2, 2), (1, 1, 3, 2), (3, 1, 1, 3, 2)), {}),
        ("one_key", ((2, 3, 2), (2, 1, 2), (2, 1, 2)), {}),
        ("no_keys", ((2, 2), (0, 2), (0, 3)), {}),
        ("no_queries", ((1, 0, 2), (1, 3, 2), (1, 3, 2)), {}),
        ("empty_batch", ((0, 2, 2, 2), (0, 1, 3, 2), (0, 1, 3, 2)), {}),
    )
    for name, operands, kwargs in shapes:
        tags = frozenset({"empty"} if any(0 in s for s in operands) else ())
        yield Sample(name, tuple(REAL.draw(rng, s) for s in operands), kwargs, tags)
    q, k, v = REAL.draw(rng, (2, 3, 2)), REAL.draw(rng, (2, 4, 2)), REAL.draw(rng, (2, 4, 2))
    yield Sample("bias", (q, k, v, REAL.draw(rng, (3, 4))))
    yield Sample("bias_per_head", (q, k, v, REAL.draw(rng, (2, 1, 4))), {"is_causal": True})
    seen = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]], np.bool_)
    yield Sample("masked_row", (q, k, v, seen))
    yield Sample("masked_keys", (q, k, v, np.array([True, False, True, True])))
    hidden = np.where(seen, 0.0, -INF)
    yield Sample("infinite_bias", (q, k, v, hidden), argnums=(0, 1, 2))
    yield Sample("one_dominant_key", (4 * q, 4 * k, v))
    yield Sample("equal_scores", (np.zeros((2, 3, 2)), k, v))
    bad = k.copy()
    bad[0, 1] = NAN
    yield Sample("nan_key", (q, bad, v), tags=frozenset({"nonfinite"}))


_QUERY, _KEYS = np.array([[0.5], [1.0]]), np.array([[0.3], [-0.7]])
_VALUES = np.array([[2.0], [-1.0]])
_NONE = np.zeros((2, 2), np.bool_)

define(
    Entry(
        "SCALED_DOT_PRODUCT_ATTENTION",
        ops.scaled_dot_product_attention,
        _attention,
        contracts=True,
        specials=(
            Special(
                "all_masked",
                (_QUERY, _KEYS, _VALUES, _NONE),
                np.zeros((2, 1)),
                cotangent=np.array([[3.0], [-2.0]]),
                gradients=(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros((2, 1))),
            ),
            Special(
                "all_masked_by_bias",
                (_QUERY, _KEYS, _VALUES, np.full((2, 2), -INF)),
                np.zeros((2, 1)),
                cotangent=np.array([[3.0], [-2.0]]),
                gradients=(np.zeros((2, 1)),) * 3 + (np.zeros((2, 2)),),
            ),
            Special(
                "scores_of_zero",
                (np.zeros((1, 1)), _KEYS, _VALUES),
                np.array([[0.5]]),
                cotangent=np.array([[4.0]]),
                gradients=(np.array([[3.0]]), np.zeros((2, 1)), np.array([[2.0], [2.0]])),
            ),
        ),
    )
)


def _rope(rng: np.random.Generator) -> Iterable[Sample]:
    for name, shape, kwargs in (
        ("half_split", (2, 3, 4), {}),
        ("interleaved", (2, 3, 4), {"interleaved": True}),
        ("one_pair", (2, 2), {"base": 100.0}),
        ("no_pairs", (2, 0), {}),
        ("no_rows", (0, 4), {}),
    ):
        tags = frozenset({"empty"} if 0 in shape else ())
        yield Sample(name, (REAL.draw(rng, shape),), kwargs, tags)
    x = REAL.draw(rng, (2, 3, 6))
    yield Sample("positions", (x, np.array([7, 0, 2])))
    yield Sample("positions_per_row", (x, np.array([[0, 1, 2], [5, 6, 7]])), {"interleaved": True})
    yield Sample("one_position", (x[0, 0], np.array(3)))
    yield Sample("far_positions", (x, np.array([[4095], [100003]])))
    yield Sample("fractional_positions", (x, np.array([0.25, -1.5, 12.75])))


define(Entry("ROPE", ops.rope, _rope))

elementwise(
    "SWIGLU",
    ops.swiglu,
    REAL,
    REAL,
    points={
        "tails": ([-40.0, 40.0, 0.0], [2.0, -0.5, 3.0]),
        "infinite": ([INF, -INF, NAN], [1.0, 1.0, 1.0]),
    },
    tags={"infinite": ["nonfinite"]},
    specials=(Special("zero", (0.0, 3.0), 0.0, cotangent=2.0, gradients=(3.0, 0.0)),),
    composable=True,
)
