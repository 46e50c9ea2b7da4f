"""NumPy's reductions."""

import numpy as np

from autodiff import ops
from autodiff.numpy_api import FUNCTIONS, REDUCES

FUNCTIONS.update({np.sum: ops.sum})
REDUCES.update({np.add: ops.sum})
