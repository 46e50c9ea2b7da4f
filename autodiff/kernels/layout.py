"""Kernels of layout primitives."""

from typing import Any

import numpy as np


def sum_to(x: Any, *, shape: tuple[int, ...]) -> Any:
    """Sum over the axes that broadcasting `shape` to `x.shape` adds or stretches."""
    x = np.asarray(x)
    extra = x.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        extra + i for i, n in enumerate(shape) if n == 1 and x.shape[extra + i] != 1
    )
    return np.sum(x, axis=axes, keepdims=True).reshape(shape) if axes else x
