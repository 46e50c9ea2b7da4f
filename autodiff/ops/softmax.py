"""Softmax, log-softmax, logsumexp and the difference of two softmaxes.

All of them exclude one maximum (the first, at position k) from the sum of exponentials,

    z = x - x_k,  S = sum_{j != k} exp(z_j),  log sum exp = x_k + log1p(S),

so that what the other classes add survives next to the 1 of the largest (pytorch/pytorch#113708,
scipy/scipy#19521), and centre cotangents and tangents at k, so that derivatives neither lose the
dominant entry nor a common offset (jax-ml/jax#40384, #40386, #40344).
"""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import (
    add_tangents,
    axis_tuple,
    batch_leading,
    broadcast_shapes,
    composite,
    promote,
)
from autodiff.ops.balance import balanced, share
from autodiff.ops.elementwise import cast
from autodiff.ops.reduction import (
    Axis,
    as_array,
    expand,
    extent,
    inexact,
    reduced,
    total,
    wide_total,
)
from autodiff.program import Spec
from autodiff.trace import bind, spec_of
from autodiff.widen import widened_body, widened_rule

__all__ = ["log_softmax", "logsumexp", "softmax"]

# --- pieces --------------------------------------------------------------------------------


def first_max(x: Any, axis: tuple[int, ...]) -> Any:
    """The mask of position k, the first maximum along the axes."""
    return bind("ARGMAX_MASK", x, axis=axis)


def pick(x: Any, hot: Any, axis: tuple[int, ...]) -> Any:
    """The element where the mask holds.

    Its derivative is that of x_k alone, also at ties, where the derivative of MAX is shared.
    """
    return total(bind("WHERE", hot, x, np.zeros((), x.dtype)), axis)


def others(x: Any, hot: Any, axis: tuple[int, ...]) -> Any:
    """The sum of the elements where the mask does not hold."""
    return wide_total(bind("WHERE", hot, np.zeros((), x.dtype), x), axis)


def centred_product(p: Any, hot: Any, v: Any, axis: tuple[int, ...]) -> Any:
    """(diag(p) - p p^T) v for probabilities p, centred at k.

    p_i (d_i - m) with d = v - v_k and m = sum_{j != k} p_j d_j, so that entry k is -p_k m. A
    constant v gives exactly 0.
    """
    return p * _centred_at_mean(p, hot, v, axis)


def _centred_at_mean(p: Any, hot: Any, v: Any, axis: tuple[int, ...]) -> Any:
    """v - sum_j p_j v_j, by way of v - v_k."""
    d = v - pick(v, hot, axis)
    return d - wide_total(p * d, axis)


def rows_spec(kind: str) -> Any:
    """Spec rule of an op on rows along axes: floating operands of one shape, that shape out."""

    def spec(x: Spec, *others: Spec, axis: tuple[int, ...]) -> Spec:
        axis_tuple(axis, x.ndim, kind)
        check_floating(kind, x, *others)
        if {o.shape for o in others} - {x.shape}:
            raise ShapeError(
                f"{kind} operands have different shapes: {', '.join(map(str, (x, *others)))}",
                f"in op {kind}",
                "broadcast them to one shape first",
            )
        return x

    return spec


def check_floating(kind: str, *specs: Spec) -> None:
    """Raise unless the operands are real floating arrays of one dtype."""
    first = specs[0].dtype
    if any(s.dtype != first for s in specs) or first.kind not in "fV":
        raise ShapeError(
            f"{kind} is not defined for {', '.join(s.dtype.name for s in specs)}",
            f"in op {kind}, operands {', '.join(map(str, specs))}",
            "convert the operands to one real floating dtype with astype",
        )


def pair(kind: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands of one floating dtype, broadcast to one shape."""
    x, y = promote(x, y, inexact=True)
    shape = broadcast_shapes(kind, spec_of(x), spec_of(y))
    return np.broadcast_to(x, shape), np.broadcast_to(y, shape)


def batch_rows(kind: str) -> Any:
    """Batching rule of an op on operands of one shape: all carry the batch axis, axes shift."""

    def batch(size: int, args: Any, batched: Any, *, axis: Any) -> tuple[Any, bool]:
        full = [
            a if b else np.broadcast_to(a, (size, *np.shape(a)))
            for a, b in zip(args, batched, strict=True)
        ]
        moved = axis + 1 if isinstance(axis, int) else tuple(a + 1 for a in axis)
        return bind(kind, *full, axis=moved), True

    return batch


# --- SOFTMAX -------------------------------------------------------------------------------


def _centred(x: Any, axis: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """z = x - x_k, exp(z) and S, its sum without k; for bodies, which nothing differentiates."""
    if extent(np.shape(x), axis) == 0:
        return x, x, total(x, axis)
    z = x - bind("MAX", x, axis=axis, keepdims=True)
    e = np.exp(z)
    # z_k is 0, or NaN where the maximum is infinite or NaN: then the whole row is NaN
    return z, e, total(bind("WHERE", first_max(x, axis), z, e), axis)


def _softmax_body(x: Any, *, axis: tuple[int, ...]) -> Any:
    _, e, rest = _centred(x, axis)
    return e / (1 + rest)


def _softmax_jvp(primals: Any, tangents: Any, p: Any, *, axis: tuple[int, ...]) -> Any:
    return centred_product(p, first_max(primals[0], axis), tangents[0], axis)


def _softmax_vjp(ct: Any, primals: Any, p: Any, *, axis: tuple[int, ...]) -> tuple[Any, ...]:
    c = _centred_at_mean(p, first_max(primals[0], axis), ct, axis)
    return (p * (c - share(p * c, p, axis)),)


composite(
    "SOFTMAX",
    widened_body(_softmax_body),
    spec=rows_spec("SOFTMAX"),
    jvp=widened_rule(_softmax_jvp),
    vjp=widened_rule(_softmax_vjp),
    batch=batch_leading("SOFTMAX", shift=("axis",)),
)


def softmax(x: Any, axis: Axis = -1) -> Any:
    """Exponentials normalised to sum 1 along axes.

    p_i = exp(x_i) / sum_j exp(x_j).

    Arguments: x, real (integers become float64); axis, an int, several, or None for all.
    Returns x's shape and dtype. -inf gives 0; a row of -inf alone, or with +inf or NaN, is NaN.
    Derivative p_i (g_i - sum_j p_j g_j), centred at the largest class: rows sum to 0 and the
    dominant entry keeps its digits; exactly 0 for a constant g.
    """
    x = inexact(x)
    return bind("SOFTMAX", x, axis=axis_tuple(axis, np.ndim(x), "SOFTMAX"))


# --- LOG_SOFTMAX ---------------------------------------------------------------------------


def _log_softmax_body(x: Any, *, axis: tuple[int, ...]) -> Any:
    z, _, rest = _centred(x, axis)
    return z - np.log1p(rest)


def _log_softmax_jvp(primals: Any, tangents: Any, y: Any, *, axis: tuple[int, ...]) -> Any:
    """d_i - m with d = t - t_k and m = sum_{j != k} p_j d_j."""
    del y
    (x,), (t,) = primals, tangents
    hot = first_max(x, axis)
    d = t - pick(t, hot, axis)
    return d - total(bind("SOFTMAX", x, axis=axis) * d, axis)


def log_softmax_pullback(ct: Any, x: Any, axis: tuple[int, ...]) -> Any:
    """g_i - p_i sum_j g_j, and at k q g_k - p_k sum_{j != k} g_j with q = sum_{j != k} p_j."""
    hot = first_max(x, axis)
    p = bind("SOFTMAX", x, axis=axis)
    rest = others(ct, hot, axis)
    dominant = others(p, hot, axis) * ct - p * rest
    g = bind("WHERE", hot, dominant, ct - p * (rest + pick(ct, hot, axis)))
    return balanced(g, p, axis)


def _log_softmax_vjp(ct: Any, primals: Any, y: Any, *, axis: tuple[int, ...]) -> tuple[Any, ...]:
    del y
    return (log_softmax_pullback(ct, primals[0], axis),)


composite(
    "LOG_SOFTMAX",
    widened_body(_log_softmax_body),
    spec=rows_spec("LOG_SOFTMAX"),
    jvp=widened_rule(_log_softmax_jvp),
    vjp=widened_rule(_log_softmax_vjp),
    batch=batch_leading("LOG_SOFTMAX", shift=("axis",)),
)


def log_softmax(x: Any, axis: Axis = -1) -> Any:
    """Logarithms of softmax probabilities along axes.

    y_i = x_i - log sum_j exp(x_j), formed as (x_i - x_k) - log1p(sum_{j != k} exp(x_j - x_k)).

    Arguments: x, real (integers become float64); axis, an int, several, or None for all.
    Returns x's shape and dtype. The largest entry keeps its relative accuracy for any margin. -inf
    gives -inf; a row of -inf alone, or with +inf or NaN, is NaN.
    Derivative g_i - p_i sum_j g_j; a masked class (-inf) gets g_i.
    """
    x = inexact(x)
    return bind("LOG_SOFTMAX", x, axis=axis_tuple(axis, np.ndim(x), "LOG_SOFTMAX"))


# --- LOGSUMEXP -----------------------------------------------------------------------------


def _logsumexp_spec(x: Spec, *, axis: tuple[int, ...], keepdims: bool) -> Spec:
    axis_tuple(axis, x.ndim, "LOGSUMEXP")
    check_floating("LOGSUMEXP", x)
    return x.with_shape(reduced(x.shape, axis, keepdims))


def _logsumexp_body(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    shape = reduced(np.shape(x), axis, keepdims)
    if extent(np.shape(x), axis) == 0:
        return np.full(shape, -np.inf, x.dtype)
    hot = first_max(x, axis)
    top = pick(x, hot, axis)
    # an infinite maximum is the result
    finite = bind("ISFINITE", top)
    base = bind("WHERE", finite, top, np.zeros((), x.dtype))
    rest = others(np.exp(x - base), hot, axis)
    return np.reshape(bind("WHERE", finite, base + np.log1p(rest), top), shape)


def _weights(x: Any, hot: Any, axis: tuple[int, ...]) -> tuple[Any, Any]:
    """The derivative exp(x - logsumexp x) and the mask of rows of -inf alone, where it is 0."""
    dead = pick(x, hot, axis) == -np.inf
    zero = np.zeros((), x.dtype)
    p = bind("SOFTMAX", bind("WHERE", dead, zero, x), axis=axis)
    return bind("WHERE", dead, zero, p), dead


def _logsumexp_jvp(
    primals: Any, tangents: Any, y: Any, *, axis: tuple[int, ...], keepdims: bool
) -> Any:
    """t_k + sum_{j != k} p_j (t_j - t_k)."""
    del keepdims
    (x,), (t,) = primals, tangents
    hot = first_max(x, axis)
    p, dead = _weights(x, hot, axis)
    top = bind("WHERE", dead, np.zeros((), t.dtype), pick(t, hot, axis))
    return np.reshape(top + total(p * (t - top), axis), np.shape(y))


def _logsumexp_vjp(
    ct: Any, primals: Any, y: Any, *, axis: tuple[int, ...], keepdims: bool
) -> tuple[Any, ...]:
    del y, keepdims
    (x,) = primals
    return (expand(ct, np.shape(x), axis) * _weights(x, first_max(x, axis), axis)[0],)


composite(
    "LOGSUMEXP",
    widened_body(_logsumexp_body),
    spec=_logsumexp_spec,
    jvp=widened_rule(_logsumexp_jvp),
    vjp=widened_rule(_logsumexp_vjp),
    batch=batch_leading("LOGSUMEXP", shift=("axis",)),
)


def _weighted_spec(x: Spec, b: Spec, *, axis: tuple[int, ...]) -> Spec:
    rows_spec("WEIGHTED_LOGSUMEXP")(x, b, axis=axis)
    return x.with_shape(reduced(x.shape, axis, True))


def _weighted_pieces(x: Any, b: Any, axis: tuple[int, ...]) -> tuple[Any, ...]:
    """The mask of the largest term b_j exp(x_j), x_k (0 where infinite) and exp(x - x_k)."""
    none = b == 0
    size = np.abs(bind("WHERE", none, np.ones((), b.dtype), b))
    hot = first_max(bind("WHERE", none, np.full((), -np.inf, x.dtype), x + np.log(size)), axis)
    top = pick(x, hot, axis)
    base = bind("WHERE", bind("ISFINITE", top), top, np.zeros((), x.dtype))
    return hot, top, base, np.exp(x - base)


def _weighted_body(x: Any, b: Any, *, axis: tuple[int, ...]) -> Any:
    """x_k + log |b_k| + log(1 + S) for b_k > 0, x_k + log |b_k| + log(-1 - S) for b_k < 0.

    S = sum_{j != k} (b_j / b_k) exp(x_j - x_k).
    """
    if extent(np.shape(x), axis) == 0:
        return np.full(reduced(np.shape(x), axis, True), -np.inf, x.dtype)
    hot, top, base, e = _weighted_pieces(x, b, axis)
    lead = pick(b, hot, axis)
    zero, one = np.zeros((), x.dtype), np.ones((), x.dtype)
    rest = others(bind("STRONG_MUL", b, e), hot, axis) / bind("WHERE", lead == 0, one, lead)
    up = lead >= 0
    tail = bind(
        "WHERE",
        up,
        np.log1p(bind("WHERE", up, rest, zero)),
        np.log(bind("WHERE", up, one, -1 - rest)),
    )
    return bind(
        "WHERE", bind("ISFINITE", top), base + np.log(np.abs(lead)) + tail, top + np.log(lead)
    )


def _weighted_slopes(x: Any, b: Any, axis: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """The mask, dy/dx = b e / W and dy/db = e / W with e = exp(x - x_k), W = sum b e."""
    hot, _, _, e = _weighted_pieces(x, b, axis)
    terms = bind("STRONG_MUL", b, e)
    weight = total(terms, axis)
    return hot, terms / weight, e / weight


def _weighted_jvp(primals: Any, tangents: Any, y: Any, *, axis: tuple[int, ...]) -> Any:
    del y
    (x, b), (tx, tb) = primals, tangents
    hot, slope, of_weight = _weighted_slopes(x, b, axis)
    parts = []
    if tx is not None:
        top = pick(tx, hot, axis)
        parts.append(top + total(slope * (tx - top), axis))
    if tb is not None:
        parts.append(total(of_weight * tb, axis))
    return add_tangents(*parts)


def _weighted_vjp(ct: Any, primals: Any, y: Any, *, axis: tuple[int, ...]) -> tuple[Any, ...]:
    del y
    x, b = primals
    _, slope, of_weight = _weighted_slopes(x, b, axis)
    return ct * slope, ct * of_weight


composite(
    "WEIGHTED_LOGSUMEXP",
    widened_body(_weighted_body),
    doc="log sum b exp(x) with weights b, per row.",
    spec=_weighted_spec,
    jvp=widened_rule(_weighted_jvp),
    vjp=widened_rule(_weighted_vjp),
    batch=batch_rows("WEIGHTED_LOGSUMEXP"),
)


def logsumexp(
    x: Any, axis: Axis = None, where: Any = None, b: Any = None, keepdims: bool = False
) -> Any:
    """The logarithm of a (weighted) sum of exponentials along axes.

    y = log sum_i b_i exp(x_i) over the i where the mask holds, b = 1 by default.

    Arguments: x, real (integers become float64); axis, an int, several, or None for all; where, a
    bool mask, and b, real weights of any sign, broadcast against x.
    Returns the shape of x (broadcast) without the axes. No elements, or -inf alone, give -inf; a
    +inf gives +inf; NaN propagates; a negative weighted sum gives NaN.
    Derivatives: dy/dx_i = b_i exp(x_i - y), the softmax for b = 1, and 0 in a row of -inf alone;
    dy/db_i = exp(x_i - y).
    """
    (x,) = promote(x, inexact=True)
    operands = [x] if b is None else list(promote(x, b, inexact=True))
    mask = None if where is None else cast(as_array(where), np.bool_)
    masks = () if mask is None else (mask,)
    shape = broadcast_shapes("LOGSUMEXP", *map(spec_of, (*operands, *masks)))
    x, *weights = (np.broadcast_to(v, shape) for v in operands)
    if mask is not None:
        x = bind("WHERE", mask, x, np.full((), -np.inf, x.dtype))
    axes = axis_tuple(axis, len(shape), "LOGSUMEXP")
    if not weights:
        return bind("LOGSUMEXP", x, axis=axes, keepdims=bool(keepdims))
    y = bind("WEIGHTED_LOGSUMEXP", x, *weights, axis=axes)
    return np.reshape(y, reduced(shape, axes, bool(keepdims)))
