"""scipy.special's ufuncs."""

import scipy.special as sp

from autodiff import ops
from autodiff.numpy_api import UFUNCS

UFUNCS.update(
    {
        sp.expit: ops.sigmoid,
        sp.log_expit: ops.log_sigmoid,
        sp.logit: ops.logit,
        sp.xlogy: ops.xlogy,
        sp.xlog1py: ops.xlog1py,
        sp.entr: ops.entr,
        sp.exprel: ops.exprel,
        sp.erf: ops.erf,
        sp.erfc: ops.erfc,
        sp.erfinv: ops.erfinv,
        sp.ndtr: ops.ndtr,
        sp.ndtri: ops.ndtri,
        sp.gammaln: ops.lgamma,
        sp.gamma: ops.gamma,
        sp.psi: ops.digamma,
    }
)
