"""Elementwise arithmetic, selection, conversion and constants."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import (
    batch_broadcasting,
    binary,
    broadcast_shapes,
    fit,
    is_array,
    promote,
    unary,
    unbroadcast,
)
from autodiff.kernels import elementwise as kernels
from autodiff.op import Op, define
from autodiff.program import Spec
from autodiff.reverse import Undefined
from autodiff.trace import bind

__all__ = [
    "add",
    "cast",
    "div",
    "full_like",
    "mul",
    "neg",
    "ones_like",
    "strong_div",
    "strong_mul",
    "sub",
    "where",
    "zeros_like",
]

# --- arithmetic ----------------------------------------------------------------------------


def _neg_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    del inputs
    return (-ct,)


neg = unary(
    "NEG",
    np.negative,
    tangent=lambda t, x, y: -t,
    transpose=_neg_transpose,
    kinds="iufcV",
    template="-{0}",
    doc="Elementwise -x.",
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
    doc="Elementwise x + y.",
)
sub = binary(
    "SUB",
    np.subtract,
    tangents=(lambda t, x, y, z: t, lambda t, x, y, z: -t),
    transpose=_add_transpose(-1),
    template="{0} - {1}",
    doc="Elementwise x - y.",
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
    doc="Elementwise x * y.",
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
    doc="Elementwise x / y; integers are divided as float64.",
)


def _strong_mul_transpose(ct: Any, inputs: Any, strongly: bool = False) -> tuple[Any, ...]:
    x, y = inputs
    if isinstance(x, Undefined):
        return unbroadcast(bind("STRONG_MUL", ct, y), x.shape), None
    if strongly:  # upstream of a select again: zeros of ct win too, where x is not finite
        zero = np.zeros((), x.dtype)
        kept = bind("WHERE", bind("COMPARE", ct, zero, direction="EQ"), zero, x)
        x = bind("WHERE", bind("ISFINITE", x), x, kept)
    # 0 where the cotangent operand x is 0, even if ct is infinite there
    return None, unbroadcast(bind("STRONG_MUL", x, ct), y.shape)


strong_mul = binary(
    "STRONG_MUL",
    kernels.strong_mul,
    tangents=(
        lambda t, x, y, z: bind("STRONG_MUL", t, y),
        lambda t, x, y, z: bind("STRONG_MUL", x, t),
    ),
    transpose=_strong_mul_transpose,
    jax="rules:strong_mul",
    kinds="fcV",
    doc="x * y, and 0 where x is 0 whatever y is.",
)


def _strong_div_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    x, y = inputs
    return unbroadcast(bind("STRONG_DIV", ct, y), x.shape), None


strong_div = binary(
    "STRONG_DIV",
    kernels.strong_div,
    tangents=(
        lambda t, x, y, z: bind("STRONG_DIV", t, y),
        lambda t, x, y, z: -bind("STRONG_DIV", bind("STRONG_MUL", z, t), y),
    ),
    transpose=_strong_div_transpose,
    jax="rules:strong_div",
    kinds="fcV",
    doc="x / y, and 0 where x is 0 whatever y is.",
)

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
    mask, _, _ = primals
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
    return bind("WHERE", cast(mask if is_array(mask) else np.asarray(mask), np.bool_), x, y)


# --- conversion and constants --------------------------------------------------------------


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
    """Convert to a dtype, rounding to nearest even.

    Float to integer truncates toward zero; complex to real keeps the real part.
    """
    dtype = np.dtype(dtype)
    return x if getattr(x, "dtype", None) == dtype else bind("CAST", x, dtype=dtype)


def zeros_like(x: Any, dtype: Any = None) -> Any:
    """A constant array of zeros with the shape and dtype of x."""
    return np.zeros(np.shape(x), dtype or x.dtype)


def ones_like(x: Any, dtype: Any = None) -> Any:
    """A constant array of ones with the shape and dtype of x."""
    return np.ones(np.shape(x), dtype or x.dtype)


def full_like(x: Any, value: Any, dtype: Any = None) -> Any:
    """An array of the shape and dtype of x filled with a value, which may be traced."""
    dtype = np.dtype(dtype or x.dtype)
    return np.broadcast_to(
        cast(value if is_array(value) else np.asarray(value), dtype), np.shape(x)
    )
