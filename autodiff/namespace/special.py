"""Special functions under SciPy's names: its universal functions, which dispatch on traced values.

With SCIPY_ARRAY_API=1 SciPy wraps its ufuncs and looks here for those of a foreign namespace; the
wrapper keeps the ufunc itself as `__wrapped__`.
"""

from typing import Any

import numpy as np
import scipy.special


def __getattr__(name: str) -> Any:
    function = getattr(scipy.special, name, None)
    function = getattr(function, "__wrapped__", function)
    if isinstance(function, np.ufunc):
        return function
    if name == "sinc":  # NumPy's function, which SciPy wraps as one of its own
        return np.sinc
    raise AttributeError(f"module 'autodiff.namespace.special' has no attribute {name!r}")
