"""NumPy's functions of polynomial coefficients, highest power first."""

from typing import Any

import numpy as np

from autodiff import ops
from autodiff.errors import ShapeError
from autodiff.numpy_api import implements


def _valued(x: Any) -> Any:
    return x if hasattr(x, "dtype") else np.asarray(x)


@implements(np.polyval)
def _polyval(p: Any, x: Any) -> Any:
    """Horner's rule, highest power first."""
    p = _valued(p)
    y = ops.zeros_like(x) if hasattr(x, "dtype") else 0.0
    for i in range(p.shape[0]):
        y = y * x + p[i]
    return y


@implements(np.polyfit)
def _polyfit(
    x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    """Least squares by the columns x^deg ... 1, each scaled to length 1, as NumPy's."""
    if full or cov is not False or np.ndim(deg) or deg < 0:
        raise ShapeError(
            "np.polyfit of traced values with full=True, cov=True, or a degree that is no int",
            "in np.polyfit",
            "fit alone: np.polyfit(x, y, deg); np.linalg.lstsq has residuals and rank",
        )
    x, y = (_valued(v) + 0.0 for v in (x, y))
    if np.ndim(x) != 1 or np.ndim(y) not in (1, 2) or len(x) != len(y) or not len(x):
        raise ShapeError(
            f"np.polyfit takes a vector x and values y at it, got {np.shape(x)} and {np.shape(y)}",
            "in np.polyfit",
            "y is of shape (n,) or (n, k) for x of shape (n,)",
        )
    columns = np.stack([x**k for k in range(int(deg), 0, -1)] + [ops.ones_like(x)], axis=1)
    if w is not None:
        w = _valued(w)
        columns = columns * w[:, None]
        y = y * (w[:, None] if np.ndim(y) == 2 else w)
    scale = ops.norm(columns, 2, 0)
    cutoff = len(x) * np.finfo(x.dtype).eps if rcond is None else rcond
    found = ops.lstsq(columns / scale, y, cutoff)
    return found / (scale[:, None] if np.ndim(y) == 2 else scale)


@implements(np.vander)
def _vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    x = ops.cast(x, np.promote_types(x.dtype, int))  # as NumPy's, which multiplies by an int
    columns = [ops.ones_like(x)]
    for _ in range((x.shape[0] if N is None else N) - 1):
        columns.append(columns[-1] * x)
    return ops.stack(columns if increasing else columns[::-1], 1)


@implements(np.polyadd)
def _polyadd(a1: Any, a2: Any) -> Any:
    a1, a2 = np.atleast_1d(_valued(a1)), np.atleast_1d(_valued(a2))
    n = max(a1.shape[0], a2.shape[0])
    return ops.pad(a1, n - a1.shape[0], 0) + ops.pad(a2, n - a2.shape[0], 0)


@implements(np.polysub)
def _polysub(a1: Any, a2: Any) -> Any:
    return _polyadd(a1, -np.atleast_1d(_valued(a2)))


@implements(np.polymul)
def _polymul(a1: Any, a2: Any) -> Any:
    return np.convolve(np.atleast_1d(_valued(a1)), np.atleast_1d(_valued(a2)))


@implements(np.polyder)
def _polyder(p: Any, m: int = 1) -> Any:
    for _ in range(m):
        p = p[:-1] * np.arange(p.shape[0] - 1, 0, -1)
    return p


@implements(np.polyint)
def _polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    constants = np.zeros(m) if k is None else np.broadcast_to(np.atleast_1d(_valued(k)), (m,))
    for i in range(m):
        head = p / np.arange(p.shape[0], 0, -1)
        p = ops.concatenate([head, constants[i : i + 1]])
    return p
