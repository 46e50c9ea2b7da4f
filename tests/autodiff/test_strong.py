"""What was not selected never poisons a derivative: products, solves, loops, custom rules."""

import itertools
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff import strong
from checks.power.inject import patched
from checks.runner import check_function

INF, NAN = np.inf, np.nan
B = np.array([1.0, -2.0])


def root(a):
    """NaN or, at 0, of infinite slope for all elements of `NEGATIVE` and `POLE`."""
    return np.sqrt(a - 4.0)


NEGATIVE = np.array([[1.0, 2.0], [3.0, 0.5]])
POLE = np.full((2, 2), 4.0)

BRANCHES = {
    "matmul": lambda a: a @ a,
    "matmul_vector": lambda a: a @ B,
    "dot": lambda a: np.dot(a, a),
    "einsum": lambda a: np.einsum("ij,jk,ki->i", a, a, a),
    "outer": lambda a: np.outer(a, a),
    "convolve": lambda a: ad.ops.convolve(a[0], a[1]),
    "conv": lambda a: ad.ops.conv2d(a[None, None], a[None, None]),
    "solve": lambda a: np.linalg.solve(a, B),
    "solve_for": lambda a: np.linalg.solve(np.eye(2), a),
    "triangular_solve": lambda a: ad.ops.triangular_solve(a, B),
    "inv": np.linalg.inv,
    "det": np.linalg.det,
    "cofactor": ad.ops.cofactor,
    "slogdet": lambda a: np.linalg.slogdet(a)[1],
    "cholesky": np.linalg.cholesky,
    "qr": lambda a: np.linalg.qr(a)[0] @ np.linalg.qr(a)[1],
    "lu": lambda a: ad.ops.lu(a)[1],
    "eigh": lambda a: np.linalg.eigh(a)[1],
    "svd": lambda a: np.linalg.svd(a, full_matrices=False)[0],
    "pinv": np.linalg.pinv,
    "lstsq": lambda a: ad.ops.lstsq(a, B),
    "matrix_power": lambda a: np.linalg.matrix_power(a, -2),
    "softmax": ad.ops.softmax,
    "logsumexp": ad.ops.logsumexp,
    "cumprod": lambda a: np.cumprod(a),
    "norm": np.linalg.norm,
    "scan": lambda a: ad.scan(lambda c, v: (c * np.sqrt(v), c @ a @ np.log(v)), B, a)[1],
    "scan_carry": lambda a: ad.scan(lambda c, v: (np.linalg.solve(a, c * v), v), B, a)[0],
    "cond": lambda a: ad.cond(a[0, 0] > 1, lambda v: v @ v, np.linalg.inv, a),
    "while": lambda a: ad.while_loop(
        lambda s: s[1] < 2.0, lambda s: (s[0] @ a, s[1] + 1), (a, 0.0), max_steps=3
    )[0],
    "checkpoint": ad.checkpoint(lambda a: np.log(a) @ a),
}


def guarded(branch: Any) -> Any:
    """sum(a * a) by a function that computes the branch and does not select it."""

    def f(a: Any) -> Any:
        unselected = np.where(a[0, 0] > 5.0, branch(root(a)), 1.0)
        return np.sum(a * a) + np.sum(unselected) - unselected.size

    return f


@pytest.mark.parametrize("point", [NEGATIVE, POLE], ids=["nan", "pole"])
@pytest.mark.parametrize("branch", BRANCHES.values(), ids=BRANCHES)
def test_an_unselected_branch_leaves_first_and_second_derivatives_alone(branch, point):
    f = guarded(branch)
    np.testing.assert_allclose(ad.grad(f)(point), 2 * point, rtol=1e-14)
    hessian = 2 * np.eye(4).reshape(2, 2, 2, 2)
    np.testing.assert_allclose(ad.jacfwd(ad.grad(f))(point), hessian, atol=1e-14)
    np.testing.assert_allclose(ad.jacrev(ad.grad(f))(point), hessian, atol=1e-14)


@pytest.mark.parametrize("point", [NEGATIVE, POLE], ids=["nan", "pole"])
@pytest.mark.parametrize("branch", BRANCHES.values(), ids=BRANCHES)
def test_an_unselected_branch_leaves_third_derivatives_alone(branch, point):
    """Reverse mode three times: zeros of old and of new cotangents meet infinite slopes."""
    v = np.array([[0.3, -1.2], [0.7, 2.0]])

    def first(a):
        return np.sum(ad.grad(guarded(branch))(a) * v)

    def second(a):
        return np.sum(ad.grad(first)(a) * v)

    np.testing.assert_array_equal(ad.grad(second)(point), np.zeros((2, 2)))


SCALAR = {
    "log": (lambda x: np.where(x > 0, np.log(x) / x, x**3), 0.0),
    "pole": (lambda x: np.where(x == 0, x**3, np.sin(x) / x), 0.0),
    "nested": (lambda x: np.where(x > 0, np.where(x > 1, np.log(x - 1), x**3), np.sqrt(-x)), 0.5),
    "cond": (lambda x: ad.cond(x > 0, np.log, lambda t: t**3, x), -0.0),
    "solve": (
        lambda x: np.where(x > 0, np.linalg.solve(np.log(x) * np.ones((1, 1)), x[None])[0], x**3),
        0.0,
    ),
}


@pytest.mark.parametrize("modes", list(map("".join, itertools.product("fr", repeat=3))))
@pytest.mark.parametrize("name", SCALAR)
def test_every_composition_of_three_modes_is_protected(name, modes):
    f, x = SCALAR[name]
    for mode in modes:
        f = ad.grad(f) if mode == "r" else (lambda g: lambda t: ad.jvp(g, (t,), (1.0,))[1])(f)
    np.testing.assert_allclose(f(np.float64(x)), 6.0, rtol=1e-12)


@pytest.mark.parametrize("name", ["matmul", "einsum", "conv", "solve", "scan", "cond"])
def test_plain_products_would_poison_it(name):
    """Each branch above needs its protection: without strong products the gradient is NaN."""
    with patched(strong, "STRONG", {}):
        assert np.isnan(ad.grad(guarded(BRANCHES[name]))(NEGATIVE)).any()


@pytest.mark.parametrize("name", ["matmul", "solve", "scan", "while"])
def test_rows_of_a_batch_are_protected_one_by_one(name):
    """vmap of grad: the row whose branch is selected has its derivative, the others theirs."""
    f = guarded(BRANCHES[name])
    good = np.array([[8.0, 6.0], [5.5, 9.0]])
    rows = np.stack([NEGATIVE, good, POLE])
    got = ad.vmap(ad.grad(f))(rows)
    np.testing.assert_allclose(got[0], 2 * NEGATIVE, rtol=1e-14)
    np.testing.assert_allclose(got[1], ad.grad(f)(good), rtol=1e-12)
    np.testing.assert_allclose(got[2], 2 * POLE, rtol=1e-14)
    assert not np.allclose(got[1], 2 * good)


@pytest.mark.parametrize("name", ["matmul", "solve", "scan"])
def test_float32_is_protected_too(name):
    f, x = guarded(BRANCHES[name]), NEGATIVE.astype(np.float32)
    got = ad.grad(f)(x)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, 2 * x, rtol=1e-6)


SURFACES = ["reverse", "forward", "vmap", "render", "execute", "device_f64", "emit_f32"]


@pytest.mark.parametrize("name", ["matmul", "solve", "scan"])
def test_every_road_agrees_on_the_gradient(name):
    rows = check_function(ad.grad(guarded(BRANCHES[name])), NEGATIVE, surfaces=SURFACES)
    assert {r.surface for r in rows} == set(SURFACES)
    assert [r.message for r in rows if r.status != "pass"] == []


# --- what is NaN stays NaN -----------------------------------------------------------------


def test_a_selected_nan_reaches_what_it_depends_on():
    x = np.array([[4.0, 9.0], [-1.0, 1.0]])
    mask = np.array([[True, True], [False, True]])

    def f(x):
        return np.sum(np.where(mask, np.sqrt(x) @ np.eye(2), 0.0))

    np.testing.assert_array_equal(ad.grad(f)(x), [[0.25, 1 / 6], [0.0, 0.5]])
    mask = ~mask
    np.testing.assert_array_equal(ad.grad(f)(x), [[0.0, 0.0], [NAN, 0.0]])


def test_a_factor_that_is_not_finite_counts_where_the_cotangent_is_not_zero():
    ct = np.array([[1.0, 0.0], [0.0, -2.0], [0.0, 0.0], [2.0, 2.0]])
    y = np.array([[INF, 1.0], [2.0, NAN]])
    with np.errstate(invalid="ignore"):
        want = np.where(ct[..., None] == 0, 0.0, ct[..., None] * y).sum(1)
    np.testing.assert_array_equal(ad.ops.strong_matmul(ct, y), want)
    np.testing.assert_array_equal(ad.ops.strong_matmul(y.T, ct.T, zeros=1), want.T)


@pytest.mark.parametrize("seed", range(3))
def test_a_strong_product_is_the_sum_of_strong_products(seed):
    rng = np.random.default_rng(seed)
    ct = np.where(rng.random((4, 5)) < 0.5, 0.0, rng.normal(size=(4, 5)))
    bad = rng.choice([1.0, INF, -INF, NAN], (5, 3), p=[0.7, 0.1, 0.1, 0.1])
    y = rng.normal(size=(5, 3)) * bad
    with np.errstate(invalid="ignore"):
        want = ad.ops.strong_mul(ct[:, :, None], y).sum(1)
    np.testing.assert_allclose(ad.ops.strong_matmul(ct, y), want, rtol=1e-13)
    narrow = ad.ops.strong_matmul(ct.astype(np.float16), y.astype(np.float16))
    np.testing.assert_array_equal(np.isnan(narrow), np.isnan(want))
    numbers = (((1,), (0,)), ((), ()))
    got = ad.ops.strong_dot_general(ct.astype(complex), y.astype(complex), numbers)
    np.testing.assert_array_equal(np.isnan(got), ~np.isfinite(want))


def test_a_cotangent_of_zero_by_chance_keeps_the_second_derivative():
    """A `where` around the product would have derivative 0 where the cotangent happens to be 0."""

    def f(a, target):
        y = np.where(a[0, 0] > 0, np.linalg.solve(a @ a, B), 1.0)
        return 0.5 * np.sum((y - target) ** 2)

    a = np.array([[2.0, 0.5], [-0.25, 1.0]])
    at = np.linalg.solve(a @ a, B)  # the residual, and with it the cotangent, is 0
    hessian = ad.jacrev(ad.grad(f))(a, at)
    slopes = ad.jacfwd(lambda a: np.linalg.solve(a @ a, B))(a).reshape(2, 4)
    np.testing.assert_allclose(hessian.reshape(4, 4), slopes.T @ slopes, rtol=1e-10)


# --- selects other than WHERE --------------------------------------------------------------


def test_an_operand_of_the_branch_not_taken_is_protected():
    x = np.array([-1.0, 2.0])

    def f(x):
        return np.sum(x * x) + ad.cond(x[0] > 0, np.sum, lambda v: 3.0, np.sqrt(x))

    np.testing.assert_array_equal(ad.grad(f)(x), 2 * x)


def test_an_operand_of_a_loop_without_steps_is_protected():
    def f(x):
        rate = np.sqrt(x)
        end = ad.while_loop(lambda s: s[0] > 9.0, lambda s: s * rate, x * x, max_steps=4)
        return np.sum(end)

    np.testing.assert_array_equal(ad.grad(f)(np.array([-1.0, 2.0])), [-2.0, 4.0])


def test_a_select_in_a_later_step_protects_the_carry():
    def f(x):
        def step(c, v):
            return np.sqrt(v), np.where(v > 0, v * v, c)

        return ad.scan(step, x[0], x[1:])[1].sum()

    np.testing.assert_array_equal(ad.grad(f)(np.array([9.0, -1.0, 2.0])), [1.0, 0.0, 4.0])


@pytest.mark.parametrize(
    ("select", "want"),
    [
        (lambda x: np.maximum(np.sqrt(x), x + 1), [1.0, 1.0]),
        (lambda x: np.minimum(np.sqrt(x), x - 1), [1.0, 0.25]),
        (lambda x: np.clip(np.sqrt(x), 1.0, 3.0), [0.0, 0.25]),
        (lambda x: np.max(np.sqrt(x)), [0.0, 0.25]),
        (lambda x: -np.min(-np.sqrt(x)), [0.0, 0.25]),
        (lambda x: ad.ops.relu(np.sqrt(x) - 1.0), [0.0, 0.25]),
    ],
    ids=["maximum", "minimum", "clip", "max", "min", "relu"],
)
def test_an_infinite_slope_that_loses_counts_nothing(select, want):
    np.testing.assert_array_equal(ad.grad(lambda x: np.sum(select(x)))(np.array([0.0, 4.0])), want)


def test_programs_without_a_select_have_plain_products():
    def f(x):
        return np.sum(np.exp(x) @ x / np.sum(x))

    assert "STRONG" not in ad.trace(ad.grad(f), NEGATIVE).text
    stopped = ad.trace(ad.grad(lambda x: np.where(True, ad.stop_gradient(x @ x), f(x))), B)
    assert "STRONG" in stopped.text
    mask = np.array([True, False])
    behind = ad.trace(ad.grad(lambda x: f(x) * np.where(mask, ad.stop_gradient(x), 1.0)[0]), B)
    assert "STRONG" not in behind.text


# --- users' rules --------------------------------------------------------------------------


@ad.custom_jvp
def jvp_root(x):
    return np.sqrt(x)


@jvp_root.defjvp
def _(primals, tangents):
    y = np.sqrt(primals[0])
    return y, tangents[0] / (2 * y)


@ad.custom_vjp
def vjp_root(x):
    return np.sqrt(x)


vjp_root.defvjp(lambda x: (np.sqrt(x), np.sqrt(x)), lambda y, ct: (ct / (2 * y),))


@pytest.mark.parametrize("function", [jvp_root, vjp_root], ids=["jvp", "vjp"])
def test_a_rule_of_the_user_is_protected(function):
    def f(x):
        return np.sum(np.where(x > 0, function(x), x * x))

    x = np.array([-1.0, 4.0])
    np.testing.assert_array_equal(ad.grad(f)(x), [-2.0, 0.25])
    np.testing.assert_array_equal(ad.jacrev(ad.grad(f))(x), [[2.0, 0.0], [0.0, -1 / 32]])


def test_a_where_inside_a_rule_of_the_user_protects_the_rule():
    @ad.custom_jvp
    def f(x):
        return np.sqrt(np.maximum(x, 0.0))

    @f.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        return f(x), np.where(x > 0, t / (2 * np.sqrt(x)), 0.0)

    got = ad.grad(lambda x: np.sum(f(x)))(np.array([-1.0, 0.0, 4.0]))
    np.testing.assert_array_equal(got, [0.0, 0.0, 0.25])
