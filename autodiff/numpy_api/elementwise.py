"""NumPy's elementwise ufuncs and functions."""

import numpy as np

from autodiff import ops
from autodiff.numpy_api import FUNCTIONS, UFUNCS

UFUNCS.update(
    {
        np.add: ops.add,
        np.subtract: ops.sub,
        np.multiply: ops.mul,
        np.true_divide: ops.div,
        np.negative: ops.neg,
        np.exp: ops.exp,
        np.expm1: ops.expm1,
        np.log: ops.log,
        np.log1p: ops.log1p,
        np.equal: ops.equal,
        np.not_equal: ops.not_equal,
        np.less: ops.less,
        np.less_equal: ops.less_equal,
        np.greater: ops.greater,
        np.greater_equal: ops.greater_equal,
    }
)
FUNCTIONS.update({np.where: ops.where})
