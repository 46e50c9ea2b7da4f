"""jvp, vjp, grad, linearize, Jacobians, hvp and vmap: values, nesting, containers and errors."""

import dataclasses
import itertools
import threading

import numpy as np
import pytest

import autodiff as ad
from autodiff.errors import (
    NotDifferentiableError,
    ShapeError,
    TracerError,
    TreeError,
)


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def rosenbrock_gradient(x):
    g = np.zeros_like(x)
    g[:-1] += -400.0 * x[:-1] * (x[1:] - x[:-1] ** 2) - 2.0 * (1.0 - x[:-1])
    g[1:] += 200.0 * (x[1:] - x[:-1] ** 2)
    return g


X = np.array([0.3, -0.7, 1.2, 0.4])


def test_grad_of_a_known_function():
    np.testing.assert_allclose(ad.grad(rosenbrock)(X), rosenbrock_gradient(X), rtol=1e-14)


def test_value_and_grad_with_aux_and_several_arguments():
    def f(x, w):
        return np.sum(x * w), {"sum": x + w}

    (value, aux), (gx, gw) = ad.value_and_grad(f, (0, 1), has_aux=True)(X, 2.0 * X)
    assert value == np.sum(2.0 * X * X)
    np.testing.assert_array_equal(aux["sum"], 3.0 * X)
    np.testing.assert_array_equal(gx, 2.0 * X)
    np.testing.assert_array_equal(gw, X)
    gradient, aux = ad.grad(f, has_aux=True)(X, 2.0 * X)
    np.testing.assert_array_equal(gradient, 2.0 * X)


SECOND = {
    "forward over reverse": lambda f: ad.jacfwd(ad.jacrev(f)),
    "reverse over reverse": lambda f: ad.jacrev(ad.jacrev(f)),
    "reverse over forward": lambda f: ad.jacrev(ad.jacfwd(f)),
    "forward over forward": lambda f: ad.jacfwd(ad.jacfwd(f)),
    "vmap of hvp": lambda f: lambda x: ad.vmap(lambda v: ad.hvp(f, (x,), (v,)))(np.eye(x.size)),
    "grad of inner product": lambda f: (
        lambda x: ad.vmap(lambda v: ad.grad(lambda y: np.sum(ad.grad(f)(y) * v))(x))(np.eye(x.size))
    ),
    "grad of jvp": lambda f: (
        lambda x: ad.vmap(lambda v: ad.grad(lambda y: ad.jvp(f, (y,), (v,))[1])(x))(np.eye(x.size))
    ),
}


@pytest.mark.parametrize("name", SECOND)
def test_seven_hessians_agree(name):
    expected = ad.hessian(rosenbrock)(X)
    np.testing.assert_allclose(expected, expected.T, rtol=1e-13)
    np.testing.assert_allclose(SECOND[name](rosenbrock)(X), expected, rtol=1e-12, atol=1e-10)


def test_third_derivative_by_every_nesting():
    f = lambda x: x**3 * np.exp(x)  # noqa: E731
    x = np.float64(0.7)
    expected = np.exp(x) * (x**3 + 9 * x**2 + 18 * x + 6)

    def forward(g):
        return lambda y: ad.jvp(g, (y,), (np.ones(()),))[1]

    for a, b, c in itertools.product((ad.grad, forward), repeat=3):
        np.testing.assert_allclose(a(b(c(f)))(x), expected, rtol=1e-12)


def test_perturbations_are_not_confused():
    # d/dx (x * d/dy (x + y)) = 1, not 2
    f = lambda x: x * ad.grad(lambda y: x + y)(1.0)  # noqa: E731
    assert ad.grad(f)(2.0) == 1.0
    g = lambda x: ad.grad(lambda y: ad.grad(lambda z: x * y * z)(3.0) * y)(2.0)  # noqa: E731
    assert ad.grad(g)(5.0) == 4.0


def test_grad_of_vmap_of_grad_nests():
    w = np.linspace(0.1, 1.0, 12).reshape(4, 3)

    def inner(x, row):
        return np.sum(np.exp(x * row))

    def outer(x):
        rows = ad.vmap(ad.grad(inner, 1), (None, 0))(x, w)
        return np.sum(rows**2)

    x = np.array([0.2, -0.1, 0.4])
    step = 1e-6
    for i in range(3):
        e = np.eye(3)[i] * step
        numeric = (outer(x + e) - outer(x - e)) / (2 * step)
        np.testing.assert_allclose(ad.grad(outer)(x)[i], numeric, rtol=1e-7)


@dataclasses.dataclass
class Layer:
    w: np.ndarray
    b: np.ndarray


def test_containers_in_and_out():
    params = {"first": Layer(np.eye(2), np.ones(2)), "rest": [np.full((2,), 3.0), None]}

    def f(p):
        h = p["first"].w @ p["rest"][0] + p["first"].b
        return np.sum(h * h)

    gradient = ad.grad(f)(params)
    assert isinstance(gradient["first"], Layer)
    assert gradient["rest"][1] is None
    np.testing.assert_array_equal(gradient["first"].b, [8.0, 8.0])
    y, dot = ad.jvp(lambda p: {"y": p["rest"][0] * 2.0}, (params,), (params,))
    np.testing.assert_array_equal(dot["y"], y["y"])


def test_integer_leaves_are_held_fixed():
    def f(x, n):
        return np.sum(x * n)

    _, pullback = ad.vjp(f, X, np.arange(4))
    gx, gn = pullback(1.0)
    assert gn is None
    np.testing.assert_array_equal(gx, np.arange(4.0))
    _, dot = ad.jvp(f, (X, np.arange(4)), (X, None))
    assert dot == np.sum(X * np.arange(4))


def test_integer_argnums_are_refused():
    with pytest.raises(
        NotDifferentiableError, match="(?s)argument 1 of 'f', which holds int64.*astype"
    ):

        def f(x, n):
            return np.sum(x * n)

        ad.grad(f, 1)(X, np.arange(4))


def test_non_scalar_grad_is_refused():
    with pytest.raises(ShapeError, match=r"(?s)grad needs a scalar output.*float64\[4\].*jacrev"):
        ad.grad(lambda x: x * 2.0)(X)


def test_integer_output_is_refused():
    with pytest.raises(NotDifferentiableError, match="real floating output"):
        ad.grad(lambda x: np.sum(x > 0))(X)


def test_complex_output_is_refused():
    with pytest.raises(NotDifferentiableError, match="real floating output"):
        ad.grad(lambda x: np.sum(x * 1j))(X)


def test_wrong_tangent_shape_and_structure():
    with pytest.raises(ShapeError, match=r"(?s)tangent 0 has shape \(3,\).*\(4,\)"):
        ad.jvp(rosenbrock, (X,), (np.ones(3),))
    with pytest.raises(TreeError, match="tangents"):
        ad.jvp(lambda p: p["a"], ({"a": X},), ({"b": X},))
    with pytest.raises(TreeError, match="primals is a ndarray"):
        ad.jvp(rosenbrock, X, X)
    with pytest.raises(TreeError, match="(?s)argnums=3 .*2 positional"):
        ad.grad(lambda x, y: np.sum(x), 3)(X, X)


def test_complex_gradient_convention():
    # u(x + iy) = |z|^2: du/dx - i du/dy = 2 conj(z)
    z = np.array([1.0 + 2.0j, -0.5 + 0.25j])
    np.testing.assert_allclose(ad.grad(lambda z: np.sum(np.abs(z) ** 2))(z), 2 * np.conj(z))
    # holomorphic: the pullback of ct is ct * f'(z), unconjugated
    _, pullback = ad.vjp(lambda z: z**2, z)
    ct = np.array([0.3 - 1.0j, 2.0 + 0.5j])
    np.testing.assert_allclose(pullback(ct)[0], ct * 2 * z)


def test_real_times_complex_keeps_real_gradients():
    c = np.array([1.0 + 2.0j, 3.0 - 1.0j])
    gradient = ad.grad(lambda x: np.sum(np.abs(x * c) ** 2))(np.array([1.0, 2.0]))
    assert gradient.dtype == np.float64
    np.testing.assert_allclose(gradient, [10.0, 40.0])


def test_linearize_is_the_jvp_and_runs_the_function_once():
    calls = []

    def f(x):
        calls.append(1)
        return np.sum(np.exp(x) * x)

    _, f_jvp = ad.linearize(f, X)
    for v in (X, 2.0 * X):
        np.testing.assert_allclose(f_jvp(v), ad.jvp(f, (X,), (v,))[1], rtol=1e-14)
    assert len(calls) == 3


def test_jacobian_blocks_of_containers():
    def f(p, s):
        return {"a": p["x"] * s, "b": np.sum(p["y"])}

    p = {"x": np.array([1.0, 2.0]), "y": np.ones((2, 2))}
    for jacobian in (ad.jacfwd(f, (0, 1)), ad.jacrev(f, (0, 1))):
        j = jacobian(p, np.float64(3.0))
        np.testing.assert_array_equal(j["a"][0]["x"], 3.0 * np.eye(2))
        np.testing.assert_array_equal(j["a"][0]["y"], np.zeros((2, 2, 2)))
        np.testing.assert_array_equal(j["a"][1], p["x"])
        np.testing.assert_array_equal(j["b"][0]["y"], np.ones((2, 2)))


def test_results_are_not_aliases():
    x = np.arange(6.0)
    y, pullback = ad.vjp(lambda x: (x, x.reshape(2, 3), x), x)
    assert not any(np.may_share_memory(x, v) for v in y)
    assert not np.may_share_memory(y[0], y[2])
    y[0][:] = -1
    assert x[0] == 0 and y[1][0, 0] == 0
    ct = np.ones(6)
    (g,) = pullback((ct, np.ones((2, 3)), ct))
    assert not np.may_share_memory(g, ct)


def test_read_only_and_strided_inputs():
    x = np.arange(12.0)[::-3]
    x.flags.writeable = False
    np.testing.assert_array_equal(ad.grad(lambda x: np.sum(x * x))(x), 2 * x)


def test_threads_do_not_share_traces():
    results: dict[int, np.ndarray] = {}

    def work(n):
        results[n] = ad.grad(lambda x: np.sum(np.exp(x) * n))(X)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 7)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for n, g in results.items():
        np.testing.assert_allclose(g, n * np.exp(X), rtol=1e-15)


@pytest.mark.parametrize("in_axes", [0, 1, -1, 2, -3])
@pytest.mark.parametrize("out_axes", [0, 1, -1])
def test_vmap_axes(in_axes, out_axes):
    x = np.arange(24.0).reshape(2, 3, 4)
    got = ad.vmap(lambda a: a * np.sum(a, axis=0), in_axes, out_axes)(x)
    rows = np.moveaxis(x, in_axes, 0)
    want = np.stack([r * np.sum(r, axis=0) for r in rows], axis=out_axes)
    np.testing.assert_array_equal(got, want)


def test_vmap_of_containers_and_shared_arguments():
    p = {"w": np.arange(6.0).reshape(2, 3), "b": np.float64(2.0)}
    xs = np.arange(12.0).reshape(4, 3)
    f = lambda p, x: {"y": p["w"] @ x + p["b"]}  # noqa: E731
    got = ad.vmap(f, (None, 0))(p, xs)["y"]
    np.testing.assert_allclose(got, xs @ p["w"].T + 2.0)
    got = ad.vmap(f, ({"w": 1, "b": None}, 1))({"w": np.zeros((2, 4, 3)), "b": p["b"]}, xs.T)
    assert got["y"].shape == (4, 2)


def test_vmap_batch_zero_one_and_axis_size():
    f = lambda x: np.exp(x) * 2.0  # noqa: E731
    assert ad.vmap(f)(np.zeros((0, 3))).shape == (0, 3)
    assert ad.vmap(f)(np.zeros((1, 3))).shape == (1, 3)
    np.testing.assert_array_equal(
        ad.vmap(f, in_axes=None, axis_size=3)(np.zeros(2)), np.full((3, 2), 2.0)
    )


def test_vmap_errors():
    with pytest.raises(
        ShapeError, match=r"(?s)axes of different sizes.*args\[0\]: 3.*args\[1\]: 4"
    ):
        ad.vmap(lambda a, b: a)(np.zeros(3), np.zeros(4))
    with pytest.raises(ShapeError, match="maps no argument"):
        ad.vmap(lambda a: a, None)(X)
    with pytest.raises(TreeError, match="in_axes has 1 entries for 2"):
        ad.vmap(lambda a, b: a, (0,))(X, X)
    with pytest.raises(ShapeError, match="out of bounds"):
        ad.vmap(lambda a: a, 3)(X)
    with pytest.raises(ShapeError, match="out_axes of result 0 is None"):
        ad.vmap(lambda a: a, 0, None)(X)


def test_vmap_of_vmap_and_of_jacobians():
    a = np.arange(6.0).reshape(2, 3) + 0.5
    outer = ad.vmap(ad.vmap(lambda x, y: x * y, (None, 0)), (0, None))(a[:, 0], a[0])
    np.testing.assert_array_equal(outer, np.outer(a[:, 0], a[0]))
    hessians = ad.vmap(ad.hessian(lambda x: np.sum(x**3)))(a)
    np.testing.assert_allclose(hessians, 6.0 * a[:, :, None] * np.eye(3))


def test_a_traced_value_may_not_escape():
    kept = []
    ad.grad(lambda x: (kept.append(x), np.sum(x))[1])(X)
    with pytest.raises(TracerError, match="after its transform has ended"):
        np.exp(kept[0])


def test_non_array_arguments_are_named():
    with pytest.raises(TracerError, match="(?s)argument leaf 'fast' of type str.*partial"):
        ad.grad(lambda x, mode: np.sum(x))(X, "fast")
