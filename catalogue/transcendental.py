"""Entries of exponentials, logarithms and quotients with a removable singularity."""

import numpy as np

from autodiff import ops
from catalogue.domain import POSITIVE, REAL, Domain
from catalogue.entry import Special, elementwise

INF, NAN = np.inf, np.nan
PLANE = np.array([1 + 2j, -0.5 + 1j, 0.3 - 0.7j])

# --- exponentials and logarithms -------------------------------------------------------------

elementwise(
    "EXP",
    ops.exp,
    REAL,
    points={
        "zero": (0.0,),
        "large": (700.0,),
        "tiny": (-700.0,),
        "complex": (PLANE,),
        "infinite": ([1e9, -1e9, INF, -INF, NAN],),
    },
    tags={
        "large": ["large"],
        "tiny": ["tiny"],
        "complex": ["complex"],
        "infinite": ["nonfinite"],
    },
    specials=(
        Special("minus_inf", (-INF,), 0.0, cotangent=2.0, gradients=(0.0,)),
        Special("zero", (0.0,), 1.0, cotangent=2.0, gradients=(2.0,)),
    ),
    composable=True,
)
elementwise(
    "EXP2",
    ops.exp2,
    REAL,
    points={"integers": ([-3.0, 0.0, 5.0],), "infinite": ([2e3, -2e3, INF, -INF],)},
    tags={"infinite": ["nonfinite"]},
    specials=(Special("ten", (10.0,), 1024.0),),
    composable=True,
)
elementwise(
    "EXPM1",
    ops.expm1,
    REAL,
    points={
        "near_zero": ([0.0, -0.0, 1e-10, -1e-20],),
        "complex": (PLANE,),
        "infinite": ([1e9, INF, -INF, NAN],),
    },
    tags={"near_zero": ["tiny"], "complex": ["complex"], "infinite": ["nonfinite"]},
    specials=(Special("tiny", (1e-20,), 1e-20, cotangent=2.0, gradients=(2.0,)),),
    composable=True,
)
for _kind, _function, _at_one in (
    ("LOG", ops.log, 1.0),
    ("LOG2", ops.log2, 1 / 0.6931471805599453),
    ("LOG10", ops.log10, 1 / 2.302585092994046),
):
    elementwise(
        _kind,
        _function,
        POSITIVE,
        points={
            "one": (1.0,),
            "large": ([1e300, 1e30],),
            "tiny": ([1e-300, 1e-30],),
            "complex": (PLANE,),
            "outside": ([0.0, -0.0, -1.0, INF, NAN],),
        },
        tags={
            "large": ["large"],
            "tiny": ["tiny"],
            "complex": ["complex"],
            "outside": ["nonfinite"],
        },
        specials=(
            Special("zero", (0.0,), -INF, cotangent=2.0, gradients=(INF,)),
            Special("one", (1.0,), 0.0, cotangent=1.0, gradients=(_at_one,)),
            Special("negative", (-1.0,), NAN),
        ),
    )
elementwise(
    "LOG1P",
    ops.log1p,
    Domain(low=-0.8, high=3.0),
    points={
        "near_zero": ([0.0, 1e-10, -1e-20],),
        "near_minus_one": ([-1 + 2.0**-50, -1 + 2.0**-20],),
        "complex": (PLANE,),
        "outside": ([-1.0, -2.0, INF, NAN],),
    },
    tags={
        "near_zero": ["tiny"],
        "near_minus_one": ["edge", "singular"],
        "complex": ["complex"],
        "outside": ["nonfinite"],
    },
    specials=(
        Special("tiny", (1e-20,), 1e-20, cotangent=2.0, gradients=(2.0,)),
        Special("near_minus_one", (-1 + 2.0**-50,), cotangent=1.0, gradients=(2.0**50,)),
        Special("minus_one", (-1.0,), -INF, cotangent=2.0, gradients=(INF,)),
    ),
)
elementwise(
    "LOGADDEXP",
    ops.logaddexp,
    REAL,
    REAL,
    points={
        "equal": ([1.5, -2.0, 0.0], [1.5, -2.0, 0.0]),
        "far_apart": ([700.0, -1e3, 1e4], [-700.0, 1e3, 0.0]),
        "masked": ([-INF, -INF, 1.0], [-INF, 2.0, -INF]),
        "infinite": ([INF, INF, NAN], [INF, 1.0, 0.0]),
    },
    tags={
        "far_apart": ["large"],
        "masked": ["nonfinite"],
        "infinite": ["nonfinite"],
    },
    specials=(
        Special("masked", (-INF, -INF), -INF, cotangent=2.0, gradients=(1.0, 1.0)),
        Special("one_masked", (-INF, 3.0), 3.0, cotangent=2.0, gradients=(0.0, 2.0)),
        Special("infinite", (INF, INF), INF, cotangent=2.0, gradients=(1.0, 1.0)),
        Special("equal", (0.0, 0.0), np.log(2.0), cotangent=2.0, gradients=(1.0, 1.0)),
    ),
    composable=True,
)
elementwise(
    "XLOGY",
    ops.xlogy,
    REAL,
    POSITIVE,
    points={
        "zero_x": ([0.0, 0.0], [2.0, 0.5]),
        "zero_y": ([0.0, 1.0], [0.0, 0.0]),
        "nan": ([0.0, NAN], [NAN, 1.0]),
    },
    tags={"zero_y": ["nonfinite"], "nan": ["nonfinite"]},
    specials=(
        # the slope in x is log(y) even at x = 0 (pytorch/pytorch#80770)
        Special("zero_x", (0.0, 1.0), 0.0, cotangent=2.0, gradients=(0.0, 0.0)),
        Special("zeros", (0.0, 0.0), 0.0, cotangent=2.0, gradients=(-INF, 0.0)),
        # a tangent of 0 is 0 beside an infinite slope (google-deepmind/optax#1786)
        Special("zero_tangent", (0.0, 0.0), 0.0, tangents=(0.0, 0.0), tangent=0.0),
        Special("nan", (0.0, NAN), NAN),
    ),
)
elementwise(
    "XLOG1PY",
    ops.xlog1py,
    REAL,
    Domain(low=-0.8, high=3.0),
    points={
        "zero_x": ([0.0, 0.0], [1.0, -0.5]),
        "tiny_y": ([1.0, -2.0], [1e-20, -1e-18]),
        "pole": ([0.0, 1.0], [-1.0, -1.0]),
    },
    tags={"tiny_y": ["tiny"], "pole": ["nonfinite"]},
    specials=(
        Special("zero_x", (0.0, 0.0), 0.0, cotangent=2.0, gradients=(0.0, 0.0)),
        Special("pole", (0.0, -1.0), 0.0, cotangent=2.0, gradients=(-INF, 0.0)),
        Special("zero_tangent", (0.0, -1.0), 0.0, tangents=(0.0, 0.0), tangent=0.0),
    ),
)

# --- quotients with a removable singularity ----------------------------------------------------

for _kind, _function in (("SINC", ops.sinc), ("EXPREL", ops.exprel)):
    elementwise(
        _kind,
        _function,
        REAL,
        points={
            "near_zero": ([0.0, -0.0, 1e-8, -1e-4, 0.01, 1e-200],),
            "far": ([20.25, -35.5, 41.0],),
            "infinite": ([-INF, NAN],),
        },
        tags={"far": ["large"], "infinite": ["nonfinite"]},
        variants={f"order_{n}": {"order": n} for n in (1, 2, 3)},
        specials=(
            Special(
                "zero", (0.0,), 1.0, cotangent=2.0, gradients=(0.0 if _kind == "SINC" else 1.0,)
            ),
        ),
        composable=True,
    )
