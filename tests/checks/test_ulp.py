"""Errors in ulp against exact rationals, step counts against nextafter, histograms."""

import dataclasses
import json
from fractions import Fraction

import ml_dtypes  # noqa: F401 - registers bfloat16 and the 8-bit formats
import numpy as np
import pytest

from autodiff.precision import FLOATS, FORMATS, PrecisionError, round_to
from checks.ulp import (
    EDGES,
    NO_DISTANCE,
    UlpError,
    UlpHistogram,
    UlpReport,
    ulp_distance,
    ulp_error,
    ulp_report,
)

TINY, STEP, TOP = 2.0**-126, 2.0**-149, 2.0**127
MAX = float(np.finfo(np.float32).max)


def one(actual: float, expected: float, dtype: str = "float32", flush: bool = False) -> float:
    return float(ulp_error(actual, expected, dtype, flush))


@pytest.mark.parametrize("dtype", FLOATS)
def test_against_rationals(dtype: str) -> None:
    form, rng = FORMATS[dtype], np.random.default_rng(0)
    low = max(form.min_exponent - form.mantissa, -1060)
    exact = np.exp2(rng.uniform(low, form.max_exponent, 400)) * rng.choice([-1, 1], 400)
    got = round_to(exact * (1 + rng.normal(size=400) * 2.0**-form.mantissa), dtype)
    for x, y, error in zip(got, exact, ulp_error(got, exact, dtype), strict=True):
        exponent = max(int(np.floor(np.log2(abs(y)))), form.min_exponent)
        unit = Fraction(2) ** (exponent - form.mantissa)
        assert error == pytest.approx(float(abs(Fraction(x) - Fraction(y)) / unit), rel=1e-14)


@pytest.mark.parametrize("dtype", FLOATS)
def test_correct_rounding_is_within_half_an_ulp(dtype: str) -> None:
    form, rng = FORMATS[dtype], np.random.default_rng(1)
    exact = np.exp2(rng.uniform(form.min_exponent, form.max_exponent, 2000))
    right = ulp_error(round_to(exact, dtype), exact, dtype)
    assert right.max() <= 0.5 and (right.max() > 0.49 or dtype == "float64")
    wrong = ulp_error(round_to(exact * (1 + 2.5 * 2.0**-form.mantissa), dtype), exact, dtype)
    assert 1.5 < wrong.min() and wrong.max() < 6.5


def test_the_unit_is_that_of_the_exact_result() -> None:
    # 1 - 2^-25 has float32 neighbours 2^-24 apart; those of 1 itself, above it, are 2^-23 apart.
    assert one(1.0, 1 - 2.0**-25) == 0.5
    assert one(1.0, 1 + 2.0**-25) == 0.25
    assert one(1 + 2.0**-23, 1.0) == 1.0
    assert one(1 - 2.0**-24, 1.0) == 0.5
    assert one(-1.0, 1.0) == 2.0**24
    assert one(1.0, 1.0, "bfloat16") == 0 and one(1.0, 1.01, "bfloat16") == pytest.approx(1.28)


def test_next_to_zero_the_unit_is_the_smallest_subnormal() -> None:
    assert one(STEP, 0.0) == one(0.0, STEP) == one(-STEP, 0.0) == 1
    assert one(0.0, STEP / 4) == 0.25
    assert one(-STEP, STEP) == 2
    assert one(TINY, TINY - STEP) == 1
    assert one(0.0, -0.0) == 0
    assert one(0.0, TINY) == 2.0**23


def test_flushed_subnormals_are_right_and_zero_is_one_step_from_tiny() -> None:
    for small in (0.0, STEP, -STEP, TINY - STEP):
        for other in (0.0, -0.0, STEP, TINY - STEP, -TINY / 2):
            assert one(other, small, flush=True) == 0
    assert one(0.0, TINY, flush=True) == one(TINY, 0.0, flush=True) == 1
    assert one(0.0, TINY / 2, flush=True) == 0 and one(0.0, TINY / 2) == 2.0**22
    assert one(-TINY, TINY, flush=True) == 2
    assert one(0.0, TINY + 3 * STEP, flush=True) == 4
    assert one(TINY + STEP, TINY, flush=True) == 1
    assert one(0.0, 4 * TINY, flush=True) == (3 * 2**23 + 1) / 4
    assert one(1.0, 1 + 2.0**-25, flush=True) == 0.25


def test_flush_changes_nothing_among_normal_numbers() -> None:
    rng = np.random.default_rng(2)
    for dtype in ("float64", "float32", "float16"):
        exact = np.exp2(rng.uniform(FORMATS[dtype].min_exponent, 10, 500))
        got = round_to(exact * (1 + rng.normal(size=500) * 1e-3), dtype)
        got = np.maximum(got, FORMATS[dtype].tiny)
        np.testing.assert_array_equal(
            ulp_error(got, exact, dtype, flush=True), ulp_error(got, exact, dtype)
        )


def test_infinities_and_nan() -> None:
    inf, nan = np.inf, np.nan
    right = [(inf, inf), (-inf, -inf), (nan, nan), (inf, 1e39), (inf, MAX * (1 + 2.0**-24))]
    assert [one(x, y) for x, y in right] == [0] * len(right)
    mismatches = [
        *[(nan, 1.0), (1.0, nan), (nan, inf), (inf, nan), (-inf, inf), (inf, 1.0), (1.0, inf)],
        *[(MAX, inf), (inf, TOP / 2), (-inf, MAX), (nan, 0.0)],
    ]
    assert [one(x, y) for x, y in mismatches] == [inf] * len(mismatches)
    # An overflow that rounding explains is an error of that many ulp, either way.
    assert one(inf, MAX) == 1 and one(inf, MAX - 2.0**104) == 2 and one(inf, TOP) == 2.0**23
    assert one(MAX, 2.0**128 - 2.0**102) == pytest.approx(0.75)
    assert one(MAX, 2.0**128) == 1
    assert 0 < one(inf, np.finfo(float).max, "float64") == 1


def test_a_format_without_infinity() -> None:
    assert one(np.nan, 1e4, "float8_e4m3fn") == 0
    assert one(np.nan, np.inf, "float8_e4m3fn") == 0
    assert one(448.0, 460.0, "float8_e4m3fn") == 12 / 32
    assert one(np.nan, 448.0, "float8_e4m3fn") == np.inf


def test_an_error_past_the_range_is_large_but_no_mismatch() -> None:
    assert one(1e300, 1e-310, "float64") == np.finfo(float).max


def test_the_tail_judges_float64_below_half_an_ulp() -> None:
    # exp(1) = 2.718281828459045091 - 3.6e-18 + ..., whose double is off by 0.0...: DLMF 4.2.11.
    expected, tail = 2.718281828459045, 1.4456468917292502e-16
    assert ulp_error(expected, expected, "float64", tail=tail) == pytest.approx(tail / 2.0**-51)
    assert one(expected, expected, "float64") == 0
    up = np.nextafter(expected, 3)
    assert ulp_error(up, expected, "float64", tail=tail) == pytest.approx(1 - tail / 2.0**-51)


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 1.5, np.float32)
    got = ulp_error(x, x.astype(np.float64), "float32")
    assert got.shape == shape and got.dtype == np.float64 and not got.any()
    assert ulp_distance(x, x).shape == shape


def test_errors_of_use() -> None:
    with pytest.raises(UlpError, match=r"shapes differ\nactual \(2,\), expected \(3,\)"):
        ulp_error([1.0] * 2, [1.0] * 3, "float32")
    with pytest.raises(
        UlpError, match=r"complex values have no ulp\nexpected is complex128\njudge"
    ):
        ulp_error([1.0], [1j], "float32")
    with pytest.raises(PrecisionError, match="unknown dtype: 'int32'"):
        ulp_error([1], [1], "int32")
    with pytest.raises(UlpError, match=r"dtypes differ\na is float32\[1\], b is float64\[1\]"):
        ulp_distance(np.ones(1, np.float32), np.ones(1))
    with pytest.raises(PrecisionError, match="unknown dtype: 'int64'"):
        ulp_distance(np.arange(2), np.arange(2))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_distance_counts_steps(dtype: str) -> None:
    for start in (0.0, 1.0, -1.0, 2.0**-14, float(np.finfo(dtype).max)):
        x = start = np.dtype(dtype).type(start)
        for steps in range(5):
            assert ulp_distance(start, x) == ulp_distance(x, start) == steps
            with np.errstate(over="ignore"):
                x = np.nextafter(x, np.dtype(dtype).type(-np.inf))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"])
def test_distance_between_all_neighbours_of_a_format(dtype: str) -> None:
    size = np.dtype(dtype).itemsize
    x = np.arange(2 ** (8 * size), dtype=f"u{size}").view(dtype)
    x = (
        x[np.argsort(x.astype(np.float32), kind="stable")]
        if size == 1
        else x[: 2 ** (8 * size - 1)]
    )
    x = x[~np.isnan(x.astype(np.float32))]
    steps = ulp_distance(x[:-1], x[1:])
    values = x.astype(np.float32)
    np.testing.assert_array_equal(steps, values[:-1] != values[1:])


def test_distance_at_the_ends() -> None:
    assert ulp_distance(-np.inf, np.inf) == 2 * 0x7FF0000000000000
    assert ulp_distance(0.0, -0.0) == 0
    assert ulp_distance(-5e-324, 5e-324) == 2
    assert ulp_distance(np.nan, 1.0) == ulp_distance(1.0, np.nan) == NO_DISTANCE
    assert ulp_distance(np.nan, -np.nan) == 0
    assert ulp_distance(np.finfo(float).max, np.inf) == 1


def test_histogram_counts_and_remembers() -> None:
    errors = [0.0, 0.5, 0.51, 1.0, 1.5, 2.0, 3.0, 3.01, 100.0, np.inf]
    histogram = UlpHistogram.of(errors, [np.arange(10), np.float32(2)])
    assert histogram.counts == (2, 2, 2, 1, 2) and len(EDGES) == 4
    assert (histogram.mismatches, histogram.counted) == (1, 9)
    assert (histogram.worst, histogram.worst_input) == (100.0, (8, 2.0))
    assert histogram.mismatch_input == (9, 2.0)
    assert histogram.mean_bits == pytest.approx(np.log2(1 + np.array(errors[:-1])).mean())
    assert str(histogram) == (
        "<=0.5 ulp: 2, <=1 ulp: 2, <=2 ulp: 2, <=3 ulp: 1, >3 ulp: 2; "
        f"worst 100 ulp at 8, 2.0, {histogram.mean_bits:.3g} bits lost; "
        "1 inf or NaN out of place at 9, 2.0"
    )
    assert json.loads(json.dumps(dataclasses.asdict(histogram)))["counts"] == [2, 2, 2, 1, 2]


def test_histograms_of_parts_add_up_to_that_of_the_whole() -> None:
    rng = np.random.default_rng(3)
    errors = np.where(rng.random(1000) < 0.01, np.inf, rng.exponential(size=1000))
    x = np.arange(1000)
    whole = UlpHistogram.of(errors, [x])
    parts = UlpHistogram()
    for piece in np.array_split(x, 7):
        parts = parts + UlpHistogram.of(errors[piece], [piece])
    assert parts.bits == pytest.approx(whole.bits)
    assert dataclasses.replace(parts, bits=0) == dataclasses.replace(whole, bits=0)
    assert whole.mismatches == np.isinf(errors).sum() > 0
    assert UlpHistogram() + whole == whole + UlpHistogram() == whole


def test_empty_and_all_wrong_histograms() -> None:
    assert UlpHistogram.of([]) == UlpHistogram() and UlpHistogram().mean_bits == 0
    wrong = UlpHistogram.of([np.inf, np.inf], [[1, 2]])
    assert (wrong.counted, wrong.worst, wrong.worst_input) == (0, 0.0, None)
    assert wrong.mismatch_input == (1,)
    fine = UlpHistogram.of([0.0], [[5]])
    assert (wrong + fine).worst_input == (fine + wrong).worst_input == (5,)
    assert str(UlpHistogram.of([0.25])).endswith("worst 0.25 ulp, 0.322 bits lost")


def test_a_histogram_checks_itself() -> None:
    with pytest.raises(UlpError, match="UlpHistogram: not 5 counts"):
        UlpHistogram(counts=(1, 2))
    with pytest.raises(UlpError, match="mismatches=-1"):
        UlpHistogram(mismatches=-1)


def test_the_report_sets_subnormal_results_apart() -> None:
    exact = np.array([1.0, 0.0, TINY, TINY / 2, STEP, 2.0])
    got = exact + np.array([0, 0, 0, 3 * STEP, 0, 2.0**-22])
    x = np.arange(6.0)
    report = ulp_report(got, exact, "float32", [x])
    assert report.regular.counts == (3, 1, 0, 0, 0) and report.regular.worst_input == (5.0,)
    assert report.subnormal.counts == (1, 0, 0, 1, 0) and report.subnormal.worst_input == (3.0,)
    twice = report + report
    assert twice.subnormal.counts == (2, 0, 0, 2, 0) and twice.regular.worst == 1
    assert UlpReport() + report == report
    assert ulp_report(got, exact, "float32", [x], flush=True).subnormal.worst == 0
    lines = str(report).splitlines()
    assert lines[0].startswith("regular   <=0.5 ulp: 3, <=1 ulp: 1")
    assert lines[1].startswith("subnormal <=0.5 ulp: 1")


def test_a_function_computed_in_float32_is_told_from_one_rounded_once() -> None:
    x = np.linspace(0.1, 80, 20_001).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    once = ulp_report(exact.astype(np.float32), exact, "float32", [x])
    assert once.regular.worst <= 0.5 and once.regular.counts[1:] == (0, 0, 0, 0)
    # exp(x/2)^2 loses what the square doubles.
    squared = ulp_report(np.exp(x / 2).astype(np.float32) ** 2, exact, "float32", [x])
    assert squared.regular.worst > 1 and squared.regular.mean_bits > once.regular.mean_bits
