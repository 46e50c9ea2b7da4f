"""Numbers of any precision as elements of NumPy object arrays.

NumPy applies a ufunc to an object array by calling an operator or a method of the ufunc's name on
each element, so that its structural functions, sums and products run on these numbers as they are.
A decision (comparison, floor, truth) that the balls leave open raises `Undecided`.
"""

import contextlib
import math
import operator
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from autodiff.errors import AutodiffError


class Undecided(AutodiffError, ArithmeticError):
    """A comparison or rounding that the current precision leaves open."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is not decided at this precision", "in exact evaluation", "raise the precision"
        )


class Number:
    """One real or complex number; `v` is the backend's own value. Subclasses are the backends."""

    __slots__ = ("v",)
    name: ClassVar[str]

    def __init__(self, v: Any) -> None:
        self.v = v

    # What a backend provides.

    @classmethod
    def real_of(cls, value: int | float) -> Any:
        """A backend value from a Python number, exactly."""
        raise NotImplementedError

    @classmethod
    def complex_of(cls, real: Any, imag: Any) -> Any:
        """A complex backend value from real ones."""
        raise NotImplementedError

    @classmethod
    @contextlib.contextmanager
    def precision(cls, bits: int) -> Iterator[None]:
        """Work at so many bits inside."""
        raise NotImplementedError
        yield

    @classmethod
    def pi(cls) -> Self:
        """The circle constant at the current precision."""
        raise NotImplementedError

    @property
    def is_complex(self) -> bool:
        """Whether the value is a complex one."""
        raise NotImplementedError

    def compare(self, other: Any) -> int:
        """-1, 0 or 1 for a real backend value smaller, equal or larger; Undecided where open."""
        raise NotImplementedError

    def call(self, function: str, *rest: Any) -> Self:
        """A function by its Arb name; further arguments are Numbers, integers or bools."""
        raise NotImplementedError

    def exact(self) -> Fraction | None:
        """The value as a fraction where it is real and known exactly."""
        raise NotImplementedError

    def midpoint(self) -> Fraction | None:
        """The best known value of a real number; None where it is not finite."""
        raise NotImplementedError

    @classmethod
    def eigenpairs(cls, matrix: Any) -> list[tuple[Self, list[Self]]]:
        """Eigenvalues of a real symmetric object matrix, ascending, each with an eigenvector.

        Raises Undecided where eigenvalues are not told apart.
        """
        raise NotImplementedError

    @classmethod
    def matrix_exponential(cls, matrix: Any) -> list[list[Self]]:
        """Rows of the exponential of a square object matrix."""
        raise NotImplementedError

    def widened(self, bound: Any) -> Self:
        """The number with so much more error; without effect where a backend keeps none."""
        del bound
        return self

    def magnitude(self) -> Any:
        """A comparable upper bound of the absolute value (of any exponent)."""
        raise NotImplementedError

    def zeta_derivative(self, q: Any, order: int) -> Self:
        """The derivative of given order, in s = self, of the Hurwitz zeta function."""
        raise NotImplementedError

    @classmethod
    def working_bits(cls) -> int:
        """The current precision."""
        raise NotImplementedError

    def approximate(self) -> float:
        """A float near a finite real number, to choose an algorithm by."""
        return float(self.midpoint() or 0)

    def ends(self) -> tuple[Fraction, ...]:
        """What bounds a finite real number: the ends of a ball, or the value itself."""
        value = self.midpoint()
        if value is None:
            raise Undecided("a value that is not finite")
        return (value,)

    def is_finite(self) -> bool:
        """Whether the value is finite, so that it equals itself."""
        return self.real.midpoint() is not None and self.imag.midpoint() is not None

    # Conversion.

    @classmethod
    def of(cls, value: Any) -> Self:
        """A Number from a Number or a Python or NumPy scalar, exactly."""
        if isinstance(value, cls):
            return value
        raw = cls._raw(value)
        if raw is None:
            raise TypeError(f"a number cannot be made from a {type(value).__name__}")
        return cls(raw)

    @classmethod
    def _raw(cls, value: Any) -> Any:
        if isinstance(value, Number):
            return value.v
        if type(value) is float or type(value) is int:
            return cls.real_of(value)
        if isinstance(value, bool | int | np.integer | np.bool_):
            return cls.real_of(int(value))
        if isinstance(value, complex | np.complexfloating):
            z = complex(value)
            return cls.complex_of(cls.real_of(z.real), cls.real_of(z.imag))
        if isinstance(value, float | np.floating):
            return cls.real_of(float(value))
        return None

    def _with(self, combine: Callable[[Any, Any], Any], other: Any, swap: bool = False) -> Any:
        raw = self._raw(other)
        if raw is None:
            return NotImplemented
        return type(self)(combine(raw, self.v) if swap else combine(self.v, raw))

    # Arithmetic.

    def __add__(self, other: Any) -> Any:
        if type(other) is type(self):  # most operands are: no conversion
            return type(self)(self.v + other.v)
        return self._with(operator.add, other)

    def __sub__(self, other: Any) -> Any:
        if other is self and self.is_finite():
            return self.of(0)  # where subtracting the ball from itself would leave twice its error
        if type(other) is type(self):
            return type(self)(self.v - other.v)
        return self._with(operator.sub, other)

    def __mul__(self, other: Any) -> Any:
        if type(other) is type(self):
            return type(self)(self.v * other.v)
        return self._with(operator.mul, other)

    def __truediv__(self, other: Any) -> Any:
        if type(other) is type(self):
            return type(self)(self.divide(self.v, other.v))
        return self._with(self.divide, other)

    def __pow__(self, other: Any) -> Any:
        return self._with(self.power, other)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> Any:
        return self._with(operator.sub, other, swap=True)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with(self.divide, other, swap=True)

    def __rpow__(self, other: Any) -> Any:
        return self._with(self.power, other, swap=True)

    @staticmethod
    def divide(a: Any, b: Any) -> Any:
        """Quotient of backend values; a backend replaces it where 0 divides with an error."""
        return a / b

    @staticmethod
    def power(a: Any, b: Any) -> Any:
        """Power of backend values."""
        return a**b

    def __neg__(self) -> Self:
        return type(self)(-self.v)

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return type(self)(abs(self.v))

    def __floordiv__(self, other: Any) -> Any:
        divisor = self.of(other)
        a, b = self.exact(), divisor.exact()
        if a is not None and b:
            return self.of(math.floor(a / b))
        return (self / divisor).__floor__()

    def __mod__(self, other: Any) -> Any:
        return self - self.of(other) * (self // other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self.of(other) // self

    def __rmod__(self, other: Any) -> Any:
        return self.of(other) % self

    # Decisions.

    def _order(self, other: Any) -> int:
        raw = self._raw(other)
        if other is self and self.is_finite():
            return 0
        if raw is None:
            raise TypeError(f"a number cannot be compared with {type(other).__name__}")
        return self.compare(raw)

    def __lt__(self, other: Any) -> bool:
        return self._order(other) < 0

    def __le__(self, other: Any) -> bool:
        return self._order(other) <= 0

    def __gt__(self, other: Any) -> bool:
        return self._order(other) > 0

    def __ge__(self, other: Any) -> bool:
        return self._order(other) >= 0

    def __eq__(self, other: object) -> bool:
        z = self.of(other)
        if self.is_complex or z.is_complex:
            return self.real == z.real and self.imag == z.imag
        return self._order(z) == 0

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return not self == 0

    def __floor__(self) -> Self:
        low = self.call("floor")
        if low.exact() is None:
            raise Undecided("floor")
        return low

    def __ceil__(self) -> Self:
        return -((-self).__floor__())

    def __trunc__(self) -> Self:
        return self.__ceil__() if self < 0 else self.__floor__()

    def rint(self) -> Self:
        """Nearest integer, ties to even."""
        value = self.exact()
        if value is not None:
            return self.of(round(value))
        return type(self)(self.v + self.real_of(0.5)).__floor__()

    # Parts, and methods NumPy's ufuncs call.

    @property
    def real(self) -> Self:
        """Real part."""
        return type(self)(self.v.real) if self.is_complex else self

    @property
    def imag(self) -> Self:
        """Imaginary part."""
        return type(self)(self.v.imag) if self.is_complex else self.of(0)

    def conjugate(self) -> Self:
        """Complex conjugate."""
        return type(self)(self.v.conjugate()) if self.is_complex else self

    def hypot(self, other: Any) -> Self:
        """sqrt(x^2 + y^2)."""
        y = self.of(other)
        return type(self)(self.v * self.v + y.v * y.v).call("sqrt")

    def arctan2(self, other: Any) -> Self:
        """Angle of (x, y) for y = self; pi on the negative real axis."""
        return self.call("atan2", self.of(other))

    def exp2(self) -> Self:
        """2^x."""
        return type(self)(self.power(self.real_of(2), self.v))

    def cbrt(self) -> Self:
        """Real cube root."""
        order = self.compare(self.real_of(0))
        if order == 0:
            return self
        root = type(self)(abs(self.v)).call("root", 3)
        return type(self)(-root.v) if order < 0 else root

    @classmethod
    def _quotient(cls, a: Self, b: Self) -> Self:
        return cls(cls.divide(a.v, b.v))

    def log2(self) -> Self:
        """Binary logarithm."""
        return self._quotient(self.call("log"), self.of(2).call("log"))

    def log10(self) -> Self:
        """Decimal logarithm."""
        return self._quotient(self.call("log"), self.of(10).call("log"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.v})"


_UFUNCS = {
    **{n: n for n in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan")},
    **{n: n for n in ("sinh", "cosh", "tanh")},
    **{f"arc{n}": f"a{n}" for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
}


def _method(function: str) -> Callable[[Number], Number]:
    def method(self: Number) -> Number:
        if function == "log" and not self.is_complex and self.exact() == 0:
            return self.of(-math.inf)
        return self.call(function)

    method.__name__, method.__doc__ = function, f"Arb's `{function}`."
    return method


for _ufunc, _function in _UFUNCS.items():
    setattr(Number, _ufunc, _method(_function))
