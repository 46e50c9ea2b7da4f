"""Entries of parts of arrays and joins of them."""

from collections.abc import Callable, Iterable

import numpy as np

from autodiff import ops
from catalogue.domain import COMPLEX, REAL
from catalogue.entry import Entry, Sample, Special, define

Rng = np.random.Generator
Samples = Callable[[Rng], Iterable[Sample]]
NAN, INF = float("nan"), float("inf")


def calls(*rows: tuple[str, tuple[int, ...], dict[str, object]]) -> Samples:
    """Samples of a one-operand op: (name, shape, arguments); extents of 0 are tagged empty."""

    def samples(rng: Rng) -> Iterable[Sample]:
        for name, shape, kwargs in rows:
            tags = marks(shape) | ({"nonfinite"} if name.startswith("infinite") else set())
            yield Sample(name, (REAL.draw(rng, shape),), kwargs, tags)
        _, shape, kwargs = rows[0]
        yield Sample("complex", (COMPLEX.draw(rng, shape),), kwargs, frozenset({"complex"}))
        whole = np.asarray(rng.integers(-9, 9, shape))
        yield Sample("integer", (whole,), kwargs, frozenset({"integer"}))
        mixed = np.full(shape, 1e300)
        mixed.flat[:2] = (-1e-300, -0.0)
        yield Sample("magnitudes", (mixed,), kwargs, frozenset({"large"}))
        mixed = REAL.draw(rng, shape)
        mixed.flat[:3] = (NAN, INF, -INF)
        yield Sample("nonfinite", (mixed,), kwargs, frozenset({"nonfinite"}))

    return samples


def marks(*shapes: tuple[int, ...]) -> frozenset[str]:
    """The tag of empty operands."""
    return frozenset({"empty"}) if any(0 in s for s in shapes) else frozenset()


define(
    Entry(
        "SLICE",
        ops.slice_,
        calls(
            ("window", (4, 5), {"start": (1, 2), "stop": (3, 5)}),
            ("strided", (7, 5), {"start": (1, 0), "stop": (7, 5), "stride": (3, 2)}),
            ("last_not_reached", (8,), {"start": 0, "stop": 8, "stride": 5}),
            ("one", (3, 3), {"start": 2, "stop": 3}),
            ("nothing", (4,), {"start": 2, "stop": 2}),
            ("nothing_at_end", (4,), {"start": 4, "stop": 4, "stride": 3}),
            ("whole", (2, 3), {"start": 0, "stop": (2, 3)}),
            ("scalar", (), {"start": (), "stop": ()}),
            ("empty", (0, 3), {"start": (0, 1), "stop": (0, 3)}),
        ),
    )
)
define(
    Entry(
        "PAD",
        ops.pad,
        calls(
            ("around", (2, 3), {"low": (1, 0), "high": (2, 1)}),
            ("interior", (3, 2), {"low": 0, "high": (1, 0), "interior": (2, 1)}),
            ("value", (3,), {"low": 2, "high": 1, "interior": 1, "value": -1.5}),
            ("infinite_value", (2,), {"low": 1, "high": 0, "value": -INF}),
            ("one", (1,), {"low": 1, "high": 1, "interior": 4}),
            ("scalar", (), {"low": (), "high": ()}),
            ("none", (2, 2), {"low": 0, "high": 0}),
            ("empty", (0, 2), {"low": (2, 0), "high": (1, 0), "interior": (3, 0)}),
        ),
        specials=(
            Special(
                "gaps_have_no_gradient",
                ([1.0, 2.0],),
                [7.0, 1.0, 7.0, 2.0],
                {"low": 1, "high": 0, "interior": 1, "value": 7.0},
                cotangent=[10.0, 20.0, 30.0, 40.0],
                gradients=([20.0, 40.0],),
            ),
        ),
    )
)
define(
    Entry(
        "REVERSE",
        ops.reverse,
        calls(
            ("all", (2, 3), {}),
            ("last", (2, 3), {"axis": -1}),
            ("two", (2, 3, 2), {"axis": (0, 2)}),
            ("one", (1,), {"axis": 0}),
            ("scalar", (), {}),
            ("none", (2,), {"axis": ()}),
            ("empty", (0, 2), {"axis": 0}),
        ),
    )
)


def lists(*rows: tuple[str, tuple[tuple[int, ...], ...], dict[str, object]]) -> Samples:
    """Samples of an op of a list of arrays: (name, shapes, arguments)."""

    def samples(rng: Rng) -> Iterable[Sample]:
        for name, shapes, kwargs in rows:
            arrays = tuple(REAL.draw(rng, s) for s in shapes)
            yield Sample(name, (arrays,), kwargs, marks(*shapes))
        _, shapes, kwargs = rows[0]
        mixed = (COMPLEX.draw(rng, shapes[0]), *(REAL.draw(rng, s) for s in shapes[1:]))
        yield Sample("complex_and_real", (mixed,), kwargs, frozenset({"complex"}))
        whole = tuple(rng.integers(-9, 9, s) for s in shapes)
        yield Sample("integer", (whole,), kwargs, frozenset({"integer"}))
        floats = (whole[0].astype(np.int8), *(REAL.draw(rng, s) for s in shapes[1:]))
        yield Sample("integer_and_real", (floats,), kwargs)
        bad = tuple(np.full(s, v) for s, v in zip(shapes, (NAN, INF, -INF), strict=False))
        yield Sample("nonfinite", (bad,), kwargs, frozenset({"nonfinite"}))

    return samples


define(
    Entry(
        "CONCAT",
        ops.concatenate,
        lists(
            ("rows", ((2, 3), (1, 3), (2, 3)), {}),
            ("columns", ((2, 1), (2, 3)), {"axis": -1}),
            ("middle", ((2, 1, 2), (2, 2, 2)), {"axis": 1}),
            ("single", ((2, 3),), {"axis": 1}),
            ("flattened", ((2, 2), (3,), ()), {"axis": None}),
            ("one_empty", ((0, 2), (3, 2)), {}),
            ("all_empty", ((2, 0), (2, 0)), {"axis": 1}),
            ("square", ((2, 2), (2, 2)), {}),
        ),
    )
)


def _repeated(rng: Rng) -> Iterable[Sample]:
    yield from calls(
        ("halves", (4, 3), {"sections": 2}),
        ("columns", (2, 6), {"sections": 3, "axis": -1}),
        ("at", (5, 2), {"sections": (1, 3)}),
        ("unsorted", (5,), {"sections": (3, 1)}),
        ("negative", (5,), {"sections": (-2,)}),
        ("beyond", (3,), {"sections": (2, 9)}),
        ("whole", (3,), {"sections": 1}),
        ("empty", (0, 2), {"sections": 2}),
    )(rng)


define(Entry("SPLIT", ops.split, _repeated))
