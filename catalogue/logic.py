"""Entries of comparisons, logic, rounding and the other piecewise constant functions."""

from collections.abc import Iterable

import numpy as np

from autodiff import ops
from autodiff.trace import bind
from catalogue.domain import BOOL, NONZERO, REAL, Domain
from catalogue.entry import Entry, Sample, Special, define, elementwise

INF, NAN = np.inf, np.nan
WHOLE = Domain("integer", -8, 9)
BETWEEN = Domain(low=-3.0, high=3.0, avoid=tuple(n / 2 for n in range(-6, 7)), margin=0.2)
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def _compare(x: object, y: object, direction: str) -> object:
    """COMPARE by direction; `autodiff.ops` has one function for each."""
    return bind("COMPARE", x, y, direction=direction)


def _compare_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for direction in DIRECTIONS:
        kwargs = {"direction": direction}
        x, y = REAL.draw(rng, (2, 3)), REAL.draw(rng, (3,))
        x[0], y[0] = y, x[1, 0]
        yield Sample(f"{direction}_ties", (x, y), kwargs)
        special = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0])
        yield Sample(
            f"{direction}_special", (special, special[:, None]), kwargs, frozenset({"nonfinite"})
        )
    yield Sample("scalar", (np.float64(1.0), np.float64(2.0)), {"direction": "LT"})
    yield Sample(
        "empty", (np.zeros((0,)), np.zeros((1,))), {"direction": "GE"}, frozenset({"empty"})
    )
    whole = (np.array([1, 2, 3]), np.array([3, 2, 1]))
    yield Sample("integers", whole, {"direction": "LE"}, frozenset({"integer"}))
    logical = (np.array([True, False]), np.array([True, True]))
    yield Sample("bools", logical, {"direction": "NE"}, frozenset({"integer"}))
    z = (np.array([1 + 1j, 2.0]), np.array([1 + 1j, 2 - 1j]))
    yield Sample("complex", z, {"direction": "EQ"}, frozenset({"complex"}))


define(
    Entry(
        "COMPARE",
        _compare,
        _compare_samples,
        domains=(REAL, REAL),
        specials=(
            Special("nan_is_not_equal", (NAN, NAN), False, {"direction": "EQ"}),
            Special("nan_differs", (NAN, NAN), True, {"direction": "NE"}),
            Special("zeros_are_equal", (0.0, -0.0), True, {"direction": "EQ"}),
            Special("nan_is_not_less", (NAN, 1.0), False, {"direction": "LT"}),
        ),
    )
)

for _kind, _function in (("LAND", ops.land), ("LOR", ops.lor), ("LXOR", ops.lxor)):
    elementwise(
        _kind,
        _function,
        BOOL,
        BOOL,
        points={
            "table": (np.array([False, False, True, True]), np.array([False, True, False, True])),
            "numbers": (np.array([0, 1, 2]), np.array([[0], [3]])),
        },
        tags={"table": ["integer"], "numbers": ["integer"]},
    )
elementwise(
    "NOT",
    ops.not_,
    BOOL,
    points={"integers": (np.array([0, 1, -7]),), "unsigned": (np.array([0, 255], np.uint8),)},
    tags={"integers": ["integer"], "unsigned": ["integer"]},
    specials=(Special("true", (True,), False), Special("integer", (5,), -6)),
)
for _kind, _function in (
    ("BITWISE_AND", ops.bitwise_and),
    ("BITWISE_OR", ops.bitwise_or),
    ("BITWISE_XOR", ops.bitwise_xor),
):
    elementwise(
        _kind,
        _function,
        WHOLE,
        WHOLE,
        points={"bools": (np.array([True, False]), np.array([[True], [False]]))},
        tags={"bools": ["integer"]},
    )
for _kind, _function, _true_at in (
    ("ISNAN", ops.isnan, NAN),
    ("ISINF", ops.isinf, -INF),
    ("ISFINITE", ops.isfinite, 5e-324),
):
    elementwise(
        _kind,
        _function,
        REAL,
        points={
            "special": ([NAN, INF, -INF, 0.0, -0.0, 1e308],),
            "complex": (np.array([complex(1, NAN), complex(INF, 0), 1j]),),
        },
        tags={"special": ["nonfinite"], "complex": ["complex", "nonfinite"]},
        specials=(Special("true", (_true_at,), True),),
    )
elementwise(
    "STEP",
    ops.step,
    NONZERO,
    points={"zero": ([0.0, -0.0],), "special": ([NAN, INF, -INF, 1e-30],)},
    tags={"zero": ["kink"], "special": ["nonfinite"]},
    specials=(
        Special("zero", (0.0,), 0.0, cotangent=2.0, gradients=(0.0,)),
        Special("above", (1e-300,), 1.0, cotangent=2.0, gradients=(0.0,)),
        Special("nan", (NAN,), NAN),
    ),
)
for _kind, _function, _of_half in (
    ("FLOOR", ops.floor, -3.0),
    ("CEIL", ops.ceil, -2.0),
    ("ROUND", ops.round, -2.0),
    ("TRUNC", ops.trunc, -2.0),
):
    elementwise(
        _kind,
        _function,
        BETWEEN,
        points={
            "at_steps": ([-1.5, -1.0, -0.0, 0.0, 0.5, 1.0, 1.5, 2.5],),
            "large": ([4503599627370497.0, -1e15, 1e300],),
            "special": ([NAN, INF, -INF],),
        },
        tags={"at_steps": ["kink"], "large": ["large", "edge"], "special": ["nonfinite"]},
        specials=(
            Special("half", (-2.5,), _of_half, cotangent=2.0, gradients=(0.0,)),
            Special("negative_zero", (-0.0,), -0.0, signed_zero=True),
        ),
    )

_DIVIDEND, _DIVISOR = Domain(low=2.1, high=2.2), Domain(low=0.6, high=0.63)
for _kind, _function, _sample in (
    ("MOD", ops.mod, (2.0, -1.0, 1.0)),
    ("REM", ops.rem, (-1.0, -1.0, 1.0)),
):
    elementwise(
        _kind,
        _function,
        _DIVIDEND,
        _DIVISOR,
        points={
            "signs": ([-7.25, 7.25, -7.25, 7.25], [3.0, -3.0, -3.0, 3.0]),
            "multiples": ([6.0, -6.0, 0.0], [3.0, 3.0, 3.0]),
            "integers": (np.array([-7, 7, 8]), np.array([3, -3, 4])),
            "by_zero": ([1.0, 0.0, INF, 1.0], [0.0, 0.0, 2.0, INF]),
            # 0.1 goes into 1 nine times with rest 0.1 - 5.6e-17: x / y rounds to 10
            "rounding_quotient": (1.0, 0.1),
        },
        tags={
            "multiples": ["kink"],
            "integers": ["integer"],
            "by_zero": ["nonfinite"],
            "rounding_quotient": ["kink"],
        },
        specials=(
            Special(
                "negative",
                (-7.0, 3.0),
                _sample[0],
                cotangent=2.0,
                gradients=(2.0, 6.0 if _kind == "MOD" else 4.0),
            ),
            Special(
                "rounding_quotient", (1.0, 0.1), 1.0 % 0.1, cotangent=1.0, gradients=(1.0, -9.0)
            ),
        ),
    )
elementwise(
    "FLOOR_DIV",
    ops.floor_div,
    _DIVIDEND,
    _DIVISOR,
    points={
        "signs": ([-7.25, 7.25, -7.25, 7.25], [3.0, -3.0, -3.0, 3.0]),
        "multiples": ([6.0, -6.0, 0.0], [3.0, 3.0, 3.0]),
        "integers": (np.array([-7, 7, 8]), np.array([3, -3, 4])),
    },
    tags={"multiples": ["kink"], "integers": ["integer"]},
    specials=(Special("negative", (-7.0, 3.0), -3.0, cotangent=2.0, gradients=(0.0, 0.0)),),
)
