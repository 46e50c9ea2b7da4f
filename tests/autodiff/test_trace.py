"""Tracing: NumPy's protocols, Python branches as guards, refusals that name line and fix."""

import operator

import numpy as np
import pytest

import autodiff as ad
from autodiff.errors import GuardError, TracerError

X = np.array([0.5, 1.5, -2.0])


def branchy(x):
    if np.sum(x) > 1.0:
        return np.sum(x * x)
    return np.sum(-x)


def test_python_branches_become_guards():
    np.testing.assert_array_equal(ad.grad(branchy)(X), [-1.0, -1.0, -1.0])
    np.testing.assert_array_equal(ad.grad(branchy)(X + 1.0), 2.0 * (X + 1.0))
    program = ad.trace(branchy, X)
    assert [eq.op.kind for eq in program.equations].count("GUARD") == 1
    assert ad.interpret(program, X) == branchy(X)
    with pytest.raises(
        GuardError, match=r"(?s)traced for False, the value is now True.*test_trace"
    ):
        ad.interpret(program, X + 1.0)


def test_while_loops_and_int_of_integer_tracers():
    def newton(a):
        x = a
        while np.abs(x * x - a) > 1e-12:
            x = 0.5 * (x + a / x)
        return x

    np.testing.assert_allclose(ad.grad(newton)(2.0), 0.5 / np.sqrt(2.0), rtol=1e-10)

    def by_count(x, n):
        return sum((x**k for k in range(int(n))), 0.0)

    np.testing.assert_allclose(ad.grad(by_count)(0.5, 4), 1 + 2 * 0.5 + 3 * 0.25)


def test_boolean_masks_are_guarded():
    f = lambda x: np.sum(x[x > 0] ** 2)  # noqa: E731
    np.testing.assert_array_equal(ad.grad(f)(X), [1.0, 3.0, 0.0])
    program = ad.trace(f, X)
    with pytest.raises(GuardError):
        ad.interpret(program, -X)


def test_nested_transforms_see_concrete_values():
    g = lambda x: ad.grad(lambda y: y * y if y > 0 else -y)(x)  # noqa: E731
    assert ad.grad(g)(3.0) == 2.0
    assert ad.grad(g)(-3.0) == 0.0


def test_a_branch_without_a_value_names_the_line_and_the_way_out():
    with pytest.raises(
        TracerError, match=r"(?s)no concrete value.*test_trace.py.*np.where.*autodiff.cond"
    ):
        ad.vmap(lambda x: x if x > 0 else -x)(X)
    with pytest.raises(TracerError, match="no concrete value"):
        ad.trace(branchy, ad.Spec((3,), np.dtype(np.float64)))
    with pytest.raises(TracerError, match="no concrete value"):
        ad.scan(lambda c, x: (c if x > 0 else -c, x), X[0], X)


def test_a_batch_cannot_be_decided_by_one_example():
    program = ad.trace(branchy, X)
    from autodiff.batch import batch_program

    with pytest.raises(TracerError, match="cannot decide for a batch"):
        batch_program(program, 3, (True,))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: np.sum(np.asarray(x)), "np.asarray"),
        (lambda x: float(np.sum(x)), r"float\(\) of a traced value would drop its derivative"),
        (lambda x: x * int(np.sum(x)), r"int\(\) of a traced floating-point value"),
        (lambda x: complex(np.sum(x)), r"complex\(\) of a traced value"),
        (lambda x: np.add(x, 1.0, out=np.zeros(3)), "out="),
        (lambda x: x.item(), "drop its derivative"),
    ],
)
def test_refusals_name_the_line_and_the_fix(function, text):
    with pytest.raises(TracerError, match=rf"(?s){text}.*test_trace\.py"):
        ad.grad(lambda x: np.sum(function(x)))(X)


def test_in_place_writes_are_refused():
    def write(x):
        x[0] = 1.0
        return np.sum(x)

    def into_array(x):
        y = np.zeros(3)
        y += x
        return np.sum(y)

    with pytest.raises(TracerError, match="(?s)written in place.*index_update"):
        ad.grad(write)(X)
    with pytest.raises(TracerError, match=r"(?s)write into an array.*a = a \+ x"):
        ad.grad(into_array)(X)


def test_augmented_assignment_rebinds():
    def f(x):
        y = x
        y += 1.0
        y *= x
        return np.sum(y)

    before = X.copy()
    np.testing.assert_array_equal(ad.grad(f)(X), 2 * X + 1.0)
    np.testing.assert_array_equal(X, before)


def test_out_is_refused_where_the_statement_would_be_lost():
    def write(x):
        y = x * 1.0
        np.multiply(y, 3.0, out=y)
        return np.sum(y)

    with pytest.raises(TracerError, match=r"(?s)multiply .*write into an array.*test_trace\.py"):
        ad.grad(write)(X)


def test_augmented_assignment_keeps_shape_and_dtype_as_numpy():
    def add(x):
        x += np.ones(3)
        return x

    def widen(x):
        x += np.ones((2, 3))
        return x

    def scalar(x):
        y = x[0]
        y += x
        return y

    narrow = X.astype(np.float32)
    assert ad.trace(add, narrow).outputs[0].spec == ad.trace_spec(add(narrow.copy()))
    with pytest.raises(TracerError, match=r"(?s)\(add\) would make float64\[2, 3\].*x = x \+ y"):
        ad.trace(widen, X)
    with pytest.raises(TracerError, match=r"\(truediv\) would make float64\[3\]"):
        ad.trace(lambda i: operator.itruediv(i, 2), np.arange(3))
    np.testing.assert_array_equal(ad.interpret(ad.trace(scalar, X), X), scalar(X))


def test_unsupported_numpy_functions_are_named():
    with pytest.raises(TracerError, match=r"(?s)numpy\.roots is not supported.*test_trace"):
        ad.grad(lambda x: np.sum(np.roots(np.ravel(x))))(X)


def test_a_tracer_is_not_an_ndarray():
    seen = []
    ad.trace(lambda x: (seen.append(isinstance(x, np.ndarray)), x)[1], X)
    assert seen == [False]


def test_every_equation_knows_the_users_line():
    def f(x):
        y = np.exp(x)
        return y * x

    program = ad.trace(f, X)
    lines = [eq.source for eq in program.equations]
    assert all(line is not None and "test_trace.py" in line and "in f" in line for line in lines)
    gradient = ad.trace(ad.grad(lambda x: np.sum(f(x))), X)
    assert all(eq.source is not None and "test_trace.py" in eq.source for eq in gradient.equations)


def test_ndarray_operators_on_the_left():
    w = np.arange(9.0).reshape(3, 3)
    f = lambda x: np.sum(np.float64(2.0) * (w @ x) + w[0] - x / w[1] ** np.float64(2))  # noqa: E731
    step = 1e-6
    numeric = [(f(X + step * e) - f(X - step * e)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(ad.grad(f)(X), numeric, rtol=1e-6)


def test_reduce_accumulate_and_outer():
    f = lambda x: np.sum(np.add.reduce(np.multiply.outer(x, x)) + np.add.accumulate(x))  # noqa: E731
    step = 1e-6
    numeric = [(f(X + step * e) - f(X - step * e)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(ad.grad(f)(X), numeric, rtol=1e-6, atol=1e-9)


def test_non_hashable_parameters_are_refused():
    from autodiff.errors import OpError
    from autodiff.trace import bind

    with pytest.raises(OpError, match=r"(?s)parameter 'axis' of SUM is not hashable"):
        ad.trace(lambda x: bind("SUM", x, axis=[0], keepdims=False), X)


def test_a_program_of_its_own_takes_no_value_of_an_outer_transform():
    def outer(y):
        return ad.trace(lambda x: x * y, np.ones(2))

    with pytest.raises(TracerError) as caught:
        ad.grad(outer)(1.0)
    what, where, fix = str(caught.value).splitlines()
    assert what == "'<lambda>' closes over a traced value (float64[])"
    assert "test_trace.py" in where and fix == "pass it as an argument"
