"""NumPy's Fourier transforms."""

from collections.abc import Callable
from typing import Any

import numpy as np

from autodiff import ops
from autodiff.numpy_api import FUNCTIONS, implements
from autodiff.ops.shape import normal_axes
from autodiff.ops.signal import OTHER_NORM

Extents = Any


def _one_axis(transform: Callable[..., Any]) -> Callable[..., Any]:
    def function(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
        return transform(a, n, axis, norm)

    return function


FUNCTIONS.update(
    {
        np.fft.fft: _one_axis(ops.fft),
        np.fft.ifft: _one_axis(ops.ifft),
        np.fft.rfft: _one_axis(ops.rfft),
        np.fft.irfft: _one_axis(ops.irfft),
        np.fft.fftshift: ops.fftshift,
        np.fft.ifftshift: ops.ifftshift,
    }
)


def _opposite(norm: str | None) -> str:
    name = norm or "backward"
    return OTHER_NORM.get(name, name)


@implements(np.fft.hfft)
def _hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    return ops.irfft(np.conj(a), n, axis, _opposite(norm))


@implements(np.fft.ihfft)
def _ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    return np.conj(ops.rfft(a, n, axis, _opposite(norm)))


def _plan(a: Any, s: Extents, axes: Any) -> list[tuple[int | None, int]]:
    """Points and axis of each of the transforms that make up one over several axes."""
    if axes is None:
        count = np.ndim(a) if s is None else len(s)
        axes = range(np.ndim(a) - count, np.ndim(a))
    axes = [normal_axes((axis,), np.ndim(a))[0] for axis in axes]
    extents: list[int | None] = [None] * len(axes) if s is None else list(s)
    if len(extents) != len(axes):
        raise ValueError("Shape and axes have different lengths.")
    # -1 stands for the axis' own extent
    return [
        (np.shape(a)[axis] if n == -1 else n, axis) for n, axis in zip(extents, axes, strict=True)
    ]


def _over_axes(transform: Callable[..., Any], default_axes: Any) -> Callable[..., Any]:
    """A complex transform over several axes, the last one first as in NumPy."""

    def function(a: Any, s: Extents = None, axes: Any = default_axes, norm: Any = None) -> Any:
        for n, axis in reversed(_plan(a, s, axes)):
            a = transform(a, n, axis, norm)
        return a

    return function


def _real_over_axes(default_axes: Any) -> Callable[..., Any]:
    def function(a: Any, s: Extents = None, axes: Any = default_axes, norm: Any = None) -> Any:
        *others, (n, axis) = _plan(a, s, axes)
        a = ops.rfft(a, n, axis, norm)
        for n, axis in reversed(others):
            a = ops.fft(a, n, axis, norm)
        return a

    return function


def _inverse_real_over_axes(default_axes: Any) -> Callable[..., Any]:
    def function(a: Any, s: Extents = None, axes: Any = default_axes, norm: Any = None) -> Any:
        *others, (n, axis) = _plan(a, s, axes)
        for points, at in others:
            a = ops.ifft(a, points, at, norm)
        return ops.irfft(a, n, axis, norm)

    return function


FUNCTIONS.update(
    {
        np.fft.fft2: _over_axes(ops.fft, (-2, -1)),
        np.fft.fftn: _over_axes(ops.fft, None),
        np.fft.ifft2: _over_axes(ops.ifft, (-2, -1)),
        np.fft.ifftn: _over_axes(ops.ifft, None),
        np.fft.rfft2: _real_over_axes((-2, -1)),
        np.fft.rfftn: _real_over_axes(None),
        np.fft.irfft2: _inverse_real_over_axes((-2, -1)),
        np.fft.irfftn: _inverse_real_over_axes(None),
    }
)
