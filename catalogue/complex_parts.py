"""Entries of complex numbers' parts, conjugate, construction and argument."""

import numpy as np

from autodiff import ops
from catalogue.domain import COMPLEX, REAL, Domain
from catalogue.entry import Special, elementwise

INF, NAN = np.inf, np.nan
# away from the branch cut of the argument, the negative real axis
RIGHT = Domain("complex", 0.3, 2.0)

elementwise(
    "REAL",
    ops.real,
    COMPLEX,
    points={"infinite": (np.array([complex(INF, NAN), complex(NAN, 1)]),)},
    tags={"infinite": ["nonfinite", "complex"]},
    specials=(Special("pairing", (3 + 4j,), 3.0, cotangent=2.0, gradients=(2 + 0j,)),),
)
elementwise(
    "IMAG",
    ops.imag,
    COMPLEX,
    points={"infinite": (np.array([complex(INF, NAN), complex(NAN, 1)]),)},
    tags={"infinite": ["nonfinite", "complex"]},
    # y = Im z has dy/dx - i dy/dy = -i
    specials=(Special("pairing", (3 + 4j,), 4.0, cotangent=2.0, gradients=(-2j,)),),
)
elementwise(
    "CONJ",
    ops.conj,
    COMPLEX,
    points={"infinite": (np.array([complex(INF, NAN), complex(NAN, 1)]),)},
    tags={"infinite": ["nonfinite", "complex"]},
    specials=(Special("pairing", (3 + 4j,), 3 - 4j, cotangent=1 + 2j, gradients=(1 - 2j,)),),
)
elementwise(
    "COMPLEX",
    ops.complex,
    REAL,
    REAL,
    points={"infinite": ([INF, NAN, 1.0], [1.0, INF, NAN])},
    tags={"infinite": ["nonfinite"]},
    specials=(Special("pairing", (3.0, 4.0), 3 + 4j, cotangent=1 + 2j, gradients=(1.0, -2.0)),),
)
elementwise(
    "ANGLE",
    ops.angle,
    RIGHT,
    points={
        "quadrants": (np.array([1 + 2j, -1 + 2j, -1 - 2j, 1 - 2j]),),
        "large": (np.array([1e200 + 2e200j, 1e20 - 1e20j]),),
        "tiny": (np.array([1e-200 + 2e-200j, 1e-20 - 1e-20j]),),
        "zero": (np.array([0j]),),
    },
    tags={"large": ["large"], "tiny": ["tiny"], "zero": ["kink"]},
    specials=(
        Special("i", (2j,), np.pi / 2, cotangent=4.0, gradients=(-2 + 0j,)),
        Special("zero", (0j,), 0.0, cotangent=2.0, gradients=(0j,)),
        Special("negative_real", (-1.0,), np.pi, cotangent=2.0, gradients=(0.0,)),
    ),
)
