"""Kernels of matrix functions: exponential and pseudo-inverse.

All take matrices in the last two axes, with any leading axes, and never loop over these.
"""

from typing import Any

import numpy as np

# Coefficients of the [13/13] Padé numerator (Higham, "The scaling and squaring method for the
# matrix exponential revisited", 2005), and the norm it is used up to. The approximant is right to
# 2^-53 up to norm 5.37, but rounding in its denominator grows with the norm: measured errors are
# below 2 eps max(1, |a|) with squarings from norm 2 on, 15 eps max(1, |a|) with those from 5.37.
PADE = (
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
)
THETA = 2.0


def one_norm(a: Any) -> Any:
    """Largest column sum of magnitudes, with two trailing axes of 1."""
    return np.max(np.sum(np.abs(a), axis=-2), axis=-1, initial=0)[..., None, None]


def expm(a: Any) -> Any:
    """Matrix exponential by scaling, a [13/13] Padé approximant and squaring."""
    a = np.asarray(a)
    n = a.shape[-1]
    if not a.size:
        return a.copy()
    norm = one_norm(a)
    usable = np.isfinite(norm)
    scaled = np.where(usable & (norm > THETA), norm, THETA)
    squarings = np.ceil(np.log2(scaled / THETA)).astype(np.int64)
    a = np.where(
        usable, np.ldexp(1.0, -squarings).astype(a.real.dtype) * a, np.eye(n, dtype=a.dtype)
    )
    x = pade13(a)
    for step in range(int(squarings.max(initial=0))):
        x = np.where(step < squarings, x @ x, x)
    return np.where(usable, x, np.nan)


def pade13(a: Any) -> Any:
    """The [13/13] Padé approximant of exp at matrices of norm up to THETA."""
    c = [np.asarray(p / PADE[0], a.real.dtype) for p in PADE]
    one = np.eye(a.shape[-1], dtype=a.dtype)
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    odd = (
        a6 @ (c[13] * a6 + c[11] * a4 + c[9] * a2) + c[7] * a6 + c[5] * a4 + c[3] * a2 + c[1] * one
    )
    even = (
        a6 @ (c[12] * a6 + c[10] * a4 + c[8] * a2) + c[6] * a6 + c[4] * a4 + c[2] * a2 + c[0] * one
    )
    odd = a @ odd
    return np.linalg.solve(even - odd, even + odd)


def expm_frechet(a: Any, t: Any) -> Any:
    """Derivative of the exponential at a in direction t.

    The upper right block of exp([[a, t], [0, a]]), with t scaled by a power of two to a norm
    below 2, so that a large t costs no squarings and a tiny one loses no digits.
    """
    a, t = np.asarray(a), np.asarray(t)
    n = a.shape[-1]
    if not a.size:
        return a.copy()
    norm = one_norm(t)
    exponent = np.where(np.isfinite(norm) & (norm > 0), np.frexp(norm)[1] - 1, 0)
    scale = np.ldexp(1.0, exponent).astype(a.real.dtype)
    top = np.concatenate([a, t / scale], axis=-1)
    bottom = np.concatenate([np.zeros_like(a), a], axis=-1)
    return scale * expm(np.concatenate([top, bottom], axis=-2))[..., :n, n:]


def pinv(a: Any, *, rtol: float) -> Any:
    """Pseudo-inverse; singular values up to rtol times the largest count as 0."""
    a = np.asarray(a)
    finite = np.isfinite(a).all(axis=(-2, -1), keepdims=True)
    result = np.linalg.pinv(np.where(finite, a, np.zeros((), a.dtype)), rtol)
    return np.where(finite, result, np.nan)
