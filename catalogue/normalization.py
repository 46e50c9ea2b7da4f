"""Entries of normalisation layers."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import NONZERO, REAL
from catalogue.entry import Entry, Sample, Special, define
from catalogue.reduction import INF, NAN, Rng
from catalogue.statistics import OFFSET

EMPTY = frozenset({"empty"})


def _layers(bias: bool) -> Any:
    def samples(rng: Rng) -> Iterable[Sample]:
        extra = 2 if bias else 1

        def parameters(*shape: int) -> tuple[Any, ...]:
            return tuple(REAL.draw(rng, shape) for _ in range(extra))

        yield Sample("plain", (REAL.draw(rng, (5,)),))
        yield Sample("rows", (REAL.draw(rng, (3, 4)), *parameters(4)))
        yield Sample("weight_alone", (REAL.draw(rng, (3, 4)), REAL.draw(rng, (4,))))
        yield Sample("columns", (REAL.draw(rng, (3, 4)), *parameters(3)), {"axis": 0})
        yield Sample("two_axes", (REAL.draw(rng, (2, 3, 2)), *parameters(3, 2)), {"axis": (1, 2)})
        yield Sample("large_eps", (REAL.draw(rng, (2, 3)),), {"eps": 0.5})
        yield Sample("no_eps", (np.asarray([0.5, -1.0, 2.0]),), {"eps": 0.0})
        yield Sample("scalar", (np.asarray(2.0),), {"axis": None, "eps": 0.1})
        yield Sample("size_1_axis", (REAL.draw(rng, (3, 1)), *parameters(1)), {"eps": 0.1})
        yield Sample("equal", (np.full(4, 3.0),), {"eps": 0.1})
        yield Sample("no_rows", (np.zeros((0, 3)), *parameters(3)), {}, EMPTY)
        yield Sample("empty", (np.zeros((2, 0)), *parameters(0)), {}, EMPTY)
        yield Sample("large", (np.asarray([3e200, -4e200, 1e199]),), {}, frozenset({"large"}))
        yield Sample("nan", (np.asarray([[NAN, 1.0], [0.0, 1.0]]),), {}, frozenset({"nonfinite"}))
        if bias:
            yield Sample("offset", (OFFSET,))

    return samples


define(
    Entry(
        "LAYERNORM",
        ops.layer_norm,
        _layers(bias=True),
        domains=(REAL,),
        specials=(
            Special(
                "equal",
                ([2.0, 2.0],),
                [0.0, 0.0],
                kwargs={"eps": 0.25},
                cotangent=[1.0, 3.0],
                gradients=([-2.0, 2.0],),
            ),
            Special("equal_no_eps", ([2.0, 2.0],), [NAN, NAN], kwargs={"eps": 0.0}),
            Special("infinite", ([INF, 2.0],), [NAN, NAN]),
        ),
        contracts=True,
    )
)


def _rms_norm(x: Any, weight: Any = None, eps: float = 1e-6, axis: Any = -1) -> Any:
    return ops.rms_norm(x, weight, eps, axis)


define(
    Entry(
        "RMSNORM",
        _rms_norm,
        _layers(bias=False),
        domains=(REAL,),
        specials=(
            Special(
                "zero",
                ([0.0, 0.0],),
                [0.0, 0.0],
                kwargs={"eps": 0.25},
                cotangent=[1.0, 3.0],
                gradients=([2.0, 6.0],),
            ),
            Special("zero_no_eps", ([0.0, 0.0],), [NAN, NAN], kwargs={"eps": 0.0}),
            Special("unit", ([3.0, -3.0],), [1.0, -1.0], kwargs={"eps": 0.0}),
        ),
        contracts=True,
    )
)


def _batches(rng: Rng) -> Iterable[Sample]:
    yield Sample("plain", (REAL.draw(rng, (4, 3)),))
    yield Sample("affine", (REAL.draw(rng, (4, 3)), REAL.draw(rng, (3,)), REAL.draw(rng, (3,))))
    yield Sample("weight_alone", (REAL.draw(rng, (4, 3)), REAL.draw(rng, (3,))))
    images = REAL.draw(rng, (2, 3, 2, 2))
    yield Sample(
        "images", (images, REAL.draw(rng, (3,)), REAL.draw(rng, (3,))), {"axis": (0, 2, 3)}
    )
    yield Sample("one_row", (REAL.draw(rng, (1, 3)),), {"eps": 0.1})
    yield Sample("large_eps", (REAL.draw(rng, (3, 2)),), {"eps": 0.5})
    yield Sample("equal_column", (np.asarray([[1.0, 2.0], [1.0, -1.0]]),), {"eps": 0.1})
    yield Sample("offset", (OFFSET[:, None] + np.zeros(2),))
    yield Sample("no_features", (np.zeros((3, 0)),), {}, EMPTY)
    yield Sample("nan", (np.asarray([[NAN, 1.0], [0.0, 3.0]]),), {}, frozenset({"nonfinite"}))


def _batch_norm(x: Any, weight: Any = None, bias: Any = None, **kwargs: Any) -> Any:
    return ops.batch_norm(x, weight, bias, **kwargs)


define(Entry("BATCHNORM", _batch_norm, _batches, domains=(REAL,), contracts=True))


def _groups(rng: Rng) -> Iterable[Sample]:
    yield Sample("two_groups", (REAL.draw(rng, (2, 4, 3)),), {"groups": 2})
    args = (REAL.draw(rng, (2, 4, 2)), REAL.draw(rng, (4,)), REAL.draw(rng, (4,)))
    yield Sample("affine", args, {"groups": 2})
    yield Sample("one_group", (REAL.draw(rng, (2, 3)),), {"groups": 1})
    yield Sample("group_per_channel", (REAL.draw(rng, (2, 3, 4)),), {"groups": 3})
    yield Sample("images", (REAL.draw(rng, (1, 4, 2, 2)),), {"groups": 2, "eps": 0.1})
    yield Sample("no_examples", (np.zeros((0, 4, 2)),), {"groups": 2}, EMPTY)


def _group_norm(
    x: Any, weight: Any = None, bias: Any = None, *, groups: int, eps: float = 1e-5
) -> Any:
    return ops.group_norm(x, groups, weight, bias, eps)


define(Entry("GROUPNORM", _group_norm, _groups, domains=(), contracts=True))


def _instances(rng: Rng) -> Iterable[Sample]:
    yield Sample("plain", (REAL.draw(rng, (2, 3, 4)),))
    args = (REAL.draw(rng, (2, 3, 4)), REAL.draw(rng, (3,)), REAL.draw(rng, (3,)))
    yield Sample("affine", args)
    yield Sample("images", (REAL.draw(rng, (1, 2, 3, 2)),), {"eps": 0.1})
    yield Sample("no_examples", (np.zeros((0, 2, 3)),), {}, EMPTY)
    yield Sample("equal", (np.full((1, 2, 3), 2.0),), {"eps": 0.1})


define(Entry("INSTANCENORM", ops.instance_norm, _instances, contracts=True))


def _units(rng: Rng) -> Iterable[Sample]:
    yield Sample("vector", (NONZERO.draw(rng, (4,)),))
    yield Sample("rows", (NONZERO.draw(rng, (2, 3)),))
    yield Sample("columns", (NONZERO.draw(rng, (2, 3)),), {"axis": 0})
    yield Sample("two_axes", (NONZERO.draw(rng, (2, 2, 2)),), {"axis": (0, 2)})
    yield Sample("scalar", (np.asarray(-2.0),), {"axis": None})
    yield Sample("short", (np.asarray([0.3, -0.4]),), {"eps": 2.0})
    yield Sample("origin", (np.asarray([[0.0, 0.0], [3.0, 4.0]]),), {"eps": 0.5})
    yield Sample("large", (np.asarray([3e200, 4e200]),), {}, frozenset({"large"}))
    yield Sample("tiny", (np.asarray([3e-200, 4e-200]),), {"eps": 0.0}, frozenset({"tiny"}))
    yield Sample("no_rows", (np.zeros((0, 3)),), {}, EMPTY)


define(
    Entry(
        "L2_NORMALIZE",
        ops.l2_normalize,
        _units,
        domains=(NONZERO,),
        specials=(
            Special("plain", ([3.0, 4.0],), [0.6, 0.8]),
            Special(
                "origin",
                ([0.0, 0.0],),
                [0.0, 0.0],
                kwargs={"eps": 0.5},
                cotangent=[1.0, 3.0],
                gradients=([2.0, 6.0],),
            ),
            Special("origin_no_eps", ([0.0, 0.0],), [NAN, NAN], kwargs={"eps": 0.0}),
        ),
        contracts=True,
    )
)
