"""The options of `check_gradients`: what they accept, and what a refusal says."""

import functools
from typing import Any

import numpy as np
import pytest

from checks.gradients.check import check_gradients
from checks.gradients.naming import framework_of
from checks.gradients.target import TargetError

X = np.array([0.3, 1.2, -0.4])
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "argnums, a name": ({"argnums": "x"}, "argnums='x' is not a position", "argnums=0"),
    "argnums, a fraction": ({"argnums": 1.5}, "argnums=1.5 is not a position", "argnums=0"),
    "argnums, a bool": ({"argnums": True}, "argnums=True is not a position", "argnums=0"),
    "argnums, too large": ({"argnums": 3}, "argnums=3, but loss was given 1 argument", "0 and 0"),
    "symmetric, a name": ({"symmetric": "x"}, "symmetric='x' is not a position", "symmetric=0"),
    "tolerance, text": ({"tolerance": "1e-3"}, "tolerance='1e-3' is not a positive", "leave it"),
    "tolerance, negative": ({"tolerance": -1}, "tolerance=-1 is not a positive", "leave it out"),
    "tolerance, NaN": ({"tolerance": np.nan}, "tolerance=nan is not a positive", "leave it out"),
    "seed, text": ({"seed": "a"}, "seed='a' is not an integer", "seed=0"),
    "modes, backward": (
        {"modes": "backward"},
        "there is no mode 'backward'; did you mean 'reverse'?",
        "'forward', 'reverse' or both",
    ),
    "modes, misspelt": (
        {"modes": ("forwrd",)},
        "there is no mode 'forwrd'; did you mean 'forward'?",
        "'forward', 'reverse' or both",
    ),
    "modes, none": ({"modes": ()}, "no mode was asked for", "'forward', 'reverse' or both"),
    "allow, a number": ({"allow": 3}, "allow=3 is not known", "kinks"),
    "vjp, a number": ({"vjp": 3}, "vjp=3 is not a function", "vjp=f"),
    "two claims": (
        {"gradient": lambda x: -np.cos(x), "vjp": lambda x, ct: (ct * np.cos(x),)},
        "vjp= and gradient= claim the same derivative",
        "pass one of them",
    ),
    "a third claim": (
        {
            "gradient": np.cos,
            "jvp": lambda x, t: np.sum(np.cos(x[0]) * t[0]),
            "jac": lambda x: -np.cos(x),
        },
        "jac=, gradient= and jvp= claim the same derivatives",
        "leave jac= out",
    ),
}


def loss(x: Any) -> Any:
    return np.sum(np.sin(x))


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    options, what, fix = REFUSED[case]
    with pytest.raises(TargetError) as caught:
        check_gradients(loss, X, **options)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3 and lines[0].startswith(what), lines
    assert lines[1].startswith("in check_gradients(") and fix in lines[2], lines


def test_one_mode_by_name() -> None:
    report = check_gradients(loss, X, modes="reverse")
    assert report.ok and "forward" not in {c.name for c in report.checks}


def test_two_claims_of_different_modes_are_both_checked() -> None:
    report = check_gradients(loss, X, gradient=np.cos, jac=lambda x: -np.cos(x))
    assert report.verdict == "WRONG"
    assert {c.name: c.verdict for c in report.checks}["reverse"] == "PASS"


def test_again_names_what_was_set() -> None:
    report = check_gradients(loss, X, gradient=np.sin, order=2, tolerance=1e-6, vmap=False)
    assert "gradient=sin, order=2, tolerance=1e-06, vmap=False)" in report.reproduce
    assert check_gradients(loss, X).reproduce == "checks.check_gradients(loss, x)"


def test_an_order_that_could_not_be_checked_is_said() -> None:
    report = check_gradients(loss, X, gradient=np.cos, order=2)
    assert report.verdict == "PASS"
    assert "first order only" in str(report).splitlines()[0]
    assert "not checked the second order, though asked for: a hand-written" in str(report)
    assert "not checked" not in str(check_gradients(loss, X, order=2))


class Called:
    def __call__(self, x: Any) -> Any:
        import torch

        return torch.sum(x)


def test_the_framework_behind_a_partial_and_a_called_object() -> None:
    def scaled(w: float, x: Any) -> Any:
        import torch

        return torch.sum(w * x)

    assert framework_of(functools.partial(scaled, 2.0)) == "torch"
    assert framework_of(Called()) == "torch"
    assert framework_of(np.max) is None
