import itertools
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops as typed_ops
from autodiff.errors import ShapeError
from autodiff.kernels import convolution as kernels
from autodiff.lower.jax import lower_jax

ops: Any = typed_ops  # operands are unpacked into them here

RNG = np.random.default_rng


def naive(x, k, stride, padding, lhs_dilation, rhs_dilation, groups):
    """The defining sum, one product at a time."""
    inside = [max(0, (n - 1) * g + 1) for n, g in zip(x.shape[2:], lhs_dilation, strict=True)]
    whole = np.zeros((*x.shape[:2], *inside), x.dtype)
    every: Any = tuple(slice(None, None, g) for g in lhs_dilation)
    whole[(..., *every)] = x
    covered = [(t - 1) * r + 1 for t, r in zip(k.shape[2:], rhs_dilation, strict=True)]
    rows = zip(inside, covered, padding, stride, strict=True)
    out = [max(0, (n + a + b - w) // s + 1) for n, w, (a, b), s in rows]
    y = np.zeros((x.shape[0], k.shape[0], *out), x.dtype)
    taken, own = k.shape[1], k.shape[0] // groups
    for n, o, c in itertools.product(range(x.shape[0]), range(k.shape[0]), range(taken)):
        for p, t in itertools.product(np.ndindex(*out), np.ndindex(*k.shape[2:])):
            at = tuple(
                i * s + j * r - low
                for i, s, j, r, (low, _) in zip(p, stride, t, rhs_dilation, padding, strict=True)
            )
            if all(0 <= a < m for a, m in zip(at, inside, strict=True)):
                y[(n, o, *p)] += k[(o, c, *t)] * whole[(n, o // own * taken + c, *at)]
    return y


def drawn(seed):
    """A random convolution: operands and parameters."""
    rng = RNG(seed)
    axes = int(rng.integers(1, 3))
    groups = int(rng.integers(1, 3))
    x = rng.normal(
        size=(rng.integers(0, 3), groups * rng.integers(1, 3), *rng.integers(1, 6, axes))
    )
    taps = rng.integers(1, 4, axes)
    k = rng.normal(size=(groups * rng.integers(1, 3), x.shape[1] // groups, *taps))
    params = {
        "stride": tuple(map(int, rng.integers(1, 4, axes))),
        "padding": tuple((int(a), int(b)) for a, b in rng.integers(-2, 4, (axes, 2))),
        "lhs_dilation": tuple(map(int, rng.integers(1, 4, axes))),
        "rhs_dilation": tuple(map(int, rng.integers(1, 3, axes))),
        "groups": groups,
    }
    return x, k, params


@pytest.mark.parametrize("block", range(4))
def test_conv_is_its_definition_and_its_pullbacks_are_the_adjoints(block):
    rng = RNG(block)
    for seed in range(block * 40, block * 40 + 40):
        x, k, params = drawn(seed)
        if seed % 3 == 0:  # the branch that scatters is for stride 1
            params["stride"] = (1,) * (x.ndim - 2)
        y, pullback = ad.vjp(lambda x, k, p=params: ops.conv(x, k, **p), x, k)
        np.testing.assert_allclose(y, naive(x, k, **params), atol=1e-13, err_msg=str(params))
        ct, dx, dk = (rng.normal(size=np.shape(v)) for v in (y, x, k))
        gx, gk = pullback(ct)
        np.testing.assert_allclose(
            np.sum(gx * dx), np.sum(ct * naive(dx, k, **params)), rtol=1e-11, atol=1e-12
        )
        np.testing.assert_allclose(
            np.sum(gk * dk), np.sum(ct * naive(x, dk, **params)), rtol=1e-11, atol=1e-12
        )


def test_a_batch_cut_into_blocks_gives_the_same_bits(monkeypatch):
    rng = RNG(1)
    x, k = rng.normal(size=(5, 2, 6, 6)), rng.normal(size=(2, 2, 3, 3))
    for kwargs in ({}, {"lhs_dilation": 2, "padding": 2}):
        whole = ops.conv(x, k, **kwargs)
        monkeypatch.setattr(kernels, "COLUMNS", 1)
        np.testing.assert_array_equal(ops.conv(x, k, **kwargs), whole)
        monkeypatch.undo()


TORCH_CASES = [
    ((2, 3, 7, 6), (4, 3, 3, 2), {}),
    ((2, 4, 7, 6), (6, 2, 3, 2), {"stride": (2, 1), "padding": (1, 2), "groups": 2}),
    ((1, 4, 9, 8), (8, 1, 2, 3), {"dilation": (3, 2), "groups": 4, "padding": 2}),
    ((1, 2, 7, 7), (3, 2, 2, 1), {"stride": (3, 4)}),
    ((2, 2, 5, 5), (2, 2, 3, 5), {"padding": "same"}),
    ((0, 2, 5, 5), (3, 2, 3, 3), {"padding": 1}),
]


@pytest.mark.parametrize(("xs", "ks", "kwargs"), TORCH_CASES)
def test_conv2d_agrees_with_torch_to_second_order(xs, ks, kwargs):
    torch = pytest.importorskip("torch")
    rng = RNG(0)
    x, k = rng.normal(size=xs), rng.normal(size=ks)
    tx, tk = (torch.tensor(v, requires_grad=True) for v in (x, k))
    ty = torch.nn.functional.conv2d(tx, tk, **kwargs)
    y, pullback = ad.vjp(lambda x, k: ops.conv2d(x, k, **kwargs), x, k)
    np.testing.assert_allclose(y, ty.detach().numpy(), rtol=1e-12, atol=1e-13)
    ct, u, w = rng.normal(size=y.shape), rng.normal(size=xs), rng.normal(size=ks)
    grads = torch.autograd.grad(ty, (tx, tk), torch.tensor(ct), create_graph=True)
    for ours, theirs in zip(pullback(ct), grads, strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-12, atol=1e-12)

    def directional(x, k):
        _, pull = ad.vjp(lambda x, k: ops.conv2d(x, k, **kwargs), x, k)
        gx, gk = pull(ct)
        return np.sum(gx * u) + np.sum(gk * w)

    theirs = torch.autograd.grad(
        (grads[0] * torch.tensor(u)).sum() + (grads[1] * torch.tensor(w)).sum(),
        (tx, tk),
        materialize_grads=True,
    )
    for ours, expected in zip(ad.grad(directional, (0, 1))(x, k), theirs, strict=True):
        np.testing.assert_allclose(ours, expected.numpy(), rtol=1e-12, atol=1e-12)


TRANSPOSED_CASES = [
    ((2, 3, 4, 5), (3, 2, 3, 2), {}),
    ((1, 4, 3, 4), (4, 3, 3, 2), {"stride": (2, 3), "padding": (1, 0), "groups": 2}),
    ((1, 2, 3, 3), (2, 2, 2, 3), {"dilation": (2, 3), "padding": 1}),
    ((1, 2, 3, 3), (2, 2, 3, 3), {"stride": (3, 2), "output_padding": (2, 1), "padding": 1}),
    ((0, 2, 3, 3), (2, 2, 3, 3), {"stride": 2}),
]


@pytest.mark.parametrize(("xs", "ks", "kwargs"), TRANSPOSED_CASES)
def test_conv_transpose2d_agrees_with_torch(xs, ks, kwargs):
    torch = pytest.importorskip("torch")
    rng = RNG(0)
    x, k = rng.normal(size=xs), rng.normal(size=ks)
    tx, tk = (torch.tensor(v, requires_grad=True) for v in (x, k))
    ty = torch.nn.functional.conv_transpose2d(tx, tk, **kwargs)
    y, pullback = ad.vjp(lambda x, k: ops.conv_transpose2d(x, k, **kwargs), x, k)
    np.testing.assert_allclose(y, ty.detach().numpy(), rtol=1e-12, atol=1e-13)
    ct = rng.normal(size=y.shape)
    grads = torch.autograd.grad(ty, (tx, tk), torch.tensor(ct))
    for ours, theirs in zip(pullback(ct), grads, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("padding", ["VALID", "SAME", 1, ((0, 2), (1, 0))])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_conv_transpose2d_is_the_adjoint_of_conv2d(padding, stride):
    rng = RNG(stride)
    images, k = rng.normal(size=(2, 2, 6, 6)), rng.normal(size=(3, 2, 3, 2))
    params = {"stride": stride, "padding": padding}
    y, pullback = ad.vjp(lambda x: ops.conv2d(x, k, **params), images)
    ct = rng.normal(size=y.shape)
    smallest = ops.conv_transpose2d(ct, k, **params).shape[2:]
    lost = tuple(n - m for n, m in zip(images.shape[2:], smallest, strict=True))
    extra = 0 if padding == "SAME" else lost
    adjoint = ops.conv_transpose2d(ct, k, **params, output_padding=extra)
    np.testing.assert_allclose(adjoint, pullback(ct)[0], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("seed", range(12))
def test_conv_agrees_with_jax(seed):
    pytest.importorskip("jax")
    x, k, params = drawn(seed + 500)

    def both(x, k):
        y, pullback = ad.vjp(lambda x, k: ops.conv(x, k, **params), x, k)
        return y, *pullback(np.cos(y))

    lowered = lower_jax(ad.trace(both, x, k))
    for ours, theirs in zip(both(x, k), lowered(x, k), strict=True):
        np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-12, atol=1e-13)


def test_same_padding_is_that_of_jax():
    jax = pytest.importorskip("jax")
    rng = RNG(3)
    for n, taps, stride, dilation in itertools.product((5, 8), (2, 3), (1, 2, 3), (1, 2)):
        x, k = rng.normal(size=(1, 1, n)), rng.normal(size=(1, 1, taps))
        ours = ops.conv1d(x, k, stride, "SAME", dilation)
        with jax.enable_x64(True):
            theirs = jax.lax.conv_general_dilated(x, k, (stride,), "SAME", rhs_dilation=(dilation,))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)
        assert ours.shape[2] == -(-n // stride)


def test_derivatives_of_every_order_are_convolutions():
    rng = RNG(4)
    x, k = rng.normal(size=(1, 2, 5)), rng.normal(size=(2, 1, 2))

    def f(x, k):
        return np.sum(ops.conv1d(x, k, stride=2, padding=1, groups=2) ** 3)

    def third(x, k):
        hessian_product = ad.jvp(ad.grad(f, (0, 1)), (x, k), (x, k))[1]
        return np.sum(hessian_product[0]) + np.sum(hessian_product[1])

    program = ad.trace(ad.grad(third, (0, 1)), x, k)
    kinds = [eq.op.kind for eq in program.equations]
    assert "CONV" in kinds
    assert {k for k in kinds if "CONV" in k} <= {"CONV", "CONV1D", "STRONG_CONV"}
    # f is homogeneous of degree 6: x . f'(x) + k . f'(k) = 6 f
    gx, gk = ad.grad(f, (0, 1))(x, k)
    np.testing.assert_allclose(np.sum(gx * x) + np.sum(gk * k), 6 * f(x, k), rtol=1e-12)


@pytest.mark.parametrize("mapped", [(0, None), (None, 0), (0, 0)])
@pytest.mark.parametrize("groups", [1, 2])
def test_no_batching_rule_loops(mapped, groups):
    def equations(size):
        shapes = ((2, 4, 5), (4, 4 // groups, 3))
        args = [
            np.ones(s if m is None else (size, *s)) for s, m in zip(shapes, mapped, strict=True)
        ]
        f = ad.vmap(lambda x, k: ops.conv1d(x, k, groups=groups), mapped)
        return len(ad.trace(f, *args).equations)

    assert equations(3) == equations(300)


def test_dot_modes_reach_default_products_alone():
    rng = RNG(5)
    x, k = rng.normal(size=(1, 2, 6)), rng.normal(size=(2, 2, 3))
    exact = ops.conv1d(x, k)
    for algorithm, low, high in (("default", 1e-5, 1e-2), ("f32", 0.0, 1e-6)):
        program = ad.trace(lambda x, k, a=algorithm: ops.conv1d(x, k, algorithm=a), x, k)
        got = ad.interpret(program, x, k, precision="float32", dot="tf32")
        error = np.max(np.abs(got - exact))
        assert low <= error <= high, algorithm


def test_causal_conv1d_on_pieces_equals_the_whole():
    rng = RNG(6)
    x, k = rng.normal(size=(2, 3, 9)), rng.normal(size=(3, 4))
    whole, end = ops.causal_conv1d(x, k)
    state, parts = None, []
    for a, b in ((0, 1), (1, 4), (4, 9)):
        y, state = ops.causal_conv1d(x[..., a:b], k, state)
        parts.append(y)
    np.testing.assert_allclose(np.concatenate(parts, 2), whole, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(state, end)
    # the past alone: what comes later changes nothing
    later = x.copy()
    later[..., 5:] += 1
    np.testing.assert_array_equal(ops.causal_conv1d(later, k)[0][..., :5], whole[..., :5])


ERRORS = [
    (
        lambda: ops.conv2d(np.ones((1, 2, 3, 4)), np.ones((4, 2, 5, 5))),
        r"the kernel covers \(5, 5\) places \(dilated\), the padded input has \(3, 4\)\n"
        r"in op CONV2D, x of shape \(1, 2, 3, 4\), kernel of shape \(4, 2, 5, 5\)\n"
        r'pass padding="SAME"',
    ),
    (
        lambda: ops.conv2d(np.ones((1, 3, 5, 5)), np.ones((4, 2, 3, 3))),
        r"x has 3 channels, a kernel of shape \(4, 2, 3, 3\) with groups=1 takes 2\n"
        r"in op CONV2D, .*\n.*np\.moveaxis",
    ),
    (
        lambda: ops.conv2d(np.ones((1, 4, 5, 5)), np.ones((3, 2, 3, 3)), groups=2),
        r"2 groups do not divide the kernel's first extent 3\nin op CONV2D",
    ),
    (
        lambda: ops.conv2d(np.ones((3, 5, 5)), np.ones((4, 3, 3, 3))),
        r"x has 3 axes and the kernel 4, not 4 axes each\n.*\n.*add a batch axis with x\[None\]",
    ),
    (
        lambda: ops.conv1d(np.ones((1, 1, 5)), np.ones((1, 1, 2)), padding=(1, 2)),
        r"padding \(1, 2\) is not understood\nin op CONV1D, 1 spatial axes\npass 'VALID'",
    ),
    (
        lambda: ops.conv1d(np.ones((1, 1, 5)), np.ones((1, 1, 2)), padding="FULL"),
        r"padding 'FULL' is not understood",
    ),
    (
        lambda: ops.conv2d(np.ones((1, 1, 5, 5)), np.ones((1, 1, 2, 2)), stride=0),
        r"stride is 0\nin op CONV2D, 2 spatial axes\ngive an int of at least 1, or 2 of them",
    ),
    (
        lambda: ops.conv_transpose2d(np.ones((1, 3, 2, 2)), np.ones((2, 3, 2, 2))),
        r"x has 3 channels, a kernel of shape \(2, 3, 2, 2\) with groups=1 takes 2\n"
        r"in op CONV_TRANSPOSE2D",
    ),
    (
        lambda: ops.conv_transpose2d(
            np.ones((1, 2, 2, 2)), np.ones((2, 1, 2, 2)), stride=2, output_padding=2
        ),
        r"output_padding \(2, 2\) is not below stride or dilation, \(2, 2\)",
    ),
    (
        lambda: ops.conv_transpose2d(np.ones((1, 1, 1, 1)), np.ones((1, 1, 2, 2)), padding=1),
        r"the result would have spatial extents \(0, 0\)",
    ),
    (
        lambda: ops.causal_conv1d(np.ones((1, 2, 4)), np.ones((3, 2))),
        r"x \(1, 2, 4\), a kernel \(3, 2\) and a state \(1, 2, 1\) do not fit together",
    ),
    (
        lambda: ops.conv(np.ones((1, 1, 4)), np.ones((1, 1, 2)), algorithm="tf32"),
        r"CONV has no algorithm 'tf32'",
    ),
]


@pytest.mark.parametrize(("call", "text"), ERRORS)
def test_errors_say_what_where_and_how(call, text):
    with pytest.raises(ShapeError, match=text) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 3


def test_integer_images_and_mixed_dtypes_are_promoted():
    assert ops.conv1d(np.ones((1, 1, 3), int), np.ones((1, 1, 2), np.float32)).dtype == np.float64
    assert ops.conv1d(np.ones((1, 1, 3), "f4"), np.ones((1, 1, 2), "f4")).dtype == np.float32
