"""Transposed convolutions (adjoints of convolutions as layers) and the causal depthwise one."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import composite, promote, whole
from autodiff.ops.convolution import Ints, adjoint_kernel, check_operands, operands
from autodiff.ops.geometry import Pairs, padding_pairs, per_spatial_axis, reach
from autodiff.ops.shape import concatenate, reshape, slice_
from autodiff.program import Spec
from autodiff.trace import bind

__all__ = ["causal_conv1d", "conv_transpose1d", "conv_transpose2d"]

# --- CONV_TRANSPOSE1D, CONV_TRANSPOSE2D ----------------------------------------------------


def _transposed_spec(kind: str) -> Any:
    def spec(
        x: Spec,
        k: Spec,
        *,
        stride: Ints,
        padding: Pairs,
        output_padding: Ints,
        dilation: Ints,
        groups: int,
        algorithm: str,
    ) -> Spec:
        del algorithm
        check_operands(kind, x, k, groups, x.shape[1] if x.ndim > 1 else 0, k.shape[0])
        windows = reach(k.shape[2:], dilation)
        rows = zip(reach(x.shape[2:], stride), windows, padding, output_padding, strict=True)
        out = tuple(n + w - 1 - low - high + extra for n, w, (low, high), extra in rows)
        if 0 in windows or 0 in x.shape[2:] or min(out) < 1:
            raise ShapeError(
                f"the result would have spatial extents {out}",
                f"in op {kind}, x of shape {x.shape}, kernel of shape {k.shape}",
                "pass less padding, and a kernel with at least one tap",
            )
        bound = tuple(map(max, stride, dilation))
        if any(e >= b for e, b in zip(output_padding, bound, strict=True)):
            raise ShapeError(
                f"output_padding {output_padding} is not below stride or dilation, {bound}",
                f"in op {kind}",
                "it names one of the input extents that the strided convolution maps to x's",
            )
        return x.with_shape((x.shape[0], k.shape[1] * groups, *out))

    return spec


def _transposed_body(
    x: Any,
    k: Any,
    *,
    stride: Ints,
    padding: Pairs,
    output_padding: Ints,
    dilation: Ints,
    groups: int,
    algorithm: str,
) -> Any:
    windows = reach(np.shape(k)[2:], dilation)
    rows = zip(windows, padding, output_padding, strict=True)
    return bind(
        "CONV",
        x,
        adjoint_kernel(k, groups),
        stride=(1,) * len(stride),
        padding=tuple((w - 1 - low, w - 1 - high + extra) for w, (low, high), extra in rows),
        lhs_dilation=stride,
        rhs_dilation=dilation,
        groups=groups,
        algorithm=algorithm,
    )


for _kind in ("CONV_TRANSPOSE1D", "CONV_TRANSPOSE2D"):
    composite(_kind, _transposed_body, spec=_transposed_spec(_kind))


def _transposed(
    axes: int,
    x: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    dilation: Any,
    groups: int,
    algorithm: str,
) -> Any:
    kind = f"CONV_TRANSPOSE{axes}D"
    x, k, _ = operands(kind, x, kernel, axes)
    step = per_spatial_axis(kind, "stride", stride, axes)
    gap = per_spatial_axis(kind, "dilation", dilation, axes)
    extra = per_spatial_axis(kind, "output_padding", output_padding, axes, low=0)
    windows = reach(np.shape(k)[2:], gap)
    full = tuple(n * s for n, s in zip(np.shape(x)[2:], step, strict=True))
    pairs = padding_pairs(kind, padding, full, windows, step)
    if isinstance(padding, str) and padding.upper() == "SAME":
        extra = tuple(max(s - w, 0) for s, w in zip(step, windows, strict=True))
    return bind(
        kind,
        x,
        k,
        stride=step,
        padding=pairs,
        output_padding=extra,
        dilation=gap,
        groups=whole(groups, "groups"),
        algorithm=algorithm,
    )


def conv_transpose1d(
    x: Any,
    kernel: Any,
    stride: Any = 1,
    padding: Any = "VALID",
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    algorithm: str = "default",
) -> Any:
    """One-dimensional `conv_transpose2d`: x (n, c, w), kernel (c, o / groups, k)."""
    return _transposed(1, x, kernel, stride, padding, output_padding, dilation, groups, algorithm)


def conv_transpose2d(
    x: Any,
    kernel: Any,
    stride: Any = 1,
    padding: Any = "VALID",
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    algorithm: str = "default",
) -> Any:
    """Two-dimensional transposed convolution: the adjoint of `conv2d` in its images.

    <conv2d(y, kernel), x> = <y, conv_transpose2d(x, kernel)>, without conjugation.

    Arguments: x of shape (n, c, h, w), the shape of that conv2d's result; kernel of shape
    (c, o / groups, kh, kw), that conv2d's own kernel, unflipped (as in PyTorch); stride, padding,
    dilation and groups are those of the conv2d, so that padding crops the result. A stride s > 1
    maps up to s input extents to one h: output_padding, below stride or dilation, is added to the
    smallest. "SAME" gives (h stride, w stride), with an output_padding of its own.
    Returns shape (n, o, h', w') with
    h' = (h - 1) stride + (kh - 1) dilation + 1 - low - high + output_padding.
    Bilinear. Raises ShapeError for channels or groups that do not fit, an empty result, and an
    output_padding out of range.
    """
    return _transposed(2, x, kernel, stride, padding, output_padding, dilation, groups, algorithm)


# --- CAUSAL_CONV1D -------------------------------------------------------------------------


def _causal_spec(x: Spec, k: Spec, state: Spec, *, algorithm: str) -> tuple[Spec, Spec]:
    del algorithm
    taps = k.shape[1] if k.ndim == 2 else 0
    fits = x.ndim == 3 and k.ndim == 2 and k.shape[0] == x.shape[1] and taps > 0
    if not fits or state.shape != (*x.shape[:2], taps - 1):
        raise ShapeError(
            f"x {x.shape}, a kernel {k.shape} and a state {state.shape} do not fit together",
            "in op CAUSAL_CONV1D",
            "x is (batch, channels, time), the kernel (channels, taps), the state "
            "(batch, channels, taps - 1)",
        )
    return x, state


def _causal_body(x: Any, k: Any, state: Any, *, algorithm: str) -> tuple[Any, Any]:
    batch, channels, steps = np.shape(x)
    taps = np.shape(k)[1]
    seen = concatenate([state, x], 2) if taps > 1 else x
    kernel = reshape(k, (channels, 1, taps))
    y = bind(
        "CONV",
        seen,
        kernel,
        stride=(1,),
        padding=((0, 0),),
        lhs_dilation=(1,),
        rhs_dilation=(1,),
        groups=channels,
        algorithm=algorithm,
    )
    end = (batch, channels, steps + taps - 1)
    return y, slice_(seen, (0, 0, steps), end)


composite("CAUSAL_CONV1D", _causal_body, spec=_causal_spec, outputs=2)


def causal_conv1d(
    x: Any, kernel: Any, state: Any = None, algorithm: str = "default"
) -> tuple[Any, Any]:
    """Depthwise convolution over time that sees the past alone, with its state for the next call.

    y[n, c, t] = sum_j kernel[c, j] s[n, c, t + j], where s is `state` followed by x.

    Arguments: x of shape (n, c, t); kernel of shape (c, taps), the last tap on the present; state,
    the taps - 1 inputs before x, of shape (n, c, taps - 1) (zeros by default).
    Returns y of x's shape and the new state, the last taps - 1 inputs. Bilinear in (x, state) and
    the kernel; calls on consecutive pieces, handing on the state, equal one call on the whole.
    Raises ShapeError for shapes that do not fit.
    """
    x, k = promote(x, kernel, inexact=True)
    if state is None:
        taps = np.shape(k)[1] if np.ndim(k) == 2 else 1
        state = np.zeros((*np.shape(x)[:2], max(taps - 1, 0)), x.dtype)
    x, k, state = promote(x, k, state, inexact=True)
    return tuple(bind("CAUSAL_CONV1D", x, k, state, algorithm=algorithm))
