"""How a port treats weights that are stored narrower than they are computed with.

A product takes its float32 operand rounded to the weight's dtype and sums in float32, as ggml's CPU
kernels do; everything else (norms, residuals, attention, biases) stays in float32. With float32 or
float64 weights all of these are the identity.
"""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from autodiff.widen import is_narrow

BF16 = np.dtype(ml_dtypes.bfloat16)
BF16_POLICY = "bf16 weights, f32 input rounded to bf16 in products, f32 accumulation"


def rounded(weights: Mapping[str, Any], dtype: Any = BF16) -> dict[str, Any]:
    """Return the weights in another dtype; integers stay as they are."""
    return {k: w.astype(dtype) if w.dtype.kind in "fV" else w for k, w in weights.items()}


def wide(value: Any) -> Any:
    """Return a value in float32 where its dtype is narrower, else as it is."""
    return value.astype(np.float32) if is_narrow(value.dtype) else value


def operand(x: Any, weight: Any) -> Any:
    """Return `x` as a product with `weight` takes it: rounded to a narrow weight's dtype."""
    return wide(x.astype(weight.dtype)) if is_narrow(weight.dtype) else x


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """x weight^T + bias.

    Arguments: x (..., n); weight (m, n); bias (m,) or None. Returns shape (..., m).
    """
    y = np.matmul(operand(x, weight), wide(weight).T)
    return y if bias is None else y + wide(bias)
