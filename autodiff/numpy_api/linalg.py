"""NumPy's linear algebra.

Factors keep LAPACK's signs, so that a traced function has the values of the same call on arrays
(`autodiff.ops.qr`, `eigh` and `svd` normalise them), but for eigh(UPLO="U"), which is computed from
the transpose. A singular or indefinite matrix gives NaN, where NumPy raises.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from autodiff import ops
from autodiff.errors import ShapeError, TracerError
from autodiff.numpy_api import FUNCTIONS, implements
from autodiff.ops.linalg import swapped
from autodiff.ops.shape import normal_axes

_ONE = np.eye(1)
QRResult, EighResult = type(np.linalg.qr(_ONE)), type(np.linalg.eigh(_ONE))
SVDResult, SlogdetResult = type(np.linalg.svd(_ONE)), type(np.linalg.slogdet(_ONE))


def _square(m: Any) -> Any:
    """A vector as the matrix of equal rows that NumPy's tril and triu take it for."""
    return ops.broadcast_to(m, (m.shape[0], m.shape[0])) if m.ndim == 1 else m


FUNCTIONS.update(
    {
        np.tril: lambda m, k=0: ops.tril(_square(m), k),
        np.triu: lambda m, k=0: ops.triu(_square(m), k),
        np.linalg.solve: lambda a, b: ops.solve(a, b),
        np.linalg.inv: lambda a: ops.inv(a),
        np.linalg.det: lambda a: ops.det(a),
        np.linalg.slogdet: lambda a: SlogdetResult(*ops.slogdet(a)),
        np.linalg.matrix_power: lambda a, n: ops.matrix_power(a, n),
        np.linalg.matmul: lambda x1, x2: ops.matmul(x1, x2),
        np.linalg.outer: lambda x1, x2: ops.outer(x1, x2),
        np.linalg.cross: lambda x1, x2, axis=-1: np.cross(x1, x2, axis=axis),
        np.linalg.tensordot: lambda x1, x2, axes=2: np.tensordot(x1, x2, axes),
        np.linalg.matrix_transpose: lambda x: swapped(x),
        np.linalg.svdvals: lambda x: ops.svd(x, canonical=False)[1],
    }
)


def _refuse(what: str, fix: str) -> NoReturn:
    from autodiff.trace import quoted, user_line

    raise TracerError(f"{what} of a traced value is not supported", quoted(user_line()), fix)


@implements(np.linalg.vecdot)
def _vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    return np.sum(np.conj(x1) * x2, axis=axis)


# --- decompositions ------------------------------------------------------------------------


@implements(np.linalg.cholesky)
def _cholesky(a: Any, /, *, upper: bool = False) -> Any:
    return swapped(ops.cholesky(swapped(a))) if upper else ops.cholesky(a)


@implements(np.linalg.qr)
def _qr(a: Any, mode: str = "reduced") -> Any:
    m, n = np.shape(a)[-2:]
    if mode == "r":
        return ops.qr(a, canonical=False)[1]
    if mode == "reduced" or (mode == "complete" and m <= n):
        return QRResult(*ops.qr(a, canonical=False))
    return _refuse(f"numpy.linalg.qr(mode={mode!r})", "use mode='reduced' or 'r'")


def _triangle_read(a: Any, uplo: str) -> Any:
    if uplo.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    return a if uplo.upper() == "L" else swapped(a)


@implements(np.linalg.eigh)
def _eigh(a: Any, UPLO: str = "L") -> Any:
    return EighResult(*ops.eigh(_triangle_read(a, UPLO), canonical=False))


@implements(np.linalg.eigvalsh)
def _eigvalsh(a: Any, UPLO: str = "L") -> Any:
    return ops.eigvalsh(_triangle_read(a, UPLO))


@implements(np.linalg.svd)
def _svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    if hermitian:
        _refuse("numpy.linalg.svd(hermitian=True)", "use hermitian=False, or numpy.linalg.eigh")
    if not compute_uv:
        return ops.svd(a, canonical=False)[1]
    if full_matrices and np.shape(a)[-1] != np.shape(a)[-2]:
        _refuse(
            f"numpy.linalg.svd with full_matrices=True and shape {np.shape(a)}",
            "pass full_matrices=False: the completing vectors are arbitrary",
        )
    return SVDResult(*ops.svd(a, canonical=False))


# --- least squares and rank ----------------------------------------------------------------


@implements(np.linalg.pinv)
def _pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = 1e-15) -> Any:
    del hermitian
    return ops.pinv(a, rtol if rcond is None else rcond)


@implements(np.linalg.lstsq)
def _lstsq(a: Any, b: Any, rcond: float | None = None) -> Any:
    """The residuals are those of a matrix of full rank, which alone has them."""
    m, n = np.shape(a)[-2:]
    x = ops.lstsq(a, b, rcond)
    s = ops.svd(a, canonical=False)[1]
    cutoff = np.finfo(s.dtype).eps * max(m, n) if rcond is None else rcond
    rank = np.sum(s > cutoff * np.max(s, initial=0.0))
    left = b - ops.matmul(a, x)
    residuals = np.sum(left * left, axis=0) if m > n else np.zeros(0, s.dtype)
    return x, np.reshape(residuals, -1), rank, s


@implements(np.linalg.matrix_rank)
def _matrix_rank(
    A: Any, tol: Any = None, hermitian: bool = False, *, rtol: float | None = None
) -> Any:
    del hermitian
    if np.ndim(A) < 2:
        return np.any(A != 0).astype(np.int64)
    s = ops.svd(A, canonical=False)[1]
    if tol is None:
        scale = max(np.shape(A)[-2:]) * np.finfo(s.dtype).eps if rtol is None else rtol
        tol = np.max(s, axis=-1, keepdims=True, initial=0.0) * scale
    else:
        tol = np.reshape(np.asarray(tol), (*np.shape(tol), 1))
    return np.sum(s > tol, axis=-1)


# --- norms ---------------------------------------------------------------------------------


@implements(np.linalg.norm)
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    n = np.ndim(x)
    if axis is None and (ord is None or (ord in ("f", "fro") and n == 2) or (ord == 2 and n == 1)):
        return ops.norm(x, 2, None, keepdims)
    axes = normal_axes(tuple(range(n)) if axis is None else axis, n)
    if len(axes) == 1:
        return ops.norm(x, 2 if ord is None else ord, axes[0], keepdims)
    if len(axes) != 2:
        raise ShapeError(
            f"a norm is over one or two axes, not {len(axes)}",
            f"in numpy.linalg.norm, operand of shape {np.shape(x)}",
            "name them: axis=-1 for vectors, axis=(-2, -1) for matrices",
        )
    if ord in (None, "f", "fro"):
        return ops.norm(x, 2, axes, keepdims)
    order = (*(i for i in range(n) if i not in axes), *axes)
    out = ops.matrix_norm(ops.transpose(x, order), ord)
    return np.expand_dims(out, axes) if keepdims else out


@implements(np.linalg.vector_norm)
def _vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    return ops.norm(x, ord, axis, keepdims)


@implements(np.linalg.matrix_norm)
def _matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return _norm(x, ord, (-2, -1), keepdims)


@implements(np.linalg.cond)
def _cond(x: Any, p: Any = None) -> Any:
    if p in (None, 2, -2):
        s = ops.svd(x, canonical=False)[1]
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    return _norm(x, p, (-2, -1)) * _norm(ops.inv(x), p, (-2, -1))


# --- products and tensor equations ---------------------------------------------------------


@implements(np.linalg.multi_dot)
def _multi_dot(arrays: Sequence[Any]) -> Any:
    values = list(arrays)
    if len(values) < 2:
        raise ShapeError(
            f"multi_dot takes two arrays at least, got {len(values)}",
            "in numpy.linalg.multi_dot",
            "use the array itself",
        )
    row, column = np.ndim(values[0]) == 1, np.ndim(values[-1]) == 1
    if row:
        values[0] = np.reshape(values[0], (1, -1))
    if column:
        values[-1] = np.reshape(values[-1], (-1, 1))
    out = _chain(values, _cuts([np.shape(v) for v in values]), 0, len(values) - 1)
    kept = np.shape(out)[int(row) : 1 if column else 2]
    return np.reshape(out, kept)


def _cuts(shapes: Sequence[tuple[int, ...]]) -> dict[tuple[int, int], int]:
    """Where to cut each part of a product of matrices so that it takes fewest multiplications."""
    extents = [*(s[0] for s in shapes), shapes[-1][1]]
    cost = {(i, i): 0 for i in range(len(shapes))}
    cuts = {}
    for width in range(1, len(shapes)):
        for i in range(len(shapes) - width):
            j = i + width
            options = [
                (cost[i, k] + cost[k + 1, j] + extents[i] * extents[k + 1] * extents[j + 1], k)
                for k in range(i, j)
            ]
            cost[i, j], cuts[i, j] = min(options)
    return cuts


def _chain(values: Sequence[Any], cuts: dict[tuple[int, int], int], i: int, j: int) -> Any:
    if i == j:
        return values[i]
    k = cuts[i, j]
    return ops.matmul(_chain(values, cuts, i, k), _chain(values, cuts, k + 1, j))


@implements(np.linalg.tensorsolve)
def _tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    if axes is not None:
        moved = normal_axes(axes, np.ndim(a))
        a = ops.transpose(a, (*(i for i in range(np.ndim(a)) if i not in moved), *moved))
    n = int(np.prod(np.shape(b), dtype=np.int64))
    unknown = np.shape(a)[np.ndim(b) :]
    return np.reshape(ops.solve(np.reshape(a, (n, -1)), np.ravel(b)), unknown)


@implements(np.linalg.tensorinv)
def _tensorinv(a: Any, ind: int = 2) -> Any:
    first, rest = np.shape(a)[:ind], np.shape(a)[ind:]
    n = int(np.prod(first, dtype=np.int64))
    return np.reshape(ops.inv(np.reshape(a, (n, -1))), (*rest, *first))
