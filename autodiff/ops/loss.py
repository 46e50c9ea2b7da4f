"""Losses: cross entropies with labels, binary cross entropy, squared and Huber errors."""

from collections.abc import Callable
from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import axis_tuple, batch_leading, composite, nondiff, promote, whole
from autodiff.kernels import loss as kernels
from autodiff.ops.reduction import Axis, as_array, expand, inexact, reduced
from autodiff.ops.softmax import batch_rows, check_floating, log_softmax_pullback, others, pair
from autodiff.program import Spec
from autodiff.trace import bind
from autodiff.widen import widened_body, widened_rule

__all__ = [
    "cosine_similarity",
    "cross_entropy",
    "huber",
    "label_mask",
    "mse",
    "nll",
    "sigmoid_cross_entropy",
]

# --- class labels --------------------------------------------------------------------------


def _label_spec(labels: Spec, *, classes: int, axis: int) -> Spec:
    if labels.dtype.kind not in "iu":
        raise ShapeError(
            f"labels must be integers, got {labels.dtype.name}",
            f"in op LABEL_MASK, operand {labels}",
            "convert with astype(np.int64), or pass probabilities of the logits' shape",
        )
    return Spec((*labels.shape[:axis], classes, *labels.shape[axis:]), np.dtype(np.bool_))


nondiff(
    "LABEL_MASK",
    kernels.label_mask,
    spec=_label_spec,
    batch=batch_leading("LABEL_MASK", shift=("axis",)),
    jax="rules:label_mask",
    doc="A bool mask along a new axis of `classes`, True where the index equals the label.",
)


def label_mask(labels: Any, classes: int, axis: int = -1) -> Any:
    """A bool mask with a new axis of `classes`, True where the index along it equals the label.

    Arguments: labels, integers of any shape; classes, the extent of the new axis; axis, its place
    in the result. A label outside [0, classes) has no True. No tangent space.
    """
    labels = as_array(labels)
    (normal,) = axis_tuple(axis, np.ndim(labels) + 1, "LABEL_MASK")
    return bind("LABEL_MASK", labels, classes=whole(classes, "classes"), axis=normal)


def _labelled(values: Any, labels: Any, axis: int) -> Any:
    """The entry of each row that its label names; NaN for a label that names none."""
    hot = bind("LABEL_MASK", labels, classes=np.shape(values)[axis], axis=axis)
    zero = np.zeros((), values.dtype)
    chosen = bind("SUM", bind("WHERE", hot, values, zero), axis=(axis,), keepdims=False)
    known = bind("ANY", hot, axis=(axis,), keepdims=False)
    return bind("WHERE", known, chosen, np.full((), np.nan, values.dtype))


def _row_axis(axis: int, ndim: int, kind: str) -> int:
    (normal,) = axis_tuple(axis, ndim, kind)
    return normal


def _rows_loss_spec(kind: str, targets: str) -> Any:
    """Spec rule of a loss per row: (logits, labels or probabilities) -> one value per row."""

    def spec(x: Spec, y: Spec, *, axis: int) -> Spec:
        axis_tuple(axis, x.ndim, kind)
        rows = reduced(x.shape, (axis,), False)
        integers = y.dtype.kind in "iu"
        labels = integers or targets == "labels"
        check_floating(kind, x, *(() if labels else (y,)))
        expected = rows if labels else x.shape
        if y.shape != expected or labels != integers:
            what = "integer labels" if labels else "probabilities"
            raise ShapeError(
                f"{kind} takes {what} of shape {expected}, got {y}",
                f"in op {kind}, logits {x}, axis {axis}",
                "labels have the logits' shape without the class axis",
            )
        return x.with_shape(rows)

    return spec


# --- CROSS_ENTROPY and NLL -----------------------------------------------------------------


def _cross_entropy_body(x: Any, y: Any, *, axis: int) -> Any:
    logp = bind("LOG_SOFTMAX", x, axis=(axis,))
    if y.dtype.kind in "iu":
        return -_labelled(logp, y, axis)
    # 0 * -inf is 0: a masked class without weight adds nothing (google-deepmind/optax#896)
    return -bind("SUM", bind("STRONG_MUL", y, logp), axis=(axis,), keepdims=False)


def _cross_entropy_vjp(ct: Any, primals: Any, y: Any, *, axis: int) -> tuple[Any, ...]:
    """g p_i, and -g sum_{j != t} p_j at the label t; probabilities as the body has it."""
    del y
    x, labels = primals
    if labels.dtype.kind not in "iu":
        seed = -expand(ct, np.shape(x), (axis,))
        logits = log_softmax_pullback(bind("STRONG_MUL", labels, seed), x, (axis,))
        return logits, bind("STRONG_MUL", seed, bind("LOG_SOFTMAX", x, axis=(axis,)))
    hot = bind("LABEL_MASK", labels, classes=np.shape(x)[axis], axis=axis)
    known = bind("ANY", hot, axis=(axis,), keepdims=True)
    seed = bind("WHERE", known, expand(ct, np.shape(x), (axis,)), np.zeros((), ct.dtype))
    p = bind("SOFTMAX", x, axis=(axis,))
    return bind("WHERE", hot, -others(p, hot, (axis,)) * seed, p * seed), None


composite(
    "CROSS_ENTROPY",
    widened_body(_cross_entropy_body),
    spec=_rows_loss_spec("CROSS_ENTROPY", "either"),
    vjp=widened_rule(_cross_entropy_vjp),
    batch=batch_rows("CROSS_ENTROPY"),
)


def cross_entropy(logits: Any, labels: Any, axis: int = -1) -> Any:
    """Cross entropy of each row of logits with its label, unreduced.

    L = -log softmax(x)_t for an integer label t, L = -sum_i y_i log softmax(x)_i for
    probabilities y.

    Arguments: logits, real, shape (..., classes, ...); labels, integers of that shape without the
    class axis, or probabilities of that shape; axis, the class axis.
    Returns one loss per row, of the logits' dtype. A class with logit -inf and weight 0 adds 0,
    with positive weight +inf; a label outside [0, classes) gives NaN.
    Gradient in the logits: softmax(x) - y, whose entry at the label is minus the sum of the
    others; in the probabilities: -log softmax(x).
    Raises ShapeError where the shapes do not fit.
    """
    logits, labels = inexact(logits), as_array(labels)
    if labels.dtype.kind not in "iu":
        logits, labels = promote(logits, labels)
    return bind(
        "CROSS_ENTROPY", logits, labels, axis=_row_axis(axis, np.ndim(logits), "CROSS_ENTROPY")
    )


def _nll_body(x: Any, y: Any, *, axis: int) -> Any:
    return -_labelled(x, y, axis)


composite("NLL", _nll_body, spec=_rows_loss_spec("NLL", "labels"))


def nll(log_probabilities: Any, labels: Any, axis: int = -1) -> Any:
    """Negative log likelihood of each row's label, unreduced: L = -l_t.

    Arguments: log_probabilities l, real, shape (..., classes, ...); labels, integers of that shape
    without the class axis. Returns one loss per row; NaN for a label outside [0, classes).
    Raises ShapeError where the shapes do not fit.
    """
    values = inexact(log_probabilities)
    labels = as_array(labels)
    return bind("NLL", values, labels, axis=_row_axis(axis, np.ndim(values), "NLL"))


# --- SIGMOID_CROSS_ENTROPY and elementwise losses -------------------------------------------


def _same_shape(kind: str) -> Callable[[Spec, Spec], Spec]:
    """Spec rule of an elementwise loss on floating operands of one shape."""

    def spec(x: Spec, y: Spec) -> Spec:
        check_floating(kind, x, y)
        if x.shape != y.shape:
            raise ShapeError(
                f"{kind} operands have shapes {x.shape} and {y.shape}",
                f"in op {kind}",
                "broadcast them to one shape first",
            )
        return x

    return spec


def _sigmoid_cross_entropy_body(x: Any, y: Any) -> Any:
    # both terms are >= 0: nothing cancels in the value or in sigmoid(x) - y
    return bind("STRONG_MUL", y, bind("SOFTPLUS", -x)) + bind(
        "STRONG_MUL", 1 - y, bind("SOFTPLUS", x)
    )


composite(
    "SIGMOID_CROSS_ENTROPY",
    widened_body(_sigmoid_cross_entropy_body),
    spec=_same_shape("SIGMOID_CROSS_ENTROPY"),
    elementwise=True,
)


def sigmoid_cross_entropy(logits: Any, labels: Any) -> Any:
    """Binary cross entropy of logits with labels in [0, 1], elementwise.

    L = y log(1 + exp(-x)) + (1 - y) log(1 + exp(x)).

    Arguments: logits x and labels y, real, broadcast to one shape. Returns that shape.
    An infinite logit whose opposite label has weight 0 gives 0, otherwise +inf.
    Gradients: sigmoid(x) - y in x, formed as (1 - y) sigmoid(x) - y sigmoid(-x); -x in y.
    Raises ShapeError where the shapes do not broadcast.
    """
    x, y = pair("SIGMOID_CROSS_ENTROPY", logits, labels)
    return bind("SIGMOID_CROSS_ENTROPY", x, y)


def _reduced_spec(kind: str) -> Any:
    def spec(x: Spec, y: Spec, *, axis: tuple[int, ...], **params: Any) -> Spec:
        axis_tuple(axis, x.ndim, kind)
        return x.with_shape(reduced(_same_shape(kind)(x, y).shape, axis, False))

    return spec


def _mse_body(x: Any, y: Any, *, axis: tuple[int, ...]) -> Any:
    r = x - y
    return bind("MEAN", r * r, axis=axis, keepdims=False)


composite("MSE", widened_body(_mse_body), spec=_reduced_spec("MSE"))


def mse(x: Any, y: Any, axis: Axis = None) -> Any:
    """Mean squared error along axes.

    L = mean_i (x_i - y_i)^2.

    Arguments: x and y, real, broadcast to one shape; axis as in `sum`.
    Returns that shape without the axes; NaN for no elements.
    Raises ShapeError where the shapes do not broadcast.
    """
    x, y = pair("MSE", x, y)
    return bind("MSE", x, y, axis=axis_tuple(axis, np.ndim(x), "MSE"))


def _huber_body(x: Any, y: Any, *, delta: float) -> Any:
    r = x - y
    size = np.abs(r)
    inside = size <= delta
    zero = np.zeros((), x.dtype)
    near, far = bind("WHERE", inside, r, zero), bind("WHERE", inside, zero, size)
    return bind("WHERE", inside, 0.5 * near * near, delta * (far - 0.5 * delta))


def _huber_spec(x: Spec, y: Spec, *, delta: float) -> Spec:
    if not delta > 0:
        raise ShapeError(
            f"HUBER needs delta > 0, got {delta}", f"in op HUBER, operand {x}", "pass delta=1.0"
        )
    return _same_shape("HUBER")(x, y)


composite("HUBER", widened_body(_huber_body), spec=_huber_spec, elementwise=True)


def huber(x: Any, y: Any, delta: float = 1.0) -> Any:
    """Huber's error, elementwise: quadratic near 0, linear beyond delta.

    L = r^2 / 2 for |r| <= delta, delta (|r| - delta / 2) beyond, with r = x - y.

    Arguments: x and y, real, broadcast to one shape; delta > 0. Returns that shape.
    Continuously differentiable; at |r| = delta the second derivative is that of the inside.
    """
    x, y = pair("HUBER", x, y)
    return bind("HUBER", x, y, delta=float(delta))


def _cosine_body(x: Any, y: Any, *, axis: tuple[int, ...], eps: float) -> Any:
    u, v = (bind("L2_NORMALIZE", z, axis=axis, eps=eps) for z in (x, y))
    return bind("SUM", u * v, axis=axis, keepdims=False)


composite("COSINE_SIMILARITY", widened_body(_cosine_body), spec=_reduced_spec("COSINE_SIMILARITY"))


def cosine_similarity(x: Any, y: Any, axis: Axis = -1, eps: float = 1e-12) -> Any:
    """Cosine of the angle between vectors along axes.

    c = sum_i x_i y_i / (max(|x|, eps) max(|y|, eps)).

    Arguments: x and y, real, broadcast to one shape; axis as in `sum`; eps as in `l2_normalize`.
    Returns that shape without the axes. Vectors are normalised first: nothing overflows. A zero
    vector gives 0. Raises ShapeError where the shapes do not broadcast.
    """
    x, y = pair("COSINE_SIMILARITY", x, y)
    axes = axis_tuple(axis, np.ndim(x), "COSINE_SIMILARITY")
    return bind("COSINE_SIMILARITY", x, y, axis=axes, eps=float(eps))
