"""What compiled functions do with memory besides NumPy calls."""

from typing import Any

import numpy as np


def own(value: Any, *others: Any) -> Any:
    """The value, copied where it shares memory with another or may not be written."""
    shared = any(np.may_share_memory(value, other) for other in others)
    return value.copy() if shared or not value.flags.writeable else value


def clear(values: Any, bits: Any, condition: Any, mask: Any) -> None:
    """Set values to 0 where a condition holds; `bits` is their memory as integers.

    A masked copy is fast where few are cleared. For more, which may lie anywhere, the mask (as
    large, overwritten) clears bits without a branch: 0 - 1 keeps all, 1 - 1 keeps none.
    """
    count = np.count_nonzero(condition)
    if count * 16 > condition.size > 1024:
        np.copyto(mask, condition)
        np.subtract(mask, 1, out=mask)
        np.bitwise_and(bits, mask, out=bits)
    elif count:
        np.copyto(values, 0, where=condition)
