"""Elementwise maximum, minimum and clamping."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import batch_broadcasting, binary, broadcast_shapes, promote
from autodiff.kernels import elementwise as kernels
from autodiff.op import Op, define
from autodiff.ops.elementwise import where
from autodiff.program import Spec
from autodiff.trace import bind

__all__ = ["clamp", "clip", "dominance", "fmax", "fmin", "maximum", "minimum"]

dominance = binary(
    "DOMINANCE",
    kernels.dominance,
    derivative="zero",
    kinds="fV",
    jax="rules:dominance",
    doc="1 where x > y, 1/2 where equal, 0 where x < y: the share of x in the maximum.",
)


def _extremum_tangents(wins: Any) -> tuple[Any, Any]:
    return (lambda t, x, y, z: t * wins(x, y), lambda t, x, y, z: t * wins(y, x))


maximum = binary(
    "MAXIMUM",
    np.maximum,
    tangents=_extremum_tangents(lambda x, y: bind("DOMINANCE", x, y)),
    kinds="biufV",
    doc="The larger of x and y; NaN propagates, and a tie gives each operand half the tangent.",
)
minimum = binary(
    "MINIMUM",
    np.minimum,
    tangents=_extremum_tangents(lambda x, y: bind("DOMINANCE", y, x)),
    kinds="biufV",
    doc="The smaller of x and y; NaN propagates, and a tie gives each operand half the tangent.",
)


def fmax(x: Any, y: Any) -> Any:
    """The larger of x and y, the other one where one is NaN; ties share the tangent."""
    x, y = promote(x, y)
    return where(x != x, y, where(y != y, x, maximum(x, y)))


def fmin(x: Any, y: Any) -> Any:
    """The smaller of x and y, the other one where one is NaN; ties share the tangent."""
    x, y = promote(x, y)
    return where(x != x, y, where(y != y, x, minimum(x, y)))


def _clamp_spec(x: Spec, low: Spec, high: Spec) -> Spec:
    shape = broadcast_shapes("CLAMP", x, low, high)
    if not x.dtype == low.dtype == high.dtype or x.dtype.kind not in "iufV":
        raise ShapeError(
            f"CLAMP is not defined for {x.dtype.name}, {low.dtype.name} and {high.dtype.name}",
            f"in op CLAMP, operands {x}, {low} and {high}",
            "convert the operands to one real dtype with astype",
        )
    return Spec(shape, x.dtype)


define(
    Op(
        "CLAMP",
        _clamp_spec,
        body=lambda x, low, high: bind("MINIMUM", bind("MAXIMUM", x, low), high),
        batch=batch_broadcasting("CLAMP"),
        elementwise=True,
    )
)


def clamp(x: Any, low: Any, high: Any) -> Any:
    """min(max(x, low), high).

    At x = low or x = high the tangent of x and that of the limit count half each, the mean of the
    one-sided slopes; where low > high the result is high. NaN propagates.
    """
    return bind("CLAMP", *promote(x, low, high))


def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    """`clamp` with limits that may be None."""
    if low is None:
        return x if high is None else minimum(x, high)
    return maximum(x, low) if high is None else clamp(x, low, high)
