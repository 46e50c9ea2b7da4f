"""Arrays in one file: their elements' bytes one after another, and a place in it for each.

An archive of many small arrays takes longer to write and read than the programs that made them.
This file is also run by itself in the process of `autodiff.isolated`: it needs NumPy alone.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Place = tuple[str, tuple[int, ...], str, int]


class Packed:
    """Bytes of arrays, as they are added."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, array: Array) -> Place:
        """Take in an array of numbers; what `unpacked` finds it by."""
        if array.dtype.hasobject:
            raise TypeError(f"an array of {array.dtype} is no array of numbers")
        order = "F" if array.flags.fnc else "C"
        place = (array.dtype.str, array.shape, order, self.size)
        self.parts.append(array.tobytes("F" if order == "F" else "C"))
        self.size += array.nbytes
        return place

    def data(self) -> bytes:
        """All bytes so far."""
        return b"".join(self.parts)


def unpacked(data: bytes, dtype: str, shape: Any, order: Any, offset: int) -> Array:
    """The array at a place, in memory of its own."""
    found: Array = np.ndarray(tuple(shape), np.dtype(dtype), data, offset, order=order)
    return found.copy("K")
