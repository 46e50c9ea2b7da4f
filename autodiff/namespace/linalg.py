"""The linear algebra extension: NumPy's functions, which dispatch on traced values."""

from typing import Any

import numpy as np

_NAMES = (
    "cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank "
    "matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm"
).split()


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(np.linalg, name)
    raise AttributeError(f"module 'autodiff.namespace.linalg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
