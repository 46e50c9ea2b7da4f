"""Entries of softmax, log-softmax and logsumexp."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import Domain
from catalogue.entry import Entry, Sample, Special, define
from catalogue.reduction import INF, NAN, Rng, at

LOGITS = Domain(low=-6.0, high=6.0)

# Rows that a formula without care gets wrong; names of the tags judge them.
ROWS: tuple[Sample, ...] = (
    at("dominant", [20.0, 0.0, -1.0, 1.0]),
    at("dominant_far", [60.0, 0.0, 10.0]),
    at("past_float32", [100.0, 97.0, 90.0]),  # exp(100) overflows in float32
    at("tie", [5.0, 5.0, 0.0]),
    at("all_equal", [1.0, 1.0, 1.0, 1.0]),
    at("one_class", [3.0]),
    at("offset", [1000.5, 1001.0, 999.25]),
    at("negative_offset", [-1000.5, -1001.0, -999.25]),
    at("huge", [1e30, 0.0], "large"),
    at("masked", [0.5, -INF, 1.0], "nonfinite"),
    at("all_masked", [[-INF, -INF], [0.0, 1.0]], "nonfinite"),
    at("infinite", [[INF, 0.0], [0.0, 1.0]], "nonfinite"),
    at("nan", [[NAN, 0.0], [0.0, 1.0]], "nonfinite"),
)


def logit_rows(rng: Rng) -> Iterable[Sample]:
    """Calls over several ranks and axes."""
    yield Sample("vector", (LOGITS.draw(rng, (5,)),))
    yield Sample("rows", (LOGITS.draw(rng, (3, 4)),), {"axis": -1})
    yield Sample("columns", (LOGITS.draw(rng, (3, 4)),), {"axis": 0})
    yield Sample("middle", (LOGITS.draw(rng, (2, 3, 2)),), {"axis": 1})
    yield Sample("two_axes", (LOGITS.draw(rng, (2, 3, 2)),), {"axis": (0, 2)})
    yield Sample("all", (LOGITS.draw(rng, (2, 3)),), {"axis": None})
    yield Sample("scalar", (LOGITS.draw(rng, ()),), {"axis": None})
    yield Sample("wide", (LOGITS.draw(rng, (1, 40)),))
    yield Sample("empty", (np.zeros((2, 0)),), {}, frozenset({"empty"}))
    yield Sample("no_rows", (np.zeros((0, 3)),), {}, frozenset({"empty"}))


def _samples(rng: Rng) -> Iterable[Sample]:
    yield from logit_rows(rng)
    yield from ROWS


_TIE = np.asarray([5.0, 5.0])
define(
    Entry(
        "SOFTMAX",
        ops.softmax,
        _samples,
        domains=(LOGITS,),
        specials=(
            Special("tie", (_TIE,), [0.5, 0.5], cotangent=[2.0, 0.0], gradients=([0.5, -0.5],)),
            Special("one_class", ([3.0],), [1.0], cotangent=[2.0], gradients=([0.0],)),
            Special("masked", ([0.0, -INF, 0.0],), [0.5, 0.0, 0.5]),
            Special("all_masked", ([-INF, -INF],), [NAN, NAN]),
            Special("infinite", ([INF, 0.0],), [NAN, NAN]),
            Special("nan", ([NAN, 0.0],), [NAN, NAN]),
            Special(
                "constant_cotangent",
                ([1.0, 2.0, 4.0],),
                cotangent=[1e8, 1e8, 1e8],
                gradients=([0.0, 0.0, 0.0],),
            ),
            # jax-ml/jax#40384
            Special(
                "dominant_class",
                ([37.42994775023705, 0.0],),
                cotangent=[1.0, 0.0],
                gradients=([5.551115123125776e-17, -5.551115123125776e-17],),
            ),
        ),
        contracts=True,
    )
)
define(
    Entry(
        "LOG_SOFTMAX",
        ops.log_softmax,
        _samples,
        domains=(LOGITS,),
        specials=(
            Special("tie", (_TIE,), [-np.log(2), -np.log(2)]),
            Special("one_class", ([3.0],), [0.0], cotangent=[2.0], gradients=([0.0],)),
            Special(
                "masked",
                ([0.0, -INF],),
                [0.0, -INF],
                cotangent=[2.0, 3.0],
                gradients=([-3.0, 3.0],),
            ),
            Special("all_masked", ([-INF, -INF],), [NAN, NAN]),
            Special("infinite", ([INF, 0.0],), [NAN, NAN]),
            Special("nan", ([NAN, 0.0],), [NAN, NAN]),
            Special("overflow", ([1e308, -1e308],), [0.0, -INF]),
        ),
        contracts=True,
    )
)


def _logsumexp_samples(rng: Rng) -> Iterable[Sample]:
    for sample in (*logit_rows(rng), *ROWS):
        tags = sample.tags | ({"nonfinite"} if sample.name == "empty" else set())
        kwargs: dict[str, Any] = {"axis": -1, **sample.kwargs}
        yield Sample(sample.name, sample.args, kwargs, frozenset(tags))
    yield Sample("kept", (LOGITS.draw(rng, (2, 3)),), {"axis": 1, "keepdims": True})


define(
    Entry(
        "LOGSUMEXP",
        ops.logsumexp,
        _logsumexp_samples,
        domains=(LOGITS,),
        specials=(
            Special("tie", (_TIE,), 5 + np.log(2), cotangent=2.0, gradients=([1.0, 1.0],)),
            Special("nothing", (np.zeros(0),), -INF),
            Special("masked", ([1.0, -INF],), 1.0, cotangent=2.0, gradients=([2.0, 0.0],)),
            Special(
                "all_masked",
                ([-INF, -INF],),
                -INF,
                cotangent=2.0,
                gradients=([0.0, 0.0],),
                tangents=(np.asarray([1.0, 2.0]),),
                tangent=0.0,
            ),
            Special("infinite", ([INF, 0.0],), INF),
            Special("nan", ([NAN, INF],), NAN),
            Special(
                "mask_of_nothing",
                ([1.0, 2.0],),
                -INF,
                kwargs={"where": (False, False)},
                cotangent=2.0,
                gradients=([0.0, 0.0],),
            ),
        ),
        contracts=True,
    )
)


def _weighted(x: Any, b: Any, axis: Any = None) -> Any:
    return ops.logsumexp(x, axis, b=b)


def _weighted_samples(rng: Rng) -> Iterable[Sample]:
    weights = Domain(low=0.2, high=3.0)
    for shape, axis in (((5,), None), ((3, 4), 0), ((2, 3, 2), (0, 2)), ((), None)):
        name = "x".join(map(str, shape)) or "scalar"
        yield Sample(name, (LOGITS.draw(rng, shape), weights.draw(rng, shape)), {"axis": axis})
    x = np.asarray([1.0, 2.0, -1.0])
    yield Sample(
        "shared_weights", (LOGITS.draw(rng, (2, 3)), np.asarray([1.0, 0.5, 2.0])), {"axis": 1}
    )
    yield Sample("zero_weight", (x, np.asarray([1.0, 0.0, 2.0])))
    yield Sample("negative_weight", (x, np.asarray([-1.0, 2.0, 0.5])))
    yield Sample("negative_largest", (np.zeros(3), np.asarray([-1.0, 0.9, 0.8])))
    yield Sample("dominant", (np.asarray([30.0, 0.0]), np.asarray([2.0, 3.0])))
    yield Sample(
        "empty",
        (np.zeros((2, 0)), np.zeros((2, 0))),
        {"axis": 1},
        frozenset({"empty", "nonfinite"}),
    )
    yield Sample(
        "masked", (np.asarray([-INF, 1.0]), np.asarray([1.0, 2.0])), {}, frozenset({"nonfinite"})
    )


define(
    Entry(
        "WEIGHTED_LOGSUMEXP",
        _weighted,
        _weighted_samples,
        domains=(LOGITS, Domain(low=0.2, high=3.0)),
        specials=(
            Special("no_weight", ([1.0, 2.0], [0.0, 0.0]), -INF),
            Special("negative_sum", ([1.0, 2.0], [1.0, -1.0]), NAN),
            Special("weight_one", (_TIE, [1.0, 1.0]), 5 + np.log(2)),
            Special("infinite_without_weight", ([INF, 1.0], [0.0, 1.0]), 1.0),
            Special("infinite", ([INF, 1.0], [2.0, 1.0]), INF),
        ),
        contracts=True,
    )
)
