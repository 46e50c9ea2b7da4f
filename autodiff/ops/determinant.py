"""Determinants, with derivatives that are right at singular matrices too.

The determinant is a polynomial: its gradient is the matrix of cofactors, and det(a) a^-T only where
a is regular. COFACTOR and its derivative COFACTOR_TANGENT are primitives computed by the SVD,
so first and second derivatives hold at any rank (tensorflow/tensorflow#119477).
"""

from typing import Any

import numpy as np

from autodiff.families import add_tangents, batch_leading, batch_stacked
from autodiff.kernels import linalg as kernels
from autodiff.op import Op, define
from autodiff.ops.linalg import REAL_KINDS, check_matrix, matrix, product, swapped
from autodiff.ops.shape import reshape
from autodiff.program import Spec
from autodiff.trace import bind

__all__ = ["cofactor", "cofactor_tangent", "det", "slogdet"]


def _spread(x: Any) -> Any:
    """One number for each matrix, with two axes of 1."""
    return reshape(x, (*np.shape(x), 1, 1))


def _inner(x: Any, y: Any) -> Any:
    """sum_ij x_ij y_ij for each pair of matrices."""
    n = np.ndim(x)
    return bind("SUM", x * y, axis=(n - 2, n - 1), keepdims=False)


# --- DET -----------------------------------------------------------------------------------


def _det_spec(a: Spec) -> Spec:
    check_matrix("DET", a, square=True)
    return a.with_shape(a.shape[:-2])


def _det_jvp(primals: Any, tangents: Any, y: Any) -> Any:
    del y
    return _inner(bind("COFACTOR", primals[0]), tangents[0])


define(
    Op(
        "DET",
        _det_spec,
        impl=np.linalg.det,
        jvp=_det_jvp,
        batch=batch_leading("DET"),
        jax="rules:det",
    )
)


def det(a: Any) -> Any:
    """Determinant of matrices: `np.linalg.det`.

    d det = sum_ij c_ij da_ij, c the matrix of cofactors.

    Arguments: a of shape (..., n, n), real or complex. Returns shape (...); 1 for 0 x 0.
    First and second derivatives are right at any matrix, singular ones included. From the third
    on they are right for n <= 3, and for larger matrices where these are regular (NaN elsewhere).
    Raises ShapeError for matrices that are not square.
    """
    return bind("DET", matrix("DET", a, square=True))


# --- COFACTOR ------------------------------------------------------------------------------


def _cofactor_spec(a: Spec) -> Spec:
    check_matrix("COFACTOR", a, square=True)
    return a


def _cofactor_jvp(primals: Any, tangents: Any, y: Any) -> Any:
    del y
    # the matrix of cofactors of a 1 x 1 matrix is the constant 1
    return bind("COFACTOR_TANGENT", primals[0], tangents[0]) if np.shape(primals[0])[-1] > 1 else None


define(
    Op(
        "COFACTOR",
        _cofactor_spec,
        impl=kernels.cofactor,
        jvp=_cofactor_jvp,
        batch=batch_leading("COFACTOR"),
        jax="rules:cofactor",
    )
)


def cofactor(a: Any) -> Any:
    """Matrix of cofactors: c_ij = (-1)^(i+j) det(a without row i and column j).

    The gradient of `det`, the transposed adjugate; det(a) a^-T where a is regular. Computed by the
    SVD, accurate relative to the largest cofactor at any rank.

    Arguments: a of shape (..., n, n), real or complex. Returns the same shape.
    Derivatives as for `det`, one order lower.
    Raises ShapeError for matrices that are not square.
    """
    return bind("COFACTOR", matrix("COFACTOR", a, square=True))


# --- COFACTOR_TANGENT ----------------------------------------------------------------------


def _cofactor_tangent_spec(a: Spec, t: Spec) -> Spec:
    check_matrix("COFACTOR_TANGENT", a, square=True)
    assert a == t
    return a


def _cofactor_tangent_jvp(primals: Any, tangents: Any, y: Any) -> Any:
    del y
    (a, t), (ta, tt) = primals, tangents
    along = None if tt is None else bind("COFACTOR_TANGENT", a, tt)
    return add_tangents(along, None if ta is None else _second_tangent(a, t, ta))


def _second_tangent(a: Any, t: Any, r: Any) -> Any:
    """Second derivative of the cofactors at a in directions t and r."""
    n = np.shape(a)[-1]
    if n <= 2:
        return None
    if n == 3:
        # cofactors are quadratic: polarised, whatever a is; linear in r by COFACTOR_TANGENT
        return bind("COFACTOR_TANGENT", t, r)
    # c = det y^T with y = a^-1, differentiated twice
    y = bind("INV", a)
    yt, yr = product(y, t), product(y, r)
    yty, yry = product(yt, y), product(yr, y)
    trace_t, trace_r = (_spread(bind("TRACE", m, offset=0)) for m in (yt, yr))
    both = trace_t * trace_r - _spread(_inner(yt, swapped(yr)))
    mixed = product(yt, yry) + product(yr, yty)
    terms = both * y - trace_t * yry - trace_r * yty + mixed
    return _spread(bind("DET", a)) * swapped(terms)


def _cofactor_tangent_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    # second derivatives of det are symmetric
    return None, bind("COFACTOR_TANGENT", inputs[0], ct)


define(
    Op(
        "COFACTOR_TANGENT",
        _cofactor_tangent_spec,
        impl=kernels.cofactor_tangent,
        jvp=_cofactor_tangent_jvp,
        transpose=_cofactor_tangent_transpose,
        batch=batch_stacked("COFACTOR_TANGENT"),
        jax="rules:cofactor_tangent",
    )
)


def cofactor_tangent(a: Any, t: Any) -> Any:
    """Derivative of `cofactor` at a in direction t, linear in t and right at any rank.

    Arguments: a and t of shape (..., n, n) and one dtype. Returns the same shape.
    Raises ShapeError for shapes that differ or are not square.
    """
    return bind("COFACTOR_TANGENT", a, t)


# --- SLOGDET -------------------------------------------------------------------------------


def _slogdet_spec(a: Spec) -> tuple[Spec, Spec]:
    check_matrix("SLOGDET", a, REAL_KINDS, square=True)
    out = a.with_shape(a.shape[:-2])
    return out, out


def _slogdet_jvp(primals: Any, tangents: Any, outs: Any) -> Any:
    del outs
    return None, _inner(swapped(bind("INV", primals[0])), tangents[0])


define(
    Op(
        "SLOGDET",
        _slogdet_spec,
        impl=kernels.slogdet,
        jvp=_slogdet_jvp,
        batch=batch_leading("SLOGDET", multiple=True),
        outputs=2,
        jax="rules:slogdet",
    )
)


def slogdet(a: Any) -> tuple[Any, Any]:
    """Sign and logarithm of the absolute determinant: `np.linalg.slogdet`.

    d log|det a| = tr(a^-1 da).

    Arguments: a of shape (..., n, n), real. Returns (sign, logabsdet), each of shape (...); (1, 0)
    for 0 x 0. The sign has derivative 0. At a singular matrix they are 0 and -inf, and the
    gradient is NaN: there is none.
    Raises ShapeError for matrices that are not square, or complex.
    """
    sign, log = bind("SLOGDET", matrix("SLOGDET", a, square=True))
    return sign, log
