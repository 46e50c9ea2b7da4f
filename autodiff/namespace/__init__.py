"""The array-API namespace of traced values (2024.12), returned by `x.__array_namespace__()`.

Libraries that write `xp = x.__array_namespace__(); xp.exp(x)` trace without knowing of this
package. The functions are NumPy's own, which dispatch on traced values; those that NumPy spells or
restricts differently are written here. The extensions `linalg` and `fft` are sub-modules, and so
is `special`, where SciPy looks for its special functions.
"""

from typing import Any

import numpy as np

from autodiff import ops
from autodiff.namespace import fft as fft
from autodiff.namespace import linalg as linalg
from autodiff.namespace import special as special
from autodiff.namespace.info import __array_namespace_info__ as __array_namespace_info__
from autodiff.tracer import Tracer

__array_api_version__ = "2024.12"

# --- constants and dtypes ------------------------------------------------------------------

e, pi, inf, nan, newaxis = np.e, np.pi, np.inf, np.nan, None
bool = np.dtype(np.bool_)
int8, int16, int32, int64 = (np.dtype(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
float32, float64 = np.dtype(np.float32), np.dtype(np.float64)
complex64, complex128 = np.dtype(np.complex64), np.dtype(np.complex128)

finfo, iinfo = np.finfo, np.iinfo

# --- functions that are NumPy's ------------------------------------------------------------

_ELEMENTWISE = (
    "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift "
    "bitwise_or bitwise_right_shift bitwise_xor ceil conj copysign cos cosh divide equal exp expm1 "
    "floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less less_equal log "
    "log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor maximum minimum "
    "multiply negative nextafter not_equal positive pow real reciprocal remainder round sign "
    "signbit sin sinh sqrt square subtract tan tanh trunc"
).split()
_OTHERS = (
    "all any argmax argmin argsort broadcast_arrays broadcast_to can_cast concat count_nonzero "
    "cumulative_prod cumulative_sum diff expand_dims flip isdtype linspace matmul "
    "matrix_transpose max mean meshgrid min moveaxis nonzero ones_like permute_dims prod "
    "repeat reshape result_type roll searchsorted sort squeeze stack std sum swapaxes take "
    "take_along_axis tensordot tile trapezoid tril triu unique_all unique_counts unique_inverse "
    "unique_values unstack var vecdot where zeros_like full_like empty_like"
).split()


def __getattr__(name: str) -> Any:
    if name in _ELEMENTWISE or name in _OTHERS:
        return getattr(np, name)
    raise AttributeError(f"module 'autodiff.namespace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ELEMENTWISE, *_OTHERS})


# --- creation ------------------------------------------------------------------------------


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Any:
    """A traced value itself (converted), or an array of numbers; nested lists may hold both."""
    del device
    if isinstance(obj, Tracer):
        value = obj if dtype is None else ops.cast(obj, dtype)
        return value.copy() if copy else value
    if isinstance(obj, list | tuple) and any(_holds_traced(v) for v in obj):
        stacked = ops.stack([asarray(v) for v in obj])
        return stacked if dtype is None else ops.cast(stacked, dtype)
    return np.array(obj, dtype=dtype) if copy else np.asarray(obj, dtype=dtype)


def _holds_traced(obj: Any) -> Any:
    if isinstance(obj, list | tuple):
        return any(_holds_traced(v) for v in obj)
    return isinstance(obj, Tracer)


def _created(name: str) -> Any:
    function = getattr(np, name)

    def create(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        del device
        return function(*args, **kwargs)

    create.__name__ = create.__qualname__ = name
    create.__doc__ = f"`numpy.{name}`, a constant array."
    return create


arange, empty, eye, ones, zeros = map(_created, ("arange", "empty", "eye", "ones", "zeros"))


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array filled with a value, which may be traced."""
    del device
    value = asarray(fill_value, dtype=dtype)
    return np.broadcast_to(value, shape) if isinstance(value, Tracer) else np.full(shape, value)


def from_dlpack(x: Any, /, *, device: Any = None, copy: Any = None) -> Any:
    """An array of another library as a constant."""
    return np.from_dlpack(x, device=device, copy=copy)


# --- functions NumPy spells differently ------------------------------------------------------


def astype(x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Any:
    """Convert to a dtype."""
    del device
    if isinstance(x, Tracer):
        return ops.cast(x, dtype).copy() if copy else ops.cast(x, dtype)
    return np.asarray(x).astype(dtype, copy=copy)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Values moved between two bounds, either of which may be None."""
    return np.clip(x, min, max)
