"""Entries of activation functions."""

import numpy as np

from autodiff import ops
from catalogue.domain import NONZERO, REAL, UNIT
from catalogue.entry import Special, elementwise

INF, NAN = np.inf, np.nan
TAILS = np.array([-90.0, -37.5, -16.7, 16.7, 37.5, 90.0])

for _kind, _function, _value, _slope in (
    ("SIGMOID", ops.sigmoid, 0.5, 0.25),
    ("LOG_SIGMOID", ops.log_sigmoid, -np.log(2.0), 0.5),
    # two kinks that cancel: the slope at 0 is 1/2, not 0 (jax-ml/jax#2107)
    ("SOFTPLUS", ops.softplus, np.log(2.0), 0.5),
):
    elementwise(
        _kind,
        _function,
        REAL,
        points={
            "zero": ([0.0, -0.0],),
            "tails": (TAILS,),
            "far_tails": ([-700.0, 700.0],),
            "infinite": ([INF, -INF, NAN],),
        },
        tags={"tails": ["tiny"], "far_tails": ["tiny"], "infinite": ["nonfinite"]},
        specials=(Special("zero", (0.0,), _value, cotangent=4.0, gradients=(4 * _slope,)),),
        composable=True,
        variants={"beta": {"beta": 5.0}} if _kind == "SOFTPLUS" else None,
    )
elementwise(
    "LOGIT",
    ops.logit,
    UNIT,
    points={
        "half": ([0.5, 0.5 + 1e-10],),
        "near_ends": ([1e-30, 1 - 2.0**-40],),
        "outside": ([0.0, 1.0, -0.5, 2.0, NAN],),
    },
    tags={"near_ends": ["edge", "singular"], "outside": ["nonfinite"]},
    specials=(
        Special("half", (0.5,), 0.0, cotangent=2.0, gradients=(8.0,)),
        Special("zero", (0.0,), -INF, cotangent=2.0, gradients=(INF,)),
        Special("one", (1.0,), INF, cotangent=2.0, gradients=(INF,)),
    ),
)
for _kind, _function, _slope in (
    ("RELU", ops.relu, 0.0),
    ("LEAKY_RELU", ops.leaky_relu, 0.01),
    ("ELU", ops.elu, 1.0),
):
    elementwise(
        _kind,
        _function,
        NONZERO,
        points={
            "zero": ([0.0, -0.0],),
            "near_zero": ([5e-7, -5e-7, 1e-3, 0.1, -0.2],),
            "large": ([1e4, -700.0],),
            "infinite": ([INF, -INF, NAN],),
        },
        tags={"zero": ["kink"], "large": ["large"], "infinite": ["nonfinite"]},
        specials=(
            Special("zero", (0.0,), 0.0, cotangent=2.0, gradients=(2 * _slope,)),
            Special("nan", (NAN,), NAN),
            Special("above", (3.0,), 3.0, cotangent=2.0, gradients=(2.0,)),
        ),
        variants=None if _kind == "RELU" else {"other_parameter": {"value": 0.3}},
    )
elementwise(
    "SILU",
    ops.silu,
    REAL,
    points={
        "zero": (0.0,),
        "tails": (TAILS,),
        "huge": ([-1e155, 1e300],),
        "infinite": ([INF, -INF, NAN],),
    },
    tags={"tails": ["tiny"], "huge": ["large"], "infinite": ["nonfinite"]},
    specials=(
        Special("zero", (0.0,), 0.0, cotangent=2.0, gradients=(1.0,)),
        # the limit, not -inf * 0
        Special("minus_infinity", (-INF,), -0.0, {}, 2.0, (0.0,), signed_zero=True),
        Special("infinity", (INF,), INF, cotangent=2.0, gradients=(2.0,)),
    ),
    composable=True,
)
elementwise(
    "GELU",
    ops.gelu,
    REAL,
    points={
        "zero": (0.0,),
        "tails": ([-36.0, -10.0, 5.0, 20.0],),
        "huge": ([-1e155, 1e300],),
        "infinite": ([INF, -INF, NAN],),
    },
    tags={"tails": ["tiny"], "huge": ["large"], "infinite": ["nonfinite"]},
    variants={"tanh": {"approximate": "tanh"}},
    specials=(
        Special("zero", (0.0,), 0.0, cotangent=2.0, gradients=(1.0,)),
        Special("zero_tanh", (0.0,), 0.0, {"approximate": "tanh"}, 2.0, (1.0,)),
        *(
            Special(
                f"{name}_{how}",
                (x,),
                value,
                {"approximate": how},
                2.0,
                (slope,),
                signed_zero=True,
            )
            for how in ("none", "tanh")
            for name, x, value, slope in (
                ("minus_infinity", -INF, -0.0, 0.0),
                ("infinity", INF, INF, 2.0),
                ("huge", 1e160, 1e160, 2.0),
            )
        ),
    ),
    composable=True,
)
