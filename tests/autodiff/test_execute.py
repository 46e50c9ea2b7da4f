"""The fast executor: right, alias free, thread safe, and the same as what it prints."""

import dataclasses
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autodiff as ad
from autodiff import fuse, steps, taps
from autodiff.arena import plan_memory
from autodiff.errors import GuardError, ShapeError, TracerError
from autodiff.execute import Executable, compile_program
from autodiff.interpret import interpret_flat
from autodiff.isolated import run_isolated
from autodiff.naming import Namer, name_values
from autodiff.optimise import optimise
from autodiff.plan import plan
from autodiff.render_lines import Writer
from autodiff.render_scope import Scope
from autodiff.steps import Lowering
from autodiff.trace import evaluate


def leaves(tree):
    return ad.tree.flatten(tree)[0]


def same_bits(a, b):
    """Equal elements, signs of zeros included; one NaN is as good as another."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind not in "fc":
        return np.array_equal(a, b)
    signs = np.signbit(a.real) == np.signbit(b.real)
    return bool(np.all(np.isnan(a) & np.isnan(b) | (a == b) & signs))


def poisoned(executable):
    """The executable with its buffers filled with garbage before each call."""
    run, rng = executable.run, np.random.default_rng(0)

    def spoilt(buffers, *arrays):
        for b in buffers:
            if isinstance(b, np.ndarray) and b.flags.writeable:
                junk = rng.integers(-(2**31), 2**31 - 1, b.shape)
                b[...] = np.nan if b.dtype.kind in "fc" else junk.astype(b.dtype)
        return run(buffers, *arrays)

    executable.run = spoilt
    return executable


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few elements, so that small arrays are cut."""
    monkeypatch.setattr(steps, "LARGE", 24)
    monkeypatch.setattr(fuse, "CHUNK", 10)


# --- against the interpreter ---------------------------------------------------------------


def chain(x, y):
    a = np.exp(-x * x) + y
    b = np.where(a > 0.5, np.tanh(a), a * 0.25)
    return b / (1.0 + np.abs(b)), np.where(b > 0, 0.0, b), np.maximum(a, b)


def derivative(x, y):
    outs, pullback = ad.vjp(chain, x, y)
    return outs, pullback(tuple(np.full(o.shape, 0.7) for o in outs))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (7,), (5, 9), (3, 1, 4), (1100,), (2, 40000)])
def test_elementwise_programs_are_bit_equal(shape):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=shape), rng.normal(size=shape)
    x.flat[:3] = [np.nan, np.inf, -0.0][: x.size]
    program = ad.trace(derivative, x, y)
    for got, want in zip(
        poisoned(Executable(program))(x, y), interpret_flat(program, x, y), strict=True
    ):
        assert same_bits(got, want)


@pytest.mark.parametrize("shape", [(13,), (4, 11), (40, 3), (2, 3, 17), (1, 33), (31, 1)])
def test_blocks_are_bit_equal(shape, small_blocks):
    rng = np.random.default_rng(1)
    for other in (shape, shape[1:], (1,) * len(shape), (shape[0],) + (1,) * (len(shape) - 1)):
        x, y = rng.normal(size=shape), rng.normal(size=other)
        program = ad.trace(chain, x, y)
        executable = Executable(program)
        assert np.prod(shape) < steps.LARGE or "for start in range" in executable.source.body
        got = poisoned(executable)(x, y)
        for a, b in zip(got, interpret_flat(program, x, y), strict=True):
            assert same_bits(a, b)


def test_blocks_read_only_rows_that_are_done(small_blocks):
    rng = np.random.default_rng(14)
    x, y = rng.normal(size=(7, 7)), rng.normal(size=(1, 7))

    def f(x, y):
        a = np.exp(x)
        rows = np.max(a, axis=1)
        return a + a.T, a * rows, a - rows[:, None], (a + y).reshape(7, 7) * 2.0, a[::-1] + a

    program = ad.trace(f, x, y)
    for got, want in zip(
        poisoned(Executable(program))(x, y), interpret_flat(program, x, y), strict=True
    ):
        assert same_bits(got, want)


def test_rewrites_keep_the_sign_of_zero():
    x = np.array([-0.0, 0.0, 1.0, -np.inf])

    def f(v):
        zero = np.float64(-0.0)
        return (
            v - zero,
            v - 0.0,
            v + 0.0,
            zero + v,
            v * 1.0,
            np.negative(-v),
            v + (-v),
            v / 1.0,
            v * -1.0,
        )

    program = ad.trace(f, x)
    for got, want in zip(compile_program(program)(x), interpret_flat(program, x), strict=True):
        assert same_bits(got, want)


def test_what_a_kernel_returns_a_view_of_stays_alive():
    def f(x):
        a = np.exp(x)
        first, second = np.split(a, 2)
        b = np.tanh(np.sin(np.cos(x) * 2.0) * 3.0) * 4.0
        return first * 1.5 + second, b

    x = np.random.default_rng(15).normal(size=64)
    program = ad.trace(f, x)
    executable = poisoned(Executable(program))
    for got, want in zip(executable(x), interpret_flat(program, x), strict=True):
        assert same_bits(got, want)
    executable(x)
    assert len(executable.pool) == 1


UNARY: list[Any] = [
    np.exp,
    np.tanh,
    lambda x: -x,
    lambda x: x * x,
    lambda x: np.where(x > 0.3, x, 0.0),
    lambda x: np.where(x > 0, x * 2, -x),
    lambda x: x / (1 + x * x),
    ad.ops.sigmoid,
    lambda x: np.log1p(np.abs(x)),
]
BINARY: list[Any] = [
    np.add,
    np.multiply,
    np.subtract,
    np.maximum,
    lambda a, b: np.where(a > b, a, b),
]
ROWS: list[Any] = [
    lambda x: x - np.max(x, axis=-1, keepdims=True),
    lambda x: x + np.sum(x, axis=-1, keepdims=True) * 0.01,
    lambda x: x + np.sum(x, axis=0) * 0.01,
    lambda x: x + np.sum(x, axis=tuple(range(1, x.ndim))).reshape(-1, *(1,) * (x.ndim - 1)) * 0.01,
    lambda x: x * np.mean(x),
    lambda x: x + np.sum(x * x),
    lambda x: x.reshape(-1).reshape(x.shape) + x.T.T,
    ad.ops.softmax,
]


def random_function(rng, shape):
    steps = [
        (int(rng.integers(3)), int(rng.integers(len(ROWS))), *map(int, rng.integers(99, size=2)))
        for _ in range(int(rng.integers(4, 14)))
    ]

    def f(*xs):
        values = list(xs)
        for kind, which, i, j in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            a = np.broadcast_to(a, shape)
            if kind == 0:
                values.append(UNARY[(which + i) % len(UNARY)](a))
            elif kind == 1:
                values.append(BINARY[which % len(BINARY)](a, b))
            else:
                values.append(ROWS[which](a))
        return values[-1], values[len(values) // 2], np.sum(values[-2], axis=0)

    return f


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed, small_blocks):
    rng = np.random.default_rng(seed)
    shape = [(31,), (6, 7), (40, 3), (3, 5, 8), (5, 40)][seed % 5]
    f = random_function(rng, shape)
    narrow = [shape[1:], (1,) * len(shape), (shape[0],) + (1,) * (len(shape) - 1)][seed % 3]
    args = (rng.normal(size=shape), rng.normal(size=narrow))

    def g(*xs):
        outs, pullback = ad.vjp(f, *xs)
        return outs, pullback(tuple(o * 0.0 + 0.3 for o in outs))

    program = ad.trace(g if seed % 2 else f, *args)
    got = poisoned(Executable(program))(*args)
    for a, b in zip(got, interpret_flat(program, *args), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(
            a, b, rtol=0, atol=1e-11 * max(1, np.nanmax(np.abs(b), initial=0))
        )


def mlp(params, x, labels):
    h = ad.ops.relu(x @ params["w1"] + params["b1"])
    logits = h @ params["w2"] + params["b2"]
    return np.mean(ad.ops.cross_entropy(logits, labels))


def network(rng, batch=6, width=5):
    params = {
        "w1": rng.normal(size=(4, width)),
        "b1": rng.normal(size=width),
        "w2": rng.normal(size=(width, 3)),
        "b2": np.zeros(3),
    }
    return params, rng.normal(size=(batch, 4)), rng.integers(0, 3, batch)


def test_training_step_of_a_network():
    args = network(np.random.default_rng(2))
    compiled = ad.compile(ad.value_and_grad(mlp))
    for _ in range(2):
        value, gradient = compiled(*args)
        expected, reference = ad.value_and_grad(mlp)(*args)
        np.testing.assert_allclose(value, expected, rtol=1e-13)
        assert list(gradient) == list(reference)
        for name in gradient:
            np.testing.assert_allclose(gradient[name], reference[name], rtol=0, atol=1e-13)


def test_float32_is_computed_in_float32():
    x = np.random.default_rng(3).normal(size=500).astype(np.float32)
    program = ad.trace(lambda v: (np.exp(v) * v, np.where(v > 0, np.sin(v), v)), x)
    for got, want in zip(
        compile_program(program)(x), interpret_flat(program, x, precision="float32"), strict=True
    ):
        assert got.dtype == np.float32
        assert np.max(np.abs(got - want) / np.spacing(np.abs(want))) <= 4


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rounded_after_every_op(dtype):
    x = np.random.default_rng(4).normal(size=40).astype(dtype)

    def f(v):
        return np.exp(v) * v + np.tanh(v), np.sum(v), v.reshape(4, 10).T

    program = ad.trace(f, x)
    values: dict[Any, Any] = {program.inputs[0]: x}
    for eq in program.equations:
        operands = [a.value if hasattr(a, "value") else values[a] for a in eq.inputs]
        values[eq.outputs[0]] = evaluate(eq.op, operands, dict(eq.params))
    for got, atom in zip(ad.compile(f)(x), program.outputs, strict=True):
        assert got.dtype == np.dtype(dtype)
        assert np.array_equal(got.astype(np.float32), values[atom].astype(np.float32))


def test_a_cast_to_bfloat16_rounds_once():
    x = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8])  # the first is above the tie
    (got,) = compile_program(ad.trace(lambda v: v.astype(ml_dtypes.bfloat16), x))(x)
    assert got.astype(float).tolist() == [1.0078125, 1.0]


def loops(x):
    total, ys = ad.scan(lambda c, a: (c * 0.5 + a, c * a), np.sum(x), x)
    y = ad.cond(total > 0, lambda v: np.exp(v), lambda v: v * 2.0, ys)
    return ad.while_loop(lambda c: np.sum(c) < 9.0, lambda c: c + 1.0, y), total


def test_control_flow_and_its_derivative():
    x = np.array([0.5, -0.25, 1.5])
    for f in (
        loops,
        ad.grad(
            lambda v: np.sum(loops(v)[1]) + np.sum(ad.scan(lambda c, a: (c * a, c), 2.0, v)[1])
        ),
    ):
        for v in (x, -x):
            program = ad.trace(f, v)
            for got, want in zip(
                compile_program(program)(v), interpret_flat(program, v), strict=True
            ):
                assert same_bits(got, want)


# --- arguments and results -----------------------------------------------------------------


def test_results_are_new_arrays():
    def f(x, y):
        parts = np.split(x, 2)
        return x, x, x.T, y + 0.0, x.reshape(-1), np.zeros(3), np.broadcast_to(y, (2, 3)), *parts

    x, y = np.arange(6.0).reshape(2, 3), np.ones(3)
    compiled = ad.compile(f)
    for _ in range(2):
        results = compiled(x, y)
        for i, r in enumerate(results):
            assert r.flags.writeable
            assert not any(np.may_share_memory(r, other) for other in (x, y, *results[:i]))
            r[...] = -1.0
    assert np.array_equal(x, np.arange(6.0).reshape(2, 3))
    assert np.array_equal(compiled(x, y)[5], np.zeros(3))


def test_ten_results_are_kept():
    args = network(np.random.default_rng(5))
    compiled = ad.compile(ad.value_and_grad(mlp))
    xs = [np.random.default_rng(i).normal(size=args[1].shape) for i in range(10)]
    held = [compiled(args[0], x, args[2]) for x in xs]
    copies = [[np.array(v) for v in leaves(h)] for h in held]
    for _ in range(3):
        compiled(*args)
    for x, h, c in zip(xs, held, copies, strict=True):
        again = leaves(ad.compile(ad.value_and_grad(mlp))(args[0], x, args[2]))
        for kept, copy, fresh in zip(leaves(h), c, again, strict=True):
            assert same_bits(kept, copy)
            assert same_bits(kept, fresh)


def test_threads_do_not_share_buffers():
    args = network(np.random.default_rng(6), batch=300, width=40)
    compiled = ad.compile(ad.value_and_grad(mlp))
    batches = [np.random.default_rng(i).normal(size=args[1].shape) for i in range(4)]
    expected = [leaves(compiled(args[0], x, args[2])) for x in batches]
    wrong: list = []
    start = threading.Barrier(4)

    def work(x, want):
        start.wait()
        for _ in range(25):
            got = leaves(compiled(args[0], x, args[2]))
            if not all(same_bits(a, b) for a, b in zip(got, want, strict=True)):
                wrong.append(1)

    threads = [
        threading.Thread(target=work, args=pair) for pair in zip(batches, expected, strict=True)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert 1 <= len(compiled.executables[0].pool) <= 4


def test_arguments_of_any_layout_give_the_same_bits():
    rng = np.random.default_rng(7)
    base = rng.normal(size=(9, 12))
    plain = np.ascontiguousarray(base[::-2, 1:9:3])
    compiled = ad.compile(lambda x: (np.cbrt(x), np.sum(np.exp(x), axis=0), x @ x.T))
    expected = compiled(plain)
    locked = plain.copy()
    locked.flags.writeable = False
    for x in (base[::-2, 1:9:3], np.asfortranarray(plain), locked, plain.astype(">f8")):
        before = x.copy()
        got = compiled(x)
        assert same_bits(got[0], expected[0])
        assert all(np.allclose(a, b, rtol=1e-14) for a, b in zip(got, expected, strict=True))
        assert np.array_equal(x, before)


def test_numbers_and_containers():
    @dataclasses.dataclass
    class Point:
        x: object
        y: object

    def f(point, factor, extra):
        return {"sum": point.x + point.y * factor, "none": None}, [Point(point.y, extra[0])]

    compiled = ad.compile(f)
    for factor in (2.0, 3.0, np.float64(4.0), 5):
        result, (point,) = compiled(Point(np.ones(2), np.ones(2)), factor, (np.int64(7), None))
        assert result["none"] is None
        assert result["sum"].tolist() == [1.0 + factor] * 2
        assert isinstance(point, Point)
        assert same_bits(point.y, np.array(7))
    assert len(compiled.executables) == 2  # one for floats, one for the integer


def test_keyword_arguments():
    compiled = ad.compile(lambda x, *, scale=2.0: x * scale)
    assert compiled(np.ones(2)).tolist() == [2.0, 2.0]
    assert compiled(np.ones(2), scale=3.0).tolist() == [3.0, 3.0]
    assert compiled(np.ones(2), scale=4.0).tolist() == [4.0, 4.0]


def test_a_program_is_kept_per_spec():
    compiled = ad.compile(lambda x: x * 2.0 + 1.0)
    for x in (
        np.ones(2),
        np.ones(3),
        np.ones(2, np.float32),
        np.ones(2),
        np.ones((2, 1)),
        np.ones(3),
    ):
        y = compiled(x)
        assert y.dtype == x.dtype
        assert np.array_equal(y, 2 * x + 1)
    assert len(compiled.executables) == 4


def test_compile_program_checks_its_arguments():
    run = compile_program(ad.trace(lambda x: x + 1.0, np.ones(3)))
    with pytest.raises(ShapeError, match=r"was called with float64\[2\]") as caught:
        run(np.ones(2))
    assert "it was compiled for float64[3]" in str(caught.value)


def test_an_error_inside_leaves_the_function_usable():
    def refuse(name, value):
        raise OSError("the disk is full")

    compiled = ad.compile(lambda x: ad.tap("here", x) + 1.0)
    assert compiled(np.ones(2)).tolist() == [2.0, 2.0]
    with taps.collect(refuse), pytest.raises(OSError, match="the disk is full"):
        compiled(np.ones(2))
    assert compiled(np.zeros(2)).tolist() == [1.0, 1.0]
    assert len(compiled.executables[0].pool) == 1


def test_methods_can_be_compiled():
    class Model:
        scale = 3.0

        @ad.compile
        def run(self, x):
            return x * 3.0

    with pytest.raises(TracerError, match="is not an array"):
        Model().run(np.ones(2))
    model = Model()
    bound = ad.compile(lambda x: x * model.scale)
    assert bound(np.ones(2)).tolist() == [3.0, 3.0]


# --- transforms and branches ---------------------------------------------------------------


def test_traced_values_are_passed_on():
    f = ad.compile(lambda x: np.sum(np.exp(x) * x))
    x = np.array([0.5, 1.0])
    assert np.allclose(ad.grad(f)(x), np.exp(x) * (1 + x))
    assert np.allclose(ad.vmap(f)(np.stack([x, x])), [f(x)] * 2)
    assert np.allclose(ad.hvp(f, (x,), (x,)), np.exp(x) * (2 + x) * x)
    assert ad.trace(f, x) == ad.trace(lambda x: np.sum(np.exp(x) * x), x)
    assert len(f.executables) == 1


def test_a_closed_over_traced_value_is_not_a_constant():
    def outer(s):
        inner = ad.compile(lambda x: np.sum(x * s))
        return inner(np.arange(3.0))

    assert ad.grad(outer)(2.0) == 3.0


def test_python_branches_are_decided_anew():
    traced = []

    def f(x):
        traced.append(1)
        return x * 2.0 if np.sum(x) > 0 else -x

    compiled = ad.compile(f)
    x = np.array([1.0, 2.0])
    for sign in (1, -1, 1, -1, 1, 1):
        assert np.array_equal(compiled(sign * x), f(sign * x))
    assert len(compiled.executables) == 2
    assert len(traced) == 2 + 6


def test_integers_that_steer_python():
    compiled = ad.compile(lambda x, n: sum((x**k for k in range(n)), 0.0 * x))
    for n in (1, 3, 2, 3):
        assert np.allclose(compiled(np.float64(2.0), n), 2.0**n - 1)
    assert len(compiled.executables) == 3


def test_a_bare_program_raises_where_its_branch_goes_another_way():
    run = compile_program(ad.trace(lambda x: x * 2.0 if np.sum(x) > 0 else x, np.ones(2)))
    with pytest.raises(
        GuardError, match=r"the Python branch at \S+ in <lambda> was traced for True"
    ):
        run(-np.ones(2))


def test_errors_of_the_function_itself_are_its_own():
    compiled = ad.compile(lambda x: float(x))
    with pytest.raises(TracerError, match="would drop its derivative"):
        compiled(np.float64(1.0))


def test_taps_are_emitted_at_each_call():
    compiled = ad.compile(lambda x: ad.tap("inner", x * 2.0) + 1.0)
    compiled(np.ones(2))
    with taps.collect() as seen:
        first, second = compiled(np.ones(2)), compiled(np.full(2, 3.0))
    assert [(n, v.tolist()) for n, v in seen] == [("inner", [2.0, 2.0]), ("inner", [6.0, 6.0])]
    assert first.tolist() == [3.0, 3.0]
    assert second.tolist() == [7.0, 7.0]


# --- the plan ------------------------------------------------------------------------------


def test_what_is_printed_is_what_runs(small_blocks):
    args = network(np.random.default_rng(8), batch=11)
    compiled = ad.compile(ad.value_and_grad(mlp))
    expected = leaves(compiled(*args))
    source = ad.render(compiled)
    assert compiled.executables[0].source.body in source
    space: dict = {}
    exec(source, space)
    for got, want in zip(leaves(space["mlp"](*args)), expected, strict=True):
        assert same_bits(got, want)


def test_printed_plans_run_with_numpy_alone(small_blocks):
    x = np.random.default_rng(9).normal(size=(6, 7))
    jobs, expected = [], []
    for f in (derivative, loops_of_rows):
        compiled = ad.compile(f)
        expected.append(leaves(compiled(x, x)))
        name = compiled.executables[0].source.name
        entry = f"\n\ndef entry(*arrays):\n    return {name}(workspace(), *arrays)\n"
        jobs.append((ad.render(compiled) + entry, [x, x]))
    for results, want in zip(run_isolated(jobs), expected, strict=True):
        assert not isinstance(results, Exception), str(results)
        assert all(same_bits(a, b) for a, b in zip(results, want, strict=True))


def loops_of_rows(x, y):
    return ad.scan(lambda c, row: (c * 0.5 + row, np.sum(c * row)), y[0], x)


def test_buffers_are_reused_by_liveness():
    def f(x):
        for _ in range(50):
            x = np.tanh(x) + 0.5
        return np.sum(x)

    x = np.ones(1000)
    executable = Executable(ad.trace(f, x))
    assert executable.source.bytes < 3 * x.nbytes
    source = executable.source.body
    assert source.count(" tanh(") == 50
    assert "reduce" in source


def test_large_chains_stay_in_the_cache():
    def f(x):
        for _ in range(6):
            x = np.tanh(x) + 0.5
        return x

    executable = Executable(ad.trace(f, np.ones(1 << 20)))
    assert executable.source.bytes <= 4 * 8 * fuse.CHUNK
    assert "for start in range(0, 1048576, 8192):" in executable.source.body


def test_equal_work_is_done_once_and_transposes_are_folded():
    def f(x, w):
        h = x @ w
        return np.sum(np.exp(h) * h)

    rng = np.random.default_rng(10)
    x, w = rng.normal(size=(3, 4)), rng.normal(size=(4, 5))
    source = Executable(ad.trace(ad.grad(f, argnums=(0, 1)), x, w)).source.body
    assert source.count(" exp(") == 1
    assert source.count(".T") == 2
    assert "w_bar = dot(transpose_x, " in source


def test_results_copied_from_buffers_are_copied_last():
    def f(x):
        y = np.exp(x)
        part = y[1:3]
        z = np.tanh(x) * 2.0
        return part, np.sum(np.log(z * z + 1.0) + z), part * 0.5

    x = np.random.default_rng(12).normal(size=400)
    program = ad.trace(f, x)
    for got, want in zip(poisoned(Executable(program))(x), interpret_flat(program, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


def lowered(program):
    """The executor's steps for a program of one input."""
    flat = optimise(plan(program).program)
    namer = Namer()
    names = name_values(flat, namer, {flat.inputs[0]: "x"})
    low = Lowering(flat, names, Writer(Scope(namer, native=True), names, flat, {}))
    return low.run(), [low.operand(a) for a in flat.outputs]


@pytest.mark.parametrize("seed", range(8))
def test_places_of_values_alive_together_never_overlap(seed):
    rng = np.random.default_rng(seed)
    program = ad.trace(random_function(rng, (6, 7)), rng.normal(size=(6, 7)))
    steps, outputs = lowered(program)
    arena = plan_memory(steps, (), outputs)
    uses: dict = {}
    for time, step in enumerate(steps):
        for v in (*step.inputs, *step.outputs):
            uses.setdefault(v.root, []).append(time)
    for v in outputs:
        uses.setdefault(v.root, []).append(len(steps))
    spans = [
        (o, o + v.spec.size * v.spec.dtype.itemsize, min(uses[v]), max(uses[v]))
        for v, o in arena.offsets.items()
    ]
    assert len(spans) > 3
    for i, (a, b, first, last) in enumerate(spans):
        for c, d, begin, end in spans[:i]:
            # an in-place step ends one value where the other begins
            assert not (first < end and begin < last and a < d and c < b)
    assert all(o % 64 == 0 for o in arena.offsets.values())


def test_rendering_before_the_first_call_is_an_error():
    with pytest.raises(ShapeError, match="has not been called yet"):
        ad.render(ad.compile(lambda x: x))


def test_large_results_take_the_memory_of_those_given_up():
    compiled = ad.compile(lambda x: (np.exp(x), (np.tanh(x) * 2.0).reshape(2, -1)))
    x = np.linspace(-1.0, 1.0, 50_000)
    first = compiled(x)
    place = [r.ctypes.data for r in first]
    copies = [r.copy() for r in first]
    second = compiled(-x)  # the first is held: other memory
    assert all(r.ctypes.data not in place for r in second)
    assert all(same_bits(r, c) for r, c in zip(first, copies, strict=True))
    part = first[1][1:, ::7]  # a view holds its memory too
    kept, del_place = part.copy(), second[0].ctypes.data
    del first, second
    third = compiled(2 * x)
    assert same_bits(part, kept)
    assert third[0].ctypes.data == del_place
    held = memoryview(third[0])
    before = bytes(held[:100])
    del third
    compiled(3 * x)
    compiled(4 * x)
    assert bytes(held[:100]) == before


def test_programs_of_one_text_keep_their_own_constants():
    x = np.array([1.0, 2.0, 3.0])
    first, second = (ad.compile(lambda v, c=c: np.cumsum(v) * c + c) for c in (x + 0.5, x + 7.5))
    np.testing.assert_array_equal(first(x), np.cumsum(x) * (x + 0.5) + (x + 0.5))
    np.testing.assert_array_equal(second(x), np.cumsum(x) * (x + 7.5) + (x + 7.5))
    np.testing.assert_array_equal(first(x), np.cumsum(x) * (x + 0.5) + (x + 0.5))
    codes = [f.executables[0].run.__wrapped__.__code__ for f in (first, second)]
    assert codes[0] is codes[1]


# --- strong products -----------------------------------------------------------------------


def planted(rng, shape, values):
    """Normal numbers with some of the values in random places."""
    x = rng.normal(size=shape)
    return np.where(rng.random(shape) < 0.4, rng.choice(values, shape), x)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("function", [ad.ops.strong_mul, ad.ops.strong_div])
@pytest.mark.parametrize("shapes", [((5, 6), (5, 6)), ((5, 1), (6,)), ((60, 70), (60, 1))])
def test_strong_elementwise_products_are_those_of_the_interpreter(
    small_blocks, function, shapes, dtype
):
    rng = np.random.default_rng(14)
    for values in ([0.0, -0.0], [0.0, np.inf, -np.inf, np.nan], [1e30, 0.0], [1e300, -1e300, 0.0]):
        with np.errstate(all="ignore"):
            x, y = (planted(rng, s, values).astype(dtype) for s in shapes)
            program = ad.trace(lambda x, y: function(x, y) + x, x, y)
            (got,) = poisoned(Executable(program))(x, y)
            want = function(x, y) + x
        assert same_bits(got, want)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("zeros", [0, 1])
@pytest.mark.parametrize(
    "shapes",
    [((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((3, 4), (2, 4, 1)), ((2, 3, 4), (4, 5))],
)
def test_strong_matrix_products_are_those_of_the_interpreter(shapes, zeros, dtype):
    rng = np.random.default_rng(15)
    plants = [[0.0], [0.0, np.inf], [0.0, -np.inf], [0.0, np.inf, -np.inf], [0.0, np.nan, np.inf]]
    nonfinite = 0
    for values in [*plants, [0.0, 1e30]]:
        for turned in (False, True):
            x, y = (planted(rng, s, [0.0] if i == zeros else values) for i, s in enumerate(shapes))
            x, y = x.astype(dtype), y.astype(dtype)

            def f(x, y, turned=turned):
                z = ad.ops.strong_matmul(x, y, zeros=zeros)
                return np.swapaxes(z, -1, -2) if turned else z * 1.0

            program = ad.trace(f, x, y)
            with np.errstate(all="ignore"):
                (got,) = poisoned(Executable(program))(x, y)
                want = np.asarray(f(x, y))
            assert got.dtype == dtype
            np.testing.assert_allclose(got, want, rtol=1e-5 if dtype == np.float32 else 1e-13)
            assert not np.isnan(got).all()
            nonfinite += np.isinf(got).sum()
    assert nonfinite


def test_a_product_is_tested_by_one_read_and_mended_in_place():
    def loss(w, x):
        h = x @ w
        return np.sum(np.where(x[:, :2] > 0, np.log(h), h))

    rng = np.random.default_rng(16)
    w, x = rng.random((3, 2)), rng.normal(size=(4, 3))
    compiled = ad.compile(ad.grad(loss))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(compiled(w, x), ad.grad(loss)(w, x), rtol=1e-13)
    text = ad.render(compiled)
    assert "w_bar = dot(transpose_x, " in text
    assert "    if not vdot(w_bar, w_bar) < 1e38:\n        zeros_win_matmul(w_bar, " in text
    assert "else:" not in text
