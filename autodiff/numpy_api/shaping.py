"""NumPy's shape functions."""

import numpy as np

from autodiff import ops
from autodiff.numpy_api import FUNCTIONS

FUNCTIONS.update(
    {
        np.shape: lambda x: x.shape,
        np.ndim: lambda x: x.ndim,
        np.size: lambda x, axis=None: x.size if axis is None else x.shape[axis],
        np.reshape: lambda x, shape, order="C": ops.reshape(x, shape),
        np.transpose: ops.transpose,
        np.broadcast_to: lambda x, shape, subok=False: ops.broadcast_to(x, shape),
    }
)
