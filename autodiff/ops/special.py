"""Special functions: gamma, error and normal distribution functions, zeta."""

from typing import Any

import numpy as np
import scipy.special

from autodiff.errors import ShapeError
from autodiff.families import promote, unary
from autodiff.kernels import special as kernels
from autodiff.ops.transcendental import exp, log
from autodiff.trace import bind
from autodiff.widen import widened_body

__all__ = [
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfinv",
    "gamma",
    "gaussian",
    "lgamma",
    "log_ndtr",
    "ndtr",
    "ndtri",
    "polygamma",
    "trigamma",
]

HALF_SQRT_PI = 0.886226925452758
TWO_OVER_SQRT_PI = 1.1283791670955126
SQRT_TWO_PI = 2.5066282746310002
ONE_OVER_SQRT_TWO_PI = 0.3989422804014327

# --- gamma -----------------------------------------------------------------------------------

lgamma = unary(
    "LGAMMA",
    scipy.special.gammaln,
    deriv=lambda x, y: bind("DIGAMMA", x),
    kinds="fV",
    jax="lax.lgamma",
    doc="log |Gamma(x)|; +inf at 0, -1, -2 ...",
)
digamma = unary(
    "DIGAMMA",
    scipy.special.psi,
    deriv=lambda x, y: bind("TRIGAMMA", x),
    kinds="fV",
    jax="lax.digamma",
    doc="The derivative of log Gamma(x).",
)
trigamma = unary(
    "TRIGAMMA",
    kernels.trigamma,
    deriv=lambda x, y: polygamma(2, x),
    kinds="fV",
    jax="rules:trigamma",
    doc="The second derivative of log Gamma(x).",
)
unary(
    "POLYGAMMA",
    kernels.polygamma,
    deriv=lambda x, y, *, n: bind("POLYGAMMA", x, n=n + 1),
    kinds="fV",
    jax="rules:polygamma",
)


def polygamma(n: int, x: Any) -> Any:
    """The n-th derivative of digamma, psi^(n)(x).

    Negative x is reached by reflection (DLMF 5.15.6). `n` is a fixed integer, not differentiated.

    Raises:
        ShapeError: n is negative or not an integer.
    """
    if int(n) != n or n < 0:
        raise ShapeError(
            f"polygamma of order {n!r}", "in op POLYGAMMA, argument n", "use an integer n >= 0"
        )
    (x,) = promote(x, inexact=True)
    return digamma(x) if n == 0 else bind("POLYGAMMA", x, n=int(n))


gamma = unary(
    "GAMMA",
    scipy.special.gamma,
    deriv=lambda x, y: y * digamma(x),
    kinds="fV",
    jax="rules:gamma",
    doc="Gamma(x); derivative Gamma(x) digamma(x).",
)

# --- error and normal distribution functions ---------------------------------------------------

unary(
    "GAUSSIAN",
    kernels.gaussian,
    deriv=lambda x, y, *, scale: -2 * scale * (x * y),
    kinds="fV",
    jax="rules:gaussian",
)


def gaussian(x: Any, scale: float = 1.0) -> Any:
    """exp(-scale x ** 2), without the error that rounding x ** 2 would cause in the tails."""
    (x,) = promote(x, inexact=True)
    return bind("GAUSSIAN", x, scale=float(scale))


erf = unary(
    "ERF",
    scipy.special.erf,
    deriv=lambda x, y: TWO_OVER_SQRT_PI * gaussian(x),
    kinds="fV",
    jax="lax.erf",
    doc="The error function, 2 / sqrt(pi) times the integral of exp(-t ** 2) from 0 to x.",
)
erfc = unary(
    "ERFC",
    scipy.special.erfc,
    deriv=lambda x, y: -TWO_OVER_SQRT_PI * gaussian(x),
    kinds="fV",
    jax="lax.erfc",
    doc="1 - erf(x), with relative accuracy for large x.",
)
erfinv = unary(
    "ERFINV",
    kernels.erfinv,
    tangent=lambda t, x, y: HALF_SQRT_PI * t / gaussian(y),
    kinds="fV",
    jax="lax.erf_inv",
    doc="The inverse of erf on (-1, 1); +-inf with infinite derivative at the ends.",
)
ndtr = unary(
    "NDTR",
    scipy.special.ndtr,
    deriv=lambda x, y: ONE_OVER_SQRT_TWO_PI * gaussian(x, 0.5),
    kinds="fV",
    jax="rules:ndtr",
    doc="The standard normal distribution function.",
)


def _hazard(x: Any, y: Any) -> Any:
    """The density over the distribution function; below -20, where both underflow before long, by
    Laplace's continued fraction u + 1 / (u + 2 / (u + 3 / ...)) at u = -x (DLMF 7.9.1).
    """
    far = x < -20
    zero = np.zeros((), x.dtype)
    u = bind("WHERE", far, -x, np.asarray(20.0, x.dtype))
    fraction = u
    for k in range(12, 0, -1):
        fraction = u + k / fraction
    inner, log = bind("WHERE", far, zero, x), bind("WHERE", far, zero, y)
    near = ONE_OVER_SQRT_TWO_PI * gaussian(inner, 0.5) * exp(-log)
    return bind("WHERE", far, fraction, near)


log_ndtr = unary(
    "LOG_NDTR",
    scipy.special.log_ndtr,
    deriv=widened_body(_hazard),
    kinds="fV",
    jax="jax.scipy.special.log_ndtr",
    doc="log of the standard normal distribution function, finite where ndtr underflows.",
)
ndtri = unary(
    "NDTRI",
    scipy.special.ndtri,
    tangent=lambda t, x, y: SQRT_TWO_PI * t / gaussian(y, 0.5),
    kinds="fV",
    jax="rules:ndtri",
    doc="The quantile of the standard normal distribution; +-inf at 1 and 0.",
)
entr = unary(
    "ENTR",
    scipy.special.entr,
    tangent=lambda t, x, y: bind("STRONG_MUL", -t, log(x) + 1),  # as XLOGY's
    kinds="fV",
    jax="rules:entr",
    doc="-x log(x), 0 at 0 and -inf below; the derivative at 0 is +inf, a tangent of 0 stays 0.",
)
