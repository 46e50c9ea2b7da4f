"""Entries of gather and scatter."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import COMPLEX, REAL
from catalogue.entry import Entry, Sample, Special, define
from catalogue.shape import marks

Rng = np.random.Generator

# name, shape of x, indices, arguments; repeated, negative and unsorted indices throughout
ROWS: tuple[tuple[str, tuple[int, ...], Any, dict[str, Any]], ...] = (
    ("rows", (4, 3), [2, 0, 2, -1], {}),
    ("columns", (2, 5), [[4, -5], [1, 1]], {"axis": -1}),
    ("middle", (2, 4, 2), [3, 3, 0], {"axis": 1}),
    ("scalar_index", (4, 3), 2, {}),
    ("vector", (5,), [4, 3, 2, 1, 0], {}),
    ("one", (1,), [0, 0, 0], {}),
    ("no_indices", (3, 2), np.zeros(0, int), {}),
    ("empty_rows", (3, 0), [1, 1], {}),
    ("square", (3, 3), [2, 0, 1], {}),
)


def _gathers(rng: Rng) -> Iterable[Sample]:
    for name, shape, indices, kwargs in ROWS:
        places = np.asarray(indices)
        yield Sample(name, (REAL.draw(rng, shape), places), kwargs, marks(shape, places.shape))
    beyond = np.array([-9, -1, 1, 9])
    for mode in ("clip", "wrap"):
        yield Sample(mode, (REAL.draw(rng, (3, 2)), beyond), {"mode": mode})
    places = np.array([1, 1, 0], np.uint8)
    yield Sample("small_indices", (REAL.draw(rng, (2,)), places))
    places = places.astype(np.int32)
    yield Sample("complex", (COMPLEX.draw(rng, (2,)), places), {}, frozenset({"complex"}))
    yield Sample("integer", (np.array([7, -8]), places), {}, frozenset({"integer"}))
    bad = np.array([np.nan, np.inf])
    yield Sample("nonfinite", (bad, places), {}, frozenset({"nonfinite"}))


define(
    Entry(
        "GATHER",
        ops.gather,
        _gathers,
        specials=(
            Special(
                "taken_twice",
                ([1.0, 2.0, 3.0], [2, 0, 2]),
                [3.0, 1.0, 3.0],
                cotangent=[1.0, 10.0, 100.0],
                gradients=([10.0, 0.0, 101.0],),
            ),
            Special(
                "beyond_both_ends",
                ([1.0, 2.0, 3.0], [0, 2, 7, -9]),
                [1.0, 3.0, 3.0, 1.0],
                {"mode": "clip"},
                cotangent=[1.0, 10.0, 100.0, 1000.0],
                gradients=([1001.0, 0.0, 110.0],),
            ),
        ),
    )
)


def _scatters(rng: Rng) -> Iterable[Sample]:
    for name, shape, indices, kwargs in ROWS:
        places = np.asarray(indices)
        axis = kwargs.get("axis", 0) % len(shape)
        part = (*shape[:axis], *places.shape, *shape[axis + 1 :])
        args = (REAL.draw(rng, shape), places, REAL.draw(rng, part))
        yield Sample(name, args, kwargs, marks(shape, part))
    x, places = REAL.draw(rng, (3, 2)), np.array([1, -1])
    yield Sample("one_update_for_all", (x, places, np.asarray(0.5)))
    yield Sample("row_for_all", (x, places, REAL.draw(rng, (2,))))
    z = COMPLEX.draw(rng, (3, 2)), places, COMPLEX.draw(rng, (2, 2))
    yield Sample("complex", z, {}, frozenset({"complex"}))
    whole = (np.array([7, -8]), np.array([1, 1]), np.array([5, 6]))
    yield Sample("integer", whole, {}, frozenset({"integer"}))
    bad = (np.array([np.nan, 1.0]), np.array([0, 1]), np.array([2.0, np.inf]))
    yield Sample("nonfinite", bad, {}, frozenset({"nonfinite"}))


define(
    Entry(
        "SCATTER",
        ops.scatter,
        _scatters,
        specials=(
            Special(
                "the_last_wins",
                ([1.0, 2.0, 3.0], [2, 0, 2], [10.0, 20.0, 30.0]),
                [20.0, 2.0, 30.0],
                cotangent=[1.0, 10.0, 100.0],
                gradients=([0.0, 10.0, 0.0], [0.0, 1.0, 100.0]),
            ),
        ),
    )
)
