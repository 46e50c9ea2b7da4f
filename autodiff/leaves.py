"""What the arguments and results of a function are: traced values, arrays, or errors by name."""

from collections.abc import Callable
from typing import Any

import numpy as np

from autodiff.errors import TracerError
from autodiff.program import Literal, Spec, Var
from autodiff.source import quoted, user_line
from autodiff.tracer import Tracer


def as_value(leaf: Any, what: str) -> Any:
    """A leaf as a traced value or array; anything else is an error naming it."""
    if isinstance(leaf, Tracer):
        return leaf
    ok = isinstance(leaf, bool | int | float | complex | np.ndarray | np.generic)
    if ok or hasattr(leaf, "__array__"):
        array = plain_array(leaf, f"{what} leaf")
        # kind V holds ml_dtypes' floats, and records and raw bytes, which are no numbers
        if array.dtype.kind in "biufcV" and array.dtype.type is not np.void:
            _refuse_long(array.dtype, what)
            return array
    raise TracerError(
        f"{what} leaf {leaf!r} of type {type(leaf).__name__} is not an array"[:300],
        quoted(user_line()),
        "fix non-array arguments beforehand, e.g. functools.partial(f, option=...)",
    )


def _refuse_long(dtype: np.dtype[Any], what: str) -> None:
    """Raise for floats wider than float64: interpreters and devices have none."""
    if dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16):
        known = "float64" if dtype.kind == "f" else "complex128"
        raise TracerError(
            f"{what} leaf is {dtype.name}, wider than {known}",
            quoted(user_line()),
            f"convert it: x.astype(np.{known})",
        )


def plain_array(value: Any, what: str) -> np.ndarray[Any, Any]:
    """A value as an ndarray in the machine's byte order; `what` names it in the error.

    Masked arrays and matrices have rules of their own (masks, `*` as a product of matrices), which
    an ndarray of their values would not follow.
    """
    if type(value) is not np.ndarray:
        if isinstance(value, np.ma.MaskedArray | np.matrix):
            masked = isinstance(value, np.ma.MaskedArray)
            raise TracerError(
                f"{what} is a {type(value).__name__}, which follows other rules than arrays do",
                quoted(user_line()),
                "pass x.data and np.ma.getmaskarray(x), and use where="
                if masked
                else "pass np.asarray(x), and write @ for products of matrices",
            )
    array: np.ndarray[Any, Any] = np.asarray(value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def spec_of(value: Any) -> Spec:
    """Spec of a traced value, array or scalar."""
    kind = type(value)
    if kind is np.ndarray:
        return Spec(value.shape, value.dtype)
    if kind is Tracer:
        found: Spec = value.ref.spec
        return found
    if isinstance(value, Var | Literal):
        return value.spec
    array = np.asarray(value)
    return Spec(array.shape, array.dtype)


def concrete_of(value: Any) -> Callable[[], Any] | None:
    """A function giving the concrete value behind an argument, or None where there is none."""
    if not isinstance(value, Tracer):
        return lambda: value
    if value.owner.is_concrete(value.ref):
        return lambda: value.owner.evaluate(value.ref)
    return None
