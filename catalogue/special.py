"""Entries of special functions: gamma, error and normal distribution functions."""

import numpy as np

from autodiff import ops
from catalogue.domain import POSITIVE, REAL, UNIT, Domain
from catalogue.entry import Special, elementwise

INF, NAN = np.inf, np.nan
OPEN = Domain(low=-0.9, high=0.9)
BELOW = np.array([-0.5, -1.25, -2.75, -5.4])
# Euler's constant
EULER = 0.5772156649015329

elementwise(
    "LGAMMA",
    ops.lgamma,
    POSITIVE,
    points={
        "negative": (BELOW,),
        "roots": ([1.0, 2.0],),
        "large": ([1e3, 1e10],),
        "tiny": ([1e-3, 1e-10],),
        "poles": ([0.0, -1.0, INF, NAN],),
    },
    tags={"large": ["large"], "tiny": ["tiny"], "poles": ["nonfinite"]},
    specials=(
        Special("one", (1.0,), 0.0, cotangent=2.0, gradients=(-2 * EULER,)),
        Special("pole", (0.0,), INF),
    ),
)
elementwise(
    "DIGAMMA",
    ops.digamma,
    POSITIVE,
    points={
        "negative": (BELOW,),
        "root": (1.4616321449683622,),
        "large": ([1e3, 1e10],),
        "tiny": ([1e-3, 1e-10],),
        "infinite": ([INF, NAN],),
    },
    tags={"large": ["large"], "tiny": ["tiny"], "infinite": ["nonfinite"]},
    specials=(Special("one", (1.0,), -EULER),),
)
elementwise(
    "TRIGAMMA",
    ops.trigamma,
    POSITIVE,
    points={
        "negative": (BELOW,),
        "large": ([1e3, 1e10],),
        "tiny": ([1e-3, 1e-10],),
        "infinite": ([INF, NAN],),
    },
    tags={"large": ["large"], "tiny": ["tiny"], "infinite": ["nonfinite"]},
    specials=(Special("infinity", (INF,), 0.0),),
)
elementwise(
    "POLYGAMMA",
    lambda x, n: ops.polygamma(n, x),
    POSITIVE,
    points={
        "negative": (BELOW,),
        "large": ([1e3, 1e10],),
        "tiny": ([1e-3, 1e-8],),
        "infinite": ([INF, NAN],),
    },
    tags={"large": ["large"], "tiny": ["tiny"], "infinite": ["nonfinite"]},
    params={"n": 2},
    variants={f"order_{n}": {"n": n} for n in (1, 3, 4)},
)
elementwise(
    "GAMMA",
    ops.gamma,
    POSITIVE,
    points={
        "negative": (BELOW,),
        "integers": ([1.0, 2.0, 5.0],),
        "large": ([30.0, 150.0],),
        "tiny": ([1e-3, 1e-10],),
        "overflow": ([172.0, NAN, INF],),
    },
    tags={"large": ["large"], "tiny": ["tiny"], "overflow": ["nonfinite"]},
    specials=(Special("five", (5.0,), 24.0),),
)

# --- error and normal distribution functions ---------------------------------------------------

elementwise(
    "GAUSSIAN",
    ops.gaussian,
    REAL,
    points={
        "zero": ([0.0, -0.0],),
        "tails": ([-9.3, 9.3, 26.1],),
        "infinite": ([INF, -INF, NAN],),
    },
    tags={"tails": ["tiny"], "infinite": ["nonfinite"]},
    variants={"half": {"scale": 0.5}},
    specials=(Special("zero", (0.0,), 1.0, cotangent=2.0, gradients=(0.0,)),),
    composable=True,
)
for _kind, _function, _at_inf in (
    ("ERF", ops.erf, 1.0),
    ("ERFC", ops.erfc, 0.0),
    ("NDTR", ops.ndtr, 1.0),
):
    elementwise(
        _kind,
        _function,
        REAL,
        points={
            "zero": ([0.0, -0.0],),
            "tails": ([-9.3, 9.3, -26.1, 20.0],),
            "infinite": ([INF, -INF, NAN],),
        },
        tags={"tails": ["tiny"], "infinite": ["nonfinite"]},
        specials=(Special("infinity", (INF,), _at_inf, cotangent=2.0, gradients=(0.0,)),),
        composable=True,
    )
elementwise(
    "LOG_NDTR",
    ops.log_ndtr,
    REAL,
    points={"zero": (0.0,), "tails": ([-12.0, 9.3],), "infinite": ([INF, NAN],)},
    tags={"tails": ["tiny"], "infinite": ["nonfinite"]},
)
elementwise(
    "ERFINV",
    ops.erfinv,
    OPEN,
    points={
        "zero": (0.0,),
        "ends": ([1.0, -1.0],),
        "near_end": ([1 - 2.0**-40, -1 + 2.0**-20],),
        "tiny": (1e-20,),
        "outside": ([1.5, NAN],),
    },
    tags={
        "ends": ["edge", "nonfinite"],
        "near_end": ["edge", "singular"],
        "tiny": ["tiny"],
        "outside": ["nonfinite"],
    },
    specials=(Special("one", (1.0,), INF, cotangent=2.0, gradients=(INF,)),),
)
elementwise(
    "NDTRI",
    ops.ndtri,
    UNIT,
    points={
        "half": (0.5,),
        "ends": ([1.0, 0.0],),
        "near_end": ([1 - 2.0**-40, 1e-30],),
        "outside": ([1.5, NAN],),
    },
    tags={
        "ends": ["edge", "nonfinite"],
        "near_end": ["edge", "singular"],
        "outside": ["nonfinite"],
    },
    specials=(Special("one", (1.0,), INF, cotangent=2.0, gradients=(INF,)),),
)
elementwise(
    "ENTR",
    ops.entr,
    POSITIVE,
    points={"zero": (0.0,), "outside": ([-1.0, NAN, INF],)},
    tags={"zero": ["edge"], "outside": ["nonfinite"]},
    specials=(
        Special("zero", (0.0,), 0.0, cotangent=2.0, gradients=(INF,)),
        Special("zero_tangent", (0.0,), 0.0, tangents=(0.0,), tangent=0.0),
        Special("one", (1.0,), 0.0, cotangent=2.0, gradients=(-2.0,)),
        Special("negative", (-1.0,), -INF),
    ),
)
