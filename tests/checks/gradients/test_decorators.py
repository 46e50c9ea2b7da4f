"""`gradient_check` and `vmap_check` without pytest: the options, the arguments, the reports."""

import functools

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autodiff as ad
import checks
from checks import GradientReport, VmapReport, gradient_check, normal, positive, spd, vmap_check
from checks.gradients.naming import framework_of
from checks.properties import drawing
from checks.properties.arguments import PropertyError, call_of
from checks.properties.record import GradientProperty
from checks.properties.run import surface
from checks.properties.surfaces import OF_FRAMEWORK, PARTS, SWEPT
from checks.surfaces.base import load

SMALL = hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, max_side=3), elements=st.floats(-2, 2))


@ad.custom_vjp
def tripled(x):
    return np.sin(x)


tripled.defvjp(lambda x: (np.sin(x), x), lambda x, ct: (3.0 * ct * np.cos(x),))


def run(function, kind, **settings):
    prop = function.gradsweep[0]
    return surface(prop, kind, function, name=function.__name__, settings=settings)


# --- the function itself -----------------------------------------------------------------------


def test_the_function_stays_callable_as_it_was():
    def loss(x, w=2.0):
        return np.sum(x) * w

    decorated = gradient_check(args=(normal(3),))(loss)
    assert decorated is loss
    assert decorated(np.ones(3), w=3.0) == 9.0
    bare = gradient_check(lambda x: 2 * x)
    assert bare(4.0) == 8.0


def test_check_returns_the_report():
    @gradient_check(args=(normal(3, 4), positive(4)), order=2)
    def loss(x, w):
        return np.sum(np.tanh(x @ np.log(w)) ** 2)

    report = loss.check()
    assert isinstance(report, GradientReport) and report.ok and report.name == "loss"
    assert any(c.name.startswith("second") for c in report.checks)
    assert loss.check().to_json() is not None


def test_arguments_of_check_stand_over_those_of_the_decorator():
    seen = []

    @gradient_check(args=(normal(3),))
    def loss(x, w=1.0):
        seen.append((np.shape(x), w))
        return np.sin(x) * w

    assert loss.check(np.ones((2, 2)), w=3.0).ok
    assert {shape for shape, _ in seen} == {(2, 2)}


def test_a_wrong_gradient_is_found_and_an_argument_named():
    @gradient_check(args={"y": normal(2, 3), "x": np.ones(3)})
    def loss(x, y):
        return np.sum(tripled(y) * x)

    report = loss.check()
    assert report.verdict == "WRONG" and report.worst.argument == "y"


def test_both_decorators_give_both_reports():
    @gradient_check(args=(normal(3),))
    @vmap_check(args=(normal(3),))
    def loss(x):
        return np.sin(x)

    mapped, derived = loss.check()
    assert isinstance(mapped, VmapReport) and isinstance(derived, GradientReport)
    assert mapped.ok and derived.ok


def test_objects_without_attributes_are_wrapped():
    class Fixed:
        __slots__ = ()
        __name__ = "fixed"

        def __call__(self, x):
            return np.sin(x)

    function = gradient_check(args=(normal(3),))(Fixed())
    assert function.check().ok and function(0.0) == 0.0


def test_strategies_are_drawn_by_check_too():
    @gradient_check(args=(SMALL,), modes="reverse")
    def wrong(x):
        return tripled(x)

    report = wrong.check()
    assert report.verdict == "WRONG" and report.worst.index == (0,)

    @gradient_check(modes="reverse")
    @settings(max_examples=10)
    @given(SMALL)
    def right(x):
        return np.sin(x)

    assert right.check().ok


def test_one_kind_of_failure_is_never_shrunk_into_another():
    """Hypothesis tells failures apart by the class of their exception."""
    first, second = drawing.error_of("WRONG"), drawing.error_of("KINK")
    assert first is not second and first is drawing.error_of("WRONG")
    assert issubclass(first, drawing.DrawnError)


def test_strategies_stand_in_containers_beside_domains():
    seen = []

    @gradient_check(args=({"x": SMALL, "w": [normal(2), 3]},), modes="reverse", examples=5)
    def loss(p):
        seen.append(p["w"])
        return np.sum(tripled(p["x"])) + np.sum(p["w"][0]) * p["w"][1]

    report = loss.check()
    assert report.verdict == "WRONG" and report.worst.argument == "p['x']"
    assert {np.shape(w[0]) for w in seen} == {(2,)}


def test_the_body_of_a_property_is_put_back():
    calls = []

    @gradient_check(surfaces="reverse")
    @settings(max_examples=5)
    @given(SMALL)
    def plain(x):
        calls.append(x)
        return np.sin(x)

    body = plain.hypothesis.inner_test
    assert run(plain, "reverse").status == "passed"
    assert plain.hypothesis.inner_test is body
    calls.clear()
    plain.hypothesis.inner_test(np.ones(2))
    assert len(calls) == 1


# --- arguments ---------------------------------------------------------------------------------


def test_draws_depend_on_the_name_the_argument_and_the_seed_alone():
    def draws(name, seed=None):
        seen = []

        def loss(x, y):
            seen.append((x, y))
            return np.sum(np.sin(x) * y)

        loss.__name__ = name
        gradient_check(args=(normal(2), normal(2)), seed=seed)(loss).check()
        return seen[0]

    (x, y), (again, _) = draws("one"), draws("one")
    np.testing.assert_array_equal(x, again)
    assert not np.array_equal(x, y)
    assert not np.array_equal(x, draws("two")[0])
    assert not np.array_equal(x, draws("one", seed=1)[0])


def test_the_global_generator_is_not_touched():
    before = np.random.get_state()[1].copy()
    gradient_check(args=(normal(2), spd(2)))(lambda x, a: x @ a @ x).check()
    np.testing.assert_array_equal(before, np.random.get_state()[1])


def test_settings_are_bound_and_arrays_passed():
    def loss(n, x, mode, *rest, scale=1.0):
        assert isinstance(n, int) and mode == "sum"
        return np.sum(x) * n * scale + sum(np.sum(r) for r in rest)

    values = {"n": 2, "x": np.ones(2), "mode": "sum", "rest[0]": np.ones(3), "scale": 3.0}
    call = call_of(loss, values)
    assert call.names == ("x", "scale", "rest[0]") or set(call.names) == {"x", "scale", "rest[0]"}
    assert call.function(*call.args) == 15.0
    call = call_of(loss, {k: v for k, v in values.items() if k != "scale"}, {"scale": 3.0})
    assert "scale" not in call.names and call.function(*call.args) == 15.0


def test_positional_only_and_keyword_only_arguments():
    def loss(x, /, w, *, b):
        return np.sum(x * w) + b

    call = call_of(loss, {"x": np.ones(2), "w": 3, "b": np.ones(())})
    assert call.names == ("x", "b") and call.function(*call.args) == 7.0


def test_containers_of_domains_are_drawn():
    @gradient_check(args=({"w": normal(3), "b": [positive(), normal(3)]},))
    def loss(p):
        return np.sum(p["w"] * np.log(p["b"][0]) + p["b"][1] ** 2)

    assert loss.check().ok


def test_symmetric_domains_move_symmetrically():
    @gradient_check(args=(spd(3),))
    def logdet(a):
        return 2.0 * np.sum(np.log(np.diagonal(np.linalg.cholesky(a))))

    assert logdet.check().ok


def test_argnums_and_symmetric_by_name_or_place():
    @gradient_check(args=(normal(2), 3, normal(2)), argnums="y")
    def loss(x, n, y):
        return np.sum(tripled(x)) + np.sum(np.sin(y)) * n

    assert loss.check().ok

    @gradient_check(args=(normal(2), 3, normal(2)), argnums=(0,))
    def other(x, n, y):
        return np.sum(tripled(x)) + np.sum(np.sin(y)) * n

    assert other.check().worst.argument == "x"


# --- frameworks --------------------------------------------------------------------------------


def test_the_framework_is_found_from_arrays_or_code():
    jnp = pytest.importorskip("jax.numpy")
    assert framework_of(np.sin, (jnp.ones(2),)) == "jax"
    assert framework_of(np.sin, (np.ones(2),)) is None

    def local(x):
        import torch

        return torch.sin(x)

    assert framework_of(local) == "torch"
    torch = pytest.importorskip("torch")

    class Sine(torch.autograd.Function):
        pass

    assert framework_of(lambda x: Sine.apply(x)) == "torch"
    assert framework_of(lambda x: local(x)) == "torch"
    assert framework_of(np.sin) is None


def test_a_jax_function_with_domains():
    jnp = pytest.importorskip("jax.numpy")

    @gradient_check(args=(normal(3), positive(3)), order=2)
    def loss(x, w):
        return jnp.sum(jnp.tanh(x) * jnp.log(w))

    assert loss.gradsweep[0].kinds() == ("reverse", "forward", "second", "vmap", "f32", "jit")
    report = loss.check()
    assert report.ok and report.framework == "jax"
    for kind in loss.gradsweep[0].kinds():
        found = run(loss, kind)
        assert found.status == "passed", (kind, found.text)
    assert run(loss, "execute").status == "skipped"


def test_a_jitted_function_can_be_decorated():
    jax = pytest.importorskip("jax")
    function = gradient_check(args=(normal(3),), framework="jax")(jax.jit(jax.numpy.sin))
    assert function.check().ok


def test_a_torch_function_with_domains():
    torch = pytest.importorskip("torch")

    @gradient_check(args=(normal(3), positive(3)))
    def loss(x, w):
        return torch.sum(torch.tanh(x) * torch.log(w))

    report = loss.check()
    assert report.ok and report.framework == "torch"
    assert loss.gradsweep[0].kinds() == ("reverse", "forward", "vmap", "f32")
    assert run(loss, "f32").status == "passed"


def test_hand_written_derivatives_have_their_own_surfaces():
    right = lambda x, ct: (ct * np.cos(x),)  # noqa: E731
    wrong = lambda x, ct: (-ct * np.cos(x),)  # noqa: E731
    good = gradient_check(args=(normal(4),), vjp=right)(lambda x: np.sin(x))
    assert good.gradsweep[0].kinds() == ("reverse",)
    assert run(good, "reverse").status == "passed"
    bad = gradient_check(args=(normal(4),), vjp=wrong)(lambda x: np.sin(x))
    assert run(bad, "reverse").verdict == "WRONG"
    jacobian = gradient_check(args=(normal(4),), jac=lambda x: np.diag(np.cos(x)))(
        lambda x: np.sin(x)
    )
    assert jacobian.gradsweep[0].kinds() == ("reverse", "forward")
    assert jacobian.check().ok


# --- surfaces ----------------------------------------------------------------------------------


def test_the_surfaces_of_the_sweep_are_those_of_the_registry():
    assert set(SWEPT) == {s for s in load() if s not in (*PARTS, "special")}


def test_forward_mode_is_held_against_reverse():
    @gradient_check(args=(normal(40),))
    def loss(x):
        return np.sin(x)

    found = run(loss, "forward")
    assert "dot" in {c.name for c in found.report.checks}


def test_a_wrong_reverse_rule_does_not_fail_forward_mode():
    """The two are separate items, each with its own verdict."""

    @ad.custom_jvp
    def half(x):
        return np.sin(x)

    half.defjvp(
        lambda primals, tangents: (np.sin(primals[0]), 0.5 * np.cos(primals[0]) * tangents[0])
    )
    wrong = gradient_check(args=(normal(4),))(lambda x: half(x))
    assert run(wrong, "forward").verdict == "WRONG"
    assert run(wrong, "reverse").verdict == "WRONG"


def test_a_wrong_second_derivative_is_found_by_second_alone():
    @ad.custom_vjp
    def cube(x):
        return x**3

    # the first derivative is right, and constant as a function
    cube.defvjp(lambda x: (x**3, x), lambda x, ct: (3.0 * ct * ad.stop_gradient(x) ** 2,))
    loss = gradient_check(args=(positive(40),), order=2)(lambda x: np.sum(cube(x)))
    assert run(loss, "reverse").status == "passed"
    assert run(loss, "second").status == "failed"


def test_allowed_verdicts_pass():
    relu = lambda x: np.maximum(x, 0.0)  # noqa: E731
    strict = gradient_check(args=(np.array([0.0, 1.0]),))(relu)
    assert run(strict, "reverse").verdict == "KINK"
    assert run(strict, "reverse").status == "failed"
    easy = gradient_check(args=(np.array([0.0, 1.0]),), allow="kinks")(lambda x: np.maximum(x, 0.0))
    assert run(easy, "reverse").status == "passed"


# --- mistakes ----------------------------------------------------------------------------------

MISTAKES = [
    (lambda: gradient_check(3), "takes its arguments by name, not 3"),
    (lambda: gradient_check(args=normal(3))(np.sin), "is no tuple or dict"),
    (lambda: gradient_check(args="x")(lambda x: x), "args='x' is no tuple or dict"),
    (
        lambda: gradient_check(args=(1.0, 2.0))(lambda x: x),
        "takes 1 argument by position, args= holds 2",
    ),
    (lambda: gradient_check(args={"y": 1.0})(lambda x: x), "has no argument 'y'"),
    (lambda: gradient_check(order=4)(lambda x: x), "order=4: orders are 1, 2 and 3"),
    (
        lambda: gradient_check(modes="revers")(lambda x: x),
        "no mode 'revers'; did you mean 'reverse'",
    ),
    (lambda: gradient_check(surfaces="f23")(lambda x: x), "no surface 'f23'; did you mean 'f32'"),
    (
        lambda: gradient_check(surfaces=True)(lambda x: x),
        r"surfaces=True of .* is neither a word(.|\n)*surfaces=\('reverse',\), or leave it out",
    ),
    (lambda: gradient_check(allow=3)(lambda x: x), "allow=3 of .* is neither a word nor several"),
    (lambda: vmap_check(surfaces=True)(lambda x: x), r"surfaces=True(.|\n)*\('vmap_loop',\)"),
    (lambda: gradient_check(surfaces=())(lambda x: x), r"surfaces=\(\) checks nothing"),
    (lambda: gradient_check(surfaces="second")(lambda x: x), "cannot be checked: add order=2"),
    (
        lambda: gradient_check(surfaces="forward", modes="reverse")(lambda x: x),
        "add 'forward' among modes=",
    ),
    (
        lambda: gradient_check(surfaces="vmap", vjp=np.sin)(lambda x: x),
        "hand-written derivatives do not have it",
    ),
    (
        lambda: gradient_check(allow="kink")(lambda x: x),
        "no allowance 'kink'; did you mean 'kinks'",
    ),
    (
        lambda: gradient_check(framework="jaxx")(lambda x: x),
        "no framework 'jaxx'; did you mean 'jax'",
    ),
    (lambda: gradient_check(tolerance=0.0)(lambda x: x), "tolerance=0.0 is not positive"),
    (lambda: gradient_check(seed=-1)(lambda x: x), "seed=-1 is not an integer >= 0"),
    (lambda: gradient_check(vjp=3)(lambda x: x), "vjp=3 is no function"),
    (lambda: gradient_check()(3), "stands on a function, not 3"),
    (lambda: vmap_check(3), "takes its arguments by name, not 3"),
    (lambda: vmap_check(surfaces="vmap_lop")(lambda x: x), "did you mean 'vmap_loop'"),
    (lambda: vmap_check(batch_sizes=(-1,))(lambda x: x), "batch sizes are not negative"),
    (lambda: vmap_check(out_axes=(0.5,))(lambda x: x), "0.5 is no integer"),
    (lambda: vmap_check(framework="numpi")(lambda x: x), "did you mean 'numpy'"),
    (lambda: gradient_check(lambda x, y: x).check(1.0), "without a value for its argument y"),
    (lambda: gradient_check(lambda x, y: x).check(), "without a value for its arguments x, y"),
    (
        lambda: gradient_check(args=(normal(2),), argnums="z")(lambda x: x).check(),
        "argument 'z' holds no array",
    ),
    (
        lambda: gradient_check(args=(SMALL,))(given(y=SMALL)(lambda x, y: x)).check(),
        "strategies in args= and a @given",
    ),
]


@pytest.mark.parametrize(("make", "text"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_worded_in_three_lines(make, text):
    with pytest.raises(PropertyError, match=text) as caught:
        make()
    lines = str(caught.value).splitlines()
    assert 2 <= len(lines) <= 3 and all(lines)


def test_public_names():
    for name in ("gradient_check", "vmap_check", "check_vmap", "normal", "spd", "integers"):
        assert callable(getattr(checks, name))
    assert "gradient_check" in dir(checks)
    assert GradientProperty(np.sin).kinds() == (
        "reverse",
        "forward",
        "vmap",
        *OF_FRAMEWORK["numpy"],
    )


def test_partials_have_a_name():
    loss = gradient_check(args=(normal(3),))(functools.partial(lambda n, x: np.sin(x) * n, 2))
    assert loss.check().name == "partial"
