"""A wrong gradient's cause: each fault is named, and no fault by another's name."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autodiff as ad
from checks.gradients.check import check_gradients
from checks.gradients.report import GradientReport
from checks.gradients.wording import LINES, text
from checks.power.inject import mutated

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(7)
VECTOR, MATRIX, SQUARE = rng.normal(size=9), rng.normal(size=(5, 4)), rng.normal(size=(4, 4))
CUBE = rng.normal(size=(3, 2, 4))
SHAPES = {"vector": VECTOR, "matrix": MATRIX, "square": SQUARE, "cube": CUBE}


pytestmark = pytest.mark.usefixtures("unhurried")


def check(f: Callable[..., Any], *args: Any, **options: Any) -> GradientReport:
    report = check_gradients(f, *args, vmap=False, full=False, **options)
    assert len(text(report).splitlines()) <= LINES
    assert max(map(len, text(report).splitlines())) <= 100
    return report


def wave(x: Any) -> Any:
    return np.sin(x) * x


def slope(x: Array, ct: Array) -> Array:
    return (np.cos(x) * x + np.sin(x)) * ct


def broken(fault: Callable[[Array, Array], Any], x: Array, **options: Any) -> GradientReport:
    """The report on `wave` whose gradient went through a fault."""

    def vjp(x: Array, ct: Array) -> tuple[Array]:
        return (np.asarray(fault(slope(x, ct), x)),)

    report = check(wave, x, vjp=vjp, name="wave", **options)
    assert report.verdict == "WRONG" and not report.ok
    return report


def cause(report: GradientReport) -> tuple[str, str]:
    return (report.cause.name, report.cause.text) if report.cause else ("", "")


def inside(select: Callable[[Array], Any], change: Callable[[Array], Any]) -> Any:
    """A fault that changes a part of the gradient."""

    def fault(g: Array, x: Array) -> Array:
        made, at = g.copy(), select(x)
        made[at] = change(made[at])
        return made

    return fault


# --- whole gradients -----------------------------------------------------------------------


def test_a_right_gradient_has_no_cause() -> None:
    report = check(wave, MATRIX, vjp=lambda x, ct: (slope(x, ct),))
    assert report.ok and report.cause is None and report.pattern == ""
    assert report.diagnosis_calls == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_sign(shape: str) -> None:
    x = SHAPES[shape]
    report = broken(lambda g, x: -g, x)
    assert cause(report) == ("sign", "the gradient of x has the wrong sign")
    assert report.pattern == f"all {x.size} entries of x"
    assert report.worst is not None and report.worst.ratio == pytest.approx(-1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("c", "words"),
    [
        (2.0, "2 times"),
        (0.5, "1/2 of"),
        (np.pi, "pi times"),
        (np.log(2), "ln 2 times"),
        (1 / np.sqrt(2 * np.pi), "1/(sqrt(2 pi)) of"),
        (1.001, "1001/1000|1.001 times"),
        (-3.0, "-3 times"),
    ],
)
def test_constant_factor(shape: str, c: float, words: str) -> None:
    report = broken(lambda g, x: c * g, SHAPES[shape])
    name, said = cause(report)
    assert name == "factor" and said.startswith("the gradient of x is ")
    assert any(w in said for w in words.split("|"))
    assert report.worst is not None and report.worst.ratio == pytest.approx(c)


def test_one_over_n_names_the_axis() -> None:
    x = np.random.default_rng(1).normal(size=(17, 3))
    assert (
        "1/17 of the true one (17 is the length of axis 0 of x)"
        in cause(broken(lambda g, x: g / 17, x))[1]
    )
    assert "51 times the true one (51 is the size of x)" in cause(broken(lambda g, x: 51 * g, x))[1]
    assert "1/16 of" in cause(broken(lambda g, x: g / 16, x))[1]


def test_a_scalar_argument_is_a_factor() -> None:
    def tempered(x: Any, temperature: Any) -> Any:
        return np.tanh(x / temperature) * temperature

    def vjp(x: Array, temperature: float, ct: Array) -> Any:
        return ct / np.cosh(x / temperature) ** 2 / temperature, None

    report = check(tempered, VECTOR, 2.7183, vjp=vjp, argnums=0, modes=("reverse",))
    assert "1/temperature" in cause(report)[1] and cause(report)[0] == "factor"


def test_a_single_number_takes_simple_factors_only() -> None:
    x = np.array(0.7)
    assert cause(broken(lambda g, x: 2 * g, x))[0] == "factor"
    assert cause(broken(lambda g, x: 1.2345 * g, x)) == ("", "")


@pytest.mark.parametrize("c", [1.05, 1.02, 0.97, 1.000001])
def test_a_round_factor(c: float) -> None:
    """Of many entries, of one number, of one entry among right ones, and where the function is
    noisy.
    """
    said = f"the gradient of x is {c} times the true one"
    for x in (MATRIX, np.array(0.7)):
        assert cause(broken(lambda g, x: c * g, x)) == ("factor", said)
    one = broken(inside(lambda x: 2, lambda g: c * g), VECTOR)
    assert cause(one) == ("factor", f"{said} at x[2]")

    def noisy(x: Any) -> Any:
        return np.sum(np.sin(np.asarray(x).astype(np.float32)).astype(float))

    if abs(c - 1) > 1e-3:
        report = check(noisy, VECTOR, gradient=lambda x: c * np.cos(x))
        assert report.verdict == "WRONG" and cause(report) == ("factor", said)


def test_a_factor_that_no_digits_tell_is_none_of_one_entry() -> None:
    report = broken(inside(lambda x: 2, lambda g: 1.0234567 * g), VECTOR)
    assert report.cause is None and "ratio       1.0234567" in text(report)


def test_one_entry_off_by_its_own_exponential() -> None:
    """A chain rule left out for one of several logarithmic parameters."""

    def vjp(x: Array, ct: Array) -> tuple[Array]:
        g = np.exp(2 * x) * 2 * ct
        g[1] /= np.exp(x[1])
        return (g,)

    report = check(lambda x: np.sum(np.exp(2 * x)), VECTOR, vjp=vjp, name="f")
    assert cause(report) == ("factor", "the gradient of x is 1/exp(x[1]) of the true one at x[1]")


@pytest.mark.parametrize("shape", SHAPES)
def test_zero(shape: str) -> None:
    report = broken(lambda g, x: 0 * g, SHAPES[shape])
    assert cause(report)[0] == "zero" and "detached" in cause(report)[1]


@pytest.mark.parametrize("shape", ["matrix", "square", "cube"])
def test_transposed(shape: str) -> None:
    report = broken(lambda g, x: np.swapaxes(g, -1, -2).reshape(g.shape), SHAPES[shape])
    assert cause(report) == ("transposed", "the gradient of x is transposed")


def test_axes_permuted() -> None:
    x = np.random.default_rng(2).normal(size=(3, 3, 3))
    report = broken(lambda g, x: g.transpose(1, 0, 2), x)
    assert cause(report)[0] == "transposed"


def _along(move: Any, axis: int, g: Array, x: Array) -> Array:
    return np.asarray(move(g, axis=axis))


@pytest.mark.parametrize("shape", SHAPES)
def test_reversed_and_shifted(shape: str) -> None:
    x = SHAPES[shape]
    for axis in range(x.ndim):
        if x.shape[axis] < 3:
            continue
        of = f" along axis {axis}" if x.ndim > 1 else ""
        report = broken(partial(_along, np.flip, axis), x)
        assert cause(report) == ("reversed", f"the gradient of x is reversed{of}")
        report = broken(partial(_along, partial(np.roll, shift=-1), axis), x)
        assert cause(report) == ("shifted", f"the gradient of x is shifted by -1{of}")


def test_a_shift_that_loses_its_end() -> None:
    report = broken(lambda g, x: np.concatenate([[0.0], g[:-1]]), VECTOR)
    assert cause(report)[0] == "shifted" and "end lost" in cause(report)[1]


def test_permuted_rows() -> None:
    report = broken(lambda g, x: g[[3, 0, 4, 1, 2]], MATRIX)
    assert cause(report) == ("permuted", "the gradient of x is permuted along axis 0")
    report = broken(lambda g, x: g[:, [0, 3, 2, 1]], MATRIX)
    assert cause(report) == ("permuted", "the gradient of x has 1 and 3 exchanged along axis 1")


def test_summed_too_much() -> None:
    def spread(g: Array, x: Array) -> Array:
        return np.broadcast_to(g.sum(0, keepdims=True), g.shape).copy()

    report = broken(spread, MATRIX)
    assert cause(report) == ("summed", "the gradient of x is summed over axis 0")


def test_a_term_too_many() -> None:
    report = broken(lambda g, x: g + 0.01 * x, MATRIX)
    assert cause(report) == ("term", "the gradient of x has 0.01 times the argument too much")
    report = broken(lambda g, x: g - 0.5, MATRIX)
    assert cause(report) == ("term", "the gradient of x lacks a term of 0.5")


def test_nonsense_has_no_cause() -> None:
    noise = np.random.default_rng(3).normal(size=MATRIX.shape)
    report = broken(lambda g, x: g * noise, MATRIX)
    assert report.cause is None and report.pattern == "all 20 entries of x"
    assert "none of the known ones" in text(report)
    for fault in (lambda g, x: g + noise, lambda g, x: g * g):  # not linear in the cotangent: that
        report = broken(fault, MATRIX)  # alone is sure
        assert cause(report)[0] == "cotangent" and "is not linear in the cotangent" in text(report)


# --- parts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("select", "where", "count"),
    [
        (lambda x: (2,), "row 2", 5),
        (lambda x: (slice(None), 1), "column 1", 6),
        (lambda x: np.eye(*x.shape) == 1, "the diagonal", 5),
        (lambda x: np.triu(np.ones(x.shape, bool), 1), "above the diagonal", 10),
        (lambda x: x < 0, "where x < 0", None),
        (lambda x: (slice(None), slice(0, None, 2)), "every 2nd index of axis 1, from 0", 18),
    ],
)
@pytest.mark.parametrize(
    ("name", "change"),
    [("sign", np.negative), ("zero", lambda g: 0 * g), ("factor", lambda g: 3 * g)],
)
def test_regions(
    select: Any, where: str, count: int | None, name: str, change: Callable[[Array], Array]
) -> None:
    x = np.random.default_rng(4).normal(size=(6, 5))
    report = broken(inside(select, change), x)
    assert cause(report)[0] == name
    assert where in cause(report)[1] and report.pattern.endswith(where)
    wanted = int(np.sum(x < 0)) if count is None else count
    assert report.pattern.startswith(f"{wanted} of 30 entries of x")


def test_the_boundary() -> None:
    def edge(x: Array) -> Array:
        made = np.ones(x.shape, bool)
        made[1:-1, 1:-1] = False
        return made

    x = np.random.default_rng(5).normal(size=(6, 7))
    report = broken(inside(edge, np.negative), x)
    assert report.pattern == "22 of 42 entries of x: the boundary"


@pytest.mark.parametrize("size", [5, 1000, 100_000])
@pytest.mark.parametrize(
    ("name", "change"),
    [("sign", np.negative), ("zero", lambda g: 0 * g), ("factor", lambda g: 2 * g)],
)
def test_one_entry_within_forty_calls(
    size: int, name: str, change: Callable[[Array], Array]
) -> None:
    x = np.random.default_rng(size).normal(size=size)
    k = (7 * size) // 10
    report = broken(inside(lambda x: k, change), x, modes=("reverse",))
    assert report.pattern == f"1 of {size:,} entries of x: x[{k}]"
    assert cause(report)[0] == name and report.worst is not None
    assert report.worst.argument == "x" and report.worst.index == (k,)
    assert report.worst.output == f"result[{k}]"
    assert report.evaluations <= 40


def test_a_few_of_many() -> None:
    x = np.random.default_rng(6).normal(size=5000)
    report = broken(inside(lambda x: [11, 999, 4000], lambda g: 2 * g), x)
    assert report.pattern == "3 of 5,000 entries of x: x[11], x[999], x[4000]"
    assert report.worst is not None and report.worst.index[0] in (11, 999, 4000)
    assert report.worst.output.startswith("result[") and report.worst.ratio == pytest.approx(2)
    assert cause(report)[0] == "factor" and report.evaluations <= 60


def test_a_row_of_many() -> None:
    x = np.random.default_rng(8).normal(size=(60, 50))
    report = broken(inside(lambda x: (31,), lambda g: 2 * g), x)
    assert report.pattern == "50 of 3,000 entries of x: row 31"
    assert cause(report) == ("factor", "the gradient of x is 2 times the true one in row 31")


@pytest.mark.parametrize("change", [lambda g: 2 * g, lambda g: 0 * g], ids=["doubled", "zeroed"])
def test_a_row_and_another_entry_are_no_row(change: Callable[[Array], Array]) -> None:
    def fault(g: Array, x: Array) -> Array:
        made = g.copy()
        made[31], made[5, 5] = change(g[31]), 1.7 * g[5, 5]
        return made

    report = broken(fault, np.random.default_rng(8).normal(size=(60, 50)))
    assert report.cause is None and "row 31" not in report.pattern


def test_not_a_number() -> None:
    report = broken(inside(lambda x: (1, 2), lambda g: g * np.nan), MATRIX)
    assert report.pattern == "NaN: 1 of 20 entries of x: x[1, 2]"


# --- several arguments ---------------------------------------------------------------------


def product(x: Any, y: Any) -> Any:
    return np.sin(x) * y**2


def product_vjp(x: Array, y: Array, ct: Array) -> tuple[Array, Array]:
    return np.cos(x) * y**2 * ct, 2 * np.sin(x) * y * ct


def pairs() -> tuple[Array, Array]:
    r = np.random.default_rng(9)
    return r.normal(size=(4, 3)), r.normal(size=(4, 3))


def test_swapped_arguments() -> None:
    report = check(product, *pairs(), vjp=lambda x, y, ct: product_vjp(x, y, ct)[::-1])
    assert cause(report) == ("swapped", "the gradients of x and y are swapped")


def test_one_argument_wrong() -> None:
    def vjp(x: Array, y: Array, ct: Array) -> tuple[Array, Array]:
        a, b = product_vjp(x, y, ct)
        return a, b / 2

    report = check(product, *pairs(), vjp=vjp)
    assert cause(report) == ("factor", "the gradient of y is 1/2 of the true one; x is right")
    assert report.pattern == "all 12 entries of y"
    assert report.cause is not None and "test_diagnosis.py" in report.cause.where


def test_two_arguments_wrong_in_two_ways() -> None:
    def vjp(x: Array, y: Array, ct: Array) -> tuple[Array, Array]:
        a, b = product_vjp(x, y, ct)
        return -a, np.flip(b, 0)

    name, said = cause(check(product, *pairs(), vjp=vjp))
    assert name == "sign"
    assert (
        said == "the gradient of x has the wrong sign; the gradient of y is reversed along axis 0"
    )


def linear(x: Any, w: Any, b: Any) -> Any:
    return np.tanh(x @ w + b)


def linear_vjp(total: Callable[[Array], Array]) -> Any:
    def vjp(x: Array, w: Array, b: Array, ct: Array) -> tuple[Array, Array, Array]:
        z = ct * (1 - np.tanh(x @ w + b) ** 2)
        return z @ w.T, x.T @ z, total(z)

    return vjp


def layer() -> tuple[Array, Array, Array]:
    r = np.random.default_rng(10)
    return r.normal(size=(6, 3)), r.normal(size=(3, 4)), r.normal(size=4)


def test_bias_without_its_sum() -> None:
    report = check(linear, *layer(), vjp=linear_vjp(lambda z: z[2]))
    name, said = cause(report)
    assert name == "missing sum" and "index 2 of axis 0" in said and "x and w are right" in said
    report = check(linear, *layer(), vjp=linear_vjp(lambda z: z.mean(0)))
    assert (
        cause(report)[0] == "factor"
        and "1/6 of the true one (6 is the length of axis 0 of x)" in cause(report)[1]
    )


def test_bias_without_its_sum_under_a_loss() -> None:
    def loss(x: Any, w: Any, b: Any) -> Any:
        return np.sum(linear(x, w, b) ** 2)

    def vjp(x: Array, w: Array, b: Array, ct: Array) -> Any:
        return linear_vjp(lambda z: z[0])(x, w, b, 2 * ct * linear(x, w, b))

    name, said = cause(check(loss, *layer(), vjp=vjp))
    assert name == "missing sum" and "first of 6 copies" in said


def test_convolution_with_the_kernel_reversed() -> None:
    def convolve(x: Any, k: Any) -> Any:
        return sum(k[i] * x[i : i + 8] for i in range(3))

    def vjp(x: Array, k: Array, ct: Array) -> tuple[Array, Array]:
        dx = np.zeros_like(x)
        for i in range(3):
            dx[i : i + 8] += k[i] * ct
        return dx, np.array([x[i : i + 8] @ ct for i in (2, 1, 0)])

    r = np.random.default_rng(11)
    report = check(convolve, r.normal(size=10), r.normal(size=3), vjp=vjp)
    assert cause(report) == ("reversed", "the gradient of k is reversed; x is right")


def test_fan_out() -> None:
    lost = check(wave, VECTOR, vjp=lambda x, ct: (np.sin(x) * ct,))
    assert cause(lost)[0] == "accumulation" and "not accumulated" in cause(lost)[1]
    twice = check(wave, VECTOR, vjp=lambda x, ct: ((2 * np.sin(x) + x * np.cos(x)) * ct,))
    assert cause(twice)[0] == "accumulation" and "accumulated twice" in cause(twice)[1]


def test_conjugated() -> None:
    z = np.random.default_rng(12).normal(size=(3, 2, 2)).view(complex)[..., 0]
    assert z.dtype == complex
    for vjp in (
        lambda z, ct: (np.conj(np.exp(z) * ct),),
        lambda z, ct: (np.conj(np.exp(z)) * ct,),
        lambda z, ct: (np.exp(z) * np.conj(ct),),
    ):
        report = check(np.exp, z, vjp=vjp, name="exp")
        assert cause(report)[0] == "conjugated"


def test_cotangent_in_another_order() -> None:
    def mixed(x: Any) -> Any:
        return np.sin(x)[::-1] * np.arange(1.0, 6.0)

    def vjp(x: Array, ct: Array) -> tuple[Array]:
        return (np.cos(x) * (ct[::-1] * np.arange(1.0, 6.0))[::-1],)

    report = check(mixed, np.random.default_rng(13).normal(size=5), vjp=vjp)
    assert cause(report) == ("reversed", "the gradient of x reads the cotangent reversed")


def test_ties_only() -> None:
    def top(x: Any) -> Any:
        return np.max(x) * np.sum(np.sin(x))

    def vjp(x: Array, ct: Array) -> tuple[Array]:
        return (((x == x.max()) * np.sum(np.sin(x)) + x.max() * np.cos(x)) * ct,)

    report = check(top, np.array([1.0, 3.0, 3.0, 0.5, 2.0]), vjp=vjp)
    assert cause(report)[0] == "ties" and "the gradient of x is off at ties only" in text(report)


@pytest.mark.parametrize("count", [2, 3])
def test_shares_of_a_tie_are_summed(count: int) -> None:
    """Each of the largest takes all of it (SciPy and NumPy users write `x == x.max()`)."""
    x = np.array([1.0, *[3.0] * count, 0.5])
    report = check(lambda x: np.max(x), x, gradient=lambda x: 1.0 * (x == x.max()), name="max")
    said = f"the shares of its {count} equal entries sum to {count} and should sum to 1"
    assert cause(report) == ("ties", f"the gradient of x is off at ties only: {said}")
    rows = np.stack([x, x[::-1] + 1])
    report = check(
        lambda x: np.max(x, axis=1),
        rows,
        vjp=lambda x, ct: ((x == x.max(1, keepdims=True)) * ct[:, None],),
        name="max",
    )
    assert f"{count} equal entries sum to {count} times what they should" in cause(report)[1]


def test_float32_only() -> None:
    def narrow_sum(x: Any) -> Any:
        return np.log1p(x)

    def vjp(x: Array, ct: Array) -> tuple[Array]:
        drift = x.dtype.type(1e4 if x.dtype == np.float32 else 0.0)
        return ((ct + drift - drift) / (1 + x),)

    x = np.random.default_rng(14).uniform(0.1, 1, size=9).astype(np.float32)
    report = check(narrow_sum, x, vjp=vjp)
    assert report.verdict == "WRONG" and cause(report)[0] == "float32"


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32"])
def test_a_gradient_made_in_few_bits(name: str) -> None:
    """A mixed-precision backward: its gradient is cast to the argument's own float64 at the end."""
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    report = broken(lambda g, x: g.astype(dtype).astype(float), CUBE)
    assert cause(report) == (name, f"the gradient of x is rounded to {name}")
    other = broken(lambda g, x: g * (1 + np.float64(2.0**-9) * np.sign(np.sin(99 * x))), MATRIX)
    assert cause(other)[0] not in ("bfloat16", "float16", "float32")


@pytest.mark.parametrize("power", [1.1, 1.5, 1.9])
def test_a_power_between_one_and_two_is_no_kink_and_no_noise(power: float) -> None:
    """The slopes on both sides come to 0, if slowly: the gap falls as h^(p - 1)."""
    x = np.array([0.0, 1.0, -2.0])

    def gradient(x: Array) -> Array:
        return power * np.abs(x) ** (power - 1) * np.sign(x)

    def f(x: Array) -> Any:
        return np.sum(np.abs(x) ** power)

    assert check(f, x, gradient=gradient).verdict == "PASS"
    report = check(f, x, gradient=lambda x: gradient(x) + np.array([0.3, 0, 0]))
    assert report.verdict == "WRONG"
    name, said = cause(report)
    assert name == "not zero" and said.startswith("the gradient of x should be zero ")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("c", "name"), [(-1, "sign"), (2, "factor"), (0, "zero")])
def test_narrow_arguments(dtype: str, c: int, name: str) -> None:
    x = VECTOR.astype(dtype)
    report = broken(lambda g, x: g.dtype.type(c) * g, x)
    assert cause(report)[0] == name
    assert name != "factor" or "is 2 times the true one" in cause(report)[1]


def test_a_transposed_jacobian() -> None:
    a = np.random.default_rng(17).normal(size=(5, 5))

    def jac(x: Array) -> Array:
        return (a * np.cos(x)).T

    report = check(lambda x: a @ np.sin(x), VECTOR[:5], jac=jac, name="f")
    assert cause(report) == ("transposed", "the gradient of x is made with the transposed Jacobian")


def test_one_complex_entry() -> None:
    r = np.random.default_rng(18)
    z = r.normal(size=12) + 1j * r.normal(size=12)
    for change, name in ((np.conj, "conjugated"), (lambda g: 2 * g, "factor")):

        def vjp(z: Array, ct: Array, change: Any = change) -> tuple[Array]:
            return (inside(lambda z: 7, change)(np.exp(z) * ct, z),)

        report = check(np.exp, z, vjp=vjp, name="exp", modes=("reverse",))
        assert cause(report)[0] == name and report.pattern == "1 of 12 entries of x: x[7]"


def test_a_symmetric_argument() -> None:
    a = SQUARE + SQUARE.T

    def vjp(a: Array, ct: Array) -> tuple[Array]:
        return (2 * ct * np.tril(np.cos(a)),)

    report = check(lambda a: np.sum(np.sin(np.tril(a))), a, vjp=vjp, symmetric=(0,), name="f")
    assert cause(report) == ("factor", "the gradient of a is 2 times the true one")


def test_containers() -> None:
    def f(p: Any, i: Any) -> Any:
        return np.sum(np.sin(p["w"]) * p["b"]) + 0.0 * np.sum(i)

    def vjp(p: Any, i: Any, ct: Any) -> Any:
        return {"w": -np.cos(p["w"]) * p["b"] * ct, "b": np.sin(p["w"]).sum(0) * ct}, None

    p = {"w": MATRIX, "b": VECTOR[:4]}
    report = check(f, p, np.arange(3), vjp=vjp, modes=("reverse",))
    assert cause(report) == ("sign", "the gradient of p['w'] has the wrong sign; p['b'] is right")


def test_only_the_kink_at_zero() -> None:
    def vjp(x: Array, ct: Array) -> tuple[Array]:
        return (np.where(x == 0, 3.0, x > 0) * ct,)

    x = np.array([1.0, 0.0, -1.0, 2.0])
    report = check(lambda x: np.maximum(x, 0.0), x, vjp=vjp, name="relu")
    assert report.verdict == "WRONG" and cause(report)[0] == "kink"
    assert report.pattern == "1 of 4 entries of x: where x = 0"


def test_second_order_says_whose_entries() -> None:
    @ad.custom_vjp
    def gate(x: Any) -> Any:
        return ad.ops.sin(x)

    gate.defvjp(lambda x: (ad.ops.sin(x), ad.stop_gradient(ad.ops.cos(x))), lambda c, ct: (ct * c,))
    report = check(lambda x: np.sum(gate(x)), VECTOR, order=2, modes=("reverse",), name="f")
    assert report.verdict == "WRONG" and "f[second" in text(report)
    assert cause(report)[0] in ("zero", "factor", "")
    assert "entries of the gradient" in text(report)


# --- forward -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("factor", lambda t: 2 * t),
        ("sign", lambda t: -t),
        ("transposed", lambda t: t.T),
        ("reversed", lambda t: np.flip(t, 0)),
        ("shifted", lambda t: np.roll(t, 1, 1)),
        ("zero", lambda t: 0 * t),
    ],
)
def test_tangents(name: str, change: Callable[[Array], Array]) -> None:
    def jvp(primals: Any, tangents: Any) -> Array:
        return change(np.asarray(slope(primals[0], tangents[0])))

    report = check(wave, SQUARE, jvp=jvp)
    assert report.verdict == "WRONG" and cause(report)[0] == name
    assert "the tangent of the result" in cause(report)[1]


def test_tangent_along_one_argument() -> None:
    def jvp(primals: Any, tangents: Any) -> Array:
        (x, y), (s, t) = primals, tangents
        return np.cos(x) * y**2 * s - 2 * np.sin(x) * y * t

    name, said = cause(check(product, *pairs(), jvp=jvp))
    assert (name, said) == ("sign", "the tangent along y has the wrong sign; x is right")


# --- culprits ------------------------------------------------------------------------------


def _line(function: Any, words: str) -> int:
    lines, start = inspect.getsourcelines(function)
    return start + next(n for n, line in enumerate(lines) if words in line)


def net(x: Any, w: Any) -> Any:
    hidden = np.tanh(x @ w)
    wide = np.sin(hidden)  # the wrong one
    return np.sum(wide**2 + hidden)


def test_the_first_wrong_equation_of_ours() -> None:
    r = np.random.default_rng(15)
    x, w = r.normal(size=(3, 4)), r.normal(size=(4, 2))
    own = ad.ops.cos
    with mutated("SIN", jvp=lambda primals, tangents, outputs: -(own(primals[0]) * tangents[0])):
        report = check(net, x, w)
    assert report.verdict == "WRONG" and report.cause is not None
    assert ", SIN, at " in report.cause.where
    assert f"test_diagnosis.py:{_line(net, '# the wrong one')} in net" in report.cause.where
    assert "`wide = np.sin(hidden)" in report.cause.where
    assert "the rule of SIN" in report.cause.text or report.cause.name == "rule"


def test_a_custom_rule_of_ours() -> None:
    @ad.custom_vjp
    def gate(x: Any) -> Any:
        return ad.ops.sin(x)

    gate.defvjp(lambda x: (ad.ops.sin(x), x), lambda x, ct: (2 * ct * ad.ops.cos(x),))

    def gated(x: Any) -> Any:
        y = np.tanh(x)
        return np.sum(gate(y) ** 2)  # here

    report = check(gated, VECTOR)
    assert report.cause is not None and report.cause.name == "factor"
    assert f":{_line(gated, '# here')} in gated" in report.cause.where
    assert "CUSTOM_VJP of gate" in report.cause.where


def test_a_custom_rule_of_jax() -> None:
    jax: Any = pytest.importorskip("jax")
    jnp = jax.numpy

    @jax.custom_vjp
    def gate(x: Any) -> Any:
        return jnp.sin(x)

    gate.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (-ct * jnp.cos(x),))

    @jax.jit
    def gated(x: Any, w: Any) -> Any:
        y = jnp.tanh(x @ w)
        return jnp.sum(gate(y) ** 2)  # here

    x, w = jnp.ones((3, 4)) * 0.3, jnp.linspace(-1, 1, 8).reshape(4, 2)
    report = check(gated, x, w)
    assert report.verdict == "WRONG" and report.cause is not None
    assert "custom_vjp of gate" in report.cause.where
    assert f":{_line(gated, '# here')} in gated" in report.cause.where


def test_fan_out_in_a_custom_rule_of_jax() -> None:
    jax: Any = pytest.importorskip("jax")
    jnp = jax.numpy

    @jax.custom_vjp
    def gate(x: Any) -> Any:
        return x * jnp.sin(x)

    gate.defvjp(lambda x: (gate(x), x), lambda x, ct: (ct * jnp.sin(x),))
    report = check(gate, jnp.linspace(0.3, 2.0, 5))
    assert report.verdict == "WRONG" and report.cause is not None
    assert report.cause.name == "accumulation" and "one use of" in report.cause.text
    assert report.cause.text.startswith("the rule of custom_vjp of gate: ")


def test_fan_out_in_a_custom_rule_of_ours() -> None:
    @ad.custom_vjp
    def gate(x: Any) -> Any:
        return x * ad.ops.sin(x)

    gate.defvjp(lambda x: (x * ad.ops.sin(x), x), lambda x, ct: (ct * ad.ops.sin(x),))
    report = check(lambda x: np.sum(gate(np.tanh(x)) ** 2), VECTOR, name="gated")
    assert cause(report)[0] == "accumulation"
    assert cause(report)[1].startswith("the rule of CUSTOM_VJP: the gradient of its operand lacks")


def test_a_function_that_python_branches_in_has_no_equations() -> None:
    jax: Any = pytest.importorskip("jax")
    jnp = jax.numpy

    @jax.custom_vjp
    def gate(x: Any) -> Any:
        return jnp.sin(x)

    gate.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (2 * ct * jnp.cos(x),))

    def branches(x: Any) -> Any:
        return gate(x) if x[0] < 10 else x

    report = check(branches, jnp.linspace(0.3, 2.0, 5))
    assert cause(report) == ("factor", "the gradient of x is 2 times the true one")
    assert not any("stopped" in note for note in report.notes)


def test_a_diagnosis_that_fails_keeps_the_verdict() -> None:
    calls: list[int] = []

    def tired(x: Any) -> Any:
        calls.append(1)
        if len(calls) > 40:
            raise LookupError("enough")  # what stands for no domain
        return np.sin(x) * x

    report = check(tired, MATRIX, vjp=lambda x, ct: (2 * slope(x, ct),))
    assert report.verdict == "WRONG" and report.worst is not None and report.cause is None
    assert any("the diagnosis stopped: LookupError: enough" in note for note in report.notes)


def test_a_function_of_torch() -> None:
    torch: Any = pytest.importorskip("torch")

    class Gate(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * ct * x.cos()

    def gated(x: Any, w: Any) -> Any:
        return (Gate.apply(torch.tanh(x @ w)) ** 2).sum()

    r = np.random.default_rng(16)
    x, w = torch.tensor(r.normal(size=(3, 4))), torch.tensor(r.normal(size=(4, 2)))
    report = check(gated, x, w, modes=("reverse",))
    assert report.verdict == "WRONG" and report.cause is not None
    assert report.cause.name == "factor" and "Gate.backward" in report.cause.where
    assert "test_diagnosis.py" in report.cause.where
