"""Entries of trigonometric and hyperbolic functions, and the polar form of a point."""

import numpy as np

from autodiff import ops
from catalogue.domain import NONZERO, POSITIVE, REAL, Domain
from catalogue.entry import Special, elementwise

INF, NAN = np.inf, np.nan
PLANE = np.array([1 + 2j, -0.5 + 1j, 0.3 - 0.7j])
OPEN = Domain(low=-0.9, high=0.9)

# --- trigonometric functions -----------------------------------------------------------------

for _kind, _function, _slope in (("SIN", ops.sin, 1.0), ("COS", ops.cos, 0.0)):
    elementwise(
        _kind,
        _function,
        REAL,
        points={
            "zero": ([0.0, -0.0],),
            "multiples": ([np.pi, -np.pi / 2, 2 * np.pi, 1e4],),
            "complex": (PLANE,),
            "infinite": ([INF, -INF, NAN],),
        },
        tags={"complex": ["complex"], "infinite": ["nonfinite"]},
        specials=(Special("zero", (0.0,), 1 - _slope, cotangent=2.0, gradients=(2 * _slope,)),),
        composable=True,
    )
elementwise(
    "TAN",
    ops.tan,
    Domain(low=-1.2, high=1.2),
    points={
        "zero": (0.0,),
        "near_pole": ([1.5707963267948966, -1.57],),
        "complex": (PLANE,),
        "far_from_axis": (np.array([0.3 + 20j, 1 - 30j]),),
    },
    tags={
        "near_pole": ["large", "edge"],
        "complex": ["complex"],
        "far_from_axis": ["complex"],
    },
    specials=(Special("zero", (0.0,), 0.0, cotangent=2.0, gradients=(2.0,)),),
)
for _kind, _function, _slope in (("ASIN", ops.asin, 1.0), ("ACOS", ops.acos, -1.0)):
    elementwise(
        _kind,
        _function,
        OPEN,
        points={
            "zero": (0.0,),
            "ends": ([1.0, -1.0],),
            "near_end": ([1 - 2.0**-40, -1 + 2.0**-40],),
            "complex": (PLANE,),
            "outside": ([2.0, NAN],),
        },
        tags={
            "ends": ["edge"],
            "near_end": ["edge", "singular"],
            "complex": ["complex"],
            "outside": ["nonfinite"],
        },
        specials=(
            Special("one", (1.0,), cotangent=2.0, gradients=(_slope * INF,)),
            Special("zero", (0.0,), cotangent=2.0, gradients=(2 * _slope,)),
        ),
    )
elementwise(
    "ATAN",
    ops.atan,
    REAL,
    points={
        "zero": (0.0,),
        "large": ([1e20, -1e200],),
        "complex": (PLANE,),
        "infinite": ([INF, -INF, NAN],),
    },
    tags={"large": ["large"], "complex": ["complex"], "infinite": ["nonfinite"]},
    specials=(Special("infinity", (INF,), np.pi / 2, cotangent=2.0, gradients=(0.0,)),),
    composable=True,
)
elementwise(
    "ATAN2",
    ops.atan2,
    NONZERO,
    POSITIVE,
    points={
        "quadrants": ([1.0, 1.0, -1.0, -1.0], [2.0, -2.0, -2.0, 2.0]),
        "axes": ([0.0, 1.0, -1.0], [1.0, 0.0, 0.0]),
        "large": ([1e200, -1e20], [1e200, 2e20]),
        "tiny": ([1e-200, -1e-24], [2e-200, 1e-24]),
        "origin": (0.0, 0.0),
        "signed_zeros": ([0.0, -0.0], [-1.0, -1.0]),
    },
    tags={
        "large": ["large"],
        "tiny": ["tiny"],
        "origin": ["kink"],
        "signed_zeros": ["kink"],
    },
    specials=(
        Special("origin", (0.0, 0.0), 0.0, cotangent=2.0, gradients=(0.0, 0.0)),
        Special("up", (2.0, 0.0), np.pi / 2, cotangent=4.0, gradients=(0.0, -2.0)),
        Special("below_the_cut", (-0.0, -1.0), -np.pi),
    ),
)
elementwise(
    "HYPOT",
    ops.hypot,
    NONZERO,
    REAL,
    points={
        "axes": ([0.0, 3.0, -2.0], [1.0, 0.0, 0.0]),
        "large": ([3e200, -3e30], [4e200, 4e30]),
        "tiny": ([3e-200, -3e-30], [4e-200, 4e-30]),
        "origin": (0.0, 0.0),
        "infinite": ([INF, NAN], [1.0, INF]),
    },
    tags={
        "large": ["large"],
        "tiny": ["tiny"],
        "origin": ["kink"],
        "infinite": ["nonfinite"],
    },
    specials=(
        Special("origin", (0.0, 0.0), 0.0, cotangent=2.0, gradients=(0.0, 0.0)),
        Special(
            "huge", (3 * 2.0**600, 4 * 2.0**600), 5 * 2.0**600, cotangent=5.0, gradients=(3.0, 4.0)
        ),
        Special("infinite", (INF, NAN), INF),
    ),
)
elementwise(
    "COPYSIGN",
    ops.copysign,
    NONZERO,
    NONZERO,
    points={"zeros": ([1.0, -2.0, 0.0], [0.0, -0.0, -1.0])},
    tags={"zeros": ["kink"]},
    specials=(
        Special("negative_zero", (3.0, -0.0), -3.0, cotangent=2.0, gradients=(-2.0, 0.0)),
        Special("zero", (0.0, -1.0), -0.0, cotangent=2.0, gradients=(0.0, 0.0), signed_zero=True),
    ),
)

# --- hyperbolic functions --------------------------------------------------------------------

elementwise(
    "SECH2",
    ops.sech2,
    REAL,
    points={
        "zero": ([0.0, -0.0],),
        "tails": ([-20.0, 20.0, 340.0],),
        "complex": (np.array([1 + 0.5j, -0.5 + 1j, 30 - 1j, -30 + 1j]),),
        "infinite": ([INF, -INF, NAN],),
    },
    tags={"complex": ["complex"], "tails": ["tiny"], "infinite": ["nonfinite"]},
    specials=(
        Special("zero", (0.0,), 1.0, cotangent=2.0, gradients=(0.0,)),
        Special("infinity", (INF,), 0.0, cotangent=2.0, gradients=(0.0,)),
    ),
    composable=True,
)
elementwise(
    "TANH",
    ops.tanh,
    REAL,
    points={
        "zero": (0.0,),
        "tails": ([-20.0, 20.0, 300.0],),
        "complex": (np.array([1 + 0.5j, -0.5 + 1j, 30 - 1j]),),
        "infinite": ([INF, -INF, NAN],),
    },
    tags={"complex": ["complex"], "tails": ["tiny"], "infinite": ["nonfinite"]},
    specials=(
        Special("zero", (0.0,), 0.0, cotangent=2.0, gradients=(2.0,)),
        Special("infinity", (INF,), 1.0, cotangent=2.0, gradients=(0.0,)),
    ),
    composable=True,
)
for _kind, _function, _slope in (("SINH", ops.sinh, 1.0), ("COSH", ops.cosh, 0.0)):
    elementwise(
        _kind,
        _function,
        REAL,
        points={
            "zero": (0.0,),
            "complex": (PLANE,),
            "large": ([700.0, -80.0],),
            "infinite": ([INF, -INF, NAN],),
        },
        tags={"complex": ["complex"], "large": ["large"], "infinite": ["nonfinite"]},
        specials=(Special("zero", (0.0,), 1 - _slope, cotangent=2.0, gradients=(2 * _slope,)),),
        composable=True,
    )
elementwise(
    "ASINH",
    ops.asinh,
    REAL,
    points={
        "zero": (0.0,),
        "large": ([1e22, -1e200],),
        "complex": (PLANE,),
        "infinite": ([INF, -INF, NAN],),
    },
    tags={"large": ["large"], "complex": ["complex"], "infinite": ["nonfinite"]},
    specials=(
        Special("zero", (0.0,), 0.0, cotangent=2.0, gradients=(2.0,)),
        # x * x overflows (jax-ml/jax#40634)
        Special("large", (2.0**600,), cotangent=1.0, gradients=(2.0**-600,)),
    ),
    composable=True,
)
elementwise(
    "ACOSH",
    ops.acosh,
    Domain(low=1.3, high=5.0),
    points={
        "one": (1.0,),
        "large": ([1e22, 1e200],),
        "complex": (PLANE,),
        "outside": ([0.5, NAN, INF],),
    },
    tags={
        "one": ["edge"],
        "large": ["large"],
        "complex": ["complex"],
        "outside": ["nonfinite"],
    },
    specials=(
        Special("one", (1.0,), 0.0, cotangent=2.0, gradients=(INF,)),
        Special("large", (2.0**600,), cotangent=1.0, gradients=(2.0**-600,)),
    ),
)
elementwise(
    "ATANH",
    ops.atanh,
    OPEN,
    points={
        "zero": (0.0,),
        "ends": ([1.0, -1.0],),
        "near_end": ([1 - 2.0**-40, -1 + 2.0**-40],),
        "complex": (PLANE,),
        "outside": ([2.0, NAN],),
    },
    tags={
        "ends": ["edge", "nonfinite"],
        "near_end": ["edge", "singular"],
        "complex": ["complex"],
        "outside": ["nonfinite"],
    },
    specials=(
        Special("one", (1.0,), INF, cotangent=2.0, gradients=(INF,)),
        Special("zero", (0.0,), 0.0, cotangent=2.0, gradients=(2.0,)),
    ),
)
