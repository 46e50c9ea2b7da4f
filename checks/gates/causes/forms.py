"""One activation taken for another: undone by inverting one and applying the other."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from checks.gates.causes.case import Case, figure
from checks.gates.comparison.record import Cause
from checks.gates.formats.statistics import Doubles
from checks.tolerances import constant

_SAMPLE = 1 << 14
_FURTHEST, _POINTS = 48.0, 48001
_LEAST = 4
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


def _relu(x: Any) -> Any:
    return np.maximum(x, 0)


def _same(x: Any) -> Any:
    return x


FORMS: dict[str, Form] = {
    "gelu (erf form)": _gelu,
    "gelu (tanh form)": _gelu_tanh,
    "gelu (sigmoid form)": _gelu_sigmoid,
    "silu": _silu,
}
# What a candidate may have instead, besides; those that rise, or fall nowhere, hide no branch.
OTHERS: dict[str, Form] = FORMS | {
    "relu": _relu,
    "tanh": np.tanh,
    "sigmoid": special.expit,
    "no activation": _same,
}


def formed(case: Case) -> Cause | None:
    """Return which activation the candidate has where the reference has another."""
    r, c = _sampled(case)
    if r.size < _LEAST or not np.any(r > 0):
        return None
    return _applied(case, r, c) or _bounded(case, r, c) or _with_bias(case)


def _applied(case: Case, r: Doubles, c: Doubles) -> Cause | None:
    """The reference is inverted by bisection on both sides of the form's minimum; of the two
    arguments the one that explains the candidate better is taken. That could explain anything, so
    the entries above zero, where there is one argument only, must be explained too.
    """
    if not _rises(r[r > 0], c[r > 0]):
        return None
    for name, form in FORMS.items():
        branches = _inverse(form, r)
        if branches is None:
            continue
        for other, applied in OTHERS.items():
            if other == name:
                continue
            rising, falling = (applied(x) for x in branches)
            nearer = np.abs(falling - c) < np.abs(rising - c)
            made = np.where(nearer & (r < 0), falling, rising)
            small = Case(r, c, case.limit)
            text = f"the candidate is {other} of what the reference is {name} of"
            above = r > 0
            found = small.cause("activation", text, c, made)
            if found and _explains(Case(r[above], c[above], case.limit), made[above]):
                return found
    return None


def _rises(r: Doubles, c: Doubles) -> bool:
    """Whether one is a function of the other that does not fall, but for a few neighbours."""
    ordered = c[np.argsort(r)]
    falls = np.count_nonzero(np.diff(ordered) < -np.finfo(np.float32).eps * np.abs(ordered[1:]))
    return bool(falls <= constant("gate_undone_better") * r.size)


def _explains(case: Case, made: Doubles) -> bool:
    return not np.any(case.c != case.r) or case.left(case.c, made) is not None


def _bounded(case: Case, r: Doubles, c: Doubles) -> Cause | None:
    """The reference is tanh or sigmoid, which rise everywhere."""
    inverses: dict[str, tuple[Form, Doubles, float, float]] = {
        "tanh": (np.arctanh, r, -1.0, 1.0),
        "sigmoid": (special.logit, r, 0.0, 1.0),
    }
    if not _rises(r, c):
        return None
    for name, (inverse, values, low, high) in inverses.items():
        inside = (values > low) & (values < high)
        if not inside.all():
            continue
        x = inverse(values)
        for other, applied in OTHERS.items():
            if other != name:
                text = f"the candidate is {other} of what the reference is {name} of"
                # near its bounds the inverse has few digits: errors weigh as the form's slope
                small = Case(r, c, case.limit)
                if found := small.cause("activation", text, c, applied(x)):
                    return found
    return None


def _with_bias(case: Case) -> Cause | None:
    """The argument of the activation is off by a constant for each entry of the last axis.

    It is told where both sides are above zero, where an activation has one argument.
    """
    width = case.r.shape[-1] if case.r.ndim > 1 else 0
    r, c = case.r.reshape(-1, max(width, 1)), case.c.reshape(-1, max(width, 1))
    if width < 2 or r.shape[0] < _LEAST or r.size > _SAMPLE:
        return None
    above = (r > 0) & (c > 0)
    told = above.sum(axis=0) >= 2
    if np.count_nonzero(above[:, told]) < 2 * np.count_nonzero(told) + _LEAST or not told.any():
        return None
    order = np.argsort(np.where(above, r, np.inf), axis=0)
    ordered = np.take_along_axis(np.where(above, c, np.inf), order, axis=0)
    with np.errstate(invalid="ignore"):
        falls = np.count_nonzero(np.diff(ordered, axis=0) < 0)
    if falls > constant("gate_undone_better") * np.count_nonzero(above):
        return None
    for name, form in FORMS.items():
        x, y = (_inverse(form, np.where(above, v, 1.0)) for v in (r, c))
        if x is None or y is None:
            continue
        by = np.nanmedian(np.where(above, y[0] - x[0], np.nan)[:, told], axis=0)
        seen = above[:, told]
        made = form(x[0][:, told] + by)[seen]
        text = f"an offset for each entry of the last axis before the {name}, from "
        text += f"{figure(by.min())} to {figure(by.max())}: a bias"
        mine, theirs = c[:, told][seen], r[:, told][seen]
        if found := Case(theirs, mine, case.limit).cause("offset per slice", text, mine, made):
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
    grid, made, least = _grid(form)
    slack = np.finfo(np.float32).eps
    if values.size and values.min() < made[least] - slack:
        return None
    rising = _solved(form, values, grid[least:], made[least:])
    return rising, _solved(form, values, grid[least::-1], made[least::-1])


@functools.cache
def _grid(form: Form) -> tuple[Doubles, Doubles, int]:
    """Arguments, what the form makes of them, and where it is least."""
    grid = np.linspace(-_FURTHEST, _FURTHEST, _POINTS)
    made = np.asarray(form(grid))
    return grid, made, int(np.argmin(made))


def _solved(form: Form, values: Doubles, grid: Doubles, made: Doubles) -> Doubles:
    """Where a form that rises along the grid takes `values`: linear in a cell, then two steps with
    the cell's slope, each of which gains the cell's width.
    """
    at = np.clip(np.searchsorted(made, values), 1, grid.size - 1)
    slope = (made[at] - made[at - 1]) / (grid[at] - grid[at - 1])
    slope = np.where(slope == 0, np.inf, slope)
    x = grid[at - 1] + (values - made[at - 1]) / slope
    for _ in range(2):
        x = x + (values - form(x)) / slope
    return x
