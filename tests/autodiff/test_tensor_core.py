"""The tensor-core model against what follows from its definition, and against recorded GPUs."""

import dataclasses
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from autodiff.rounding import PrecisionError, round_mantissa, round_to
from autodiff.tensor_core import TENSOR_CORES, TensorCore, tensor_core_dot

UNITS = [(model, inputs) for model, table in TENSOR_CORES.items() for inputs in table]
# A checkout's model_validation folder of the data set of Khattak and Mikaitis (BSD-2-Clause).
RECORDED = os.environ.get("GRADSWEEP_TENSOR_CORE_DATA", "")


def test_the_table() -> None:
    blocks = {
        model: {inputs: (core.terms, core.guard) for inputs, core in table.items()}
        for model, table in TENSOR_CORES.items()
    }
    later = {"float16": (16, 2), "bfloat16": (16, 2), "tf32": (8, 2)}
    hopper = later | {"float8_e4m3fn": (32, -10), "float8_e5m2": (32, -10)}
    assert blocks == {
        "V100": {"float16": (4, 0)},
        "A100": {"float16": (8, 1), "bfloat16": (8, 1), "tf32": (4, 1)},
        "H100": hopper,
        "H200": hopper,
        "B200": later,
    }


def operands(inputs: str, shape: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.random.default_rng(seed).standard_normal((2, *shape))
    if inputs == "tf32":
        return tuple(round_mantissa(x, 10, "rz").astype(np.float64) for x in (a, b))
    return round_to(a, inputs), round_to(b, inputs)


def by_fractions(a: list[float], b: list[float], c: float, core: TensorCore, floor: int) -> float:
    """One block in rational arithmetic; float32 output."""

    def exponent(x: float, least: int) -> int:
        return max(int(np.frexp(x)[1]) - 1, least)

    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x and y]
    terms = [(Fraction(x) * Fraction(y), exponent(x, floor) + exponent(y, floor)) for x, y in pairs]
    terms += [(Fraction(c), exponent(c, -126))] if c else []
    if not terms:
        return 0.0
    unit = Fraction(2) ** (max(e for _, e in terms) - 23 - core.guard)
    total = sum(int(value / unit) for value, _ in terms) * unit  # int() truncates
    if not total:
        return 0.0
    size, least = abs(total), Fraction(2) ** -149
    spacing = least
    while size / spacing >= 2 ** (24 + min(core.guard, 0)):
        spacing *= 2
    kept = int(total / spacing) * spacing
    return float(kept) if abs(kept) < Fraction(2) ** 128 else float(np.copysign(np.inf, total))


@pytest.mark.parametrize(("model", "inputs"), UNITS)
def test_one_block_in_rational_arithmetic(model: str, inputs: str) -> None:
    core = TENSOR_CORES[model][inputs]
    floor = {"float16": -14, "float8_e4m3fn": -6, "float8_e5m2": -14}.get(inputs, -126)
    rng = np.random.default_rng(5)
    a, b = operands(inputs, (150, core.terms))
    # Wide exponents, zeros and subnormal factors.
    span = {"float16": 20, "float8_e4m3fn": 8, "float8_e5m2": 16}.get(inputs, 30)
    a = np.where(rng.random(a.shape) < 0.1, 0.0, a * np.exp2(-rng.integers(0, span, a.shape)))
    a = round_mantissa(a, 10, "rz").astype(float) if inputs == "tf32" else round_to(a, inputs)
    c = round_to(rng.standard_normal(150) * np.exp2(rng.integers(-12, 12, 150)), "float32")
    c[::3] = 0
    got = tensor_core_dot(a, b, c, model, inputs)
    expected = [
        by_fractions(list(x), list(y), z, core, floor) for x, y, z in zip(a, b, c, strict=True)
    ]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("model", "inputs"), UNITS)
def test_representable_sums_are_exact(model: str, inputs: str) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(-4, 5, (2, 200, 96)).astype(np.float64)
    c = rng.integers(-50, 50, 200).astype(np.float64)
    np.testing.assert_array_equal(tensor_core_dot(a, b, c, model, inputs), (a * b).sum(-1) + c)


@pytest.mark.parametrize(("model", "inputs"), UNITS)
def test_truncation_pulls_toward_zero(model: str, inputs: str) -> None:
    a, b = (np.abs(x) for x in operands(inputs, (2000, 64)))
    exact = (a * b).sum(-1)
    got = tensor_core_dot(a, b, 0.0, model, inputs)
    assert (got <= exact).all() and (got < exact).mean() > 0.5
    np.testing.assert_array_equal(tensor_core_dot(-a, b, 0.0, model, inputs), -got)
    error = (exact - got) / exact
    if TENSOR_CORES[model][inputs].guard >= 0:
        # Per block at most 2^-23 of the terms, whatever the number of blocks here.
        assert 1e-9 < error.mean() and error.max() < 64 * 2.0**-23


def test_products_below_the_kept_bits_vanish() -> None:
    # 2^k + n 2^j: each small product is cut below the last kept bit, whatever their sum.
    for model, last in (("V100", 23), ("A100", 24), ("H100", 25), ("B200", 25)):
        terms = TENSOR_CORES[model]["float16"].terms
        big, a = np.zeros(terms), np.full(terms, 2.0**-12)
        big[0], a[0] = 1.0, 1.0
        for bits in range(21, 28):
            b = np.full(terms, 2.0 ** (12 - bits))
            b[0] = 1.0
            got = float(tensor_core_dot(a, b, -1.0, model))
            assert got == ((terms - 1) * 2.0**-bits if bits <= last else 0.0)


def test_generations_differ_where_they_must() -> None:
    # Next to 2^24 the V100 cuts below 2, the A100 below 1, the later ones below 1/2; the sum of
    # what is left is truncated to a multiple of 2.
    a, b = np.array([[1.0, 1.0, 0.5, 0.5], [1.0, 0.5, 0.5, 0.0]]), np.ones(4)
    got = {model: tensor_core_dot(a, b, 2.0**24, model) - 2.0**24 for model in TENSOR_CORES}
    late = [2.0, 2.0]
    expected = {"V100": [0.0, 0.0], "A100": [2.0, 0.0], "H100": late, "H200": late, "B200": late}
    assert {model: list(rows) for model, rows in got.items()} == expected


def test_the_order_of_blocks_matters_and_that_within_one_does_not() -> None:
    a, b = operands("float16", (300, 64))
    rng = np.random.default_rng(3)
    inside = np.concatenate([16 * i + rng.permutation(16) for i in range(4)])
    got = tensor_core_dot(a, b)
    np.testing.assert_array_equal(got, tensor_core_dot(a[:, inside], b[:, inside]))
    across = rng.permutation(64)
    assert (got != tensor_core_dot(a[:, across], b[:, across])).any()


def test_error_per_block_of_the_guard_bits() -> None:
    # Of one sign, where what is cut from the terms adds up and shows beside the last truncation.
    a, b = (np.abs(x) for x in operands("float16", (4000, 16)))
    exact = (a * b).sum(-1)
    errors = {
        guard: (exact - tensor_core_dot(a, b, model=TensorCore(16, guard))) / exact
        for guard in (0, 1, 2, 12)
    }
    means = [error.mean() for error in errors.values()]
    assert means == sorted(means, reverse=True) and means[0] > 1.3 * means[-1]
    # 16 terms cut below 2^-25 of the largest, and the sum below its own 2^-23.
    assert errors[2].max() <= 16 * 2.0**-25 + 2.0**-23


def test_half_precision_output_rounds_to_nearest() -> None:
    # One block, so that only the last step differs from float32 output.
    a, b = operands("float16", (2000, 16))
    exact = (a * b).sum(-1)
    got = tensor_core_dot(a, b, out="float16")
    assert (got == round_to(got, "float16")).all()
    error = (got - exact) / exact
    assert np.abs(error).max() < 2.0**-10 and (error > 0).mean() > 0.4
    assert tensor_core_dot([256.0], [256.0], out="float16") == np.inf


def test_operands_are_rounded_to_the_input_format() -> None:
    x = [1 + 2.0**-11 + 2.0**-20]
    assert tensor_core_dot(x, [1.0]) == 1 + 2.0**-10
    assert tensor_core_dot(x, [1.0], inputs="tf32") == 1
    assert tensor_core_dot(x, [1.0], inputs="bfloat16") == 1


def test_subnormals_infinities_and_nan() -> None:
    assert tensor_core_dot([2.0**-24], [2.0**-24]) == 2.0**-48
    assert tensor_core_dot([2.0**-133], [2.0**-10], inputs="bfloat16") == 2.0**-143
    assert tensor_core_dot([0.0], [1.0], 2.0**-149) == 2.0**-149
    assert tensor_core_dot([np.inf, 1.0], [1.0, 1.0]) == np.inf
    assert np.isnan(tensor_core_dot([np.inf, -np.inf], [1.0, 1.0]))
    assert np.isnan(tensor_core_dot([np.inf], [0.0]))
    assert np.isnan(tensor_core_dot([1.0], [1.0], np.nan))
    assert tensor_core_dot([-1.0], [1.0], np.inf) == np.inf
    # The finite rows beside them are as ever.
    assert tensor_core_dot([[np.nan], [2.0]], [3.0])[1] == 6.0
    assert tensor_core_dot([2.0**127], [2.0], inputs="bfloat16") == np.inf


def test_shapes_broadcast() -> None:
    a, b = operands("float16", (5, 1, 24))
    got = tensor_core_dot(a, b[:, 0], np.zeros((2, 1, 1)))
    assert got.shape == (2, 5, 5) and got.flags.writeable
    np.testing.assert_array_equal(got[0], got[1])
    np.testing.assert_array_equal(np.diag(got[0]), tensor_core_dot(a[:, 0], b[:, 0]))
    assert tensor_core_dot(np.zeros((3, 0)), np.zeros((3, 0)), 2.5).tolist() == [2.5] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "H10"}, "unknown tensor core model: 'H10'(.|\n)*did you mean 'H100'"),
        ({"model": "V100", "inputs": "bfloat16"}, "V100 tensor core input: 'bfloat16'"),
        ({"inputs": "float32"}, "unknown H100 tensor core input: 'float32'"),
        ({"model": TensorCore(4, 0), "inputs": "f16"}, "unknown tensor core input: 'f16'"),
        ({"out": "bfloat16"}, "unknown tensor core output for float16: 'bfloat16'"),
        ({"inputs": "float8_e5m2", "out": "float16"}, "allowed: float32"),
    ],
)
def test_unknown_names(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(PrecisionError, match=message):
        tensor_core_dot([1.0], [1.0], **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("terms", "guard"), [(0, 0), (129, 0), (4, -24), (4, 17)])
def test_a_block_checks_itself(terms: int, guard: int) -> None:
    with pytest.raises(PrecisionError, match=r"number of (terms|guard) of a tensor core: "):
        TensorCore(terms, guard)


FILES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "tf32": "tf32",
    "float8_e4m3fn": "E4M3",
    "float8_e5m2": "E5M2",
}


def read(folder: Path, letter: str, model: str, name: str, base: int) -> np.ndarray:
    words = (folder / f"{letter}_{model}_{name}.txt").read_text().split()
    return np.array([int(word, base) for word in words], np.uint32).view(np.float32)


@pytest.mark.skipif(not RECORDED, reason="GRADSWEEP_TENSOR_CORE_DATA names no data set")
@pytest.mark.parametrize(("model", "inputs"), UNITS if RECORDED else UNITS[:1])
def test_recorded_outputs_bit_for_bit(model: str, inputs: str) -> None:
    name, core = FILES[inputs], TENSOR_CORES[model][inputs]
    folder = Path(RECORDED) / model / name
    d = read(folder, "d", model, "fp32", 2)
    a, b = (read(folder, letter, model, name, 16).reshape(len(d), -1) for letter in "ab")
    # The 8-bit products of the H100 and H200 were recorded without an accumulator.
    c = np.zeros(len(d)) if inputs.startswith("float8") else read(folder, "c", model, "fp32", 2)
    np.testing.assert_array_equal(tensor_core_dot(a, b, c, model, inputs), d)
    other = dataclasses.replace(core, guard=core.guard + 1)
    assert (tensor_core_dot(a, b, c, other, inputs) != d).mean() > 0.02
    if inputs == "float16":
        d = read(folder, "d", model, "fp16", 2)
        np.testing.assert_array_equal(tensor_core_dot(a, b, c, model, inputs, "float16"), d)
