"""Absolute value, sign, roots and powers."""

from typing import Any

import numpy as np

from autodiff.families import add_tangents, binary, fit, is_array, promote, unary
from autodiff.kernels import elementwise as kernels
from autodiff.ops.elementwise import cast, where
from autodiff.trace import bind

__all__ = ["abs", "cbrt", "pow", "reciprocal", "rsqrt", "sign", "sqrt", "square"]

# --- absolute value and sign ---------------------------------------------------------------

_real_sign = unary(
    "SIGN", np.sign, derivative="zero", kinds="iufV", doc="-1, 0 or 1; derivative 0 everywhere."
)


def sign(x: Any) -> Any:
    """-1, 0 or 1 by the sign of x, with SIGN(0) = 0 and derivative 0 everywhere.

    A complex x gives x / |x| (0 at 0), whose derivative is the tangential part of the tangent.
    """
    (x,) = promote(x)
    return _direction(x, abs(x)) if x.dtype.kind == "c" else _real_sign(x)


def _direction(z: Any, modulus: Any) -> Any:
    """z / |z| of a complex z, 0 at 0."""
    safe = where(modulus == 0, np.ones((), modulus.dtype), modulus)
    return z / cast(safe, z.dtype)


def _abs_tangent(t: Any, x: Any, y: Any) -> Any:
    if x.dtype.kind == "c":
        return bind("REAL", bind("CONJ", _direction(x, y)) * t)
    return t * bind("SIGN", x)


abs = unary(
    "ABS",
    np.absolute,
    tangent=_abs_tangent,
    kinds="biufcV",
    out="real",
    doc="|x|; the derivative at 0 is taken as 0, for complex x also.",
)

# --- powers --------------------------------------------------------------------------------

sqrt = unary(
    "SQRT",
    np.sqrt,
    tangent=lambda t, x, y: 0.5 * t / y,
    doc="Square root; the derivative at 0 is +inf.",
)
rsqrt = unary(
    "RSQRT",
    kernels.rsqrt,
    # y / x instead of y ** 3, which underflows for large x
    tangent=lambda t, x, y: -0.5 * t * (y / x),
    jax="lax.rsqrt",
    doc="1 / sqrt(x).",
)
cbrt = unary(
    "CBRT",
    np.cbrt,
    tangent=lambda t, x, y: t / (3 * (y * y)),
    kinds="fV",
    doc="Real cube root; the derivative at 0 is +inf.",
)
square = unary(
    "SQUARE", np.square, deriv=lambda x, y: 2 * x, kinds="iufcV", doc="Elementwise x * x."
)
reciprocal = unary(
    "RECIPROCAL",
    kernels.reciprocal,
    tangent=lambda t, x, y: -(t * y) * y,
    template="1 / {0}",
    doc="Elementwise 1 / x.",
)


def _pow_jvp(primals: Any, tangents: Any, z: Any) -> Any:
    (x, y), (tx, ty) = primals, tangents
    one = np.ones((), z.dtype)
    parts = []
    if tx is not None:
        # y * x ** (y - 1), without 0 * inf at x = y = 0
        base = bind("WHERE", (x == 0) & (y == 0), one, x)
        parts.append(tx * (y * bind("POW", base, y - 1)))
    if ty is not None:
        # x ** y * log(x): 0 at x = 0, the limit for y > 0; 0 at x < 0, where z exists only at
        # isolated y (pytorch/pytorch#27134)
        inside = x != 0 if z.dtype.kind == "c" else x > 0
        power = bind("WHERE", x == 0, np.zeros((), z.dtype), z)
        parts.append(ty * (power * np.log(bind("WHERE", inside, x, one))))
    return add_tangents(*(fit(p, np.shape(z)) for p in parts))


_power = binary("POW", np.power, jvp=_pow_jvp, kinds="iufcV", template="{0} ** {1}")


def pow(x: Any, y: Any) -> Any:
    """Elementwise x ** y, with 0 ** 0 = 1.

    The derivative in x is y x^(y-1), and 0 where x = y = 0; it is exact for any constant y at
    negative x. The derivative in y is x^y log x; at x = 0 it is taken as 0 (the limit for y > 0),
    at x < 0 also, where the power exists for integral y only. An exponent that is the Python
    number 2 gives x * x.

    Raises:
        ShapeError: the shapes do not broadcast.
    """
    if type(y) in (int, float) and y == 2:
        kind = x.dtype.kind if is_array(x) else np.asarray(x).dtype.kind
        if kind == "b" and isinstance(y, int):  # NumPy squares bools as int8
            return square(x.astype(np.int8) if is_array(x) else np.int8(x))
        if kind in "fcV" or (kind in "iu" and isinstance(y, int)):  # integers ** 2.0 are floats
            return square(x)
    x, y = promote(x, y)
    return _power(x.astype(np.int8), y.astype(np.int8)) if x.dtype == np.bool_ else _power(x, y)
