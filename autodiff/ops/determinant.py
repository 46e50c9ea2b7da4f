"""Determinants, with derivatives that are right at singular matrices too.

The determinant is a polynomial: its gradient is the matrix of cofactors, and det(a) a^-T only where
a is regular. COFACTOR and COFACTOR_TANGENT, its derivative along any number of directions, are
computed by the SVD, so derivatives of every order hold at any rank (tensorflow/tensorflow#119477).
"""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import add_tangents, batch_leading, batch_stacked, promote
from autodiff.kernels import linalg as kernels
from autodiff.op import Op, define
from autodiff.ops.linalg import REAL_KINDS, check_matrix, matrix, swapped
from autodiff.program import Spec
from autodiff.reverse import Undefined
from autodiff.trace import bind
from autodiff.widen import widened_rule

__all__ = ["cofactor", "cofactor_tangent", "det", "slogdet"]


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
        jvp=widened_rule(_det_jvp),
        batch=batch_leading("DET"),
        jax="rules:det",
    )
)


def det(a: Any) -> Any:
    """Determinant of matrices: `np.linalg.det`.

    d det = sum_ij c_ij da_ij, c the matrix of cofactors.

    Arguments: a of shape (..., n, n), real or complex. Returns shape (...); 1 for 0 x 0.
    Derivatives of every order are right at any matrix, singular ones included, to rounding
    relative to the largest cofactors.
    Raises ShapeError for matrices that are not square.
    """
    return bind("DET", matrix("DET", a, square=True))


# --- COFACTOR and COFACTOR_TANGENT ---------------------------------------------------------


def _cofactor_spec(a: Spec) -> Spec:
    check_matrix("COFACTOR", a, square=True)
    return a


def _along(a: Any, *directions: Any) -> Any:
    """COFACTOR_TANGENT, None where it is 0: cofactors are polynomials of degree n - 1."""
    few = len(directions) < np.shape(a)[-1]
    return bind("COFACTOR_TANGENT", a, *directions) if few else None


def _cofactor_jvp(primals: Any, tangents: Any, y: Any) -> Any:
    del y
    return _along(primals[0], tangents[0])


define(
    Op(
        "COFACTOR",
        _cofactor_spec,
        impl=kernels.minors,
        jvp=_cofactor_jvp,
        batch=batch_leading("COFACTOR"),
        jax="rules:minors",
    )
)


def cofactor(a: Any) -> Any:
    """Matrix of cofactors: c_ij = (-1)^(i+j) det(a without row i and column j).

    The gradient of `det`, the transposed adjugate; det(a) a^-T where a is regular. Computed by the
    SVD, accurate relative to the largest cofactor, at any rank.

    Arguments: a of shape (..., n, n), real or complex. Returns the same shape.
    Raises ShapeError for matrices that are not square.
    """
    return bind("COFACTOR", matrix("COFACTOR", a, square=True))


def _tangent_spec(a: Spec, *directions: Spec) -> Spec:
    check_matrix("COFACTOR_TANGENT", a, square=True)
    if not directions or any(t != a for t in directions):
        raise ShapeError(
            f"COFACTOR_TANGENT takes directions of the matrix's own shape and dtype, got "
            f"{', '.join(map(str, (a, *directions)))}",
            "in op COFACTOR_TANGENT",
            "pass one direction at least, broadcast to the matrix",
        )
    return a


def _tangent_jvp(primals: Any, tangents: Any, y: Any) -> Any:
    del y
    a, *directions = primals
    parts = [] if tangents[0] is None else [_along(a, *directions, tangents[0])]
    for i, t in enumerate(tangents[1:]):
        if t is not None:
            parts.append(bind("COFACTOR_TANGENT", a, *directions[:i], t, *directions[i + 1 :]))
    return add_tangents(*parts)


def _tangent_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    # <cofactor_tangent(a, t_1, ..., t_m), ct> is the derivative of det along all: symmetric
    exchanged = (ct if isinstance(x, Undefined) else x for x in inputs)
    out = bind("COFACTOR_TANGENT", *exchanged)
    return tuple(out if isinstance(x, Undefined) else None for x in inputs)


define(
    Op(
        "COFACTOR_TANGENT",
        _tangent_spec,
        impl=kernels.minors_along,
        jvp=_tangent_jvp,
        transpose=_tangent_transpose,
        batch=batch_stacked("COFACTOR_TANGENT"),
        jax="rules:minors_along",
    )
)


def cofactor_tangent(a: Any, *directions: Any) -> Any:
    """Derivative of `cofactor` at a along all the directions, linear in each of them.

    For t_1, ..., t_m the coefficient of z_1 ... z_m in the cofactors of a + sum_i z_i t_i.

    Arguments: a and each t of shape (..., n, n) and one dtype, real or complex. Returns the same
    shape, accurate relative to the largest value at matrices of that norm, at any rank.
    Raises ShapeError for matrices that are not square, or shapes that differ.
    """
    return bind("COFACTOR_TANGENT", *promote(a, *directions, inexact=True))


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
        jvp=widened_rule(_slogdet_jvp),
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
