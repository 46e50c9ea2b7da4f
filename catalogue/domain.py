"""Domains of op arguments: how to draw values, and Hypothesis strategies of the same values."""

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from autodiff.errors import nearest
from catalogue.errors import CatalogueError, caller

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

KINDS = ("real", "integer", "bool", "distinct", "spd", "symmetric", "complex", "orthogonal")


@dataclasses.dataclass(frozen=True)
class Domain:
    """Values an argument may take.

    Attributes:
      kind: "real", "complex", "integer", "bool"; "distinct" (reals of well-separated value, for
        sorting and extrema); matrices in the last two axes: "spd", "symmetric", "orthogonal".
      low, high: bounds of each element (of eigenvalues, for spd).
      avoid: points (kinks, poles) that drawn values keep `margin` away from.
      margin: that distance.
    """

    kind: str = "real"
    low: float = -3.0
    high: float = 3.0
    avoid: tuple[float, ...] = ()
    margin: float = 0.05

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise CatalogueError(
                f"domain kind {self.kind!r} is not one of {', '.join(KINDS)}",
                f"at {caller()}",
                nearest(self.kind, KINDS) or "pick one of them",
            )
        if not self.low < self.high and self.kind != "bool":
            raise CatalogueError(
                f"domain bounds {self.low} and {self.high} are not in order",
                f"at {caller()}",
                "give low below high",
            )

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> np.ndarray[Any, Any]:
        """An array of this domain, float64, int64, bool or complex128."""
        size = int(np.prod(shape, dtype=np.int64))
        if self.kind == "bool":
            return rng.random(shape) < 0.5
        if self.kind == "integer":
            return rng.integers(int(self.low), int(self.high), size=shape)
        if self.kind == "distinct":
            steps = np.linspace(self.low, self.high, max(size, 2))[:size]
            jitter = 0.2 * (self.high - self.low) / max(size, 2) * rng.random(size)
            return np.asarray(rng.permutation(steps + jitter).reshape(shape))
        if self.kind in ("spd", "symmetric", "orthogonal"):
            return self._matrices(rng, shape)
        values = np.asarray(rng.uniform(self.low, self.high, shape))
        if self.kind == "complex":
            return values + 1j * rng.uniform(self.low, self.high, shape)
        return self._pushed(values)

    def _pushed(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        for point in self.avoid:
            near = np.abs(values - point) < self.margin
            side = np.where(values >= point, 1.0, -1.0)
            values = np.where(
                near, point + side * self.margin * (1.0 + np.abs(values - point)), values
            )
        return np.asarray(values)

    def _matrices(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        n = shape[-1]
        if n == 0:
            return np.zeros(shape)
        q = np.linalg.qr(rng.normal(size=shape))[0]
        if self.kind == "orthogonal":
            return np.asarray(q)
        # separated eigenvalues, so that eigenvectors and their derivatives are well conditioned
        low = max(self.low, 0.5) if self.kind == "spd" else self.low
        lam = np.linspace(low, self.high, n) + 0.1 * rng.random((*shape[:-2], n))
        a = (q * lam[..., None, :]) @ np.swapaxes(q, -1, -2)
        return np.asarray((a + np.swapaxes(a, -1, -2)) / 2)

    def strategy(self, shape: tuple[int, ...] = ()) -> "SearchStrategy[Any]":
        """A Hypothesis strategy of arrays of this domain, shrinking to simple values."""
        from hypothesis import strategies as st
        from hypothesis.extra import numpy as hnp

        if self.kind == "bool":
            return hnp.arrays(np.bool_, shape)
        if self.kind == "integer":
            return hnp.arrays(
                np.int64, shape, elements=st.integers(int(self.low), int(self.high) - 1)
            )
        if self.kind == "real":
            exact = all(float(np.float32(b)) == b for b in (self.low, self.high))
            width: Literal[32, 64] = 32 if exact else 64  # short numbers where they fit the bounds
            elements = st.floats(self.low, self.high, allow_subnormal=False, width=width).filter(
                lambda v: all(abs(v - p) >= self.margin for p in self.avoid)
            )
            return hnp.arrays(np.float64, shape, elements=elements)
        seeds = st.integers(0, 2**32 - 1)
        return seeds.map(lambda seed: self.draw(np.random.default_rng(seed), shape))


REAL = Domain()
POSITIVE = Domain(low=0.1, high=4.0)
UNIT = Domain(low=0.02, high=0.98)
NONZERO = Domain(avoid=(0.0,), margin=0.3)
DISTINCT = Domain("distinct")
BOOL = Domain("bool", 0, 1)
COMPLEX = Domain("complex")
SPD = Domain("spd", 0.5, 4.0)
SYMMETRIC = Domain("symmetric")
