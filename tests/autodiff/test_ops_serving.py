from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops as typed_ops
from autodiff.errors import ShapeError

ops: Any = typed_ops  # operands are unpacked into them here

RNG = np.random.default_rng


def test_paged_attention_equals_attention_of_each_sequence():
    rng = RNG(0)
    k, v = rng.normal(size=(6, 4, 2, 3)), rng.normal(size=(6, 4, 2, 5))
    q, table, lengths = rng.normal(size=(3, 4, 3)), np.array([[5, 0], [2, 1], [3, 4]]), [6, 8, 1]
    unread = np.full((6, 4), True)
    for row, n in zip(table, lengths, strict=True):
        unread[row[: -(-n // 4)]] = False
        for place in range(n, 4 * -(-n // 4)):
            unread[row[place // 4], place % 4] = True
    k[unread], v[unread] = np.nan, np.nan
    for window in (None, 3):
        out = ops.paged_attention(q, k, v, table, np.array(lengths), window=window)
        for i, n in enumerate(lengths):
            first = 0 if window is None else max(0, n - window)
            keys, values = (
                np.swapaxes(pages[table[i]].reshape(8, 2, -1)[first:n], 0, 1) for pages in (k, v)
            )
            expected = ops.scaled_dot_product_attention(q[i][:, None], keys, values)[:, 0]
            np.testing.assert_allclose(out[i], expected, rtol=1e-12, atol=1e-14)
    loss = lambda k, v: np.sum(ops.paged_attention(q, k, v, table, np.array(lengths)) ** 2)  # noqa: E731
    for g in ad.grad(loss, (0, 1))(k, v):
        assert np.all(np.isfinite(g))
        assert not np.any(g[unread])


def test_a_written_cache_is_read_back_by_paged_attention():
    rng = RNG(1)
    rows_k, rows_v = rng.normal(size=(5, 1, 2)), rng.normal(size=(5, 1, 2))
    slots = np.array([6, 7, 2, 3, 0])  # pages 3, 1, 0 of two rows each
    caches = [ops.kv_cache_write(np.full((4, 2, 1, 2), np.nan), r, slots) for r in (rows_k, rows_v)]
    q = rng.normal(size=(1, 1, 2))
    out = ops.paged_attention(q, *caches, np.array([[3, 1, 0]]), np.array([5]))
    expected = ops.scaled_dot_product_attention(q[0], rows_k[:, 0], rows_v[:, 0])
    np.testing.assert_allclose(out[0], expected, rtol=1e-12, atol=1e-14)


def test_kv_cache_write_leaves_padding_out_and_lets_the_last_count():
    cache, rows = np.zeros((2, 2, 1)), np.array([[1.0], [2.0], [3.0], [4.0]])
    slots = np.array([3, -1, 0, 3])
    out, pullback = ad.vjp(lambda c, r: ops.kv_cache_write(c, r, slots), cache, rows)
    np.testing.assert_array_equal(out.ravel(), [3.0, 0.0, 0.0, 4.0])
    dc, dr = pullback(np.array([[[5.0], [6.0]], [[7.0], [8.0]]]))
    np.testing.assert_array_equal(dc.ravel(), [0.0, 6.0, 7.0, 0.0])
    np.testing.assert_array_equal(dr.ravel(), [0.0, 0.0, 5.0, 8.0])


def test_moe_experts_sums_the_chosen_experts():
    rng = RNG(2)
    x, router = rng.normal(size=(5, 3)), rng.normal(size=(3, 4))
    gate, up, down = (
        rng.normal(size=(4, 3, 6)),
        rng.normal(size=(4, 3, 6)),
        rng.normal(size=(4, 6, 3)),
    )

    def loop(x, router, gate, up, down, k=2):
        out = []
        for row in x:
            scores = row @ router
            p = np.exp(scores - scores.max())
            p = p / p.sum()
            best = np.argsort(-p, kind="stable")[:k]
            parts = [
                p[j]
                / p[best].sum()
                * ((row @ gate[j]) / (1 + np.exp(-row @ gate[j])) * (row @ up[j]))
                @ down[j]
                for j in best
            ]
            out.append(sum(parts))
        return np.stack(out)

    args = (x, router, gate, up, down)
    np.testing.assert_allclose(ops.moe_experts(*args), loop(*args), rtol=1e-12)
    dense = ops.moe_experts(*args, k=4)
    np.testing.assert_allclose(dense, loop(*args, k=4), rtol=1e-12)
    tied = ops.moe_experts(x, np.zeros((3, 4)), gate, up, down, k=1)
    np.testing.assert_allclose(tied, loop(x, np.zeros((3, 4)), gate, up, down, k=1), rtol=1e-12)
    # an expert that no row chooses gets no derivative, and may hold anything
    x = x[:2]
    chosen = np.unique(np.argsort(-(x @ router), axis=1)[:, :1])
    unused = np.setdiff1d(np.arange(4), chosen)
    assert unused.size
    up[unused] = np.inf
    y, pullback = ad.vjp(lambda g: ops.moe_experts(x, router, g, up, down, k=1), gate)
    assert np.all(np.isfinite(y))
    (g,) = pullback(rng.normal(size=y.shape))
    assert not np.any(g[unused]) and np.all(np.isfinite(g))


def test_gated_delta_rule_is_its_recurrence_on_pieces_too():
    rng = RNG(3)
    q, k, v = rng.normal(size=(2, 6, 3)), rng.normal(size=(2, 6, 3)), rng.normal(size=(2, 6, 4))
    decay, beta = -rng.random((2, 6)), rng.random((2, 6))
    y, end = ops.gated_delta_rule(q, k, v, decay, beta)
    s = np.zeros((2, 3, 4))
    for t in range(6):
        s = s * np.exp(decay[:, t])[:, None, None]
        wrong = v[:, t] - np.einsum("be,bed->bd", k[:, t], s)
        s = s + beta[:, t, None, None] * np.einsum("be,bd->bed", k[:, t], wrong)
        np.testing.assert_allclose(y[:, t], np.einsum("be,bed->bd", q[:, t], s), rtol=1e-11)
    np.testing.assert_allclose(end, s, rtol=1e-12)
    first, state = ops.gated_delta_rule(*(a[:, :2] for a in (q, k, v, decay, beta)))
    last, state = ops.gated_delta_rule(*(a[:, 2:] for a in (q, k, v, decay, beta)), state)
    np.testing.assert_allclose(np.concatenate([first, last], 1), y, rtol=1e-12)
    np.testing.assert_allclose(state, end, rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: ops.kv_cache_write(np.ones((2, 2, 3)), np.ones((4, 2)), np.arange(4)),
            r"KV_CACHE_WRITE operands do not fit: .*\nin op KV_CACHE_WRITE\nthe cache is \(pages",
        ),
        (
            lambda: ops.paged_attention(
                np.ones((1, 3, 2)), np.ones((1, 2, 2, 2)), np.ones((1, 2, 2, 2)), [[0]], [1]
            ),
            r"PAGED_ATTENTION operands do not fit: .*\n.*\n.*kv_heads divides heads",
        ),
        (
            lambda: ops.moe_experts(
                *(np.ones(s) for s in ((2,), (2, 3), (3, 2, 1), (3, 2, 1), (3, 1, 2))), k=4
            ),
            r"MOE_EXPERTS operands do not fit: .*\n.*\n.*1 <= k <= experts",
        ),
        (
            lambda: ops.gated_delta_rule(
                *(np.ones(s) for s in ((2, 3), (2, 3), (2, 4), (2,), (3,)))
            ),
            r"GATED_DELTA_RULE operands do not fit: .*\n.*\nq and k are \(\.\.\., time, e\)",
        ),
    ],
)
def test_errors_say_what_where_and_how(call, text):
    with pytest.raises(ShapeError, match=text) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 3
