"""Entries of elementwise arithmetic, selection and conversion."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import autodiff as ad
from autodiff import ops
from catalogue.domain import BOOL, COMPLEX, NONZERO, REAL
from catalogue.entry import Entry, Sample, Special, define, elementwise, elementwise_samples

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
# Branches with a pole, or undefined, at elements that are not selected: nothing of it may reach
# the derivative, which all of these would by 0 * inf.
_ROOT = ((-1.0, 2.0), (0.5, 3.0))
_CORNER = ((4.0, 2.0), (-1.0, -3.0))
_SINGULAR = (((1.0, 1.0), (1.0, 1.0)), ((2.0, 0.5), (0.25, 1.5)))
_BRANCHES: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    # name -> the branch, x and the mask
    "root": (np.sqrt, _ROOT, [[False, True], [True, True]]),
    "pole": (lambda x: 1.0 / x, ((0.0, 2.0), (0.5, 3.0)), [[False, True], [True, True]]),
    # one term in each sum, so that rows of a batch are bit-equal to single ones
    "matmul": (lambda x: np.sqrt(x)[:, :1] @ np.sqrt(x)[:1], _CORNER, [[True], [False]]),
    "einsum": (
        lambda x: np.einsum("ij,jk->ik", np.log(x)[:, :1], x[:1]),
        _CORNER,
        [[True], [False]],
    ),
    "convolve": (lambda x: ops.convolve(np.sqrt(x[:, 1]), x[0, :1]), _CORNER, [True, False]),
    "conv": (
        lambda x: ops.conv1d(np.sqrt(x)[:, None], x[None, :1, :1]),
        _CORNER,
        [[[True, True]], [[False, False]]],
    ),
    "solve": (lambda a: ops.solve(a, np.array([1.0, -2.0])), _SINGULAR, [[False], [True]]),
    "inv": (ops.inv, _SINGULAR, [[[False]], [[True]]]),
    "cholesky": (
        lambda a: ops.cholesky(a + np.swapaxes(a, -1, -2)),
        (((1.0, 2.0), (2.0, 1.0)), ((2.0, 0.5), (0.25, 1.5))),
        [[[False]], [[True]]],
    ),
    "scan": (
        lambda x: ad.scan(lambda c, v: (c + v * v, c * np.sqrt(v)), x[1], x)[1],
        _ROOT,
        [[False], [True]],
    ),
    "cond": (
        lambda x: ad.cond(x[1, 1] > 0, np.sqrt, lambda v: v * v, x),
        _ROOT,
        [[False, True], [True, True]],
    ),
    "while": (
        lambda x: ad.while_loop(
            lambda s: s[1] < 2.0, lambda s: (np.sqrt(s[0]), s[1] + 1.0), (x, 0.0), max_steps=3
        )[0],
        _ROOT,
        [[False, True], [True, True]],
    ),
    "checkpoint": (ad.checkpoint(np.sqrt), _ROOT, [[False, True], [True, True]]),
}


def _where(mask: Any, x: Any, y: Any, branch: str | None = None) -> Any:
    """Elements of x, or of a branch computed from it, where the mask holds, of y elsewhere."""
    return ops.where(mask, _BRANCHES[branch][0](x) if branch else x, y)


def _where_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield from elementwise_samples(
        BOOL,
        REAL,
        REAL,
        points={
            "integers": (np.array([True, False]), np.array([1, 2]), np.array([[3], [4]])),
            "complex": (np.array([True, False]), np.array([1j, 2.0]), np.array([3.0, 1 - 1j])),
            "scalar_mask": (np.array(True), [1.0, 2.0], [[3.0], [4.0]]),
            "nan_not_selected": (np.array([True, False]), [1.0, NAN], [NAN, 2.0]),
            "shared_rows": (np.array([[True, False], [False] * 2, [True] * 2]), [1.0, 2.0], 3.0),
        },
        tags={"integers": ["integer"], "complex": ["complex"], "nan_not_selected": ["nonfinite"]},
    )(rng)
    for name, (_, x, mask) in _BRANCHES.items():
        args = (np.array(mask), np.array(x), REAL.draw(rng))
        yield Sample(f"unselected_{name}", args, {"branch": name})


define(
    Entry(
        "WHERE",
        _where,
        _where_samples,
        domains=(BOOL, REAL, REAL),
        specials=(
            Special("picks_x", (True, 3.0, NAN), 3.0, cotangent=2.0, gradients=(2.0, 0.0)),
            Special("picks_y", (False, INF, -4.0), -4.0, cotangent=2.0, gradients=(0.0, 2.0)),
            # a cotangent that is not 0 meets NaN as ever
            Special(
                "selected_nan",
                (True, [[4.0, 9.0], [-1.0, 1.0]], 0.0),
                [[4.0, 6.0], [NAN, NAN]],
                {"branch": "matmul"},
                cotangent=[[0.0, 0.0], [0.0, 1.0]],
                gradients=([[0.0, NAN], [NAN, 0.0]], 0.0),
            ),
        ),
    )
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
