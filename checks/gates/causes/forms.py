"""One activation taken for another: undone by inverting one and applying the other."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from checks.gates.causes.case import Case
from checks.gates.formats.statistics import Doubles
from checks.gates.record import Cause

_STEPS = 60
_SAMPLE = 1 << 14
_FURTHEST = 12.0
Form = Callable[[Any], Any]


def _gelu(x: Any) -> Any:
    """GELU: x Phi(x) (Hendrycks and Gimpel, 2016, section 2)."""
    return x * special.ndtr(x)


def _gelu_tanh(x: Any) -> Any:
    """Its tanh form (Hendrycks and Gimpel, 2016, section 2)."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _gelu_sigmoid(x: Any) -> Any:
    """Its sigmoid form (Hendrycks and Gimpel, 2016, section 2)."""
    return x * special.expit(1.702 * x)


def _silu(x: Any) -> Any:
    return x * special.expit(x)


FORMS: dict[str, Form] = {
    "gelu (erf form)": _gelu,
    "gelu (tanh form)": _gelu_tanh,
    "gelu (sigmoid form)": _gelu_sigmoid,
    "silu": _silu,
}


def formed(case: Case) -> Cause | None:
    """Return which activation the candidate has where the reference has another.

    The reference is inverted by bisection on both sides of the form's minimum; of the two
    arguments the one that explains the candidate better is taken. That could explain anything, so
    the entries above zero, where there is one argument only, must be explained too.
    """
    r, c = _sampled(case)
    if r.size < 4 or not np.any(r > 0):
        return None
    for name, form in FORMS.items():
        branches = _inverse(form, r)
        if branches is None:
            continue
        for other, applied in FORMS.items():
            if other == name:
                continue
            rising, falling = (applied(x) for x in branches)
            nearer = np.abs(falling - c) < np.abs(rising - c)
            made = np.where(nearer & (r < 0), falling, rising)
            small = Case(r, c, case.limit)
            text = f"the candidate is {other} of what the reference is {name} of"
            above = r > 0
            found = small.cause("activation", text, c, made)
            if (
                found
                and Case(r[above], c[above], case.limit).left(c[above], made[above]) is not None
            ):
                return found
    return None


def _sampled(case: Case) -> tuple[Doubles, Doubles]:
    r, c = case.r.reshape(-1), case.c.reshape(-1)
    if r.size > _SAMPLE:
        at = np.random.default_rng(0).choice(r.size, _SAMPLE, replace=False)
        r, c = r[at], c[at]
    return r, c


def _inverse(form: Form, values: Doubles) -> tuple[Doubles, Doubles] | None:
    """The arguments right and left of the minimum; None where a value lies below it."""
    grid = np.linspace(-_FURTHEST, 0.0, 24001)
    lowest = float(grid[np.argmin(form(grid))])
    slack = np.finfo(np.float32).eps
    if values.min() < form(lowest) - slack:
        return None
    top = max(_FURTHEST, float(values.max()) + 1)
    rising = _bisected(form, values, lowest, top)
    falling = _bisected(lambda x: -form(x), -values, -4 * _FURTHEST, lowest)
    return rising, falling


def _bisected(form: Form, values: Doubles, low: float, high: float) -> Doubles:
    """Where a rising function takes `values`."""
    a, b = np.full_like(values, low), np.full_like(values, high)
    for _ in range(_STEPS):
        middle = 0.5 * (a + b)
        below = form(middle) < values
        a, b = np.where(below, middle, a), np.where(below, b, middle)
    return 0.5 * (a + b)
