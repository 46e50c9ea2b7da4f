"""Matrix functions: EXPM, MATRIX_POWER, PINV, LSTSQ, MATRIX_NORM."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import add_tangents, batch_leading, batch_stacked, composite, promote, whole
from autodiff.kernels import matrix_functions as kernels
from autodiff.op import Op, define
from autodiff.ops.elementwise import where
from autodiff.ops.linalg import (
    REAL_KINDS,
    check_matrix,
    column,
    matrix,
    product,
    swapped,
    without_column,
)
from autodiff.ops.powers import abs as absolute
from autodiff.ops.reduction import max as largest
from autodiff.ops.reduction import min as smallest
from autodiff.ops.reduction import sum as total
from autodiff.ops.shape import broadcast_to, concatenate, slice_
from autodiff.program import Spec
from autodiff.trace import bind
from autodiff.widen import widened_body, widened_rule

__all__ = ["expm", "expm_frechet", "lstsq", "matrix_norm", "matrix_power", "pinv"]

# --- EXPM ----------------------------------------------------------------------------------


def _expm_spec(a: Spec) -> Spec:
    check_matrix("EXPM", a, square=True)
    return a


def _expm_jvp(primals: Any, tangents: Any, y: Any) -> Any:
    del y
    return bind("EXPM_FRECHET", primals[0], tangents[0])


define(
    Op(
        "EXPM",
        _expm_spec,
        impl=kernels.expm,
        jvp=_expm_jvp,
        batch=batch_leading("EXPM"),
        jax="rules:expm",
    )
)


def expm(a: Any) -> Any:
    """Exponential of matrices: `scipy.linalg.expm`.

    sum_k a^k / k!, by scaling, a [13/13] Padé approximant and squaring (Higham 2005).

    Arguments: a of shape (..., n, n), real or complex. Returns the same shape. Differentiable at
    every matrix, defective ones included: nothing is diagonalised (Theano/Theano#6379).
    Raises ShapeError for matrices that are not square.
    """
    return bind("EXPM", matrix("EXPM", a, square=True))


def _frechet_spec(a: Spec, t: Spec) -> Spec:
    check_matrix("EXPM_FRECHET", a, square=True)
    if a != t:
        raise ShapeError(
            f"EXPM_FRECHET takes a matrix and a direction of one shape and dtype, got {a} and {t}",
            "in op EXPM_FRECHET",
            "broadcast the direction to the matrix",
        )
    return a


def _block_triangle(a: Any, b: Any) -> Any:
    """[[a, b], [0, a]], a or b None for zeros."""
    zero = np.broadcast_to(
        np.zeros((), (b if a is None else a).dtype), np.shape(b if a is None else a)
    )
    a, b = (zero if a is None else a), (zero if b is None else b)
    return concatenate([concatenate([a, b], -1), concatenate([zero, a], -1)], -2)


def _frechet_jvp(primals: Any, tangents: Any, y: Any) -> Any:
    del y
    (a, t), (ta, tt) = primals, tangents
    along = None if tt is None else bind("EXPM_FRECHET", a, tt)
    *lead, n, _ = np.shape(a)
    if ta is None or not n:
        return along
    # the derivative at a in direction t is a block of exp([[a, t], [0, a]]), which a moves; a t
    # much larger than a would cost digits there, and the result is linear in it
    size = bind("STOP_GRADIENT", largest(absolute(t), (-2, -1), keepdims=True))
    size = where(size > 0, size, 1.0)
    both = bind("EXPM_FRECHET", _block_triangle(a, t / size), _block_triangle(ta, None))
    corner = slice_(both, (*(0,) * len(lead), 0, n), (*lead, n, 2 * n))
    return add_tangents(along, size * corner)


def _frechet_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    # <ct, L(a, t)> = <L(a^T, ct), t>
    return None, bind("EXPM_FRECHET", swapped(inputs[0]), ct)


define(
    Op(
        "EXPM_FRECHET",
        _frechet_spec,
        impl=kernels.expm_frechet,
        jvp=widened_rule(_frechet_jvp),
        transpose=_frechet_transpose,
        batch=batch_stacked("EXPM_FRECHET"),
        jax="rules:expm_frechet",
    )
)


def expm_frechet(a: Any, t: Any) -> Any:
    """Derivative of the matrix exponential at a in direction t, linear in t.

    L(a, t) = int_0^1 exp((1 - s) a) t exp(s a) ds, the upper right block of exp([[a, t], [0, a]]).

    Arguments: a and t of shape (..., n, n), real or complex. Returns the same shape.
    Raises ShapeError for shapes that differ or are not square.
    """
    return bind("EXPM_FRECHET", *promote(a, t, inexact=True))


# --- MATRIX_POWER --------------------------------------------------------------------------


def _power_spec(a: Spec, *, n: int) -> Spec:
    check_matrix("MATRIX_POWER", a, "iufcV" if n >= 0 else "fcV", square=True)
    return a


def _power_body(a: Any, *, n: int) -> Any:
    if n == 0:
        return broadcast_to(np.eye(np.shape(a)[-1], dtype=a.dtype), np.shape(a))
    square, rest, result = bind("INV", a) if n < 0 else a, abs(n), None
    while rest:
        if rest & 1:
            result = square if result is None else product(result, square)
        rest >>= 1
        square = product(square, square) if rest else square
    return result


composite("MATRIX_POWER", widened_body(_power_body), spec=_power_spec)


def matrix_power(a: Any, n: int) -> Any:
    """Integer powers of matrices: `np.linalg.matrix_power`, by repeated squaring.

    Arguments: a of shape (..., k, k); n, a plain int; a negative power is that of the inverse, NaN
    for a singular matrix. Returns the same shape.
    Raises ShapeError for matrices that are not square; TypeError for n that is not an int.
    """
    if not isinstance(n, int | np.integer):
        raise TypeError(f"matrix_power takes an integer power, got {n!r}")
    (a,) = promote(a, inexact=n < 0)
    return bind("MATRIX_POWER", a, n=whole(n, "the power of a matrix"))


# --- PINV and LSTSQ ------------------------------------------------------------------------


def _pinv_spec(a: Spec, *, rtol: float) -> Spec:
    del rtol
    check_matrix("PINV", a, REAL_KINDS)
    return a.with_shape((*a.shape[:-2], a.shape[-1], a.shape[-2]))


def _pinv_jvp(primals: Any, tangents: Any, y: Any, *, rtol: float) -> Any:
    del rtol
    (a,), (t,) = primals, tangents
    spread = swapped(t)
    # Golub, Pereyra, "The differentiation of pseudo-inverses" (1973), theorem 4.3
    left = spread - product(product(spread, a), y)
    right = spread - product(y, product(a, spread))
    inner = product(product(y, swapped(y)), left) + product(right, product(swapped(y), y))
    return inner - product(y, product(t, y))


define(
    Op(
        "PINV",
        _pinv_spec,
        impl=kernels.pinv,
        jvp=widened_rule(_pinv_jvp),
        batch=batch_leading("PINV"),
        jax="rules:pinv",
    )
)


def _cutoff(a: Any, rtol: float | None) -> float:
    if rtol is not None:
        return float(rtol)
    wide = a.dtype if a.dtype.kind == "f" else np.dtype(np.float32)
    return float(max(np.shape(a)[-2:]) * np.finfo(wide).eps)


def pinv(a: Any, rtol: float | None = None) -> Any:
    """Moore-Penrose pseudo-inverse of matrices.

    dy = -y da y + y y^T da^T (1 - a y) + (1 - y a) da^T y^T y, at constant rank.

    Arguments: a of shape (..., m, n), real; rtol, a plain number: singular values up to rtol times
    the largest count as 0, by default max(m, n) times the dtype's epsilon.
    Returns shape (..., n, m). Where the rank changes y is not continuous; the derivative there is
    the one at constant rank.
    Raises ShapeError for fewer than two axes, or complex matrices.
    """
    a = matrix("PINV", a)
    return bind("PINV", a, rtol=_cutoff(a, rtol))


def _lstsq_spec(a: Spec, b: Spec, *, rtol: float) -> Spec:
    del rtol
    check_matrix("LSTSQ", a, REAL_KINDS)
    if b.ndim != a.ndim or b.shape[:-1] != a.shape[:-1] or a.dtype != b.dtype:
        raise ShapeError(
            f"LSTSQ cannot fit {a} x = {b}",
            "in op LSTSQ",
            "the right-hand side is (m,) or (..., m, k) for matrices (..., m, n), of one dtype",
        )
    return b.with_shape((*b.shape[:-2], a.shape[-1], b.shape[-1]))


def _lstsq_body(a: Any, b: Any, *, rtol: float) -> Any:
    return product(bind("PINV", a, rtol=rtol), b)


composite("LSTSQ", widened_body(_lstsq_body), spec=_lstsq_spec)


def lstsq(a: Any, b: Any, rtol: float | None = None) -> Any:
    """Least-squares solution of a x = b of least norm: the first result of `np.linalg.lstsq`.

    x = a^+ b.

    Arguments: a of shape (..., m, n), real; b of shape (m,) or (..., m, k); rtol as in `pinv`.
    Returns shape (n,) or (..., n, k). Derivatives are those at constant rank.
    Raises ShapeError for shapes that do not fit.
    """
    a, b = promote(a, b, inexact=True)
    a = matrix("LSTSQ", a)
    vector = np.ndim(b) == 1
    x = bind("LSTSQ", a, column(b) if vector else b, rtol=_cutoff(a, rtol))
    return without_column(x, vector)


# --- MATRIX_NORM ---------------------------------------------------------------------------

NORMS = ("fro", "nuc", "1", "-1", "2", "-2", "inf", "-inf")


def _norm_spec(a: Spec, *, ord: str) -> Spec:
    check_matrix("MATRIX_NORM", a, REAL_KINDS)
    if ord not in NORMS:
        raise ShapeError(
            f"MATRIX_NORM has no norm {ord!r}", "in op MATRIX_NORM", f"use one of {NORMS}"
        )
    return a.with_shape(a.shape[:-2])


def _norm_body(a: Any, *, ord: str) -> Any:
    if ord == "fro":
        return bind("NORM", a, ord=2.0, axis=(np.ndim(a) - 2, np.ndim(a) - 1), keepdims=False)
    if ord in ("nuc", "2", "-2"):
        s = bind("SVD", a, canonical=False)[1]
        return total(s, -1) if ord == "nuc" else (smallest if ord == "-2" else largest)(s, -1)
    sums = total(absolute(a), -2 if ord in ("1", "-1") else -1)
    return (smallest if ord.startswith("-") else largest)(sums, -1)


composite("MATRIX_NORM", widened_body(_norm_body), spec=_norm_spec)


def matrix_norm(a: Any, ord: Any = "fro") -> Any:
    """Norm of matrices: `np.linalg.norm` over the last two axes.

    Arguments: a of shape (..., m, n), real; ord "fro" (root of the sum of squares), "nuc" (sum of
    singular values), 2 or -2 (largest, smallest singular value), 1 or -1 (largest, smallest column
    sum of magnitudes), inf or -inf (row sums). Returns shape (...).
    Ties between columns, rows or singular values share the gradient as MAX and ABS do.
    Raises ShapeError for fewer than two axes, complex matrices, or another ord.
    """
    name = ord if isinstance(ord, str) else {np.inf: "inf", -np.inf: "-inf"}.get(ord, str(ord))
    return bind("MATRIX_NORM", matrix("MATRIX_NORM", a), ord=name)
