"""JAX functions of the losses that no single JAX call gives."""

from typing import Any

import numpy as np
from jax import lax

from autodiff.lower.lean import spread


def label_mask(labels: Any, *, classes: int, axis: int) -> Any:
    """True along a new axis where the index equals the label."""
    shape = (*labels.shape[:axis], classes, *labels.shape[axis:])
    if labels.dtype.itemsize < 4:
        labels = lax.convert_element_type(labels, np.int32)
    wide = spread(lax.expand_dims(labels, (axis,)), shape, labels.dtype)
    return lax.eq(lax.broadcasted_iota(labels.dtype, shape, axis), wide)
