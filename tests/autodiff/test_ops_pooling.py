import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError
from autodiff.lower.jax import lower_jax

RNG = np.random.default_rng

MAX_CASES: list[tuple[tuple[int, ...], dict]] = [
    ((2, 3, 6, 7), {"window": 2}),
    ((2, 3, 7, 6), {"window": (3, 2), "stride": (1, 2)}),
    ((1, 2, 6, 6), {"window": 3, "stride": 2, "padding": 1}),
    ((1, 1, 7, 9), {"window": 2, "stride": (5, 3)}),
    ((1, 1, 8, 7), {"window": (2, 3), "stride": 1, "dilation": (3, 2), "padding": 1}),
    ((0, 2, 4, 4), {"window": 2}),
]


def renamed(kwargs):
    """Our keyword arguments as those of torch."""
    return {"kernel_size" if k == "window" else k: v for k, v in kwargs.items()}


@pytest.mark.parametrize(("shape", "kwargs"), MAX_CASES)
def test_maxpool2d_agrees_with_torch_where_there_are_no_ties(shape, kwargs):
    torch = pytest.importorskip("torch")
    rng = RNG(0)
    x = rng.permutation(np.linspace(-2, 2, int(np.prod(shape)))).reshape(shape)
    t = torch.tensor(x, requires_grad=True)
    ty = torch.nn.functional.max_pool2d(t, **renamed(kwargs))
    y, pullback = ad.vjp(lambda x: ops.maxpool2d(x, **kwargs), x)
    np.testing.assert_array_equal(y, ty.detach().numpy())
    ct = rng.normal(size=y.shape)
    (expected,) = torch.autograd.grad(ty, t, torch.tensor(ct))
    np.testing.assert_allclose(pullback(ct)[0], expected.numpy(), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize(("shape", "kwargs"), [c for c in MAX_CASES if "dilation" not in c[1]])
def test_avgpool2d_agrees_with_torch(shape, kwargs, count_include_pad):
    torch = pytest.importorskip("torch")
    rng = RNG(1)
    x = rng.normal(size=shape)
    t = torch.tensor(x, requires_grad=True)
    ty = torch.nn.functional.avg_pool2d(t, **renamed(kwargs), count_include_pad=count_include_pad)
    pool = lambda x: ops.avgpool2d(x, **kwargs, count_include_pad=count_include_pad)  # noqa: E731
    y, pullback = ad.vjp(pool, x)
    np.testing.assert_allclose(y, ty.detach().numpy(), rtol=1e-13, atol=1e-15)
    ct = rng.normal(size=y.shape)
    (expected,) = torch.autograd.grad(ty, t, torch.tensor(ct))
    np.testing.assert_allclose(pullback(ct)[0], expected.numpy(), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("padding", ["VALID", "SAME", ((2, 0), (0, 1))])
def test_pools_agree_with_reduce_window(padding):
    jax = pytest.importorskip("jax")
    x = RNG(2).normal(size=(2, 6, 5))
    widths = padding if isinstance(padding, str) else ((0, 0), *padding)
    with jax.enable_x64(True):
        top = jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 3, 2), (1, 2, 1), widths)
        total = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 3, 2), (1, 2, 1), widths)
    np.testing.assert_array_equal(ops.maxpool2d(x, (3, 2), (2, 1), padding), top)
    mean = ops.avgpool2d(x, (3, 2), (2, 1), padding)
    np.testing.assert_allclose(mean, np.asarray(total) / 6, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(
    "kwargs", [{"window": 2, "stride": 1}, {"window": 3, "stride": 2, "padding": 1}]
)
def test_the_gradient_of_maxpool2d_is_conserved_at_ties(kwargs):
    rng = RNG(3)
    x = rng.integers(0, 3, (2, 6, 6)).astype(float)
    x[0, :3] = -np.inf
    x[1, 4, 4] = np.nan
    y, pullback = ad.vjp(lambda x: ops.maxpool2d(x, **kwargs), x)
    ct = rng.normal(size=y.shape)
    (g,) = pullback(ct)
    np.testing.assert_allclose(np.sum(g), np.sum(ct), rtol=1e-13)
    # moving all elements together moves every maximum by the same
    _, dot = ad.jvp(lambda x: ops.maxpool2d(x, **kwargs), (x,), (np.full(x.shape, 0.7),))
    np.testing.assert_allclose(dot, 0.7, rtol=1e-14)


def test_equal_maxima_share_equally():
    x = np.array([[1.0, 2.0], [2.0, 2.0]])
    _, pullback = ad.vjp(lambda x: ops.maxpool2d(x, 2), x)
    np.testing.assert_allclose(pullback(np.array([[0.9]]))[0], [[0.0, 0.3], [0.3, 0.3]])


def test_the_second_derivative_through_overlapping_windows():
    x = RNG(4).permutation(np.linspace(-1, 1, 16)).reshape(4, 4)

    def f(x):
        return np.sum(ops.maxpool2d(x, 3, 1) ** 3)

    hessian = ad.hessian(f)(x)
    chosen = ad.jacrev(lambda x: ops.maxpool2d(x, 3, 1))(x)
    top = ops.maxpool2d(x, 3, 1)
    expected = np.einsum("pq,pqab,pqcd->abcd", 6 * top, chosen, chosen)
    np.testing.assert_allclose(hessian, expected, rtol=1e-13, atol=1e-14)
    assert np.max(chosen.sum((0, 1))) > 1  # one element is the maximum of several windows


def test_windows_and_fold_are_adjoint_for_any_geometry():
    rng = RNG(5)
    for _ in range(60):
        axes = int(rng.integers(1, 4))
        shape = (2, *map(int, rng.integers(1, 7, axes)))
        kwargs = {
            "stride": tuple(map(int, rng.integers(1, 4, axes))),
            "dilation": tuple(map(int, rng.integers(1, 3, axes))),
        }
        window = tuple(map(int, rng.integers(1, 4, axes)))
        x = rng.normal(size=shape)
        y = ops.windows(x, window, **kwargs)
        ct = rng.normal(size=y.shape)
        back = ops.fold(ct, shape[1:], **kwargs)
        np.testing.assert_allclose(np.sum(y * ct), np.sum(x * back), rtol=1e-12, atol=1e-13)
        if y.size:
            tap, place = tuple(w - 1 for w in window), tuple(n - 1 for n in y.shape[1 + axes :])
            at = tuple(
                t * d + p * s
                for t, d, p, s in zip(tap, kwargs["dilation"], place, kwargs["stride"], strict=True)
            )
            np.testing.assert_array_equal(y[(1, *tap, *place)], x[(1, *at)])


def test_large_windows_do_not_grow_the_lowered_program():
    jax = pytest.importorskip("jax")
    x = RNG(6).normal(size=(1, 20, 20))

    def lines(window):
        f = lambda x: ad.grad(lambda x: np.sum(ops.maxpool2d(x, window, 1) ** 2))(x)  # noqa: E731
        program = ad.trace(f, x)
        lowered = lower_jax(program)
        np.testing.assert_allclose(np.asarray(lowered(x)), f(x), rtol=1e-12, atol=1e-13)
        with jax.enable_x64(True):
            return len(str(jax.make_jaxpr(lowered)(x)).splitlines())

    assert lines(18) <= lines(9)


ERRORS = [
    (
        lambda: ops.maxpool2d(np.ones((3, 4)), 5),
        r"the window covers \(5, 5\) places, the padded input has \(3, 4\)\nin op MAXPOOL2D, .*\n"
        r"pass a smaller window",
    ),
    (
        lambda: ops.avgpool2d(np.ones((4, 4)), 2, padding=2),
        r"a window lies in the padding alone\nin op AVGPOOL2D, .*\npad by less than the window",
    ),
    (lambda: ops.maxpool2d(np.ones((4, 4)), 2, padding=-1), r"is negative\n.*\nslice x instead"),
    (lambda: ops.maxpool2d(np.ones(4), 2), r"cannot pool float64\[4\]\nin op MAXPOOL2D"),
    (lambda: ops.maxpool2d(np.ones((4, 4)), (2, 2, 2)), r"window is \(2, 2, 2\)\n.*\n.* 2 of them"),
    (
        lambda: ops.fold(np.ones((2, 3)), 7),
        r"windows of shape \(2, 3\) do not come from spatial extents \(7,\)\nin op FOLD",
    ),
    (lambda: ops.windows(np.ones(3), (2, 2)), r"cannot slide a window \(2, 2\) over \(3,\)"),
]


@pytest.mark.parametrize(("call", "text"), ERRORS)
def test_errors_say_what_where_and_how(call, text):
    with pytest.raises(ShapeError, match=text) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 3
