"""Normalisation layers: layer, RMS, batch, group and instance norm, and unit vectors."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import axis_tuple, composite, promote, whole
from autodiff.ops.reduction import Axis, as_array, extent, inexact, reduced, total
from autodiff.ops.softmax import check_floating
from autodiff.ops.statistics import centred
from autodiff.program import Spec
from autodiff.trace import bind, spec_of
from autodiff.widen import widened_body

__all__ = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "l2_normalize",
    "layer_norm",
    "rms_norm",
]

# --- pieces --------------------------------------------------------------------------------


def _over_rms(c: Any, axis: tuple[int, ...], eps: float) -> Any:
    """c / sqrt(mean(c^2) + eps), with c divided by a power of two so that squares stay in range.

    That division is exact. The scale is not below 1 unless eps is 0: eps / scale^2 stays in range.
    """
    scale = bind("NORM_SCALE", c, axis=axis)
    if eps:
        scale = np.maximum(scale, np.ones((), c.dtype))
    z = c / scale
    mean_square = total(z * z, axis) / extent(np.shape(c), axis)
    return z / np.sqrt(mean_square + eps / scale / scale)


def _affine(y: Any, affine: tuple[Any, ...], axis: tuple[int, ...]) -> Any:
    """y * weight + bias with parameters given along `axis`."""
    shape = tuple(n if i in axis else 1 for i, n in enumerate(np.shape(y)))
    if affine:
        y = y * np.reshape(affine[0], shape)
    return y + np.reshape(affine[1], shape) if len(affine) > 1 else y


def _check_affine(
    kind: str, x: Spec, affine: tuple[Spec, ...], axis: tuple[int, ...], names: str
) -> None:
    check_floating(kind, x, *affine)
    expected = tuple(n for i, n in enumerate(x.shape) if i in axis)
    for name, spec in zip(("weight", "bias"), affine, strict=False):
        if spec.shape != expected:
            raise ShapeError(
                f"{kind} {name} has shape {spec.shape}, expected {expected}",
                f"in op {kind}, operand {x}",
                f"give one {name} per element of the {names}",
            )


def _operands(x: Any, weight: Any, bias: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """x, and weight and bias where given (a bias alone gets a weight of ones), of one dtype."""
    if weight is None and bias is None:
        return (inexact(x),)
    (x,) = promote(x, inexact=True)
    if weight is None:
        weight = np.ones(shape, spec_of(x).dtype)
    given = [as_array(v) for v in ((weight,) if bias is None else (weight, bias))]
    return promote(x, *given, inexact=True)


# --- LAYERNORM and RMSNORM -----------------------------------------------------------------


def _layer_spec(kind: str) -> Any:
    def spec(x: Spec, *affine: Spec, axis: tuple[int, ...], eps: float) -> Spec:
        del eps
        axis_tuple(axis, x.ndim, kind)
        _check_affine(kind, x, affine, axis, f"normalised axes {axis}")
        return x

    return spec


def _layer_norm_body(x: Any, *affine: Any, axis: tuple[int, ...], eps: float) -> Any:
    return _affine(_over_rms(centred(x, axis), axis, eps), affine, axis)


composite("LAYERNORM", widened_body(_layer_norm_body), spec=_layer_spec("LAYERNORM"))


def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, axis: Axis = -1, eps: float = 1e-5
) -> Any:
    """Layer normalisation: zero mean and unit variance along axes, then an affine map.

    y = (x - mean) / sqrt(var + eps) * weight + bias, with the biased variance (divided by n).

    Arguments: x, real; weight and bias, of the extents of the normalised axes, or None; axis, an
    int, several, or None for all; eps >= 0, added to the variance.
    Returns x's shape. The mean is taken out twice, so an offset of 1e4 in float32 costs nothing.
    With eps = 0 a constant row gives NaN. Raises ShapeError where the parameters do not fit.
    """
    axes = axis_tuple(axis, np.ndim(x), "LAYERNORM")
    shape = tuple(np.shape(x)[a] for a in axes)
    return bind("LAYERNORM", *_operands(x, weight, bias, shape), axis=axes, eps=float(eps))


def _rms_norm_body(x: Any, *affine: Any, axis: tuple[int, ...], eps: float) -> Any:
    return _affine(_over_rms(x, axis, eps), affine, axis)


composite("RMSNORM", widened_body(_rms_norm_body), spec=_layer_spec("RMSNORM"))


def rms_norm(x: Any, weight: Any = None, eps: float = 1e-6, axis: Axis = -1) -> Any:
    """Root mean square normalisation along axes.

    y = x / sqrt(mean(x^2) + eps) * weight.

    Arguments: x, real; weight, of the extents of the normalised axes, or None; eps >= 0, inside
    the root; axis, an int, several, or None for all.
    Returns x's shape; squares do not overflow. With eps = 0 a row of zeros gives NaN.
    Raises ShapeError where the weight does not fit.
    """
    axes = axis_tuple(axis, np.ndim(x), "RMSNORM")
    shape = tuple(np.shape(x)[a] for a in axes)
    return bind("RMSNORM", *_operands(x, weight, None, shape), axis=axes, eps=float(eps))


# --- BATCHNORM -----------------------------------------------------------------------------


def _others(axis: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    return tuple(i for i in range(ndim) if i not in axis)


def _batch_norm_spec(
    x: Spec, *affine: Spec, axis: tuple[int, ...], eps: float
) -> tuple[Spec, Spec, Spec]:
    del eps
    axis_tuple(axis, x.ndim, "BATCHNORM")
    features = _others(axis, x.ndim)
    _check_affine("BATCHNORM", x, affine, features, f"axes {features} that are kept")
    statistics = x.with_shape(reduced(x.shape, axis, False))
    return x, statistics, statistics


def _batch_norm_body(x: Any, *affine: Any, axis: tuple[int, ...], eps: float) -> tuple[Any, ...]:
    n = extent(np.shape(x), axis)
    c = centred(x, axis)
    y = _affine(_over_rms(c, axis, eps), affine, _others(axis, np.ndim(x)))
    mean = bind("SUM", x, axis=axis, keepdims=False) / n
    return y, mean, bind("SUM", c * c, axis=axis, keepdims=False) / n


composite("BATCHNORM", widened_body(_batch_norm_body), spec=_batch_norm_spec, outputs=3)


def batch_norm(
    x: Any, weight: Any = None, bias: Any = None, axis: Axis = 0, eps: float = 1e-5
) -> tuple[Any, Any, Any]:
    """Batch normalisation with the statistics of the batch (training mode).

    y = (x - mean) / sqrt(var + eps) * weight + bias.

    Arguments: x, real; weight and bias, of the extents of the axes that are kept, or None; axis,
    the axes that statistics are taken over: 0 for (batch, features), (0, 2, 3) for images
    (batch, channels, height, width); eps >= 0.
    Returns (y, mean, var), the statistics without the reduced axes. `var` is the biased one (over
    n) that y uses; running averages usually keep var * n / (n - 1) (pytorch/pytorch#19902).
    Raises ShapeError where the parameters do not fit.
    """
    axes = axis_tuple(axis, np.ndim(x), "BATCHNORM")
    shape = reduced(np.shape(x), axes, False)
    operands = _operands(x, weight, bias, shape)
    y, mean, var = bind("BATCHNORM", *operands, axis=axes, eps=float(eps))
    return y, mean, var


# --- GROUPNORM and INSTANCENORM ------------------------------------------------------------


def _group_norm_spec(x: Spec, *affine: Spec, groups: int, eps: float) -> Spec:
    del eps
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(
            f"GROUPNORM cannot part {x} into {groups} groups of channels",
            "in op GROUPNORM, axis 1",
            "x is (batch, channels, ...) and groups divides the channels",
        )
    _check_affine("GROUPNORM", x, affine, (1,), "channel axis 1")
    return x


def _group_norm_body(x: Any, *affine: Any, groups: int, eps: float) -> Any:
    shape = np.shape(x)
    parts = np.reshape(x, (shape[0], groups, shape[1] // groups, *shape[2:]))
    axis = tuple(range(2, len(shape) + 1))
    y = np.reshape(_over_rms(centred(parts, axis), axis, eps), shape)
    return _affine(y, affine, (1,))


composite("GROUPNORM", widened_body(_group_norm_body), spec=_group_norm_spec)


def group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Group normalisation: each group of channels of each example has mean 0 and variance 1.

    Arguments: x, real, (batch, channels, ...); groups, a divisor of the channels; weight and bias,
    (channels,), or None; eps >= 0, added to the biased variance. Returns x's shape.
    Raises ShapeError where the groups or parameters do not fit.
    """
    shape = np.shape(x)[1:2]
    return bind(
        "GROUPNORM",
        *_operands(x, weight, bias, shape),
        groups=whole(groups, "groups"),
        eps=float(eps),
    )


def _instance_norm_spec(x: Spec, *affine: Spec, eps: float) -> Spec:
    del eps
    if x.ndim < 3:
        raise ShapeError(
            f"INSTANCENORM needs axes after (batch, channels), got {x}",
            "in op INSTANCENORM",
            "x is (batch, channels, length, ...)",
        )
    _check_affine("INSTANCENORM", x, affine, (1,), "channel axis 1")
    return x


def _instance_norm_body(x: Any, *affine: Any, eps: float) -> Any:
    axis = tuple(range(2, np.ndim(x)))
    return _affine(_over_rms(centred(x, axis), axis, eps), affine, (1,))


composite("INSTANCENORM", widened_body(_instance_norm_body), spec=_instance_norm_spec)


def instance_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Instance normalisation: each channel of each example has mean 0 and variance 1.

    Arguments: x, real, (batch, channels, length, ...); weight and bias, (channels,), or None;
    eps >= 0, added to the biased variance. Returns x's shape.
    Raises ShapeError where the shapes do not fit.
    """
    shape = np.shape(x)[1:2]
    return bind("INSTANCENORM", *_operands(x, weight, bias, shape), eps=float(eps))


# --- L2_NORMALIZE --------------------------------------------------------------------------


def _normalize_spec(x: Spec, *, axis: tuple[int, ...], eps: float) -> Spec:
    del eps
    axis_tuple(axis, x.ndim, "L2_NORMALIZE")
    check_floating("L2_NORMALIZE", x)
    return x


def _normalize_body(x: Any, *, axis: tuple[int, ...], eps: float) -> Any:
    size = bind("NORM", x, axis=axis, ord=2.0, keepdims=True)
    floor = np.full((), eps, x.dtype)
    return x / bind("WHERE", size > floor, size, floor)


composite("L2_NORMALIZE", widened_body(_normalize_body), spec=_normalize_spec)


def l2_normalize(x: Any, axis: Axis = -1, eps: float = 1e-12) -> Any:
    """Vectors scaled to unit length along axes.

    y = x / max(|x|, eps).

    Arguments: x, real; axis, an int, several, or None for all; eps, the length below which x is
    divided by eps. Returns x's shape; nothing overflows or underflows. Smooth but at |x| = eps;
    with eps = 0 a zero vector gives NaN.
    """
    x = inexact(x)
    return bind(
        "L2_NORMALIZE", x, axis=axis_tuple(axis, np.ndim(x), "L2_NORMALIZE"), eps=float(eps)
    )
