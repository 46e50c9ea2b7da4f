"""Entries of elementwise maximum, minimum and clamping."""

from collections.abc import Iterable

import numpy as np

from autodiff import ops
from catalogue.domain import REAL, Domain
from catalogue.entry import Entry, Sample, Special, define, elementwise

INF, NAN = np.inf, np.nan
LEFT, RIGHT = Domain(avoid=(0.0,), margin=1.0), Domain(low=-0.4, high=0.4)

elementwise(
    "DOMINANCE",
    ops.dominance,
    LEFT,
    RIGHT,
    points={"ties": ([1.0, 2.0, INF], [1.0, 3.0, INF]), "nan": ([NAN, 1.0], [1.0, NAN])},
    tags={"ties": ["kink", "tie", "nonfinite"], "nan": ["nonfinite"]},
    specials=(
        Special("tie", (1.0, 1.0), 0.5, cotangent=2.0, gradients=(0.0, 0.0)),
        Special("tied_infinities", (-INF, -INF), 0.5),
        Special("nan", (NAN, 1.0), NAN),
    ),
)
for _kind, _function, _above in (("MAXIMUM", ops.maximum, 1.0), ("MINIMUM", ops.minimum, 0.0)):
    elementwise(
        _kind,
        _function,
        LEFT,
        RIGHT,
        points={
            "ties": ([1.0, -2.0, 0.0], [1.0, -2.0, 0.0]),
            "integers": (np.array([1, 5]), np.array([[3], [4]])),
            "bools": (np.array([True, False]), np.array([False, False])),
            "infinite": ([INF, -INF, 1.0], [1.0, -INF, -INF]),
            "nan": ([NAN, 1.0], [1.0, NAN]),
            "crossed": ([[0.0], [1.0], [2.0]], [[-1.0, 0.5, 1.5, 3.0]]),
        },
        tags={
            "ties": ["kink", "tie"],
            "integers": ["integer"],
            "bools": ["integer"],
            "infinite": ["nonfinite"],
            "nan": ["nonfinite"],
        },
        specials=(
            # a tie shares the cotangent and conserves it (pytorch/pytorch#76522)
            Special("tie", (3.0, 3.0), 3.0, cotangent=2.0, gradients=(1.0, 1.0)),
            Special("tied_infinities", (-INF, -INF), -INF, cotangent=2.0, gradients=(1.0, 1.0)),
            Special(
                "larger_x",
                (4.0, 3.0),
                3 + _above,
                cotangent=2.0,
                gradients=(2 * _above, 2 - 2 * _above),
            ),
            Special("nan", (NAN, 1.0), NAN, cotangent=2.0, gradients=(NAN, NAN)),
        ),
    )


def _clamp_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape in ((), (0,), (1,), (5,), (2, 3)):
        x = Domain(avoid=(-1.0, 1.0), margin=0.3).draw(rng, shape)
        name = "x".join(map(str, shape)) or "scalar"
        tags = {"empty"} if 0 in shape else set()
        yield Sample(f"shape_{name}", (x, np.float64(-1.0), np.float64(1.0)), tags=frozenset(tags))
    x = Domain(avoid=(-1.0, 1.0), margin=0.3).draw(rng, (2, 1))
    yield Sample("broadcast", (x, np.full(3, -1.0), np.full((2, 3), 1.0)))
    yield Sample(
        "integers", (np.array([-4, 0, 4]), np.array(-1), np.array(1)), tags=frozenset({"integer"})
    )
    at = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    yield Sample(
        "at_limits", (at, np.full(5, -1.0), np.full(5, 1.0)), tags=frozenset({"kink", "tie"})
    )
    yield Sample(
        "nan",
        (np.array([NAN, INF]), np.float64(-1.0), np.float64(1.0)),
        tags=frozenset({"nonfinite"}),
    )
    yield Sample("crossed_limits", (np.array([-3.0, 0.0, 3.0]), np.float64(1.0), np.float64(-1.0)))


define(
    Entry(
        "CLAMP",
        ops.clamp,
        _clamp_samples,
        domains=(REAL,),
        specials=(
            # the tangents of x and the limit count half each (pytorch/pytorch#76522)
            Special("at_low", (-1.0, -1.0, 1.0), -1.0, cotangent=2.0, gradients=(1.0, 1.0, 0.0)),
            Special("at_high", (1.0, -1.0, 1.0), 1.0, cotangent=2.0, gradients=(1.0, 0.0, 1.0)),
            Special("below", (-5.0, -1.0, 1.0), -1.0, cotangent=2.0, gradients=(0.0, 2.0, 0.0)),
            Special("crossed_limits", (0.0, 1.0, -1.0), -1.0),
            Special("nan", (NAN, -1.0, 1.0), NAN),
        ),
    )
)
