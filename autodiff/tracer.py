"""The Tracer: an array without a value yet, answering NumPy's protocols."""

import operator
import os
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from autodiff.errors import TracerError
from autodiff.program import Spec, Var

if TYPE_CHECKING:
    from autodiff.trace import Trace


class Tracer(np.lib.mixins.NDArrayOperatorsMixin):
    """A traced value. Not an ndarray subclass: `np.asarray` must fail, not drop the trace."""

    __slots__ = ("owner", "ref")
    __array_priority__ = 1000

    def __init__(self, trace: "Trace", var: Var) -> None:
        self.owner = trace
        self.ref = var

    @property
    def spec(self) -> Spec:
        """Shape and dtype."""
        return self.ref.spec

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, a tuple of plain ints."""
        return self.ref.spec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype."""
        return self.ref.spec.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.ref.spec.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.ref.spec.size

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return self.size * self.itemsize

    @property
    def device(self) -> str:
        """Where the value lives (array API)."""
        return "cpu"

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from autodiff.numpy_api import apply_ufunc

        return self._apart(apply_ufunc(ufunc, method, inputs, kwargs))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.shape and args and type(args[0]) is Tracer:  # rules ask for it all the time
            return args[0].ref.spec.shape
        from autodiff.numpy_api import apply_function

        return self._apart(apply_function(func, args, kwargs))

    def _apart(self, result: Any) -> Any:
        """A result that is this very handle gets one of its own, as a new array would be."""
        return Tracer(self.owner, self.ref) if result is self else result

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        from autodiff import namespace

        del api_version
        return namespace

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        del dtype, copy
        self._refuse(
            "np.asarray (or a function that calls it) was applied to a traced value",
            _asarray_fix(sys._getframe(1)),
        )

    def __float__(self) -> NoReturn:
        self._refuse(
            "float() of a traced value would drop its derivative",
            "keep it an array: use x.reshape(()) or x[()], and return arrays",
        )

    def __complex__(self) -> NoReturn:
        self._refuse(
            "complex() of a traced value would drop its derivative",
            "keep it an array: use x.reshape(()), x + 0j",
        )

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"the truth value of an array with shape {self.shape} is ambiguous: use "
                "np.any or np.all"
            )
        return bool(self.decide("a Python branch depends on a traced value", BRANCH_FIX))

    def __int__(self) -> int:
        if self.dtype.kind not in "biu":
            self._refuse(
                "int() of a traced floating-point value would drop its derivative",
                "round with np.floor / np.trunc and keep the array, or pass the int as a constant",
            )
        return int(self.decide("int() of a traced value", BRANCH_FIX))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.ndim:
            self._refuse(
                "a traced value is used as a Python index or count",
                "use an integer scalar, or pass the number as an untraced argument",
            )
        return int(self.decide("a traced value is used as a Python index", BRANCH_FIX))

    def decide(self, what: str, fix: str) -> np.ndarray[Any, Any]:
        """The concrete value, recorded as a GUARD so that a later run that differs raises."""
        from autodiff.trace import bind, user_line

        if not self.owner.is_concrete(self.ref):
            self._refuse(f"{what}, which has no concrete value here", fix)
        value = self.owner.evaluate(self.ref)
        bind("GUARD", self, value, line=user_line() or "an unknown line")
        return value

    def _refuse(self, what: str, fix: str) -> NoReturn:
        from autodiff.trace import quoted, user_line

        what = f"{what} (shape {self.shape}, {self.dtype.name})"
        raise TracerError(what, quoted(user_line()), fix)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of a 0-d traced value")
        return self.shape[0]

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        from autodiff.ops.indexing import index as take

        return take(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Refused, but for `array_api_extra.at(x, index).set(value)`, which SciPy uses.

        By its contract the old value is not read again, so the handle may take the new one.
        """
        caller = str(sys._getframe(1).f_globals.get("__name__", ""))
        if caller.endswith("array_api_extra._lib._at"):
            from autodiff.ops.indexing import index_update

            updated = index_update(self, index, value)
            self.owner, self.ref = updated.owner, updated.ref
            return
        self._refuse(
            "a traced value was written in place",
            "x = autodiff.ops.index_update(x, index, value), or np.where",
        )

    def __contains__(self, value: Any) -> Any:
        return (self == value).any()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Tracer({self.spec})"

    def __format__(self, spec: str) -> str:
        if spec:
            self._refuse(
                f"a traced value has no digits to write with the format {spec!r}",
                "look at values with autodiff.tap(name, x), or write {x} for the spec",
            )
        return repr(self)

    @property
    def T(self) -> Any:
        """All axes reversed."""
        return np.transpose(self)

    @property
    def mT(self) -> Any:
        """The last two axes exchanged."""
        return np.swapaxes(self, -1, -2)

    @property
    def real(self) -> Any:
        """Real part."""
        return np.real(self)

    @property
    def imag(self) -> Any:
        """Imaginary part."""
        return np.imag(self)

    @property
    def flat(self) -> Any:
        """Elements in C order, as a 1-d traced array."""
        return np.ravel(self)

    def astype(self, dtype: Any, **kwargs: Any) -> Any:
        """Convert to a dtype."""
        from autodiff.ops.elementwise import cast

        del kwargs
        return cast(self, dtype)

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        """`np.reshape`, taking the shape as a tuple or as arguments."""
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, **kwargs)

    def transpose(self, *axes: Any) -> Any:
        """`np.transpose`, taking axes as a tuple or as arguments."""
        return np.transpose(self, (axes[0] if len(axes) == 1 else axes) or None)

    def flatten(self, order: Any = "C") -> Any:
        """A 1-d copy."""
        return np.ravel(self, order=order)

    def compress(self, condition: Any, axis: int | None = None) -> Any:
        """`np.compress` of this value."""
        return np.compress(condition, self, axis)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        """Itself: there is one device (array API)."""
        del device, stream
        return self

    def copy(self, order: str = "C") -> Any:
        """The same value under a handle of its own."""
        del order
        return Tracer(self.owner, self.ref)

    def item(self) -> NoReturn:
        """Always refused, like `float()`."""
        self.__float__()

    def tolist(self) -> NoReturn:
        """Always refused, like `float()`."""
        self.__float__()

    def view(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always refused: traced values have no memory."""
        del args, kwargs
        self._refuse("view() of a traced value", "use astype to convert values")


def _asarray_fix(frame: FrameType | None) -> str:
    """The way out where np.asarray was applied: for SciPy's functions, its array-API switch."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith("scipy."):
            if os.environ.get("SCIPY_ARRAY_API"):
                return "this SciPy function takes NumPy arrays only: write it with NumPy functions"
            return (
                "set SCIPY_ARRAY_API=1 before SciPy is imported, and SciPy functions that speak "
                "the array API trace (others: write them with NumPy functions)"
            )
        if not name.startswith("numpy"):
            break
        frame = frame.f_back
    return (
        "use np.stack / np.concatenate to build arrays, `like=` for constants, "
        "autodiff.ops.index_update for writes"
    )


BRANCH_FIX = "use np.where, autodiff.cond or autodiff.while_loop, which trace both branches"

_METHODS = (
    "sum prod mean std var max min argmax argmin all any cumsum cumprod clip round dot ravel "
    "squeeze swapaxes repeat take trace diagonal argsort argpartition nonzero conj conjugate ptp "
    "searchsorted choose"
).split()
# methods by which an array changes itself, and what to write instead
_IN_PLACE = {
    "sort": "x = np.sort(x)",
    "partition": "x = np.partition(x, kth)",
    "put": "x = autodiff.ops.index_update(x, index, value)",
    "resize": "x = np.resize(x, shape)",
    "fill": "x = np.full_like(x, value)",
}


def _method(name: str) -> Any:
    function = getattr(np, {"round": "round", "conjugate": "conj"}.get(name, name), None)

    def method(self: Tracer, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)  # type: ignore[misc]

    method.__name__ = name
    method.__doc__ = f"`np.{name}` of this value."
    return method


def _refusal(name: str, instead: str) -> Any:
    def method(self: Tracer, *args: Any, **kwargs: Any) -> NoReturn:
        del args, kwargs
        self._refuse(f"the method {name}() would change a traced value in place", instead)

    method.__name__ = name
    method.__doc__ = f"Always refused, like an assignment: `{instead}`."
    return method


# `x += y` rebinds the name, nothing is written; as in NumPy, an array keeps its shape and dtype
_AUGMENTED = "add sub mul truediv floordiv mod pow matmul and or xor".split()


def _augmented(name: str) -> Any:
    plain = getattr(Tracer, f"__{name}__")

    def method(self: Tracer, other: Any) -> Any:
        result = plain(self, other)
        if result is NotImplemented or not self.ndim:  # a NumPy scalar is replaced
            return result
        if result.dtype == self.dtype and result.shape == self.shape:
            return result
        if result.shape == self.shape and np.can_cast(result.dtype, self.dtype, "same_kind"):
            return result.astype(self.dtype)
        self._refuse(
            f"an augmented assignment ({name}) would make {result.dtype}{list(result.shape)} of it",
            "write x = x + y, which may change shape and dtype",
        )

    method.__name__ = method.__qualname__ = f"__i{name}__"
    return method


for _name in _AUGMENTED:
    setattr(Tracer, f"__i{_name}__", _augmented(_name))
for _name in _METHODS:
    if hasattr(np, _name):
        setattr(Tracer, _name, _method(_name))
for _name, _instead in _IN_PLACE.items():
    setattr(Tracer, _name, _refusal(_name, _instead))
del _name, _instead, operator
