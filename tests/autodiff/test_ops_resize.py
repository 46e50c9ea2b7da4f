import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError

MODES = [
    ({"mode": "bilinear", "align_corners": False}, {}),
    ({"mode": "bilinear", "align_corners": True}, {"align_corners": True}),
    ({"mode": "nearest-exact"}, {"method": "nearest"}),
]


@pytest.mark.parametrize(("theirs", "ours"), MODES)
@pytest.mark.parametrize("shape", [(3, 4), (10, 12), (7, 5), (1, 1), (5, 6)])
def test_resize_agrees_with_torch(theirs, ours, shape):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 2, 5, 6))
    t = torch.tensor(x, requires_grad=True)
    ty = torch.nn.functional.interpolate(t, size=shape, **theirs)
    y, pullback = ad.vjp(lambda x: ops.resize(x, shape, **ours), x)
    np.testing.assert_allclose(y, ty.detach().numpy(), rtol=1e-12, atol=1e-14)
    ct = rng.normal(size=y.shape)
    (expected,) = torch.autograd.grad(ty, t, torch.tensor(ct))
    np.testing.assert_allclose(pullback(ct)[0], expected.numpy(), rtol=1e-12, atol=1e-14)


def test_nearest_breaks_ties_alike_at_any_size():
    # (i + 1/2) n / m in floating point falls below the integer for some n and m
    for n, m in ((3, 6), (49, 98), (7, 49), (93, 31), (1, 5), (105, 35)):
        got = ops.resize(np.arange(float(n)), m, method="nearest")
        exact = [(2 * i + 1) * n // (2 * m) for i in range(m)]
        np.testing.assert_array_equal(got, exact)


def test_a_linear_ramp_is_kept_inside():
    x = np.arange(6.0)
    y = ops.resize(x, 12)
    inner = np.clip((np.arange(12) + 0.5) / 2 - 0.5, 0, 5)
    np.testing.assert_allclose(y, inner, rtol=1e-14)
    np.testing.assert_allclose(ops.resize(x, 11, align_corners=True), np.linspace(0, 5, 11))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: ops.resize(np.ones(3), 4, method="cubic"),
            "there is no method 'cubic' with align_",
        ),
        (lambda: ops.resize(np.ones((2, 0)), 4), r"cannot resize float64\[2,0\]\nin op RESIZE"),
        (lambda: ops.resize(np.ones(3), 0), "shape is 0\nin op RESIZE"),
    ],
)
def test_errors_say_what_where_and_how(call, text):
    with pytest.raises(ShapeError, match=text) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 3
