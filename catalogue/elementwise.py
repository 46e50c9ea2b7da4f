"""Entries of elementwise arithmetic, selection and conversion."""

from collections.abc import Iterable

import numpy as np

from autodiff import ops
from catalogue.domain import BOOL, COMPLEX, NONZERO, REAL
from catalogue.entry import Entry, Sample, Special, define, elementwise

INF, NAN = np.inf, np.nan

elementwise(
    "NEG",
    ops.neg,
    REAL,
    points={
        "integers": (np.array([-3, 0, 7]),),
        "complex": (np.array([1 + 2j, -0.5j]),),
        "infinite": ([INF, -INF, NAN],),
    },
    tags={"integers": ["integer"], "complex": ["complex"], "infinite": ["nonfinite"]},
    specials=(Special("negative_zero", (0.0,), -0.0, signed_zero=True),),
    composable=True,
)
elementwise(
    "ADD",
    ops.add,
    REAL,
    REAL,
    points={
        "integers": (np.array([1, 2]), np.array([[3], [4]])),
        "mixed_dtypes": (np.array([1, 2], np.int16), np.array([0.5, -0.25])),
        "complex": (np.array([1 + 2j, 3.0]), np.array([-0.5j, 1 - 1j])),
        "cancelling": ([1e16, 1.0], [-1e16, -1.0]),
    },
    tags={"integers": ["integer"], "complex": ["complex"], "cancelling": ["large"]},
    composable=True,
)
elementwise(
    "SUB",
    ops.sub,
    REAL,
    REAL,
    points={
        "integers": (np.array([1, 2]), np.array([[3], [4]])),
        "real_complex": (np.array([1.0, 3.0]), np.array([-0.5j, 1 - 1j])),
        "equal": ([1.5, -2.0], [1.5, -2.0]),
    },
    tags={"integers": ["integer"], "real_complex": ["complex"]},
    composable=True,
)
elementwise(
    "MUL",
    ops.mul,
    REAL,
    REAL,
    points={
        "zeros": ([0.0, 2.0, 0.0], [3.0, 0.0, 0.0]),
        "integers": (np.array([1, 2]), np.array([[3], [4]])),
        "complex": (np.array([1 + 2j, 3.0]), np.array([-0.5j, 1 - 1j])),
        "large": ([1e20, -3e15], [2e17, 1e18]),
        "tiny": ([1e-20, -3e-25], [2e-17, 1e-18]),
        "zero_times_inf": ([0.0, 2.0], [INF, INF]),
    },
    tags={
        "integers": ["integer"],
        "complex": ["complex"],
        "large": ["large"],
        "tiny": ["tiny"],
        "zero_times_inf": ["nonfinite"],
    },
    composable=True,
)
elementwise(
    "DIV",
    ops.div,
    REAL,
    NONZERO,
    points={
        "zero_numerator": ([0.0, 0.0], [2.0, -1.5]),
        "integers": (np.array([1, 2]), np.array([[3], [4]])),
        "complex": (np.array([1 + 2j, 3.0]), np.array([-0.5j, 1 - 1j])),
        # y * y overflows or underflows in float32
        "large_denominator": ([3e20, 1.0], [2e20, 5e19]),
        "tiny_denominator": ([3e-24, 1e-25], [2e-24, 5e-24]),
        "by_zero": ([1.0, -1.0, 0.0], [0.0, 0.0, 0.0]),
    },
    tags={
        "integers": ["integer"],
        "complex": ["complex"],
        "large_denominator": ["large"],
        "tiny_denominator": ["tiny"],
        "by_zero": ["nonfinite"],
    },
    specials=(
        Special(
            "huge_denominator",
            (1e200, 2e200),
            0.5,
            cotangent=4.0,
            gradients=(4.0 / 2e200, -(4.0 * 0.5) / 2e200),
        ),
    ),
)
elementwise(
    "STRONG_MUL",
    ops.strong_mul,
    NONZERO,
    REAL,
    points={"zero_times_inf": ([0.0, 2.0, 0.0], [INF, INF, NAN])},
    tags={"zero_times_inf": ["nonfinite"]},
    specials=(
        Special("zero_times_inf", (0.0, INF), 0.0),
        Special("zero_times_nan", (0.0, NAN), 0.0),
        Special("zero_tangent", (0.0, INF), tangents=(0.0, 1.0), tangent=0.0),
    ),
)
elementwise(
    "STRONG_DIV",
    ops.strong_div,
    NONZERO,
    NONZERO,
    points={"by_zero": ([0.0, 2.0], [0.0, 0.0])},
    tags={"by_zero": ["nonfinite"]},
    specials=(
        Special("zero_by_zero", (0.0, 0.0), 0.0),
        Special("zero_tangent", (0.0, 0.0), tangents=(0.0, 1.0), tangent=0.0),
    ),
)
elementwise(
    "WHERE",
    ops.where,
    BOOL,
    REAL,
    REAL,
    points={
        "integers": (np.array([True, False]), np.array([1, 2]), np.array([[3], [4]])),
        "complex": (np.array([True, False]), np.array([1j, 2.0]), np.array([3.0, 1 - 1j])),
        "scalar_mask": (np.array(True), [1.0, 2.0], [[3.0], [4.0]]),
        "nan_not_selected": (np.array([True, False]), [1.0, NAN], [NAN, 2.0]),
    },
    tags={"integers": ["integer"], "complex": ["complex"], "nan_not_selected": ["nonfinite"]},
    specials=(
        Special("picks_x", (True, 3.0, NAN), 3.0, cotangent=2.0, gradients=(2.0, 0.0)),
        Special("picks_y", (False, INF, -4.0), -4.0, cotangent=2.0, gradients=(0.0, 2.0)),
    ),
)


def _cast_samples(rng: np.random.Generator) -> Iterable[Sample]:
    x = REAL.draw(rng, (2, 3))
    yield Sample("real_to_complex", (x,), {"dtype": np.dtype("complex128")})
    z = COMPLEX.draw(rng, (3,))
    yield Sample("complex_to_real", (z,), {"dtype": np.dtype("float64")}, frozenset({"complex"}))
    # rounding makes these step functions: no differences
    for name in ("float32", "bfloat16", "int64", "bool"):
        yield Sample(f"to_{name}", (x,), {"dtype": _dtype(name)}, argnums=())
    yield Sample("scalar", (np.float64(1.1),), {"dtype": np.dtype("float32")}, argnums=())
    yield Sample("empty", (np.zeros((0, 2)),), {"dtype": np.dtype("float32")}, frozenset({"empty"}))
    ties = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8])
    yield Sample("ties", (ties,), {"dtype": _dtype("bfloat16")}, argnums=())
    for name, value in (("integer", [1, -2]), ("bool", [True, False])):
        yield Sample(
            f"from_{name}", (np.array(value),), {"dtype": _dtype("float64")}, frozenset({"integer"})
        )


def _dtype(name: str) -> np.dtype[np.generic]:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


define(
    Entry(
        "CAST",
        ops.cast,
        _cast_samples,
        domains=(REAL,),
        specials=(
            Special("truncates", ([-1.9, 1.9],), [-1, 1], {"dtype": np.dtype("int64")}),
            # ties go to the even neighbour
            Special(
                "ties_to_even",
                ([1 + 2.0**-8, 1 + 3 * 2.0**-8],),
                np.array([1.0, 1 + 2.0**-6]),
                {"dtype": _dtype("bfloat16")},
            ),
            Special(
                "narrowing_derivative",
                (1.1,),
                np.float32(1.1),
                {"dtype": np.dtype("float32")},
                cotangent=np.float32(0.5),
                gradients=(0.5,),
            ),
        ),
    )
)
