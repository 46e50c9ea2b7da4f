"""vmap against a loop over distinct rows: the function, and its gradient."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from checks.gradients.framework import Flat, Native
from checks.gradients.inside import of_one_road
from checks.gradients.modes import ModeError, UndefinedModeError, guarded, natives_like
from checks.gradients.report import PASS, UNDEFINED, WRONG, WRONG_DTYPE, WRONG_SHAPE, Check
from checks.gradients.target import Target, unit_of, wide
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
Axes = tuple[int | None, ...]
ROWS = 3


def batch_checks(target: Target) -> list[Check]:
    """vmap of the function over all arguments and over each alone, and vmap of its gradient."""
    if target.manual.given:
        return []
    checks = []
    for axes in _combinations(len(target.points)):
        name = "vmap" if None not in axes else f"vmap, in_axes {axes}"
        checks.append(_guarded(target, name, target.flat, axes))
        if checks[-1].verdict == UNDEFINED:
            return checks
    everything: Axes = (0,) * len(target.points)
    checks.append(_guarded(target, "vmap of grad", _pulled(target), everything))
    return checks


def _combinations(count: int) -> list[Axes]:
    """All arguments mapped; each alone where there are two to four."""
    alone: list[Axes] = []
    if 1 < count <= 4:
        alone = [tuple(0 if i == j else None for j in range(count)) for i in range(count)]
    return [(0,) * count, *alone]


def _pulled(target: Target) -> Flat:
    """The gradient for fixed random cotangents, as a flat function."""
    cts = natives_like(target, target.cotangents("vmap"), target.centre)

    def gradient(arrays: Sequence[Native]) -> list[Native]:
        _, pull = target.framework.vjp(target.flat, arrays)
        return [a * 0 if g is None else g for g, a in zip(pull(cts), arrays, strict=True)]

    return gradient


def rows(x: Array, count: int = ROWS) -> list[Array]:
    """Distinct rows made of one array, inside its domain."""
    return [np.asarray(wide(x) * (1.0 + 0.01 * b), x.dtype) for b in range(count)]


def _guarded(target: Target, name: str, flat: Flat, axes: Axes) -> Check:
    try:
        with guarded(target):
            return of_one_road(target, _compare(target, name, flat, axes))
    except UndefinedModeError as error:
        return Check(name, UNDEFINED, detail=str(error))
    except ModeError as error:
        return Check(name, error.verdict, detail=str(error))


def _compare(target: Target, name: str, flat: Flat, axes: Axes) -> Check:
    made = [
        rows(x) if a is not None else [x] * ROWS for x, a in zip(target.points, axes, strict=True)
    ]
    stacked = [
        np.stack(r) if a is not None else x
        for r, a, x in zip(made, axes, target.points, strict=True)
    ]
    natives = [
        target.framework.native(s, target.originals[i])
        for s, i in zip(stacked, target.positions, strict=True)
    ]
    batched = target.framework.vmap(flat, axes)(natives)
    single = [target.native([r[b] for r in made]) for b in range(ROWS)]
    one = flat
    if target.replay is not None:  # a loop of JAX, compiled at every call of the function's own
        own = flat == target.flat
        one = target.replay if own else target.framework.replay(flat, single[0])
    loop = [one(arrays) for arrays in single]
    worst: Check | None = None
    for i, got in enumerate(batched):
        want = np.stack([target.to_numpy(row[i]) for row in loop])
        found = _pair(name, i, target.to_numpy(got), want)
        if found.verdict == WRONG and np.isfinite(found.error):
            found = _beyond_rounding(found, want, functools.partial(_nudged, target, one, made, i))
        if worst is None or found.verdict != PASS or found.error > worst.error:
            worst = found
        if found.verdict != PASS:
            break
    return worst or Check(name, UNDEFINED, detail="no result")


def _nudged(target: Target, one: Flat, made: Sequence[Sequence[Array]], i: int) -> list[Array]:
    """Result i of the loop where every number of the rows is moved to the next one up, and down."""
    found = []
    for towards in (np.inf, -np.inf):
        values = [[_next(r[b], towards) for r in made] for b in range(ROWS)]
        found.append(np.stack([target.to_numpy(one(target.native(v))[i]) for v in values]))
    return found


def _next(x: Array, towards: float) -> Array:
    if x.dtype.kind == "c":
        parts = np.nextafter(x.real, towards) + 1j * np.nextafter(x.imag, towards)
        return np.asarray(parts, x.dtype)
    return np.asarray(np.nextafter(x, np.asarray(towards, x.dtype)))


def _beyond_rounding(found: Check, want: Array, nudged: Callable[[], list[Array]]) -> Check:
    """A difference that stands, or the pass of one that rounding of the arguments explains: sums
    that cancel to almost nothing (the gradient of a norm over two numbers) have few digits.
    """
    size = float(np.max(np.abs(wide(want)), initial=0.0)) or 1.0
    moved = max(float(np.max(np.abs(wide(near) - wide(want)), initial=0.0)) for near in nudged())
    allowed = constant("rounding_spread") * moved / size
    if not found.error <= allowed:
        return found
    text = f"{ROWS} distinct rows; off by no more than arguments one ulp away make it"
    return Check(found.name, PASS, found.error, allowed, allowed, text)


def _pair(name: str, i: int, got: Array, want: Array) -> Check:
    if got.shape != want.shape:
        text = f"result {i} has shape {got.shape}, a loop gives {want.shape}"
        return Check(name, WRONG_SHAPE, detail=text)
    if got.dtype != want.dtype:
        text = f"result {i} is {got.dtype.name}, a loop gives {want.dtype.name}"
        return Check(name, WRONG_DTYPE, detail=text)
    size = float(np.max(np.abs(wide(want)), initial=0.0)) or 1.0
    unit = unit_of(want.dtype)
    narrow = unit > constant("narrow_unit")
    allowed = constant("narrow_units") * unit if narrow else constant("vmap_tolerance")
    off = np.abs(wide(got) - wide(want)) / size
    same = (wide(got) == wide(want)) | (np.isnan(wide(got)) & np.isnan(wide(want)))
    off = np.where(same, 0.0, off)
    error = float(np.max(off, initial=0.0))
    if np.all(off <= allowed):
        return Check(name, PASS, error, allowed, allowed, f"{ROWS} distinct rows")
    at = [
        int(k) for k in np.unravel_index(int(np.argmax(np.nan_to_num(off, nan=np.inf))), off.shape)
    ]
    text = f"result {i}{at}: vmap gives {got[tuple(at)]:.9g}, a loop {want[tuple(at)]:.9g}"
    return Check(name, WRONG, error, allowed, allowed, text)
