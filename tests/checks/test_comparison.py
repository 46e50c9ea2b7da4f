import math

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

from checks.arrays import MismatchError
from checks.comparison import Comparison, compare, error_of
from checks.tolerances import Tolerance

INF, NAN = math.inf, math.nan
DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_arrays_have_no_error(dtype):
    x = np.random.default_rng(1).normal(size=(2, 3)).astype(dtype)
    for expected in (x, x.astype(np.float64)):
        seen = compare(x, expected)
        assert (seen.wrong, seen.total, seen.ulp, seen.scaled_error) == (0, 6, 0, 0)
        assert (seen.atol_needed, seen.rtol_needed, seen.index is None) == (0, 0, False)
    assert compare(x, x.astype(np.float64)).same_dtype == (dtype == np.float64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_wrong_entry_is_named_and_measured(dtype):
    expected = np.array([[1.0, -8.0, 0.5], [2.0, 4.0, -1.0]]).astype(dtype)
    actual = expected.copy()
    step = float(ml_dtypes.finfo(dtype).eps)
    actual[0, 1] = -8.0 * (1 + 3 * step)
    seen = compare(actual, expected)
    assert (seen.index, seen.wrong, seen.total) == ((0, 1), 1, 6)
    assert (seen.got, seen.expected) == (-8.0 * (1 + 3 * step), -8.0)
    assert seen.ulp == seen.ulp_there == 3
    assert seen.abs_error == 24 * step
    assert seen.scaled_error == seen.componentwise == 3 * step
    assert seen.rtol_needed == 1.2 * 3 * step
    assert seen.atol_needed == 0
    assert seen.dtype == dtype


def test_errors_are_scaled_by_max_1_and_the_largest_expected():
    assert compare(np.array([0.1, 0.0]), np.array([0.2, 0.0])).scaled_error == 0.1
    assert compare(np.array([0.1, 50.0]), np.array([0.2, 50.0])).scaled_error == 0.1 / 50


def test_a_small_entry_shows_in_the_componentwise_error():
    seen = compare(np.array([1e-9, 1.0]), np.array([2e-9, 1.0]))
    assert (seen.scaled_error, seen.componentwise) == (1e-9, 0.5)
    assert compare(np.array([1e-9, 1.0]), np.array([0.0, 1.0])).componentwise == INF


def test_a_scale_may_be_given_entry_by_entry():
    got, want = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.5, 2.0], [3.0, 6.0]])
    seen = compare(got, want, scale=np.array([1.0, 100.0]))
    assert (seen.index, seen.scaled_error, seen.abs_error) == ((0, 0), 0.5, 2.0)
    assert compare(got, want, scale=0).scaled_error == INF
    assert compare(got, got, scale=0).scaled_error == 0


@pytest.mark.parametrize("scale", [-1.0, NAN, INF, [1.0, -2.0]])
def test_a_scale_is_finite_and_not_negative(scale):
    with pytest.raises(ValueError, match=r"must be finite and >= 0: .*\n  at entry \d"):
        compare(np.zeros(2), np.zeros(2), scale=scale)


def test_the_worst_entry_may_be_chosen_by_ulp():
    got, want = np.array([1.0, 1e-6]), np.array([1.0 + 1e-9, 2e-6])
    assert compare(got, want).index == (1,)
    got[0] = 1.1
    assert compare(got, want).index == (0,)
    assert compare(got, want, unit="ulp").index == (1,)


def test_ulps_are_those_of_the_narrower_dtype():
    x = np.float32(1) + np.finfo(np.float32).eps
    assert compare(x, np.float64(1)).ulp == 1
    assert compare(np.float64(x), np.float32(1)).ulp == 1
    assert compare(np.float64(x), np.float64(1)).ulp == 2.0**29


@pytest.mark.parametrize("equal_nan", [False, True])
def test_nan_equals_nan_only_where_asked(equal_nan):
    x = np.array([1.0, NAN])
    for other in (x.copy(), np.array([1.0, -NAN]), np.array([1.5, NAN])):
        seen = compare(x, other, equal_nan=equal_nan)
        assert seen.special_wrong == (not equal_nan)
        assert (seen.index == (1,)) == (not equal_nan or (other[0] == 1.0 == x[0] and seen.wrong))
        assert (seen.error("relative") == INF) == (not equal_nan)
        assert math.isfinite(seen.atol_needed) == equal_nan


def test_nan_out_of_place_is_wrong_whatever_is_asked():
    for got, want in (([NAN, 1.0], [1.0, 1.0]), ([1.0, 1.0], [NAN, 1.0])):
        seen = compare(np.array(got), np.array(want), equal_nan=True)
        assert (seen.special_wrong, seen.index, seen.atol_needed) == (1, (0,), INF)
        assert (seen.error("ulp"), seen.ulp, seen.ulp_there) == (INF, INF, INF)
        assert not seen.within(Tolerance(1e300, "relative"))


def test_infinities_must_agree_in_sign():
    seen = compare(np.array([INF, -INF, 1.0]), np.array([INF, -INF, 1.0]))
    assert (seen.wrong, seen.scaled_error, seen.ulp) == (0, 0, 0)
    assert compare(np.array([INF]), np.array([-INF])).special_wrong == 1
    assert compare(np.float32(INF), 1e39).wrong == 0


def test_a_special_value_is_worse_than_any_number():
    seen = compare(np.array([1e300, 0.0, NAN]), np.array([0.0, 0.0, 0.0]))
    assert seen.index == (2,)


def test_exact_asks_for_the_sign_of_zero_and_the_dtype():
    seen = compare(np.array([1.0, -0.0]), np.array([1.0, 0.0]))
    assert (seen.wrong, seen.zero_sign_wrong, seen.index) == (0, 1, (1,))
    assert (seen.error("exact"), seen.error("relative"), seen.error("ulp")) == (1, 0, 0)
    assert compare(np.float32(1), np.float64(1)).error("exact") == 1


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_empty_arrays_are_equal(shape):
    seen = compare(np.zeros(shape), np.zeros(shape))
    assert (seen.index, seen.total, seen.error("exact"), seen.shape) == (None, 0, 0, shape)


def test_scalars_have_an_empty_index():
    assert compare(1.0, 2.0).index == ()
    assert compare(np.float32(1), 1).wrong == 0
    assert compare(np.array(3), 3).wrong == 0
    assert compare(np.True_, True).wrong == 0


def test_whole_numbers_and_bools():
    seen = compare(np.array([1, 5]), np.array([1, 7]))
    assert (seen.abs_error, seen.ulp, seen.got, seen.expected) == (2, 2, 5, 7)
    seen = compare(np.array([True, False]), np.array([True, True]))
    assert (seen.abs_error, seen.got, seen.index) == (1, False, (1,))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_numbers(dtype):
    seen = compare(np.array([1 + 1j, 3 + 4j], dtype), np.array([1 + 1j, 0], dtype))
    assert (seen.index, seen.abs_error, seen.got) == ((1,), 5, 3 + 4j)
    assert compare(np.array([complex(NAN, 0)]), np.array([0j])).special_wrong == 1


def test_views_that_are_not_contiguous():
    x = np.arange(12.0).reshape(3, 4)
    y = x.copy()
    y[2, 1] += 1
    assert compare(y.T[::-1], x.T[::-1]).index == (2, 2)
    assert compare(np.broadcast_to(1.0, (2, 2)), np.ones((2, 2))).wrong == 0


def test_a_difference_that_overflows_is_no_nan():
    seen = compare(np.array([1e308]), np.array([-1e308]))
    assert (seen.abs_error, seen.scaled_error, seen.special_wrong) == (INF, INF, 0)


def test_inputs_stay_as_they_are():
    x, y = np.array([1.0, NAN]), np.array([2.0, NAN])
    for array in (x, y):
        array.flags.writeable = False
    compare(x, y)
    np.testing.assert_array_equal(x, [1.0, NAN])


@pytest.mark.parametrize(
    "got, want", [(np.zeros(2), np.zeros(3)), (np.zeros(2), 0.0), (np.zeros(2), np.zeros(2, int))]
)
def test_forms_must_agree(got, want):
    with pytest.raises(MismatchError):
        compare(got, want)


def test_within():
    assert Comparison((), np.dtype(float), scaled_error=1e-6).within(Tolerance(1e-6, "relative"))
    assert not Comparison((), np.dtype(float), scaled_error=NAN).within(Tolerance(1e-6, "relative"))


@given(
    hnp.arrays(np.float64, 5, elements=st.floats(allow_nan=False, width=64)),
    hnp.arrays(np.float64, 5, elements=st.floats(allow_nan=False, width=64)),
)
def test_what_is_needed_passes(got, want):
    seen = compare(got, want)
    if math.isfinite(seen.atol_needed) and math.isfinite(seen.rtol_needed):
        finite = np.isfinite(want)
        with np.errstate(over="ignore", invalid="ignore"):
            allowed = seen.atol_needed + seen.rtol_needed * np.abs(want)
            assert (np.abs(got - want)[finite] <= allowed[finite]).all()
            np.testing.assert_array_equal(got[~finite], want[~finite])


KINDS = [
    np.float64,
    np.float32,
    ml_dtypes.bfloat16,
    np.complex128,
    np.complex64,
    np.int32,
    np.bool_,
]


@pytest.mark.parametrize("unit", ["relative", "ulp", "exact"])
@pytest.mark.parametrize("scale", [None, 2.0, 0.0, np.array([0.0, 1.0, 3.0, 1e-3, 5.0, 1.0, 7.0])])
@pytest.mark.parametrize("dtype", KINDS, ids=lambda d: np.dtype(d).name)
def test_the_error_alone_is_that_of_the_comparison(dtype, scale, unit):
    rng = np.random.default_rng(7)
    special = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 3e38])
    for trial in range(40):
        drawn = rng.normal(size=7) * 10.0 ** rng.integers(-3, 3)
        pick = rng.random((2, 7)) < (0.0, 0.2)[trial % 2]
        want, got = (np.where(p, rng.permutation(special), drawn) for p in pick)
        if trial % 3:
            got = got + rng.normal(size=7) * 1e-7
        if np.dtype(dtype).kind in "ib":
            want, got = np.nan_to_num(want, posinf=2, neginf=0), np.nan_to_num(got, posinf=2)
            want, got = np.clip(want, -9, 9), np.clip(got, -9, 9)
        with np.errstate(all="ignore"):
            want, got = want.astype(dtype), got.astype(dtype)
            if np.dtype(dtype).kind == "c":
                want, got = want * (1 + 0.5j), got * (1 + 0.5j)
        for equal_nan in (False, True):
            how = {"scale": scale, "equal_nan": equal_nan, "unit": unit}
            found, whole = error_of(got, want, **how), compare(got, want, **how).error(unit)
            assert found == whole or (np.isnan(found) and np.isnan(whole))


def test_the_error_alone_of_empty_arrays_and_of_unlike_widths():
    empty = np.zeros((0, 2))
    assert error_of(empty, empty) == error_of(empty, empty, unit="ulp") == 0
    assert error_of(empty, empty.astype(np.float32), unit="exact") == 1
    narrow = np.array([0.1, 0.2], np.float32)
    for unit in ("relative", "ulp", "exact"):
        want = np.array([0.1, 0.2])
        assert error_of(narrow, want, unit=unit) == compare(narrow, want, unit=unit).error(unit) > 0
