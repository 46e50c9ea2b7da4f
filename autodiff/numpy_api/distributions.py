"""scipy.special's distribution functions: incomplete gamma and beta functions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as sp

from autodiff import ops
from autodiff.families import promote
from autodiff.numpy_api import UFUNCS

Function = Callable[..., Any]


def _of(*ufuncs: Any) -> Callable[[Function], Function]:
    """Decorator: the function on operands of one floating dtype is what these ufuncs compute."""

    def register(function: Function) -> Function:
        for ufunc in ufuncs:
            UFUNCS[ufunc] = lambda *xs: function(*promote(*xs, inexact=True))
        return function

    return register


# --- gamma, chi-square, Poisson (DLMF 8.2.4; NIST/SEMATECH e-Handbook 1.3.6.6) -----------------

_of(sp.gdtr)(lambda a, b, x: ops.igamma(b, a * x))
_of(sp.gdtrc)(lambda a, b, x: ops.igammac(b, a * x))
_of(sp.chdtr)(lambda v, x: ops.igamma(v / 2, x / 2))
_of(sp.chdtrc)(lambda v, x: ops.igammac(v / 2, x / 2))
_of(sp.pdtr)(lambda k, m: ops.igammac(ops.floor(k) + 1, m))
_of(sp.pdtrc)(lambda k, m: ops.igamma(ops.floor(k) + 1, m))

# --- F (Abramowitz & Stegun 26.6.2) ----------------------------------------------------------

_of(sp.fdtr)(lambda a, b, x: ops.betainc(a / 2, b / 2, a * x / (b + a * x)))
_of(sp.fdtrc)(lambda a, b, x: ops.betainc(b / 2, a / 2, b / (b + a * x)))

# --- Student's t (Abramowitz & Stegun 26.7.1) ---------------------------------------------------


@_of(sp.stdtr)
def _stdtr(df: Any, t: Any) -> Any:
    """The tail is I_{v / (v + t^2)}(v / 2, 1 / 2) / 2, whose slope has a pole at 0: there a line.

    The density is even: a line through t = 0 has the right first and second derivatives.
    """
    zero, one = t == 0, np.ones((), t.dtype)
    safe = ops.where(zero, one, t)
    tail = 0.5 * ops.betainc(df / 2, 0.5 * one, df / (df + ops.square(safe)))
    value = ops.where(safe > 0, 1 - tail, tail)
    peak = ops.exp(ops.lgamma((df + 1) / 2) - ops.lgamma(df / 2)) / ops.sqrt(np.pi * df)
    return ops.where(zero, 0.5 + t * peak, value)
