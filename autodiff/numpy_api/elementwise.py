"""NumPy's elementwise ufuncs and functions."""

import functools
from typing import Any

import ml_dtypes
import numpy as np

from autodiff import ops
from autodiff.errors import TracerError
from autodiff.families import promote
from autodiff.numpy_api import FUNCTIONS, UFUNCS, implements
from autodiff.trace import quoted, user_line
from autodiff.tracer import Tracer

UFUNCS.update(
    {
        np.add: ops.add,
        np.subtract: ops.sub,
        np.multiply: ops.mul,
        np.true_divide: ops.div,
        np.negative: ops.neg,
        np.positive: lambda x: x,
        np.absolute: ops.abs,
        np.fabs: lambda x: ops.abs(_inexact(x)),
        np.sign: ops.sign,
        np.sqrt: ops.sqrt,
        np.cbrt: ops.cbrt,
        np.square: lambda x: ops.square(x.astype(np.int8) if x.dtype == np.bool_ else x),
        np.reciprocal: lambda x: _reciprocal(x),
        np.power: ops.pow,
        np.float_power: lambda x, y: ops.pow(_double(x), _double(y)),
        np.maximum: ops.maximum,
        np.minimum: ops.minimum,
        np.fmax: ops.fmax,
        np.fmin: ops.fmin,
        np.conjugate: ops.conj,
        np.copysign: ops.copysign,
        np.heaviside: lambda x, h: _heaviside(*promote(x, h, inexact=True)),
    }
)
UFUNCS.update(
    {
        np.exp: ops.exp,
        np.exp2: ops.exp2,
        np.expm1: ops.expm1,
        np.log: ops.log,
        np.log2: ops.log2,
        np.log10: ops.log10,
        np.log1p: ops.log1p,
        np.logaddexp: ops.logaddexp,
        np.logaddexp2: lambda x, y: _logaddexp2(*promote(x, y, inexact=True)),
        np.sin: ops.sin,
        np.cos: ops.cos,
        np.tan: ops.tan,
        np.arcsin: ops.asin,
        np.arccos: ops.acos,
        np.arctan: ops.atan,
        np.arctan2: ops.atan2,
        np.hypot: ops.hypot,
        np.sinh: ops.sinh,
        np.cosh: ops.cosh,
        np.tanh: ops.tanh,
        np.arcsinh: ops.asinh,
        np.arccosh: ops.acosh,
        np.arctanh: ops.atanh,
        np.deg2rad: lambda x: x * (np.pi / 180),
        np.radians: lambda x: x * (np.pi / 180),
        np.rad2deg: lambda x: x * (180 / np.pi),
        np.degrees: lambda x: x * (180 / np.pi),
    }
)
UFUNCS.update(
    {
        np.equal: ops.equal,
        np.not_equal: ops.not_equal,
        np.less: ops.less,
        np.less_equal: ops.less_equal,
        np.greater: ops.greater,
        np.greater_equal: ops.greater_equal,
        np.logical_and: ops.land,
        np.logical_or: ops.lor,
        np.logical_xor: ops.lxor,
        np.logical_not: ops.logical_not,
        np.invert: ops.not_,
        np.bitwise_and: ops.bitwise_and,
        np.bitwise_or: ops.bitwise_or,
        np.bitwise_xor: ops.bitwise_xor,
        np.isnan: ops.isnan,
        np.isinf: ops.isinf,
        np.isfinite: ops.isfinite,
        np.signbit: lambda x: ops.less(ops.copysign(1.0, x), 0),
        np.floor: ops.floor,
        np.ceil: ops.ceil,
        np.trunc: ops.trunc,
        np.rint: lambda x: ops.round(_inexact(x)),
        np.floor_divide: ops.floor_div,
        np.remainder: ops.mod,
        np.fmod: ops.rem,
        np.divmod: lambda x, y: (ops.floor_div(x, y), ops.mod(x, y)),
        np.ldexp: lambda x, n: _ldexp(_inexact(x), n),
        np.frexp: lambda x: _frexp(_inexact(x)),
        np.left_shift: lambda x, n: _shifted(x, n, ops.mul),
        np.right_shift: lambda x, n: _shifted(x, n, ops.floor_div),
        np.modf: lambda x: _modf(_inexact(x)),
    }
)
FUNCTIONS.update(
    {
        np.real: ops.real,
        np.imag: ops.imag,
        np.sinc: ops.sinc,
        np.fix: ops.trunc,
        np.i0: lambda x: ops.bessel_i0(x),
        np.iscomplexobj: lambda x: x.dtype.kind == "c",
        np.isrealobj: lambda x: x.dtype.kind != "c",
        np.iscomplex: lambda x: ops.not_equal(ops.imag(x), 0),
        np.isreal: lambda x: ops.equal(ops.imag(x), 0),
        np.copy: lambda a, order="K", subok=False: a,
        np.astype: lambda x, dtype, /, *, copy=True, device=None: ops.cast(x, dtype),
    }
)
_LN2 = 0.6931471805599453


def _inexact(x: Any) -> Any:
    """A value as floating or complex: integers become float64."""
    x = x if hasattr(x, "dtype") else np.asarray(x)
    return ops.cast(x, np.float64) if x.dtype.kind in "biu" else x


def _double(x: Any) -> Any:
    """A value as float64 or complex128."""
    x = _inexact(x)
    return ops.cast(x, np.complex128 if x.dtype.kind == "c" else np.float64)


def _logaddexp2(x: Any, y: Any) -> Any:
    return ops.logaddexp(_LN2 * x, _LN2 * y) / _LN2


def _reciprocal(x: Any) -> Any:
    if x.dtype.kind not in "biu":
        return ops.reciprocal(x)
    x = x.astype(np.int8) if x.dtype == np.bool_ else x
    with np.errstate(all="ignore"):
        pole = np.reciprocal(np.zeros((), x.dtype))
    unit = ops.abs(x) == 1  # all that integer division leaves
    return ops.where(x == 0, pole, ops.where(unit, x, np.zeros((), x.dtype)))


def _heaviside(x: Any, h: Any) -> Any:
    return ops.where(x == 0, h, ops.step(x))


def _modf(x: Any) -> Any:
    whole = ops.trunc(x)
    return ops.where(ops.isinf(x), np.zeros((), x.dtype), x - whole), whole


def _frexp(x: Any) -> Any:
    """x = m 2^e with 1/2 <= |m| < 1; the exponent is held fixed, so the slope of m is 2^-e."""
    scale = ops.norm_scale(x, ())
    plain = (x != 0) & ops.isfinite(x)
    exponent = ops.round(ops.log2(scale)) + 1
    m = ops.where(plain, x / scale / 2, x)
    return m, ops.cast(ops.where(plain, exponent, np.zeros((), x.dtype)), np.int32)


def _shifted(x: Any, n: Any, function: Any) -> Any:
    """Times, or floor division by, 2^n; by the width of the type or more, what NumPy gives."""
    x, n = promote(x, n)
    if x.dtype.kind not in "biu":
        raise TracerError(
            f"a shift of {x.dtype.name} by {n.dtype.name}",
            quoted(user_line()),
            "shifts are of integers: use np.ldexp(x, n)",
        )
    x, n = (v.astype(np.int8) if v.dtype == np.bool_ else v for v in (x, n))
    bits = 8 * x.dtype.itemsize
    inside = (n >= 0) & (n < bits - (x.dtype.kind == "i"))
    zero = np.zeros((), x.dtype)
    far = (
        zero
        if function is ops.mul
        else ops.where(x < 0, zero - 1, zero)
        if x.dtype.kind == "i"
        else zero
    )
    power = ops.pow(np.asarray(2, x.dtype), ops.where(inside, n, zero))
    value = function(x, power)
    if function is ops.mul and x.dtype.kind == "i":  # the top bit alone is left of x
        top = ops.where((n == bits - 1) & (ops.mod(x, np.asarray(2, x.dtype)) == 1), 1, 0)
        far = top.astype(x.dtype) * np.asarray(np.iinfo(x.dtype).min, x.dtype)
    return ops.where(inside, value, far)


def _ldexp(x: Any, n: Any) -> Any:
    # by three factors: 2 ** n itself may overflow where the result does not
    info = ml_dtypes.finfo(x.dtype)  # type: ignore[no-untyped-call]
    limit = info.maxexp - info.minexp + info.nmant + 3
    n = ops.clip(n, -limit, limit)
    third = n // 3
    for part in (third, third, n - 2 * third):
        x = x * ops.exp2(ops.cast(part, x.dtype))
    return x


@implements(np.where)
def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return np.nonzero(condition)
    return ops.where(condition, x, y)


@implements(np.clip)
def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    return ops.clip(a, min if a_min is None else a_min, max if a_max is None else a_max)


@implements(np.round, np.around)
def _round(a: Any, decimals: int = 0) -> Any:
    if decimals == 0 or a.dtype.kind in "biu":
        return ops.round(a)
    if a.dtype.kind == "c":
        return ops.complex(_round(ops.real(a), decimals), _round(ops.imag(a), decimals))
    scale = 10.0 ** abs(decimals)
    return ops.round(a * scale) / scale if decimals > 0 else ops.round(a / scale) * scale


@implements(np.angle)
def _angle(z: Any, deg: bool = False) -> Any:
    return ops.angle(z) * (180 / np.pi) if deg else ops.angle(z)


@implements(np.nan_to_num)
def _nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    if x.dtype.kind in "biu":
        return x
    if x.dtype.kind == "c":
        parts = (_nan_to_num(p, copy, nan, posinf, neginf) for p in (ops.real(x), ops.imag(x)))
        return ops.complex(*parts)
    info = np.finfo(x.dtype)
    high = info.max if posinf is None else posinf
    low = info.min if neginf is None else neginf
    x = ops.where(x == np.inf, high, ops.where(x == -np.inf, low, x))
    return ops.where(x != x, nan, x)


@implements(np.isclose)
def _isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    a, b = _inexact(a), _inexact(b)
    near = (ops.abs(a - b) <= atol + rtol * ops.abs(b)) & ops.isfinite(b) | (a == b)
    return near | (ops.isnan(a) & ops.isnan(b)) if equal_nan else near


@implements(np.isposinf)
def _isposinf(x: Any) -> Any:
    return ops.equal(x, np.inf)


@implements(np.isneginf)
def _isneginf(x: Any) -> Any:
    return ops.equal(x, -np.inf)


@implements(np.real_if_close)
def _real_if_close(a: Any, tol: float = 100) -> Any:
    del tol
    if a.dtype.kind != "c":
        return a
    raise TracerError(
        "np.real_if_close of a traced complex value would choose a dtype by its values",
        quoted(user_line()),
        "use np.real, or return the complex value",
    )


# --- constants of a traced value's shape --------------------------------------------------------


def _constant(make: Any) -> Any:
    def like(
        a: Any,
        dtype: Any = None,
        order: str = "K",
        subok: bool = True,
        shape: Any = None,
        *,
        device: Any = None,
    ) -> Any:
        del order, subok, device
        return make(a.shape if shape is None else shape, a.dtype if dtype is None else dtype)

    return like


FUNCTIONS.update(
    {
        np.zeros_like: _constant(np.zeros),
        np.ones_like: _constant(np.ones),
        np.empty_like: _constant(np.zeros),
    }
)


@implements(np.full_like)
def _full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Any:
    del order, subok, device
    kind = a.dtype if dtype is None else np.dtype(dtype)
    value = ops.cast(fill_value if hasattr(fill_value, "dtype") else np.asarray(fill_value), kind)
    return np.broadcast_to(value, np.shape(a) if shape is None else shape)


# --- dtypes -------------------------------------------------------------------------------------


def _dtypes(function: Any) -> Any:
    """A NumPy function of dtypes, reading those of traced values."""

    @functools.wraps(function)
    def of_dtypes(*args: Any, **kwargs: Any) -> Any:
        return function(*(a.dtype if isinstance(a, Tracer) else a for a in args), **kwargs)

    return of_dtypes


FUNCTIONS.update({f: _dtypes(f) for f in (np.result_type, np.can_cast)})


@implements(np.common_type)
def _common_type(*arrays: Any) -> Any:
    return np.common_type(*(np.empty(0, a.dtype) for a in arrays))
