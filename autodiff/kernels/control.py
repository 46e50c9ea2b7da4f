"""Kernels of control primitives."""

from typing import Any

import numpy as np


def guard(value: Any, expected: Any) -> tuple[()]:
    """Raise where a value differs from the one a Python branch was traced with."""
    if not np.array_equal(value, expected, equal_nan=np.asarray(value).dtype.kind in "fc"):
        raise RuntimeError(f"a Python branch was traced for {expected}, the value is now {value}")
    return ()
