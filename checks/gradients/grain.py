"""How coarse the results of a function are: float32, or an offset that cancels, inside float64.

The lowest bit set in any value seen is the quantum that the results are multiples of. Probes move
points by random numbers, so the results of float64 arithmetic use all their bits.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
BITS = 2.0**16  # a value of so many quanta is a rounded one, not a whole number
LAST = 2.0**-50  # a quantum of so little is the rounding of float64
CHANGES = 4  # a jump has two values, a rounded result another one at every step


@dataclasses.dataclass(eq=False)
class Grain:
    """What was seen of the entries of the real results of one function `(n,)`.

    Arguments:
        quantum, most: the lowest bit set in an entry, and its largest magnitude.
        changes: how often a side changed from step to step, along the line that did so most.
        sides, count: the last step's entries, and the changes along this line.
        fine: all entries use their last bits: no more need be looked at.
    """

    quantum: Array
    most: Array
    changes: Array
    count: Array
    sides: tuple[Array, ...] = ()
    fine: bool = False

    def begin(self) -> None:
        """Start on another line."""
        self.sides, self.count = (), np.zeros_like(self.count)

    def see(self, sides: Sequence[Array]) -> None:
        """Take in the entries on both sides of one step."""
        if self.fine:
            return
        for k, y in enumerate(sides):
            self.quantum = np.minimum(self.quantum, _lowest_bit(y))
            self.most = np.fmax(self.most, np.abs(y))
            if self.sides:
                self.count = self.count + (y != self.sides[k])
        self.changes = np.maximum(self.changes, self.count)
        self.sides = tuple(sides)
        used = self.most > 0
        self.fine = bool(np.any(used) and np.all(self.quantum[used] <= LAST * self.most[used]))

    def noise(self) -> Array:
        """The noise of each entry: an eighth of a quantum, so that half of one is its floor."""
        if self.fine:
            return np.zeros_like(self.most)
        q = np.where(np.isfinite(self.quantum), self.quantum, 0.0)
        coarse = (self.most >= BITS * q) | (self.changes >= CHANGES)
        return np.where(coarse, q, 0.0) / 8


def grain(size: int) -> Grain:
    """Nothing seen yet."""
    none = np.zeros(size)
    return Grain(np.full(size, np.inf), none, none, none)


def _lowest_bit(y: Array) -> Array:
    """The largest power of two that divides each entry; infinity for 0, infinity and NaN."""
    used = np.isfinite(y) & (y != 0)
    mantissa, exponent = np.frexp(np.where(used, y, 1.0))
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    return np.where(used, np.ldexp((whole & -whole).astype(float), exponent - 53), np.inf)
