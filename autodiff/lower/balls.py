"""The numbers of exact evaluation: Arb balls (python-flint), or mpmath where Arb is absent."""

import contextlib
import functools
import importlib
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from autodiff.lower.number import Number, Undecided
from autodiff.optional import available, require


@functools.cache
def _flint() -> Any:
    return importlib.import_module("flint")


class Ball(Number):
    """An Arb ball: a midpoint and a proven bound of its error (python-flint)."""

    __slots__ = ()
    name = "flint"

    @classmethod
    def real_of(cls, value: int | float) -> Any:
        """An exact `flint.arb`."""
        return _flint().arb(value)

    @classmethod
    def complex_of(cls, real: Any, imag: Any) -> Any:
        """A `flint.acb`."""
        return _flint().acb(real, imag)

    @classmethod
    @contextlib.contextmanager
    def precision(cls, bits: int) -> Iterator[None]:
        """Work at so many bits inside."""
        with _flint().ctx.workprec(bits):
            yield

    @property
    def is_complex(self) -> bool:
        """Whether the value is a complex ball."""
        return hasattr(self.v, "csgn")

    def compare(self, other: Any) -> int:
        """The order of two balls, decided where they do not overlap or are exactly equal."""
        if self.v < other:
            return -1
        if self.v > other:
            return 1
        if self.v == other:
            return 0
        raise Undecided("a comparison of overlapping balls")

    def call(self, function: str, *rest: Any) -> "Ball":
        """A method of `flint.arb` or `flint.acb`."""
        given = [x.v if isinstance(x, Number) else x for x in rest]
        if function == "atan2":  # a static method there
            given = [self.v, *given]
        if function == "polygamma" and not self.is_complex:  # complex alone there
            return Ball(self.complex_of(self.v, 0).polygamma(*given).real)
        return Ball(getattr(self.v, function)(*given))

    @classmethod
    def pi(cls) -> "Ball":
        """The circle constant at the current precision."""
        return cls(_flint().arb.pi())

    @classmethod
    def eigenpairs(cls, matrix: Any) -> list[tuple["Ball", list["Ball"]]]:
        """Proven eigenvalues, which Arb isolates, and real multiples of its eigenvectors."""
        entries = [[cls.complex_of(cls.of(x).v, 0) for x in row] for row in matrix]
        try:
            values, vectors = _flint().acb_mat(entries).eig(right=True)
        except ValueError:
            raise Undecided("whether eigenvalues are equal") from None
        pairs = []
        for j, value in enumerate(values):
            column = [vectors[i, j] for i in range(len(entries))]
            # an eigenvector may come times any complex number
            top = max(column, key=lambda z: float(abs(z).mid()))
            pairs.append((cls(value.real), [cls((z / top).real) for z in column]))
        return sorted(pairs, key=lambda p: float(p[0].v.mid()))

    @classmethod
    def matrix_exponential(cls, matrix: Any) -> list[list["Ball"]]:
        """`flint.arb_mat.exp`, or that of complex matrices."""
        rows = [[cls.of(x) for x in row] for row in matrix]
        kind = _flint().acb_mat if any(x.is_complex for r in rows for x in r) else _flint().arb_mat
        result = kind([[x.v for x in r] for r in rows]).exp()
        return [[cls(result[i, j]) for j in range(len(rows))] for i in range(len(rows))]

    def exact(self) -> Fraction | None:
        """The midpoint where the radius is 0."""
        return self.midpoint() if not self.is_complex and self.v.is_exact() else None

    def midpoint(self) -> Fraction | None:
        """The midpoint of a real ball; None where it is not finite."""
        return _dyadic(*self.v.mid().man_exp()) if self.v.is_finite() else None

    def is_finite(self) -> bool:
        """As Arb says."""
        return bool(self.v.is_finite())

    def widened(self, bound: Any) -> "Ball":
        """The ball with a larger radius; a complex one in both directions."""
        error = _flint().arb(0, bound)
        return Ball(self.v + (self.complex_of(error, error) if self.is_complex else error))

    def magnitude(self) -> Any:
        """Arb's upper bound."""
        return self.v.abs_upper()

    def zeta_derivative(self, q: Any, order: int) -> "Ball":
        """From the power series that Arb computes."""
        series = _flint().arb_series([self.v, 1], order + 1).zeta(self.of(q).v)
        return Ball(series[order] * math.factorial(order))

    @classmethod
    def working_bits(cls) -> int:
        """The current precision."""
        return int(_flint().ctx.prec)

    def ends(self) -> tuple[Fraction, ...]:
        """Lower and upper end."""
        middle, error = self.midpoint(), self.radius()
        if middle is None:
            raise Undecided("a value that is not finite")
        return middle - error, middle + error

    def radius(self) -> Fraction:
        """How far the value may be from the midpoint."""
        error = Ball(self.v.rad()).midpoint()
        if error is None:
            raise Undecided("a value that is not finite")
        return error

    def accuracy(self) -> int:
        """Bits of relative accuracy; 0 or less where the ball holds 0 and is not exact."""
        return int(self.v.rel_accuracy_bits())


class Digits(Number):
    """An mpmath number: no error bound of its own; accuracy is found by doubling the precision."""

    __slots__ = ()
    name = "mpmath"

    @classmethod
    def real_of(cls, value: int | float) -> Any:
        """An exact mpf."""
        return _mp().mpf(value)

    @classmethod
    def complex_of(cls, real: Any, imag: Any) -> Any:
        """An mpc."""
        return _mp().mpc(real, imag)

    @classmethod
    @contextlib.contextmanager
    def precision(cls, bits: int) -> Iterator[None]:
        """Work at so many bits inside."""
        with _mp().workprec(bits):
            yield

    @staticmethod
    def divide(a: Any, b: Any) -> Any:
        """Quotient; NaN where the divisor is 0."""
        return a / b if b != 0 else _mp().nan

    @staticmethod
    def power(a: Any, b: Any) -> Any:
        """Power; NaN where it is not real."""
        if a == 0:
            return _mp().mpf(b == 0) if b >= 0 else _mp().nan
        result = a**b
        real = isinstance(a, _mp().mpf) and isinstance(b, _mp().mpf)
        return _mp().nan if real and isinstance(result, _mp().mpc) else result

    @property
    def is_complex(self) -> bool:
        """Whether the value is an mpc."""
        return isinstance(self.v, _mp().mpc)

    def compare(self, other: Any) -> int:
        """The order; open where the values differ in the last quarter of their digits alone."""
        mp = _mp()
        if mp.isnan(self.v) or mp.isnan(other):
            raise Undecided("a comparison with NaN")
        if self.v == other:
            return 0
        size = max(abs(self.v), abs(other))
        if mp.isfinite(size) and abs(self.v - other) < mp.ldexp(size, -3 * mp.prec // 4):
            raise Undecided("a comparison of nearly equal values")
        return -1 if self.v < other else 1

    def call(self, function: str, *rest: Any) -> "Digits":
        """The mpmath function that an Arb method corresponds to."""
        given = [x.v if isinstance(x, Number) else x for x in rest]
        result = _mp_function(function)(self.v, *given)
        if isinstance(result, _mp().mpc) and not any(
            isinstance(x, _mp().mpc) for x in (self.v, *given)
        ):
            result = result.real if result.imag == 0 else _mp().nan
        return Digits(_mp().convert(result))

    @classmethod
    def pi(cls) -> "Digits":
        """The circle constant at the current precision."""
        return cls(+_mp().pi)

    def magnitude(self) -> Any:
        """The absolute value."""
        return abs(self.v)

    def zeta_derivative(self, q: Any, order: int) -> "Digits":
        """mpmath's own."""
        return Digits(_mp().zeta(self.v, self.of(q).v, order))

    @classmethod
    def working_bits(cls) -> int:
        """The current precision."""
        return int(_mp().prec)

    @classmethod
    def eigenpairs(cls, matrix: Any) -> list[tuple["Digits", list["Digits"]]]:
        """mpmath's QR iteration at the current precision."""
        mp = _mp()
        values, vectors = mp.eigsy(mp.matrix([[cls.of(x).v for x in row] for row in matrix]))
        n = len(values)
        gaps = [abs(values[j + 1] - values[j]) for j in range(n - 1)]
        if any(gap < mp.ldexp(1 + abs(values[n - 1]), -mp.prec // 2) for gap in gaps):
            raise Undecided("whether eigenvalues are equal")
        return [(cls(values[j]), [cls(vectors[i, j]) for i in range(n)]) for j in range(n)]

    @classmethod
    def matrix_exponential(cls, matrix: Any) -> list[list["Digits"]]:
        """mpmath's Taylor series with scaling at the current precision."""
        mp = _mp()
        result = mp.expm(mp.matrix([[cls.of(x).v for x in row] for row in matrix]))
        return [[cls(result[i, j]) for j in range(len(matrix))] for i in range(len(matrix))]

    def exact(self) -> Fraction | None:
        """The value as a fraction, as every mpf is one; None where it is not finite."""
        return None if self.is_complex else self.midpoint()

    def midpoint(self) -> Fraction | None:
        """The value as a fraction; None where it is not finite."""
        if not _mp().isfinite(self.v):
            return None
        sign, man, exp, _ = self.v._mpf_
        return _dyadic(-man if sign else man, exp)


@functools.cache
def _mp() -> Any:
    import mpmath

    return mpmath.MPContext()


def _mp_function(name: str) -> Callable[..., Any]:
    """mpmath's function for an Arb method (the argument Arb calls self comes first)."""
    mp = _mp()
    table: dict[str, Callable[..., Any]] = {
        "lgamma": mp.loggamma,
        "rgamma": mp.rgamma,
        "polygamma": lambda z, n: mp.psi(n, z),
        "bessel_j": lambda z, n: mp.besselj(n, z),
        "bessel_i": lambda z, n: mp.besseli(n, z),
        "bessel_k": lambda z, n: mp.besselk(n, z),
        "bessel_y": lambda z, n: mp.bessely(n, z),
        "gamma_lower": lambda z, s, regularized: mp.gammainc(
            s, 0, z, regularized=bool(regularized)
        ),
        "gamma_upper": lambda z, s, regularized: mp.gammainc(s, z, regularized=bool(regularized)),
        "beta_lower": lambda z, a, b, regularized: mp.betainc(
            a, b, 0, z, regularized=bool(regularized)
        ),
        "expint": lambda z, s: mp.expint(s, z),
        "polylog": lambda z, s: mp.polylog(s, z),
        "atan2": mp.atan2,
        "root": mp.root,
        "sin_pi": mp.sinpi,
        "cos_pi": mp.cospi,
    }
    found: Callable[..., Any] = table.get(name) or getattr(mp, name)
    return found


HUGE = 20000  # exponents beyond are far outside every format, and would fill the memory


def _dyadic(mantissa: Any, exponent: Any) -> Fraction | None:
    """mantissa * 2^exponent; None for what overflows every format, nearly 0 for what underflows."""
    m, e = int(mantissa), int(exponent)
    if e + m.bit_length() > HUGE:
        return None
    if e + m.bit_length() < -HUGE:
        return Fraction((m > 0) - (m < 0), 1 << HUGE)
    return Fraction(m << e) if e >= 0 else Fraction(m, 1 << -e)


def backend(name: str | None = None) -> type[Number]:
    """The class of numbers: "flint" (Arb), "mpmath", or the better one installed.

    Raises:
        MissingPackageError: python-flint was asked for and is not installed.
    """
    if name == "mpmath" or (name is None and not available("flint")):
        return Digits
    require("flint", "exact", "exact evaluation with Arb")
    return Ball
