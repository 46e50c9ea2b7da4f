"""Kernels of slices at run-time positions."""

from typing import Any

import numpy as np


def _window(shape: tuple[int, ...], sizes: tuple[int, ...], starts: Any) -> tuple[slice, ...]:
    """The window of the given sizes, moved inside the array where it would run past an end.

    Negative starts are counted from the end of the axis first.
    """
    first = [
        min(max(int(s) + n if s < 0 else int(s), 0), n - m)
        for s, n, m in zip(starts, shape, sizes, strict=True)
    ]
    return tuple(slice(a, a + m) for a, m in zip(first, sizes, strict=True))


def dynamic_slice(x: Any, *starts: Any, sizes: tuple[int, ...]) -> Any:
    """The window of x that begins at the clamped starts."""
    return x[_window(x.shape, sizes, starts)]


def dynamic_update_slice(x: Any, update: Any, *starts: Any) -> Any:
    """x with the window that begins at the clamped starts replaced."""
    out = np.array(x)
    out[_window(x.shape, update.shape, starts)] = update
    return out
