"""Rounding to floating formats that NumPy does not have."""

from typing import Any

import numpy as np


def round_to_format(
    x: Any,
    mantissa: int,
    min_exponent: int,
    max_exponent: int,
    largest: float,
    overflow: float,
) -> Any:
    """x rounded once to a binary format, ties to even, and held in float64.

    Adding 1.5 * 2^52 quanta of x's binade leaves no bit below one quantum; the quantum is not less
    than the spacing of the format's subnormal numbers, and capped so that the sum stays finite.
    """
    x = np.asarray(x, dtype=np.float64)
    binade = np.abs(x).view(np.int64) & 0x7FF0000000000000
    spacing = binade.view(np.float64) * 2.0**-mantissa
    quantum, cap = 2.0 ** (min_exponent - mantissa), 2.0 ** (max_exponent - mantissa)
    shift = np.clip(spacing, quantum, cap) * (1.5 * 2.0**52)
    y = np.copysign((x + shift) - shift, x)
    return np.where(np.abs(y) > largest, np.copysign(overflow, x), y)
