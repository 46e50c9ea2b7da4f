"""What a gradient check must say of the right slopes and of those that were reported."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as special

import autodiff as ad
import checks
from autodiff import ops
from tests.public_cases.cases import right
from tests.public_cases.roads import hold, slopes

NAN = float("nan")
Function = Callable[..., Any]


def check(f: Function, *args: Any, **options: Any) -> Any:
    """The report of a check; NumPy says nothing of the NaN that a case is about."""
    with np.errstate(all="ignore"):
        return checks.check_gradients(f, *(np.asarray(a) for a in args), **options)


def judged(f: Function, *args: Any, **options: Any) -> str:
    return str(check(f, *args, **options).verdict)


# --- functions of the reports -----------------------------------------------------------------


def root_of_minus(x: Any) -> Any:
    return np.where(x >= 0, x, np.sqrt(-x))


def cumprods(x: Any) -> Any:
    return np.sum(np.cumprod(x))


def kernel_by_norm(a: Any, b: Any) -> Any:
    return np.exp(-(np.linalg.norm(a - b) ** 2))


def unit_lower(a: Any) -> Any:
    return np.sum(ops.triangular_solve(a, np.array([1.0, 2.0]), lower=True, unit_diagonal=True))


def softplus_by_parts(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def masked_attention(v: Any) -> Any:
    """Plain softmax: its second row is NaN, and is dropped."""
    seen = np.array([[True, True], [False, False]])
    scores = np.where(seen, np.outer([0.5, 1.0], [0.3, -0.7]), -np.inf)
    return (ops.softmax(scores) @ v)[0]


def mean_loss(w: Any) -> Any:
    x = np.array([[1.0, 2.0], [3.0, -1.0], [0.0, 1.0], [2.0, 2.0]])
    return np.mean(0.5 * (x @ w - np.array([1.0, 0.0, -1.0, 2.0])) ** 2)


def rebuilt_norm(a: Any) -> Any:
    u, s, vh = np.linalg.svd(a)
    return np.linalg.norm((u * s) @ vh)


def signless_r(a: Any) -> Any:
    return np.sum(np.array([[1.0, 2.0, 3.0], [0.0, 4.0, 5.0]]) * np.linalg.qr(a)[1] ** 2)


SMOOTH: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "a01": (root_of_minus, (1.0,)),
    # beside a linear term: a check of zeros alone is vacuous
    "a02": (lambda x: np.linalg.norm(x) ** 2 + 3 * x[0], (np.zeros(2),)),
    "a05": (lambda x: special.xlogy(x, 2.0), (0.0,)),
    "a06": (cumprods, ([2.0, 0.0, 3.0, 4.0],)),
    "a06 prod": (np.prod, ([0.0, 2.0, 3.0],)),
    "a08": (np.arcsinh, (1e22,)),
    "b06": (lambda z: -ops.log_softmax(z)[0], ([-431.0, 279.0, 427.0],)),
    "c01": (rebuilt_norm, (np.diag([1.0, 1.0, 2.0, 3.0]),)),
    "c03": (np.linalg.det, ([[1.0, 2.0], [2.0, 4.0]],)),
    "c04": (unit_lower, ([[2.0, 9.0], [3.0, 5.0]],)),
    "c05": (lambda a: np.sum(ops.expm(a)), ([[2.0, 1.0], [0.0, 2.0]],)),
    "c07": (signless_r, ([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],)),
    "d07": (mean_loss, ([0.5, -1.0],)),
    "e01": (ops.softplus, (0.0,)),
    "e01 asinh": (np.arcsinh, (0.0,)),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_what_is_right_passes(name: str) -> None:
    f, args = SMOOTH[name]
    report = check(f, *args)
    assert report.ok and report.verdict == "PASS", str(report)


# The gradients that were reported, of the same functions at the same places.
REPORTED: dict[str, tuple[Function, Any, Any]] = {
    "a01": (root_of_minus, 1.0, NAN),
    "a02": (lambda x: np.linalg.norm(x) ** 2, [0.0, 0.0], [NAN, NAN]),
    "a03 exponent": (lambda b: np.sum(np.array([0.0, 2.0]) ** b), [1.0, 1.0], [NAN, 1.386294361]),
    "a05": (lambda x: special.xlogy(x, 2.0), 0.0, 0.0),
    "a06 first": (cumprods, [0.0, 2.0, 3.0], [0.0, 0.0, 0.0]),
    "a06 last": (cumprods, [2.0, 3.0, 0.0], [4.0, 2.0, 0.0]),
    "a06 two": (cumprods, [2.0, 0.0, 0.0, 3.0], [1.0, 0.0, 0.0, 0.0]),
    "a08": (np.arcsinh, 1e22, 0.0),
    "b03": (masked_attention, [2.0, -1.0], [NAN, NAN]),
    "c01": (rebuilt_norm, np.diag([1.0, 1.0, 2.0, 3.0]), np.full((4, 4), NAN)),
    "c03": (np.linalg.det, [[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]),
    "c04": (unit_lower, [[2.0, 9.0], [3.0, 5.0]], [[2.0, -2.0], [-1.0, 1.0]]),
    "d07": (mean_loss, [0.5, -1.0], [-0.0625, -0.84375]),
    "e01": (softplus_by_parts, 0.0, 0.0),
    "e01 where": (softplus_by_parts, 0.0, -0.5),
    "e08": (lambda x: np.sum(x * x), [3.0], [10.0]),
}


@pytest.mark.parametrize("name", REPORTED)
def test_the_gradient_of_the_report_is_wrong(name: str) -> None:
    f, x, reported = REPORTED[name]
    report = check(f, x, gradient=lambda *_: np.asarray(reported))
    assert not report.ok and report.verdict == "WRONG", str(report)


# --- modes and orders -------------------------------------------------------------------------


def test_a01_modes_that_disagree_are_told_apart() -> None:
    stated = right("A01", "f1 without a safe where").verdict
    report = check(
        root_of_minus, 1.0, vjp=lambda x, ct: (ct * NAN,), jvp=lambda args, tangents: tangents[0]
    )
    assert report.verdict == stated and not report.ok, str(report)
    found = {c.name: c.verdict for c in report.checks}
    assert found["reverse"] == "WRONG" and found["forward"] == "PASS", str(report)


def test_a03_the_exponent_at_0_to_the_0_has_no_slope() -> None:
    stated = right("A03", "slope in the exponent at 0 ** 0").verdict
    report = check(lambda b: 0.0**b, 0.0)  # inf on the left, a jump on the right
    assert report.verdict == stated and not report.ok, str(report)


def test_a10_any_share_of_a_tie_is_a_kink_and_more_is_wrong() -> None:
    def clipped(x: Any) -> Any:
        return np.sum(np.clip(x, -1.0, 1.0) * np.array([1.0, 3.0]))

    for share in (0.0, 0.5, 1.0):
        report = check(clipped, [-1.0, 0.5], gradient=lambda _, s=share: np.array([s, 3.0]))
        assert report.verdict == "KINK", str(report)
        report = check(
            clipped, [-1.0, 0.5], gradient=lambda _, s=share: np.array([s, 3.0]), allow=("kinks",)
        )
        assert report.ok, str(report)
    assert judged(clipped, [-1.0, 0.5], gradient=lambda _: np.array([1.5, 3.0])) == "WRONG"


def test_c01_a_function_that_mixes_vectors_of_equal_values_is_found_out() -> None:
    """Its derivative exists, that of its factors does not: no rule of SVD can give it."""

    def weighted(a: Any) -> Any:
        u, s, vh = np.linalg.svd(a)
        return np.sum(np.arange(16.0).reshape(4, 4) * ((u * s) @ vh))

    report = check(weighted, np.diag([1.0, 1.0, 2.0, 3.0]))
    assert report.verdict == "WRONG" and report.worst.index in ((0, 1), (1, 0)), str(report)
    assert check(weighted, np.diag([1.0, 1.5, 2.0, 3.0])).ok


def test_c03_the_log_determinant_of_a_singular_matrix_is_outside_its_domain() -> None:
    stated = right("C03", "log of it").verdict
    report = check(lambda a: np.linalg.slogdet(a)[1], [[1.0, 2.0], [2.0, 4.0]])
    assert report.verdict == stated and not report.ok, str(report)


def test_e01_kinks_that_cancel_pass_at_first_order_and_fail_at_second() -> None:
    assert judged(softplus_by_parts, 0.0, gradient=lambda _: 0.5) == "PASS"
    report = check(softplus_by_parts, 0.0, order=2)
    assert not report.ok and report.verdict == "WRONG", str(report)
    assert check(ops.softplus, 0.0, order=2).ok


def test_e04_each_order_is_judged_on_its_own() -> None:
    place = np.array([0.3, -1.2, 0.5])

    def with_norm(a: Any, b: Any) -> Any:  # beside linear terms: zeros alone check nothing
        return kernel_by_norm(a, b) + 2 * np.sum(a) - np.sum(b)

    def without(a: Any, b: Any) -> Any:
        return np.exp(-np.sum((a - b) ** 2)) + 2 * np.sum(a) - np.sum(b)

    assert check(with_norm, place, place).verdict == "PASS"
    report = check(with_norm, place, place, order=2)
    assert not report.ok and report.verdict == "WRONG", str(report)
    found = {c.name: c.verdict for c in report.checks}
    assert found["reverse"] == "PASS" and found["forward"] == "PASS", str(report)
    assert check(without, place, place, order=2).ok


def test_e06_a_conjugated_gradient_is_wrong() -> None:
    z = np.complex128(1 + 0.5j)
    assert check(np.abs, z).ok
    assert judged(np.abs, z, gradient=lambda z: z / abs(z)) == "WRONG"


def test_e06_a_conjugated_gradient_is_named() -> None:
    report = check(np.abs, np.complex128(1 + 0.5j), gradient=lambda z: z / abs(z))
    assert "conj" in str(report.cause), str(report)


def test_e08_what_is_written_over_is_kept_or_named() -> None:
    assert right("E08", "written over before the pullback").verdict == "6 or an error"
    x = np.array([3.0])
    _, pullback = ad.vjp(lambda v: v * v, x)
    x[...] = 5.0
    assert pullback(np.array([1.0]))[0][0] == 6.0

    def in_place(v: Any) -> Any:
        v *= v
        return v

    assert judged(in_place, np.array([3.0])) == "MUTATES_INPUT"


# --- F01: kinks -------------------------------------------------------------------------------


def relu(x: Any) -> Any:
    return np.maximum(x, 0.0)


def test_f01_relu_at_its_kink() -> None:
    report = check(ops.relu, 0.0)
    assert report.verdict == right("F01", "relu at 0").verdict, str(report)
    text = str(report)
    assert "0" in text and "1" in text
    assert check(ops.relu, 0.0, allow=("kinks",)).ok
    assert check(relu, 0.0, gradient=lambda _: 0.5, allow=("kinks",)).ok


def test_f01_relu_next_to_its_kink() -> None:
    report = check(ops.relu, 3e-7)
    assert report.verdict == right("F01", "relu next to 0").verdict and report.ok, str(report)
    assert judged(ops.relu, 3e-7, gradient=lambda _: 0.65) == "WRONG"


def test_f01_a_slope_outside_the_one_sided_slopes() -> None:
    stated = right("F01", "a slope outside the one-sided ones").verdict
    for slope in (1.5, -0.5):
        report = check(relu, 0.0, gradient=lambda _, s=slope: s, allow=("kinks",))
        assert report.verdict == stated and not report.ok, str(report)


# --- F02: low precision -----------------------------------------------------------------------

W = np.array([0.5146999955177307, -0.31119999289512634], np.float32)
BIAS, PLACE = np.float32(0.20309999585151672), np.array([0.6965, 0.2861], np.float32)


def layer(x: Any) -> Any:
    return x @ W + BIAS


def test_f02_a_float32_layer_is_judged_with_a_step_its_noise_allows() -> None:
    hold({"reverse": ad.grad(layer)(PLACE)}, "F02", "slopes of a float32 layer")
    report = check(layer, PLACE)
    stated = right("F02", "a float32 layer").verdict
    assert report.verdict == stated and report.ok, str(report)
    off = W * np.array([1.05, 1.0], np.float32)
    assert judged(layer, PLACE, gradient=lambda _: off) == "WRONG"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_f02_half_precision_is_judged_with_a_step_above_its_spacing(dtype: str) -> None:
    hold(slopes(np.sin, 1.0), "F02", "slope of sine")
    x = ops.cast(np.asarray(1.0), dtype)
    stated = str(right("F02", "sine at half precision").verdict).split(" or ")
    report = check(np.sin, x, allow=("inconclusive",))
    assert report.verdict in stated and report.ok, str(report)
    report = check(np.sin, x, gradient=lambda x: ops.cast(np.asarray(0.0), dtype))
    assert report.verdict == "WRONG", str(report)


# --- F05: outside the domain ------------------------------------------------------------------


def test_f05_inside_at_the_edge_and_outside() -> None:
    hold(slopes(np.arccosh, 1.5), "F05", "arccosh at 1.5")
    assert check(np.arccosh, 1.5).ok
    for x, what in ((0.5, "arccosh at 0.5"), (1.0, "arccosh at 1")):
        report = check(np.arccosh, x)
        assert report.verdict == right("F05", what).verdict and not report.ok, str(report)


def test_f05_a_nan_gradient_of_a_finite_function_is_wrong() -> None:
    stated = right("F05", "a NaN gradient of a finite function").verdict
    assert judged(np.arccosh, 1.5, gradient=lambda _: NAN) == stated
    partly = check(lambda x: np.sum(np.sin(x)), np.ones(50), gradient=_nan_in_one)
    assert partly.verdict == stated, str(partly)


def _nan_in_one(x: Any) -> Any:
    gradient = np.cos(x)
    gradient[17] = NAN
    return gradient


# --- F06: steps -------------------------------------------------------------------------------

Z, D = np.array([0.7, -0.3]), np.array([0.6, 0.8])


def wave(z: Any) -> Any:
    return np.sin(z[0]) * np.exp(z[1])


def wave_gradient(z: Any) -> Any:
    return np.array([np.cos(z[0]) * np.exp(z[1]), np.sin(z[0]) * np.exp(z[1])])


def off_by_3_percent(z: Any) -> Any:
    return wave_gradient(z) * np.array([1.03, 1.0])


def noisy(z: Any) -> Any:
    """Noise of 1e-9 that looks random, and is the same at each call."""
    return wave(z) * (1 + 1e-9 * np.sin(1e13 * (z[0] + z[1])))


def rates(slope: float) -> list[float]:
    """Orders at which the Taylor remainder shrinks, one per halving of the step."""
    steps = 0.1 * 2.0 ** -np.arange(8)
    remainders = [abs(wave(Z + h * D) - wave(Z) - h * slope) for h in steps]
    return [float(np.log2(a / b)) for a, b in itertools.pairwise(remainders)]


def test_f06_the_gradient_and_the_rate_of_its_remainder() -> None:
    found = slopes(wave, Z)
    hold(found, "F06", "gradient")
    hold({road: g @ D for road, g in found.items()}, "F06", "slope along d")
    right("F06", "rates of the remainder").holds(rates(float(ad.jvp(wave, (Z,), (D,))[1])))
    assert rates(float(off_by_3_percent(Z) @ D))[-3:] == pytest.approx([0.82, 0.92, 0.96], abs=0.01)


def test_f06_three_percent_in_one_entry() -> None:
    report = check(wave, Z, gradient=off_by_3_percent)
    assert report.verdict == right("F06", "3 percent off in one entry").verdict, str(report)
    assert report.worst.index == (0,)


def test_f06_a_noisy_function_with_the_right_gradient_does_not_fail() -> None:
    stated = str(right("F06", "right, of a noisy function").verdict).split(" or ")
    for n in range(10):  # ten directions
        report = check(noisy, Z, gradient=wave_gradient, name=f"noisy {n}", allow=("inconclusive",))
        assert report.verdict in stated and report.ok, str(report)


def test_f06_a_noisy_function_with_a_wrong_gradient_fails() -> None:
    for n in range(10):
        name = f"noisy {n}"
        assert judged(noisy, Z, gradient=off_by_3_percent, name=name) == "WRONG"


def test_f06_steps_go_by_the_size_of_the_input() -> None:
    for size in (1e-20, 1e9):
        assert check(lambda x, s=size: np.sin(x / s), 0.7 * size).ok


# --- F07: cotangents of ones ------------------------------------------------------------------

ROW = np.array([0.2, -1.0, 0.5, 2.0])
VARIED = np.array([-0.3, -0.05, 0.2, 0.45])


def normalised(x: Any) -> Any:
    return ops.layer_norm(x, eps=1e-5)


def dropped_term(x: Any, ct: Any) -> tuple[Any]:
    """A layer norm's pullback without the term y mean(ct y)."""
    return ((ct - np.mean(ct)) / np.sqrt(np.var(x) + 1e-5),)


def test_f07_gradients_of_a_normalised_row() -> None:
    found = slopes(lambda x: np.sum(VARIED * normalised(x)), ROW)
    hold(found, "F07", "gradient, varied cotangent")
    found = slopes(lambda x: np.sum(normalised(x)), ROW, narrow=False)
    hold(found, "F07", "gradient, ones")


def test_f07_ones_check_nothing_and_the_report_says_so() -> None:
    def summed(x: Any) -> Any:
        return np.sum(normalised(x))

    def pullback(x: Any, ct: Any) -> tuple[Any]:
        return dropped_term(x, ct * np.ones(4))

    report = check(summed, ROW, vjp=pullback)
    assert report.verdict == right("F07", "a dropped term, ones").verdict, str(report)
    assert not report.ok and not check(summed, ROW).ok


def test_f07_a_varied_cotangent_finds_the_dropped_term() -> None:
    stated = right("F07", "a dropped term, varied cotangent").verdict
    report = check(normalised, ROW, vjp=dropped_term)
    assert report.verdict == stated and not report.ok, str(report)
    assert check(normalised, ROW).ok


# --- G05: runs that differ --------------------------------------------------------------------


def test_g05_a_sum_in_a_changing_order_is_a_note_and_more_than_that_a_verdict() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=1000).astype(np.float32)

    def shuffled(v: Any) -> Any:
        order = rng.permutation(1000)
        return np.cumsum(v[order])[-1]

    def jittered(v: Any) -> Any:
        return np.sum(v) + np.float32(rng.normal())

    ones = np.ones(1000, np.float32)
    stated = right("G05", "two runs within the bound of the order").verdict
    report = check(shuffled, x, gradient=lambda _: ones)
    assert report.verdict == stated, str(report)
    assert (
        judged(jittered, x, gradient=lambda _: ones) == right("G05", "two runs beyond it").verdict
    )
