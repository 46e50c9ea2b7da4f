"""Entries of windows at run-time positions."""

from collections.abc import Iterable

import numpy as np

from autodiff import ops
from catalogue.domain import COMPLEX, REAL
from catalogue.entry import Entry, Sample, Special, define
from catalogue.shape import marks

Rng = np.random.Generator

# name, shape, window, starts: starts beyond either end are moved inside
ROWS: tuple[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
    ("inside", (4, 5), (2, 3), (1, 2)),
    ("beyond_the_end", (4, 5), (2, 3), (9, 3)),
    ("from_the_end", (5,), (2,), (-2,)),
    ("before_the_start", (5, 2), (2, 1), (-9, -1)),
    ("one_too_far", (5,), (3,), (3,)),
    ("whole", (2, 3), (2, 3), (1, -1)),
    ("scalar", (), (), ()),
    ("one", (1,), (1,), (1,)),
    ("nothing", (3,), (0,), (2,)),
    ("empty", (0, 2), (0, 1), (0, 1)),
)


def _slices(rng: Rng) -> Iterable[Sample]:
    for name, shape, sizes, starts in ROWS:
        args = (REAL.draw(rng, shape), tuple(np.asarray(s) for s in starts))
        yield Sample(name, args, {"sizes": sizes}, marks(shape, sizes))
    at = (np.asarray(1, np.int32),)
    z = (COMPLEX.draw(rng, (3,)), at)
    yield Sample("complex", z, {"sizes": (2,)}, frozenset({"complex"}))
    yield Sample("integer", (np.arange(3), at), {"sizes": (2,)}, frozenset({"integer"}))


def _updates(rng: Rng) -> Iterable[Sample]:
    for name, shape, sizes, starts in ROWS:
        places = tuple(np.asarray(s) for s in starts)
        args = (REAL.draw(rng, shape), REAL.draw(rng, sizes), places)
        yield Sample(name, args, {}, marks(shape, sizes))
    at = (np.asarray(1, np.int32),)
    z = (COMPLEX.draw(rng, (3,)), COMPLEX.draw(rng, (2,)), at)
    yield Sample("complex", z, {}, frozenset({"complex"}))
    whole = (np.arange(3), np.array([7, 8]), at)
    yield Sample("integer", whole, {}, frozenset({"integer"}))


define(
    Entry(
        "DYNAMIC_SLICE",
        ops.dynamic_slice,
        _slices,
        specials=(
            Special(
                "moved_inside",
                ([1.0, 2.0, 3.0], (np.asarray(7),)),
                [2.0, 3.0],
                {"sizes": (2,)},
                cotangent=[10.0, 20.0],
                gradients=([0.0, 10.0, 20.0],),
            ),
        ),
    )
)
define(
    Entry(
        "DYNAMIC_UPDATE_SLICE",
        ops.dynamic_update_slice,
        _updates,
        specials=(
            Special(
                "moved_inside",
                ([1.0, 2.0, 3.0], [8.0, 9.0], (np.asarray(7),)),
                [1.0, 8.0, 9.0],
                cotangent=[10.0, 20.0, 30.0],
                gradients=([10.0, 0.0, 0.0], [20.0, 30.0]),
            ),
        ),
    )
)
