"""Entries of what a language model's server runs."""

from collections.abc import Iterable

import numpy as np

from autodiff import ops
from catalogue.domain import POSITIVE, REAL, UNIT
from catalogue.entry import Entry, Sample, Special, define

NAN = np.nan


def _writes(rng: np.random.Generator) -> Iterable[Sample]:
    cache = REAL.draw(rng, (3, 2, 2))
    for name, slots in (
        ("scattered", [4, 0, 3]),
        ("padding", [-1, 2, -1]),
        ("same_slot", [1, 1, 5]),
        ("last_slot", [5, -1, 0]),
    ):
        yield Sample(name, (cache, REAL.draw(rng, (3, 2)), np.array(slots)))
    yield Sample("no_tokens", (cache, np.zeros((0, 2)), np.zeros(0, np.int64)))
    yield Sample(
        "no_pages",
        (np.zeros((0, 2, 2)), REAL.draw(rng, (1, 2)), np.array([-1])),
        tags=frozenset({"empty"}),
    )
    yield Sample(
        "rows_of_matrices", (REAL.draw(rng, (1, 3, 2, 2)), REAL.draw(rng, (1, 2, 2)), np.array([2]))
    )


define(Entry("KV_CACHE_WRITE", ops.kv_cache_write, _writes))


def _paged(rng: np.random.Generator) -> Iterable[Sample]:
    k, v = REAL.draw(rng, (4, 2, 1, 2)), REAL.draw(rng, (4, 2, 1, 3))
    q = REAL.draw(rng, (2, 2, 2))
    table = np.array([[3, 0], [1, 2]])
    yield Sample("full", (q, k, v, table, np.array([4, 4])))
    yield Sample("partial", (q, k, v, table, np.array([3, 1])))
    yield Sample("nothing_yet", (q, k, v, table, np.array([0, 2])))
    yield Sample("window", (q, k, v, table, np.array([4, 3])), {"window": 2})
    yield Sample(
        "shared_page", (q, k, v, np.array([[1, 0], [1, 3]]), np.array([3, 4])), {"scale": 0.3}
    )
    wide = REAL.draw(rng, (3, 2, 2, 2)), REAL.draw(rng, (3, 2, 2, 2))
    yield Sample("kv_heads", (REAL.draw(rng, (1, 4, 2)), *wide, np.array([[2, 0]]), np.array([3])))


define(
    Entry(
        "PAGED_ATTENTION",
        ops.paged_attention,
        _paged,
        contracts=True,
        specials=(
            Special(
                "never_reads_past_the_length",
                (
                    np.zeros((1, 1, 1)),
                    np.array([1.0, NAN]).reshape(1, 2, 1, 1),
                    np.array([3.0, NAN]).reshape(1, 2, 1, 1),
                    np.array([[0, 99]]),
                    np.array([1]),
                ),
                np.array([[[3.0]]]),
                cotangent=np.array([[[2.0]]]),
                gradients=(
                    np.zeros((1, 1, 1)),
                    np.zeros((1, 2, 1, 1)),
                    np.array([2.0, 0.0]).reshape(1, 2, 1, 1),
                ),
            ),
        ),
    )
)


def _experts(rng: np.random.Generator) -> Iterable[Sample]:
    for name, rows, experts, k in (
        ("top_two", (3,), 4, 2),
        ("top_one", (2, 2), 3, 1),
        ("all_experts", (2,), 2, 2),
        ("one_expert", (2,), 1, 1),
        ("vector", (), 3, 2),
        ("no_rows", (0,), 3, 2),
    ):
        weights = (REAL.draw(rng, (experts, 2, 3)), REAL.draw(rng, (experts, 2, 3)))
        args = (REAL.draw(rng, (*rows, 2)), REAL.draw(rng, (2, experts)), *weights)
        tags = frozenset({"empty"} if 0 in rows else ())
        yield Sample(name, (*args, REAL.draw(rng, (experts, 3, 2))), {"k": k}, tags)


define(Entry("MOE_EXPERTS", ops.moe_experts, _experts, contracts=True))


def _delta(rng: np.random.Generator) -> Iterable[Sample]:
    for name, rows, steps in (
        ("plain", (), 3),
        ("heads", (2, 1), 2),
        ("one_step", (1,), 1),
        ("no_time", (1,), 0),
    ):
        lead = (*rows, steps)
        args = (
            REAL.draw(rng, (*lead, 2)),
            UNIT.draw(rng, (*lead, 2)),
            REAL.draw(rng, (*lead, 3)),
            -POSITIVE.draw(rng, lead),
            UNIT.draw(rng, lead),
        )
        tags = frozenset({"empty"} if not steps else ())
        yield Sample(f"{name}_from_rest", args, tags=tags)
        yield Sample(name, (*args, REAL.draw(rng, (*rows, 2, 3))), tags=tags)


define(Entry("GATED_DELTA_RULE", ops.gated_delta_rule, _delta, contracts=True))
