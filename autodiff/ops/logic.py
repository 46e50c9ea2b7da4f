"""Comparisons, logic, rounding and the other piecewise constant functions."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import batch_broadcasting, binary, broadcast_shapes, nondiff, promote, unary
from autodiff.kernels import elementwise as kernels
from autodiff.ops.elementwise import cast
from autodiff.program import Spec
from autodiff.trace import bind

__all__ = [
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "ceil",
    "equal",
    "floor",
    "floor_div",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "land",
    "less",
    "less_equal",
    "logical_not",
    "lor",
    "lxor",
    "mod",
    "not_",
    "not_equal",
    "rem",
    "round",
    "step",
    "trunc",
]

# --- comparison ----------------------------------------------------------------------------


def _compare_spec(x: Spec, y: Spec, *, direction: str) -> Spec:
    if direction not in kernels.COMPARE:
        raise ShapeError(
            f"COMPARE direction {direction!r} is unknown",
            "in op COMPARE",
            f"use one of {', '.join(kernels.COMPARE)}",
        )
    shape = broadcast_shapes("COMPARE", x, y)
    if x.dtype != y.dtype:
        raise ShapeError(
            f"COMPARE operands have dtypes {x.dtype.name} and {y.dtype.name}",
            f"in op COMPARE, operands {x} and {y}",
            "convert one with astype",
        )
    return Spec(shape, np.dtype(np.bool_))


nondiff(
    "COMPARE",
    kernels.compare,
    spec=_compare_spec,
    batch=batch_broadcasting("COMPARE"),
    elementwise=True,
    jax="rules:compare",
)


def _comparison(direction: str, doc: str) -> Any:
    def function(x: Any, y: Any) -> Any:
        return bind("COMPARE", *promote(x, y), direction=direction)

    function.__name__ = function.__qualname__ = direction.lower()
    function.__doc__ = doc
    return function


equal = _comparison("EQ", "Elementwise x == y.")
not_equal = _comparison("NE", "Elementwise x != y.")
less = _comparison("LT", "Elementwise x < y.")
less_equal = _comparison("LE", "Elementwise x <= y.")
greater = _comparison("GT", "Elementwise x > y.")
greater_equal = _comparison("GE", "Elementwise x >= y.")

# --- logic on bools, bits of integers --------------------------------------------------------

not_ = unary(
    "NOT",
    np.invert,
    derivative="none",
    kinds="biu",
    template="~{0}",
    doc="Logical negation of bools, bitwise complement of integers.",
)


def logical_not(x: Any) -> Any:
    """True where x is zero."""
    return not_(x) if getattr(x, "dtype", None) == np.bool_ else equal(x, 0)


def _truth(x: Any) -> Any:
    return cast(x if hasattr(x, "dtype") else np.asarray(x), np.bool_)


def _logical(kind: str, impl: Any, doc: str) -> Any:
    binary(kind, impl, derivative="none", kinds="b")

    def function(x: Any, y: Any) -> Any:
        return bind(kind, _truth(x), _truth(y))

    function.__name__ = function.__qualname__ = kind.lower()
    function.__doc__ = doc
    return function


land = _logical("LAND", np.logical_and, "True where both x and y are nonzero.")
lor = _logical("LOR", np.logical_or, "True where x or y is nonzero.")
lxor = _logical("LXOR", np.logical_xor, "True where exactly one of x and y is nonzero.")

bitwise_and = binary(
    "BITWISE_AND",
    np.bitwise_and,
    derivative="none",
    kinds="biu",
    template="{0} & {1}",
    doc="Bits set in both integers (or bools).",
)
bitwise_or = binary(
    "BITWISE_OR",
    np.bitwise_or,
    derivative="none",
    kinds="biu",
    template="{0} | {1}",
    doc="Bits set in either integer (or bool).",
)
bitwise_xor = binary(
    "BITWISE_XOR",
    np.bitwise_xor,
    derivative="none",
    kinds="biu",
    template="{0} ^ {1}",
    doc="Bits set in exactly one of two integers (or bools).",
)

# --- classes of floats -----------------------------------------------------------------------

isnan = unary("ISNAN", np.isnan, derivative="none", out="bool", doc="True where x is NaN.")
isinf = unary("ISINF", np.isinf, derivative="none", out="bool", doc="True where x is infinite.")
isfinite = unary(
    "ISFINITE",
    np.isfinite,
    derivative="none",
    out="bool",
    doc="True where x is neither NaN nor infinite.",
)

# --- rounding --------------------------------------------------------------------------------

step = unary(
    "STEP",
    kernels.step,
    derivative="zero",
    kinds="fV",
    jax="rules:step",
    doc="1 where x > 0, 0 elsewhere (STEP(0) = 0); derivative 0 everywhere.",
)


def _rounding(kind: str, impl: Any, doc: str) -> Any:
    float_only = unary(kind, impl, derivative="zero", kinds="fV", doc=doc)

    def function(x: Any) -> Any:
        (x,) = promote(x)
        return x if x.dtype.kind in "biu" else float_only(x)

    function.__name__ = function.__qualname__ = kind.lower()
    function.__doc__ = f"{doc} Integers are returned as they are; the derivative is 0."
    return function


floor = _rounding("FLOOR", np.floor, "The largest integer not above x.")
ceil = _rounding("CEIL", np.ceil, "The smallest integer not below x.")
round = _rounding("ROUND", np.rint, "The nearest integer, ties to even.")
trunc = _rounding("TRUNC", np.trunc, "The integer part, toward zero.")

# --- division with remainder -----------------------------------------------------------------


def _quotient(x: Any, y: Any, remainder: Any) -> Any:
    """The integer n of x = n y + remainder; x / y itself may round across an integer."""
    return bind("ROUND", (x - remainder) / y)


mod = binary(
    "MOD",
    np.remainder,
    tangents=(lambda t, x, y, z: t, lambda t, x, y, z: -t * _quotient(x, y, z)),
    kinds="iufV",
    doc="The remainder x - floor(x / y) y, with the sign of y; derivatives 1 and -floor(x / y).",
)
rem = binary(
    "REM",
    np.fmod,
    tangents=(lambda t, x, y, z: t, lambda t, x, y, z: -t * _quotient(x, y, z)),
    kinds="iufV",
    jax="rules:rem",
    doc="The remainder x - trunc(x / y) y, with the sign of x; derivatives 1 and -trunc(x / y).",
)
floor_div = binary(
    "FLOOR_DIV",
    np.floor_divide,
    derivative="zero",
    kinds="iufV",
    template="{0} // {1}",
    doc="The largest integer not above x / y; derivative 0 everywhere.",
)
