"""Higher orders, vmap, full Jacobians, modes that do not exist, errors and reports."""

import json
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from checks.gradients.check import check_gradients
from checks.gradients.framework import FrameworkError, framework
from checks.gradients.report import GradientError
from checks.gradients.target import TargetError

Array = np.ndarray[Any, Any]


def _layer(x: Array, w: Array) -> Array:
    return np.tanh(x @ w) * np.exp(-w[0])


def _points() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 3)), rng.normal(size=(3, 2))


def _names(report: Any, verdict: str = "PASS") -> set[str]:
    return {c.name for c in report.checks if c.verdict == verdict}


def test_three_orders_in_every_composition() -> None:
    report = check_gradients(_layer, *_points(), order=3)
    assert report.ok
    modes = ("forward", "reverse")
    second = {f"second: {a} over {b}" for a in modes for b in modes}
    third = {f"third: {a} over {b} over {c}" for a in modes for b in modes for c in modes}
    # forward throughout is what the others are held against
    wanted = second | third | {"third: reverse over reverse", "third: forward over reverse"}
    wanted -= {f"third: {' over '.join([m] * 3)}" for m in modes}
    assert wanted - {"second: forward over forward"} <= _names(report)


def _bad_second() -> Any:
    """A function whose rule is right at first order and wrong at second."""

    @ad.custom_jvp
    def f(x: Array) -> Array:
        return np.sin(x)

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return np.sin(x), t * ad.stop_gradient(np.cos(x))

    return f


def test_a_rule_wrong_at_second_order_only() -> None:
    x = np.linspace(0.3, 1.0, 4)
    assert check_gradients(_bad_second(), x).ok
    report = check_gradients(_bad_second(), x, order=2)
    assert report.verdict == "WRONG"
    assert any(c.name.startswith("second") and c.verdict == "WRONG" for c in report.checks)


def test_a_mode_that_does_not_exist_is_no_failure() -> None:
    @ad.custom_vjp
    def f(x: Array) -> Array:
        return np.sin(x)

    f.defvjp(lambda x: (np.sin(x), x), lambda x, ct: (ct * np.cos(x),))
    report = check_gradients(f, np.linspace(0.1, 1, 5))
    assert report.ok
    assert "forward" in _names(report, "NOT_DEFINED")


def test_small_arguments_get_the_full_jacobian() -> None:
    assert "jacobian" in _names(check_gradients(_layer, *_points()))
    report = check_gradients(np.sin, np.linspace(0, 1, 100), full=True)
    found = next(c for c in report.checks if c.name == "jacobian")
    assert found.verdict == "PASS" and "in 1 differences" in found.detail


def test_a_batched_full_jacobian() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, 9)), rng.normal(size=(9, 20))
    report = check_gradients(lambda w: np.sum(np.tanh(x @ w), axis=0), w, full=True)
    found = next(c for c in report.checks if c.name == "jacobian")
    assert found.verdict == "PASS" and "20 x 180 entries" in found.detail


def test_a_wrong_entry_of_a_jacobian_is_named_with_its_result() -> None:
    x = np.linspace(0.5, 1.5, 6)

    def jac(x: Array) -> Array:
        j = np.diag(np.cos(x))
        j[2, 3], j[2, 2] = 1e-3, j[2, 2] - 1e-3 * x[3] / x[2]
        return j

    report = check_gradients(np.sin, x, jac=jac, full=True)
    assert report.verdict == "WRONG" and report.worst is not None
    assert report.worst.index in ((2,), (3,))


def test_vmap_is_held_against_a_loop() -> None:
    assert {"vmap", "vmap, in_axes (0, None)", "vmap of grad"} <= _names(
        check_gradients(_layer, *_points())
    )
    assert not any(
        c.name.startswith("vmap") for c in check_gradients(_layer, *_points(), vmap=False).checks
    )


def test_hand_written_derivatives() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4))
    assert check_gradients(np.sin, x, vjp=lambda x, ct: (ct * np.cos(x),)).ok
    assert check_gradients(np.sin, x, vjp=lambda x, ct: ct * np.cos(x)).ok
    assert check_gradients(np.sin, x, jvp=lambda p, t: np.cos(p[0]) * t[0]).ok
    assert check_gradients(lambda x: np.sum(np.sin(x)), x, gradient=np.cos).ok
    flat = x.ravel()
    assert check_gradients(np.sin, flat, jac=lambda x: np.diag(np.cos(x))).ok
    both = check_gradients(
        np.sin, x, vjp=lambda x, ct: (ct * np.cos(x),), jvp=lambda p, t: np.cos(p[0]) * t[0]
    )
    assert {"reverse", "forward", "dot"} <= _names(both)


def test_modes_that_disagree_fail_the_dot_test() -> None:
    x = np.random.default_rng(0).normal(size=50)
    report = check_gradients(
        np.sin, x, vjp=lambda x, ct: (ct * np.cos(x),), jvp=lambda p, t: 1.5 * np.cos(p[0]) * t[0]
    )
    assert {"forward", "dot"} <= _names(report, "WRONG")


def test_argnums_and_none() -> None:
    x, y = np.linspace(1, 2, 3), np.linspace(2, 3, 3)
    assert check_gradients(lambda x, y: x * np.floor(y + 0.5), x, y, argnums=0).ok
    report = check_gradients(lambda x, y: x + 0 * y, x, y, vjp=lambda x, y, ct: (ct, None))
    assert report.ok


def test_the_report() -> None:
    report = check_gradients(_layer, *_points(), seed=3)
    loaded = json.loads(report.to_json())
    assert loaded["verdict"] == "PASS" and loaded["ok"] is True and loaded["seed"] == 3
    assert loaded["evaluations"] == report.evaluations > 0
    assert report.raise_if_failed() is report and bool(report)
    wrong = check_gradients(np.sin, np.ones(3), vjp=lambda x, ct: (ct,))
    with pytest.raises(GradientError) as caught:
        wrong.raise_if_failed()
    assert caught.value.report is wrong
    assert len(str(wrong).splitlines()) <= 25


def test_the_seed_decides_the_directions() -> None:
    def detail(seed: int | None) -> str:
        return check_gradients(_layer, *_points(), seed=seed).checks[0].detail

    state = np.random.get_state()[1].copy()  # type: ignore[index]
    assert detail(None) == detail(None) and detail(1) != detail(2)
    assert np.array_equal(np.random.get_state()[1], state)  # type: ignore[index]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"order": 4}, "order=4 is not checked"),
        ({"modes": ("sideways",)}, "there is no mode 'sideways'"),
        ({"modes": ()}, "no mode was asked for"),
        ({"allow": ("kink",)}, "did you mean 'kinks'"),
        ({"argnums": 2}, "argnums=2, but _layer was given 2 arguments"),
        ({"gradient": lambda x, w: x}, "gradient= is for a scalar function"),
    ],
)
def test_mistakes_are_named(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError) as caught:
        check_gradients(_layer, *_points(), **kwargs)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3


def test_integers_are_held_fixed_and_said_to_be() -> None:
    report = check_gradients(lambda x, n: x * n, np.linspace(1, 2, 3), np.arange(3))
    assert report.ok and "held fixed: n (int64)" in report.notes


def test_a_function_comes_first() -> None:
    with pytest.raises(TargetError, match="3 is not a function"):
        check_gradients(3, np.ones(2))  # type: ignore[arg-type]


def test_nothing_to_differentiate() -> None:
    with pytest.raises(TargetError, match="was given int64"):
        check_gradients(np.sum, np.arange(3))


def test_an_unknown_framework() -> None:
    with pytest.raises(FrameworkError, match="did you mean 'torch'"):
        check_gradients(np.sum, np.ones(3), framework="troch")


def test_a_batching_rule_that_mixes_rows_is_wrong() -> None:
    from autodiff.op import OPS
    from checks.power.inject import mutated

    right = OPS["SIN"].batch
    assert right is not None

    def mixed(size: int, args: Any, batched: Any, **params: Any) -> Any:
        out, flag = right(size, args, batched, **params)
        return np.flip(out, 0), flag

    with mutated("SIN", batch=mixed):
        report = check_gradients(np.sin, np.linspace(0.1, 1, 5))
    assert report.verdict == "WRONG"
    assert {c.name for c in report.checks if c.verdict == "WRONG"} == {"vmap"}
    assert "vmap gives" in next(c.detail for c in report.checks if c.name == "vmap")


def test_a_pullback_wrong_for_sparse_cotangents_only_fails_the_jacobian() -> None:
    def vjp(x: Array, ct: Array) -> Array:
        return ct * np.cos(x) * (1.01 if np.count_nonzero(ct) == 1 else 1.0)

    x = np.linspace(0.3, 1.2, 7)
    report = check_gradients(np.sin, x, vjp=vjp)
    assert {c.name for c in report.checks if c.verdict == "WRONG"} == {"jacobian"}
    assert report.worst is not None and report.worst.ratio == pytest.approx(1.01, rel=1e-6)
    assert check_gradients(np.sin, x, vjp=vjp, full=False).ok  # probes are dense


def test_the_composition_that_is_off_is_blamed_and_not_the_others() -> None:
    from checks.gradients.higher import _agreement
    from checks.gradients.target import Target

    target = Target("f", framework("numpy"), np.sin, (np.ones(2),))
    found = {"forward over forward": 1.01, "reverse over forward": 1.0, "forward over reverse": 1.0}
    checks = _agreement(target, found, "second")
    assert {c.name: c.verdict for c in checks} == {
        "second: forward over forward": "WRONG",
        "second: forward over reverse": "PASS",
    }
