"""NumPy's products."""

import string
from typing import Any

import numpy as np

from autodiff import ops
from autodiff.errors import ShapeError
from autodiff.families import whole
from autodiff.numpy_api import UFUNCS, implements
from autodiff.ops.contraction import diagonal_last
from autodiff.ops.shape import normal_axes

UFUNCS[np.matmul] = ops.matmul


@implements(np.dot)
def _dot(a: Any, b: Any) -> Any:
    return ops.dot(a, b)


@implements(np.vdot)
def _vdot(a: Any, b: Any, /) -> Any:
    return ops.dot(np.conj(np.ravel(a)), np.ravel(b))


def _vecdot(x1: Any, x2: Any, /) -> Any:
    return ops.einsum("...i,...i->...", np.conj(x1), x2)


def _matvec(x1: Any, x2: Any, /) -> Any:
    return ops.einsum("...ij,...j->...i", x1, x2)


def _vecmat(x1: Any, x2: Any, /) -> Any:
    return ops.einsum("...i,...ij->...j", np.conj(x1), x2)


# matvec and vecmat came with NumPy 2.2
for _name, _function in (("vecdot", _vecdot), ("matvec", _matvec), ("vecmat", _vecmat)):
    if hasattr(np, _name):
        UFUNCS[getattr(np, _name)] = _function


@implements(np.inner)
def _inner(a: Any, b: Any, /) -> Any:
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return a * b
    return _tensordot(a, b, (-1, -1))


@implements(np.outer)
def _outer(a: Any, b: Any) -> Any:
    return ops.outer(a, b)


@implements(np.tensordot)
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    if isinstance(axes, int | np.integer):
        n = int(axes)
        axes = (range(-n, 0), range(n))
    pairs = tuple(
        normal_axes(x if isinstance(x, int | np.integer) else tuple(x), np.ndim(v))
        for x, v in zip(axes, (a, b), strict=True)
    )
    if len(pairs[0]) != len(pairs[1]):
        raise ShapeError(
            f"tensordot axes {axes} are not pairs",
            "in numpy.tensordot",
            "name as many of b as of a",
        )
    return ops.dot_general(a, b, (pairs, ((), ())))


@implements(np.einsum)
def _einsum(*operands: Any, optimize: Any = False, dtype: Any = None, **kwargs: Any) -> Any:
    del optimize, kwargs
    if not isinstance(operands[0], str):
        operands = _lettered(operands)
    out = ops.einsum(operands[0], *operands[1:])
    return out if dtype is None else ops.cast(out, dtype)


def _lettered(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The call einsum(x, [0, 1], y, [1, 2], [0, 2]) with letters for the numbers."""
    # capitals first: letters then sort as their numbers do
    letters = string.ascii_uppercase + string.ascii_lowercase

    def term(labels: Any) -> str:
        return "".join("..." if c is Ellipsis else letters[c] for c in labels)

    count = len(operands) // 2
    left = ",".join(term(labels) for labels in operands[1 : 2 * count : 2])
    tail = f"->{term(operands[-1])}" if len(operands) % 2 else ""
    return (left + tail, *operands[: 2 * count : 2])


@implements(np.kron)
def _kron(a: Any, b: Any) -> Any:
    return ops.kron(a, b)


@implements(np.cross)
def _cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Any:
    return ops.cross(a, b, axisa, axisb, axisc, axis)


# --- diagonals -----------------------------------------------------------------------------


@implements(np.diagonal)
def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    i, j = normal_axes((axis1, axis2), a.ndim)
    offset = whole(offset, "offset")
    rows, columns = a.shape[i], a.shape[j]
    first = (max(-offset, 0), max(offset, 0))
    n = max(min(rows - first[0], columns - first[1]), 0)
    low = [first[0] if k == i else first[1] if k == j else 0 for k in range(a.ndim)]
    high = [low[k] + n if k in (i, j) else a.shape[k] for k in range(a.ndim)]
    if n == 0:
        low = [0 if k in (i, j) else at for k, at in enumerate(low)]
        high = [0 if k in (i, j) else end for k, end in enumerate(high)]
    return diagonal_last(ops.slice_(a, low, high), i, j)


@implements(np.linalg.diagonal)
def _linalg_diagonal(x: Any, /, *, offset: int = 0) -> Any:
    return _diagonal(x, offset, -2, -1)


@implements(np.trace)
def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    return np.sum(_diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


@implements(np.linalg.trace)
def _linalg_trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    return _trace(x, offset, -2, -1, dtype)


@implements(np.diag)
def _diag(v: Any, k: int = 0) -> Any:
    if v.ndim == 2:
        return _diagonal(v, k)
    if v.ndim != 1:
        raise ShapeError(
            f"diag needs a vector or a matrix, got shape {v.shape}",
            "in numpy.diag",
            "for stacks of matrices use np.diagonal",
        )
    return _matrix_of(v, k)


def _matrix_of(v: Any, k: int) -> Any:
    """The matrix with a vector on its k-th diagonal: the vector with gaps, cut into rows."""
    n, side = v.size, v.size + abs(k)
    if n == 0:
        return np.zeros((side, side), v.dtype)
    start = k if k >= 0 else -k * side
    spread = ops.pad(v, start, side * side - start - (n - 1) * (side + 1) - 1, side)
    return ops.reshape(spread, (side, side))


@implements(np.diagflat)
def _diagflat(v: Any, k: int = 0) -> Any:
    return _matrix_of(np.ravel(v), k)


# --- convolution of sequences --------------------------------------------------------------


@implements(np.convolve)
def _convolve(a: Any, v: Any, mode: str = "full") -> Any:
    a, v = np.atleast_1d(a), np.atleast_1d(v)
    if a.size < v.size:
        a, v = v, a
    if not v.size:
        raise ShapeError("a convolution needs elements", "in numpy.convolve", "pass longer arrays")
    n, m = a.size, v.size
    lead = {"full": m - 1, "same": (m - 1) // 2 + (m - 1) % 2, "valid": 0}
    trail = {"full": m - 1, "same": (m - 1) // 2, "valid": 0}
    if mode not in lead:
        raise ValueError(f"mode {mode!r} is not one of 'full', 'same', 'valid'")
    padded = ops.pad(a, lead[mode], trail[mode])
    count = n + lead[mode] + trail[mode] - m + 1
    windows = np.arange(count)[:, None] + np.arange(m)
    return ops.dot(ops.gather(padded, windows), ops.reverse(v))


@implements(np.correlate)
def _correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    a, v = np.atleast_1d(a), np.conj(np.atleast_1d(v))
    if a.size < v.size:
        return ops.reverse(_correlate_longer(v, a, mode))
    return _correlate_longer(a, v, mode)


def _correlate_longer(a: Any, v: Any, mode: str) -> Any:
    return _convolve(a, ops.reverse(v), mode)
