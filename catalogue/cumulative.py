"""Entries of cumulative functions."""

from collections.abc import Iterable

import numpy as np

from autodiff import ops
from catalogue.domain import DISTINCT, REAL, Domain
from catalogue.entry import Entry, Sample, Special, define
from catalogue.reduction import INF, NAN, Rng, Samples, at, planted


def _along(domain: Domain) -> Samples:
    def samples(rng: Rng) -> Iterable[Sample]:
        yield Sample("vector", (domain.draw(rng, (5,)),))
        yield Sample("columns", (domain.draw(rng, (3, 4)),), {"axis": 0})
        yield Sample("rows", (domain.draw(rng, (2, 3)),), {"axis": -1})
        yield Sample("middle", (domain.draw(rng, (2, 3, 2)),), {"axis": 1})
        yield Sample("flattened", (domain.draw(rng, (2, 3)),), {"axis": None})
        yield Sample("size_1_axis", (domain.draw(rng, (3, 1)),), {"axis": 1})
        yield Sample("scalar", (domain.draw(rng, ()),))
        yield Sample("empty", (domain.draw(rng, (2, 0)),), {"axis": 1}, frozenset({"empty"}))
        yield Sample("no_rows", (domain.draw(rng, (0, 3)),), {"axis": 1}, frozenset({"empty"}))

    return samples


define(
    Entry(
        "CUMSUM",
        ops.cumsum,
        planted(
            _along(REAL),
            at("reversed", [[1.0, 2.0, 4.0], [-1.0, 0.5, 3.0]], axis=1, reverse=True),
            at("complex", [1 + 2j, -3j, 1.0], "complex"),
            at("bool", [True, True, False], "integer"),
        ),
        domains=(REAL,),
        contracts=True,
    )
)
define(
    Entry(
        "CUMPROD",
        ops.cumprod,
        planted(
            _along(REAL),
            at("zero_first", [0.0, 2.0, 3.0]),
            at("zero_last", [2.0, 3.0, 0.0]),
            at("two_zeros", [2.0, 0.0, 0.0, 3.0]),
            at("zero_rows", [[0.0, 2.0, -1.0], [1.0, 0.0, 3.0]], axis=1),
            at("complex", [1 + 1j, 0j, 2j], "complex"),
            at("integers", [2, 3, 5], "integer"),
        ),
        domains=(REAL,),
        specials=(
            Special(
                "zero_first",
                ([0.0, 2.0, 3.0],),
                [0.0, 0.0, 0.0],
                cotangent=[1.0, 2.0, 3.0],
                gradients=([23.0, 0.0, 0.0],),
            ),
        ),
        contracts=True,
    )
)
for _kind, _function, _sign in (("CUMMAX", ops.cummax, 1.0), ("CUMMIN", ops.cummin, -1.0)):
    define(
        Entry(
            _kind,
            _function,
            planted(
                _along(DISTINCT),
                at("tie", [1.0, 3.0, 3.0, 2.0], "tie"),
                at("nan", [1.0, NAN, 3.0], "nonfinite"),
                at("infinite", [[-INF, 1.0], [INF, 2.0]], "nonfinite", axis=1),
                at("integers", [[3, 1, 4], [2, 5, 5]], "integer", axis=1),
            ),
            domains=(DISTINCT,),
            specials=(
                Special(
                    "first_of_ties",
                    (_sign * np.asarray([1.0, 3.0, 3.0, 2.0]),),
                    _sign * np.asarray([1.0, 3.0, 3.0, 3.0]),
                    cotangent=[1.0, 2.0, 4.0, 8.0],
                    gradients=([1.0, 14.0, 0.0, 0.0],),
                ),
                Special("nan_stays", ([1.0, NAN, 3.0],), [1.0, NAN, NAN]),
            ),
        )
    )
define(
    Entry(
        "CUMLOGSUMEXP",
        ops.cumlogsumexp,
        planted(
            _along(REAL),
            at("wide", [-40.0, 0.0, 40.0, -40.0]),
            at("masked", [-INF, -INF, 1.0, -INF], "nonfinite"),
        ),
        domains=(REAL,),
        specials=(Special("masked", ([-INF, 1.0, -INF],), [-INF, 1.0, 1.0]),),
        contracts=True,
    )
)
