"""Entries of the ops whose extents come from another operand."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import COMPLEX, REAL
from catalogue.entry import Entry, Sample, define
from catalogue.shape import marks

Rng = np.random.Generator
Row = tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]


def _pairs(*rows: Row) -> Callable[[Rng], Iterable[Sample]]:
    """Samples (name, shape, template's shape, arguments).

    The template holds NaN: only its shape may be read.
    """

    def samples(rng: Rng) -> Iterable[Sample]:
        for name, shape, template, kwargs in rows:
            args = (REAL.draw(rng, shape), np.full(template, np.nan))
            yield Sample(name, args, kwargs, marks(shape, template), argnums=(0,))
        _, shape, template, kwargs = rows[0]
        args = (COMPLEX.draw(rng, shape), np.zeros(template, bool))
        yield Sample("complex", args, kwargs, frozenset({"complex"}))
        whole = (rng.integers(-9, 9, shape), np.zeros(template))
        yield Sample("integer", whole, kwargs, frozenset({"integer"}))

    return samples


define(
    Entry(
        "BROADCAST_LIKE",
        ops.broadcast_like,
        _pairs(
            ("row", (3,), (2, 3), {}),
            ("column", (3, 1), (2, 3, 2), {}),
            ("scalar", (), (2, 2), {}),
            ("same", (2, 3), (2, 3), {}),
            ("empty", (1, 2), (0, 2), {}),
        ),
    )
)
define(
    Entry(
        "SLICE_LIKE",
        ops.slice_like,
        _pairs(
            ("corner", (4, 5), (2, 3), {}),
            ("inside", (4, 5), (2, 3), {"start": (1, 2)}),
            ("whole", (2, 3), (2, 3), {}),
            ("nothing", (3,), (0,), {"start": 3}),
            ("scalar", (), (), {}),
            ("empty", (0, 2), (0, 1), {"start": (0, 1)}),
        ),
    )
)
define(
    Entry(
        "PAD_LIKE",
        ops.pad_like,
        _pairs(
            ("corner", (2, 3), (4, 5), {}),
            ("inside", (2, 3), (4, 5), {"start": (1, 2)}),
            ("whole", (2, 3), (2, 3), {}),
            ("scalar", (), (), {}),
            ("empty", (0,), (3,), {"start": 1}),
        ),
    )
)


def _at(kind: str) -> Callable[[Rng], Iterable[Sample]]:
    """Samples of SLICE_AT and PAD_TO; starts beyond both ends are moved inside."""

    def samples(rng: Rng) -> Iterable[Sample]:
        rows = (
            ("inside", (4, 5), (2, 3), (1, 2)),
            ("beyond_the_end", (4, 5), (2, 3), (9, 3)),
            ("from_the_end", (5,), (2,), (-2,)),
            ("before_the_start", (5,), (2,), (-9,)),
            ("whole", (2, 3), (2, 3), (0, 0)),
            ("scalar", (), (), ()),
            ("nothing", (3,), (0,), (2,)),
            ("empty", (0, 2), (0, 1), (0, 1)),
        )
        for name, large, small, starts in rows:
            shape, template = (large, small) if kind == "SLICE_AT" else (small, large)
            places = tuple(np.asarray(s) for s in starts)
            args = (REAL.draw(rng, shape), np.full(template, np.nan), places)
            yield Sample(name, args, {}, marks(shape, template), argnums=(0,))

    return samples


define(Entry("SLICE_AT", ops.slice_at, _at("SLICE_AT")))
define(Entry("PAD_TO", ops.pad_to, _at("PAD_TO")))


def _templates(rng: Rng) -> Iterable[Sample]:
    for name, shape in (("matrix", (2, 3)), ("scalar", ()), ("empty", (0, 2))):
        yield Sample(name, (REAL.draw(rng, shape),), {}, marks(shape))
    yield Sample("complex", (COMPLEX.draw(rng, (2,)),), {}, frozenset({"complex"}))
    yield Sample("integer", (rng.integers(-9, 9, (2,)),), {}, frozenset({"integer"}))
    yield Sample("nonfinite", (np.array([np.nan, np.inf]),), {}, frozenset({"nonfinite"}))


define(Entry("ZEROS_LIKE", ops.zeros_of, _templates))
define(
    Entry(
        "CHECK_SHAPE_LIKE",
        ops.check_shape_like,
        _pairs(
            ("matrix", (2, 3), (2, 3), {}),
            ("scalar", (), (), {}),
            ("empty", (0, 2), (0, 2), {}),
        ),
    )
)
