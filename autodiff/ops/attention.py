"""Attention, rotary positions and the gated unit of transformers."""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import binary, composite, promote
from autodiff.ops.elementwise import cast
from autodiff.ops.reduction import as_array
from autodiff.ops.shape import concatenate, reshape, transpose
from autodiff.program import Spec
from autodiff.trace import bind
from autodiff.widen import widened_body

__all__ = ["rope", "scaled_dot_product_attention", "swiglu"]

# --- SCALED_DOT_PRODUCT_ATTENTION ----------------------------------------------------------


def _attention_spec(q: Spec, k: Spec, v: Spec, *mask: Spec, is_causal: bool, scale: float) -> Spec:
    del is_causal, scale
    problem = _misfit(q, k, v, *mask)
    if problem is not None:
        raise ShapeError(
            problem,
            f"in op SCALED_DOT_PRODUCT_ATTENTION, q {q}, k {k}, v {v}"
            + "".join(f", mask {m}" for m in mask),
            "q is (..., heads, queries, e), k (..., kv_heads, keys, e), v (..., kv_heads, keys, d)",
        )
    return q.with_shape((*_rows(q, k, v), q.shape[-2], v.shape[-1]))


def _misfit(q: Spec, k: Spec, v: Spec, *mask: Spec) -> str | None:
    """What is wrong with the operands; None where they fit."""
    ranks, dtypes = {s.ndim > 2 for s in (q, k, v)}, {s.dtype for s in (q, k, v)}
    if min(q.ndim, k.ndim, v.ndim) < 2 or len(ranks) > 1:
        return "q, k and v need two axes or more, and a heads axis all or none"
    if len(dtypes) > 1 or q.dtype.kind not in "fV":
        return "q, k and v are not of one real floating dtype"
    if q.shape[-1] != k.shape[-1]:
        return f"q has width {q.shape[-1]}, k {k.shape[-1]}"
    if k.shape[-2] != v.shape[-2]:
        return f"there are {k.shape[-2]} keys and {v.shape[-2]} values"
    heads, kv_heads = _heads(q), _heads(k)
    if _heads(v) != kv_heads or heads % max(kv_heads, 1) or (heads and not kv_heads):
        return f"{heads} heads do not share {kv_heads} heads of k and {_heads(v)} of v evenly"
    try:
        scores = (*_rows(q, k, v), q.shape[-2], k.shape[-2])
    except ValueError:
        return "leading axes do not broadcast"
    for m in mask:
        if m.ndim > len(scores) or any(
            a not in (1, b) for a, b in zip(m.shape[::-1], scores[::-1], strict=False)
        ):
            return f"the mask {m.shape} does not broadcast to the scores {scores}"
        if m.dtype not in (np.bool_, q.dtype):
            return f"the mask is {m.dtype.name}, neither bool nor {q.dtype.name}"
    return None


def _heads(x: Any) -> int:
    shape = np.shape(x) if not isinstance(x, Spec) else x.shape
    return int(shape[-3]) if len(shape) > 2 else 1


def _rows(q: Spec, k: Spec, v: Spec) -> tuple[int, ...]:
    """Leading axes of the scores, heads included."""
    lead = np.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
    return (*lead, q.shape[-3]) if q.ndim > 2 else lead


def _attention_body(q: Any, k: Any, v: Any, *mask: Any, is_causal: bool, scale: float) -> Any:
    queries, keys, shared = np.shape(q)[-2], np.shape(k)[-2], _heads(q) // max(_heads(k), 1)
    k = transpose(k, (*range(np.ndim(k) - 2), np.ndim(k) - 1, np.ndim(k) - 2))
    scores = _ungrouped(_product(_grouped(q * scale, shared), k), shared)
    hidden = np.full((), -np.inf, q.dtype)
    if is_causal:
        scores = bind("WHERE", np.tri(queries, keys, dtype=np.bool_), scores, hidden)
    if mask and mask[0].dtype == np.bool_:
        scores = bind("WHERE", mask[0], scores, hidden)
    elif mask:
        scores = scores + mask[0]
    if not mask:
        weights = _softmax(scores)
    else:
        # a query that sees no key: finite scores before the softmax, weights 0 after it
        zero = np.zeros((), q.dtype)
        blind = bind("ALL", scores == hidden, axis=(np.ndim(scores) - 1,), keepdims=True)
        weights = bind("WHERE", blind, zero, _softmax(bind("WHERE", blind, zero, scores)))
    return _ungrouped(_product(_grouped(weights, shared), v), shared)


def _softmax(scores: Any) -> Any:
    return bind("SOFTMAX", scores, axis=(np.ndim(scores) - 1,))


def _product(x: Any, y: Any) -> Any:
    return bind("MATMUL", x, y, algorithm="f32")


def _grouped(x: Any, shared: int) -> Any:
    """(..., heads, rows, n) to (..., kv_heads, shared * rows, n): one product per kv head."""
    if shared == 1:
        return x
    *lead, heads, rows, n = np.shape(x)
    return reshape(x, (*lead, heads // max(shared, 1), shared * rows, n))


def _ungrouped(x: Any, shared: int) -> Any:
    if shared == 1:
        return x
    *lead, kv_heads, rows, n = np.shape(x)
    return reshape(x, (*lead, kv_heads * shared, rows // max(shared, 1), n))


composite("SCALED_DOT_PRODUCT_ATTENTION", widened_body(_attention_body), spec=_attention_spec)


def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Any:
    """Attention: the mean of values weighted by the softmax of scaled query-key products.

    y = softmax(scale q k^T + mask) v, the softmax over keys.

    Arguments: q (..., h, l, e), k (..., g, s, e), v (..., g, s, d), or without the heads axis;
    leading axes broadcast; g divides h, and query head i uses kv head i // (h / g) (grouped
    queries). mask broadcasts to the scores (..., h, l, s): bool, True where a key is seen, or
    floating and added, then differentiated too. is_causal: query i sees keys j <= i alone, also
    where s differs from l. scale: 1 / sqrt(e) by default.
    Returns shape (..., h, l, d). Products keep full float32 (algorithm "f32") on every device.
    A query whose keys are all masked gives 0, and so are its derivatives (pytorch/pytorch#41508); a
    masked key gets exactly weight 0, but its value still counts if not finite (0 * inf is NaN).
    Raises ShapeError for shapes, heads, dtypes or a mask that do not fit.
    """
    q, k, v = promote(q, k, v, inexact=True)
    width = np.shape(q)[-1] if np.ndim(q) else 1
    factor = float(scale) if scale is not None else 1.0 / np.sqrt(max(width, 1))
    masks: tuple[Any, ...] = ()
    if mask is not None:
        given = as_array(mask)
        if given.dtype.kind in "iu":
            raise ShapeError(
                f"the mask is {given.dtype.name}: 0 and 1 to add, or to select?",
                "in op SCALED_DOT_PRODUCT_ATTENTION",
                "pass mask.astype(bool) (True: seen), or a floating mask to be added",
            )
        masks = (given if given.dtype == np.bool_ else cast(given, q.dtype),)
    return bind(
        "SCALED_DOT_PRODUCT_ATTENTION",
        q,
        k,
        v,
        *masks,
        is_causal=bool(is_causal),
        scale=float(factor),
    )


# --- ROPE ----------------------------------------------------------------------------------

# Positions are split here, so that each part times 11 bits of a frequency is exact in float32.
_SPAN = 4096.0


def _rope_spec(x: Spec, positions: Spec, *, base: float, interleaved: bool) -> Spec:
    del base, interleaved
    rows, given = x.shape[:-1], positions.shape
    fits = x.ndim > 0 and x.shape[-1] % 2 == 0 and len(given) <= len(rows)
    fits = fits and all(a in (1, b) for a, b in zip(given[::-1], rows[::-1], strict=False))
    if not fits or x.dtype.kind not in "fV" or positions.dtype.kind not in "iufV":
        raise ShapeError(
            f"cannot rotate x {x} by positions {positions}",
            "in op ROPE",
            "x is (..., width) of an even width, positions broadcast to x.shape[:-1]",
        )
    return x


def _turns(positions: Any, base: float, half: int, dtype: np.dtype[Any]) -> Any:
    """positions base^(-i / half) / (2 pi) up to whole turns, shape (..., half).

    In float32 the angle itself is off by 2^-24 of it, 0.06 at position 10^6. The frequency is
    hi + lo with 11 bits in hi: position times hi is exact, and so is taking whole turns off it.
    """
    frequency = base ** (-np.arange(half) / half) / (2 * np.pi) if half else np.zeros(0)
    mantissa, exponent = np.frexp(frequency)
    hi = np.ldexp(np.round(np.ldexp(mantissa, 11)), exponent - 11)
    lo = (frequency - hi).astype(dtype)
    p = cast(positions, dtype)
    p = reshape(p, (*np.shape(p), 1))
    far = np.asarray(_SPAN, dtype) * bind("FLOOR", p / np.asarray(_SPAN, dtype))
    parts = [part * hi.astype(dtype) for part in (far, p - far)]
    near = [part - bind("ROUND", part) for part in parts]
    turns = near[0] + near[1] + p * lo
    return turns - bind("ROUND", turns)


def _rope_body(x: Any, positions: Any, *, base: float, interleaved: bool) -> Any:
    *rows, width = np.shape(x)
    half = width // 2
    angle = _turns(positions, base, half, x.dtype) * np.asarray(2 * np.pi, x.dtype)
    c, s = np.cos(angle), np.sin(angle)
    shape = (*rows, half, 2) if interleaved else (*rows, 2, half)
    axis = len(shape) - 1 if interleaved else len(shape) - 2
    a, b = bind("SPLIT", reshape(x, shape), sizes=(1, 1), axis=axis)
    a, b = reshape(a, (*rows, half)), reshape(b, (*rows, half))
    turned = [
        reshape(v, (*shape[:axis], 1, *shape[axis + 1 :])) for v in (a * c - b * s, b * c + a * s)
    ]
    return reshape(concatenate(turned, axis), (*rows, width))


composite("ROPE", widened_body(_rope_body), spec=_rope_spec)


def rope(x: Any, positions: Any = None, base: float = 10000.0, interleaved: bool = False) -> Any:
    """Rotary position embedding: pairs of components turned by an angle that grows with position.

    (a, b) -> (a cos t - b sin t, b cos t + a sin t), t = position base^(-2 i / n) for pair i.

    Arguments: x of shape (..., l, n), n even; positions, integer or floating, broadcasting to
    x.shape[:-1] (0, ..., l - 1 by default; floating ones are differentiated); base, held fixed.
    interleaved: pairs are (2 i, 2 i + 1), else (i, i + n / 2) ("half-split", "NeoX"). The two are
    one function up to a permutation of components, and weights trained for one are wrong in the
    other (karpathy/nanochat#264).
    Returns x's shape and dtype. Lengths are kept, products of rows depend on the difference of
    their positions alone. In float32 the angle is right to about 1e-6 up to position 10^5.
    Raises ShapeError for an odd width or positions that do not broadcast.
    """
    (x,) = promote(x, inexact=True)
    if positions is None:
        positions = np.arange(np.shape(x)[-2] if np.ndim(x) > 1 else 1)
        positions = positions if np.ndim(x) > 1 else positions.reshape(())
    return bind("ROPE", x, as_array(positions), base=float(base), interleaved=bool(interleaved))


# --- SWIGLU --------------------------------------------------------------------------------


swiglu = binary(
    "SWIGLU",
    body=widened_body(lambda gate, up: bind("SILU", gate) * up),
    kinds="fV",
    doc="""silu(gate) * up = gate sigmoid(gate) up, the gated unit of feed-forward layers.

    Arguments: gate, up: real arrays that broadcast (the two projections of a layer's input).
    Returns the broadcast shape. Smooth everywhere.
    """,
)
