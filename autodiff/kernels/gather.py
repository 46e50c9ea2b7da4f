"""Kernels of indexing primitives."""

from typing import Any

import numpy as np


def gather(x: Any, *indices: Any, axis: int) -> Any:
    """Elements of x at broadcast integer indices of the axes from `axis` on."""
    if len(indices) == 1:
        return np.take(x, indices[0], axis)
    return x[(slice(None),) * axis + indices]


def scatter(x: Any, updates: Any, *indices: Any, axis: int) -> Any:
    """x with the elements at the indices replaced; of equal indices the last one counts."""
    out = np.array(x)
    out[(slice(None),) * axis + indices] = updates
    return out


def scatter_add(x: Any, updates: Any, *indices: Any, axis: int) -> Any:
    """x with the updates added at the indices; equal indices accumulate."""
    out = np.array(x)
    np.add.at(out, (slice(None),) * axis + indices, updates)
    return out
