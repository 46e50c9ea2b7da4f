"""Strong products in the executor: what is left to do where a plain product is not finite.

A product is computed plainly first. The sum of its squares tells at the cost of one read whether
all of it is finite, and only where it is not (or too large for the test) do these functions run.
"""

from typing import Any

import numpy as np


def zeros_win(product: Any, zeros: Any) -> None:
    """Set an elementwise product (quotient) to 0 where it is NaN and the operand `zeros` is 0."""
    np.copyto(product, 0, where=np.isnan(product) & (zeros == 0))


def zeros_win_matmul(product: Any, x: Any, y: Any, zeros: int) -> None:
    """Write into a product of matrices the sums whose terms are 0 where an operand is 0.

    `zeros` says which, x (0) or y (1). Infinite factors of one sign that meet no 0 sum to it,
    those of both signs and NaN to NaN.
    """
    if np.isfinite(product).all():
        return
    ct, other = (x, y) if zeros == 0 else (y, x)

    def matmul(a: Any, b: Any) -> Any:
        a, b = a.astype(product.dtype), b.astype(product.dtype)
        return np.matmul(a, b) if zeros == 0 else np.matmul(b, a)

    finite = np.isfinite(other)
    np.copyto(product, matmul(ct, np.where(finite, other, 0)))
    met = matmul(ct != 0, ~finite)
    net = matmul(np.sign(ct), np.where(np.isinf(other), np.sign(other), 0))
    added = np.where(net == met, np.inf, np.where(net == -met, -np.inf, np.nan))
    np.copyto(product, added, where=met > 0)
