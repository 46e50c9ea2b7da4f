"""Fourier transforms and convolution.

Transposes pair cotangents and tangents by Re sum(u v), without conjugation: the matrix of a
discrete Fourier transform is symmetric, so FFT and IFFT are their own transposes.
"""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import add_tangents, align, axis_tuple, batch_leading, linear, promote, whole
from autodiff.kernels import signal as kernels
from autodiff.op import Op, define
from autodiff.ops.elementwise import cast
from autodiff.ops.shape import concatenate, pad, reverse, slice_
from autodiff.program import Spec
from autodiff.reverse import Undefined
from autodiff.trace import bind

__all__ = [
    "convolve",
    "fft",
    "fftshift",
    "ifft",
    "ifftshift",
    "irfft",
    "rfft",
]

NORMS = ("backward", "ortho", "forward")
OTHER_NORM = {"backward": "forward", "ortho": "ortho", "forward": "backward"}

# --- FFT, IFFT -----------------------------------------------------------------------------


def complex_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The complex dtype whose parts hold values of this dtype: complex64 up to float32."""
    if dtype.kind == "c":
        return dtype
    single = dtype.kind in "fV" and dtype.itemsize <= 4
    return np.dtype(np.complex64 if single else np.complex128)


def _check_transform(kind: str, x: Spec, axis: int, norm: str, kinds: str) -> None:
    if norm not in NORMS:
        raise ShapeError(
            f"{kind} has no norm {norm!r}", f"in op {kind}", f"use one of {', '.join(NORMS)}"
        )
    if not 0 <= axis < x.ndim or x.shape[axis] < 1 or x.dtype.kind not in kinds:
        raise ShapeError(
            f"{kind} cannot transform {x} along axis {axis}",
            f"in op {kind}, operand {x}",
            "the axis needs one element at least; complex values for fft, ifft and irfft, real "
            "ones for rfft",
        )


def _fft_spec(kind: str) -> Any:
    def spec(x: Spec, *, axis: int, norm: str) -> Spec:
        _check_transform(kind, x, axis, norm, "c")
        return x

    return spec


def _fft_transpose(kind: str) -> Any:
    def rule(ct: Any, inputs: Any, *, axis: int, norm: str) -> tuple[Any, ...]:
        del inputs
        return (bind(kind, ct, axis=axis, norm=norm),)

    return rule


for _kind, _impl in (("FFT", kernels.fft), ("IFFT", kernels.ifft)):
    linear(
        _kind,
        _impl,
        spec=_fft_spec(_kind),
        transpose=_fft_transpose(_kind),
        batch=batch_leading(_kind, shift=("axis",)),
        jax=f"jnp.fft.{_kind.lower()}",
    )


def _resized(x: Any, n: int, axis: int) -> Any:
    """Cut or padded with zeros at its end to n elements along an axis."""
    shape = np.shape(x)
    if shape[axis] > n:
        return slice_(x, 0, tuple(n if i == axis else e for i, e in enumerate(shape)))
    return pad(x, 0, tuple(n - e if i == axis else 0 for i, e in enumerate(shape)))


def _prepared(kind: str, x: Any, n: int | None, axis: int, norm: str | None) -> Any:
    """Operand of the right extent, its axis and norm."""
    (x,) = promote(x, inexact=True)
    (axis,) = axis_tuple(axis, np.ndim(x), kind)
    n = np.shape(x)[axis] if n is None else whole(n, "n")
    if n < 1:
        raise ShapeError(
            f"{kind} needs one point at least, got n={n}",
            f"in op {kind}, operand of shape {np.shape(x)}, axis {axis}",
            "give n >= 1, or transform a non-empty axis",
        )
    return _resized(x, n, axis), {"axis": axis, "norm": norm or "backward"}


def _complex_transform(kind: str, x: Any, n: Any, axis: int, norm: str | None) -> Any:
    x, params = _prepared(kind, x, n, axis, norm)
    return bind(kind, cast(x, complex_dtype(x.dtype)), **params)


def fft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Discrete Fourier transform along an axis: `np.fft.fft`.

    y_k = sum_j x_j exp(-2 pi i j k / n), times 1, n^-1/2 or n^-1 for norm "backward" (or None),
    "ortho", "forward".

    Arguments: x, real or complex; n, the number of points: the axis is cut or padded with zeros
    to it. Returns complex values, complex64 for float32 and narrower. Linear; its own transpose.
    Raises ShapeError for n < 1 or another norm.
    """
    return _complex_transform("FFT", x, n, axis, norm)


def ifft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Inverse discrete Fourier transform along an axis: `np.fft.ifft`.

    y_j = sum_k x_k exp(2 pi i j k / n), times n^-1, n^-1/2 or 1 for norm "backward" (or None),
    "ortho", "forward".

    Arguments, result and errors as for `fft`. Linear; its own transpose.
    """
    return _complex_transform("IFFT", x, n, axis, norm)


# --- RFFT, IRFFT ---------------------------------------------------------------------------


def _rfft_spec(x: Spec, *, axis: int, norm: str) -> Spec:
    _check_transform("RFFT", x, axis, norm, "fV")
    shape = tuple(n // 2 + 1 if i == axis else n for i, n in enumerate(x.shape))
    return Spec(shape, complex_dtype(x.dtype))


def _rfft_transpose(ct: Any, inputs: Any, *, axis: int, norm: str) -> tuple[Any, ...]:
    (x,) = inputs
    # rows 0 .. n // 2 of the symmetric n x n matrix, transposed
    full = bind("FFT", _resized(ct, x.shape[axis], axis), axis=axis, norm=norm)
    return (cast(bind("REAL", full), x.dtype),)


linear(
    "RFFT",
    kernels.rfft,
    spec=_rfft_spec,
    transpose=_rfft_transpose,
    batch=batch_leading("RFFT", shift=("axis",)),
    jax="rules:rfft",
)


def rfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The non-negative frequencies of a real signal's transform: `np.fft.rfft`.

    y_k = sum_j x_j exp(-2 pi i j k / n) for k = 0 ... n // 2; norm as in `fft`.

    Arguments: x, real; n, the number of points: the axis is cut or padded with zeros to it.
    Returns complex values with n // 2 + 1 elements along the axis, complex64 for float32.
    Linear; the transpose is Re fft of the cotangent padded with zeros to n.
    Raises ShapeError for complex x, n < 1 or another norm.
    """
    x, params = _prepared("RFFT", x, n, axis, norm)
    return bind("RFFT", x, **params)


def _irfft_spec(x: Spec, *, n: int, axis: int, norm: str) -> Spec:
    _check_transform("IRFFT", x, axis, norm, "c")
    if n < 1 or x.shape[axis] != n // 2 + 1:
        raise ShapeError(
            f"IRFFT to {n} points takes {n // 2 + 1} frequencies, got {x.shape[axis]}",
            f"in op IRFFT, operand {x}, axis {axis}",
            "autodiff.ops.irfft cuts or pads them",
        )
    shape = tuple(n if i == axis else e for i, e in enumerate(x.shape))
    return Spec(shape, np.dtype(f"f{x.dtype.itemsize // 2}"))


def _irfft_transpose(ct: Any, inputs: Any, *, n: int, axis: int, norm: str) -> tuple[Any, ...]:
    (x,) = inputs
    # every frequency stands for its conjugate too, but the first and, of an even n, the last
    weight = np.full(n // 2 + 1, 2.0)
    weight[0] = 1.0
    if n % 2 == 0:
        weight[-1] = 1.0
    shape = tuple(-1 if i == axis else 1 for i in range(len(x.shape)))
    spectrum = bind("CONJ", bind("RFFT", ct, axis=axis, norm=OTHER_NORM[norm]))
    return (cast(spectrum, x.dtype) * weight.reshape(shape).astype(x.dtype),)


linear(
    "IRFFT",
    kernels.irfft,
    spec=_irfft_spec,
    transpose=_irfft_transpose,
    batch=batch_leading("IRFFT", shift=("axis",)),
    jax="rules:irfft",
)


def irfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """A real signal from its non-negative frequencies: `np.fft.irfft`.

    y_j = 1/n (Re x_0 + 2 Re sum_k x_k exp(2 pi i j k / n)), k = 1 ... n // 2, the term n / 2 of an
    even n once; the imaginary parts of x_0 and x_(n/2) are not read and have derivative 0.

    Arguments: x, complex (or real); n, the number of points returned, by default 2 (m - 1) for m
    frequencies: these are cut or padded with zeros to n // 2 + 1. norm as in `ifft`.
    Returns real values with n elements along the axis, float32 for complex64. Linear.
    Raises ShapeError for n < 1 or another norm.
    """
    (x,) = promote(x, inexact=True)
    (axis,) = axis_tuple(axis, np.ndim(x), "IRFFT")
    points = 2 * (np.shape(x)[axis] - 1) if n is None else whole(n, "n")
    if points < 1:
        raise ShapeError(
            f"IRFFT needs one point at least, got n={points}",
            f"in op IRFFT, operand of shape {np.shape(x)}, axis {axis}",
            "give n >= 1",
        )
    x, params = _prepared("IRFFT", x, points // 2 + 1, axis, norm)
    return bind("IRFFT", cast(x, complex_dtype(x.dtype)), n=points, **params)


def _rolled(x: Any, shift: int, axis: int) -> Any:
    n = np.shape(x)[axis]
    if not n or not shift % n:
        return x
    at = n - shift % n
    low = tuple(at if i == axis else 0 for i in range(np.ndim(x)))
    high = tuple(at if i == axis else e for i, e in enumerate(np.shape(x)))
    return concatenate([slice_(x, low, np.shape(x)), slice_(x, 0, high)], axis)


def fftshift(x: Any, axes: Any = None) -> Any:
    """Frequencies reordered with zero in the middle: `np.fft.fftshift` (all axes by default)."""
    (x,) = promote(x)
    for axis in axis_tuple(axes, np.ndim(x), "FFTSHIFT"):
        x = _rolled(x, np.shape(x)[axis] // 2, axis)
    return x


def ifftshift(x: Any, axes: Any = None) -> Any:
    """The inverse of `fftshift`: `np.fft.ifftshift` (all axes by default)."""
    (x,) = promote(x)
    for axis in axis_tuple(axes, np.ndim(x), "IFFTSHIFT"):
        x = _rolled(x, -(np.shape(x)[axis] // 2), axis)
    return x


# --- CONVOLVE ------------------------------------------------------------------------------


def _convolve_spec(x: Spec, y: Spec) -> Spec:
    n, m = x.shape[-1:], y.shape[-1:]
    if not (n and m and n[0] and m[0]) or x.dtype != y.dtype or x.dtype.kind not in "iufcV":
        raise ShapeError(
            f"CONVOLVE cannot convolve {x} and {y}",
            "in op CONVOLVE",
            "operands have one element at least along their last axis, and one numeric dtype",
        )
    lead = np.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    return x.with_shape((*lead, n[0] + m[0] - 1))


def _convolve_jvp(primals: Any, tangents: Any, z: Any) -> Any:
    del z
    (x, y), (tx, ty) = primals, tangents
    left = None if tx is None else bind("CONVOLVE", tx, y)
    return add_tangents(left, None if ty is None else bind("CONVOLVE", x, ty))


def _correlated(ct: Any, other: Any, shape: tuple[int, ...]) -> Any:
    """sum_j ct_(i+j) other_j: the cotangent of one operand, summed to its shape."""
    m = np.shape(other)[-1]
    full = bind("CONVOLVE", ct, reverse(other, -1))
    *lead, _ = np.shape(full)
    out = slice_(full, (*(0,) * len(lead), m - 1), (*lead, m - 1 + shape[-1]))
    return out if np.shape(out) == shape else bind("SUM_TO", out, shape=shape)


def _convolve_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    x, y = inputs
    if isinstance(x, Undefined):
        return _correlated(ct, y, x.shape), None
    return None, _correlated(ct, x, y.shape)


def _convolve_batch(size: int, args: Any, batched: Any) -> tuple[Any, bool]:
    del size
    return bind("CONVOLVE", *align(args, batched)), True


define(
    Op(
        "CONVOLVE",
        _convolve_spec,
        impl=kernels.convolve,
        jvp=_convolve_jvp,
        transpose=_convolve_transpose,
        batch=_convolve_batch,
        jax="rules:convolve",
    )
)


def convolve(x: Any, y: Any, mode: str = "full") -> Any:
    """Discrete convolution along the last axis: `np.convolve`, with leading axes that broadcast.

    z_k = sum_j x_(k-j) y_j.

    Arguments: x of shape (..., n), y of shape (..., m), promoted; mode "full" (n + m - 1 elements),
    "same" (the middle max(n, m)) or "valid" (the |n - m| + 1 where both overlap fully).
    Bilinear. Products are in full precision on every device.
    Raises ShapeError for empty signals or another mode.
    """
    x, y = promote(x, y)
    z = bind("CONVOLVE", x, y)
    n, m = np.shape(x)[-1], np.shape(y)[-1]
    if mode not in ("full", "same", "valid"):
        raise ShapeError(
            f"CONVOLVE has no mode {mode!r}", "in op CONVOLVE", "use 'full', 'same' or 'valid'"
        )
    if mode == "full":
        return z
    start = min(n, m) - 1 if mode == "valid" else (min(n, m) - 1) // 2
    extent = abs(n - m) + 1 if mode == "valid" else max(n, m)
    *lead, _ = np.shape(z)
    return slice_(z, (*(0,) * len(lead), start), (*lead, start + extent))
