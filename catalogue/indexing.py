"""Entries of NumPy index expressions."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import COMPLEX, REAL
from catalogue.entry import Entry, Sample, Special, define
from catalogue.shape import marks

Rng = np.random.Generator

MASK = ((True, False, True), (False, False, True))
# name, shape, index known in advance
STATIC: tuple[tuple[str, tuple[int, ...], Any], ...] = (
    ("integer_index", (3, 4), 1),
    ("element", (3, 4), (-1, 2)),
    ("slices", (4, 5), (slice(1, None), slice(None, -1, 2))),
    ("backwards", (5, 3), (slice(None, None, -2), ...)),
    ("new_axes", (2, 3), (None, ..., None, slice(0, 2))),
    ("lists", (3, 4), ([0, 2, 0], [1, -1, 1])),
    ("list_and_slice", (3, 4, 2), (slice(None), [3, 0, 0])),
    ("split_arrays", (3, 2, 4), ([0, 1, 0], slice(None), [3, 3, 0])),
    ("integer_and_array", (3, 2, 4), (1, slice(None), [3, 3, 0])),
    ("ellipsis_between", (3, 4), ([0, 1], ..., [3, 3])),
    ("broadcast_arrays", (3, 4), ([[0], [2]], [1, 3, -1])),
    ("mask", (2, 3), MASK),
    ("mask_of_rows", (3, 2), ([True, False, True],)),
    ("scalar_mask", (2,), (True, ...)),
    ("nothing", (3, 2), (slice(2, 1),)),
    ("no_true", (3, 2), ([False] * 3,)),
    ("scalar", (), ...),
    ("scalar_new_axis", (), (None,)),
)


def _static(rng: Rng) -> Iterable[tuple[str, Any, Any]]:
    for name, shape, index in STATIC:
        static = np.asarray(index) if name == "mask" else index
        yield name, REAL.draw(rng, shape), static


def _indexed(rng: Rng) -> Iterable[Sample]:
    for name, x, index in _static(rng):
        yield Sample(name, (x,), {"index": index}, marks(x.shape, x[index].shape))
    rows, columns = np.array([2, 0, 2]), np.array([[1], [-1]])
    yield Sample("traced_rows", (REAL.draw(rng, (3, 4)), rows))
    yield Sample("traced_pairs", (REAL.draw(rng, (3, 4)), (rows, columns)))
    yield Sample("traced_columns", (REAL.draw(rng, (3, 4)), (rows, None, columns)))
    yield Sample("traced_element", (REAL.draw(rng, (3, 4)), (np.asarray(-1), np.asarray(2))))
    yield Sample("complex", (COMPLEX.draw(rng, (3,)), rows), {}, frozenset({"complex"}))
    yield Sample("integer", (np.array([7, -8, 9]), rows), {}, frozenset({"integer"}))
    bad = np.array([np.nan, np.inf, -np.inf])
    yield Sample("nonfinite", (bad, rows), {}, frozenset({"nonfinite"}))


define(
    Entry(
        "INDEX",
        ops.index,
        _indexed,
        specials=(
            Special(
                "taken_twice",
                ([1.0, 2.0, 3.0],),
                [2.0, 2.0],
                {"index": ([1, 1],)},
                cotangent=[1.0, 10.0],
                gradients=([0.0, 11.0, 0.0],),
            ),
        ),
    )
)


def _update(x: Any, value: Any, index: Any) -> Any:
    return ops.index_update(x, index, value)


def _add(x: Any, value: Any, index: Any) -> Any:
    return ops.scatter_add(x, index, value)


def _updates(rng: Rng) -> Iterable[Sample]:
    for name, x, index in _static(rng):
        value = REAL.draw(rng, x[index].shape)
        yield Sample(name, (x, value), {"index": index}, marks(x.shape, value.shape))
    x, index = REAL.draw(rng, (3, 4)), (slice(1, None), [0, 0, 2])
    yield Sample("one_value", (x, np.asarray(0.5)), {"index": index})
    yield Sample("broadcast_value", (x, REAL.draw(rng, (3,))), {"index": index})
    yield Sample("leading_ones", (x, REAL.draw(rng, (1, 1, 4))), {"index": 0})
    rows, columns = np.array([2, 0, 2]), np.array([[1], [-1]])
    yield Sample("traced_rows", (x, REAL.draw(rng, (3, 4)), rows))
    yield Sample("traced_pairs", (x, REAL.draw(rng, (2, 3)), (rows, columns)))
    z = (COMPLEX.draw(rng, (3,)), COMPLEX.draw(rng, (3,)), rows)
    yield Sample("complex", z, {}, frozenset({"complex"}))
    whole = (np.array([7, -8, 9]), np.array([1, 2, 3]), rows)
    yield Sample("integer", whole, {}, frozenset({"integer"}))
    bad = (np.array([np.nan, 1.0, 2.0]), np.array([np.inf, 3.0, 4.0]), np.array([1, 2, 2]))
    yield Sample("nonfinite", bad, {}, frozenset({"nonfinite"}))


define(
    Entry(
        "INDEX_UPDATE",
        _update,
        _updates,
        specials=(
            Special(
                "the_last_wins",
                ([1.0, 2.0, 3.0], [10.0, 20.0]),
                [1.0, 20.0, 3.0],
                {"index": ([1, 1],)},
                cotangent=[1.0, 10.0, 100.0],
                gradients=([1.0, 0.0, 100.0], [0.0, 10.0]),
            ),
            Special(
                "overwritten_nan",
                ([float("nan"), 2.0], 5.0),
                [5.0, 2.0],
                {"index": 0},
                cotangent=[1.0, 10.0],
                gradients=([0.0, 10.0], 1.0),
            ),
        ),
    )
)
define(Entry("INDEX_ADD", _add, _updates, contracts=True))


def _added(x: Any, value: Any, index: Any, axis: int) -> Any:
    """SCATTER_ADD itself, which `ops.scatter_add` binds for arrays that index adjacent axes."""
    return ops.scatter_add(x, (*(slice(None),) * axis, *index), value)


def _scatter_adds(rng: Rng) -> Iterable[Sample]:
    i, j = np.array([2, 0, 2, -1]), np.array([[1], [1]])
    yield Sample("rows", (REAL.draw(rng, (3, 2)), REAL.draw(rng, (4, 2)), (i,)), {"axis": 0})
    args = (REAL.draw(rng, (2, 3)), REAL.draw(rng, (2, 2, 4)), (j * 0 + i,))
    yield Sample("columns", args, {"axis": 1})
    pairs = (REAL.draw(rng, (3, 2, 2)), REAL.draw(rng, (2, 4, 2)), (i, j))
    yield Sample("pairs", pairs, {"axis": 0})
    args = (REAL.draw(rng, (3,)), REAL.draw(rng, ()), (np.asarray(1),))
    yield Sample("scalar_index", args, {"axis": 0})
    args = (REAL.draw(rng, (3, 0)), REAL.draw(rng, (4, 0)), (i,))
    yield Sample("empty", args, {"axis": 0}, frozenset({"empty"}))
    args = (REAL.draw(rng, (3,)), np.array([1e300, -1e300, 1e-300, 1.0]), (i,))
    yield Sample("magnitudes", args, {"axis": 0}, frozenset({"large"}))
    args = (COMPLEX.draw(rng, (3,)), COMPLEX.draw(rng, (4,)), (i,))
    yield Sample("complex", args, {"axis": 0}, frozenset({"complex"}))


define(
    Entry(
        "SCATTER_ADD",
        _added,
        _scatter_adds,
        specials=(
            Special(
                "equal_indices_accumulate",
                ([1.0, 2.0, 3.0], [10.0, 20.0, 30.0], ([2, 0, 2],)),
                [21.0, 2.0, 43.0],
                {"axis": 0},
                cotangent=[1.0, 10.0, 100.0],
                gradients=([1.0, 10.0, 100.0], [100.0, 1.0, 100.0]),
            ),
        ),
        contracts=True,
    )
)
