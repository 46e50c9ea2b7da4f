"""Native evaluation: replayed programs, ownership of results, narrow floats, warnings."""

import copy
import pickle
import warnings

import ml_dtypes
import numpy as np
import pytest

import autodiff as ad
from autodiff import native
from autodiff.interpret import run
from autodiff.native import evaluate_native, quiet, replay
from autodiff.op import get
from autodiff.program import Program, Spec


def _point(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=shape)


def test_specs_of_one_shape_and_dtype_are_one_object() -> None:
    spec = Spec((2, 3), np.dtype(np.float32))
    assert Spec([2, np.int64(3)], "float32") is spec  # type: ignore[arg-type]
    assert Spec((2.0, 3), np.float32) is spec  # type: ignore[arg-type]
    assert [type(n) for n in spec.shape] == [int, int]
    assert pickle.loads(pickle.dumps(spec)) is spec
    assert copy.deepcopy(spec) is spec and copy.copy(spec) is spec
    assert Spec((2, 3), np.float64) != spec and Spec((2,), np.float32) != spec
    assert Spec((2,), ml_dtypes.bfloat16) != Spec((2,), np.float16)
    with pytest.raises(AttributeError):
        spec.shape = (1,)  # type: ignore[misc]


def test_equal_programs_hash_alike_and_travel() -> None:
    def f(x: np.ndarray) -> np.ndarray:
        return np.sum(np.exp(x) * 2.0)

    first, second = ad.trace(f, _point(3)), ad.trace(f, _point(3))
    assert first == second and hash(first) == hash(second)
    run(first, (_point(3),))  # what is kept with a program does not travel
    assert set(first.__getstate__()) == {f.name for f in Program.__dataclass_fields__.values()}


def test_a_replay_gives_what_the_ops_give() -> None:
    def f(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
        q, r = np.linalg.qr(x)
        parts = np.split(y, 2)
        return ad.ops.softmax(x @ y), q @ r, parts[0] + parts[1], x > 0

    x, y = _point(4, 4), _point(4, 3)
    program = ad.trace(f, x, y)
    found = replay(program)([x, y])
    for got, want in zip(found, f(x, y), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-14)
    assert replay(program) is replay(program)


def test_results_share_no_memory() -> None:
    constant = np.arange(3.0)

    def f(x: np.ndarray) -> tuple[np.ndarray, ...]:
        stopped = ad.stop_gradient(x)
        return x, np.reshape(x, (3, 1)), x.T, stopped, np.asarray(constant), x + 1, x + 1

    x = _point(3)
    found = run(ad.trace(f, x), (x,))
    for i, a in enumerate(found):
        assert a.flags.writeable and not np.may_share_memory(a, x)
        assert not any(np.may_share_memory(a, b) for b in found[i + 1 :])
    before = [a.copy() for a in found]
    found[0][:] = 9.0
    for a, b in zip(found[1:], before[1:], strict=True):
        np.testing.assert_array_equal(a, b)
    again = run(ad.trace(f, x), (x,))
    np.testing.assert_array_equal(again[4], constant)


def test_one_equation_twice_among_the_results() -> None:
    program = ad.trace(lambda x: [np.exp(x)] * 2, _point(3))
    first, second = run(program, (_point(3),))
    assert not np.may_share_memory(first, second)


def test_arrays_of_other_shapes_go_op_by_op() -> None:
    program = ad.trace(np.exp, _point(3))
    assert not replay(program).takes([_point(4)])
    assert not replay(program).takes([_point(3).astype(np.float32)])
    (narrow,) = run(program, (_point(3).astype(np.float32),))
    assert narrow.dtype == np.float32


def test_narrow_floats_are_computed_in_float32() -> None:
    x = _point(64).astype(ml_dtypes.bfloat16)
    program = ad.trace(lambda v: ad.ops.mul(ad.ops.exp(v), v), x)
    (got,) = run(program, (x,))
    inner = np.exp(x.astype(np.float32)).astype(ml_dtypes.bfloat16)
    want = (inner.astype(np.float32) * x.astype(np.float32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(got, want)


def test_loops_and_guards_are_replayed() -> None:
    def f(x: np.ndarray) -> np.ndarray:
        total, _ = ad.scan(lambda c, v: (c * 0.5 + v, c), np.zeros(2), x)
        return total if total[0] > -1e9 else -total

    x = _point(5, 2)
    program = ad.trace(f, x)
    want = np.zeros(2)
    for row in x:
        want = want * 0.5 + row
    np.testing.assert_allclose(run(program, (x,))[0], want, rtol=1e-14)
    with pytest.raises(ad.errors.GuardError):
        run(program, (np.full((5, 2), -1e12),))


def test_no_warning_leaves_a_pass_and_the_switch_is_restored() -> None:
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        ad.grad(lambda x: np.sum(np.log(x)))(np.array([0.0, -1.0]))
        with quiet(), quiet():
            assert np.geterr()["divide"] == "ignore"
        assert np.geterr()["divide"] == "raise"
    assert not native._is_quiet.get()


def test_the_switch_is_restored_after_an_error() -> None:
    with np.errstate(all="raise"):
        with pytest.raises(ValueError, match="inside"), quiet():
            raise ValueError("inside")
        assert np.geterr()["divide"] == "raise" and not native._is_quiet.get()


def test_an_op_that_returns_its_operand_returns_a_copy() -> None:
    x = _point(3)
    got = evaluate_native(get("RESHAPE"), [x], {"shape": (3,)})
    assert not np.may_share_memory(got, x)


def test_spec_rules_tell_equal_parameters_of_unlike_type_apart() -> None:
    seen: list[object] = []
    op = ad.op.Op(
        "SPEC_PROBE",
        lambda x, *, k: seen.append(k) or x,
        impl=lambda x, *, k: x,
        batch=lambda size, args, batched, *, k: (args[0], True),
        jax="jnp.abs",
    )
    spec = Spec((2,), np.float64)
    for k in (1, 1, True, 1.0, 1):
        op.out_specs((spec,), {"k": k})
    assert [type(k) for k in seen] == [int, bool, float]


def test_one_pass_of_simplification_leaves_nothing_for_another() -> None:
    from autodiff.simplify import simplify

    def f(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        unused = np.exp(x) * y
        del unused
        left, right = np.sin(x) * y, np.sin(x) * y
        return np.sum(left + 1.0) * np.sum(right + 1.0) + np.cos(left - right)

    traced = ad.trace(f, _point(3), _point(3))
    once = simplify(traced)
    assert [eq.op.kind for eq in once.equations] == [
        "SIN", "MUL", "ADD", "SUM", "MUL", "SUB", "COS", "ADD",
    ]  # fmt: skip
    assert len(simplify(once).equations) == len(once.equations)
    x, y = _point(3), _point(3) + 1.0
    np.testing.assert_array_equal(run(once, (x, y))[0], run(traced, (x, y))[0])


@pytest.mark.parametrize("reduce", [np.sum, np.prod, np.max, np.min])
@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
def test_replayed_reductions_are_those_of_numpy(reduce, axis) -> None:  # type: ignore[no-untyped-def]
    x = _point(3, 4, 5)
    again = replay(ad.trace(lambda v: reduce(v, axis=axis), x))
    (found,) = again([x])
    assert found.dtype == x.dtype and found.tobytes() == np.asarray(reduce(x, axis=axis)).tobytes()


def test_equations_share_no_parameters_with_the_one_who_gave_them() -> None:
    from autodiff.program import Equation, Var

    x, given = Var(Spec((3,), np.float64)), {"axis": (0,), "keepdims": False}
    eq = Equation(get("SUM"), (x,), given, (Var(Spec((), np.float64)),), "here.py:1 in f")
    given["axis"] = (1,)
    assert eq.params["axis"] == (0,) and eq.source == "here.py:1 in f"
    with pytest.raises(AttributeError):
        eq.source = None  # type: ignore[misc]
    with pytest.raises(TypeError):
        eq.params["axis"] = (1,)  # type: ignore[index]
