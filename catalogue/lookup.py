"""Entries of look-ups: rows of tables, one index per row, one-hot codes, sums by segment."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import COMPLEX, REAL
from catalogue.entry import Entry, Sample, Special, define

Rng = np.random.Generator


def _along(rng: Rng) -> Iterable[Sample]:
    rows: tuple[tuple[str, tuple[int, ...], Any, dict[str, Any]], ...] = (
        ("last", (2, 4), [[3, 0], [1, -1]], {}),
        ("first", (3, 2), [[2, 0], [2, -3]], {"axis": 0}),
        ("middle", (2, 3, 2), [[[2, 0]], [[1, 1]]], {"axis": 1}),
        ("indices_broadcast", (2, 4), [[3, 0, 3]], {}),
        ("rows_broadcast", (1, 4), [[3], [0], [3]], {"axis": -1}),
        ("flat", (2, 3), [5, 5, 0], {"axis": None}),
        ("one", (1, 1), [[0, 0]], {}),
    )
    for name, shape, indices, kwargs in rows:
        yield Sample(name, (REAL.draw(rng, shape), np.asarray(indices)), kwargs)
    args = (REAL.draw(rng, (3, 2)), np.zeros((0, 2), int))
    yield Sample("no_indices", args, {"axis": 0}, frozenset({"empty"}))
    z = (COMPLEX.draw(rng, (3,)), np.array([2, 2], np.int32))
    yield Sample("complex", z, {}, frozenset({"complex"}))
    bad = (np.array([np.nan, np.inf, 1.0]), np.array([0, 1, 1]))
    yield Sample("nonfinite", bad, {}, frozenset({"nonfinite"}))


define(Entry("TAKE_ALONG_AXIS", ops.take_along_axis, _along))


def _embeddings(rng: Rng) -> Iterable[Sample]:
    table, ids = REAL.draw(rng, (5, 3)), np.array([[4, 0, 4], [1, -1, 2]])
    yield Sample("sequences", (table, ids))
    yield Sample("padded", (table, ids), {"padding_index": 4})
    yield Sample("padded_first", (table, ids), {"padding_index": 0})
    yield Sample("padded_from_the_end", (table, ids), {"padding_index": -5})
    yield Sample("padding_unused", (table, ids), {"padding_index": 3})
    yield Sample("one_id", (table, np.asarray(2)))
    yield Sample("width_one", (REAL.draw(rng, (2, 1)), np.array([1, 1], np.int32)))
    empty = frozenset({"empty"})
    yield Sample("no_ids", (table, np.zeros((2, 0), int)), {"padding_index": 1}, empty)
    yield Sample("width_zero", (REAL.draw(rng, (2, 0)), np.array([1])), {}, empty)
    bad = np.array([[np.nan, np.inf], [1.0, 2.0]])
    nonfinite = frozenset({"nonfinite"})
    yield Sample("nan_padding", (bad, np.array([0, 1])), {"padding_index": 0}, nonfinite)


define(
    Entry(
        "EMBEDDING",
        ops.embedding,
        _embeddings,
        specials=(
            Special(
                "padding_is_exactly_zero",
                ([[np.nan, np.inf], [1.0, 2.0]], [0, 1, 1]),
                [[0.0, 0.0], [1.0, 2.0], [1.0, 2.0]],
                {"padding_index": 0},
                cotangent=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
                gradients=([[0.0, 0.0], [8.0, 10.0]],),
            ),
        ),
    )
)


def _codes(rng: Rng) -> Iterable[Sample]:
    del rng
    integer = frozenset({"integer"})
    yield Sample("vector", (np.array([2, 0, 1]),), {"depth": 3}, integer)
    yield Sample("matrix", (np.array([[1], [0]], np.int32),), {"depth": 2}, integer)
    yield Sample("scalar", (np.asarray(1),), {"depth": 4}, integer)
    yield Sample("outside", (np.array([-1, 5]),), {"depth": 3}, integer)
    yield Sample("complex", (np.array([1, 0]),), {"depth": 2, "dtype": "complex128"}, integer)
    yield Sample("bool", (np.array([1, 0]),), {"depth": 2, "dtype": "bool"}, integer)
    empty = integer | {"empty"}
    yield Sample("depth_zero", (np.array([1, 0]),), {"depth": 0}, empty)
    yield Sample("empty", (np.zeros(0, int),), {"depth": 2}, empty)


define(Entry("ONE_HOT", ops.one_hot, _codes))


def _segments(rng: Rng) -> Iterable[Sample]:
    ids = np.array([2, 0, 2, 0])
    yield Sample("vector", (REAL.draw(rng, (4,)), ids), {"num_segments": 3})
    yield Sample("rows", (REAL.draw(rng, (4, 2)), ids), {"num_segments": 4})
    yield Sample("negative", (REAL.draw(rng, (2,)), np.array([-1, 0])), {"num_segments": 2})
    yield Sample("one_segment", (REAL.draw(rng, (4, 2)), ids * 0), {"num_segments": 1})
    z = (COMPLEX.draw(rng, (4,)), ids)
    yield Sample("complex", z, {"num_segments": 3}, frozenset({"complex"}))
    empty = (np.zeros((0, 2)), np.zeros(0, int))
    yield Sample("empty", empty, {"num_segments": 2}, frozenset({"empty"}))


define(Entry("SEGMENT_SUM", ops.segment_sum, _segments, contracts=True))
