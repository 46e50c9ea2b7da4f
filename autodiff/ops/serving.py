"""What a language model's server runs: cache writes, paged attention, experts, the delta rule.

All are composites, differentiable wherever the mathematics is.
"""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import composite, promote, whole
from autodiff.ops.attention import scaled_dot_product_attention
from autodiff.ops.elementwise import cast, where
from autodiff.ops.reduction import as_array
from autodiff.ops.scan import scan
from autodiff.ops.shape import concatenate, reshape, slice_, transpose
from autodiff.program import Spec
from autodiff.trace import bind
from autodiff.widen import widened_body

__all__ = ["gated_delta_rule", "kv_cache_write", "moe_experts", "paged_attention"]


def _product(x: Any, y: Any) -> Any:
    return bind("MATMUL", x, y, algorithm="f32")


def _check(kind: str, ok: bool, layout: str, *specs: Spec) -> None:
    if not ok:
        raise ShapeError(
            f"{kind} operands do not fit: {', '.join(map(str, specs))}", f"in op {kind}", layout
        )


def _floating(*specs: Spec) -> bool:
    return len({s.dtype for s in specs}) == 1 and specs[0].dtype.kind in "fV"


def _integers(*specs: Spec) -> bool:
    return all(s.dtype.kind in "iu" for s in specs)


# --- KV_CACHE_WRITE ------------------------------------------------------------------------


def _cache_spec(cache: Spec, rows: Spec, slots: Spec) -> Spec:
    _check(
        "KV_CACHE_WRITE",
        cache.ndim >= 2
        and slots.ndim == 1
        and rows.shape == (*slots.shape, *cache.shape[2:])
        and _integers(slots)
        and rows.dtype == cache.dtype,
        "the cache is (pages, page_size, ...), rows (tokens, ...), slots (tokens,) integers",
        cache,
        rows,
        slots,
    )
    return cache


def _cache_body(cache: Any, rows: Any, slots: Any) -> Any:
    pages, size, *rest = np.shape(cache)
    count = pages * size
    # one row more receives what is not to be written
    bin_row = np.zeros((1, *rest), cache.dtype)
    flat = concatenate([reshape(cache, (count, *rest)), bin_row], 0)
    at = where(slots < 0, np.asarray(count, slots.dtype), slots)
    out = bind("SCATTER", flat, rows, at, axis=0)
    zeros = (0,) * len(rest)
    return reshape(slice_(out, (0, *zeros), (count, *rest)), np.shape(cache))


composite("KV_CACHE_WRITE", _cache_body, spec=_cache_spec)


def kv_cache_write(cache: Any, rows: Any, slots: Any) -> Any:
    """A copy of a paged cache with one row written for each token.

    Arguments: cache (pages, page_size, ...); rows (tokens, ...); slots (tokens,): integers
    page * page_size + offset, negative ones for tokens that are not written (padding).
    Returns the cache. Of equal slots the last one counts. Linear in the cache and the rows;
    overwritten and unwritten rows have derivative 0.
    Raises ShapeError for shapes that do not fit, IndexingError (when evaluated) for slots beyond.
    """
    cache, rows = promote(cache, rows)
    return bind("KV_CACHE_WRITE", cache, rows, as_array(slots))


# --- PAGED_ATTENTION -----------------------------------------------------------------------


def _paged_spec(
    q: Spec, k: Spec, v: Spec, table: Spec, lengths: Spec, *, scale: float, window: int | None
) -> Spec:
    del scale, window
    ranks = (q.ndim, k.ndim, v.ndim, table.ndim, lengths.ndim) == (3, 4, 4, 2, 1)
    _check(
        "PAGED_ATTENTION",
        ranks
        and q.shape[0] == table.shape[0] == lengths.shape[0]
        and k.shape[:3] == v.shape[:3]
        and k.shape[3] == q.shape[2]
        and k.shape[2] > 0
        and q.shape[1] % k.shape[2] == 0
        and _floating(q, k, v)
        and _integers(table, lengths),
        "q is (batch, heads, e), k and v pages (pages, page_size, kv_heads, e or d), the table "
        "(batch, pages of a sequence) and lengths (batch,) integers; kv_heads divides heads",
        q,
        k,
        v,
        table,
        lengths,
    )
    return q.with_shape((*q.shape[:2], v.shape[3]))


def _paged_body(
    q: Any, k: Any, v: Any, table: Any, lengths: Any, *, scale: float, window: int | None
) -> Any:
    batch, count = np.shape(table)
    size = np.shape(k)[1]
    length = reshape(cast(lengths, np.int64), (batch, 1))
    place = np.arange(count * size)
    seen = place < length
    if window is not None:
        seen = seen & (place >= length - window)
    used = np.arange(count) * size < length
    table = where(used, cast(table, np.int64), np.zeros((), np.int64))

    def sequence(pages: Any) -> Any:
        """(batch, kv_heads, keys, n); what lies past the length is not read."""
        _, _, heads, n = np.shape(pages)
        rows = reshape(bind("GATHER", pages, table, axis=0), (batch, count * size, heads, n))
        held = reshape(seen, (batch, count * size, 1, 1))
        return transpose(where(held, rows, np.zeros((), pages.dtype)), (0, 2, 1, 3))

    rows = reshape(q, (*np.shape(q)[:2], 1, np.shape(q)[2]))
    mask = reshape(seen, (batch, 1, 1, count * size))
    out = scaled_dot_product_attention(rows, sequence(k), sequence(v), mask, scale=scale)
    return reshape(out, (*np.shape(q)[:2], np.shape(v)[3]))


composite("PAGED_ATTENTION", _paged_body, spec=_paged_spec)


def paged_attention(
    q: Any,
    k_pages: Any,
    v_pages: Any,
    table: Any,
    lengths: Any,
    scale: float | None = None,
    window: int | None = None,
) -> Any:
    """Attention of one query per sequence to keys and values that lie in shared pages.

    Arguments: q (batch, heads, e); k_pages (pages, page_size, kv_heads, e), v_pages likewise with
    d; table (batch, m): the pages of each sequence in order; lengths (batch,): how many of its keys
    are valid; scale: 1 / sqrt(e) by default; window: only the last so many keys are seen.
    Returns (batch, heads, d): `scaled_dot_product_attention` of the gathered sequence. What lies
    past a length, in pages or in the table, is never read (it may be NaN); length 0 gives 0.
    Raises ShapeError for shapes that do not fit.
    """
    q, k, v = promote(q, k_pages, v_pages, inexact=True)
    width = np.shape(q)[-1] if np.ndim(q) else 1
    return bind(
        "PAGED_ATTENTION",
        q,
        k,
        v,
        as_array(table),
        as_array(lengths),
        scale=float(scale if scale is not None else 1.0 / np.sqrt(max(width, 1))),
        window=None if window is None else whole(window, "window"),
    )


# --- MOE_EXPERTS ---------------------------------------------------------------------------


def _moe_spec(x: Spec, router: Spec, gate: Spec, up: Spec, down: Spec, *, k: int) -> Spec:
    experts, width, hidden = gate.shape if gate.ndim == 3 else (0, 0, 0)
    _check(
        "MOE_EXPERTS",
        x.ndim >= 1
        and gate.ndim == 3
        and x.shape[-1] == width
        and router.shape == (width, experts)
        and up.shape == gate.shape
        and down.shape == (experts, hidden, width)
        and 1 <= k <= experts
        and _floating(x, router, gate, up, down),
        "x is (..., d), the router (d, experts), gate and up (experts, d, f), down "
        "(experts, f, d), 1 <= k <= experts",
        x,
        router,
        gate,
        up,
        down,
    )
    return x


def _moe_body(x: Any, router: Any, gate: Any, up: Any, down: Any, *, k: int) -> Any:
    shape, (experts, width, _) = np.shape(x), np.shape(gate)
    count = int(np.prod(shape[:-1], dtype=np.int64))
    x = reshape(x, (count, width))
    best, chosen = bind("TOP_K", _product(x, router), k=k)
    share = bind("SOFTMAX", best, axis=(1,))
    # every expert sees every token; those not chosen are left out of the sum
    outs = _product(bind("SWIGLU", _product(x, gate), _product(x, up)), down)
    hit = reshape(chosen, (count, k, 1)) == np.arange(experts)
    zero = np.zeros((), x.dtype)
    shares = bind("SUM", where(hit, reshape(share, (count, k, 1)), zero), axis=(1,), keepdims=False)
    used = bind("ANY", hit, axis=(1,), keepdims=False)
    shares, used = (reshape(transpose(v), (experts, count, 1)) for v in (shares, used))
    total = bind("SUM", where(used, shares * outs, zero), axis=(0,), keepdims=False)
    return reshape(total, shape)


composite("MOE_EXPERTS", widened_body(_moe_body), spec=_moe_spec)


def moe_experts(x: Any, router: Any, w_gate: Any, w_up: Any, w_down: Any, k: int = 2) -> Any:
    """A mixture of experts: each row goes to the k gated layers its router scores highest.

    y = sum_{j in top k} p_j (silu(x gate_j) * (x up_j)) down_j, p the softmax of x router over the
    chosen k (the softmax over all, renormalised).

    Arguments: x (..., d); router (d, e); w_gate and w_up (e, d, f); w_down (e, f, d); k, static. Of
    equal scores the lower expert is chosen. All experts are evaluated on all rows.
    Returns x's shape. Products keep full float32 on every device. The choice is held fixed in
    derivatives: there is none where the k-th and the next score are equal.
    Raises ShapeError for shapes that do not fit or k out of range.
    """
    return bind(
        "MOE_EXPERTS",
        *promote(x, router, w_gate, w_up, w_down, inexact=True),
        k=whole(k, "k of MOE_EXPERTS"),
    )


# --- GATED_DELTA_RULE ----------------------------------------------------------------------


def _delta_spec(
    q: Spec, k: Spec, v: Spec, log_decay: Spec, beta: Spec, state: Spec
) -> tuple[Spec, Spec]:
    rows, width, depth = q.shape[:-1], q.shape[-1:], v.shape[-1:]
    _check(
        "GATED_DELTA_RULE",
        q.ndim >= 2
        and q.shape == k.shape
        and v.shape == (*rows, *depth)
        and log_decay.shape == beta.shape == rows
        and state.shape == (*rows[:-1], *width, *depth)
        and _floating(q, k, v, log_decay, beta, state),
        "q and k are (..., time, e), v (..., time, d), log_decay and beta (..., time), the state "
        "(..., e, d)",
        q,
        k,
        v,
        log_decay,
        beta,
        state,
    )
    return v, state


def _delta_body(q: Any, k: Any, v: Any, log_decay: Any, beta: Any, state: Any) -> tuple[Any, Any]:
    n = np.ndim(q)
    order = (n - 2, *range(n - 2), n - 1)

    def step(s: Any, row: Any) -> tuple[Any, Any]:
        q, k, v, decay, b = row
        s = s * decay
        seen = _product(np.swapaxes(k, -1, -2), s)
        s = s + k * (b * (v - seen))
        return s, _product(np.swapaxes(q, -1, -2), s)

    def column(x: Any) -> Any:
        x = transpose(x, order)
        return reshape(x, (*np.shape(x), 1))

    def scalar(x: Any) -> Any:
        x = transpose(x, (n - 2, *range(n - 2)))
        return reshape(x, (*np.shape(x), 1, 1))

    values = transpose(v, order)
    values = reshape(values, (*np.shape(values)[:-1], 1, np.shape(v)[-1]))
    rows = (column(q), column(k), values, scalar(np.exp(log_decay)), scalar(beta))
    end, out = scan(step, state, rows)
    out = reshape(out, (*np.shape(out)[:-2], np.shape(v)[-1]))
    return transpose(out, (*range(1, n - 1), 0, n - 1)), end


composite("GATED_DELTA_RULE", widened_body(_delta_body), spec=_delta_spec, outputs=2)


def gated_delta_rule(
    q: Any, k: Any, v: Any, log_decay: Any, beta: Any, state: Any = None
) -> tuple[Any, Any]:
    """A linear-attention memory that forgets and corrects itself, step by step.

    S <- S exp(log_decay), S <- S + beta k (v - k^T S)^T, y = q^T S, for each time in order.

    Arguments: q and k (..., t, e), v (..., t, d), log_decay and beta (..., t), state (..., e, d)
    (zeros by default).
    Returns y (..., t, d) and the last state; calls on consecutive pieces, handing on the state,
    equal one call on the whole. Smooth everywhere. Raises ShapeError for shapes that do not fit.
    """
    q, k, v, log_decay, beta = promote(q, k, v, log_decay, beta, inexact=True)
    if state is None:
        state = np.zeros((*np.shape(q)[:-2], np.shape(q)[-1], np.shape(v)[-1]), q.dtype)
    return tuple(bind("GATED_DELTA_RULE", *promote(q, k, v, log_decay, beta, state)))
