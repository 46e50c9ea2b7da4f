from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops as typed_ops
from autodiff.errors import ShapeError
from autodiff.lower.jax import lower_jax

ops: Any = typed_ops  # operands are unpacked into them here

RNG = np.random.default_rng
attention = ops.scaled_dot_product_attention


def drawn(seed, *shapes):
    rng = RNG(seed)
    return [rng.normal(size=s) for s in shapes]


TORCH_CASES = [
    ("plain", ((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 2)), {}),
    ("causal", ((2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 5)), {"is_causal": True}),
    ("causal_more_keys", ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)), {"is_causal": True}),
    ("scale", ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)), {"scale": 0.3}),
    ("grouped", ((2, 6, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)), {}),
    ("no_heads", ((3, 4), (5, 4), (5, 2)), {}),
    ("bool_mask", ((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)), {"mask": "bool"}),
    ("float_mask", ((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)), {"mask": "float"}),
]


@pytest.mark.parametrize(("name", "shapes", "kwargs"), TORCH_CASES, ids=[c[0] for c in TORCH_CASES])
def test_values_and_gradients_agree_with_torch(name, shapes, kwargs):
    torch = pytest.importorskip("torch")
    operands = drawn(0, *shapes)
    kwargs, extra = dict(kwargs), {}
    masks = []
    if kwargs.pop("mask", None) == "bool":
        seen = RNG(1).random((3, 3)) < 0.6
        seen[:, 0] = True
        kwargs["mask"], extra["attn_mask"] = seen, torch.tensor(seen)
    elif "mask" in str(name):
        masks = drawn(2, (3, 3))
    tensors = [torch.tensor(v, requires_grad=True) for v in (*operands, *masks)]
    extra |= {k: v for k, v in kwargs.items() if k != "mask"}
    if masks:
        extra["attn_mask"] = tensors[3]
    ty = torch.nn.functional.scaled_dot_product_attention(
        *tensors[:3], **extra, enable_gqa=name == "grouped"
    )
    y, pullback = ad.vjp(lambda *a: attention(*a, **kwargs), *operands, *masks)
    np.testing.assert_allclose(y, ty.detach().numpy(), rtol=1e-12, atol=1e-13)
    ct = RNG(3).normal(size=y.shape)
    grads = torch.autograd.grad(ty, tensors, torch.tensor(ct))
    for ours, theirs in zip(pullback(ct), grads, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-11, atol=1e-13)


def test_a_fully_masked_row_leaves_the_shared_gradient_finite():
    # pytorch/pytorch#41508: the gradient of v was NaN through a row that the loss did not use
    q, k, v = np.array([[0.5], [1.0]]), np.array([[0.3], [-0.7]]), np.array([[2.0], [-1.0]])
    seen = np.array([[True, True], [False, False]])
    for mask in (seen, np.where(seen, 0.0, -np.inf)):
        out = attention(q, k, v, mask, scale=1.0)
        np.testing.assert_allclose(out[0, 0], 0.8673779936055637, rtol=1e-12)
        assert out[1, 0] == 0
        loss = lambda q, k, v, m=mask: attention(q, k, v, m, scale=1.0)[0, 0]  # noqa: E731
        dq, dk, dv = ad.grad(loss, (0, 1, 2))(q, k, v)
        np.testing.assert_allclose(dq[:, 0], [0.7050111366047834, 0.0], rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(dk[:, 0], [0.3525055683023917, -0.3525055683023917], rtol=1e-10)
        np.testing.assert_allclose(dv[:, 0], [0.6224593312018546, 0.37754066879814546], rtol=1e-10)
        second = ad.hvp(lambda q, f=loss: f(q, k, v), (q,), (np.ones_like(q),))
        assert all(np.all(np.isfinite(s)) for s in ad.tree.flatten(second)[0])


def test_a_fully_masked_row_survives_differentiation_by_jax():
    jax = pytest.importorskip("jax")
    q, k, v = drawn(13, (2, 3), (4, 3), (4, 2))
    bias = np.array([[0.5, -np.inf, 0.0, 1.0], [-np.inf] * 4])
    lowered = lower_jax(ad.trace(lambda *a: attention(*a, bias), q, k, v))
    ct = RNG(14).normal(size=(2, 2))
    with jax.enable_x64(True):
        theirs = jax.grad(lambda a: (lowered(*a) * ct).sum())((q, k, v))
    ours = ad.vjp(lambda *a: attention(*a, bias), q, k, v)[1](ct)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, np.asarray(b), rtol=1e-12, atol=1e-14)


def test_masked_keys_are_as_if_absent():
    q, k, v = drawn(4, (2, 3, 4), (2, 5, 4), (2, 5, 3))
    seen = np.array([True, False, True, False, True])
    whole, pull = ad.vjp(lambda q, k, v: attention(q, k, v, seen), q, k, v)
    part, pull_part = ad.vjp(lambda q, k, v: attention(q, k, v), q, k[:, seen], v[:, seen])
    np.testing.assert_allclose(whole, part, rtol=1e-13, atol=1e-15)
    ct = RNG(5).normal(size=whole.shape)
    (dq, dk, dv), (dq2, dk2, dv2) = pull(ct), pull_part(ct)
    np.testing.assert_allclose(dq, dq2, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(dk[:, seen], dk2, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(dv[:, seen], dv2, rtol=1e-12, atol=1e-14)
    assert not np.any(dk[:, ~seen]) and not np.any(dv[:, ~seen])


def test_grouped_queries_equal_repeated_kv_heads():
    q, k, v = drawn(6, (2, 4, 3, 2), (2, 2, 5, 2), (2, 2, 5, 3))
    repeated = [np.repeat(a, 2, axis=1) for a in (k, v)]
    np.testing.assert_allclose(attention(q, k, v), attention(q, *repeated), rtol=1e-13, atol=1e-15)


def test_huge_scores_give_a_finite_gradient():
    q, k, v = drawn(7, (3, 2), (4, 2), (4, 2))
    for scale in (1e3, 1e18):
        y, pullback = ad.vjp(lambda *a, s=scale: attention(*a, scale=s), q, k, v)
        assert np.all(np.isfinite(y))
        assert all(np.all(np.isfinite(g)) for g in pullback(np.ones_like(y) * 0.3))


def test_products_keep_float32_on_devices_that_round_operands():
    q, k, v = drawn(8, (3, 4), (5, 4), (5, 2))
    program = ad.trace(attention, q, k, v)
    coarse = ad.interpret(program, q, k, v, precision="float32", dot="bf16x1")
    fine = ad.interpret(program, q, k, v, precision="float32")
    np.testing.assert_array_equal(coarse, fine)


ERRORS = [
    (((3, 4), (5, 3), (5, 2)), {}, r"q has width 4, k 3\nin op SCALED_DOT_PRODUCT_ATTENTION, q "),
    (((3, 4), (5, 4), (6, 2)), {}, "there are 5 keys and 6 values"),
    (((6, 3, 4), (4, 5, 4), (4, 5, 2)), {}, "6 heads do not share 4 heads of k and 4 of v evenly"),
    (((6, 3, 4), (5, 4), (5, 2)), {}, "q, k and v need two axes or more, and a heads axis all"),
    (((2, 1, 3, 4), (3, 1, 5, 4), (3, 1, 5, 2)), {}, "leading axes do not broadcast"),
    (
        ((3, 4), (5, 4), (5, 2)),
        {"mask": np.ones((5, 3), bool)},
        r"the mask \(5, 3\) does not broadcast to the scores \(3, 5\)",
    ),
    (
        ((3, 4), (5, 4), (5, 2)),
        {"mask": np.ones((3, 5), int)},
        r"the mask is int64: .*\n.*\npass mask\.astype\(bool\)",
    ),
]


@pytest.mark.parametrize(("shapes", "kwargs", "text"), ERRORS)
def test_errors_say_what_where_and_how(shapes, kwargs, text):
    with pytest.raises(ShapeError, match=text) as caught:
        attention(*(np.ones(s) for s in shapes), **kwargs)
    assert len(str(caught.value).splitlines()) == 3


# --- rope ----------------------------------------------------------------------------------


def test_rope_layouts():
    # karpathy/nanochat#264: both pairings are rotations; mixing one's angles with the other is not
    x = np.array([1.0, 2.0, 3.0, 4.0])
    pairs = ops.rope(x, 1, interleaved=True)
    halves = ops.rope(x, 1)
    expected = [-1.1426396637476532, 1.922075596544176, 2.9598506679133294, 4.029799501669161]
    np.testing.assert_allclose(pairs, expected, rtol=1e-12)
    expected = [-1.9841106485555495, 1.959900667496664, 2.4623779024123156, 4.019799668334994]
    np.testing.assert_allclose(halves, expected, rtol=1e-12)
    for turned in (pairs, halves):
        np.testing.assert_allclose(np.linalg.norm(turned), 5.477225575051661, rtol=1e-12)
    order = [0, 2, 1, 3]
    np.testing.assert_array_equal(ops.rope(x[order], 1)[order], pairs)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_scores_depend_on_the_difference_of_positions_alone(interleaved):
    q, k = drawn(9, (8,), (8,))

    def score(m, n):
        return np.dot(
            ops.rope(q, m, interleaved=interleaved), ops.rope(k, n, interleaved=interleaved)
        )

    np.testing.assert_allclose(score(3, 1), score(5, 3), rtol=1e-12)
    np.testing.assert_allclose(score(3, 1), score(10003, 10001), rtol=1e-10)
    assert abs(score(3, 1) - score(3, 2)) > 1e-3


@pytest.mark.parametrize("position", [3, 4095, 4096, 99_991, 1_000_003])
def test_rope_angles_keep_their_digits_in_float32(position):
    x = RNG(10).normal(size=(16,)).astype(np.float32)
    exact = ops.rope(x.astype(np.float64), position)
    program = ad.trace(lambda x, p: ops.rope(x, p), x, np.array(position))
    ours = [
        ops.rope(x, position),
        ad.interpret(program, x, np.array(position), precision="float32"),
    ]
    allowed = 2e-6 if position < 200_000 else 2e-5
    for got in ours:
        assert got.dtype == np.float32
        assert np.max(np.abs(got - exact)) < allowed
    frequency = (10000.0 ** (-np.arange(8) / 8)).astype(np.float32)
    angle = np.float32(position) * frequency
    direct = np.concatenate(
        [
            x[:8] * np.cos(angle) - x[8:] * np.sin(angle),
            x[8:] * np.cos(angle) + x[:8] * np.sin(angle),
        ]
    )
    if position > 200_000:  # the angle rounded to float32 is far off there
        assert np.max(np.abs(direct - exact)) > 1e-3


def test_rope_is_differentiable_in_fractional_positions():
    x, p = RNG(11).normal(size=(3, 4)), np.array([0.3, 4.7, 5000.25])
    _, dot = ad.jvp(lambda p: ops.rope(x, p), (p,), (np.ones(3),))
    # d/dp of a rotation turns by a right angle and scales by the frequency
    turned, f = ops.rope(x, p), np.array([1.0, 0.01])
    expected = np.concatenate([-turned[:, 2:] * f, turned[:, :2] * f], 1)
    np.testing.assert_allclose(dot, expected, rtol=1e-9, atol=1e-12)


def test_rope_errors():
    with pytest.raises(
        ShapeError, match=r"cannot rotate x float64\[3\] by positions int64\[\]\n.*\n.*even"
    ):
        ops.rope(np.ones(3), 1)
    with pytest.raises(ShapeError, match="positions broadcast to"):
        ops.rope(np.ones((2, 4)), np.arange(3))


def test_swiglu_is_silu_times_up():
    gate, up = drawn(12, (2, 3), (3,))
    np.testing.assert_allclose(ops.swiglu(gate, up), ops.silu(gate) * up, rtol=1e-15)
