"""Entries of sorting and searching."""

from collections.abc import Iterable

import numpy as np

from autodiff import ops
from catalogue.domain import COMPLEX, DISTINCT
from catalogue.entry import Entry, Sample, Special, define

Rng = np.random.Generator
NAN, INF = float("nan"), float("inf")


def _sorts(rng: Rng) -> Iterable[Sample]:
    yield Sample("vector", (DISTINCT.draw(rng, (6,)),))
    yield Sample("last", (DISTINCT.draw(rng, (3, 4)),))
    yield Sample("first", (DISTINCT.draw(rng, (3, 4)),), {"axis": 0})
    yield Sample("middle", (DISTINCT.draw(rng, (2, 3, 2)),), {"axis": -2})
    yield Sample("flat", (DISTINCT.draw(rng, (2, 3)),), {"axis": None})
    yield Sample("one", (DISTINCT.draw(rng, (2, 1)),))
    yield Sample("empty", (np.zeros((0, 3)),), {"axis": 0}, frozenset({"empty"}))
    yield Sample("empty_rows", (np.zeros((2, 0)),), {}, frozenset({"empty"}))
    # pairs: between three equal entries the stable order is no one-sided slope
    ties = np.array([[2.0, 1.0, 2.0, 1.0], [0.0, -0.0, 3.0, 3.0]])
    yield Sample("ties", (ties,), {}, frozenset({"tie"}))
    yield Sample("nan_last", (np.array([NAN, 2.0, -INF, NAN, INF]),), {}, frozenset({"nonfinite"}))
    extremes = np.array([1e300, -1e300, 1e-300, -1e-300])
    yield Sample("magnitudes", (extremes,), {}, frozenset({"large"}))
    yield Sample("integer", (np.array([3, -1, 3, 0]),), {}, frozenset({"integer"}))


def _complex_sorts(rng: Rng) -> Iterable[Sample]:
    yield from _sorts(rng)
    yield Sample("complex", (COMPLEX.draw(rng, (4,)),), {}, frozenset({"complex"}))
    same_real = np.array([1 + 2j, 1 - 1j, 0 + 5j])
    yield Sample("complex_equal_real_parts", (same_real,), {}, frozenset({"complex", "tie"}))


define(
    Entry(
        "SORT",
        ops.sort,
        _complex_sorts,
        specials=(
            Special(
                "ties_keep_their_order",
                ([2.0, 1.0, 2.0, 1.0],),
                [1.0, 1.0, 2.0, 2.0],
                cotangent=[1.0, 10.0, 100.0, 1000.0],
                gradients=([100.0, 1.0, 1000.0, 10.0],),
            ),
            Special(
                "three_equal",
                ([0.0, -0.0, 0.0, -1.0],),
                [-1.0, 0.0, 0.0, 0.0],
                cotangent=[1.0, 10.0, 100.0, 1000.0],
                gradients=([10.0, 100.0, 1000.0, 1.0],),
            ),
            Special(
                "nan_comes_last",
                ([NAN, INF, 1.0, -INF],),
                [-INF, 1.0, INF, NAN],
                cotangent=[1.0, 10.0, 100.0, 1000.0],
                gradients=([1000.0, 100.0, 10.0, 1.0],),
            ),
        ),
    )
)
define(
    Entry(
        "ARGSORT",
        ops.argsort,
        _complex_sorts,
        specials=(
            Special("ties_keep_their_order", ([2.0, 1.0, 2.0, 1.0],), [1, 3, 0, 2]),
            Special("signed_zeros_are_equal", ([0.0, -0.0, 0.0],), [0, 1, 2]),
            Special("nan_comes_last", ([NAN, INF, NAN, 1.0],), [3, 1, 0, 2]),
        ),
    )
)


def _tops(rng: Rng) -> Iterable[Sample]:
    yield Sample("vector", (DISTINCT.draw(rng, (6,)),), {"k": 3})
    yield Sample("rows", (DISTINCT.draw(rng, (3, 4)),), {"k": 2})
    yield Sample("columns", (DISTINCT.draw(rng, (4, 3)),), {"k": 2, "axis": 0})
    yield Sample("middle", (DISTINCT.draw(rng, (2, 3, 2)),), {"k": 1, "axis": -2})
    yield Sample("all", (DISTINCT.draw(rng, (4,)),), {"k": 4})
    yield Sample("none", (DISTINCT.draw(rng, (4,)),), {"k": 0}, frozenset({"empty"}))
    yield Sample("one", (DISTINCT.draw(rng, (1,)),), {"k": 1})
    yield Sample("empty", (np.zeros((0, 3)),), {"k": 2}, frozenset({"empty"}))
    yield Sample("ties", (np.array([1.0, 2.0, 2.0, 1.0]),), {"k": 3}, frozenset({"tie"}))
    bad = np.array([1.0, NAN, INF, NAN, -INF])
    yield Sample("nan_first", (bad,), {"k": 4}, frozenset({"nonfinite"}))
    yield Sample("integer", (np.array([3, -1, 3, 0]),), {"k": 2}, frozenset({"integer"}))


define(
    Entry(
        "TOP_K",
        ops.top_k,
        _tops,
        specials=(
            Special(
                "the_first_of_equals",
                ([2.0, 1.0, 2.0, 2.0],),
                ([2.0, 2.0], [0, 2]),
                {"k": 2},
                cotangent=(np.array([1.0, 10.0]), None),
                gradients=([1.0, 0.0, 10.0, 0.0],),
            ),
        ),
    )
)


def _searches(rng: Rng) -> Iterable[Sample]:
    row = np.array([-1.0, 0.0, 0.0, 2.0])
    values = np.array([[-2.0, -1.0, -0.5], [0.0, 2.0, 5.0]])
    for side in ("left", "right"):
        yield Sample(side, (row, values), {"side": side}, frozenset({"kink"}))
        rows = np.stack([row, row + 0.5])
        yield Sample(f"rows_{side}", (rows, values), {"side": side}, frozenset({"kink"}))
        bad = (np.array([-INF, 0.0, INF, NAN]), np.array([NAN, INF, -INF, 0.0]))
        yield Sample(f"nonfinite_{side}", bad, {"side": side}, frozenset({"nonfinite"}))
    yield Sample("scalar", (row, np.asarray(0.5)))
    yield Sample("distinct", (np.sort(DISTINCT.draw(rng, (9,))), DISTINCT.draw(rng, (2, 3))))
    yield Sample("integer", (np.array([1, 3, 3]), np.array([3, 0])), {}, frozenset({"integer"}))
    yield Sample("no_values", (row, np.zeros(0)), {}, frozenset({"empty"}))
    yield Sample("nothing_sorted", (np.zeros(0), values), {}, frozenset({"empty"}))
    nothing = (np.zeros((2, 0)), values)
    yield Sample("no_columns", nothing, {}, frozenset({"empty"}))


define(Entry("SEARCHSORTED", ops.searchsorted, _searches))
