"""cond, while_loop, scan, custom rules, checkpoint, stop_gradient and tap, in every mode."""

import numpy as np
import pytest

import autodiff as ad
from autodiff.errors import MissingRuleError, ShapeError, TracerError, TreeError

X = np.array([0.3, 0.7, 1.2])
W = np.array([[0.5, 0.1, 0.2], [0.3, 0.9, 0.4], [0.2, 0.1, 0.7]])
ROWS = np.stack([X, -X, 0.1 + 0.0 * X])


def scanned(x, w):
    return ad.scan(lambda c, r: (np.exp(-c * x * r) + r, c * c), x, w)


def looped(x):
    return ad.while_loop(lambda c: np.sum(c) < 50.0, lambda c: c * c + x, x, max_steps=10)


def branched(x):
    return ad.cond(np.sum(x) > 0, lambda y: y * x, lambda y: np.log(-y) * x, x)


def total(f):
    def scalar(x):
        out = ad.tree.flatten(f(x))[0]
        return sum((np.sum(o * o) for o in out), 0.0)

    return scalar


FUNCTIONS = {"scan": lambda x: scanned(x, W), "while": looped, "cond": branched}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_by_differences_and_second_order(name):
    f = total(FUNCTIONS[name])
    step = 1e-6
    numeric = [(f(X + step * e) - f(X - step * e)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(ad.grad(f)(X), numeric, rtol=1e-6)
    np.testing.assert_allclose(ad.jacfwd(f)(X), ad.grad(f)(X), rtol=1e-13)
    hessian = ad.hessian(f)(X)
    for other in (ad.jacrev(ad.jacrev(f)), ad.jacfwd(ad.jacfwd(f)), ad.jacrev(ad.jacfwd(f))):
        np.testing.assert_allclose(other(X), hessian, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_batches_match_loops(name):
    f = total(FUNCTIONS[name])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(ad.vmap(f)(ROWS), [f(r) for r in ROWS], rtol=1e-13)
        want = np.stack([ad.grad(f)(r) for r in ROWS])
        np.testing.assert_allclose(ad.vmap(ad.grad(f))(ROWS), want, rtol=1e-12)


def test_a_batched_predicate_runs_until_every_row_is_done_and_freezes_finished_rows():
    counts = ad.vmap(
        lambda limit: ad.while_loop(lambda c: c < limit, lambda c: c + 1.0, np.zeros(()))
    )(np.array([0.0, 3.0, 7.0]))
    np.testing.assert_array_equal(counts, [0.0, 3.0, 7.0])


def test_a_batched_branch_at_a_pole_does_not_poison():
    f = lambda x: ad.cond(x > 0, lambda v: np.log(v), lambda v: v * 2.0, x)  # noqa: E731
    np.testing.assert_array_equal(ad.vmap(ad.grad(f))(np.array([0.0, 2.0])), [2.0, 0.5])
    g = lambda x: np.sum(np.where(x > 0, np.log(x), 2.0 * x))  # noqa: E731
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(ad.grad(g)(np.array([0.0, 2.0])), [2.0, 0.5])
        np.testing.assert_array_equal(np.diag(ad.hessian(g)(np.array([0.0, 2.0]))), [0.0, -0.25])


def test_reverse_through_an_unbounded_loop_is_refused_by_name():
    f = lambda x: np.sum(ad.while_loop(lambda c: np.sum(c) < 9.0, lambda c: 2.0 * c, x))  # noqa: E731
    assert ad.jvp(f, (X,), (X,))[1] > 0
    with pytest.raises(MissingRuleError, match=r"(?s)needs a bound.*max_steps=n"):
        ad.grad(f)(X)


def test_mismatched_branches_carries_and_scans():
    with pytest.raises(ShapeError, match="cond branches: result 0"):
        ad.grad(lambda x: np.sum(ad.cond(x[0] > 0, lambda v: v, lambda v: v[:1], x)))(X)
    with pytest.raises(TreeError, match="cond branches: structure"):
        ad.grad(lambda x: np.sum(ad.cond(x[0] > 0, lambda v: v, lambda v: (v,), x)))(X)
    with pytest.raises(ShapeError, match="while_loop body"):
        ad.while_loop(lambda c: np.sum(c) < 1, lambda c: c[:1], X)
    with pytest.raises(ShapeError, match=r"scan over extents \[2, 3\]"):
        ad.scan(lambda c, x: (c, x[0]), X[0], (X, X[:2]))
    with pytest.raises(ShapeError, match=r"must return \(carry, y\)"):
        ad.scan(lambda c, x: c, X[0], X)


@ad.custom_jvp
def exponential(x):
    return np.exp(x)


@exponential.defjvp
def _exponential_rule(primals, tangents):
    (x,), (x_dot,) = primals, tangents
    return exponential(x), exponential(x) * x_dot


def test_a_custom_jvp_rule_that_calls_its_own_function():
    f = lambda x: np.sum(exponential(x) * x)  # noqa: E731
    np.testing.assert_allclose(ad.grad(f)(X), np.exp(X) * (X + 1), rtol=1e-14)
    np.testing.assert_allclose(np.diag(ad.hessian(f)(X)), np.exp(X) * (X + 2), rtol=1e-13)
    np.testing.assert_allclose(ad.vmap(ad.grad(f))(ROWS), np.exp(ROWS) * (ROWS + 1), rtol=1e-14)


@ad.custom_vjp
def clipped(x, limit):
    return np.exp(x)


clipped.defvjp(
    lambda x, limit: (clipped(x, limit), (x, limit)),
    lambda res, ct: (ct * np.minimum(np.exp(res[0]), res[1]), None),
)


def test_a_custom_jvp_rule_must_return_a_pair_and_be_given():
    @ad.custom_jvp
    def f(x):
        return np.sin(x)

    with pytest.raises(MissingRuleError, match=r"'f' has no jvp rule") as missing:
        ad.grad(lambda x: np.sum(f(x)))(np.ones(3))
    assert str(missing.value).count("\n") == 2
    f.defjvp(lambda primals, tangents: tangents[0])
    with pytest.raises(TreeError, match=r"rule of 'f' did not return \(y, y_dot\)\n.*\n.*pair"):
        ad.grad(lambda x: np.sum(f(x)))(np.ones(3))


@pytest.mark.parametrize("transform", [lambda f: f, ad.grad])
def test_max_steps_is_not_negative(transform):
    def f(x):
        return ad.while_loop(lambda c: c < 3.0, lambda c: c * x + 1.0, 0.0, max_steps=-1)

    with pytest.raises(ShapeError, match=r"max_steps is -1\n.*\npass an int of 0 or more"):
        transform(f)(2.0)


def test_a_custom_vjp_rule_and_its_refusal_of_forward_mode():
    f = lambda x: np.sum(clipped(x, np.float64(1.5)))  # noqa: E731
    np.testing.assert_allclose(ad.grad(f)(X), np.minimum(np.exp(X), 1.5), rtol=1e-15)
    np.testing.assert_allclose(ad.vmap(ad.grad(f))(ROWS)[1], np.exp(-X), rtol=1e-15)
    with pytest.raises(MissingRuleError, match="(?s)'clipped' has no forward-mode rule"):
        ad.jvp(f, (X,), (X,))


def test_functions_with_rules_and_checkpoints_take_keywords():
    limit = np.float64(1.5)
    f = lambda x: np.sum(clipped(x, limit=limit))  # noqa: E731
    np.testing.assert_allclose(ad.grad(f)(X), np.minimum(np.exp(X), 1.5), rtol=1e-15)
    g = lambda x: np.sum(exponential(x=x) * x)  # noqa: E731
    np.testing.assert_allclose(ad.grad(g)(X), np.exp(X) * (X + 1), rtol=1e-14)
    power = ad.checkpoint(lambda x, *, k: x**k)
    np.testing.assert_allclose(ad.grad(lambda x: np.sum(power(x, k=3)))(X), 3 * X * X, rtol=1e-14)
    mixed = ad.grad(lambda k: np.sum(power(np.abs(X), k=k)))(3.0)
    np.testing.assert_allclose(mixed, np.sum(np.abs(X) ** 3 * np.log(np.abs(X))), rtol=1e-14)
    lone = ad.custom_jvp(lambda x, *, k: x * k)
    with pytest.raises(TreeError, match="takes k by name alone"):
        ad.grad(lambda x: np.sum(lone(x, k=2.0)))(X)


def test_branches_that_differ_are_refused_on_plain_arrays_too():
    with pytest.raises(TreeError, match="cond branches"):
        ad.cond(True, lambda v: v, lambda v: (v,), X)
    with pytest.raises(ShapeError, match="cond branches"):
        ad.cond(True, lambda v: v, lambda v: v[:1], X)


def test_custom_rules_are_checked():
    @ad.custom_vjp
    def bad(x, y):
        return x * y

    with pytest.raises(MissingRuleError, match="'bad' has no rules"):
        ad.grad(lambda x: np.sum(bad(x, x)))(X)
    bad.defvjp(lambda x, y: (x * y, None), lambda res, ct: (ct,))
    with pytest.raises(TreeError, match="returned 1 cotangents for 2 arguments"):
        ad.grad(lambda x: np.sum(bad(x, x)))(X)
    bad.defvjp(lambda x, y: (x * y, None), lambda res, ct: (ct[:1], None))
    with pytest.raises(ShapeError, match="custom derivative rule returned"):
        ad.grad(lambda x: np.sum(bad(x, x)))(X)


def test_a_custom_function_may_not_close_over_what_is_differentiated():
    def outer(x):
        @ad.custom_jvp
        def inner(y):
            return y * x

        inner.defjvp(lambda p, t: (p[0] * x, t[0] * x))
        return np.sum(inner(X))

    with pytest.raises(MissingRuleError, match="closes over a value that is being differentiated"):
        ad.grad(outer)(X)


def test_a_custom_jvp_rule_may_close_over_an_outer_value():
    """The rule alone reads `scale`: it is differentiated by the transform outside."""

    def tangents(scale):
        @ad.custom_jvp
        def cube(x):
            return x**3

        cube.defjvp(lambda p, t: (p[0] ** 3, t[0] * p[0] * np.sum(scale)))
        return np.sum(ad.vmap(ad.grad(cube))(scale)) + np.sum(ad.jvp(cube, (X,), (X,))[1])

    want = np.full(3, 2 * np.sum(X) + np.sum(X * X))  # of sum(scale)**2 + sum(scale) * sum(X**2)
    np.testing.assert_allclose(ad.grad(tangents)(X), want, rtol=1e-14)
    np.testing.assert_allclose(ad.vmap(ad.grad(tangents))(np.stack([X, X]))[1], want, rtol=1e-14)
    np.testing.assert_allclose(ad.hessian(tangents)(X), np.full((3, 3), 2.0), rtol=1e-14)


def test_a_custom_vjp_rule_that_closes_over_an_outer_value_is_told_the_user_s_line():
    def outer(scale):
        @ad.custom_vjp
        def cube(x):
            return x**3

        cube.defvjp(lambda x: (x**3, x), lambda x, ct: (ct * scale * x,))
        return np.sum(ad.grad(lambda x: np.sum(cube(x)))(scale))

    with pytest.raises(TracerError, match="that the function itself does not use") as caught:
        ad.grad(outer)(X)
    assert "test_control.py" in str(caught.value).splitlines()[1]


def test_checkpoint_keeps_values_and_derivatives():
    f = lambda x: np.sum(np.exp(x) * x)  # noqa: E731
    g = lambda x: np.sum(ad.checkpoint(lambda v: np.exp(v) * v)(x))  # noqa: E731
    np.testing.assert_array_equal(ad.grad(g)(X), ad.grad(f)(X))
    np.testing.assert_allclose(ad.hessian(g)(X), ad.hessian(f)(X), rtol=1e-14)


def test_stop_gradient_stops_both_modes():
    f = lambda x: np.sum(ad.stop_gradient(x) * x)  # noqa: E731
    np.testing.assert_array_equal(ad.grad(f)(X), X)
    assert ad.jvp(f, (X,), (np.ones(3),))[1] == np.sum(X)


def test_taps_show_values_and_change_nothing():
    f = lambda x: np.sum(ad.tap("square", x * x))  # noqa: E731
    plain = ad.grad(f)(X)
    with ad.taps.collect() as seen:
        np.testing.assert_array_equal(ad.grad(f)(X), plain)
    assert [name for name, _ in seen] == ["square"]
    np.testing.assert_array_equal(seen[0][1], X * X)
    with pytest.raises(TracerError, match="tap name"):
        ad.tap("", X)
