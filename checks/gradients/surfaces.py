"""Surfaces of one framework: compiled against eager, float32 against float64.

Both compare values and gradients of one target on two roads. What differs is held against the
surface's tolerance of the largest entry, or against what rounding the arguments does to the same
numbers, where that is more.
"""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.forward import is_inexact
from checks.gradients.evidence import Evidence
from checks.gradients.framework import Flat, Native
from checks.gradients.inside import of_one_road
from checks.gradients.modes import ModeError, UndefinedModeError, first_line, modes_of, natives_like
from checks.gradients.report import (
    DOMAIN,
    PASS,
    UNDEFINED,
    WRONG,
    WRONG_DTYPE,
    WRONG_SHAPE,
    Check,
    Worst,
)
from checks.gradients.target import Tally, Target, size_of, unit_of, wide
from checks.tolerances import constant, lookup

Array = np.ndarray[Any, Any]
Read = Callable[[], list[Array]]
PROBES = 2
ROADS = {"numpy": "execute", "jax": "jit", "torch": "compile"}


@dataclasses.dataclass(frozen=True)
class Found:
    """One array on two roads.

    Arguments:
        name: "result 0", "the gradient of x".
        got, want: the array on the road under test and on the other.
        spread: what rounding the arguments does to it `()`.
        tolerance: of its largest entry.
        floor: what is round-off in each entry, whatever the others are.
        argument: the path of the argument, for a gradient.
    """

    name: str
    got: Array
    want: Array
    spread: float
    tolerance: float
    floor: Array | float = 0.0
    argument: str = ""


def framework_checks(target: Target, backend: str = "inductor") -> list[Check]:
    """Compiled against eager (`ad.compile`, `jax.jit`, `torch.compile`), then float32 against
    float64; a road that does not exist for the function is NOT_DEFINED, with the reason.

    Arguments:
        target: the function at its point.
        backend: of `torch.compile`.
    """
    with target.scope(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user saw them in the eager calls
        return [compiled_check(target, backend), narrow_check(target)]


# --- compiled ------------------------------------------------------------------------------


def compiled_check(target: Target, backend: str = "inductor") -> Check:
    """Values and gradients of the compiled function against those of the eager one."""
    name = ROADS[target.framework.name]
    cotangents = target.cotangents(name)
    try:
        values, gradient = _compiled(target, backend, cotangents)
        got = values()
    except Exception as error:
        return Check(name, UNDEFINED, detail=_reason(error))
    spread = _Spread(target, cotangents)
    found = _results(target, got, target.centre, spread.of_values(target.unit), _compiled_tolerance)
    pulled = None if target.manual.given else _gradients(target, cotangents)
    if pulled is not None:
        try:
            compiled = gradient()
        except Exception as error:
            return Check(name, UNDEFINED, detail=_reason(error))
        found += _arguments(spread, compiled, pulled, target.unit, _compiled_tolerance)
    return of_one_road(target, _judged(name, found, name, "eager"))


def _compiled(target: Target, backend: str, cotangents: Sequence[Array]) -> tuple[Read, Read]:
    """Readers of the compiled function's results and of its gradients."""
    natives = target.native(target.points)
    cts = natives_like(target, cotangents, target.centre)
    framework = target.framework
    if framework.name == "torch":
        from checks.gradients.frameworks.torch import compiled_function

        inner = compiled_function(target.function, backend)
        other = dataclasses.replace(target, function=inner, tally=Tally())
        other.__dict__.update(first=target.first, smooth=target.smooth)
        values: Flat = other.flat
        gradient = _pulled(other)
    else:
        values, gradient = _whole(target, target.flat), _whole(target, _pulled(target))
    return (
        lambda: [target.to_numpy(y) for y in values(natives)],
        lambda: [np.asarray(target.to_numpy(g)) for g in gradient([*natives, *cts])],
    )


def _whole(target: Target, flat: Flat) -> Flat:
    """A flat function compiled as a whole."""
    if target.framework.name == "jax":
        from checks.gradients.frameworks.jax import compiled

        return compiled(flat)
    import autodiff as ad

    fast = ad.compile(lambda *arrays: list(flat(arrays)))
    return lambda arrays: list(fast(*arrays))


def _pulled(target: Target) -> Flat:
    """The gradient as a flat function of points and cotangents."""

    def gradient(arrays: Sequence[Native]) -> list[Native]:
        points, cts = arrays[: len(target.points)], arrays[len(target.points) :]
        _, pull = target.framework.vjp(target.flat, points)
        return [x * 0 if g is None else g for x, g in zip(points, pull(cts), strict=True)]

    return gradient


def _compiled_tolerance(dtype: np.dtype[Any]) -> float:
    surface = "emit_f64" if unit_of(dtype) <= constant("narrow_unit") else "emit_f32"
    return lookup(surface, dtype).value


# --- float32 -------------------------------------------------------------------------------


def narrow_check(target: Target) -> Check:
    """Values and gradients at float32 arguments against those at the same numbers in float64.

    Arguments that are narrower than float64 already keep their dtypes on the narrow road.
    """
    unfit = _unfit(target)
    if unfit:
        return Check("f32", UNDEFINED, detail=unfit)
    narrow = _at(target, _narrowed)
    broad = _at(target, lambda a: _widened(_narrowed(a)))
    unit = max(unit_of(_narrowed(x).dtype) for x in target.points)
    try:
        cts = [
            np.asarray(np.asarray(u, y.dtype), w.dtype)
            for u, y, w in zip(broad.cotangents("f32"), narrow.centre, broad.centre, strict=True)
        ]
        spread = _Spread(broad, cts)
        found = _results(
            target, narrow.centre, broad.centre, spread.of_values(unit), _narrow_tolerance
        )
        pulled = _gradients(broad, cts)
        if pulled is not None:
            mine = [np.asarray(u, y.dtype) for u, y in zip(cts, narrow.centre, strict=True)]
            reverse = modes_of(narrow, ("reverse",)).reverse
            assert reverse is not None
            found += _arguments(spread, reverse(mine), pulled, unit, _narrow_tolerance)
    except Exception as error:
        verdict = error.verdict if isinstance(error, ModeError) else UNDEFINED
        return Check("f32", verdict, detail=_reason(error))
    return _judged("f32", found, _dtypes(narrow.points), "float64")


def _narrowed(a: Array) -> Array:
    """float64 in float32 (complex likewise); other arrays as they are."""
    small = {"float64": np.float32, "complex128": np.complex64}.get(a.dtype.name)
    return a if small is None else a.astype(small)


def _widened(a: Array) -> Array:
    return wide(a) if is_inexact(a.dtype) else a


def _at(target: Target, cast: Callable[[Array], Array]) -> Target:
    """The same call at arguments of other dtypes, counted on its own."""
    own: list[Any] = list(target.leaves)
    leaves = [
        target.framework.native(cast(leaf), original) if isinstance(leaf, np.ndarray) else original
        for leaf, original in zip(own, target.originals, strict=True)
    ]
    treedef = tree.flatten(target.args)[1]
    args = tuple(tree.unflatten(treedef, leaves))
    return dataclasses.replace(target, args=args, tally=Tally(), replay=None)


def _unfit(target: Target) -> str:
    """Why the narrow road says nothing: hand-written derivatives, or numbers it cannot hold."""
    if target.manual.given:
        return "hand-written derivatives are checked at the dtypes given"
    for x, path in zip(target.points, target.point_paths, strict=True):
        small = wide(_narrowed(x))
        tiny = float(np.finfo(np.float32).tiny)
        lost = (np.isinf(small) & np.isfinite(x)) | ((np.abs(small) < tiny) & (x != 0))
        if np.any(lost) and x.dtype.itemsize >= np.dtype(np.float64).itemsize:
            at = [int(i) for i in np.argwhere(np.atleast_1d(lost))[0]]
            value = np.atleast_1d(x)[tuple(at)]
            return f"{path}{at if x.ndim else ''} = {value:.6g} does not exist in float32"
    return ""


def _narrow_tolerance(dtype: np.dtype[Any]) -> float:
    """Of what came out of the narrow road, where wider results are float32 inside."""
    fits = unit_of(dtype) > constant("narrow_unit")
    return lookup("f32", dtype if fits else np.float32).value


def _dtypes(arrays: Sequence[Array]) -> str:
    return ", ".join(sorted({a.dtype.name for a in arrays}))


# --- both ----------------------------------------------------------------------------------


@dataclasses.dataclass
class _Spread:
    """What moving the arguments by a rounding does to results and gradients."""

    target: Target
    cotangents: Sequence[Array]

    def of_values(self, unit: float) -> list[float]:
        """The largest change of each result."""
        moved = [self.target.outputs(points) for points in self._points(unit)]
        return _changes(moved, self.target.centre)

    def of_gradients(self, unit: float) -> list[float]:
        """The largest change of each gradient."""
        target = self.target
        centre = _gradients(target, self.cotangents)
        moved = [_gradients(target, self.cotangents, points) for points in self._points(unit)]
        return _changes([m for m in moved if m is not None], centre or [])

    def _points(self, unit: float) -> list[list[Array]]:
        rng = self.target.rng("rounding")
        return [
            [
                np.asarray(wide(x) * (1 + unit * rng.choice([-1.0, 1.0], x.shape)), x.dtype)
                for x in self.target.points
            ]
            for _ in range(PROBES)
        ]


def _changes(moved: Sequence[Sequence[Array]], centre: Sequence[Array]) -> list[float]:
    changes = []
    for i, c in enumerate(centre):
        off = [float(np.max(np.abs(wide(m[i]) - wide(c)), initial=0.0)) for m in moved]
        changes.append(max((o for o in off if np.isfinite(o)), default=0.0))
    return changes


def _gradients(
    target: Target, cotangents: Sequence[Array], points: Sequence[Array] | None = None
) -> list[Array] | None:
    """Reverse mode at the point, or at others; None where the function has none."""
    try:
        if points is None:
            reverse = modes_of(target, ("reverse",)).reverse
            return None if reverse is None else reverse(cotangents)
        cts = natives_like(target, cotangents, target.centre)
        _, pull = target.framework.vjp(target.flat, target.native(points))
        return [
            np.zeros_like(wide(x)) if g is None else wide(target.to_numpy(g))
            for g, x in zip(pull(cts), target.points, strict=True)
        ]
    except (ModeError, UndefinedModeError):
        return None


Tolerance = Callable[[np.dtype[Any]], float]


def _results(
    target: Target,
    got: Sequence[Array],
    want: Sequence[Array],
    spread: Sequence[float],
    tolerance: Tolerance,
) -> list[Found]:
    return [
        Found(f"result {i}", a, b, s, tolerance(a.dtype))
        for i, a, b, s in zip(target.smooth, got, want, spread, strict=True)
    ]


def _arguments(
    spread: _Spread,
    got: Sequence[Array],
    want: Sequence[Array],
    unit: float,
    tolerance: Tolerance,
) -> list[Found]:
    target = spread.target
    narrowest = max((a.dtype for a in (*got, *target.points, *target.centre)), key=unit_of)
    terms = Evidence(target, list(map(wide, spread.cotangents)), None).size_of(target.centre)
    rounding = constant("vacuous_units") * unit * terms
    floors = [rounding / size_of(x) for x in target.points]
    spreads = spread.of_gradients(unit)
    numbers = zip(target.point_paths, got, want, spreads, floors, strict=True)
    return [
        Found(f"the gradient of {p}", wide(a), wide(b), s, tolerance(narrowest), floor, p)
        for p, a, b, s, floor in numbers
    ]


def _judged(name: str, found: Sequence[Found], road: str, other: str) -> Check:
    """The worst of all arrays: its error and what is allowed, of its largest entry."""
    worst = Check(name, PASS, detail=f"{len(found)} arrays compared")
    for f in found:
        check = _one(name, f, road, other)
        if check.verdict != PASS:
            return check
        if check.error > worst.error or check.allowed > worst.allowed:
            error, allowed = max(check.error, worst.error), max(check.allowed, worst.allowed)
            worst = dataclasses.replace(worst, error=error, allowed=allowed, detectable=allowed)
    return worst


def _one(name: str, f: Found, road: str, other: str) -> Check:
    if f.got.shape != f.want.shape:
        text = f"{f.name} has shape {f.got.shape} ({road}) and {f.want.shape} ({other})"
        return Check(name, WRONG_SHAPE, detail=text)
    if name != "f32" and not f.argument and f.got.dtype != f.want.dtype:
        text = f"{f.name} is {f.got.dtype.name} ({road}) and {f.want.dtype.name} ({other})"
        return Check(name, WRONG_DTYPE, detail=text)
    got, want = wide(f.got), wide(f.want)
    size = float(np.max(np.abs(want[np.isfinite(want)]), initial=0.0)) or 1.0
    allowed = max(f.tolerance, constant("rounding_spread") * f.spread / size)
    same = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= f.floor)
    off = np.where(same, 0.0, np.abs(got - want) / size)
    if np.all(off <= allowed):
        zero = bool(np.all(np.abs(want) <= f.floor))
        return Check(name, PASS, float(np.max(off, initial=0.0)), 0.0 if zero else allowed)
    flat = int(np.argmax(np.where(np.isfinite(off), off, np.inf)))
    at = tuple(int(i) for i in np.unravel_index(flat, off.shape))
    place = f"{f.name}{list(at) if at else ''}"
    text = f"{place}: {road} gives {got[at]:.9g}, {other} {want[at]:.9g}"
    lost = np.isfinite(want[at]) and not np.isfinite(got[at])
    numbers = (got[at].item(), want[at].item(), allowed * size)
    worst = Worst(f.argument, at, *numbers, output="" if f.argument else f.name)
    verdict = DOMAIN if lost and name == "f32" else WRONG
    return Check(name, verdict, float(off[at]), allowed, allowed, text, worst)


def _reason(error: Exception) -> str:
    known = isinstance(error, ModeError | UndefinedModeError)
    return str(error) if known else first_line(error)
