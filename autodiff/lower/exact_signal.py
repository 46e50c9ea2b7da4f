"""Exact rules of convolutions, sliding windows and Fourier transforms."""

from fractions import Fraction
from typing import Any

import numpy as np

from autodiff.kernels.convolution import spread
from autodiff.lower.exact_arrays import Array, Call, each, rule


def _strided(starts: Any, counts: Any, steps: Any) -> Any:
    rows = zip(starts, counts, steps, strict=True)
    return (..., *(slice(a, a + (n - 1) * s + 1 if n else a, s) for a, n, s in rows))


def _output(extents: Any, window: Any, stride: Any, dilation: Any) -> list[int]:
    rows = zip(extents, window, stride, dilation, strict=True)
    return [max((n - (w - 1) * d - 1) // s + 1, 0) for n, w, s, d in rows]


@rule("CONV")
def _conv(call: Call, x: Array, k: Array, **p: Any) -> Any:
    """One product of channels per tap."""
    groups, taps = p["groups"], k.shape[2:]
    x = spread(x, p["padding"], p["lhs_dilation"])
    out = _output(x.shape[2:], taps, p["stride"], p["rhs_dilation"])
    total = np.full((x.shape[0], groups, k.shape[0] // groups, *out), call.number.of(0), object)
    grouped = x.reshape((x.shape[0], groups, k.shape[1], *x.shape[2:]))
    weights = k.reshape((groups, k.shape[0] // groups, *k.shape[1:]))
    for tap in np.ndindex(*taps):
        starts = [t * d for t, d in zip(tap, p["rhs_dilation"], strict=True)]
        part = grouped[_strided(starts, out, p["stride"])]
        total = total + np.einsum("goc,ngc...->ngo...", weights[(..., *tap)], part)
    return total.reshape((x.shape[0], k.shape[0], *out))


@rule("WINDOWS")
def _windows(call: Call, x: Array, *, window: Any, stride: Any, dilation: Any) -> Any:
    del call
    lead = x.shape[: x.ndim - len(window)]
    out = _output(x.shape[len(lead) :], window, stride, dilation)
    result = np.empty((*lead, *window, *out), object)
    for tap in np.ndindex(*window):
        starts = [t * d for t, d in zip(tap, dilation, strict=True)]
        places = (..., *tap, *(slice(None),) * len(window))
        result[places] = x[_strided(starts, out, stride)]
    return result


@rule("CONVOLVE")
def _convolve(call: Call, x: Array, y: Array) -> Any:
    n, m = x.shape[-1], y.shape[-1]
    lead = np.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    result = np.full((*lead, n + m - 1), call.number.of(0), object)
    for j in range(m):
        result[..., j : j + n] = result[..., j : j + n] + x * y[..., j : j + 1]
    return result


# --- Fourier transforms --------------------------------------------------------------------


def _transform(call: Call, x: Array, axis: int, sign: int, scale: Any, count: int) -> Array:
    """sum_j x_j exp(sign 2 pi i j k / n) times a scale, for k < count."""
    number, n = call.number, x.shape[axis]

    def root(j: int, k: int) -> Any:
        turns = Fraction(2 * sign * j * k, n) % 2
        angle = number.of(turns.numerator) / turns.denominator
        parts = angle.call("cos_pi"), angle.call("sin_pi")
        return number(number.complex_of(parts[0].v, parts[1].v))

    table = np.empty((n, count), object)
    for j, k in np.ndindex(n, count):
        table[j, k] = root(j, k) * scale
    rows = np.moveaxis(each(number.of, x), axis, -1)
    return np.moveaxis(rows @ table, -1, axis)


def _scale(call: Call, n: int, norm: Any, inverse: bool) -> Any:
    one = call.number.of(1)
    if norm == "ortho":
        return one / call.number.of(n).call("sqrt")
    whole = (norm == "forward") != inverse
    return one / n if whole else one


@rule("FFT")
def _fft(call: Call, x: Array, *, axis: int, norm: Any) -> Any:
    n = x.shape[axis]
    return _transform(call, x, axis, -1, _scale(call, n, norm, False), n)


@rule("IFFT")
def _ifft(call: Call, x: Array, *, axis: int, norm: Any) -> Any:
    n = x.shape[axis]
    return _transform(call, x, axis, 1, _scale(call, n, norm, True), n)


@rule("RFFT")
def _rfft(call: Call, x: Array, *, axis: int, norm: Any) -> Any:
    n = x.shape[axis]
    return _transform(call, x, axis, -1, _scale(call, n, norm, False), n // 2 + 1)


@rule("IRFFT")
def _irfft(call: Call, x: Array, *, n: int, axis: int, norm: Any) -> Any:
    """The frequencies' mirror image completes them; at 0 and n / 2 the imaginary part is unread."""
    rows = np.moveaxis(each(call.number.of, x), axis, -1)
    whole = np.full((*rows.shape[:-1], n), call.number.of(0), object)
    for k in range(min(n // 2 + 1, rows.shape[-1])):
        own = rows[..., k]
        if k in (0, n - k):
            whole[..., k] = each(lambda z: z.real, own)
        else:
            whole[..., k] = own
            whole[..., n - k] = each(lambda z: z.conjugate(), own)
    result = _transform(call, whole, -1, 1, _scale(call, n, norm, True), n)
    return np.moveaxis(each(lambda z: z.real, result), -1, axis)
