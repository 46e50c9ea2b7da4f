"""Entries of sliding windows and pooling."""

from collections.abc import Iterable

import numpy as np

from autodiff import ops
from catalogue.domain import DISTINCT, REAL
from catalogue.entry import Entry, Sample, Special, define

INF, NAN = np.inf, np.nan


def _windows(rng: np.random.Generator) -> Iterable[Sample]:
    for name, shape, kwargs in (
        ("row", (7,), {"window": 3, "stride": 2}),
        ("overlapping", (2, 4, 5), {"window": (3, 2)}),
        ("dilated", (1, 6, 5), {"window": (2, 2), "stride": (2, 1), "dilation": (3, 2)}),
        ("strides_beyond_window", (7, 5), {"window": (2, 1), "stride": (4, 3)}),
        ("whole", (3, 2), {"window": (3, 2)}),
        ("many_taps", (10, 9), {"window": (9, 8)}),
        ("nothing_fits", (2, 2), {"window": (3, 1)}),
        ("empty", (0, 3, 3), {"window": (2, 2)}),
    ):
        tags = frozenset({"empty"} if 0 in shape else ())
        yield Sample(name, (REAL.draw(rng, shape),), kwargs, tags)
    yield Sample("integers", (np.arange(6),), {"window": 2}, frozenset({"integer"}))


define(Entry("WINDOWS", ops.windows, _windows))


def _folds(rng: np.random.Generator) -> Iterable[Sample]:
    for name, shape, kwargs in (
        ("row", (3, 3), {"shape": 7, "stride": 2}),
        ("overlapping", (2, 2, 2, 2, 3), {"shape": (3, 4)}),
        ("dilated", (2, 2, 2, 2), {"shape": (6, 4), "stride": (2, 1), "dilation": (3, 2)}),
        ("strides_beyond_window", (2, 1, 2, 2), {"shape": (7, 5), "stride": (4, 3)}),
        ("many_taps", (9, 8, 2, 1), {"shape": (10, 8)}),
        ("no_windows", (3, 1, 0, 2), {"shape": (2, 2)}),
        ("empty", (0, 2, 2, 2, 2), {"shape": (3, 3)}),
    ):
        tags = frozenset({"empty"} if 0 in shape else ())
        yield Sample(name, (REAL.draw(rng, shape),), kwargs, tags)


define(Entry("FOLD", ops.fold, _folds, contracts=True))


def _maxpools(rng: np.random.Generator) -> Iterable[Sample]:
    for name, shape, kwargs in (
        ("tiled", (1, 2, 4, 6), {"window": 2}),
        ("overlapping", (2, 5, 4), {"window": (3, 2), "stride": 1}),
        ("strides_beyond_window", (5, 7), {"window": 2, "stride": (3, 5)}),
        ("rest_dropped", (1, 5, 5), {"window": 2}),
        ("padded", (2, 4, 3), {"window": 3, "stride": 2, "padding": 1}),
        ("uneven_padding", (4, 3), {"window": (3, 2), "stride": 1, "padding": ((2, 0), (0, 1))}),
        ("same", (1, 5, 4), {"window": 3, "stride": 2, "padding": "SAME"}),
        ("dilated", (6, 5), {"window": 2, "stride": 1, "dilation": (3, 2)}),
        ("whole", (3, 4), {"window": (3, 4)}),
        ("one_place", (2, 1, 1), {"window": 1}),
        ("empty", (0, 2, 4, 4), {"window": 2}),
    ):
        tags = frozenset({"empty"} if 0 in shape else ())
        yield Sample(name, (DISTINCT.draw(rng, shape),), kwargs, tags)
    tied = np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 2.0], [2.0, 2.0, 2.0]])
    yield Sample("ties", (tied,), {"window": 2, "stride": 1}, frozenset({"tie", "kink"}))
    dead = np.array([[-INF, NAN], [-INF, INF], [1.0, -INF]])
    yield Sample(
        "not_finite", (dead,), {"window": 2, "stride": 1, "padding": 1}, frozenset({"nonfinite"})
    )


define(
    Entry(
        "MAXPOOL2D",
        ops.maxpool2d,
        _maxpools,
        domains=(),
        specials=(
            # ties share the cotangent, which is conserved
            Special(
                "tie_of_three",
                (np.array([[3.0, 3.0], [3.0, 1.0]]),),
                np.array([[3.0]]),
                kwargs={"window": 2},
                cotangent=np.array([[6.0]]),
                gradients=(np.array([[2.0, 2.0], [2.0, 0.0]]),),
            ),
            # ... by places of the image alone, not by its padding
            Special(
                "infinite_beside_padding",
                (np.array([[-INF]]),),
                np.array([[-INF]]),
                kwargs={"window": 2, "padding": ((1, 0), (0, 1))},
                cotangent=np.array([[3.0]]),
                gradients=(np.array([[3.0]]),),
            ),
            Special(
                "nan",
                (np.array([[NAN, 5.0], [0.0, NAN]]),),
                np.array([[NAN]]),
                kwargs={"window": 2},
                cotangent=np.array([[2.0]]),
                gradients=(np.array([[1.0, 0.0], [0.0, 1.0]]),),
            ),
        ),
    )
)


def _avgpools(rng: np.random.Generator) -> Iterable[Sample]:
    for name, shape, kwargs in (
        ("tiled", (1, 2, 4, 6), {"window": 2}),
        ("overlapping", (2, 5, 4), {"window": (3, 2), "stride": 1}),
        ("strides_beyond_window", (5, 7), {"window": 2, "stride": (3, 5)}),
        ("padded", (2, 4, 3), {"window": 3, "stride": 2, "padding": 1}),
        (
            "padded_not_counted",
            (2, 4, 3),
            {"window": 3, "stride": 2, "padding": 1, "count_include_pad": False},
        ),
        (
            "same",
            (1, 5, 4),
            {"window": 3, "stride": 2, "padding": "SAME", "count_include_pad": False},
        ),
        ("whole", (3, 4), {"window": (3, 4)}),
        ("one_place", (2, 1, 1), {"window": 1}),
        ("empty", (0, 2, 4, 4), {"window": 2}),
    ):
        tags = frozenset({"empty"} if 0 in shape else ())
        yield Sample(name, (REAL.draw(rng, shape),), kwargs, tags)
    bad = np.array([[INF, 1.0, NAN], [2.0, 0.0, -1.0]])
    yield Sample("not_finite", (bad,), {"window": (1, 2), "stride": 1}, frozenset({"nonfinite"}))


define(
    Entry(
        "AVGPOOL2D",
        ops.avgpool2d,
        _avgpools,
        contracts=True,
        specials=(
            Special(
                "padding_counted",
                (np.array([[8.0]]),),
                np.array([[2.0]]),
                kwargs={"window": 2, "padding": ((1, 0), (0, 1))},
                cotangent=np.array([[2.0]]),
                gradients=(np.array([[0.5]]),),
            ),
            Special(
                "padding_not_counted",
                (np.array([[8.0]]),),
                np.array([[8.0]]),
                kwargs={"window": 2, "padding": ((1, 0), (0, 1)), "count_include_pad": False},
                cotangent=np.array([[2.0]]),
                gradients=(np.array([[2.0]]),),
            ),
        ),
    )
)
