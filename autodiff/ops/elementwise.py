"""Elementwise arithmetic, exponentials, comparisons, selection and conversion."""

from typing import Any

import numpy as np

from autodiff.kernels import elementwise as kernels
from autodiff.families import (
    batch_broadcasting,
    binary,
    broadcast_shapes,
    fit,
    nondiff,
    promote,
    unary,
    unbroadcast,
)
from autodiff.op import Op, define
from autodiff.errors import ShapeError
from autodiff.program import Spec
from autodiff.reverse import Undefined
from autodiff.trace import bind

# --- arithmetic ----------------------------------------------------------------------------


def _unary_linear_transpose(kind: str) -> Any:
    def transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
        del inputs
        return (bind(kind, ct),)

    return transpose


neg = unary(
    "NEG",
    np.negative,
    tangent=lambda t, x, y: -t,
    transpose=_unary_linear_transpose("NEG"),
    kinds="iufcV",
    template="-{0}",
)


def _add_transpose(sign: int) -> Any:
    def transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
        x, y = inputs
        left = unbroadcast(ct, x.shape) if isinstance(x, Undefined) else None
        right = unbroadcast(ct, y.shape) if isinstance(y, Undefined) else None
        return left, (right if right is None or sign > 0 else -right)

    return transpose


add = binary(
    "ADD",
    np.add,
    tangents=(lambda t, x, y, z: t, lambda t, x, y, z: t),
    transpose=_add_transpose(1),
    template="{0} + {1}",
)
sub = binary(
    "SUB",
    np.subtract,
    tangents=(lambda t, x, y, z: t, lambda t, x, y, z: -t),
    transpose=_add_transpose(-1),
    template="{0} - {1}",
)


def _bilinear_transpose(product: Any) -> Any:
    """Transpose of an elementwise product, linear in one operand at a time."""

    def transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
        x, y = inputs
        if isinstance(x, Undefined):
            return unbroadcast(product(ct, y), x.shape), None
        return None, unbroadcast(product(ct, x), y.shape)

    return transpose


mul = binary(
    "MUL",
    np.multiply,
    tangents=(lambda t, x, y, z: t * y, lambda t, x, y, z: x * t),
    transpose=_bilinear_transpose(lambda ct, c: ct * c),
    template="{0} * {1}",
)


def _div_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    x, y = inputs
    return unbroadcast(ct / y, x.shape), None


div = binary(
    "DIV",
    np.true_divide,
    # -t * (x / y) / y: y * y would overflow for |y| > 1e19 in float32
    tangents=(lambda t, x, y, z: t / y, lambda t, x, y, z: -(t * z) / y),
    transpose=_div_transpose,
    kinds="fcV",
    template="{0} / {1}",
)


def _strong_mul_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    x, y = inputs
    if isinstance(x, Undefined):
        return unbroadcast(bind("STRONG_MUL", ct, y), x.shape), None
    # 0 where the cotangent operand x is 0, even if ct is infinite there
    return None, unbroadcast(bind("STRONG_MUL", x, ct), y.shape)


binary(
    "STRONG_MUL",
    kernels.strong_mul,
    tangents=(
        lambda t, x, y, z: bind("STRONG_MUL", t, y),
        lambda t, x, y, z: bind("STRONG_MUL", x, t),
    ),
    transpose=_strong_mul_transpose,
    jax="rules:strong_mul",
    kinds="fcV",
)


def _strong_div_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    x, y = inputs
    return unbroadcast(bind("STRONG_DIV", ct, y), x.shape), None


binary(
    "STRONG_DIV",
    kernels.strong_div,
    tangents=(
        lambda t, x, y, z: bind("STRONG_DIV", t, y),
        lambda t, x, y, z: -bind("STRONG_DIV", bind("STRONG_MUL", z, t), y),
    ),
    transpose=_strong_div_transpose,
    jax="rules:strong_div",
    kinds="fcV",
)

# --- exponentials --------------------------------------------------------------------------

exp = unary("EXP", np.exp, deriv=lambda x, y: y)
expm1 = unary("EXPM1", np.expm1, deriv=lambda x, y: np.exp(x))
log = unary("LOG", np.log, tangent=lambda t, x, y: t / x)
log1p = unary("LOG1P", np.log1p, tangent=lambda t, x, y: t / (1 + x))
# --- selection -----------------------------------------------------------------------------


def _where_spec(mask: Spec, x: Spec, y: Spec) -> Spec:
    shape = broadcast_shapes("WHERE", mask, x, y)
    if mask.dtype != np.bool_ or x.dtype != y.dtype:
        raise ShapeError(
            f"WHERE needs a bool mask and branches of one dtype, got {mask.dtype.name}, "
            f"{x.dtype.name}, {y.dtype.name}",
            "in op WHERE",
            "compare to get a mask; convert branches with astype",
        )
    return Spec(shape, x.dtype)


def _where_jvp(primals: Any, tangents: Any, z: Any) -> Any:
    mask, x, y = primals
    _, tx, ty = tangents
    zero = np.zeros((), z.dtype)
    out = bind("WHERE", mask, zero if tx is None else tx, zero if ty is None else ty)
    return fit(out, np.shape(z))


def _where_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    mask, x, y = inputs
    zero = np.zeros((), ct.dtype)
    left = right = None
    if isinstance(x, Undefined):
        left = unbroadcast(bind("WHERE", mask, ct, zero), x.shape)
    if isinstance(y, Undefined):
        right = unbroadcast(bind("WHERE", mask, zero, ct), y.shape)
    return None, left, right


define(
    Op(
        "WHERE",
        _where_spec,
        impl=np.where,
        jvp=_where_jvp,
        transpose=_where_transpose,
        batch=batch_broadcasting("WHERE"),
        elementwise=True,
        jax="jnp.where",
    )
)

def where(mask: Any, x: Any, y: Any) -> Any:
    """Elements of x where the mask holds, of y elsewhere; the other branch's derivative is 0."""
    x, y = promote(x, y)
    return bind("WHERE", cast(mask, np.bool_), x, y)


# --- comparison and logic ------------------------------------------------------------------


def _compare_spec(x: Spec, y: Spec, *, direction: str) -> Spec:
    if direction not in kernels.COMPARE:
        raise ShapeError(f"COMPARE direction {direction!r} is not one of EQ NE LT LE GT GE")
    shape = broadcast_shapes("COMPARE", x, y)
    if x.dtype != y.dtype:
        raise ShapeError(f"COMPARE operands have dtypes {x.dtype.name} and {y.dtype.name}")
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

# --- conversion ----------------------------------------------------------------------------


def _cast_spec(x: Spec, *, dtype: np.dtype[Any]) -> Spec:
    return x.with_dtype(dtype)


def _cast_jvp(primals: Any, tangents: Any, y: Any, *, dtype: np.dtype[Any]) -> Any:
    del primals, y
    return bind("CAST", tangents[0], dtype=dtype)


def _cast_transpose(ct: Any, inputs: Any, *, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    del dtype
    (x,) = inputs
    if ct.dtype.kind == "c" and x.dtype.kind != "c":
        ct = bind("REAL", ct)
    return (bind("CAST", ct, dtype=x.dtype),)


define(
    Op(
        "CAST",
        _cast_spec,
        impl=kernels.cast,
        jvp=_cast_jvp,
        transpose=_cast_transpose,
        batch=batch_broadcasting("CAST"),
        elementwise=True,
        jax="rules:cast",
    )
)


def cast(x: Any, dtype: Any) -> Any:
    """Convert to a dtype, rounding to nearest even; float to int truncates toward zero."""
    dtype = np.dtype(dtype)
    return x if getattr(x, "dtype", None) == dtype else bind("CAST", x, dtype=dtype)

