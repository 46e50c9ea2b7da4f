"""What compiled functions do with memory besides NumPy calls."""

import sys
from typing import Any

import numpy as np


def references(kept: Any, place: int) -> int:
    """How many references to an array there are, as seen from here."""
    array = kept[place]
    return sys.getrefcount(array)


# Without a global lock another thread's reference may not be counted yet: never reuse there.
ALONE = references([np.empty(1)], 0) if getattr(sys, "_is_gil_enabled", lambda: True)() else -1


def renew(kept: Any, place: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """A large result: the array of an earlier call if nothing else refers to it any more.

    New memory of some megabytes is given page by page as it is first written, which costs as much
    as the writing. A view, a buffer or another array's base is a reference like any other.
    """
    if kept[place] is None or references(kept, place) != ALONE:
        kept[place] = np.empty(shape, dtype)
    return kept[place]


def own(value: Any, *others: Any) -> Any:
    """The value, copied where it shares memory with another or may not be written."""
    shared = any(np.may_share_memory(value, other) for other in others)
    return value.copy() if shared or not value.flags.writeable else value
