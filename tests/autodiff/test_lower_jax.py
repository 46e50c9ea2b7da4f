"""Programs through JAX: containers, dtypes, literals, guards, control flow, and what is refused."""

import types

import numpy as np
import pytest

import autodiff as ad
import catalogue
from autodiff import taps, tree
from autodiff.errors import GuardError, ShapeError
from autodiff.families import batch_broadcasting
from autodiff.lower import jax as lowering
from autodiff.lower.jax import LoweringError, lower_jax, missing_lowerings, needs_x64
from autodiff.lower.options import product_precision
from autodiff.op import OPS, Op
from autodiff.optional import MissingPackageError
from autodiff.rounding import PrecisionError
from autodiff.trace import bind

jax = pytest.importorskip("jax")
X = np.array([0.5, -1.25, 2.0])


def arrays(value):
    return [np.asarray(leaf) for leaf in tree.flatten(value)[0]]


def test_containers_go_in_and_out_as_the_function_has_them():
    def f(params, x):
        return {"y": np.exp(params["w"] * x), "parts": [np.sum(x), (x > 0,)]}

    args = ({"w": X}, X[::-1].copy())
    lowered = lower_jax(ad.trace(f, *args))
    result = lowered(*args)
    assert set(result) == {"y", "parts"} and isinstance(result["parts"][1], tuple)
    for got, want in zip(arrays(result), arrays(f(*args)), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-15)


def test_one_array_in_gives_the_bare_array_out():
    lowered = lower_jax(ad.trace(np.negative, X))
    assert isinstance(lowered(X), jax.Array)
    np.testing.assert_array_equal(np.asarray(lowered(X)), -X)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (2, 3)])
def test_any_shape(shape):
    x = np.random.default_rng(3).normal(size=shape)
    program = ad.trace(lambda v: np.sum(np.exp(v) * v), x)
    np.testing.assert_allclose(np.asarray(lower_jax(program)(x)), np.sum(np.exp(x) * x), rtol=1e-13)


def test_it_works_inside_jit_grad_and_vmap():
    program = ad.trace(lambda v: np.sum(np.exp(v) * v), X.astype(np.float32))
    lowered = lower_jax(program)
    x = X.astype(np.float32)
    want = np.sum(np.exp(x) * x)
    np.testing.assert_allclose(jax.jit(lowered)(x), want, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lowered)(x), np.exp(x) * (1 + x), rtol=1e-6)
    batch = np.stack([x, 2 * x])
    np.testing.assert_allclose(jax.vmap(lowered)(batch)[0], want, rtol=1e-6)


def test_a_wide_program_is_wide_inside_a_narrow_jit():
    lowered = lower_jax(ad.trace(lambda v: np.exp(v) / np.float64(3), X))
    got = np.asarray(jax.jit(lowered)(X.astype(np.float32)))
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, np.exp(X) / 3, rtol=1e-15)


def test_64_bit_types_are_never_left_on():
    assert not jax.config.jax_enable_x64
    lowered = lower_jax(ad.trace(np.exp, X))
    lowered(X)
    with pytest.raises(ShapeError):
        lowered(np.ones(4))
    assert not jax.config.jax_enable_x64


def test_64_bit_types_are_on_only_for_programs_that_have_them():
    assert needs_x64(ad.trace(np.exp, X))
    assert not needs_x64(ad.trace(np.exp, X), "float32")
    assert needs_x64(ad.trace(np.argmax, X), "float32")  # its result is int64


def test_every_intermediate_has_the_dtype_of_its_spec(monkeypatch):
    seen = []
    fitted = lowering._Lowering.fitted

    def recording(self, value, spec, op):
        result = fitted(self, value, spec, op)
        seen.append((op.kind, result.dtype, self.to(spec.dtype), result.weak_type))
        return result

    monkeypatch.setattr(lowering._Lowering, "fitted", recording)

    def f(x):
        y = np.where(x > 0, x * 0.1, np.exp(x)) + 1
        return ad.ops.softmax(y), np.argmax(y), np.sum(y > 1)

    for precision in (None, "float32"):
        seen.clear()
        lower_jax(ad.trace(f, X), precision=precision)(X)
        assert len(seen) > 8
        assert [s for s in seen if s[1] != s[2] or s[3]] == []


@pytest.mark.parametrize(
    "literal",
    [
        np.array([0.1, -0.0, np.inf, 5e-324, 1 / 3]),
        np.array([1 / 3, 3.4e38], np.float32),
        np.array([1 + 2j, -0.0 + 0.1j]),
        np.array([2**63 - 1, -1], np.int64),
        np.array([2**64 - 1], np.uint64),
        np.linspace(0, 1, 5000),
    ],
    ids=["f64", "f32", "c128", "i64", "u64", "large"],
)
def test_literals_are_exact(literal):
    program = ad.trace(
        lambda x: (x, ad.stop_gradient(bind("RESHAPE", x, shape=x.shape)), literal), X
    )
    got = np.asarray(lower_jax(program)(X)[2])
    assert got.dtype == literal.dtype
    assert got.tobytes() == literal.tobytes()


def test_precision_maps_every_value_as_the_interpreter_does():
    def f(x):
        narrow = x.astype("bfloat16")
        return x * np.float64(1 / 3), narrow, narrow.astype(np.float64) + x, x + 1j

    program = ad.trace(f, X)
    for precision in ("float64", "float32", "bfloat16"):
        want = ad.interpret(program, X, precision=precision)
        got = lower_jax(program, precision=precision)(X)
        assert [g.dtype for g in arrays(got)] == [w.dtype for w in arrays(want)]
        for g, w in zip(arrays(got)[:3], arrays(want)[:3], strict=True):
            np.testing.assert_array_equal(g, w)


def test_literals_and_arguments_are_rounded_once():
    # halfway between two bfloat16 numbers in float32, above halfway in float64
    hard = np.float64(1 + 2.0**-8 + 2.0**-40)
    program = ad.trace(lambda x: (x, bind("MUL", x, np.asarray(hard))), np.ones(()))
    got = arrays(lower_jax(program, precision="bfloat16")(np.asarray(1.0)))
    assert float(got[1]) == 1 + 2.0**-7
    assert float(arrays(lower_jax(program, precision="bfloat16")(hard))[0]) == 1 + 2.0**-7


def test_an_unknown_precision_is_an_error():
    with pytest.raises(PrecisionError, match="did you mean 'float32'"):
        lower_jax(ad.trace(np.exp, X), precision="float3")(X)


# --- guards and taps -----------------------------------------------------------------------


def branching(x):
    if np.sum(x) > 0:
        return np.exp(x)
    return x


def test_a_guard_is_checked_on_the_host():
    lowered = lower_jax(ad.trace(branching, X))
    np.testing.assert_allclose(np.asarray(lowered(X)), np.exp(X))
    with pytest.raises(GuardError, match="(?s)traced for True, the value is now False.*branching"):
        lowered(-X)


def test_a_guard_is_dropped_where_no_value_is_known():
    lowered = lower_jax(ad.trace(branching, X), precision="float32")
    x = X.astype(np.float32)
    np.testing.assert_allclose(jax.jit(lowered)(-x), np.exp(-x), rtol=1e-6)


@pytest.mark.parametrize("wrap", [ad.checkpoint, None], ids=["checkpoint", "custom_jvp"])
def test_a_guard_inside_a_body_that_always_runs_is_checked(wrap):
    if wrap is None:
        f = ad.custom_jvp(branching)
        f.defjvp(lambda p, t: (branching(p[0]), t[0]))
    else:
        f = wrap(branching)
    lowered = lower_jax(ad.trace(f, X))
    np.testing.assert_allclose(np.asarray(lowered(X)), np.exp(X))
    with pytest.raises(GuardError):
        lowered(-X)


def test_taps_reach_open_sinks_and_change_nothing():
    lowered = lower_jax(ad.trace(lambda x: ad.tap("inner", np.exp(x)) * 2, X))
    plain = np.asarray(lowered(X))
    with taps.collect() as seen:
        tapped = np.asarray(lowered(X))
    assert [name for name, _ in seen] == ["inner"]
    np.testing.assert_allclose(seen[0][1], np.exp(X))
    np.testing.assert_array_equal(plain, tapped)


# --- control flow --------------------------------------------------------------------------


def scanned(x):
    carry, ys = ad.scan(lambda c, row: (c * 0.5 + row, c * row), np.float64(1.0), x, reverse=True)
    return carry, ys


def looped(x):
    return ad.while_loop(lambda v: np.sum(v * v) < 50, lambda v: v * 1.5, x, max_steps=6)


def chosen(x):
    return ad.cond(np.sum(x) > 0, np.exp, np.negative, x)


def checkpointed(x):
    return ad.checkpoint(lambda v: np.exp(v) * v)(x)


@pytest.mark.parametrize("f", [scanned, looped, chosen, checkpointed])
def test_control_flow_and_its_derivatives(f):
    rng = np.random.default_rng(5)
    program = ad.trace(f, X)
    y = ad.interpret(program, X)
    t = rng.normal(size=X.shape)
    ct = tree.map_leaves(lambda v: rng.normal(size=np.shape(v)), y)
    jvp = ad.trace(lambda x, v: ad.jvp(f, (x,), (v,)), X, t)
    vjp = ad.trace(lambda x, c: ad.vjp(f, x)[1](c), X, ct)
    for p, args in ((program, (X,)), (jvp, (X, t)), (vjp, (X, ct))):
        pairs = zip(arrays(lower_jax(p)(*args)), arrays(ad.interpret(p, *args)), strict=True)
        for got, want in pairs:
            np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-15)


def test_jax_differentiates_custom_functions_by_their_own_rules():
    straight = ad.custom_jvp(np.floor)
    straight.defjvp(lambda p, t: (np.floor(p[0]), 3 * t[0]))
    clipped = ad.custom_vjp(np.exp)
    clipped.defvjp(lambda x: (np.exp(x), x), lambda x, ct: (7 * x * ct,))
    x = X.astype(np.float32)
    for f, want in ((straight, np.full(3, 3.0)), (clipped, 7 * x)):
        lowered = lower_jax(ad.trace(f, x))
        np.testing.assert_allclose(jax.grad(lambda v, g=lowered: g(v).sum())(x), want, rtol=1e-6)


# --- products ------------------------------------------------------------------------------


def test_product_algorithms():
    preset, highest = jax.lax.DotAlgorithmPreset.F32_F32_F32, jax.lax.Precision.HIGHEST
    assert product_precision("default", np.float32) is None
    assert product_precision("f32", np.float32) is preset
    assert product_precision("f32", np.float64) is highest
    assert product_precision("f32", np.complex64) is highest
    with pytest.raises(PrecisionError, match="unknown product algorithm: 'f23'"):
        product_precision("f23")


def test_portable_lowering_spells_f32_products_as_a_precision():
    def f(x, y):
        return ad.ops.matmul(x, y, algorithm="f32")

    x = np.ones((2, 3), np.float32)
    program = ad.trace(f, x, x.T)
    own, portable = ad.lower_stablehlo(program), ad.lower_stablehlo(program, portable=True)
    assert "algorithm = <lhs_precision_type = f32" in own
    assert "algorithm" not in portable and "precision = [HIGHEST, HIGHEST]" in portable


# --- the whole catalogue -------------------------------------------------------------------


def test_every_primitive_has_a_lowering():
    assert missing_lowerings(OPS.values()) == ()


def _refuse(*args, **kwargs):
    raise AssertionError("a composite of the JAX library was called")


def test_composites_are_lowered_through_their_own_bodies(monkeypatch):
    composites = [k for k, op in OPS.items() if op.body is not None]
    assert len(composites) > 30
    for name in dir(jax.nn):
        if isinstance(getattr(jax.nn, name), types.FunctionType) or callable(getattr(jax.nn, name)):
            if not name.startswith("_") and name != "initializers":
                monkeypatch.setattr(jax.nn, name, _refuse)
    for name in ("logsumexp", "softmax", "log_softmax"):
        if hasattr(jax.scipy.special, name):
            monkeypatch.setattr(jax.scipy.special, name, _refuse)
    for kind in composites:
        entry = catalogue.entry(kind)
        sample = entry.all_samples()[0]
        program = ad.trace(lambda *a, e=entry, s=sample: e.function(*a, **s.kwargs), *sample.args)
        with jax.enable_x64(needs_x64(program, "float32")):
            flat = lowering.flat_function(program, precision="float32")
            jax.eval_shape(flat, *_structs(program))


def _structs(program):
    dtypes = lowering.input_dtypes(program, "float32")
    return [jax.ShapeDtypeStruct(s.shape, d) for s, d in zip(program.in_specs, dtypes, strict=True)]


# --- errors --------------------------------------------------------------------------------


def applied(op):
    return ad.trace(lambda x: bind(op, x), X)


def elementwise(kind, name):
    return Op(kind, lambda x: x, impl=np.exp, batch=batch_broadcasting(kind), jax=name)


@pytest.mark.parametrize("name", ["jnp.nosuch", "rules:nosuch", "numpy.exp", "jax.nn.softmax"])
def test_a_lowering_that_names_nothing_is_an_error(name):
    with pytest.raises(LoweringError, match="(?s)op ODD has no jax lowering.*" + name):
        lower_jax(applied(elementwise("ODD", name)))(X)


def test_a_lowering_of_another_shape_is_an_error():
    with pytest.raises(
        LoweringError, match=r"(?s)lowering of ODD returned shape \(\).*float64\[3\]"
    ):
        lower_jax(applied(elementwise("ODD", "jnp.sum")))(X)


def test_a_weak_result_is_made_strong(monkeypatch):
    op = Op("WEAK", lambda x: x, impl=np.exp, batch=batch_broadcasting("WEAK"), jax="jnp.exp")
    monkeypatch.setattr(lowering, "lowering_rule", lambda op: lambda x: 1.5)
    flat = lowering.flat_function(ad.trace(lambda x: bind(op, x), np.float32(2)))
    (aval,), _ = jax.eval_shape(flat, jax.ShapeDtypeStruct((), np.float32))
    assert aval.dtype == np.float32 and not aval.weak_type


def test_a_program_with_captures_is_refused():
    program = ad.trace(np.exp, X)
    held = ad.Program((), program.inputs, program.equations, program.outputs)
    with pytest.raises(LoweringError, match="(?s)1 captured value.*as arguments"):
        lower_jax(held)


def test_an_argument_of_another_shape_is_an_error():
    with pytest.raises(ShapeError, match=r"(?s)shape \(2,\).*traced at float64\[3\]"):
        lower_jax(ad.trace(np.exp, X))(np.ones(2))


def test_missing_jax_names_the_command(monkeypatch):
    monkeypatch.setattr("autodiff.optional.available", lambda package: False)
    with pytest.raises(MissingPackageError, match=r"(?s)needs the package 'jax'.*gradsweep\[jax\]"):
        lower_jax(ad.trace(np.exp, X))
