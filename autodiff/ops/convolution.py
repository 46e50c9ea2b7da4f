"""Convolutions: one bilinear primitive, CONV, closed under transposition, and its named forms.

Layouts: x (batch, channels, ...), kernel (out, in / groups, ...), result (batch, out, ...), as in
PyTorch; "convolution" means cross-correlation, as everywhere in machine learning.
"""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import add_tangents, composite, promote, whole
from autodiff.kernels import convolution as kernels
from autodiff.op import Op, define
from autodiff.ops.geometry import Pairs, padding_pairs, per_spatial_axis, reach
from autodiff.ops.shape import reshape, reverse, transpose
from autodiff.program import Spec
from autodiff.reverse import Undefined
from autodiff.trace import bind

__all__ = ["conv", "conv1d", "conv2d", "conv3d"]

Ints = tuple[int, ...]
LAYOUT = "x is (batch, channels, ...), the kernel (out, in / groups, ...)"

# --- CONV ----------------------------------------------------------------------------------


def check_operands(kind: str, x: Spec, k: Spec, groups: int, channels: int, taken: int) -> None:
    """Raise unless ranks, dtypes and channels fit; the kernel takes `taken` of `channels`."""
    where = f"in op {kind}, x of shape {x.shape}, kernel of shape {k.shape}"
    if x.ndim != k.ndim or x.ndim < 3 or x.dtype != k.dtype or x.dtype.kind not in "fcV":
        raise ShapeError(f"cannot convolve {x} with {k}", where, f"{LAYOUT}, of one floating dtype")
    if groups < 1 or k.shape[0] % groups:
        raise ShapeError(
            f"{groups} groups do not divide the kernel's first extent {k.shape[0]}",
            where,
            f"{LAYOUT}: pass groups=1, or a divisor of the first extent",
        )
    if channels != taken:
        raise ShapeError(
            f"x has {channels} channels, a kernel of shape {k.shape} with groups={groups} takes "
            f"{taken}",
            where,
            f"{LAYOUT}: move channels with np.moveaxis(x, -1, 1), or pass groups=",
        )


def _conv_spec(
    x: Spec,
    k: Spec,
    *,
    stride: Ints,
    padding: Pairs,
    lhs_dilation: Ints,
    rhs_dilation: Ints,
    groups: int,
    algorithm: str,
) -> Spec:
    channels = x.shape[1] if x.ndim > 1 else 0
    check_operands("CONV", x, k, groups, channels, k.shape[1] * groups if k.ndim > 1 else 0)
    if {len(stride), len(padding), len(lhs_dilation), len(rhs_dilation)} != {x.ndim - 2}:
        raise ShapeError(
            f"CONV over {x.ndim - 2} spatial axes needs that many strides, paddings and dilations",
            f"in op CONV, stride {stride}, padding {padding}",
            "give one per spatial axis",
        )
    if algorithm not in ("default", "f32"):
        raise ShapeError(
            f"CONV has no algorithm {algorithm!r}", "in op CONV", "use 'default' or 'f32'"
        )
    inside = reach(x.shape[2:], lhs_dilation)
    windows = reach(k.shape[2:], rhs_dilation)
    out = (
        max((n + low + high - w) // s + 1, 0)
        for n, (low, high), w, s in zip(inside, padding, windows, stride, strict=True)
    )
    return x.with_shape((x.shape[0], k.shape[0], *out))


def _conv_jvp(primals: Any, tangents: Any, y: Any, **params: Any) -> Any:
    del y
    (x, k), (tx, tk) = primals, tangents
    left = None if tx is None else bind("CONV", tx, k, **params)
    right = None if tk is None else bind("CONV", x, tk, **params)
    return add_tangents(left, right)


def _conv_transpose(
    ct: Any,
    inputs: Any,
    *,
    stride: Ints,
    padding: Pairs,
    lhs_dilation: Ints,
    rhs_dilation: Ints,
    groups: int,
    algorithm: str,
) -> tuple[Any, ...]:
    x, k = inputs
    taps = np.shape(k)[2:]
    inside, windows = reach(x.shape[2:], lhs_dilation), reach(taps, rhs_dilation)
    seen = reach(np.shape(ct)[2:], stride)
    if isinstance(x, Undefined):
        # x[i] meets ct[p] where i lhs_dilation = p stride + t rhs_dilation - low
        around = tuple(
            (w - 1 - low, n - m + low)
            for n, m, w, (low, _) in zip(inside, seen, windows, padding, strict=True)
        )
        pulled = bind(
            "CONV",
            ct,
            adjoint_kernel(k, groups),
            stride=lhs_dilation,
            padding=around,
            lhs_dilation=stride,
            rhs_dilation=rhs_dilation,
            groups=groups,
            algorithm=algorithm,
        )
        return pulled, None
    around = tuple(
        (low, w - 1 + m - n - low)
        for n, m, w, (low, _) in zip(inside, seen, windows, padding, strict=True)
    )
    images, weights = _exchanged(x, groups), transpose(ct, (1, 0, *range(2, np.ndim(ct))))
    pulled = bind(
        "CONV",
        images,
        weights,
        stride=rhs_dilation,
        padding=around,
        lhs_dilation=lhs_dilation,
        rhs_dilation=stride,
        groups=groups,
        algorithm=algorithm,
    )
    return None, transpose(pulled, (1, 0, *range(2, np.ndim(ct))))


def adjoint_kernel(k: Any, groups: int) -> Any:
    """The kernel of the data adjoint: in and out exchanged within each group, taps reversed."""
    out, taken, *taps = np.shape(k)
    spatial = tuple(range(3, 3 + len(taps)))
    k = reverse(k, tuple(range(2, 2 + len(taps))))
    k = reshape(k, (groups, out // groups, taken, *taps))
    return reshape(transpose(k, (0, 2, 1, *spatial)), (groups * taken, out // groups, *taps))


def _exchanged(x: Any, groups: int) -> Any:
    """Batch and channels exchanged within each group: (N, G I, ...) to (I, G N, ...)."""
    batch, channels, *places = np.shape(x)
    spatial = tuple(range(3, 3 + len(places)))
    taken = channels // groups
    x = reshape(x, (batch, groups, taken, *places))
    return reshape(transpose(x, (2, 1, 0, *spatial)), (taken, groups * batch, *places))


def _conv_batch(size: int, args: Any, batched: Any, **params: Any) -> Any:
    (x, k), (x_flag, k_flag) = args, batched
    groups = params["groups"]
    spatial = tuple(range(3, np.ndim(x) - x_flag + 1))
    if not k_flag:
        _, batch, *rest = np.shape(x)
        out = bind("CONV", reshape(x, (size * batch, *rest)), k, **params)
        return reshape(out, (size, batch, *np.shape(out)[1:])), True
    _, features, taken, *taps = np.shape(k)
    own = features // groups
    if x_flag:
        # one group per example and group
        _, batch, channels, *places = np.shape(x)
        x = reshape(transpose(x, (1, 0, 2, *spatial)), (batch, size * channels, *places))
        k = reshape(k, (size * features, taken if size else 0, *taps))
        out = bind("CONV", x, k, **{**params, "groups": max(size, 1) * groups})
        out = reshape(out, (batch, size, features, *np.shape(out)[2:]))
        return transpose(out, (1, 0, 2, *spatial)), True
    # the examples' kernels side by side within each group
    k = reshape(k, (size, groups, own, taken, *taps))
    k = transpose(k, (1, 0, 2, *range(3, np.ndim(k))))
    k = reshape(k, (groups * size * own, taken, *taps))
    out = bind("CONV", x, k, **params)
    batch, _, *places = np.shape(out)
    out = reshape(out, (batch, groups, size, own, *places))
    out = transpose(out, (2, 0, 1, 3, *range(4, np.ndim(out))))
    return reshape(out, (size, batch, features, *places)), True


define(
    Op(
        "CONV",
        _conv_spec,
        impl=kernels.conv,
        jvp=_conv_jvp,
        transpose=_conv_transpose,
        batch=_conv_batch,
        product=True,
        jax="rules:conv",
    )
)

# --- CONV1D, CONV2D, CONV3D ----------------------------------------------------------------


def operands(kind: str, x: Any, k: Any, axes: int | None = None) -> tuple[Any, Any, int]:
    """Both operands at one floating dtype, and the number of spatial axes."""
    x, k = promote(x, k, inexact=True)
    found = np.ndim(x) - 2
    if np.ndim(k) != np.ndim(x) or found < 1 or axes not in (None, found):
        need = f"{axes + 2} axes each" if axes else "as many axes each, at least 3"
        raise ShapeError(
            f"x has {np.ndim(x)} axes and the kernel {np.ndim(k)}, not {need}",
            f"in op {kind}, x of shape {np.shape(x)}, kernel of shape {np.shape(k)}",
            f"{LAYOUT}: add a batch axis with x[None]",
        )
    return x, k, found


def _named_spec(kind: str, axes: int) -> Any:
    def spec(
        x: Spec,
        k: Spec,
        *,
        stride: Ints,
        padding: Pairs,
        dilation: Ints,
        groups: int,
        algorithm: str,
    ) -> Spec:
        taken = k.shape[1] * groups if k.ndim > 1 else 0
        check_operands(kind, x, k, groups, x.shape[1] if x.ndim > 1 else 0, taken)
        padded = tuple(n + low + high for n, (low, high) in zip(x.shape[2:], padding, strict=True))
        windows = reach(k.shape[2:], dilation)
        if 0 in windows or any(n < w for n, w in zip(padded, windows, strict=True)):
            raise ShapeError(
                f"the kernel covers {windows} places (dilated), the padded input has {padded}",
                f"in op {kind}, x of shape {x.shape}, kernel of shape {k.shape}",
                'pass padding="SAME" or wider pairs, or a smaller kernel with at least one tap',
            )
        params = _unspread(axes, stride, padding, dilation, groups, algorithm)
        return _conv_spec(x, k, **params)

    return spec


def _unspread(
    axes: int, stride: Ints, padding: Pairs, dilation: Ints, groups: int, algorithm: str
) -> dict[str, Any]:
    """Parameters of CONV for a convolution without lhs_dilation."""
    return {
        "stride": stride,
        "padding": padding,
        "lhs_dilation": (1,) * axes,
        "rhs_dilation": dilation,
        "groups": groups,
        "algorithm": algorithm,
    }


def _named_body(axes: int) -> Any:
    def body(
        x: Any,
        k: Any,
        *,
        stride: Ints,
        padding: Pairs,
        dilation: Ints,
        groups: int,
        algorithm: str,
    ) -> Any:
        params = _unspread(axes, stride, padding, dilation, groups, algorithm)
        return bind("CONV", x, k, **params)

    return body


for _axes in (1, 2, 3):
    composite(f"CONV{_axes}D", _named_body(_axes), spec=_named_spec(f"CONV{_axes}D", _axes))


def _convolved(
    axes: int,
    x: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    algorithm: str,
) -> Any:
    kind = f"CONV{axes}D"
    x, k, _ = operands(kind, x, kernel, axes)
    step = per_spatial_axis(kind, "stride", stride, axes)
    gap = per_spatial_axis(kind, "dilation", dilation, axes)
    windows = reach(np.shape(k)[2:], gap)
    return bind(
        kind,
        x,
        k,
        stride=step,
        padding=padding_pairs(kind, padding, np.shape(x)[2:], windows, step),
        dilation=gap,
        groups=whole(groups, "groups"),
        algorithm=algorithm,
    )


def conv1d(
    x: Any,
    kernel: Any,
    stride: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    groups: int = 1,
    algorithm: str = "default",
) -> Any:
    """One-dimensional convolution: x (n, c, w), kernel (o, c / groups, k); otherwise `conv2d`."""
    return _convolved(1, x, kernel, stride, padding, dilation, groups, algorithm)


def conv2d(
    x: Any,
    kernel: Any,
    stride: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    groups: int = 1,
    algorithm: str = "default",
) -> Any:
    """Two-dimensional convolution of images (cross-correlation: the kernel is not flipped).

    y[n, o, p] = sum_{c, t} kernel[o, c, t] x[n, g c' + c, p stride + t dilation - low], where o
    lies in group g of c' = c / groups channels and x is 0 outside; p, t and low are pairs.

    Arguments: x of shape (n, c, h, w); kernel of shape (o, c / groups, kh, kw); dtypes are
    promoted, integers become float64. stride, dilation: an int or one per axis. padding: "VALID"
    (none), "SAME" (ceil(h / stride) rows, the odd one at the end), an int, or an int or a
    (low, high) pair per axis; negative padding crops. groups: channels and outputs are cut into
    that many parts that do not mix; groups=c is a depthwise convolution. algorithm: as in `matmul`.
    Returns shape (n, o, h', w') with h' = (h + low + high - (kh - 1) dilation - 1) // stride + 1.
    Bilinear: derivatives of every order are convolutions again.
    Raises ShapeError for channels or groups that do not fit, and for a kernel larger than the
    padded input.
    """
    return _convolved(2, x, kernel, stride, padding, dilation, groups, algorithm)


def conv3d(
    x: Any,
    kernel: Any,
    stride: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    groups: int = 1,
    algorithm: str = "default",
) -> Any:
    """Three-dimensional convolution: x (n, c, d, h, w), kernel (o, c / groups, kd, kh, kw)."""
    return _convolved(3, x, kernel, stride, padding, dilation, groups, algorithm)


def conv(
    x: Any,
    kernel: Any,
    stride: Any = 1,
    padding: Any = "VALID",
    lhs_dilation: Any = 1,
    rhs_dilation: Any = 1,
    groups: int = 1,
    algorithm: str = "default",
) -> Any:
    """The convolution over any number of spatial axes that all others are written in.

    As `conv2d`, with lhs_dilation - 1 zeros put between neighbours of x before it is padded (a
    fractional stride) and rhs_dilation - 1 between taps of the kernel; where the kernel does not
    fit, the result has extent 0. This is `jax.lax.conv_general_dilated`; its pullbacks to x and to
    the kernel are CONV again, with stride and dilations exchanged.
    """
    x, k, axes = operands("CONV", x, kernel)
    step, spread, gap = (
        per_spatial_axis("CONV", name, value, axes)
        for name, value in (
            ("stride", stride),
            ("lhs_dilation", lhs_dilation),
            ("rhs_dilation", rhs_dilation),
        )
    )
    inside, windows = reach(np.shape(x)[2:], spread), reach(np.shape(k)[2:], gap)
    return bind(
        "CONV",
        x,
        k,
        stride=step,
        padding=padding_pairs("CONV", padding, inside, windows, step),
        lhs_dilation=spread,
        rhs_dilation=gap,
        groups=whole(groups, "groups"),
        algorithm=algorithm,
    )
