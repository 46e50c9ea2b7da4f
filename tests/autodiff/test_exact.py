"""Exact evaluation: rules against mpmath, accuracy that is proven, and what is refused."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import autodiff as ad
import catalogue
from autodiff import tree
from autodiff.lower.balls import backend
from autodiff.lower.exact import (
    STRUCTURAL,
    NotExact,
    evaluate_exact,
    exact_kinds,
    missing_exact,
    rule_of,
)
from autodiff.lower.exact_arrays import nearest
from autodiff.lower.number import Undecided
from autodiff.op import OPS
from autodiff.optional import MissingPackageError, available
from autodiff.rounding import FORMATS

FLINT = pytest.mark.skipif(not available("flint"), reason="python-flint is not installed")
ARITHMETIC = [pytest.param("flint", marks=FLINT), "mpmath"]
X = np.array([0.5, -1.25, 2.0])


def exact(f, *args, **kwargs):
    return evaluate_exact(ad.trace(f, *args), [np.asarray(a) for a in args], **kwargs)


def digits(function, *args, bits=400):
    with mpmath.workprec(bits):
        return function(*(mpmath.mpf(float(a)) for a in args))


def assert_rounded(result, want):
    """value + low is the exact number to about 100 bits, value its rounding."""
    for value, low, w in zip(result.value.flat, result.low.flat, want, strict=True):
        assert value == float(w)
        with mpmath.workprec(400):
            gap = abs(mpmath.mpf(value) + mpmath.mpf(low) - w)
            assert gap <= abs(w) * mpmath.mpf(2) ** -56


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
@pytest.mark.parametrize(
    ("f", "reference", "points"),
    [
        (np.exp, mpmath.exp, X),
        (np.expm1, mpmath.expm1, [1e-20, -3.0]),
        (np.log1p, mpmath.log1p, [1e-20, 5.0]),
        (np.cbrt, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), [-2.0, 3.5]),
        (np.tanh, mpmath.tanh, X),
        (np.arctan, mpmath.atan, X),
        (ad.ops.erf, mpmath.erf, X),
        (ad.ops.erfinv, mpmath.erfinv, [0.3, -0.99]),
        (ad.ops.lgamma, lambda x: mpmath.log(abs(mpmath.gamma(x))), [0.3, 7.5, -2.25]),
        (ad.ops.digamma, mpmath.digamma, [0.3, 7.5, -2.25]),
        (ad.ops.bessel_j0, lambda x: mpmath.besselj(0, x), [0.3, 7.5]),
        (ad.ops.sigmoid, lambda x: 1 / (1 + mpmath.exp(-x)), [-40.0, 2.0]),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_elementwise_rules(arithmetic, f, reference, points):
    (result,) = exact(f, np.asarray(points), arithmetic=arithmetic)
    assert_rounded(result, [digits(reference, p) for p in points])
    assert (result.accuracy >= 60).all()


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_precision_grows_until_a_cancelling_program_is_right(arithmetic):
    def f(x):
        return (np.exp(x) - 1 - x - x * x / 2) / (x * x * x)

    # of 128 bits the first leaves none, the second half a float64
    x = np.array([1e-30, 1e-10])
    results = [exact(f, x[i : i + 1], arithmetic=arithmetic)[0] for i in range(2)]

    def reference(v):
        return (mpmath.exp(v) - 1 - v - v * v / 2) / (v * v * v)

    for result, v in zip(results, x, strict=True):
        assert_rounded(result, [digits(reference, v, bits=1200)])
    assert abs(ad.interpret(ad.trace(f, x), x)[0] - results[0].value) > 1  # float64 has no digit


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_derivative_programs(arithmetic):
    rng = np.random.default_rng(2)
    w, x, ct = rng.normal(size=(3, 2)), rng.normal(size=2), rng.normal(size=3)

    def f(w, x):
        return ad.ops.log_softmax(np.tanh(w @ x))

    results = exact(lambda w, x, c: ad.vjp(f, w, x)[1](c), w, x, ct, arithmetic=arithmetic)
    want = ad.vjp(f, w, x)[1](ct)
    for got, expected in zip(results, want, strict=True):
        np.testing.assert_allclose(got.value, expected, rtol=1e-13, atol=1e-16)
        assert (got.accuracy >= 60).all() and (got.radius < 1e-25).all()


def test_float32_golden_values_are_those_of_the_rounded_input():
    x = np.array([0.1, 3.3])
    (result,) = exact(np.exp, x, bits=24)
    for got, v in zip(result.value, x.astype(np.float32), strict=True):
        assert np.float32(got) == got
        assert got == np.float32(float(digits(mpmath.exp, v)))


def test_a_cast_to_a_narrower_type_rounds_and_nothing_else_does():
    def f(x):
        return x.astype(np.float32), x.astype(np.float32).astype(np.float64) * 3

    (narrow, wide) = exact(f, np.array([0.1]))
    assert narrow.value == np.float32(0.1)
    assert wide.value == float(np.float32(0.1)) * 3
    (kept, _) = exact(f, np.array([0.1]), bits=24)
    assert kept.value == np.float32(0.1) and kept.radius == 0


# --- structural ops and linear algebra -----------------------------------------------------


def test_structural_kernels_move_numbers_as_they_move_floats():
    for kind in sorted(STRUCTURAL & OPS.keys()):
        entry = catalogue.ENTRIES[kind]
        sample = next(
            s
            for s in entry.all_samples()
            if not s.tags & {"nonfinite", "empty"} and not _signed_zero(s)
        )
        program = ad.trace(lambda *a, e=entry, s=sample: e.function(*a, **s.kwargs), *sample.args)
        leaves = [np.asarray(v) for v in tree.flatten(sample.args)[0]]
        flat = tree.flatten(ad.interpret(program, *sample.args))[0]
        for got, want in zip(evaluate_exact(program, leaves), flat, strict=True):
            np.testing.assert_allclose(got.value, want, rtol=1e-13, atol=1e-15)


def _signed_zero(sample):
    leaves = [np.asarray(v) for v in tree.flatten(sample.args)[0]]
    return any(
        (np.signbit(np.real(v)) & (np.real(v) == 0)).any() for v in leaves if v.dtype.kind in "fc"
    )


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_linear_algebra(arithmetic):
    rng = np.random.default_rng(4)
    a = rng.normal(size=(3, 3))
    spd = a @ a.T + np.eye(3)
    b = rng.normal(size=(3, 2))
    cases = (
        (np.linalg.solve, (a, b)),
        (np.linalg.inv, (a,)),
        (np.linalg.det, (a,)),
        (np.linalg.cholesky, (spd,)),
        (lambda m: tuple(np.linalg.slogdet(m)), (a,)),
        (np.linalg.eigvalsh, (spd,)),
        (ad.ops.expm, (a / 4,)),
    )
    for f, args in cases:
        program = ad.trace(f, *args)
        flat = [np.asarray(v) for v in tree.flatten(ad.interpret(program, *args))[0]]
        for got, want in zip(
            evaluate_exact(program, args, arithmetic=arithmetic), flat, strict=True
        ):
            np.testing.assert_allclose(got.value, want, rtol=1e-11)


def test_a_singular_matrix_has_determinant_zero_exactly():
    (result,) = exact(np.linalg.det, np.array([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]]))
    assert result.value == 0 and result.radius == 0


def test_control_flow_runs_its_sub_programs():
    def f(x):
        total, _ = ad.scan(lambda c, v: (c * 0.5 + np.exp(v), c), np.float64(0.0), x)
        return ad.cond(total > 0, np.exp, np.negative, total)

    (result,) = exact(f, X)

    def reference():
        total = mpmath.mpf(0)
        for v in X:
            total = total * 0.5 + mpmath.exp(mpmath.mpf(float(v)))
        return mpmath.exp(total)

    with mpmath.workprec(300):
        assert result.value == float(reference())


# --- decisions -----------------------------------------------------------------------------


def test_the_position_of_the_largest_is_decided_by_the_balls():
    def f(x):
        return np.argmax(np.exp(x)), np.max(np.exp(x))

    position, largest = exact(f, np.array([1.0, 1.0 + 2.0**-52, 0.5]))
    assert position.value == 1 and largest.value == np.exp(1.0 + 2.0**-52)


@FLINT
def test_equal_values_that_no_precision_tells_apart_are_undecided():
    def f(x):
        return np.where(np.exp(x) * np.exp(-x) >= 1, x, -x)

    with pytest.raises(NotExact, match=r"comparison of overlapping balls.*\(512 bits\)"):
        exact(f, np.array([1.0]), limit=512)


def test_equal_inputs_are_equal():
    (result,) = exact(lambda x: np.argmax(x), np.array([1.0, 3.0, 3.0]))
    assert result.value == 1


@FLINT
def test_a_result_that_cancels_entirely_is_zero_with_a_bound():
    (result,) = exact(lambda x: np.exp(x) * np.exp(-x) - 1, np.array([1.0]))
    assert result.value == 0 and result.accuracy == 0 and 0 < result.radius < 2.0**-1074 * 2


def test_numbers_decide_or_raise():
    number = backend()
    with number.precision(128):
        one = number.of(1)
        third = one / 3
        assert third < 0.5 and not third == 0.5 and third - third == 0
        assert number.of(7.5) // 2 == 3 and number.of(-7.5) % 2 == 0.5
        assert number.of(2.5).rint() == 2 and number.of(3.5).rint() == 4
        assert number.of(-2.5).__trunc__() == -2
        with pytest.raises(TypeError):
            float(third)
        with pytest.raises(TypeError, match="cannot be compared with str"):
            assert third < "a"


@FLINT
def test_a_floor_that_is_open_is_undecided():
    number = backend("flint")
    with number.precision(64), pytest.raises(Undecided, match="floor is not decided"):
        math.floor(number.of(2).call("sqrt") ** 2)


# --- rounding ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float64", "float32", "float16"])
def test_fractions_round_to_nearest_even(name):
    rng = np.random.default_rng(1)
    form, dtype = FORMATS[name], np.dtype(name)
    scales = 2.0 ** rng.integers(form.min_exponent - form.mantissa - 2, form.max_exponent, 300)
    for x in rng.normal(size=300) * scales:
        want = float(dtype.type(x)) if name != "float64" else float(x)
        assert nearest(Fraction(float(x)), form) == want
    one = Fraction(1)
    half = Fraction(form.quantum) / 2
    assert nearest(half, form) == 0 and nearest(3 * half, form) == form.quantum * 2
    assert nearest(one + Fraction(2) ** -(form.mantissa + 1), form) == 1.0
    assert nearest(-Fraction(form.largest) * 2, form) == -math.inf


# --- coverage and refusals -----------------------------------------------------------------


def test_every_op_has_exact_evaluation():
    assert missing_exact() == ()
    assert set(exact_kinds()) == set(OPS)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.0])
def test_inputs_without_a_real_meaning_are_refused(bad):
    with pytest.raises(NotExact, match="an input is (NaN or infinite|-0.0)"):
        exact(np.exp, np.array([1.0, bad]))


def test_a_result_that_is_not_finite_is_refused():
    with pytest.raises(NotExact, match="not finite"):
        exact(np.log, np.array([0.0, 1.0]), limit=256)


def test_an_op_without_a_rule_is_named(monkeypatch):
    monkeypatch.setattr("autodiff.lower.exact.rule_of", lambda op: None)
    with pytest.raises(
        NotExact, match="op EXP is not evaluated exactly: it has no exact rule"
    ) as e:
        exact(np.exp, X)
    assert e.value.kind == "EXP"


def test_ops_without_a_rule_are_listed(monkeypatch):
    monkeypatch.setattr("autodiff.lower.exact.FUNCTIONS", {})
    assert "SIGMOID" in missing_exact() and "SIGMOID" not in exact_kinds()
    assert rule_of(OPS["SIGMOID"]) is None


def test_missing_flint_names_the_command(monkeypatch):
    monkeypatch.setattr("autodiff.optional.available", lambda package: False)
    with pytest.raises(MissingPackageError, match=r"gradsweep\[exact\]"):
        backend("flint")
    monkeypatch.setattr("autodiff.lower.balls.available", lambda package: False)
    assert backend().name == "mpmath"


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_signs_that_lapack_leaves_open_do_not_count_as_exact(arithmetic):
    a = np.array([[2.0, 1.0, 0.5], [1.0, 3.0, -0.25], [0.5, -0.25, 1.0]])

    def free(m):
        w, v = np.linalg.eigh(m)
        return w, v * v

    values, squares = exact(free, a, arithmetic=arithmetic)
    np.testing.assert_allclose(values.value, np.linalg.eigvalsh(a), rtol=1e-13)
    np.testing.assert_allclose(squares.value, np.linalg.eigh(a)[1] ** 2, rtol=1e-12)
    with pytest.raises(NotExact, match="depend on signs that LAPACK leaves open"):
        exact(lambda m: np.linalg.eigh(m)[1], a, arithmetic=arithmetic)


def test_entries_as_accurate_as_the_largest_needs() -> None:
    """x - x of balls that are not known exactly is 0 to any precision, but never shown to be 0."""
    x = np.array([1.0, 3.0])

    def f(v):
        root = np.sqrt(v + 1.0)
        return np.stack([np.sum(root * root - v) - 2.0, np.sum(root)])

    program = ad.trace(f, x)
    (near,) = evaluate_exact(program, [x], entrywise=False, limit=256)
    assert near.accuracy[0] == 0 and near.radius[0] < 2.0**-60 and abs(near.value[0]) < 2.0**-60
    assert near.accuracy[1] >= 60 and near.value[1] == np.sqrt(2.0) + 2.0
    with pytest.raises(NotExact):
        evaluate_exact(program, [x], limit=256)
