"""Entries of reductions."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import BOOL, DISTINCT, REAL, Domain
from catalogue.entry import Entry, Sample, Special, define

Rng = np.random.Generator
Samples = Callable[[Rng], Iterable[Sample]]

INF, NAN = float("inf"), float("nan")

# name, shape, axis, keepdims
CALLS: tuple[tuple[str, tuple[int, ...], Any, bool], ...] = (
    ("scalar", (), None, False),
    ("vector", (5,), None, False),
    ("columns", (3, 4), 0, False),
    ("rows", (3, 4), -1, True),
    ("all_kept", (2, 3), None, True),
    ("two_axes", (2, 3, 2), (0, -1), False),
    ("size_1_axis", (3, 1), 1, False),
    ("no_axes", (2, 2), (), False),
)


def reductions(domain: Domain, empty: bool = True, **more: Any) -> Samples:
    """Calls over several ranks and axes, and of no elements where that has a value."""

    def samples(rng: Rng) -> Iterable[Sample]:
        for name, shape, axis, keepdims in CALLS:
            tags = {"integer"} if domain.kind == "bool" else set()
            kwargs = {"axis": axis, "keepdims": keepdims, **more}
            yield Sample(name, (domain.draw(rng, shape),), kwargs, frozenset(tags))
        marks = frozenset({"empty"} | ({"integer"} if domain.kind == "bool" else set()))
        yield Sample("no_rows", (domain.draw(rng, (0, 3)),), {"axis": 1, **more}, marks)
        if empty:
            yield Sample("empty", (domain.draw(rng, (2, 0)),), {"axis": 1, **more}, marks)

    return samples


def planted(base: Samples, *extra: Sample) -> Samples:
    """The samples of a generator function and some fixed ones."""

    def samples(rng: Rng) -> Iterable[Sample]:
        yield from base(rng)
        yield from extra

    return samples


def at(name: str, values: Any, *tags: str, **kwargs: Any) -> Sample:
    """A sample of one array of given values."""
    return Sample(name, (np.asarray(values),), kwargs, frozenset(tags))


define(
    Entry(
        "SUM",
        ops.sum,
        planted(
            reductions(REAL),
            at("cancelling", [1e4, 1.0, -1e4, 0.5]),
            at("complex", [1 + 2j, -3j], "complex"),
            at("bool", [True, True, False], "integer"),
        ),
        domains=(REAL,),
        specials=(
            Special("signed_infinities", ([INF, -INF],), NAN),
            Special("nothing", (np.zeros(0),), 0.0, cotangent=3.0, gradients=(np.zeros(0),)),
        ),
        contracts=True,
    )
)
define(
    Entry(
        "WIDE_SUM",
        ops.wide_sum,
        planted(
            reductions(REAL),
            # in float32 the sum of neighbours, in any order, loses the 1
            at("cancelling", [3e7, 1.0, -3e7, 0.5]),
        ),
        domains=(REAL,),
        specials=(
            Special("signed_infinities", ([INF, -INF],), NAN),
            Special("infinite", ([INF, 1.0],), INF),
            Special("nothing", (np.zeros(0),), 0.0, cotangent=3.0, gradients=(np.zeros(0),)),
        ),
        contracts=True,
    )
)
define(
    Entry(
        "MEAN",
        ops.mean,
        planted(
            reductions(REAL, empty=False),
            at("empty", np.zeros((2, 0)), "empty", "nonfinite", axis=1),
            at("complex", [[1 + 2j, -3j]], "complex", axis=0),
        ),
        domains=(REAL,),
        specials=(Special("nothing", (np.zeros(0),), NAN),),
        contracts=True,
    )
)

# --- extrema ---------------------------------------------------------------------------------

_TIES = (
    at("tie", [3.0, 1.0, 3.0], "tie"),
    at("tie_rows", [[2.0, 2.0, 0.0], [1.0, -1.0, 1.0]], "tie", axis=1),
    at("nan", [[1.0, NAN], [2.0, 3.0]], "nonfinite", axis=1),
    at("infinite", [INF, 0.0, -INF], "nonfinite"),
    at("large", [1e300, -1e300], "large"),
    at("integers", [[3, 1], [2, 5]], "integer", axis=0),
)
for _kind, _function, _sign in (("MAX", ops.max, 1.0), ("MIN", ops.min, -1.0)):
    define(
        Entry(
            _kind,
            _function,
            planted(reductions(DISTINCT, empty=False), *_TIES),
            domains=(DISTINCT,),
            specials=(
                Special(
                    "shared_tie",
                    (_sign * np.asarray([3.0, 1.0, 3.0]),),
                    _sign * 3.0,
                    cotangent=3.0,
                    gradients=([1.5, 0.0, 1.5],),
                ),
                Special(
                    "all_equal",
                    (np.full(4, 2.0),),
                    2.0,
                    cotangent=2.0,
                    gradients=(np.full(4, 0.5),),
                    tangents=(np.asarray([1.0, 2.0, 3.0, 6.0]),),
                    tangent=3.0,
                ),
                Special("nan", ([1.0, NAN],), NAN),
                Special(
                    "infinite_tie",
                    ([_sign * INF, 0.0, _sign * INF],),
                    _sign * INF,
                    cotangent=1.0,
                    gradients=([0.5, 0.0, 0.5],),
                ),
            ),
            contracts=True,
        )
    )


def _positions(rng: Rng) -> Iterable[Sample]:
    yield Sample("vector", (DISTINCT.draw(rng, (5,)),))
    yield Sample("columns", (DISTINCT.draw(rng, (3, 4)),), {"axis": 0})
    yield Sample("rows_kept", (DISTINCT.draw(rng, (3, 4)),), {"axis": -1, "keepdims": True})
    yield Sample("flat_kept", (DISTINCT.draw(rng, (2, 3)),), {"axis": None, "keepdims": True})
    yield Sample("scalar", (np.asarray(2.0),))
    yield at("tie", [1.0, 3.0, 1.0, 3.0], "tie")
    yield at("nan", [1.0, NAN, 3.0, NAN], "nonfinite")
    yield at("infinite", [[-INF, INF], [INF, INF]], "nonfinite", axis=1)
    yield at("integers", [[3, 1, 3], [2, 5, 5]], "integer", axis=1)
    yield at("no_rows", np.zeros((0, 3)), "empty", axis=1)


define(
    Entry(
        "ARGMAX",
        ops.argmax,
        _positions,
        domains=(DISTINCT,),
        specials=(
            Special("first_of_ties", ([1.0, 3.0, 3.0],), 1),
            Special("nan_is_largest", ([1.0, NAN, INF],), 1),
        ),
    )
)
define(
    Entry(
        "ARGMIN",
        ops.argmin,
        _positions,
        domains=(DISTINCT,),
        specials=(
            Special("first_of_ties", ([3.0, 1.0, 1.0],), 1),
            Special("nan_is_smallest", ([1.0, NAN, -INF],), 1),
        ),
    )
)


def _masks(rng: Rng) -> Iterable[Sample]:
    yield Sample("vector", (DISTINCT.draw(rng, (5,)),))
    yield Sample("columns", (DISTINCT.draw(rng, (3, 4)),), {"axis": 0})
    yield Sample("two_axes", (DISTINCT.draw(rng, (2, 3, 2)),), {"axis": (0, 2)})
    yield Sample("all", (DISTINCT.draw(rng, (2, 3)),), {"axis": None})
    yield Sample("scalar", (np.asarray(2.0),), {"axis": None})
    yield at("tie", [1.0, 3.0, 1.0, 3.0], "tie")
    yield at("nan", [1.0, NAN, 3.0, NAN], "nonfinite")
    yield at("masked", [-INF, -INF], "nonfinite")
    yield at("empty", np.zeros((2, 0)), "empty")
    yield at("no_rows", np.zeros((0, 3)), "empty")


define(
    Entry(
        "ARGMAX_MASK",
        ops.argmax_mask,
        _masks,
        domains=(DISTINCT,),
        specials=(Special("first_of_ties", ([1.0, 3.0, 3.0],), [False, True, False]),),
    )
)

# --- products and logic ----------------------------------------------------------------------

define(
    Entry(
        "PROD",
        ops.prod,
        planted(
            reductions(REAL),
            at("one_zero", [0.0, 2.0, 3.0]),
            at("zero_last", [2.0, 3.0, 0.0]),
            at("two_zeros", [2.0, 0.0, 0.0, 3.0]),
            at("zero_rows", [[0.0, 2.0, -1.0], [1.0, 0.0, 0.0]], axis=1),
            at("all_zero", [0.0, 0.0, 0.0]),
            at("complex", [1 + 1j, 0j, 2j], "complex"),
            at("integers", [2, 3, 5], "integer"),
        ),
        domains=(REAL,),
        specials=(
            Special(
                "one_zero", ([0.0, 2.0, 3.0],), 0.0, cotangent=2.0, gradients=([12.0, 0.0, 0.0],)
            ),
            Special(
                "two_zeros", ([0.0, 0.0, 3.0],), 0.0, cotangent=2.0, gradients=([0.0, 0.0, 0.0],)
            ),
            Special("nothing", (np.zeros(0),), 1.0),
            Special("zero_times_infinity", ([0.0, INF],), NAN),
        ),
        contracts=True,
    )
)
for _kind, _logic, _nothing in (("ALL", ops.all, True), ("ANY", ops.any, False)):
    define(
        Entry(
            _kind,
            _logic,
            planted(
                reductions(BOOL),
                at("numbers", [[0.0, 1.0], [-2.0, 3.0]], axis=1),
                at("nan_is_true", [NAN, 1.0], "nonfinite"),
            ),
            domains=(BOOL,),
            specials=(Special("nothing", (np.zeros(0, np.bool_),), _nothing),),
        )
    )
