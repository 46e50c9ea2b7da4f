"""Functions that try to fool the gradient check: right ones that look wrong, wrong ones that hide.

The first part is what once fell, by mechanism; the second a small corpus of real functions, each
right and each wrong in the ways in which gradients go wrong.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from checks import check_gradients

Array = np.ndarray[Any, Any]
SEEDS = range(4)


def drawn(seed: int, *shape: int) -> Array:
    """Standard normal numbers."""
    return np.random.default_rng([seed, 7]).normal(size=shape)


# --- near the domain's end and near poles ---------------------------------------------------


def barrier(x: Any) -> Any:
    return -np.sum(np.log(x) + np.log(1 - x))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_is_judged_a_hair_inside_its_domain(seed: int) -> None:
    x = np.array([1e-6, 0.3, 1 - 1e-7, 0.5])
    report = check_gradients(barrier, x, seed=seed)
    assert report.verdict == "PASS" and report.detectable < 0.1, str(report)
    for factor in (1.5, -1.0):
        wrong = check_gradients(
            barrier, x, gradient=lambda x, c=factor: c * (1 / (1 - x) - 1 / x), seed=seed
        )
        assert wrong.verdict == "WRONG"


@pytest.mark.parametrize("seed", SEEDS)
def test_differences_that_jump_over_a_pole_do_not_accuse(seed: int) -> None:
    x = np.pi * np.random.default_rng(seed).uniform(0.4999, 0.499995, 4)
    report = check_gradients(np.tan, x, seed=seed)
    assert report.verdict in ("PASS", "INCONCLUSIVE"), str(report)
    assert report.verdict == "INCONCLUSIVE" or report.detectable < 0.2


# --- full Jacobians -------------------------------------------------------------------------


def test_a_kink_beyond_the_first_steps_does_not_blur_a_median() -> None:
    x = np.array([-0.448, 0.237, 1.681, -0.672, -0.464, 0.016, -1.56])
    assert check_gradients(lambda x: 2 * np.median(x), x).verdict == "PASS"


def test_a_wrong_entry_of_a_compressed_jacobian_is_named_where_it_is() -> None:
    x = drawn(0, 6) + 3

    def vjp(x: Array, ct: Array) -> tuple[Array]:
        made = 2 * x * ct  # wrong for the unit cotangent of one entry alone
        return (made * np.where((np.arange(6) == 4) & (np.count_nonzero(ct) == 1), 2, 1),)

    report = check_gradients(lambda x: x * x, x, vjp=vjp, modes=("reverse",), vmap=False)
    assert report.verdict == "WRONG"
    assert {c.name: c.verdict for c in report.checks} == {"reverse": "PASS", "jacobian": "WRONG"}
    assert report.worst is not None and report.worst.index == (4,)
    assert report.worst.output.endswith("[4]")


# --- noise inside ---------------------------------------------------------------------------


def rounded(dtype: str) -> Callable[[Array], Array]:
    return lambda x: np.asarray(x, dtype).astype(float)


def offset(big: float) -> Callable[[Array], Any]:
    return lambda x: float(np.float32(big) + np.float32(np.sum(np.sin(x))))


NOISY: dict[str, Callable[[Array], Any]] = {
    "half inside": lambda x: np.sum(np.sin(rounded("float16")(x))),
    "half result": lambda x: float(np.float16(np.sum(np.sin(x)))),
    "float32 beside 1e5": offset(1e5),
    "float32 beside 1e7": offset(1e7),
    "cancelled 1e14": lambda x: (1e14 + np.sum(np.sin(x))) - 1e14,
    "a table of 1000 steps": lambda x: np.sum(np.sin(np.round(x * 1e3) / 1e3)),
}


@pytest.mark.parametrize("name", NOISY)
@pytest.mark.parametrize("seed", SEEDS)
def test_coarse_arithmetic_inside_accuses_nobody(name: str, seed: int) -> None:
    report = check_gradients(
        NOISY[name],
        drawn(seed, 6),
        gradient=np.cos,
        modes=("reverse",),
        framework="numpy",
        vmap=False,
        seed=seed,
    )
    assert report.verdict in ("PASS", "INCONCLUSIVE"), str(report)


@pytest.mark.parametrize("name", NOISY)
@pytest.mark.parametrize("seed", SEEDS)
def test_coarse_arithmetic_inside_lets_nothing_pass(name: str, seed: int) -> None:
    report = check_gradients(
        NOISY[name],
        drawn(seed, 6),
        gradient=lambda x: 1.3 * np.cos(x),
        modes=("reverse",),
        framework="numpy",
        vmap=False,
        explain=False,
        seed=seed,
    )
    assert report.verdict in ("WRONG", "INCONCLUSIVE"), str(report)


@pytest.mark.parametrize("seed", SEEDS)
def test_float32_inside_does_not_hide_a_wrong_gradient(seed: int) -> None:
    def inside(x: Array) -> Array:
        return np.sin(np.asarray(x, np.float32)).astype(float)

    report = check_gradients(
        inside,
        drawn(seed, 40),
        vjp=lambda x, ct: (1.3 * ct * np.cos(x),),
        modes=("reverse",),
        framework="numpy",
        vmap=False,
        explain=False,
        seed=seed,
    )
    assert report.verdict == "WRONG", str(report)


@pytest.mark.parametrize("value", [3.0, 1000.0, 0.5])
def test_results_that_are_whole_numbers_are_not_noise(value: float) -> None:
    report = check_gradients(
        lambda x: np.array([value, 0.0]) * np.sign(x),
        np.array([1.3, 2.5]),
        vjp=lambda x, ct: (ct,),
        modes=("reverse",),
        vmap=False,
    )
    assert report.verdict == "WRONG", str(report)


def test_a_claim_that_is_not_a_number_is_wrong_in_float32_too() -> None:
    x = drawn(0, 6).astype(np.float32)
    report = check_gradients(
        np.tanh, x, vjp=lambda x, ct: (np.full_like(x, np.nan),), modes=("reverse",)
    )
    assert report.verdict == "WRONG"


# --- causes ---------------------------------------------------------------------------------


def test_a_gradient_where_there_is_none_has_no_factor() -> None:
    x = drawn(0, 4, 6)
    report = check_gradients(
        lambda x: np.sum(x[0] ** 2), x, gradient=lambda x: 2 * x, modes=("reverse",)
    )
    assert report.cause is not None
    assert report.cause.text.startswith("the gradient of x should be zero in all but the first")
    report = check_gradients(
        lambda x: np.clip(x, -0.5, 0.5), x, vjp=lambda x, ct: (ct,), modes=("reverse",)
    )
    assert report.cause is not None and "should be zero" in report.cause.text


@pytest.mark.parametrize("count", [5, 40])
def test_a_gradient_rounded_to_float32_is_called_so(count: int) -> None:
    def vjp(x: Array, ct: Array) -> tuple[Array]:
        return ((ct * np.cos(x)).astype(np.float32).astype(float),)

    report = check_gradients(np.sin, drawn(1, count), vjp=vjp, modes=("reverse",))
    assert report.verdict == "WRONG"
    assert report.cause is not None and report.cause.name == "float32"


def test_entries_that_kinks_nearby_blur_are_counted_by_ladders() -> None:
    x = drawn(3, 100)
    report = check_gradients(
        lambda x: np.clip(x, -0.5, 0.5), x, vjp=lambda x, ct: (ct,), modes=("reverse",)
    )
    outside = int(np.sum(np.abs(x) > 0.5))
    assert report.verdict == "WRONG" and f"{outside} of 100" in report.pattern, str(report)


# --- a corpus -------------------------------------------------------------------------------


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, -1, keepdims=True))
    return e / np.sum(e, -1, keepdims=True)


def attention(q: Any, k: Any, v: Any) -> Any:
    causal = np.tril(np.ones((5, 5))) > 0
    return softmax(np.where(causal, q @ k.T / 2, -np.inf)) @ v


def layernorm(x: Any, g: Any, b: Any) -> Any:
    centred = x - np.mean(x, -1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, -1, keepdims=True) + 1e-5) * g + b


def process(x: Any, y: Any, scale: Any) -> Any:
    gaps = np.sum((x[:, None] - x[None]) ** 2, -1)
    k = np.exp(-gaps / (2 * scale**2)) + 0.1 * np.eye(6)
    return 0.5 * y @ np.linalg.solve(k, y) + np.sum(np.log(np.diag(np.linalg.cholesky(k))))


def kalman(m: Any, a: Any, h: Any, y: Any) -> Any:
    p = a @ a.T + np.eye(3)
    gain = np.linalg.solve(h @ p @ h.T + np.eye(2), h @ p).T
    return m + gain @ (y - h @ m), p - gain @ h @ p


def bodies(x: Any, m: Any) -> Any:
    d = x[:, None] - x[None]
    inverse = (1 - np.eye(5)) / np.sqrt(np.sum(d * d, -1) + 1e-4)
    return -np.sum((m * m)[:, None] * (m * m)[None] * inverse) / 2


def looked_up(w: Any) -> Any:
    return np.tanh(w[np.array([0, 2, 2, 5, 0, 0, 1])])


def scales(a: Any, b: Any) -> Any:
    return np.sum(np.sin(1e12 * a) * b)


CORPUS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], tuple[float, ...]]] = {
    "attention": (attention, ((5, 4), (5, 4), (5, 3)), (1, 1, 1)),
    "layernorm": (layernorm, ((4, 8), (8,), (8,)), (1, 1, 1)),
    "gaussian process": (process, ((6, 2), (6,), ()), (1, 1, 1)),
    "kalman": (kalman, ((3,), (3, 3), (2, 3), (2,)), (1, 1, 1, 1)),
    "bodies": (bodies, ((5, 3), (5,)), (1, 1)),
    "looked up": (looked_up, ((8, 3),), (1,)),
    "sorted": (lambda x: np.sort(x) * np.arange(1, 13), ((12,),), (1,)),
    "18 orders apart": (scales, ((5,), (5,)), (1e-12, 1e6)),
    "cumulated": (lambda x: np.cumprod(x * np.array([1, 1, 0, 1, 1])), ((5,),), (1,)),
}
FAULTS: dict[str, Callable[[Array, Array], Array]] = {
    "sign": lambda g, x: -g,
    "doubled": lambda g, x: 2 * g,
    "mean": lambda g, x: g / 7,
    "0.1 % in a block": lambda g, x: (
        g * np.where(np.arange(len(g)) == len(g) // 2, 1.001, 1.0) if g.ndim == 1 else g * 1.001
    ),
    "where negative": lambda g, x: np.where(x < 0, 1.5, 1.0) * g,
    "shifted": lambda g, x: np.roll(g, 1),
    "float32": lambda g, x: g.astype(np.float32).astype(float),
}


def arguments(name: str, seed: int) -> tuple[Callable[..., Any], tuple[Array, ...]]:
    """A function of the corpus and its arguments."""
    function, shapes, sizes = CORPUS[name]
    rng = np.random.default_rng([seed, 3])
    args = tuple(np.asarray(s * rng.normal(size=n)) for n, s in zip(shapes, sizes, strict=True))
    return function, args


@pytest.mark.parametrize("name", CORPUS)
@pytest.mark.parametrize("seed", range(2))
def test_right_gradients_of_real_functions_pass(name: str, seed: int) -> None:
    function, args = arguments(name, seed)
    report = check_gradients(function, *args, seed=seed)
    assert report.verdict == "PASS", str(report)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", CORPUS)
def test_wrong_gradients_of_real_functions_are_caught(name: str, fault: str) -> None:
    function, args = arguments(name, 0)
    point = len(name + fault) % len(args)
    errors: list[float] = []

    def vjp(*primals: Any) -> tuple[Array, ...]:
        *xs, ct = primals
        made = [np.array(g) for g in ad.vjp(function, *xs)[1](ct)]
        g, x = made[point], xs[point]
        new = np.asarray(FAULTS[fault](g, x)) if g.ndim else np.asarray(1.001 * g)
        largest = max(float(np.max(np.abs(a * b))) for a, b in zip(made, xs, strict=True))
        errors.append(float(np.max(np.abs((new - g) * x))) / (largest or 1.0))
        made[point] = new
        return tuple(made)

    report = check_gradients(function, *args, vjp=vjp, modes=("reverse",), vmap=False)
    if errors[0] < 20 * report.checks[0].allowed:
        pytest.skip("an error below what the check promises to catch")
    names = function.__code__.co_varnames
    assert report.verdict == "WRONG", str(report)
    assert report.worst is not None and report.worst.argument == names[point]
