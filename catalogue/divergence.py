"""Entries of divergences between softmax distributions."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import REAL
from catalogue.entry import Entry, Sample, Special, define, elementwise_samples
from catalogue.reduction import INF, NAN, Rng
from catalogue.softmax import LOGITS


def _pair(name: str, x: Any, y: Any, *tags: str, **kwargs: Any) -> Sample:
    return Sample(name, (np.asarray(x), np.asarray(y)), kwargs, frozenset(tags))


def _near(x: Any, size: float, rng: Rng) -> Any:
    return x + size * rng.normal(size=np.shape(x))


def _pairs(rng: Rng) -> Iterable[Sample]:
    """Two rows of logits: far apart, close, with dominant classes, offsets and masks."""
    for shape, axis in (
        ((5,), -1),
        ((3, 4), 0),
        ((2, 3, 2), 1),
        ((2, 2, 2), (0, 2)),
        ((2, 3), None),
    ):
        name = "x".join(map(str, shape))
        yield _pair(name, LOGITS.draw(rng, shape), LOGITS.draw(rng, shape), axis=axis)
    row = LOGITS.draw(rng, (4,))
    yield _pair("shared_row", LOGITS.draw(rng, (2, 4)), row)
    yield _pair("equal", row, row)
    for size in (1e-6, 1e-2):
        yield _pair(f"near_{size:g}", row, _near(row, size, rng))
    yield _pair("near_with_offset", row, _near(row, 1e-6, rng) + 3.0)
    yield _pair("both_dominant", [20.0, 0.0, 1.0], [21.0, 0.5, 0.0])
    yield _pair("opposite", [30.0, 0.0], [0.0, 30.0])
    yield _pair("tie", [2.0, 2.0, 0.0], [1.0, 1.0, 3.0])
    yield _pair("one_class", [3.0], [-2.0])
    yield _pair("masked_in_both", [0.5, -INF, 1.0], [0.0, -INF, 2.0], "nonfinite")
    yield _pair("very_far", [0.0, -200.0], [-200.0, 0.0], "large")
    yield _pair("no_rows", np.zeros((0, 3)), np.zeros((0, 3)), "empty")
    yield _pair("nan", [NAN, 0.0], [0.0, 1.0], "nonfinite")


_ROW = np.asarray([0.5, -1.0, 2.0])
define(
    Entry(
        "SOFTMAX_DIFFERENCE",
        ops.softmax_difference,
        _pairs,
        domains=(LOGITS, LOGITS),
        specials=(
            Special("equal", (_ROW, _ROW), [0.0, 0.0, 0.0]),
            Special("common_shift", (_ROW + 4, _ROW), [0.0, 0.0, 0.0]),
            Special("masked_in_both", ([0.0, -INF], [1.0, -INF]), [0.0, 0.0]),
            Special("far", ([0.0, -1e4], [-1e4, 0.0]), [1.0, -1.0]),
            Special("far_in_float32", ([0.0, -200.0], [-200.0, 0.0]), [1.0, -1.0]),
            Special("masked_by_teacher", ([0.0, 0.0], [0.0, -INF]), [-0.5, 0.5]),
            Special("masked_by_student", ([0.0, -INF], [0.0, 0.0]), [0.5, -0.5]),
            Special("each_masks_one", ([0.0, -INF], [-INF, 0.0]), [1.0, -1.0]),
        ),
        contracts=True,
    )
)
define(
    Entry(
        "SOFT_CROSS_ENTROPY",
        ops.soft_cross_entropy,
        _pairs,
        domains=(LOGITS, LOGITS),
        specials=(
            Special(
                "equal",
                ([1.0, 1.0], [2.0, 2.0]),
                np.log(2),
                cotangent=3.0,
                gradients=([0.0, 0.0], [0.0, 0.0]),
            ),
            Special(
                "masked_in_both",
                ([0.0, -INF], [1.0, -INF]),
                0.0,
                cotangent=2.0,
                gradients=([0.0, 0.0], [0.0, 0.0]),
            ),
            Special("masked_by_teacher", ([0.0, 0.0], [0.0, -INF]), np.log(2)),
            Special("masked_by_student", ([0.0, -INF], [0.0, 0.0]), INF),
        ),
        contracts=True,
    )
)
define(
    Entry(
        "KL_DIVERGENCE",
        ops.kl_divergence,
        _pairs,
        domains=(LOGITS, LOGITS),
        specials=(
            Special(
                "equal",
                (_ROW, _ROW),
                0.0,
                cotangent=3.0,
                gradients=([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
            ),
            Special("masked_in_both", ([0.0, -INF], [1.0, -INF]), 0.0),
            Special("masked_by_student", ([0.0, 0.0], [0.0, -INF]), INF),
        ),
        contracts=True,
    )
)
define(
    Entry(
        "EXPM1_REMAINDER",
        ops.expm1_remainder,
        elementwise_samples(
            REAL,
            points={
                "zero": (0.0,),
                "small": ([1e-9, -1e-5, 0.3, -0.999],),
                "seam": ([1.0, -1.0],),
                "infinite": ([INF, -INF],),
            },
            tags={"infinite": ["nonfinite"], "small": ["tiny"]},
        ),
        domains=(REAL,),
        specials=(Special("zero", (0.0,), 0.0, cotangent=2.0, gradients=(0.0,)),),
    )
)
