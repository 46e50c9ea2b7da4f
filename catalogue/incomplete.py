"""Entries of the incomplete gamma and beta functions and their densities."""

import numpy as np

from autodiff import ops
from catalogue.domain import Domain
from catalogue.entry import Special, elementwise

INF, NAN = np.inf, np.nan
SHAPE = Domain(low=0.5, high=4.0)
WITHIN = Domain(low=0.1, high=0.9)

_GAMMA_POINTS = {
    "at_mean": ([0.7, 2.0, 20.0], [0.7, 2.0, 20.0]),
    "integer_shape": ([1.0, 2.0, 3.0], [0.5, 2.5, 3.0]),
    "large_shape": ([40.0, 150.0], [35.0, 170.0]),
    "small_shape": ([1e-2, 1e-3], [0.5, 2.0]),
    "tails": ([3.0, 3.0, 20.0], [1e-4, 60.0, 1.0]),
    "zero": ([1.5, 2.5], [0.0, 0.0]),
    "outside": ([-1.0, 2.0, NAN, 2.0], [1.0, -1.0, 1.0, INF]),
}
_GAMMA_TAGS = {
    "small_shape": ["tiny"],
    "tails": ["tiny"],
    "zero": ["edge"],
    "outside": ["nonfinite"],
}
for _kind, _function, _at_zero in (
    ("IGAMMA", ops.igamma, 0.0),
    ("IGAMMAC", ops.igammac, 1.0),
    ("GAMMA_DENSITY", ops.gamma_density, 0.0),
):
    elementwise(
        _kind,
        _function,
        SHAPE,
        SHAPE,
        points=_GAMMA_POINTS,
        tags=_GAMMA_TAGS,
        specials=(Special("zero", (2.5, 0.0), _at_zero, cotangent=2.0, gradients=(0.0, 0.0)),),
    )
elementwise(
    "IGAMMA_A",
    ops.igamma_a,
    SHAPE,
    SHAPE,
    points=_GAMMA_POINTS,
    tags=_GAMMA_TAGS,
    params={"order": 1},
    variants={"order_2": {"order": 2}},
    specials=(Special("zero", (2.5, 0.0), 0.0, {"order": 1}),),
)

_BETA_POINTS = {
    "at_mean": ([0.5, 2.0, 20.0], [0.5, 3.0, 30.0], [0.5, 0.4, 0.4]),
    "integer_shape": ([1.0, 2.0, 1.0], [1.0, 1.0, 3.0], [0.5, 0.25, 0.75]),
    "large_shape": ([40.0, 150.0], [50.0, 80.0], [0.5, 0.6]),
    "small_shape": ([0.05, 0.02], [0.5, 0.05], [0.5, 0.9]),
    "tails": ([3.0, 3.0], [5.0, 5.0], [1e-5, 1 - 1e-3]),
    "ends": ([1.5, 2.5], [2.0, 2.0], [0.0, 1.0]),
    "outside": ([-1.0, 2.0, NAN], [1.0, 2.0, 1.0], [0.5, 1.5, 0.5]),
}
_BETA_TAGS = {
    "small_shape": ["tiny"],
    "tails": ["tiny", "edge"],
    "ends": ["edge"],
    "outside": ["nonfinite"],
}
for _kind, _function, _at_one in (
    ("BETAINC", ops.betainc, 1.0),
    ("BETA_DENSITY", ops.beta_density, 0.0),
):
    elementwise(
        _kind,
        _function,
        SHAPE,
        SHAPE,
        WITHIN,
        points=_BETA_POINTS,
        tags=_BETA_TAGS,
        specials=(
            Special("zero", (2.5, 2.0, 0.0), 0.0, cotangent=2.0, gradients=(0.0, 0.0, 0.0)),
            Special("one", (2.5, 2.0, 1.0), _at_one, cotangent=2.0, gradients=(0.0, 0.0, 0.0)),
        ),
    )
elementwise(
    "BETAINC_AB",
    ops.betainc_ab,
    SHAPE,
    SHAPE,
    WITHIN,
    points=_BETA_POINTS,
    tags=_BETA_TAGS,
    params={"orders": (1, 0)},
    variants={"in_b": {"orders": (0, 1)}, "mixed": {"orders": (1, 1)}},
    specials=(Special("zero", (2.5, 2.0, 0.0), 0.0, {"orders": (1, 0)}),),
)
