"""Gradient checks of JAX functions, jitted ones and those with custom rules."""

import importlib.util

import numpy as np
import pytest

from autodiff import optional
from autodiff.optional import MissingPackageError
from checks.gradients.check import check_gradients
from checks.gradients.framework import FrameworkError, detect, framework
from checks.gradients.surfaces import framework_checks
from checks.gradients.target import Target, TargetError

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

QUICK = {"vmap": False, "full": False, "framework": "jax"}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def verdicts(report):
    return {c.name: c.verdict for c in report.checks}


@pytest.fixture(autouse=True)
def _x64_is_off_before_and_after():
    assert jnp.ones(2).dtype == jnp.float32
    yield
    assert jnp.ones(2).dtype == jnp.float32
    assert not jax.config.jax_enable_x64


# --- what must be judged right -------------------------------------------------------------

RIGHT = {
    "square at 1e9": (lambda x: x**2, 1e9),
    "log at 1e-7": (jnp.log, 1e-7),
    "sqrt at 1e-6": (jnp.sqrt, 1e-6),
    "1e8 + sin": (lambda x: 1e8 + jnp.sin(x), 1.0),
    "log at 1e-3": (jnp.log, 1e-3),
    "1/x at 1e-3": (lambda x: 1 / x, 1e-3),
    "sin(1e4 x)": (lambda x: jnp.sin(1e4 * x), 0.3),
    "exp at 20": (jnp.exp, 20.0),
    "cube at 1e-8": (lambda x: x**3, 1e-8),
    "relu at 5e-7": (jax.nn.relu, 5e-7),
}

NAMED = {
    "relu at 0": (jax.nn.relu, 0.0, "KINK"),
    "abs at 0": (jnp.abs, 0.0, "KINK"),
    "clip at its limit": (lambda x: jnp.clip(x, -1, 1), 1.0, "KINK"),
    "floor at 4": (jnp.floor, 4.0, "KINK"),
    "asin at 1.5": (jnp.arcsin, 1.5, "DOMAIN"),
    "acos above 1": (jnp.arccos, 1.0 + 1e-9, "DOMAIN"),
}


@pytest.mark.parametrize("case", RIGHT)
def test_right_functions_at_unusual_scales_pass(case):
    function, at = RIGHT[case]
    report = check_gradients(function, at, name=case, **QUICK)
    assert report.verdict == "PASS", str(report)
    assert {"reverse", "forward", "dot"} <= set(verdicts(report))


@pytest.mark.parametrize("case", NAMED)
def test_kinks_and_domains_are_named(case):
    function, at, verdict = NAMED[case]
    report = check_gradients(function, at, name=case, **QUICK)
    assert (report.verdict, report.ok) == (verdict, False), str(report)


def test_random_numbers_without_a_key_are_nondeterministic():
    rng = np.random.default_rng(0)
    report = check_gradients(lambda x: x * rng.integers(0, 2, 20), normal(20), **QUICK)
    assert report.verdict == "NONDETERMINISTIC"


def test_the_sum_of_a_softmax_is_vacuous():
    report = check_gradients(lambda x: jax.nn.softmax(x).sum(), normal(4), **QUICK)
    assert (report.verdict, report.ok) == ("VACUOUS", False)


# --- custom rules --------------------------------------------------------------------------


def sine(backward, value=jnp.sin):
    """A sine with a hand-written pullback `backward(x, ct)`."""

    @jax.custom_vjp
    def wave(angle):
        return value(angle)

    wave.defvjp(lambda angle: (value(angle), angle), lambda angle, ct: (backward(angle, ct),))
    return wave


def test_the_doubled_gradient_of_a_small_function_is_wrong():
    doubled = sine(lambda x, ct: 2e-6 * ct * jnp.cos(x), lambda x: 1e-6 * jnp.sin(x))
    report = check_gradients(doubled, 1.0, **QUICK)
    assert (report.name, report.verdict) == ("wave", "WRONG")
    assert report.worst.argument == "angle"
    assert report.worst.ratio == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("factor", [-1.0, 0.0, 2.0, 1.001])
def test_one_wrong_entry_in_ten_thousand_is_named(factor):
    place = np.ones(10_000)
    place[7777] = factor
    wrong = sine(lambda x, ct: ct * jnp.cos(x) * place)
    report = check_gradients(wrong, normal(10_000), name="entry", **QUICK)
    assert report.verdict == "WRONG"
    assert (report.worst.argument, report.worst.index) == ("angle", (7777,))
    assert report.evaluations <= 40


def test_forward_mode_of_a_custom_vjp_is_not_defined_and_does_not_fail():
    report = check_gradients(sine(lambda x, ct: ct * jnp.cos(x)), normal(3), framework="jax")
    found = verdicts(report)
    assert report.ok and report.verdict == "PASS", str(report)
    assert found["forward"] == "NOT_DEFINED"
    assert found["reverse"] == found["vmap"] == found["vmap of grad"] == "PASS"
    detail = next(c.detail for c in report.checks if c.name == "forward")
    assert "custom_vjp" in detail


def test_a_custom_jvp_serves_both_modes():
    def with_factor(factor):
        @jax.custom_jvp
        def wave(x):
            return jnp.sin(x)

        wave.defjvp(lambda p, t: (jnp.sin(p[0]), factor * t[0] * jnp.cos(p[0])))
        return verdicts(check_gradients(wave, normal(3), **QUICK))

    assert with_factor(1.0) == {"reverse": "PASS", "forward": "PASS", "dot": "PASS"}
    found = with_factor(1.001)
    assert (found["reverse"], found["forward"]) == ("WRONG", "WRONG")


FAULTS = {
    "shape": (lambda x, ct: (ct * jnp.cos(x))[:2], "WRONG_SHAPE"),
    "container": (lambda x, ct: (ct, ct), "WRONG_SHAPE"),
    "dtype": (lambda x, ct: (ct * jnp.cos(x)).astype(jnp.float32), "WRONG_DTYPE"),
    "none": (lambda x, ct: None, "WRONG"),
    "nan": (lambda x, ct: ct * jnp.nan, "WRONG"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_a_pullback_have_names(fault):
    backward, verdict = FAULTS[fault]
    report = check_gradients(sine(backward), normal(3), name=fault, **QUICK)
    assert report.verdict == verdict, str(report)


RULES = {
    "shape": (lambda p, t: (jnp.sin(p[0]), t[0][:1]), "WRONG_SHAPE"),
    "dtype": (lambda p, t: (jnp.sin(p[0]), t[0].astype(jnp.float32)), "WRONG_DTYPE"),
}


@pytest.mark.parametrize("fault", RULES)
def test_faults_of_a_forward_rule_have_names(fault):
    rule, verdict = RULES[fault]
    wave = jax.custom_jvp(lambda x: jnp.sin(x))
    wave.defjvp(rule)
    report = check_gradients(wave, normal(3), name=fault, modes=("forward",), **QUICK)
    assert report.verdict == verdict, str(report)


def test_loops_without_reverse_mode_are_checked_in_forward_mode():
    def power(x):
        start = (0, jnp.ones_like(x))
        return jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * x), start)[1]

    report = check_gradients(power, normal(3), vmap=False, framework="jax")
    found = verdicts(report)
    assert (found["reverse"], found["forward"], report.ok) == ("NOT_DEFINED", "PASS", True)


def test_a_function_that_leaves_jax_is_not_differentiable():
    report = check_gradients(lambda x: jnp.asarray(np.sin(np.asarray(x))), normal(3), **QUICK)
    assert report.verdict == "NOT_DIFFERENTIABLE"
    assert "NumPy" in report.checks[0].detail


def test_a_branch_on_a_value_is_checked_and_has_no_vmap():
    report = check_gradients(lambda x: 2 * x if x[0] > 0 else -x, normal(3), framework="jax")
    assert report.ok and verdicts(report)["vmap"] == "NOT_DEFINED"


# --- arguments -----------------------------------------------------------------------------


def test_dtypes_stay_what_they_are():
    seen = []

    def function(a, b, c, s):
        seen.append((a.dtype.name, b.dtype.name, c.dtype.name, s.dtype.name, s.weak_type))
        return a * b.sum() * s

    args = (normal(2), jnp.ones(2, jnp.float32), jnp.ones(2, jnp.int32), 2.0)
    report = check_gradients(function, *args, framework="jax", full=False)
    assert report.verdict == "PASS", str(report)
    assert seen[0] == ("float64", "float32", "int32", "float64", True)


def test_a_float32_function_stays_float32_beside_python_numbers():
    seen = []

    def function(x, scale):
        seen.append((x * scale).dtype.name)
        return jnp.sin(x) * scale

    report = check_gradients(function, jnp.ones(3, jnp.float32), 2.0, full=False)
    assert report.verdict == "PASS", str(report)
    assert seen[0] == "float32"  # float64 is what the differences are of
    assert not {"WRONG_DTYPE", "NOT_DEFINED"} & set(verdicts(report).values())


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_narrow_dtypes_pass_and_a_tripled_gradient_is_wrong(name):
    x = jnp.asarray(1 + np.abs(normal(4)), name)
    report = check_gradients(lambda x: jnp.log(x) * x, x, **QUICK)
    # 64 roundings of bfloat16 are an eighth: more than a check may leave open
    expected = {"PASS", "INCONCLUSIVE"} if name == "bfloat16" else {"PASS"}
    assert report.verdict in expected, str(report)
    wrong = sine(lambda x, ct: 3 * ct * jnp.cos(x))
    assert check_gradients(wrong, jnp.asarray(0.5, name), **QUICK).verdict == "WRONG"


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16", "complex64", "int32", "bool"])
def test_arrays_go_to_numpy_and_back_bit_for_bit(name):
    frame = framework("jax")
    with frame.scope():
        original = jnp.asarray(100 * normal(3, 4), name)
        there = np.array(frame.numpy(original))
        back = frame.native(there, original)
        assert there.dtype.name == name and back.dtype == original.dtype
        there[...] = 0  # memory of its own
        assert bool((back == original).all()) and bool(original.any())


def test_containers_are_named_by_their_paths():
    wrong = sine(lambda x, ct: 3 * ct * jnp.cos(x))

    def function(params, scale, inner):
        return {"y": params["w"] @ inner(params["b"][0]) * scale, "t": (params["w"].sum(),)}

    params = {"w": normal(2, 3), "b": [normal(3, seed=1)]}
    right = check_gradients(lambda p, s: function(p, s, jnp.sin), params, 2, **QUICK)
    assert right.verdict == "PASS", str(right)

    def broken(params, scale):
        return function(params, scale, wrong)

    report = check_gradients(broken, params, 2, **QUICK)
    assert (report.verdict, report.worst.argument) == ("WRONG", "params['b'][0]")


class Layer:
    """A container that only JAX knows."""

    def __init__(self, weight, name, bias):
        self.weight, self.name, self.bias = weight, name, bias


jax.tree_util.register_pytree_with_keys(
    Layer,
    lambda layer: (
        (  # not in the order of their names
            (jax.tree_util.GetAttrKey("weight"), layer.weight),
            (jax.tree_util.GetAttrKey("bias"), layer.bias),
        ),
        layer.name,
    ),
    lambda name, children: Layer(children[0], name, children[1]),
)


def test_containers_registered_with_jax_are_opened():
    wrong = sine(lambda x, ct: 3 * ct * jnp.cos(x))

    def function(layer, x, inner=jnp.sin):
        assert isinstance(layer, Layer) and layer.name == "first"
        return Layer(layer.weight @ x, layer.name, inner(layer.bias))

    layer = Layer(normal(2, 3), "first", normal(2))
    report = check_gradients(function, layer, normal(3), **QUICK)
    assert report.verdict == "PASS", str(report)

    def broken(layer, x):
        return function(layer, x, wrong)

    report = check_gradients(broken, layer, normal(3), **QUICK)
    assert report.verdict == "WRONG"
    assert report.worst.argument == "layer['.bias']"


def test_integers_bools_keys_and_static_arguments_are_held_fixed():
    def function(x, index, mask, key, axis):
        assert index.dtype.name == "int64" and mask.dtype.name == "bool" and axis == 0
        noise = jax.random.normal(key, (3,))
        return jnp.where(mask, x[index] * noise, 0.0).sum(axis)

    args = (normal(4), np.array([0, 2, 2]), np.array([True, False, True]), jax.random.key(0), 0)
    assert check_gradients(jax.jit(function, static_argnums=4), *args, full=False).verdict == "PASS"
    with pytest.raises(TargetError, match="no argument to differentiate"):
        check_gradients(lambda i: i + 1, jnp.arange(3))


def test_a_static_float_is_held_fixed_by_argnums():
    function = jax.jit(lambda x, s: jnp.sin(x) * s, static_argnums=1)
    assert check_gradients(function, normal(2), 2.0, argnums=0, **QUICK).verdict == "PASS"


def test_0d_empty_and_overlapping():
    def function(empty, x, y):
        return empty.sum() + jnp.sin(x) * jnp.cumsum(y, 0)

    rows = np.broadcast_to(normal(2), (3, 2))
    report = check_gradients(function, np.zeros((0, 3)), np.float64(0.5), rows, **QUICK)
    assert report.verdict == "PASS", str(report)


def test_unused_arguments_and_constant_results_have_gradient_zero():
    def function(x, unused):
        return jnp.sin(x), jnp.ones(2)

    assert check_gradients(function, normal(3), normal(2), **QUICK).verdict == "PASS"


def test_stop_gradient_is_wrong():
    report = check_gradients(lambda x: jax.lax.stop_gradient(jnp.sin(x)), normal(3), **QUICK)
    assert report.verdict == "WRONG"


def test_complex_arguments_and_a_pullback_with_a_conjugate_too_many():
    z = normal(3) + 1j * normal(3, seed=1)
    report = check_gradients(lambda z: z * jnp.conj(z) + z**2, z, **QUICK)
    assert report.verdict == "PASS", str(report)

    @jax.custom_vjp
    def square(z):
        return z * z

    square.defvjp(lambda z: (z * z, z), lambda z, ct: (ct * 2 * jnp.conj(z),))
    assert check_gradients(square, z, **QUICK).verdict == "WRONG"


# --- orders --------------------------------------------------------------------------------


def test_second_order_in_every_composition():
    report = check_gradients(lambda x: jnp.sin(x) * x[::-1], normal(2), order=2, **QUICK)
    assert report.verdict == "PASS", str(report)
    found = verdicts(report)
    assert sum(n.startswith("second") for n in found) >= 3
    assert "NOT_DEFINED" not in found.values()


def test_a_wrong_second_derivative_is_wrong():
    def backward(x, ct):
        return ct * 3 * x * jax.lax.stop_gradient(x)  # right at first order, half of the second

    cube = sine(backward, lambda x: x**3)
    assert check_gradients(cube, normal(2), **QUICK).verdict == "PASS"
    assert check_gradients(cube, normal(2), order=2, **QUICK).verdict == "WRONG"


# --- surroundings --------------------------------------------------------------------------


def test_x64_is_off_again_after_an_exception():
    def fails(x):
        assert x.dtype == np.float64
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        check_gradients(fails, normal(3), framework="jax")


def test_a_probe_outside_the_domain_is_judged_with_debug_nans_on():
    with jax.debug_nans(True):
        report = check_gradients(jnp.sqrt, 1e-6, **QUICK)
    assert report.verdict == "PASS"


def test_the_framework_is_found_from_the_function_or_its_arguments():
    assert detect(lambda x: x, (jnp.ones(2),)).name == "jax"
    assert detect(jax.jit(lambda x: x), (np.ones(2),)).name == "jax"
    assert detect(sine(lambda x, ct: ct), (np.ones(2),)).name == "jax"
    assert detect(np.sin, (np.ones(2),)).name == "numpy"
    with pytest.raises(FrameworkError, match="no framework 'jaxx'"):
        framework("jaxx")


def test_a_missing_jax_names_the_extra(monkeypatch):
    spec = importlib.util.find_spec("checks.gradients.frameworks.jax")
    monkeypatch.setattr(optional, "available", lambda package: package != "jax")
    with pytest.raises(MissingPackageError, match=r"pip install gradsweep\[jax\]"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


# --- surfaces ------------------------------------------------------------------------------


def surfaces(function, *args):
    target = Target("surface", framework("jax"), function, args)
    return {c.name: c for c in framework_checks(target)}


def test_jit_and_float32_agree_with_eager_float64():
    found = surfaces(lambda x: jnp.tanh(x) @ x.T, normal(2, 3))
    assert {n: c.verdict for n, c in found.items()} == {"jit": "PASS", "f32": "PASS"}
    assert 0 < found["f32"].error < found["f32"].allowed


def test_a_function_that_differs_under_jit_is_wrong():
    def function(x):
        return jnp.sin(x) * (2.0 if isinstance(x, jax.core.Tracer) else 1.0)

    assert surfaces(function, normal(2))["jit"].verdict == "WRONG"


def test_a_branch_on_a_value_has_no_jit():
    check = surfaces(lambda x: 2 * x if x[0] > 0 else -x, normal(2))["jit"]
    assert check.verdict == "NOT_DEFINED" and "TracerBoolConversionError" in check.detail


def test_a_gradient_that_is_off_in_float32_only():
    def backward(x, ct):
        return ct * jnp.cos(x) * (1.0 if x.dtype == np.float64 else 0.99)

    check = surfaces(sine(backward), normal(3))["f32"]
    assert check.verdict == "WRONG"
    assert check.worst.argument == "angle" and check.worst.ratio == pytest.approx(0.99, rel=1e-5)


# --- found from the code, coarse inside -------------------------------------------------------


def test_numpy_arrays_in_a_function_of_jax():
    key = jax.random.key(0)
    report = check_gradients(lambda x: x * jax.random.normal(key, x.shape), normal(4), vmap=False)
    assert (report.verdict, report.framework) == ("PASS", "jax"), str(report)
    assert "framework" not in report.reproduce


def test_a_hand_written_gradient_leaves_numpy_arrays_as_they_are():
    seen = []

    def loss(x):
        seen.append(type(x))
        return jnp.sum(jnp.asarray(np.sin(x)))

    report = check_gradients(loss, np.float64(0.5) * np.ones(3, np.float32), gradient=np.cos)
    assert report.framework == "numpy" and set(seen) == {np.ndarray}


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize("seed", range(3))
def test_the_dot_test_knows_a_narrow_dtype_inside(name, seed):
    narrow = getattr(jnp, name)

    def dense(x, w):
        inner = jnp.dot(x.astype(narrow), w.astype(narrow)).astype(x.dtype)
        return jnp.sum(jnp.sin(inner) ** 2)

    report = check_gradients(dense, normal(6, seed=seed), normal(6, 4, seed=seed), **QUICK)
    assert report.verdict in ("PASS", "INCONCLUSIVE"), str(report)
    found = {c.name: c for c in report.checks}
    assert found["dot"].error > 1e-7 and found["dot"].verdict != "WRONG"


def test_a_gradient_that_jax_says_it_has_not_is_not_defined():
    from jax.scipy.special import betainc

    x = np.random.default_rng(0).uniform(0.2, 0.8, 3)
    report = check_gradients(betainc, x, x + 0.5, x, framework="jax", vmap=False)
    assert report.verdict == "NOT_DEFINED"
    assert (
        check_gradients(betainc, x, x + 0.5, x, framework="jax", vmap=False, argnums=2).verdict
        == "PASS"
    )
