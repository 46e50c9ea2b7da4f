"""Rendered programs: readable, and bit for bit what the reference interpreter computes."""

import ast
import dataclasses
import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autodiff as ad
from autodiff import op as registry
from autodiff import rounding
from autodiff.interpret import interpret_flat
from autodiff.isolated import RunError, entry_name, run_isolated, run_rendered
from autodiff.kernel_source import Library, RenderError
from autodiff.kernels import narrow
from autodiff.naming import Namer
from autodiff.op import Op
from autodiff.render import render


def same_bits(a, b):
    a, b = (
        np.asarray(v).astype(np.float32) if np.asarray(v).dtype.kind == "V" else np.asarray(v)
        for v in (a, b)
    )
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def check(program, *leaves):
    """The printed source gives the interpreter's bits; returns it."""
    source = render(program)
    results = run_rendered(source, *leaves)
    expected = interpret_flat(program, *leaves)
    assert len(results) == len(expected)
    for got, want in zip(results, expected, strict=True):
        assert same_bits(got, want)
        assert isinstance(got, np.ndarray)
    return source


def loss(params, x):
    h = np.tanh(x @ params["w"] + params["b"])
    logits = h * 3.0
    return -np.mean(ad.ops.log_softmax(logits)[:, 0])


def example():
    rng = np.random.default_rng(1)
    params = {"w": rng.normal(size=(4, 3)), "b": rng.normal(size=3)}
    return params, rng.normal(size=(5, 4))


def branches(x):
    total = np.sum(x)
    y = ad.cond(total > 0, lambda v: (np.exp(v), v), lambda v: (v, v * 2.0), x)
    z, rows = ad.scan(lambda c, a: (c * a + 1.0, (c, a * 2.0)), total, y[0], reverse=True)
    w = ad.while_loop(
        lambda c: (c[0] < 7.0) & (c[1] < 20), lambda c: (c[0] + z * z, c[1] + 1), (total, 0)
    )
    bounded = ad.while_loop(lambda c: c < 1e9, lambda c: c * 2.0, z, max_steps=3)
    return w, rows, bounded, y[1]


def narrowed(x):
    half = x.astype(np.float32)
    brain = (half * half).astype(ml_dtypes.bfloat16)
    return brain.astype(np.float64) + np.exp(x.astype(np.float16)).astype(np.float64), brain, half


PROGRAMS = {
    "value": lambda: ad.trace(loss, *example()),
    "value_and_grad": lambda: ad.trace(ad.value_and_grad(loss), *example()),
    "jvp": lambda: ad.trace(
        lambda x, v: ad.jvp(lambda y: np.exp(y) / y, (x,), (v,)), *np.ones((2, 3)) * 1.7
    ),
    "hvp": lambda: ad.trace(
        lambda x, v: ad.hvp(lambda y: np.sum(np.log(y) ** 3), (x,), (v,)), *np.full((2, 3), 2.5)
    ),
    "vmap_grad": lambda: ad.trace(
        ad.vmap(ad.grad(loss), in_axes=(None, 0)), example()[0], np.stack([example()[1]] * 2)
    ),
    "control": lambda: ad.trace(branches, np.array([0.5, -0.25, 1.5])),
    "control_else": lambda: ad.trace(branches, np.array([0.5, -0.25, -1.5])),
    "control_grad": lambda: ad.trace(
        ad.grad(lambda x: branches(x)[2] + np.sum(branches(x)[1][0])), np.array([0.5, 0.25])
    ),
    "narrowed": lambda: ad.trace(narrowed, np.array([1 + 2.0**-8 + 2.0**-40, 0.1, 70000.0, -1e-9])),
    "float32": lambda: ad.trace(
        lambda x: (np.exp(x) * np.float32(0.1), np.cumsum(x)), np.array([0.1, 2, 30], np.float32)
    ),
    "float32_cast": lambda: ad.trace(lambda n: n.astype(np.float32) / np.float32(3), np.arange(5)),
    "complex": lambda: ad.trace(
        lambda z: (z * z / (z + 1j), np.sum(z) * z[0]), np.array([1 + 2j, -0.5j, 3.0])
    ),
    "integers": lambda: ad.trace(
        lambda n: (n * n - 1, -n, n > 2, np.sum(n)), np.arange(5, dtype=np.int32)
    ),
    "scalars": lambda: ad.trace(lambda x, y: (x / y, np.exp(x) * y, x), 0.3, -0.0),
    "signed_zero": lambda: ad.trace(lambda x: (x * -0.0, np.array([-0.0, 1.0]) * x), np.ones(2)),
    "empty": lambda: ad.trace(lambda x: (np.sum(x), np.exp(x)), np.zeros((0, 3))),
    "constants": lambda: ad.trace(
        lambda x: (
            x * np.arange(3.0),
            x + np.random.default_rng(0).normal(size=(30, 3)),
            np.zeros(3),
            x + np.full(3, np.nan),
        ),
        np.ones(3),
    ),
    "views": lambda: ad.trace(
        lambda x: (x, x, x.T, x.reshape(6), x[::2, 1:]), np.arange(6.0).reshape(3, 2)
    ),
}


def leaves_of(program):
    rng = np.random.default_rng(2)
    out = []
    for spec in program.in_specs:
        value = rng.normal(size=spec.shape) * 1.3
        out.append(
            (
                value + 1j
                if spec.dtype.kind == "c"
                else value * (3 if spec.dtype.kind == "i" else 1)
            ).astype(spec.dtype)
        )
    return out


@pytest.mark.parametrize("name", PROGRAMS)
def test_source_gives_the_interpreters_bits(name):
    program = PROGRAMS[name]()
    check(program, *leaves_of(program))


def test_sources_run_with_numpy_and_scipy_alone():
    programs = [make() for make in PROGRAMS.values()]
    jobs = [(render(p), leaves_of(p)) for p in programs]
    for p, (_, args), results in zip(programs, jobs, run_isolated(jobs), strict=True):
        assert not isinstance(results, RunError), str(results)
        for got, want in zip(results, interpret_flat(p, *args), strict=True):
            assert same_bits(got, want)


def test_the_separate_process_refuses_other_packages_and_reports_errors():
    ok = "def f(x):\n    import scipy.special\n    return scipy.special.erf(x), x"
    jobs: list[Any] = [
        ("import ml_dtypes\ndef f(x): return x", [np.ones(2)]),
        (ok, [np.ones(2)]),
        ("def f(x): return x / y", [1.0]),
    ]
    outcomes: list[Any] = list(run_isolated(jobs))
    refused, good, broken = outcomes
    assert isinstance(refused, RunError)
    assert "ml_dtypes is not NumPy, SciPy or the standard library" in str(refused)
    assert [r.shape for r in good] == [(2,), (2,)]
    assert "NameError" in broken.trace
    assert len(str(broken).splitlines()) == 3


def test_a_process_that_hangs_is_an_error():
    with pytest.raises(RunError, match="took longer than"):
        run_isolated([("def f():\n    while True: pass", [])], timeout=1.0)


def test_bfloat16_arguments_travel_as_float32():
    program = ad.trace(lambda x: x * x, np.array([1.5, 0.1], ml_dtypes.bfloat16))
    x = np.array([1.0078125, -3.0], ml_dtypes.bfloat16)
    outcome: Any = run_isolated([(render(program), [x])])[0]
    (result,) = outcome
    assert same_bits(result, interpret_flat(program, x)[0])


# --- what it looks like --------------------------------------------------------------------


def test_names_come_from_the_users_lines():
    source = render(ad.trace(ad.value_and_grad(loss), *example()))
    for line in (
        "def loss_flat(params_b, params_w, x):",
        "    h = np.tanh(add_1)",
        "    logits = h * 3.0",
        "    # LOG_SOFTMAX, ",
        "def loss(params, x):",
    ):
        assert line in source, line
    for name in ("logits_bar = ", "h_bar = ", "params_w_bar = "):
        assert name in source, name
    assert " in loss\n" in source


def test_tangents_are_dots():
    def f(x, v):
        def g(y):
            z = np.exp(y)
            return z * y

        return ad.jvp(g, (x,), (v,))

    source = render(ad.trace(f, np.ones(2), np.ones(2)))
    assert "    z = np.exp(x)" in source
    assert "    z_dot = v * z" in source


def test_parameters_are_those_of_the_function_and_results_in_its_containers():
    params, x = example()
    program = ad.trace(ad.value_and_grad(loss), params, x)
    namespace: dict[str, Any] = {}
    exec(render(program), namespace)
    value, gradient = namespace["loss"](params, x)
    expected = ad.interpret(program, params, x)
    assert same_bits(value, expected[0])
    assert gradient.keys() == {"w", "b"}
    assert all(same_bits(gradient[k], expected[1][k]) for k in gradient)


@dataclasses.dataclass
class Layer:
    w: object
    rest: object


def test_dataclasses_tuples_lists_and_none():
    def f(layer, pair):
        return Layer(layer.w * pair[0], [layer.rest[0], None, (pair[1] + 1.0,)]), None

    args = (Layer(np.ones(2), [np.zeros(3), None]), (np.full(2, 2.0), np.float64(3.0)))
    program = ad.trace(f, *args)
    namespace: dict[str, Any] = {}
    source = render(program)
    exec(source, namespace)
    assert "class Layer:" in source
    result, nothing = namespace["f"](*args)
    assert nothing is None
    assert same_bits(result.w, np.full(2, 2.0))
    assert isinstance(result, namespace["Layer"])
    assert same_bits(result.rest[2][0], np.array(4.0))
    assert result.rest[1] is None


def test_only_numpy_and_scipy_are_imported():
    for name, make in PROGRAMS.items():
        tree = ast.parse(render(make()))
        imports = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
        modules = {a.name for n in imports if isinstance(n, ast.Import) for a in n.names}
        modules |= {str(n.module) for n in imports if isinstance(n, ast.ImportFrom)}
        assert all(m.split(".")[0] in ("numpy", "scipy", "math") for m in modules), name


def test_guards_raise_where_the_branch_goes_another_way():
    def f(x):
        return x * 2.0 if np.sum(x) > 0 else x

    source = check(ad.trace(f, np.ones(2)), np.ones(2))
    with pytest.raises(
        RuntimeError, match=r"the Python branch at \S+test_render\.py:\d+ in f was traced for True"
    ):
        run_rendered(source, -np.ones(2))


def test_arguments_of_another_shape_are_refused():
    source = render(ad.trace(lambda x: x + 1.0, np.ones(3)))
    with pytest.raises(ValueError, match=r"has shape \(1,\), the program takes \(3,\)"):
        run_rendered(source, np.ones(1))


def test_results_share_no_memory():
    source = render(PROGRAMS["views"]())
    x = np.arange(6.0).reshape(3, 2)
    results = run_rendered(source, x)
    for i, r in enumerate(results):
        assert r.flags.writeable
        assert not any(np.may_share_memory(r, other) for other in (x, *results[:i]))


def test_large_constants_are_exact():
    values = np.random.default_rng(5).normal(size=(40, 5)).astype(np.float32)
    values[3, 2] = np.float32(-0.0)
    program = ad.trace(lambda x: x * values, np.ones(5, np.float32))
    source = check(program, np.ones(5, np.float32))
    assert "bytes.fromhex(" in source
    assert max(map(len, source.splitlines())) <= 100


def kernel(kind: str) -> Any:
    return registry.get(kind).impl


# --- kernels -------------------------------------------------------------------------------


def test_every_primitive_has_a_source():
    library = Library(Namer())
    for kind, op in registry.OPS.items():
        # a conversion is always printed as an `astype`
        if op.impl is not None and not op.control and not op.effect and kind != "CAST":
            library.reference(op.impl, kind)
    text = library.text()
    assert "Any" not in text
    namespace: dict[str, Any] = {}
    exec("\n".join(sorted(library.imports)) + "\n\n" + text, namespace)
    assert all(m.split()[1].split(".")[0] in ("numpy", "scipy", "math") for m in library.imports)
    strong = namespace[library.reference(kernel("STRONG_MUL"), "STRONG_MUL")]
    with np.errstate(invalid="ignore"):
        product = strong(np.array([0.0, 2.0]), np.array([np.inf, 3.0]))
    assert product.tolist() == [0.0, 6.0]


def test_kernels_of_one_name_are_told_apart():
    library = Library(Namer(("strong_mul",)))
    name = library.reference(kernel("STRONG_MUL"), "STRONG_MUL")
    assert name == "elementwise_strong_mul"
    assert "def elementwise_strong_mul(x, y):" in library.text()


def test_what_a_kernel_reads_is_renamed_with_it():
    library = Library(Namer(("COMPARE",)))
    name = library.reference(kernel("COMPARE"), "COMPARE")
    namespace: dict[str, Any] = {}
    exec("import numpy as np\n" + library.text(), namespace)
    assert "elementwise_COMPARE[direction]" in library.text()
    assert namespace[name](1.0, 2.0, direction="LT")


def test_an_implementation_without_source_is_named(monkeypatch):
    scale = 2.0
    op = Op("SCALED", lambda x: x, impl=lambda x: x * scale, batch=lambda *a: None, jax="jnp.array")
    monkeypatch.setitem(registry.OPS, "SCALED", op)
    from autodiff.trace import bind

    program = ad.trace(lambda x: bind("SCALED", x), np.ones(2))
    with pytest.raises(RenderError, match="the implementation of SCALED has no source") as caught:
        render(program)
    assert caught.value.data["kind"] == "SCALED"
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_the_narrow_kernel_rounds_as_the_interpreter_does(name):
    bits = np.random.default_rng(7).integers(0, 2**64, 20000, dtype=np.uint64)
    wide = bits.view(np.float64)
    near = (
        np.random.default_rng(8).normal(size=20000)
        * 2.0 ** np.arange(20000)[::-1].clip(0, 60)
        / 2**30
    )
    x = np.concatenate([wide, near, [0.0, -0.0, np.inf, -np.inf, np.nan, 1 + 2.0**-8 + 2.0**-40]])
    form = rounding.FORMATS[name]
    with np.errstate(all="ignore"):
        got = narrow.round_to_format(
            x, form.mantissa, form.min_exponent, form.max_exponent, form.largest, form.overflow
        )
    np.testing.assert_array_equal(got, rounding.round_to(x, name))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(rounding.round_to(x, name)))


def test_the_entry_is_the_flat_function():
    assert entry_name("def g(): pass\ndef f_flat(x): pass\ndef f(x): pass") == "f_flat"
    assert entry_name("def g(): pass\ndef f(x): pass") == "f"


@pytest.mark.parametrize(
    "array",
    [
        np.array(-0.0),
        np.zeros((0, 3), np.float32),
        np.array([np.nan, np.inf, 1e-320]),
        np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4)),
        np.arange(24).reshape(2, 3, 4)[:, ::2, ::-1],
        np.array([True, False]),
        np.array([1 + 2j, -0.0j], np.complex64),
    ],
)
def test_arrays_travel_to_the_process_bit_by_bit(array):
    from autodiff.packed import Packed, unpacked

    packed = Packed()
    packed.add(np.ones(3, np.int8))
    place = json.loads(json.dumps(packed.add(array)))
    found = unpacked(packed.data(), *place)
    assert (found.dtype, found.shape, found.tobytes()) == (
        array.dtype,
        array.shape,
        array.tobytes(),
    )
    assert found.flags.writeable and found.flags.fnc == array.flags.fnc
    with pytest.raises(TypeError, match="no array of numbers"):
        packed.add(np.array([None]))
