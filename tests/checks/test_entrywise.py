import numpy as np
import pytest

from checks import entrywise

INF, NAN = np.inf, np.nan


def test_special_values_are_judged_by_place_and_sign():
    got = np.array([INF, INF, NAN, 1.0, NAN, -INF, 0.0])
    want = np.array([INF, -INF, NAN, NAN, 1.0, 2.0, INF])
    found = entrywise.entries(got, want, equal_nan=False)
    np.testing.assert_array_equal(found.special, [0, 1, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(found.wrong, [0, 1, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(found.error, 0)
    found = entrywise.entries(got, want, equal_nan=True)
    np.testing.assert_array_equal(found.special, [0, 1, 0, 1, 1, 1, 1])


def test_a_reference_beyond_the_range_of_the_result_is_its_infinity():
    got = np.array([INF, -INF, INF], np.float32)
    found = entrywise.entries(got, np.array([1e39, -1e300, 3e38]), equal_nan=False)
    np.testing.assert_array_equal(found.special, [0, 0, 1])
    np.testing.assert_array_equal(found.wrong, [0, 0, 1])


def test_zero_signs_are_counted_apart():
    found = entrywise.entries(np.array([0.0, -0.0, -0.0]), np.array([-0.0, 0.0, -0.0]), False)
    np.testing.assert_array_equal(found.zero_sign, [1, 1, 0])
    assert not found.wrong.any()


def test_complex_errors_are_moduli_and_specials_part_by_part():
    got = np.array([3 + 4j, complex(NAN, 1), complex(INF, 0)])
    want = np.array([0j, complex(NAN, 1), complex(INF, NAN)])
    found = entrywise.entries(got, want, equal_nan=True)
    np.testing.assert_array_equal(found.error, [5, 0, 0])
    np.testing.assert_array_equal(found.special, [0, 0, 1])


@pytest.mark.parametrize(
    "dtype, got, want, error",
    [
        (np.int64, 2**62 + 1, 2**62, 1.0),
        (np.int64, -(2**63), 2**63 - 1, 2.0**64),
        (np.uint64, 0, 2**64 - 1, 2.0**64),
        (np.uint8, 3, 250, 247.0),
        (bool, True, False, 1.0),
    ],
)
def test_whole_numbers_do_not_wrap(dtype, got, want, error):
    found = entrywise.entries(np.array([got], dtype), np.array([want], dtype), False)
    assert found.error[0] == error
    assert found.wrong[0]


def test_whole_numbers_of_unlike_sign_never_look_equal():
    got, want = np.array([2**62 + 1], np.uint64), np.array([2**62], np.int64)
    assert entrywise.entries(got, want, False).error[0] >= 1


def test_a_scale_of_zero_allows_nothing():
    found = entrywise.entries(np.array([0.0, 1e-300]), np.array([0.0, 0.0]), False)
    np.testing.assert_array_equal(entrywise.scaled(found, 0.0), [0, INF])
    np.testing.assert_array_equal(entrywise.componentwise(found), [0, INF])


def test_ulps_of_complex_are_those_of_the_modulus():
    want = np.array([2.0 + 0j])
    got = want + 1j * 3 * np.spacing(2.0)
    found = entrywise.entries(got, want, False)
    assert entrywise.ulps(got, want, found, want.dtype)[0] == 3


def test_identical_looks_at_bits_and_nan():
    x = np.array([1.0, NAN])
    assert entrywise.identical(x, x.copy(), equal_nan=True)
    assert not entrywise.identical(x, x.copy(), equal_nan=False)
    assert not entrywise.identical(np.array([0.0]), np.array([-0.0]), equal_nan=True)
