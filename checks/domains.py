"""Domains: values of an argument by description, `normal(3, 4)` in place of an array.

A domain is drawn from the name of the test it stands in, so that every run sees the same numbers;
`domain.strategy()` is a Hypothesis strategy of the same values.
"""

import dataclasses
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from autodiff.errors import AutodiffError
from catalogue.domain import BOOL, COMPLEX, DISTINCT, NONZERO, POSITIVE, REAL, SPD, SYMMETRIC, UNIT
from catalogue.domain import Domain as Values

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Array = np.ndarray[Any, Any]
Sampler = Callable[[np.random.Generator, tuple[int, ...]], Array]


class DomainError(AutodiffError, ValueError):
    """A shape, bounds or dtype that no array can have."""


@dataclasses.dataclass(frozen=True)
class Domain:
    """The values of one argument: a kind of values and a shape.

    Arguments:
        text: how it was written, such as "normal(3, 4)".
        values: the values of its entries, as in the catalogue.
        shape: of the array.
        dtype: of the array; that of the values (float64, int64, bool, complex128) where empty.
        sampler: draws in place of `values`, where these are too plain.
    """

    text: str
    values: Values
    shape: tuple[int, ...]
    dtype: str = ""
    sampler: Sampler | None = None

    def draw(self, rng: np.random.Generator) -> Array:
        """An array of this domain."""
        drawn = self.sampler(rng, self.shape) if self.sampler else self.values.draw(rng, self.shape)
        return self._cast(np.asarray(drawn))

    def strategy(self) -> "SearchStrategy[Any]":
        """A Hypothesis strategy of arrays of this domain."""
        if self.sampler is not None and self.values.kind != "real":
            from hypothesis import strategies as st

            seeds = st.integers(0, 2**32 - 1)
            return seeds.map(lambda seed: self.draw(np.random.default_rng(seed)))
        return self.values.strategy(self.shape).map(self._cast)

    def _cast(self, drawn: Array) -> Array:
        return drawn.astype(dtype_of(self.dtype)) if self.dtype else drawn

    @property
    def symmetric(self) -> bool:
        """Whether the array is a matrix known to equal its transpose."""
        return self.values.kind in ("spd", "symmetric")

    def __repr__(self) -> str:
        return self.text


def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype of that name, bfloat16 included.

    Raises DomainError for a name that is none.
    """
    import ml_dtypes

    try:
        return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    except TypeError:
        raise DomainError(
            f"there is no dtype {name!r}", "in a domain", "use float64, float32, bfloat16, ..."
        ) from None


def seeded(name: str, position: str, seed: int | None) -> np.random.Generator:
    """The generator of one argument of one test."""
    words = [zlib.crc32(name.encode()), seed or 0, zlib.crc32(position.encode())]
    return np.random.default_rng(words)


# --- the public names ----------------------------------------------------------------------


def normal(*shape: int, dtype: str = "") -> Domain:
    """Standard normal values; `normal()` is 0-d."""
    draw: Sampler = lambda rng, size: np.asarray(rng.normal(size=size))  # noqa: E731
    return _made("normal", REAL, shape, dtype, sampler=draw)


def positive(*shape: int, dtype: str = "") -> Domain:
    """Values in [0.1, 4]."""
    return _made("positive", POSITIVE, shape, dtype)


def nonzero(*shape: int, dtype: str = "") -> Domain:
    """Values in [-3, 3] at least 0.3 away from 0: away from the kinks of abs and relu."""
    return _made("nonzero", NONZERO, shape, dtype)


def unit(*shape: int, dtype: str = "") -> Domain:
    """Values in [0.02, 0.98]: inside (0, 1)."""
    return _made("unit", UNIT, shape, dtype)


def between(low: float, high: float, *shape: int, dtype: str = "") -> Domain:
    """Values in [low, high], uniform."""
    return _made("between", _bounded("real", low, high), shape, dtype, bounds=(low, high))


def integers(low: int, high: int, *shape: int, dtype: str = "") -> Domain:
    """Integers from low to high - 1; they are held fixed, as indices and labels are."""
    return _made("integers", _bounded("integer", low, high), shape, dtype, bounds=(low, high))


def distinct(*shape: int, dtype: str = "") -> Domain:
    """Values in [-3, 3] well apart from one another: no ties in a sort or a maximum."""
    return _made("distinct", DISTINCT, shape, dtype)


def bools(*shape: int) -> Domain:
    """True and False, alike likely."""
    return _made("bools", BOOL, shape, "")


def complexes(*shape: int, dtype: str = "") -> Domain:
    """Complex values with both parts in [-3, 3]."""
    return _made("complexes", COMPLEX, shape, dtype)


def probabilities(*shape: int, dtype: str = "") -> Domain:
    """Positive values that sum to 1 along the last axis."""

    def draw(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        weights = np.exp(rng.normal(size=size))
        return np.asarray(weights / np.sum(weights, axis=-1, keepdims=True))

    if not shape:
        raise DomainError("probabilities() has no axis", "", "write probabilities(n)")
    return _made("probabilities", DISTINCT, shape, dtype, sampler=draw)


def spd(*shape: int, dtype: str = "") -> Domain:
    """Symmetric positive definite matrices: `spd(n)` is (n, n), `spd(b, n, n)` a stack of b.

    Differences move along symmetric directions.
    """
    return _made("spd", SPD, _square("spd", shape), dtype, written=shape)


def symmetric(*shape: int, dtype: str = "") -> Domain:
    """Symmetric matrices with eigenvalues apart: `symmetric(n)` is (n, n); as `spd` otherwise."""
    return _made("symmetric", SYMMETRIC, _square("symmetric", shape), dtype, written=shape)


def orthogonal(*shape: int, dtype: str = "") -> Domain:
    """Orthogonal matrices: `orthogonal(n)` is (n, n)."""
    size = _square("orthogonal", shape)
    return _made("orthogonal", Values("orthogonal"), size, dtype, written=shape)


DOMAINS: dict[str, Callable[..., Domain]] = {
    f.__name__: f
    for f in (
        normal,
        positive,
        nonzero,
        unit,
        between,
        integers,
        distinct,
        bools,
        complexes,
        probabilities,
        spd,
        symmetric,
        orthogonal,
    )
}


def _made(
    name: str,
    values: Values,
    shape: tuple[Any, ...],
    dtype: str,
    *,
    bounds: tuple[float, ...] = (),
    written: tuple[int, ...] | None = None,
    sampler: Sampler | None = None,
) -> Domain:
    shown = [f"{b:g}" for b in bounds] + [str(n) for n in (shape if written is None else written)]
    text = f"{name}({', '.join([*shown, *([f'dtype={dtype!r}'] if dtype else [])])})"
    for n in shape:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
            raise DomainError(
                f"{n!r} is not the length of an axis", f"in {text}", f"write {name}(3, 4)"
            )
    if dtype:
        dtype = str(np.dtype(dtype_of(dtype)))
    return Domain(text, values, tuple(int(n) for n in shape), dtype, sampler)


def _bounded(kind: str, low: float, high: float) -> Values:
    try:
        return Values(kind, low, high)
    except (ValueError, TypeError):
        raise DomainError(
            f"{low!r} and {high!r} are not two bounds in order",
            "in a domain",
            "put the lower first",
        ) from None


def _square(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) == 1:
        return (shape[0], shape[0])
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise DomainError(
            f"{name}{shape!r} is no square matrix",
            "in a domain",
            f"write {name}(n), {name}(b, n, n)",
        )
    return shape
