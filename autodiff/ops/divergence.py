"""Divergences between softmax distributions, accurate where the two are close."""

from typing import Any

import numpy as np

from autodiff.families import add_tangents, axis_tuple, composite, unary
from autodiff.ops.balance import balanced
from autodiff.ops.reduction import Axis, expand, reduced, total
from autodiff.ops.softmax import (
    batch_rows,
    centred_product,
    first_max,
    pair,
    pick,
    rows_spec,
)
from autodiff.program import Spec
from autodiff.trace import bind
from autodiff.widen import widened_body, widened_rule

__all__ = ["expm1_remainder", "kl_divergence", "soft_cross_entropy", "softmax_difference"]

# --- SOFTMAX_DIFFERENCE --------------------------------------------------------------------


def _logit_difference(s: Any, t: Any, hot: Any, axis: tuple[int, ...]) -> Any:
    """(s - t) - (s - t)_k with the rounding errors of s - t added back.

    TwoDiff (Knuth): h = fl(s - t) and l = s - t - h exactly, so that a student close to its
    teacher is told apart under any common offset.
    """
    h = s - t
    v = h - s
    error = (s - (h - v)) - (t + v)
    zero = np.zeros((), s.dtype)
    error = bind("STOP_GRADIENT", bind("WHERE", bind("ISFINITE", error), error, zero))
    return (h - pick(h, hot, axis)) + (error - pick(error, hot, axis))


def _log_ratio(s: Any, t: Any, p: Any, axis: tuple[int, ...]) -> tuple[Any, Any]:
    """z = log softmax(s) - log softmax(t), and where it is small enough to be used.

    z = d - log1p(sum_j p_j expm1(d_j)) with p = softmax(t) and d = (s - t) - (s - t)_k. A term of
    d_j >= 1 is formed as exp(s_j - s_k + log p_k) - p_j: p_j may have underflowed, or class j be
    masked (-inf) in t. The mask is |z| < 1, False where z is NaN.
    """
    hot = first_max(t, axis)
    d = _logit_difference(s, t, hot, axis)
    near = d < 1
    zero = np.zeros((), s.dtype)
    gap = s - pick(s, hot, axis) + pick(bind("LOG_SOFTMAX", t, axis=axis), hot, axis)
    term = bind(
        "WHERE",
        near,
        p * np.expm1(bind("WHERE", near, d, zero)),
        np.exp(bind("WHERE", near, zero, gap)) - p,
    )
    z = d - np.log1p(total(term, axis))
    return z, np.abs(z) < 1


def _difference_body(s: Any, t: Any, *, axis: tuple[int, ...]) -> Any:
    q, p = bind("SOFTMAX", s, axis=axis), bind("SOFTMAX", t, axis=axis)
    z, near = _log_ratio(s, t, p, axis)
    zero = np.zeros((), s.dtype)
    g = bind("WHERE", near, p * np.expm1(bind("WHERE", near, z, zero)), q - p)
    # rows sum to 0: where one class holds most of both, it is minus the sum of the others
    dominant = bind("LAND", first_max(t, axis), np.minimum(p, q) > 0.5)
    rest = total(bind("WHERE", dominant, zero, g), axis)
    return bind("WHERE", dominant, -rest, g)


def _difference_jvp(primals: Any, tangents: Any, y: Any, *, axis: tuple[int, ...]) -> Any:
    del y
    parts = []
    for sign, x, t in zip((1, -1), primals, tangents, strict=True):
        if t is not None:
            p = bind("SOFTMAX", x, axis=axis)
            dot = centred_product(p, first_max(x, axis), t, axis)
            parts.append(dot if sign > 0 else -dot)
    return add_tangents(*parts)


def _difference_vjp(ct: Any, primals: Any, y: Any, *, axis: tuple[int, ...]) -> tuple[Any, ...]:
    del y
    s, t = (
        centred_product(bind("SOFTMAX", x, axis=axis), first_max(x, axis), ct, axis)
        for x in primals
    )
    return s, -t


composite(
    "SOFTMAX_DIFFERENCE",
    widened_body(_difference_body),
    spec=rows_spec("SOFTMAX_DIFFERENCE"),
    jvp=widened_rule(_difference_jvp),
    vjp=widened_rule(_difference_vjp),
    batch=batch_rows("SOFTMAX_DIFFERENCE"),
)


def softmax_difference(s: Any, t: Any, axis: Axis = -1) -> Any:
    """softmax(s) - softmax(t) along axes, without cancellation where s is close to t.

    With p = softmax(t), d = (s - t) - (s - t)_k, k = argmax t, and z = d - log1p(sum p expm1(d)):
    p expm1(z) where |z| < 1, the plain difference elsewhere.

    Arguments: s, t, real, broadcast to one shape; axis, an int, several, or None for all.
    Returns that shape. A class masked (-inf) in both gives 0; NaN as in `softmax`.
    """
    s, t = pair("SOFTMAX_DIFFERENCE", s, t)
    return bind("SOFTMAX_DIFFERENCE", s, t, axis=axis_tuple(axis, np.ndim(s), "SOFTMAX_DIFFERENCE"))


# --- SOFT_CROSS_ENTROPY --------------------------------------------------------------------


def _strong_centred(p: Any, hot: Any, w: Any, axis: tuple[int, ...]) -> Any:
    """`centred_product` where classes of probability 0 count as 0 whatever w is there."""
    d = w - pick(w, hot, axis)
    return bind("STRONG_MUL", p, d - total(bind("STRONG_MUL", p, d), axis))


def _pairing(g: Any, t: Any, hot: Any, axis: tuple[int, ...]) -> Any:
    """sum g t for g of sum 0, with t centred at k; axes stay as extents of 1."""
    return total(g * (t - pick(t, hot, axis)), axis)


def _divergence_spec(kind: str) -> Any:
    def spec(x: Spec, y: Spec, *, axis: tuple[int, ...]) -> Spec:
        rows_spec(kind)(x, y, axis=axis)
        return x.with_shape(reduced(x.shape, axis, False))

    return spec


def _divergence_rules(kind: str, gradients: Any, teacher: int) -> dict[str, Any]:
    """Rules of a loss per row from its gradients(x, y, axis, wanted), None where not wanted.

    `teacher` is the place of the teacher's logits among the operands.
    """

    def jvp(primals: Any, tangents: Any, y: Any, *, axis: tuple[int, ...]) -> Any:
        wanted = tuple(t is not None for t in tangents)
        found = gradients(*primals, axis, wanted)
        parts = [
            _pairing(g, t, first_max(x, axis), axis)
            for g, t, x in zip(found, tangents, primals, strict=True)
            if t is not None
        ]
        return np.reshape(add_tangents(*parts), np.shape(y))

    def vjp(ct: Any, primals: Any, y: Any, *, axis: tuple[int, ...]) -> tuple[Any, ...]:
        del y
        seed = expand(ct, np.shape(primals[0]), axis)
        p = bind("SOFTMAX", primals[teacher], axis=axis)
        return tuple(seed * balanced(g, p, axis) for g in gradients(*primals, axis, (True, True)))

    return {
        "jvp": widened_rule(jvp),
        "vjp": widened_rule(vjp),
        "batch": batch_rows(kind),
    }


def _soft_cross_entropy_body(s: Any, t: Any, *, axis: tuple[int, ...]) -> Any:
    p = bind("SOFTMAX", t, axis=axis)
    terms = bind("STRONG_MUL", p, bind("LOG_SOFTMAX", s, axis=axis))
    return -bind("SUM", terms, axis=axis, keepdims=False)


def _soft_cross_entropy_gradients(s: Any, t: Any, axis: tuple[int, ...], wanted: Any) -> Any:
    """softmax(s) - softmax(t), and p_i (w_i - sum_j p_j w_j) with w = -log softmax(s)."""
    student = bind("SOFTMAX_DIFFERENCE", s, t, axis=axis) if wanted[0] else None
    if not wanted[1]:
        return student, None
    p, w = bind("SOFTMAX", t, axis=axis), -bind("LOG_SOFTMAX", s, axis=axis)
    return student, _strong_centred(p, first_max(t, axis), w, axis)


composite(
    "SOFT_CROSS_ENTROPY",
    widened_body(_soft_cross_entropy_body),
    spec=_divergence_spec("SOFT_CROSS_ENTROPY"),
    **_divergence_rules("SOFT_CROSS_ENTROPY", _soft_cross_entropy_gradients, teacher=1),
)


def soft_cross_entropy(student_logits: Any, teacher_logits: Any, axis: Axis = -1) -> Any:
    """Cross entropy of each student row with its teacher's distribution, unreduced.

    L = -sum_i p_i log q_i with p = softmax(t), q = softmax(s).

    Arguments: student_logits s and teacher_logits t, real, broadcast to one shape (..., classes,
    ...); axis, the class axis or axes.
    Returns one loss per row. A class the teacher masks (-inf) adds 0; one that only the student
    masks gives +inf.
    Gradients: q - p in s, formed by `softmax_difference`, so right for a student 1e-6 away from its
    teacher in float32; p_i (w_i - sum_j p_j w_j) with w = -log q in t, which is not defined where
    the loss is infinite.
    Raises ShapeError where the shapes do not broadcast.
    """
    s, t = pair("SOFT_CROSS_ENTROPY", student_logits, teacher_logits)
    return bind("SOFT_CROSS_ENTROPY", s, t, axis=axis_tuple(axis, np.ndim(s), "SOFT_CROSS_ENTROPY"))


# --- KL_DIVERGENCE -------------------------------------------------------------------------


def _remainder_body(z: Any) -> Any:
    """expm1(z) - z: z^2 / 2 (1 + z / 3 (1 + z / 4 (...))) for |z| < 1, to z^20."""
    small = np.abs(z) < 1
    zero = np.zeros((), z.dtype)
    inner, outer = bind("WHERE", small, z, zero), bind("WHERE", small, zero, z)
    series = 1 + inner / 20
    for n in range(19, 2, -1):
        series = 1 + inner / n * series
    return bind("WHERE", small, 0.5 * inner * inner * series, np.expm1(outer) - outer)


expm1_remainder = unary(
    "EXPM1_REMAINDER",
    body=widened_body(_remainder_body),
    deriv=lambda z, y: np.expm1(z),
    kinds="fV",
    doc="exp(z) - 1 - z, accurate near 0.",
)


def _kl_body(t: Any, s: Any, *, axis: tuple[int, ...]) -> Any:
    """sum p (expm1(z) - z), every term >= 0; (q - p) - p z where z is large."""
    q, p = bind("SOFTMAX", s, axis=axis), bind("SOFTMAX", t, axis=axis)
    z, near = _log_ratio(s, t, p, axis)
    zero = np.zeros((), s.dtype)
    close = p * bind("EXPM1_REMAINDER", bind("WHERE", near, z, zero))
    ratio = bind("LOG_SOFTMAX", s, axis=axis) - bind("LOG_SOFTMAX", t, axis=axis)
    far = (q - p) - bind("STRONG_MUL", p, ratio)
    return bind("SUM", bind("WHERE", near, close, far), axis=axis, keepdims=False)


def _kl_gradients(t: Any, s: Any, axis: tuple[int, ...], wanted: Any) -> Any:
    """p_i (w_i - sum_j p_j w_j) with w = t - s, and softmax(s) - softmax(t)."""
    student = bind("SOFTMAX_DIFFERENCE", s, t, axis=axis) if wanted[1] else None
    if not wanted[0]:
        return None, student
    hot = first_max(t, axis)
    w = -_logit_difference(s, t, hot, axis)
    return _strong_centred(bind("SOFTMAX", t, axis=axis), hot, w, axis), student


composite(
    "KL_DIVERGENCE",
    widened_body(_kl_body),
    spec=_divergence_spec("KL_DIVERGENCE"),
    **_divergence_rules("KL_DIVERGENCE", _kl_gradients, teacher=0),
)


def kl_divergence(teacher_logits: Any, student_logits: Any, axis: Axis = -1) -> Any:
    """Kullback-Leibler divergence of each student row from its teacher's, unreduced.

    KL(p || q) = sum_i p_i log(p_i / q_i) = sum_i p_i (expm1(z_i) - z_i) with p = softmax(t),
    q = softmax(s), z = log q - log p.

    Arguments: teacher_logits t and student_logits s, real, broadcast to one shape (..., classes,
    ...); axis, the class axis or axes.
    Returns one value per row, never negative and relatively accurate for close rows. A class the
    teacher masks (-inf) adds only its weight in q; one that only the student masks gives +inf.
    Gradients: p_i (w_i - sum_j p_j w_j) with w = t - s in t, q - p in s, both without cancellation.
    Raises ShapeError where the shapes do not broadcast.
    """
    t, s = pair("KL_DIVERGENCE", teacher_logits, student_logits)
    return bind("KL_DIVERGENCE", t, s, axis=axis_tuple(axis, np.ndim(t), "KL_DIVERGENCE"))
