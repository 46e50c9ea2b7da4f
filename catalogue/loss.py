"""Entries of losses."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import REAL, UNIT
from catalogue.entry import Entry, Sample, Special, define
from catalogue.reduction import INF, NAN, Rng
from catalogue.softmax import LOGITS

# shape of logits, class axis
ROWS: tuple[tuple[tuple[int, ...], int], ...] = (
    ((5,), -1),
    ((3, 4), 1),
    ((3, 4), 0),
    ((2, 3, 2), 1),
)


def _labels(rng: Rng, shape: tuple[int, ...], axis: int) -> np.ndarray[Any, Any]:
    rows = tuple(n for i, n in enumerate(shape) if i != axis % len(shape))
    return np.asarray(rng.integers(0, shape[axis], size=rows))


def _mask_samples(rng: Rng) -> Iterable[Sample]:
    integer = frozenset({"integer"})
    yield Sample("vector", (_labels(rng, (4, 3), 1),), {"classes": 3}, integer)
    yield Sample("leading", (_labels(rng, (3, 4), 0),), {"classes": 3, "axis": 0}, integer)
    yield Sample("scalar", (np.asarray(2),), {"classes": 4}, integer)
    yield Sample("outside", (np.asarray([-1, 0, 7]),), {"classes": 3}, integer)
    yield Sample("small_ints", (np.asarray([1, 0], np.int8),), {"classes": 3}, integer)
    yield Sample("empty", (np.zeros(0, np.int64),), {"classes": 3}, integer | {"empty"})


define(
    Entry(
        "LABEL_MASK",
        ops.label_mask,
        _mask_samples,
        specials=(Special("outside", (np.asarray(-1),), [False, False], kwargs={"classes": 2}),),
    )
)


def _classified(rng: Rng) -> Iterable[Sample]:
    """Logits with integer labels."""
    for shape, axis in ROWS:
        name = f"labels_{'x'.join(map(str, shape))}_axis_{axis}"
        yield Sample(name, (LOGITS.draw(rng, shape), _labels(rng, shape, axis)), {"axis": axis})
    yield Sample("right_and_sure", (np.asarray([[20.0, 0.0, 1.0]]), np.asarray([0])))
    yield Sample("wrong_and_sure", (np.asarray([[20.0, 0.0, 1.0]]), np.asarray([1])))
    yield Sample("tie", (np.asarray([2.0, 2.0, 0.0]), np.asarray(1)))
    yield Sample("one_class", (np.asarray([3.0]), np.asarray(0)))
    yield Sample("no_rows", (np.zeros((0, 3)), np.zeros(0, np.int64)), {}, frozenset({"empty"}))
    masked = np.asarray([[0.5, -INF, 1.0]])
    yield Sample("masked_class", (masked, np.asarray([2])), {}, frozenset({"nonfinite"}))


def _cross_entropies(rng: Rng) -> Iterable[Sample]:
    yield from _classified(rng)
    for shape, axis in ROWS[:3]:
        name = f"probabilities_{'x'.join(map(str, shape))}_axis_{axis}"
        y = UNIT.draw(rng, shape)
        yield Sample(
            name, (LOGITS.draw(rng, shape), y / y.sum(axis, keepdims=True)), {"axis": axis}
        )
    yield Sample("one_hot", (LOGITS.draw(rng, (2, 3)), np.eye(3)[:2]))


define(
    Entry(
        "CROSS_ENTROPY",
        ops.cross_entropy,
        _cross_entropies,
        domains=(LOGITS,),
        specials=(
            # google-deepmind/optax#896
            Special(
                "masked_without_weight",
                ([-INF, 0.0], [0.0, 1.0]),
                0.0,
                cotangent=3.0,
                gradients=([0.0, 0.0], [INF, 0.0]),
            ),
            Special("masked_with_weight", ([-INF, 0.0], [0.05, 0.95]), INF),
            Special("masked_label", ([-INF, 0.0], np.asarray(0)), INF),
            Special("label_outside", ([1.0, 2.0], np.asarray(2)), NAN),
            Special("label_negative", ([1.0, 2.0], np.asarray(-1)), NAN),
            # FluxML/NNlib.jl#68
            Special("far_wrong", ([-431.0, 279.0, 427.0], np.asarray(0)), 858.0),
        ),
        contracts=True,
    )
)
define(
    Entry(
        "NLL",
        ops.nll,
        _classified,
        domains=(LOGITS,),
        specials=(
            Special(
                "chosen",
                ([-1.0, -2.0], np.asarray(1)),
                2.0,
                cotangent=3.0,
                gradients=([0.0, -3.0],),
            ),
            Special("label_outside", ([-1.0, -2.0], np.asarray(2)), NAN),
        ),
        contracts=True,
    )
)


def _binary(rng: Rng) -> Iterable[Sample]:
    yield Sample("vector", (LOGITS.draw(rng, (5,)), UNIT.draw(rng, (5,))))
    yield Sample("matrix", (LOGITS.draw(rng, (2, 3)), UNIT.draw(rng, (2, 3))))
    yield Sample("scalar", (LOGITS.draw(rng, ()), UNIT.draw(rng, ())))
    yield Sample("broadcast", (LOGITS.draw(rng, (2, 3)), UNIT.draw(rng, (3,))))
    yield Sample("hard_labels", (LOGITS.draw(rng, (4,)), np.asarray([0.0, 1.0, 1.0, 0.0])))
    yield Sample("sure", (np.asarray([40.0, -40.0, 17.0, 0.0]), np.asarray([1.0, 0.0, 0.5, 1.0])))
    yield Sample("empty", (np.zeros(0), np.zeros(0)), {}, frozenset({"empty"}))
    infinite = np.asarray([INF, -INF, INF])
    yield Sample("infinite", (infinite, np.asarray([1.0, 0.0, 0.0])), {}, frozenset({"nonfinite"}))


define(
    Entry(
        "SIGMOID_CROSS_ENTROPY",
        ops.sigmoid_cross_entropy,
        _binary,
        domains=(LOGITS, UNIT),
        specials=(
            Special("even", (0.0, 1.0), np.log(2), cotangent=2.0, gradients=(-1.0, 0.0)),
            Special("sure_and_right", (INF, 1.0), 0.0),
            Special("sure_and_wrong", (INF, 0.0), INF),
        ),
    )
)


def _differences(rng: Rng) -> Iterable[Sample]:
    """Two arrays, reduced in various ways."""
    for shape, axis in (((5,), None), ((3, 4), 0), ((2, 3, 2), (0, 2))):
        name = "x".join(map(str, shape))
        yield Sample(name, (REAL.draw(rng, shape), REAL.draw(rng, shape)), {"axis": axis})
    yield Sample("broadcast", (REAL.draw(rng, (2, 3)), REAL.draw(rng, (3,))), {"axis": -1})
    yield Sample("scalar", (REAL.draw(rng, ()), REAL.draw(rng, ())), {"axis": None})
    yield Sample("equal", (np.asarray([1.0, 2.0]), np.asarray([1.0, 2.0])), {"axis": None})
    yield Sample("no_rows", (np.zeros((0, 2)), np.zeros((0, 2))), {"axis": 1}, frozenset({"empty"}))


define(
    Entry(
        "MSE",
        ops.mse,
        _differences,
        domains=(REAL, REAL),
        specials=(Special("equal", (2.0, 2.0), 0.0, cotangent=2.0, gradients=(0.0, 0.0)),),
        contracts=True,
    )
)


def _huber_samples(rng: Rng) -> Iterable[Sample]:
    yield Sample("vector", (REAL.draw(rng, (5,)), REAL.draw(rng, (5,))), {"delta": 0.7})
    yield Sample("broadcast", (REAL.draw(rng, (2, 3)), REAL.draw(rng, (3,))))
    yield Sample("scalar", (REAL.draw(rng, ()), REAL.draw(rng, ())))
    yield Sample("inside", (np.asarray([0.25, -0.5]), np.zeros(2)))
    yield Sample("outside", (np.asarray([4.0, -5.0]), np.zeros(2)))
    yield Sample("seam", (np.asarray([1.0, -1.0]), np.zeros(2)), {}, frozenset({"kink"}))
    yield Sample("large", (np.asarray([1e200, -1e200]), np.zeros(2)), {}, frozenset({"large"}))
    yield Sample("empty", (np.zeros(0), np.zeros(0)), {}, frozenset({"empty"}))


define(
    Entry(
        "HUBER",
        ops.huber,
        _huber_samples,
        domains=(REAL, REAL),
        specials=(
            Special("seam", (1.0, 0.0), 0.5, cotangent=2.0, gradients=(2.0, -2.0)),
            Special("far", (-3.0, 0.0), 2.5, cotangent=2.0, gradients=(-2.0, 2.0)),
        ),
    )
)


def _cosines(rng: Rng) -> Iterable[Sample]:
    yield from (s for s in _differences(rng) if s.name != "equal")
    big, small = np.asarray([3e200, 4e200]), np.asarray([3e-200, -4e-200])
    yield Sample("large", (big, np.asarray([1.0, 2.0])), {"eps": 0.0}, frozenset({"large"}))
    yield Sample("tiny", (small, np.asarray([1.0, 2.0])), {"eps": 0.0}, frozenset({"tiny"}))


define(
    Entry(
        "COSINE_SIMILARITY",
        ops.cosine_similarity,
        _cosines,
        domains=(REAL, REAL),
        specials=(
            Special("zero_vector", ([0.0, 0.0], [1.0, 2.0]), 0.0),
            Special("parallel", ([3.0, 4.0], [6.0, 8.0]), 1.0),
            Special("orthogonal", ([1.0, 0.0], [0.0, 2.0]), 0.0),
        ),
        contracts=True,
    )
)
