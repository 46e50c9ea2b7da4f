"""Rounding against exact rational arithmetic over every value of the narrow formats."""

import bisect
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from autodiff.rounding import (
    DTYPES,
    FLOATS,
    FORMATS,
    PrecisionError,
    cast,
    float_format,
    round_mantissa,
    round_to,
    unit_roundoff,
)

NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def finite_values(name: str) -> list[float]:
    """Nonnegative finite values of a format, in the order of their bit patterns."""
    dtype = np.dtype(name)
    patterns = np.arange(2 ** (8 * dtype.itemsize - 1), dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = patterns.view(dtype).astype(np.float64)
    return [float(v) for v in values if np.isfinite(v)]


def nearest(x: float, values: list[float], overflow: float) -> float:
    """The exact rounding of x >= 0; on a tie, the neighbour with the even bit pattern."""
    if x > values[-1]:
        # As if the format went on: half a spacing past the end is a tie between odd end and even.
        step = Fraction(values[-1]) - Fraction(values[-2])
        excess, odd = Fraction(x) - Fraction(values[-1]), (len(values) - 1) % 2 == 1
        return overflow if 2 * excess > step or (2 * excess == step and odd) else values[-1]
    high = bisect.bisect_left(values, x)
    low = max(high - 1, 0)
    below, above = Fraction(x) - Fraction(values[low]), Fraction(values[high]) - Fraction(x)
    if below == above:
        return values[low] if low % 2 == 0 else values[high]
    return values[low] if below < above else values[high]


def samples(values: list[float], rng: np.random.Generator) -> np.ndarray:
    """Values, midpoints, their float64 neighbours, and random numbers of every magnitude."""
    array = np.array(values)
    pick = np.unique(
        np.r_[0:40, rng.integers(0, len(array) - 1, 300), len(array) - 20 : len(array)]
    )
    chosen = array[pick]
    middle = (array[pick[:-1]] + array[pick[:-1] + 1]) / 2
    end = array[-1] + (array[-1] - array[-2]) * np.array([0.25, 0.5, 0.75, 2.0])
    exact = np.concatenate([chosen, middle, end])
    wild = np.exp2(rng.uniform(np.log2(array[1]) - 3, np.log2(array[-1]) + 1, 300))
    with np.errstate(under="ignore"):
        return np.concatenate(
            [exact, np.nextafter(exact, np.inf), np.nextafter(exact, 0), wild, [5e-324, 1e300]]
        )


@pytest.mark.parametrize("name", NARROW)
def test_round_to_is_the_exact_rounding(name: str) -> None:
    values = finite_values(name)
    x = samples(values, np.random.default_rng(7))
    expected = np.array([nearest(float(v), values, FORMATS[name].overflow) for v in x])
    np.testing.assert_array_equal(round_to(x, name), expected)
    np.testing.assert_array_equal(round_to(-x, name), -expected)
    np.testing.assert_array_equal(cast(x, name).astype(np.float64), expected)


@pytest.mark.parametrize("name", FLOATS)
def test_values_of_a_format_are_kept(name: str) -> None:
    rng = np.random.default_rng(1)
    dtype = np.dtype(name)
    bits = rng.integers(0, 256, (4000, dtype.itemsize), dtype=np.uint8)
    with np.errstate(invalid="ignore"):
        x = bits.view(dtype)[:, 0].astype(np.float64)
    np.testing.assert_array_equal(round_to(x, name), x)


def test_bfloat16_is_rounded_once() -> None:
    # 1 + 2^-8 + 2^-40 is above the middle of 1 and 1 + 2^-7; its float32 is the middle, a tie.
    x = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 3 * 2.0**-8 - 2.0**-40])
    twice = x.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)
    np.testing.assert_array_equal(round_to(x, "bfloat16"), [1 + 2.0**-7, 1 + 2.0**-7])
    np.testing.assert_array_equal(twice, [1, 1 + 2.0**-6])


@pytest.mark.parametrize("name", FLOATS)
def test_special_values(name: str) -> None:
    x = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, -5e-324])
    y = round_to(x, name)
    assert not y[:2].any() and list(np.signbit(y[:2])) == [False, True]
    assert np.isnan(y[2])
    if name == "float8_e4m3fn":
        assert np.isnan(y[3:5]).all() and np.isnan(cast([1e9], name).astype(float)).all()
    else:
        np.testing.assert_array_equal(y[3:5], [np.inf, -np.inf])
    assert np.signbit(y[5])


@pytest.mark.parametrize("name", NARROW)
def test_ml_dtypes_agrees_from_float32(name: str) -> None:
    # From float32 ml_dtypes rounds once, and so is a second opinion.
    rng = np.random.default_rng(3)
    x = rng.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        expected = x.astype(np.dtype(name)).astype(np.float64)
    np.testing.assert_array_equal(round_to(x, name), expected)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 3)])
def test_shapes_and_complex(name: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).standard_normal(shape)
    real, both = round_to(x, name), round_to(x + 1j * np.pi, name)
    assert isinstance(real, np.ndarray) and real.shape == both.shape == shape
    assert real.dtype == np.float64 and both.dtype == np.complex128
    np.testing.assert_array_equal(both.real, real)
    np.testing.assert_array_equal(both.imag, np.full(shape, round_to(np.pi, name)))


def test_strided_and_read_only_input() -> None:
    x = np.linspace(-1, 1, 11)[::-2]
    x.flags.writeable = False
    for name in FLOATS:
        np.testing.assert_array_equal(round_to(x, name), round_to(x.copy(), name))
        assert not np.shares_memory(cast(x, name), x)
    assert round_to(x, "float64") is x


def test_complex_dtypes_stand_for_their_parts() -> None:
    z = np.array([0.1 + 0.2j])
    assert round_to(z, "complex64")[0] == complex(np.float32(0.1), np.float32(0.2))
    assert round_to(0.1, "complex64") == np.float32(0.1)
    assert cast(0.1, "complex64").dtype == np.complex64
    assert float_format("complex64") is FORMATS["float32"]


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_are_rounded_once(dtype: str) -> None:
    rng = np.random.default_rng(5)
    wide = rng.integers(0, 2**63, 3000, dtype=np.int64).astype(dtype) >> rng.integers(
        0, 60, 3000
    ).astype(dtype)
    # Above the middle of two float32 by so little that a float64 in between would make it a tie.
    tie = 2**62 + 2**38
    near = [tie, tie + 1, tie - 1, tie + 1023]  # of float64's neighbours of the last, one is odd
    n = np.concatenate([wide, np.array([0, 1, *near], dtype)])
    np.testing.assert_array_equal(round_to(n, "float64"), n.astype(np.float64))
    signs = (1, -1) if dtype == "int64" else (1,)
    for sign in signs:
        signed = n * np.array(sign, dtype)
        np.testing.assert_array_equal(round_to(signed, "float32"), signed.astype(np.float32))
        np.testing.assert_array_equal(
            round_to(signed[-4:], "float32"), sign * (2.0**62 + np.array([0, 2.0**39, 0, 2.0**39]))
        )
    # 257 + tiny: bfloat16 has spacing 2 there, and float64 would drop the tiny part.
    big = np.array([(2**8 + 1) * 2**54 + 1], dtype)
    assert round_to(big, "bfloat16")[0] == (2**8 + 2) * 2.0**54


def test_cast_to_integers_truncates_and_saturates() -> None:
    x = [1.9, -1.9, -0.5, np.nan, np.inf, -np.inf, 1e300, 2.0**63, -(2.0**63)]
    np.testing.assert_array_equal(
        cast(x, "int64"),
        [1, -1, 0, 0, 2**63 - 1, -(2**63), 2**63 - 1, 2**63 - 1, -(2**63)],
    )
    np.testing.assert_array_equal(
        cast(x, "uint8"), np.array([1, 0, 0, 0, 255, 0, 255, 255, 0], np.uint8)
    )
    assert cast(x, "uint8").dtype == np.uint8
    np.testing.assert_array_equal(cast([300, -1], "uint8"), np.array([44, 255], np.uint8))
    np.testing.assert_array_equal(cast([127.9, 128.0, -128.9], "int8"), [127, 127, -128])
    assert cast(np.float32(7.5), "int32").shape == ()


def test_cast_to_bool_and_same_dtype() -> None:
    np.testing.assert_array_equal(cast([0.0, -0.0, np.nan, 2], "bool"), [False, False, True, True])
    np.testing.assert_array_equal(cast([1j, 0], "bool"), [True, False])
    np.testing.assert_array_equal(cast([True, False], "int8"), [1, 0])
    x = np.arange(3, dtype=np.int32)
    assert not np.shares_memory(cast(x, "int32"), x)
    for name in DTYPES:
        assert cast([1, 0], name).dtype == np.dtype(name)
        assert cast(cast([1, 0], name), "complex128").tolist() == [1, 0]


TF32_HALF = 2.0**-11


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("rne", [1.0, 1 + 2 * 2.0**-10]),
        ("rna", [1 + 2.0**-10, 1 + 2 * 2.0**-10]),
        ("rz", [1.0, 1 + 2.0**-10]),
    ],
)
def test_ties_of_tf32(mode: str, expected: list[float]) -> None:
    x = np.array([1 + TF32_HALF, 1 + 3 * TF32_HALF], np.float32)
    np.testing.assert_array_equal(round_mantissa(x, 10, mode), np.array(expected, np.float32))
    np.testing.assert_array_equal(round_mantissa(-x, 10, mode), -np.array(expected, np.float32))


def test_round_mantissa_to_seven_bits_is_bfloat16() -> None:
    x = np.random.default_rng(4).integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    np.testing.assert_array_equal(
        round_mantissa(x, 7, "rne").astype(np.float64), round_to(x, "bfloat16")
    )


@pytest.mark.parametrize("keep", [0, 1, 10, 22, 23])
def test_round_mantissa_against_arithmetic(keep: int) -> None:
    rng = np.random.default_rng(keep)
    x = rng.integers(0, 2**32, 5000, dtype=np.uint32).view(np.float32)
    x = x[np.isfinite(x)].astype(np.float64)
    exponent = np.maximum(np.frexp(x)[1] - 1, -126)
    units = np.ldexp(x, keep - exponent)
    away = np.copysign(np.floor(np.abs(units) + 0.5), units)
    for mode, whole in (("rz", np.trunc(units)), ("rne", np.rint(units)), ("rna", away)):
        with np.errstate(over="ignore"):
            expected = np.ldexp(whole, exponent - keep).astype(np.float32)
        np.testing.assert_array_equal(round_mantissa(x, keep, mode), expected)


def test_round_mantissa_leaves_nan_and_infinities() -> None:
    # Rounding up the largest payload would carry into the sign, cutting the lowest give infinity.
    bits = [0x7F800001, 0x7FFFFFFF, 0x7F800000, 0xFF800000]
    x = np.array(bits, np.uint32).view(np.float32)
    for mode in ("rne", "rna", "rz"):
        y = round_mantissa(x, 10, mode)
        assert np.isnan(y[:2]).all() and y[2] == np.inf and y[3] == -np.inf
    top = np.array([np.finfo(np.float32).max])
    assert round_mantissa(top, 10, "rna")[0] == np.inf
    assert round_mantissa(top, 10, "rz")[0] < np.inf


@pytest.mark.parametrize("name", FLOATS)
def test_the_table_of_formats(name: str) -> None:
    info, form = ml_dtypes.finfo(np.dtype(name)), FORMATS[name]
    assert (form.mantissa, form.min_exponent) == (info.nmant, info.minexp)
    assert (form.largest, form.tiny) == (float(info.max), float(info.tiny))
    assert form.quantum == float(info.smallest_subnormal)
    assert 2.0**form.max_exponent <= form.largest < 2 * 2.0**form.max_exponent
    assert unit_roundoff(name) == float(info.eps) / 2


def test_unit_roundoff() -> None:
    assert unit_roundoff("float32") == unit_roundoff("complex64") == 2.0**-24
    assert unit_roundoff(np.float64) == 2.0**-53
    assert unit_roundoff(ml_dtypes.bfloat16) == 2.0**-8


def test_errors_name_the_value_the_allowed_and_the_nearest() -> None:
    with pytest.raises(PrecisionError) as caught:
        round_to(1.0, "bfloat15")
    error = caught.value
    assert (error.value, error.nearest) == ("bfloat15", "bfloat16")
    assert set(error.allowed) == {*FLOATS, "complex128", "complex64"}
    lines = str(error).splitlines()
    assert lines[0] == "unknown dtype: 'bfloat15'"
    assert lines[1].startswith("allowed: float64, float32, float16")
    assert lines[2] == "did you mean 'bfloat16'?"
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cast([1j], "float32"), "unknown dtype for complex values: 'float32'"),
        (lambda: cast([1j], "int32"), "did you mean 'complex128'"),
        (lambda: cast(["a"], "float32"), "unknown dtype: 'str32'"),
        (lambda: cast([1.0], "datetime64[s]"), "unknown dtype: 'datetime64"),
        (lambda: round_to([1.0], "int32"), "unknown dtype: 'int32'"),
        (lambda: unit_roundoff("bool"), "unknown dtype: 'bool'"),
        (
            lambda: round_mantissa([1.0], 10, "rn"),
            "unknown rounding: 'rn'(.|\n)*did you mean 'rne'",
        ),
        (lambda: round_mantissa([1.0], 24), "unknown mantissa width: 24(.|\n)*allowed: 0 to 23"),
    ],
)
def test_other_errors(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PrecisionError, match=message):
        call()
