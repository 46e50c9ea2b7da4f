import re

import ml_dtypes
import numpy as np
import pytest

from checks.compare import MismatchError, ToleranceError, assert_close, round_up, short

X = np.array([[1.0, -2.0, 0.5], [30.0, 0.25, -1.5]])


def fails(*arguments, **options):
    with pytest.raises(ToleranceError) as caught:
        assert_close(*arguments, **options)
    text = str(caught.value)
    assert text.count("\n") == 2, text
    return caught.value, text.split("\n")


def pasted(line):
    """The atol and rtol that a message offers."""
    found = re.search(r"would pass: atol=(\S+?), rtol=([^\s;]+)", line)
    return {"atol": float(found[1]), "rtol": float(found[2])}


def wrong(factor=1e-3):
    y = X.copy()
    y[1, 0] *= 1 + factor
    y[0, 2] += factor
    return y


def test_equal_passes_and_zero_means_zero():
    assert_close(X, X.copy())
    assert_close(X, X.copy(), rtol=0, atol=0)
    assert_close(0.0, -0.0)
    error, lines = fails(np.nextafter(X, 9), X)
    assert lines[0].startswith("6 of 6 entries are not equal: worst error ")
    assert error.comparison.wrong == 6
    fails(1e-300, 0.0)
    fails(1e-300, 0.0, rtol=1.0)


def test_the_worst_entry_is_named_with_its_values():
    error, lines = fails(wrong(), X, rtol=1e-6)
    assert lines[0] == (
        "2 of 6 entries differ by more than atol 0 + rtol 1e-06 |expected|: worst error 0.03,"
        " 2000 times that"
    )
    assert re.fullmatch(r"  at actual\[0, 2\]: got 0.501, expected 0.5 \(9.01e\+12 ulp\)", lines[1])
    assert (error.path, error.comparison.index, error.comparison.got) == ("actual", (0, 2), 0.501)


@pytest.mark.parametrize("factor", [1e-12, 1e-3, 0.7])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_what_the_message_offers_passes(factor, dtype):
    rng = np.random.default_rng(7)
    x = np.concatenate([rng.normal(size=50), 100 * rng.normal(size=50)])
    y = (x * (1 + factor * rng.normal(size=100))).astype(dtype)
    _, lines = fails(y, x)
    offer = pasted(lines[2])
    assert_close(y, x, **offer)
    # ... and it is no larger than it says: 1.2 times what each half of the entries needs.
    small = np.abs(x) <= 1
    fails(y[small], x[small], atol=offer["atol"] / 1.4)
    fails(y[~small], x[~small], rtol=offer["rtol"] / 1.4)


def test_the_offer_covers_every_leaf():
    tree, other = {"a": wrong(1e-3), "b": [X, wrong(1e-5)]}, {"a": X, "b": [X, X]}
    error, lines = fails(tree, other, rtol=1e-9)
    assert lines[0].endswith("; 1 more leaves too: actual['b'][1]")
    assert error.path == "actual['a']"
    assert lines[1].startswith("  at actual['a'][0, 2]: got")
    assert_close(tree, other, **pasted(lines[2]))


def test_nan_never_equals_nan_unless_asked():
    x = np.array([1.0, np.nan])
    assert_close(x, x.copy(), equal_nan=True, rtol=1e-3)
    for options in ({}, {"rtol": 1.0}, {"atol": 1e300}, {"surface": "reverse"}):
        _, lines = fails(x, x.copy(), **options)
        assert "NaN or inf out of place: 1" in lines[0]
        assert "[1]: got nan, expected nan" in lines[1]
        assert lines[2].startswith("  no atol or rtol would pass: a NaN or an infinity is out of")
        assert "equal_nan=True" in lines[2]


def test_infinity_is_close_to_nothing_else():
    fails(np.inf, 1.0, rtol=1e300)
    fails(np.inf, -np.inf, atol=1e300)
    assert_close(np.inf, np.inf, rtol=1e-6)


def test_a_surface_brings_its_tolerance():
    x = X.astype(np.float32)
    assert_close(x * np.float32(1 + 1e-5), x, surface="f32", op="EXP")
    error, lines = fails(x * np.float32(1 + 1e-3), X, surface="f32", op="EXP", sample="a")
    assert lines[0].startswith(
        "4 of 6 entries differ by more than 2e-05 of max(1, max|expected|) (default): worst error"
    )
    assert lines[1].startswith("  at EXP, sample a, surface f32, actual[1, 0]: got ")
    assert re.search(
        r'or under overrides.f32: \{ op = "EXP", dtype = "float32", value = 0.0013, reason = "\.+"',
        lines[2],
    )
    assert (error.op, error.sample, error.surface) == ("EXP", "a", "f32")
    assert (error.tolerance.value, error.tolerance.source) == (2e-5, "default")


def test_a_surface_in_ulp_counts_ulps():
    x = np.array([1.0, 1000.0], np.float32)
    y = x + np.array([7, 3], np.float32) * np.spacing(x)
    assert_close(x + 4 * np.spacing(x), x, surface="execute")
    _, lines = fails(y, x, surface="execute", op="ADD")
    assert lines[0].startswith(
        "1 of 2 entries differ by more than 4 ulp (default): worst error 7 ulp"
    )
    assert "[0]: got 1.0000008, expected 1.0 (7 ulp)" in lines[1]
    assert 'value = "8.5 ulp"' in lines[2]


def test_an_exact_surface_wants_equal_bits():
    x = np.array([1.0, 0.0])
    assert_close(x, x.copy(), surface="render")
    _, lines = fails(np.array([1.0, -0.0]), x, surface="render")
    assert lines[0] == "zeros of the other sign, where equal bits are asked for: 1"
    assert "actual[1]: got -0.0, expected 0.0" in lines[1]
    _, lines = fails(x.astype(np.float32), x, surface="render")
    assert lines[0].startswith("equal values of unlike dtype")
    assert "cast one of them" in lines[2]
    _, lines = fails(x + 1e-16, x, surface="special")
    assert lines[0] == "1 of 2 entries are not equal: worst error 1.00e-16"


def test_a_scale_of_the_callers():
    got, want = np.array([1.0 + 1e-10, 3.0]), np.array([1.0, 3.0])
    assert_close(got, want, surface="forward", scale=1e3)
    _, lines = fails(got, want, surface="forward", scale=10.0)
    assert "1e-12 of scale (default)" in lines[0]


def test_variants():
    got, want = np.array([1.005], np.float32), np.array([1.0])
    assert_close(got, want, surface="device_f32", variant="products", op="MATMUL")
    fails(got, want, surface="device_f32", op="MATMUL")


def test_whole_numbers_have_no_ulp():
    _, lines = fails(np.array([1, 2]), np.array([1, 3]))
    assert lines[1] == "  at actual[1]: got 2, expected 3"
    _, lines = fails(2, 3)
    assert lines[0] == "the value is not equal: worst error 1"
    _, lines = fails(np.array([3]), np.array([5]), surface="f32", op="ARGMAX")
    assert lines[0].startswith("the value is not equal")


def test_an_overflowing_difference():
    _, lines = fails(np.array([1e308]), np.array([-1e308]), rtol=1e-6)
    assert lines[2] == "  no finite atol or rtol would pass: a difference overflows"


@pytest.mark.parametrize(
    "options, text",
    [
        ({"surface": "f32", "rtol": 1e-5}, "two ways to judge"),
        ({"dtype": "float32"}, "dtype means something on a surface only"),
        ({"scale": 3.0, "rtol": 1e-5}, "scale means something on a surface only"),
        ({"rtol": -1e-5}, r"rtol is not a finite number >= 0\n  at rtol=-1e-05"),
        ({"atol": float("nan")}, "atol is not a finite number"),
        ({"atol": float("inf")}, "atol is not a finite number"),
    ],
)
def test_arguments_that_make_no_sense(options, text):
    with pytest.raises(ValueError, match=text):
        assert_close(X, X, **options)


def test_structure_and_shape_come_first():
    with pytest.raises(MismatchError, match=r"at actual\['a'\]"):
        assert_close({"a": (X, X)}, {"a": (X,)}, rtol=1.0)
    with pytest.raises(MismatchError, match=r"shape \(2, 3\) and expected has shape \(3,\)"):
        assert_close(X, X[0], rtol=1.0)
    assert_close((), ())
    assert_close(np.zeros((0, 3)), np.zeros((0, 3)))


@pytest.mark.parametrize(
    "number, text",
    [
        (0.0, "0.0"),
        (1.23e-6, "1.3e-06"),
        (0.5, "0.5"),
        (0.501, "0.51"),
        (9.99, "10"),
        (1588, "1600"),
        (5e-324, "4.9e-324"),
        (1.01e300, "1.1e+300"),
    ],
)
def test_round_up_never_rounds_down(number, text):
    assert round_up(number) == text
    assert float(text) >= number


def test_short():
    numbers = (0.0, 1.5e-7, 0.25, 12.345, 1588.6, 1.2e9)
    assert [short(n) for n in numbers] == ["0", "1.50e-07", "0.25", "12.3", "1589", "1.2e+09"]
