"""Entries of absolute value, sign, roots and powers."""

import numpy as np

from autodiff import ops
from catalogue.domain import NONZERO, POSITIVE, REAL, Domain
from catalogue.entry import Special, elementwise

INF, NAN = np.inf, np.nan
WIDE = Domain(low=0.3, high=4.0)

elementwise(
    "ABS",
    ops.abs,
    Domain(avoid=(0.0,), margin=0.3),
    points={
        "zero": ([0.0, -0.0],),
        "integers": (np.array([-3, 0, 7]),),
        "complex": (np.array([3 + 4j, -1 - 2j, 2j]),),
        "complex_zero": (np.array([0j]),),
        "infinite": ([INF, -INF, NAN],),
    },
    tags={
        "zero": ["kink"],
        "integers": ["integer"],
        "complex": ["complex"],
        "complex_zero": ["complex", "kink"],
        "infinite": ["nonfinite"],
    },
    specials=(
        Special("zero", (0.0,), 0.0, cotangent=2.0, gradients=(0.0,)),
        Special("complex_zero", (0j,), 0.0, cotangent=2.0, gradients=(0j,)),
        # du/dx - i du/dy of |z|
        Special("complex", (2j,), 2.0, cotangent=3.0, gradients=(-3j,)),
        Special("negative_zero", (-0.0,), 0.0, signed_zero=True),
    ),
)
elementwise(
    "SIGN",
    ops.sign,
    NONZERO,
    points={
        "zero": ([0.0, -0.0],),
        "integers": (np.array([-3, 0, 7]),),
        "infinite": ([INF, -INF, NAN],),
        "complex": (np.array([3 + 4j, -1 - 2j, 2j]),),
    },
    tags={
        "zero": ["kink"],
        "integers": ["integer"],
        "infinite": ["nonfinite"],
        "complex": ["complex"],
    },
    specials=(Special("zero", (0.0,), 0.0, cotangent=2.0, gradients=(0.0,)),),
)
elementwise(
    "SQRT",
    ops.sqrt,
    POSITIVE,
    points={
        "zero": (0.0,),
        "large": ([1e300, 1e30],),
        "tiny": ([1e-300, 1e-30],),
        "subnormal": (5e-324,),
        "complex": (np.array([3 + 4j, -1 - 2j, 2j]),),
        "outside": ([-1.0, INF, NAN],),
    },
    tags={
        "zero": ["edge"],
        "large": ["large"],
        "tiny": ["tiny"],
        "subnormal": ["tiny", "edge"],
        "complex": ["complex"],
        "outside": ["nonfinite"],
    },
    specials=(
        Special("zero", (0.0,), 0.0, cotangent=2.0, gradients=(INF,)),
        Special("infinity", (INF,), INF, cotangent=2.0, gradients=(0.0,)),
        Special("negative", (-1.0,), NAN),
        Special("negative_zero", (-0.0,), -0.0, signed_zero=True),
    ),
)
elementwise(
    "RSQRT",
    ops.rsqrt,
    WIDE,
    points={"large": ([1e30, 4e200],), "tiny": ([1e-30, 4e-200],), "zero": ([0.0, INF],)},
    tags={"large": ["large"], "tiny": ["tiny"], "zero": ["nonfinite"]},
    specials=(
        Special("zero", (0.0,), INF),
        Special("infinity", (INF,), 0.0, cotangent=2.0, gradients=(0.0,)),
        Special("large", (2.0**200,), 2.0**-100, cotangent=2.0, gradients=(-(2.0**-300),)),
    ),
)
elementwise(
    "CBRT",
    ops.cbrt,
    NONZERO,
    points={"zero": (0.0,), "large": ([1e300, -1e30],), "tiny": ([1e-300, -1e-30],)},
    tags={"zero": ["edge"], "large": ["large"], "tiny": ["tiny"]},
    specials=(
        Special("zero", (0.0,), 0.0, cotangent=2.0, gradients=(INF,)),
        Special("minus_eight", (-8.0,), -2.0, cotangent=3.0, gradients=(0.25,)),
    ),
)
elementwise(
    "SQUARE",
    ops.square,
    REAL,
    points={
        "zero": ([0.0, -0.0],),
        "integers": (np.array([-3, 0, 7]),),
        "complex": (np.array([3 + 4j, -1 - 2j, 2j]),),
    },
    tags={"integers": ["integer"], "complex": ["complex"]},
    specials=(Special("zero", (0.0,), 0.0, cotangent=2.0, gradients=(0.0,)),),
    composable=True,
)
elementwise(
    "RECIPROCAL",
    ops.reciprocal,
    NONZERO,
    points={
        "complex": (np.array([3 + 4j, -1 - 2j, 2j]),),
        "large": ([1e20, -1e200],),
        "tiny": ([1e-20, -1e-150],),
        "zero": ([0.0, INF],),
    },
    tags={
        "complex": ["complex"],
        "large": ["large"],
        "tiny": ["tiny"],
        "zero": ["nonfinite"],
    },
    specials=(Special("infinity", (INF,), 0.0, cotangent=2.0, gradients=(0.0,)),),
)


def _power_gradient(exponent: float, value: float, slope: float, in_y: float = 0.0) -> Special:
    """The convention at base 0 (pytorch/pytorch#27134, EnzymeAD/Enzyme#2855)."""
    name = f"zero_to_{exponent}".replace("-", "minus_").replace(".", "_")
    return Special(name, (0.0, exponent), value, cotangent=2.0, gradients=(2 * slope, in_y))


elementwise(
    "POW",
    ops.pow,
    WIDE,
    REAL,
    points={
        "negative_base": ([-2.0, -0.5, -1.5], [3.0, 2.0, -1.0]),
        "zero_base": ([0.0, 0.0, 0.0], [2.0, 3.0, 1.0]),
        "zero_exponent": ([1.5, 0.25, 3.0], [0.0, 0.0, 0.0]),
        "integers": (np.array([2, -3]), np.array([3, 2])),
        "complex": (np.array([1 + 2j, -0.5 + 1j]), np.array([0.5 - 0.25j, 2.0])),
        "outside": ([-2.0, 0.0, 1.0], [0.5, -1.0, NAN]),
    },
    tags={
        "integers": ["integer"],
        "complex": ["complex"],
        "outside": ["nonfinite"],
    },
    # no slope in the exponent there
    argnums={"negative_base": (0,), "zero_base": (0,)},
    specials=(
        _power_gradient(2.0, 0.0, 0.0),
        _power_gradient(1.875, 0.0, 0.0),
        _power_gradient(1.0, 0.0, 1.0),
        _power_gradient(0.5, 0.0, INF),
        _power_gradient(0.0, 1.0, 0.0),
        _power_gradient(-1.0, INF, -INF),
        # (-2) ** 3 exists, its slope in the exponent does not: taken as 0
        Special("negative_base", (-2.0, 3.0), -8.0, cotangent=0.5, gradients=(6.0, 0.0)),
        Special("negative_base_zero", (-2.0, 0.0), 1.0, cotangent=2.0, gradients=(0.0, 0.0)),
    ),
)
