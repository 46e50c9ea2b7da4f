"""Entries of variance, standard deviation and norms."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import NONZERO, REAL, Domain
from catalogue.entry import Entry, Sample, Special, define
from catalogue.reduction import CALLS, INF, NAN, Rng, at, planted, reductions

OFFSET = np.asarray([1e4 + 0.25, 1e4 - 0.5, 1e4 + 1.0, 1e4])


def _spread(root: bool) -> Any:
    """Calls of VAR and STD; equal values are a kink of the root, but of one element it is 0."""

    def samples(rng: Rng) -> Iterable[Sample]:
        flat = {"singular"} if root else set()
        for name, shape, axis, keepdims in CALLS:
            yield Sample(name, (REAL.draw(rng, shape),), {"axis": axis, "keepdims": keepdims})
        yield Sample("ddof_1", (REAL.draw(rng, (2, 4)),), {"axis": 1, "ddof": 1})
        yield Sample("no_rows", (np.zeros((0, 3)),), {"axis": 1}, frozenset({"empty"}))
        yield at("empty", np.zeros((2, 0)), "empty", "nonfinite", axis=1)
        yield at("equal", [2.0, 2.0, 2.0], *flat)
        yield at("offset", OFFSET)
        yield at("too_few", [1.0], "nonfinite", ddof=1)
        yield at("infinite", [INF, 1.0], "nonfinite")

    return samples


define(
    Entry(
        "VAR",
        ops.var,
        _spread(root=False),
        domains=(REAL,),
        specials=(
            Special("equal", ([2.0, 2.0],), 0.0, cotangent=3.0, gradients=([0.0, 0.0],)),
            Special("one_element", ([-0.83],), 0.0, cotangent=3.0, gradients=([0.0],)),
            Special("nothing", (np.zeros(0),), NAN),
            Special("too_few", ([1.0],), NAN, kwargs={"ddof": 1}),
        ),
        contracts=True,
    )
)
define(
    Entry(
        "STD",
        ops.std,
        planted(
            _spread(root=True),
            at("large", [1e200, -1e200, 3e200], "large"),
            at("tiny", [1e-200, -1e-200, 3e-200], "tiny"),
        ),
        domains=(REAL,),
        specials=(
            # jax-ml/jax#4177
            Special("one_element", ([-0.83],), 0.0, cotangent=3.0, gradients=([0.0],)),
            Special("equal", ([1.0, 1.0],), 0.0, cotangent=3.0, gradients=([0.0, 0.0],)),
            Special("nothing", (np.zeros(0),), NAN),
        ),
        contracts=True,
    )
)


def _norm_scale(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    del keepdims
    return ops.norm_scale(x, axis)


define(
    Entry(
        "NORM_SCALE",
        _norm_scale,
        planted(
            reductions(NONZERO),
            at("zero", [0.0, -0.0]),
            at("large", [1e300, -1e306], "large"),
            at("tiny", [1e-300, 1e-307], "tiny"),
            at("nonfinite", [[INF, 1.0], [NAN, 1.0]], "nonfinite", axis=1),
        ),
        domains=(NONZERO,),
        specials=(
            Special("power", ([4.0, 3.0],), [4.0], cotangent=[2.0], gradients=([0.0, 0.0],)),
            Special("below", ([-3.999, 1.0],), [2.0]),
            Special("zero", ([0.0],), [1.0]),
            Special("infinite", ([-INF, 1.0],), [1.0]),
            Special("subnormal", ([5e-324],), [5e-324]),
        ),
    )
)


def _norms(rng: Rng) -> Iterable[Sample]:
    yield from reductions(NONZERO)(rng)
    for order in (3.0, 1.5, 0.5, -1.0, -2.0):
        yield Sample(f"ord_{order:g}", (NONZERO.draw(rng, (2, 3)),), {"ord": order, "axis": 1})
    yield at("large", [3e200, 4e200], "large")
    yield at("tiny", [3e-200, 4e-200], "tiny")
    yield at("large_ord_3", [3e150, 4e150], "large", ord=3)
    yield at("origin", [[0.0, 0.0], [3.0, 4.0]], "singular", axis=1)
    yield at("some_zeros", [0.0, 3.0, 0.0, -4.0])
    yield at("infinite", [[INF, 1.0], [NAN, 1.0]], "nonfinite", axis=1)


define(
    Entry(
        "NORM",
        ops.norm,
        _norms,
        domains=(NONZERO,),
        specials=(
            Special("plain", ([3.0, 4.0],), 5.0, cotangent=5.0, gradients=([3.0, 4.0],)),
            Special(
                "large",
                ([3 * 2.0**600, 4 * 2.0**600],),
                5 * 2.0**600,
                cotangent=5.0,
                gradients=([3.0, 4.0],),
            ),
            Special("origin", ([0.0, 0.0],), 0.0, cotangent=3.0, gradients=([0.0, 0.0],)),
            Special(
                "origin_ord_3",
                ([0.0, 0.0],),
                0.0,
                kwargs={"ord": 3},
                cotangent=3.0,
                gradients=([0.0, 0.0],),
            ),
            Special("nothing", (np.zeros(0),), 0.0),
            Special("ord_1", ([3.0, -4.0],), 7.0, kwargs={"ord": 1}),
            Special("ord_0", ([3.0, 0.0],), 1.0, kwargs={"ord": 0}),
            Special(
                "maximum",
                ([4.0, -4.0, 1.0],),
                4.0,
                kwargs={"ord": INF},
                cotangent=2.0,
                gradients=([1.0, -1.0, 0.0],),
            ),
            Special("minimum", ([4.0, -2.0],), 2.0, kwargs={"ord": -INF}),
            Special("infinite", ([INF, 1.0],), INF),
            Special("zero_negative_ord", ([0.0, 1.0],), 0.0, kwargs={"ord": -1}),
        ),
        contracts=True,
    )
)


def _slopes(rng: Rng) -> Iterable[Sample]:
    size = Domain(low=3.0, high=5.0)
    for order in (2.0, 3.0, 1.5):
        args = (NONZERO.draw(rng, (2, 3)), size.draw(rng, (2, 1)))
        yield Sample(f"ord_{order:g}", args, {"ord": order})
    yield Sample("scalar", (NONZERO.draw(rng, ()), size.draw(rng, ())))
    yield Sample("empty", (np.zeros((0, 2)), np.zeros((0, 1))), {}, frozenset({"empty"}))
    yield Sample("origin", (np.zeros(2), np.zeros(1)), {}, frozenset({"singular"}))


define(
    Entry(
        "NORM_SLOPE",
        ops.norm_slope,
        _slopes,
        domains=(NONZERO, Domain(low=3.0, high=5.0)),
        specials=(
            Special("plain", (3.0, 5.0), 0.6),
            Special("origin", (0.0, 0.0), 0.0),
        ),
    )
)
