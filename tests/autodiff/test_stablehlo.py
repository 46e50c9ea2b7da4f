"""StableHLO text: emitted, verified, interpreted and compiled."""

import ml_dtypes
import numpy as np
import pytest

import autodiff as ad
from autodiff.errors import ShapeError
from autodiff.trace import bind

pytest.importorskip("jax")

from autodiff.lower import mlir
from autodiff.lower.child import Child, ChildError
from autodiff.lower.stablehlo import (
    INTERPRETED,
    StableHLOError,
    UnsupportedError,
    compile_stablehlo,
    element_types,
    eval_stablehlo,
    lower_stablehlo,
    verify_stablehlo,
)

X = np.array([0.5, -1.25, 2.0])


def several(x):
    return np.exp(x) * np.float64(0.1) + 1, np.sum(x * x), x > 0


def identity(kind):
    return f"module {{ func.func public @main(%a: {kind}) -> {kind} {{ return %a : {kind} }} }}"


def test_no_call_of_the_bindings_is_missing():
    assert mlir.missing_calls() == ()


def test_a_missing_call_is_named(monkeypatch):
    monkeypatch.setattr(mlir, "CALLS", (*mlir.CALLS, "jaxlib.mlir.ir.Module.parse_slowly"))
    assert mlir.missing_calls() == ("jaxlib.mlir.ir.Module.parse_slowly",)
    with pytest.raises(
        mlir.MissingCallError, match="(?s)has no jaxlib.mlir.ir.Module.parse_slowly"
    ):
        raise mlir.MissingCallError(mlir.missing_calls())


@pytest.mark.parametrize(
    ("precision", "types", "rtol"),
    [("float64", {"f64"}, 1e-15), ("float32", {"f32"}, 1e-6)],
)
def test_text_is_verified_typed_and_runs_three_ways(precision, types, rtol):
    program = ad.trace(several, X)
    text = lower_stablehlo(program, precision=precision)
    verify_stablehlo(text)
    assert element_types(text) == types
    x = X.astype(precision)
    want = ad.interpret(program, X, precision=precision)
    for results in (
        eval_stablehlo(text, [x]),
        eval_stablehlo(text, [x], isolated=True),
        compile_stablehlo(text)(x),
    ):
        for got, expected in zip(results, want, strict=True):
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(got, expected, rtol=rtol)


def test_an_unused_input_stays_an_argument():
    text = lower_stablehlo(ad.trace(lambda x, y: x * 2, X, X))
    assert "%arg1: tensor<3xf64>" in text
    np.testing.assert_array_equal(eval_stablehlo(text, [X, X])[0], 2 * X)


def test_constants_are_exact():
    values = np.array([0.1, 1 / 3, 5e-324, -0.0, np.inf, 1.7976931348623157e308])
    table = np.sin(np.arange(5000.0))
    program = ad.trace(lambda x: (bind("ADD", x, values), x[0] + table), np.zeros(6))
    small, large = eval_stablehlo(lower_stablehlo(program), [np.zeros(6)])
    np.testing.assert_array_equal(small, values)
    np.testing.assert_array_equal(large, table)


def test_guards_are_left_out_and_the_other_branch_is_not_taken():
    def f(x):
        return np.exp(x) if np.sum(x) > 0 else x

    text = lower_stablehlo(ad.trace(f, X))
    np.testing.assert_allclose(eval_stablehlo(text, [-X])[0], np.exp(-X))


# --- verification --------------------------------------------------------------------------


def test_an_unknown_op_is_named_with_its_place():
    text = lower_stablehlo(ad.trace(np.exp, X)).replace("exponential", "exponentiall")
    pattern = r"(?s)custom op 'stablehlo.exponentiall' is unknown\nat 3:10: `%0 = stablehlo.expo"
    with pytest.raises(StableHLOError, match=pattern) as caught:
        verify_stablehlo(text)
    assert (caught.value.data["line"], caught.value.data["column"]) == (3, 10)


def test_a_type_error_carries_the_note_of_the_first_use():
    text = lower_stablehlo(ad.trace(np.exp, X)).replace("return %0", "return %arg0", 1)
    verify_stablehlo(text)
    wrong = text.replace("exponential %arg0 : tensor<3xf64>", "exponential %arg0 : tensor<2xf64>")
    with pytest.raises(StableHLOError, match=r"(?s)different type.*prior use here at 2:"):
        verify_stablehlo(wrong)


def test_a_module_without_main_is_an_error():
    with pytest.raises(StableHLOError, match="no function @main"):
        eval_stablehlo(identity("tensor<f32>").replace("@main", "@other"), [np.float32(1)])


def test_element_types_count_tensors_alone():
    assert element_types("tensor<2x3xcomplex<f32>> tensor<bf16> tensor<4xi64> f64") == {
        "f32",
        "bf16",
    }
    assert element_types("tensor<?x2xf8E4M3FN>, tensor<f64>") == {"f8E4M3FN", "f64"}


def test_functions_list_ops_and_types_of_their_callees():
    text = """module {
      func.func public @main(%a: tensor<f32>) -> tensor<f32> {
        %0 = call @outer(%a) : (tensor<f32>) -> tensor<f32>
        return %0 : tensor<f32>
      }
      func.func private @outer(%a: tensor<f32>) -> tensor<f32> {
        %0 = call @inner(%a) : (tensor<f32>) -> tensor<f32>
        return %0 : tensor<f32>
      }
      func.func private @inner(%a: tensor<f32>) -> tensor<f32> {
        %0 = stablehlo.convert %a : (tensor<f32>) -> tensor<bf16>
        %1 = stablehlo.convert %0 : (tensor<bf16>) -> tensor<f32>
        return %1 : tensor<f32>
      }
    }"""
    found = mlir.functions(mlir.parse(text))
    assert set(found) == {"main", "outer", "inner"}
    assert found["outer"].types == {"f32", "bf16"}
    assert "stablehlo.convert" in found["main"].ops <= INTERPRETED
    assert found["outer"].called == ("inner", "outer")


def test_functions_are_called_in_any_order_and_number():
    program = ad.trace(lambda x, y: (x - y, np.argmax(x), x + 1j), X, X)
    found = mlir.functions(mlir.parse(lower_stablehlo(program).replace("@main", "@case0")))
    text = mlir.calling(found, ["case0", "case0"])
    assert mlir.result_count(found["case0"]) == 3
    results = eval_stablehlo(text, [X, X[:1].repeat(3), X, X])
    np.testing.assert_array_equal(results[0], X - X[0])
    np.testing.assert_array_equal(results[3], X - X)
    assert results[1] == results[4] == 2 and results[2].dtype == np.complex128
    with pytest.raises(KeyError):
        mlir.calling(found, ["case1"])


# --- the reference interpreter -------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("tensor<3xi1>", np.array([True, False, True])),
        ("tensor<i1>", np.array(True)),
        ("tensor<0x3xf32>", np.zeros((0, 3), np.float32)),
        ("tensor<f64>", np.array(2.5)),
        ("tensor<2x2xf64>", np.full((2, 2), 3.0)),
        ("tensor<2xi8>", np.array([1, -3], np.int8)),
        ("tensor<2xui32>", np.array([1, 2**32 - 1], np.uint32)),
        ("tensor<2xui8>", np.array([1, 200], np.uint8)),
        ("tensor<2xf16>", np.array([1.5, -3], np.float16)),
        ("tensor<2xbf16>", np.array([1.5, -3], ml_dtypes.bfloat16)),
        ("tensor<2xf8E4M3FN>", np.array([1.5, -3], ml_dtypes.float8_e4m3fn)),
        ("tensor<2xf8E5M2>", np.array([1.5, -3], ml_dtypes.float8_e5m2)),
        ("tensor<2xcomplex<f32>>", np.array([1 + 2j, -3], np.complex64)),
        ("tensor<2xcomplex<f64>>", np.array([1 + 2j, -3], np.complex128)),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_every_type_goes_in_and_out(kind, value):
    (got,) = eval_stablehlo(identity(kind), [value])
    assert got.dtype == value.dtype and got.shape == value.shape
    np.testing.assert_array_equal(got, value)


def test_subnormals_are_kept():
    text = lower_stablehlo(ad.trace(lambda x: x * 0.5, np.ones(1)))
    assert eval_stablehlo(text, [np.array([1e-320])])[0] == np.array([1e-320]) * 0.5


def test_chlo_operations_are_rewritten():
    text = lower_stablehlo(ad.trace(ad.ops.erf, X))
    assert "chlo.erf" in text
    import scipy.special

    np.testing.assert_allclose(eval_stablehlo(text, [X])[0], scipy.special.erf(X), rtol=1e-14)


def test_arguments_of_other_types_are_refused_before_they_reach_it():
    text = lower_stablehlo(ad.trace(np.exp, X), precision="float32")
    with pytest.raises(ShapeError, match=r"takes \(tensor<3xf32>\)\ngot \(tensor<3xf64>\)"):
        eval_stablehlo(text, [X])


def test_library_calls_are_unsupported_and_named():
    text = lower_stablehlo(ad.trace(np.linalg.cholesky, np.eye(2)))
    with pytest.raises(
        UnsupportedError, match="(?s)stablehlo.custom_call.*lapack_dpotrf"
    ) as caught:
        eval_stablehlo(text, [np.eye(2)])
    assert "stablehlo.custom_call" in caught.value.data["ops"]
    np.testing.assert_allclose(compile_stablehlo(text)(np.eye(2))[0], np.eye(2))


ABORTING = """module {
  func.func public @main(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {
    %0 = stablehlo.cholesky %a, lower = true : tensor<2x2xf32>
    return %0 : tensor<2x2xf32>
  }
}"""


def test_an_op_that_aborts_ends_a_child_alone():
    assert "stablehlo.cholesky" not in INTERPRETED
    with pytest.raises(UnsupportedError, match="(?s)stablehlo.cholesky.*ended with -6"):
        eval_stablehlo(ABORTING, [np.eye(2, dtype=np.float32)])
    # the next module finds another child
    text = identity("tensor<2xf32>")
    got = eval_stablehlo(text, [np.ones(2, np.float32)], isolated=True)[0]
    np.testing.assert_array_equal(got, np.ones(2))


def test_a_child_that_takes_too_long_is_ended():
    forever = """module {
      func.func public @main(%a: tensor<f32>) -> tensor<f32> {
        %0 = stablehlo.while(%i = %a) : tensor<f32>
          cond {
            %t = stablehlo.constant dense<true> : tensor<i1>
            stablehlo.return %t : tensor<i1>
          } do {
            stablehlo.return %i : tensor<f32>
          }
        return %0 : tensor<f32>
      }
    }"""
    child = Child()
    try:
        child.run(identity("tensor<f32>"), [np.ones((), np.float32)], 120)  # it starts slowly
        with pytest.raises(ChildError, match="no result after 0.2 s"):
            child.run(forever, [np.ones((), np.float32)], 0.2)
        assert child.process is None
    finally:
        child.stop()


# --- compilation ---------------------------------------------------------------------------


def test_strict_precision_keeps_a_narrowing_conversion():
    program = ad.trace(lambda x: x.astype("bfloat16").astype(np.float32), X.astype(np.float32))
    text = lower_stablehlo(program)
    x = np.array([1 + 2.0**-10, 0.1, 3.3], np.float32)
    (got,) = compile_stablehlo(text, strict_precision=True)(x)
    np.testing.assert_array_equal(got, x.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_an_invalid_text_is_not_compiled():
    with pytest.raises(StableHLOError):
        compile_stablehlo("module { func.func @main( }")
