"""Dot modes: errors as measured, passes told apart, bounds that hold, shapes of dot_general."""

import itertools
from typing import Any

import numpy as np
import pytest

from autodiff.errors import ShapeError
from autodiff.precision import (
    DOT_MODES,
    PRECISIONS,
    PrecisionError,
    check_dot_mode,
    dot_bound,
    dot_general,
    dot_unit,
    float_dtype,
    product,
    round_mantissa,
    round_to,
)

ROWS = ((1,), (0,))
SPLIT_MODES = ("bf16x3", "bf16x6", "bf16x9")


def gaussian(n: int = 256) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2024)
    a, b = rng.standard_normal((2, n, n))
    return round_to(a, "float32"), round_to(b, "float32")


def frobenius(mode: str, split: str = "rne", out: str = "float64") -> float:
    """Relative error of a 256 x 256 gaussian product."""
    a, b = gaussian()
    exact = a @ b
    error = dot_general(a, b, ROWS, mode=mode, split=split, out=out) - exact
    return float(np.linalg.norm(error) / np.linalg.norm(exact))


# Two-sided, and no two rows of one column overlap but where the modes differ in ties alone.
@pytest.mark.parametrize(
    ("mode", "split", "low", "high"),
    [
        ("ieee", "rne", 0, 1e-15),
        ("bf16x9", "rne", 1e-18, 1e-14),
        ("bf16x9", "rz", 1e-18, 1e-14),
        ("bf16x6", "rne", 5e-9, 7e-9),
        ("bf16x6", "rz", 5e-8, 7e-8),
        ("bf16x3", "rne", 3e-6, 6e-6),
        ("bf16x3", "rz", 1.1e-5, 1.6e-5),
        ("tf32", "rne", 2.7e-4, 3.2e-4),
        ("tf32_rne", "rne", 2.7e-4, 3.2e-4),
        ("f16", "rne", 2.7e-4, 3.2e-4),
        ("tf32_rz", "rne", 7e-4, 8.5e-4),
        ("bf16x1", "rne", 2.2e-3, 2.5e-3),
    ],
)
def test_error_of_a_product(mode: str, split: str, low: float, high: float) -> None:
    assert low <= frobenius(mode, split) <= high


def test_rounding_the_result_once_costs_what_float32_costs() -> None:
    for mode in ("ieee", "bf16x6", "bf16x9"):
        assert 2.3e-8 <= frobenius(mode, out="float32") <= 2.8e-8
    assert 1.5e-3 <= frobenius("ieee", out="bfloat16") <= 1.9e-3


def by_hand(mode: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The passes of a mode written out one by one."""

    def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        high = round_to(x, "bfloat16")
        mid = round_to(x - high, "bfloat16")
        return high, mid, round_to(x - high - mid, "bfloat16")

    (ah, am, al), (bh, bm, bl) = parts(a), parts(b)
    passes = {
        "bf16x1": [(ah, bh)],
        "bf16x3": [(am, bh), (ah, bm), (ah, bh)],
        "bf16x6": [(am, bm), (ah, bl), (al, bh), (ah, bm), (am, bh), (ah, bh)],
    }
    passes["bf16x9"] = [(am, bl), (al, bm), (al, bl), *passes["bf16x6"]]
    passes["f16"] = [(round_to(a, "float16"), round_to(b, "float16"))]
    for tf32, rounding in (("tf32", "rna"), ("tf32_rne", "rne"), ("tf32_rz", "rz")):
        passes[tf32] = [tuple(round_mantissa(x, 10, rounding).astype(float) for x in (a, b))]
    return sum((x @ y for x, y in passes[mode]), start=np.zeros((a.shape[0], b.shape[1])))


@pytest.mark.parametrize("mode", [m for m in DOT_MODES if m != "ieee"])
def test_modes_are_the_sum_of_their_passes(mode: str) -> None:
    a, b = (x[:40, :40] for x in gaussian())
    # Ties, where the three roundings of TF32 differ, and numbers that are subnormal in float16.
    a[:, 0] = round_mantissa(a[:, 0], 10, "rz") + 2.0**-11 * np.exp2(np.frexp(a[:, 0])[1] - 1)
    a[:, 1] *= 2.0**-20
    got = dot_general(a, b, ROWS, mode=mode, out="float64")
    np.testing.assert_allclose(got, by_hand(mode, a, b), rtol=0, atol=1e-13)
    others = [m for m in DOT_MODES if m not in (mode, "ieee")]
    assert all(np.abs(got - by_hand(m, a, b)).max() > 1e-10 for m in others)


def test_tf32_ties_go_away_from_zero() -> None:
    x = np.array([[1 + 2.0**-11]])
    one = np.ones((1, 1))
    values = {m: float(dot_general(x, one, ROWS, mode=m)[0, 0]) for m in DOT_MODES}
    assert values["tf32"] == 1 + 2.0**-10
    assert values["tf32_rne"] == values["tf32_rz"] == values["f16"] == 1
    assert values["bf16x1"] == 1
    assert values["bf16x3"] == values["ieee"] == 1 + 2.0**-11


def test_operands_are_rounded_to_float32_first() -> None:
    x = np.array([[1 + 2.0**-24 + 2.0**-40]])  # float32: 1 + 2^-23
    for mode in SPLIT_MODES:
        assert dot_general(x, np.ones((1, 1)), ROWS, mode=mode, out="float64") == 1 + 2.0**-23
    assert dot_general(x, np.ones((1, 1)), ROWS, out="float64") == x


@pytest.mark.parametrize("mode", DOT_MODES)
def test_infinities_and_nan(mode: str) -> None:
    a = np.array([[np.inf, 1.1], [np.nan, 1.1], [1.1, -np.inf], [0.3, 0.7], [np.inf, -np.inf]])
    b = np.array([[1.0], [1.0]])
    got = dot_general(a, b, ROWS, mode=mode)[:, 0]
    assert got[0] == np.inf and np.isnan(got[1]) and got[2] == -np.inf
    assert np.isfinite(got[3]) and np.isnan(got[4])
    assert np.isnan(dot_general([[np.inf]], [[0.0]], ROWS, mode=mode))


def test_overflow_of_operands_and_of_the_result() -> None:
    big = np.array([[7e4]])
    assert dot_general(big, [[1.0]], ROWS, mode="f16") == np.inf
    assert np.isfinite(dot_general(big, [[1.0]], ROWS, mode="tf32"))
    assert dot_general([[3e38]], [[3e38]], ROWS) == np.inf
    # The sum is rounded once, so that a finite result survives intermediate overflow.
    assert dot_general([[3e38, -3e38]], [[2.0], [1.0]], ROWS) == np.float32(3e38)


@pytest.mark.parametrize("mode", DOT_MODES)
@pytest.mark.parametrize("kind", ["gaussian", "uniform", "lognormal"])
@pytest.mark.parametrize("terms", [1, 3, 64, 512])
def test_the_bound_holds(mode: str, kind: str, terms: int) -> None:
    rng = np.random.default_rng(terms)
    draw = {
        "gaussian": rng.standard_normal,
        "uniform": rng.random,
        "lognormal": lambda size: np.exp(2 * rng.standard_normal(size)),
    }[kind]
    a, b = draw((2, 30, terms)), draw((2, terms, 40))
    a, b = round_to(a, "float32"), round_to(b, "float32")
    dims: Any = (((2,), (1,)), ((0,), (0,)))
    for split in ("rne", "rz") if mode in SPLIT_MODES else ("rne",):
        error = np.abs(dot_general(a, b, *dims, mode=mode, split=split) - a @ b)
        bound = dot_bound(a, b, *dims, mode=mode, split=split)
        assert bound.shape == error.shape and (error <= bound).all()
        if mode in ("tf32", "tf32_rne", "f16", "bf16x1"):
            # A bound that is never near the error says nothing.
            assert (error / bound).max() > 0.2


def test_truncation_needs_its_own_term() -> None:
    rng = np.random.default_rng(0)
    a, b = round_to(rng.random((30, 512)), "float32"), round_to(rng.random((512, 30)), "float32")
    error = np.abs(dot_general(a, b, ROWS, mode="tf32_rz") - a @ b)
    assert (error > dot_bound(a, b, ROWS, mode="tf32")).mean() > 0.9
    assert (error <= dot_bound(a, b, ROWS, mode="tf32_rz")).all()


def test_a_coarser_mode_breaks_the_bound_of_a_finer_one() -> None:
    a, b = (x[:64, :64] for x in gaussian())
    order = ["bf16x9", "bf16x3", "tf32", "bf16x1"]
    for fine, coarse in itertools.pairwise(order):
        error = np.abs(dot_general(a, b, ROWS, mode=coarse) - a @ b)
        assert (error > dot_bound(a, b, ROWS, mode=fine)).any()


def test_bound_with_underflow_and_overflow() -> None:
    a, b = np.full((1, 8), 1e-6), np.full((8, 1), 1.0)
    for mode, scale in (("f16", 1e-3), ("bf16x1", 2.0**-120), ("bf16x3", 2.0**-120)):
        x = round_to(a * scale, "float32")
        error = np.abs(dot_general(x, b, ROWS, mode=mode) - x @ b)
        assert error <= dot_bound(x, b, ROWS, mode=mode)
    assert dot_bound([[7e4]], [[1.0]], ROWS, mode="f16") == np.inf
    assert np.isfinite(dot_bound([[7e4]], [[1.0]], ROWS, mode="tf32"))
    assert dot_bound([[np.nan]], [[1.0]], ROWS) == np.inf
    assert dot_bound(np.zeros((2, 0)), np.zeros((0, 3)), ROWS, mode="tf32").shape == (2, 3)


@pytest.mark.parametrize("mode", DOT_MODES)
def test_complex_products(mode: str) -> None:
    rng = np.random.default_rng(9)
    a, b = rng.standard_normal((2, 12, 12)) + 1j * rng.standard_normal((2, 12, 12))
    a, b = round_to(a, "float32"), round_to(b, "float32")
    got = dot_general(a, b, ROWS, mode=mode, out="complex64")
    assert got.dtype == np.complex128
    error = np.maximum(np.abs((got - a @ b).real), np.abs((got - a @ b).imag))
    assert (error <= dot_bound(a, b, ROWS, mode=mode)).all()
    mixed = dot_general(a, b.real, ROWS, mode=mode)
    np.testing.assert_allclose(mixed.real, dot_general(a.real, b.real, ROWS, mode=mode), atol=1e-6)
    if mode == "bf16x1":
        real = dot_general(a.real, b.real, ROWS, mode=mode, out="float64")
        imag = dot_general(a.imag, b.imag, ROWS, mode=mode, out="float64")
        np.testing.assert_array_equal(got.real, round_to(real - imag, "float32"))


EINSUMS = [
    ("ij,jk->ik", ((1,), (0,)), ((), ())),
    ("ji,kj->ik", ((0,), (1,)), ((), ())),
    ("bij,bjk->bik", ((2,), (1,)), ((0,), (0,))),
    ("ibj,jbk->bik", ((2,), (0,)), ((1,), (1,))),
    ("bcij,cjkb->bcik", ((3,), (1,)), ((0, 1), (3, 0))),
    ("ijk,kjl->il", ((1, 2), (1, 0)), ((), ())),
    ("i,j->ij", ((), ()), ((), ())),
    ("i,i->", ((0,), (0,)), ((), ())),
    ("i,i->i", ((), ()), ((0,), (0,))),
    (",ij->ij", ((), ()), ((), ())),
    ("aibj,jdbi->bad", ((1, 3), (3, 0)), ((2,), (2,))),
]


@pytest.mark.parametrize(("equation", "contracting", "batch"), EINSUMS, ids=[e[0] for e in EINSUMS])
def test_dimension_numbers(equation: str, contracting: Any, batch: Any) -> None:
    size = dict(zip("abcdijkl", (2, 3, 4, 5, 6, 7, 8, 9), strict=True))
    rng = np.random.default_rng(6)
    a, b = (
        rng.standard_normal([size[c] for c in term]) for term in equation.split("->")[0].split(",")
    )
    expected = np.einsum(equation, a, b)
    got = dot_general(a, b, contracting, batch, out="float64")
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    assert dot_bound(a, b, contracting, batch, mode="tf32").shape == expected.shape


def test_negative_axes_and_stretched_batches() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((3, 4, 5)), rng.standard_normal((1, 5, 6))
    got = dot_general(a, b, ((-1,), (-2,)), ((0,), (0,)), out="float64")
    np.testing.assert_allclose(got, a @ b, rtol=1e-13)
    assert dot_bound(a, b, ((-1,), (-2,)), ((0,), (0,))).shape == (3, 4, 6)


@pytest.mark.parametrize("mode", DOT_MODES)
def test_empty_products(mode: str) -> None:
    np.testing.assert_array_equal(
        dot_general(np.zeros((2, 0)), np.zeros((0, 3)), ROWS, mode=mode), np.zeros((2, 3))
    )
    assert dot_general(np.zeros((0, 2)), np.zeros((2, 3)), ROWS, mode=mode).shape == (0, 3)


def test_inputs_are_left_alone() -> None:
    a, b = gaussian(8)
    kept = a.copy()
    a.flags.writeable = b.flags.writeable = False
    for mode in DOT_MODES:
        got = dot_general(a, b, ROWS, mode=mode)
        assert not np.shares_memory(got, a) and got.flags.writeable
    np.testing.assert_array_equal(a, kept)


def test_product_takes_any_bilinear_function() -> None:
    rng = np.random.default_rng(10)
    a, b = rng.standard_normal(20), rng.standard_normal(7)
    exact = np.convolve(a, b, mode="valid")
    errors = [
        np.abs(product(np.convolve, (a, b), {"mode": "valid"}, mode) - exact).max()
        for mode in ("bf16x1", "tf32", "bf16x3", "bf16x9", "ieee")
    ]
    assert errors == sorted(errors, reverse=True) and errors[0] > 1e-3 and errors[-1] == 0
    whole = product(np.matmul, (np.array([[2**24 + 1]]), np.array([[1]])), {}, "bf16x1")
    assert whole.dtype == np.int64 and whole[0, 0] == 2**24 + 1


def test_units() -> None:
    units = [dot_unit(m) for m in ("ieee", "bf16x6", "bf16x3", "tf32", "f16", "bf16x1")]
    assert units == [2.0**-24, 2.0**-24, 2.0**-16, 2.0**-11, 2.0**-11, 2.0**-8]
    assert dot_unit("bf16x3", "rz") > dot_unit("bf16x3")
    assert dot_unit("tf32", "rz") == dot_unit("tf32")


def test_precisions() -> None:
    assert [float_dtype(p).name for p in PRECISIONS] == list(PRECISIONS)
    with pytest.raises(PrecisionError, match="did you mean 'float32'"):
        float_dtype("float3")
    with pytest.raises(PrecisionError, match="allowed: float64, float32, bfloat16, float16"):
        float_dtype("int32")


def test_unknown_modes() -> None:
    with pytest.raises(PrecisionError) as caught:
        dot_general([[1.0]], [[1.0]], ROWS, mode="tf23")
    assert caught.value.nearest == "tf32" and caught.value.allowed == DOT_MODES
    assert str(caught.value).splitlines() == [
        "unknown dot mode: 'tf23'",
        f"allowed: {', '.join(DOT_MODES)}",
        "did you mean 'tf32'?",
    ]
    for call in (check_dot_mode, dot_unit):
        with pytest.raises(PrecisionError, match="did you mean 'bf16x3'"):
            call("bf16_x3")
        with pytest.raises(PrecisionError, match="unknown split: 'truncate'"):
            call("bf16x3", "truncate")
    with pytest.raises(PrecisionError, match="did you mean 'float32'"):
        dot_general([[1.0]], [[1.0]], ROWS, out="int32")


@pytest.mark.parametrize(
    ("shapes", "contracting", "batch", "message"),
    [
        (((2, 3), (4, 2)), ((1,), (0,)), ((), ()), r"contracted axes differ in size\n.*\(3,\)"),
        (((2, 3), (3, 2)), ((1,), ()), ((), ()), "contracted axes differ"),
        (((2, 3, 4), (3, 4, 5)), ((2,), (1,)), ((0,), (0,)), "batch axes differ in size"),
        (((2, 3, 4), (4, 5)), ((2,), (0,)), ((0,), ()), "batch axes differ in size"),
        (((2, 3), (3, 2)), ((2,), (0,)), ((), ()), r"axes \[2\] of a are out of range"),
        (((2, 2), (2, 2)), ((1,), (0,)), ((1,), (1,)), r"axes \[1, 1\] of a are out of range or"),
        (((2, 2), (2, 2)), ((1,), (-1,)), ((0,), (1,)), r"axes \[1, -1\] of b are out of range or"),
    ],
)
def test_axes_that_do_not_fit(shapes: Any, contracting: Any, batch: Any, message: str) -> None:
    a, b = (np.zeros(shape) for shape in shapes)
    with pytest.raises(ShapeError, match=message) as caught:
        dot_general(a, b, contracting, batch)
    assert len(str(caught.value).splitlines()) == 3


def test_a_product_takes_two_operands() -> None:
    with pytest.raises(ShapeError, match="takes two operands, not 3"):
        product(np.matmul, (np.eye(2),) * 3, {}, "tf32")
