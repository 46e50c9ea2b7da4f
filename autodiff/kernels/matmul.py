"""Kernels of products."""

from typing import Any

import numpy as np


def matmul(x: Any, y: Any, *, algorithm: str = "default") -> Any:
    """Matrix product over the last two axes.

    Where y is one matrix, the leading axes of x are folded into its rows: one BLAS call.
    """
    del algorithm
    if y.ndim == 2 and x.ndim > 2:
        flat = np.matmul(x.reshape((-1, x.shape[-1])) if x.size else x, y)
        return flat.reshape((*x.shape[:-1], y.shape[-1]))
    return np.matmul(x, y)


def dot_general(x: Any, y: Any, *, dimension_numbers: Any, algorithm: str = "default") -> Any:
    """Product summed over paired axes, with paired batch axes leading in the result."""
    del algorithm
    (x_sum, y_sum), (x_batch, y_batch) = dimension_numbers
    x_free = [i for i in range(x.ndim) if i not in (*x_sum, *x_batch)]
    y_free = [i for i in range(y.ndim) if i not in (*y_sum, *y_batch)]
    stack = [x.shape[i] for i in x_batch]
    rows, columns = [x.shape[i] for i in x_free], [y.shape[i] for i in y_free]
    count = [int(np.prod(n)) for n in (rows, [x.shape[i] for i in x_sum], columns)]
    left = np.transpose(x, (*x_batch, *x_free, *x_sum)).reshape((*stack, count[0], count[1]))
    right = np.transpose(y, (*y_batch, *y_sum, *y_free)).reshape((*stack, count[1], count[2]))
    return np.matmul(left, right).reshape((*stack, *rows, *columns))
