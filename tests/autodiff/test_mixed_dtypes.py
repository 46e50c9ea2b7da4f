"""Ufuncs of operands of two dtypes: computed at the common one, as NumPy and SciPy do."""

import itertools

import mpmath
import numpy as np
import pytest
import scipy.special

import autodiff as ad

DTYPES = (np.float64, np.float32, np.float16, np.int32)
RNG = np.random.default_rng(17)


def _ufuncs():
    for module in (np, scipy.special):
        for name in sorted(dir(module)):
            found = getattr(module, name)
            if isinstance(found, np.ufunc) and found.nin > 1:
                yield name, found


def _traces(ufunc):
    try:
        ad.trace(ufunc, *(np.full(3, 0.5 + i / 8) for i in range(ufunc.nin)))
    except Exception:
        return False
    return True


UFUNCS = {name: ufunc for name, ufunc in _ufuncs() if _traces(ufunc)}


def test_most_binary_ufuncs_are_held():
    assert {"add", "logaddexp2", "betaln", "betaincc", "huber", "hypot", "rel_entr"} <= set(UFUNCS)
    assert len(UFUNCS) > 40


@pytest.mark.parametrize("name", UFUNCS)
def test_operands_of_two_dtypes(name):
    ufunc = UFUNCS[name]
    for dtypes in itertools.product(DTYPES, repeat=ufunc.nin):
        drawn = [np.abs(RNG.normal(size=3)) + 0.3 for _ in dtypes]
        args = [
            np.asarray(np.ceil(x) if d is np.int32 else x).astype(d)
            for x, d in zip(drawn, dtypes, strict=True)
        ]
        try:
            with np.errstate(all="ignore"):
                want = ufunc(*args)
        except TypeError:  # NumPy has no such loop
            continue
        got = ad.compile(ufunc)(*args)
        pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
        for ours, theirs in pairs:
            if ours.dtype.kind not in "fc":
                np.testing.assert_array_equal(ours, theirs)
                continue
            eps = max(np.finfo(ours.dtype).eps, np.finfo(theirs.dtype).eps)
            np.testing.assert_allclose(
                ours, theirs.astype(ours.dtype), rtol=50 * eps, atol=50 * eps
            )


def test_betaln_of_large_arguments_keeps_its_digits():
    for a, b in (
        (0.125, 2.0**27),
        (2.5, 1e12),
        (3e5, 4e7),
        (12.0, 15.0),
        (1e-9, 50.0),
        (0.5, 0.25),
    ):
        exact = float(
            mpmath.log(mpmath.gammaprod([a, b], [mpmath.mpf(a) + b]))
            if b < 100
            else _loggamma_sum(a, b)
        )
        assert float(ad.compile(scipy.special.betaln)(a, b)) == pytest.approx(exact, rel=4e-15)


def _loggamma_sum(a, b):
    with mpmath.workdps(60):
        total = mpmath.mpf(a) + mpmath.mpf(b)
        return mpmath.loggamma(a) + mpmath.loggamma(b) - mpmath.loggamma(total)


def test_betaincc_where_its_argument_is_lost_in_one_minus_x():
    a, b, x = 0.5774829880364984, 260973934.30016935, 4.880470291429625e-09
    assert float(ad.compile(scipy.special.betaincc)(a, b, x)) == pytest.approx(
        float(scipy.special.betaincc(a, b, x)), rel=1e-14
    )


def test_triangles_of_a_vector_are_those_of_equal_rows():
    x = RNG.normal(size=4)
    for f in (np.tril, np.triu):
        for k in (-2, 0, 1):
            np.testing.assert_array_equal(ad.compile(f)(x, k), f(x, k))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.complex64, np.bool_])
def test_vander_and_fabs_have_numpys_dtypes(dtype):
    x = np.ones(3, dtype)
    assert ad.compile(np.vander)(x).dtype == np.vander(x).dtype
    if np.dtype(dtype).kind in "fi":
        assert ad.compile(np.fabs)(x).dtype == np.fabs(x).dtype
