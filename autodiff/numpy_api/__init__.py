"""What NumPy's ufuncs and functions mean on traced values.

Each topic module fills the tables: `UFUNCS` (calls), `REDUCES`, `ACCUMULATES` (ufunc methods) and
`FUNCTIONS` (everything with `__array_function__`). A function absent from the tables is an error
that names it; nothing falls back to concrete values.
"""

import importlib
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from autodiff.errors import TracerError

Function = Callable[..., Any]
UFUNCS: dict[Any, Function] = {}
REDUCES: dict[Any, Function] = {}
ACCUMULATES: dict[Any, Function] = {}
FUNCTIONS: dict[Any, Function] = {}


def implements(*functions: Any) -> Callable[[Function], Function]:
    """Decorator: this function is what the given NumPy functions do on traced values."""

    def register(function: Function) -> Function:
        for f in functions:
            FUNCTIONS[f] = function
        return function

    return register


_filled = False


def _fill_tables() -> None:
    global _filled
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    # with SCIPY_ARRAY_API=1 SciPy's names are wrappers around the ufuncs that arrive here
    for wrapper in list(UFUNCS):
        UFUNCS.setdefault(getattr(wrapper, "__wrapped__", wrapper), UFUNCS[wrapper])
    _filled = True


def apply_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`Tracer.__array_ufunc__`: a ufunc call, reduce, accumulate or outer."""
    if not _filled:
        _fill_tables()
    if method == "__call__" and not kwargs and ufunc in UFUNCS:
        return UFUNCS[ufunc](*inputs)
    from autodiff.numpy_api import ufunc_methods

    # axis=None means all axes, unlike an axis left out
    kwargs = {k: v for k, v in kwargs.items() if v is not None or k == "axis"}
    out = kwargs.pop("out", None)
    if out is not None:
        _refuse_out(ufunc.__name__)
    where = kwargs.pop("where", True)
    if method == "__call__" and ufunc in UFUNCS:
        if where is not True:
            _unsupported(ufunc.__name__, "`where=` leaves elements undefined: use np.where")
        return _call(ufunc, inputs, kwargs)
    folds = ufunc in UFUNCS and ufunc.nin == 2 and ufunc.nout == 1 and ufunc.signature is None
    if method == "reduce" and (folds or ufunc in REDUCES):
        if where is not True:
            kwargs["where"] = where
        kwargs.setdefault("axis", 0)
        return (REDUCES.get(ufunc) or partial(ufunc_methods.fold, ufunc))(*inputs, **kwargs)
    if method == "accumulate" and (folds or ufunc in ACCUMULATES):
        kwargs.setdefault("axis", 0)
        return (ACCUMULATES.get(ufunc) or partial(ufunc_methods.running, ufunc))(*inputs, **kwargs)
    if method == "outer" and ufunc in UFUNCS:
        x, y = inputs
        return _call(ufunc, (np.reshape(x, (*np.shape(x), *(1,) * np.ndim(y))), y), kwargs)
    if method == "reduceat" and (folds or ufunc in REDUCES):
        kwargs.pop("dtype", None)
        return ufunc_methods.parts(ufunc, *inputs, **kwargs)
    label = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    fix = "write it with supported functions, or with autodiff.custom_jvp"
    if method == "at":
        fix = (
            "x = autodiff.ops.scatter_add(x, index, values)"
            if ufunc is np.add
            else "nothing is written in place: x = autodiff.ops.index_update(x, index, value)"
        )
    return _unsupported(label, fix)


def _call(ufunc: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A ufunc's call with arguments of its own."""
    from autodiff.numpy_api import ufunc_methods

    dtype = kwargs.pop("dtype", None)
    for name in ("casting", "order", "subok"):
        kwargs.pop(name, None)
    axes = kwargs.pop("axes", None)
    if "axis" in kwargs and ufunc is getattr(np, "vecdot", None):
        axis = kwargs.pop("axis")
        axes = [axis, axis]
    if kwargs:
        _unsupported(ufunc.__name__, f"drop the arguments {', '.join(kwargs)}")
    if dtype is not None:
        # evaluated in that dtype, not converted to it afterwards: int8 products may overflow
        inputs = ufunc_methods.converted(ufunc, inputs, dtype)
    if axes is not None:
        return ufunc_methods.with_axes(ufunc, inputs, axes)
    result = UFUNCS[ufunc](*inputs)
    return result if dtype is None else result.astype(dtype)


def apply_function(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`Tracer.__array_function__`: any other NumPy function."""
    if not _filled:
        _fill_tables()
    if kwargs.get("out") is not None:
        _refuse_out(func.__name__)
    kwargs = {k: v for k, v in kwargs.items() if not (k == "out" and v is None)}
    if func in FUNCTIONS:
        return FUNCTIONS[func](*args, **kwargs)
    module = getattr(func, "__module__", "numpy")
    return _unsupported(
        f"{module}.{func.__name__}",
        "write it with supported functions, or with autodiff.custom_jvp",
    )


def _refuse_out(name: str) -> None:
    from autodiff.trace import quoted, user_line

    raise TracerError(
        f"{name} of a traced value was asked to write into an array (out= or in place)",
        quoted(user_line()),
        "assign the result to a name: y = np.add(x, 1); for an array a, use a = a + x",
    )


def _unsupported(name: str, fix: str) -> Any:
    from autodiff.trace import quoted, user_line

    raise TracerError(f"{name} is not supported on traced values", quoted(user_line()), fix)
