"""Faults that the gradient alone does not show: swapped arguments, sums that are missing, uses of
an argument that were lost, a cotangent read in the wrong order, float32.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from checks.gradients.diagnosis.causes import Fault
from checks.gradients.diagnosis.trial import Trial
from checks.gradients.evidence import Evidence, moved_points
from checks.gradients.ladder import Estimate, Line, climb
from checks.gradients.modes import ModeError, Modes, modes_of
from checks.gradients.target import Target, pair, wide
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
SLICES = 256
ORDERS = 12
LARGEST_TRANSPOSED = 64


def swapped(trial: Trial, wrong: Sequence[int]) -> str | None:
    """Gradients of equal shapes that were given for one another."""
    points, paths = trial.target.points, trial.target.point_paths
    if not 2 <= len(wrong) <= 8:
        return None
    for a, b in itertools.combinations(wrong, 2):
        if points[a].shape == points[b].shape and dtype_kind(points[a]) == dtype_kind(points[b]):
            pair_up = [(a, b), (b, a)]
            if all(trial.holds(k, trial.gradient[j]) for k, j in pair_up):
                rest = [k for k in wrong if k not in (a, b)]
                more = f"; {', '.join(paths[k] for k in rest)} wrong too" if rest else ""
                return f"the gradients of {paths[a]} and {paths[b]} are swapped{more}"
    if len(wrong) == 3 and len({points[k].shape for k in wrong}) == 1:
        for turn in (1, 2):
            moved = [wrong[(i + turn) % 3] for i in range(3)]
            if all(trial.holds(k, trial.gradient[j]) for k, j in zip(wrong, moved, strict=True)):
                given = ", ".join(
                    f"{paths[k]} for {paths[j]}" for k, j in zip(wrong, moved, strict=True)
                )
                return f"the gradients are swapped: given is that of {given}"
    return None


def dtype_kind(x: Array) -> str:
    """The letter c for complex arrays, f for all other floating ones."""
    return "c" if x.dtype.kind == "c" else "f"


def structural(trial: Trial, modes: Modes | None, point: int) -> Fault | None:
    """The first of these faults that explains one point's gradient."""
    if trial.spent or trial.shallow:
        return None
    found = _narrow(trial, point) if trial.narrow_claim else None
    found = found or _missing_sum(trial, point) or _expanded(trial, point)
    if found is None and modes is not None and modes.reverse is not None:
        found = _cotangent(trial, modes, point) or _jacobian(trial, modes, point)
    if found is None:
        from checks.gradients.diagnosis.uses import lost_use

        found = lost_use(trial, point)
    return found


# --- a missing sum -------------------------------------------------------------------------


def _missing_sum(trial: Trial, point: int) -> Fault | None:
    """The claim equals the gradient of one slice of a result: the sum over that axis is missing."""
    slices = list(_slices(trial.evidence))
    if not slices or trial.evidence.cotangents is None:
        return None
    chosen: int | None = None
    for number in (0, 1):
        base = trial.fresh(point, number)
        found = _read(trial, base.direction, [masked for _, masked in slices])
        limit = np.maximum(found.allowed, trial.evidence.tolerance * abs(base.claimed))
        fits = (np.abs(found.value - base.claimed) <= limit) & (limit <= abs(base.residual) / 4)
        if chosen is None and np.any(fits):
            chosen = int(np.argmax(fits))
        elif chosen is None or not fits[chosen]:
            return None
    assert chosen is not None
    return Fault("missing sum", f"is that of {slices[chosen][0]}")


def _slices(evidence: Evidence) -> Iterator[tuple[str, list[Array]]]:
    """Cotangents kept at one index of an axis of a result, others as they are."""
    target, us = evidence.target, list(map(wide, evidence.cotangents))
    made = 0
    for r, u in enumerate(us):
        name = "the result" if len(us) == 1 else f"result {target.smooth[r]}"
        for axis, n in enumerate(u.shape):
            for i in range(n) if 1 < n <= SLICES else ():
                made += 1
                if made > SLICES:
                    return
                kept = np.zeros_like(u)
                at = (slice(None),) * axis + (i,)
                kept[at] = u[at]
                text = (
                    f"index {i} of axis {axis} of {name} alone: the sum over that axis is missing"
                )
                yield text, [kept if k == r else v for k, v in enumerate(us)]


def _read(trial: Trial, direction: Sequence[Array], kept: Sequence[Sequence[Array]]) -> Estimate:
    """One ladder along a direction, read by several cotangents."""
    target = trial.target
    centre = [wide(y) for y in target.centre]

    def readings(outs: list[Array]) -> Array:
        return np.array([pair(us, outs) for us in kept])

    size = np.array(
        [
            sum(float(np.sum(np.abs(u * y) ** 2)) for u, y in zip(us, centre, strict=True)) ** 0.5
            for us in kept
        ]
    )
    line = Line(
        at=lambda h: [wide(y) for y in target.outputs(moved_points(target, direction, h))],
        centre=centre,
        readings=readings,
        size=size,
        scale=np.zeros_like(size),
        unit=target.unit,
    )
    return climb(line)


def _expanded(trial: Trial, point: int) -> Fault | None:
    """The claim equals the gradient of one copy of an argument that is broadcast: the function is
    called with the argument repeated along a new axis, and one copy moved.
    """
    target = trial.target
    x = target.points[point]
    if trial.is_narrow:
        return None
    leaves: list[Any] = list(target.leaves)
    lengths = {
        n: f"axis {a} of {path}"
        for path, leaf in reversed(list(zip(target.paths, leaves, strict=True)))
        if isinstance(leaf, np.ndarray)
        for a, n in enumerate(leaf.shape)
        if n > 1 and leaf.size
    }
    for n, text in list(lengths.items())[:4]:
        shapes = [(n, *x.shape)]
        shapes += [(*x.shape[:a], n, *x.shape[a + 1 :]) for a, m in enumerate(x.shape) if m == 1]
        for shape in shapes:
            axis = (
                0
                if len(shape) > x.ndim
                else next(a for a, m in enumerate(x.shape) if m != shape[a])
            )
            if not _takes(target, point, np.broadcast_to(x, shape)):
                continue
            for i in (0, n - 1):
                if _copy_fits(trial, point, shape, axis, i):
                    which = "first" if i == 0 else "last"
                    what = f"is that of the {which} of {n} copies alone ({text}): "
                    return Fault("missing sum", what + "the sum over a broadcast axis is missing")
    return None


def _takes(target: Target, point: int, value: Array) -> bool:
    """Whether the function takes an argument of another shape and returns the same."""
    try:
        outs = target.outputs([value if k == point else p for k, p in enumerate(target.points)])
    except Exception:  # a function may refuse a shape it was not written for, in its own way
        return False
    centre = target.centre
    return len(outs) == len(centre) and all(
        a.shape == b.shape and np.allclose(a, b, rtol=constant("factor_sharp"), equal_nan=True)
        for a, b in zip(outs, centre, strict=True)
    )


def _copy_fits(trial: Trial, point: int, shape: tuple[int, ...], axis: int, i: int) -> bool:
    target, evidence = trial.target, trial.evidence
    x = target.points[point]
    full = np.array(np.broadcast_to(x, shape))
    at = (slice(None),) * axis + (slice(i, i + 1) if len(shape) == x.ndim else i,)
    for number in (0, 1):
        base = trial.fresh(point, number)
        v = base.direction[point]

        def outputs(h: float, v: Array = v) -> list[Array]:
            moved = full.copy()
            moved[at] = np.asarray(wide(x) + h * v, x.dtype)
            points = [moved if k == point else p for k, p in enumerate(target.points)]
            return [wide(y) for y in target.outputs(points)]

        line = dataclasses.replace(evidence.line(base.direction), at=outputs)
        found = climb(line)
        off = abs(float(found.value[0]) - base.claimed)
        limit = max(float(found.allowed[0]), evidence.tolerance * abs(base.claimed))
        if not off <= limit <= abs(base.residual) / 4:
            return False
    return True


# --- the cotangent read in another order ---------------------------------------------------


def _cotangent(trial: Trial, modes: Modes, point: int) -> Fault | None:
    """The claim is right for a cotangent in another order: reversed, shifted, transposed."""
    assert modes.reverse is not None
    us = list(trial.evidence.cotangents)
    if any(u.dtype.kind == "c" for u in us):
        turned = wide(np.conj(modes.reverse(_typed(trial, list(map(np.conj, us))))[point]))
        if trial.holds(point, turned):
            text = "is made with the complex conjugate of the true derivative"
            return Fault("conjugated", text, turned)
    tried = 0
    for r, u in enumerate(us):
        name = (
            "the cotangent" if len(us) == 1 else f"the cotangent of result {trial.target.smooth[r]}"
        )
        for kind, text, new in _orders(u):
            tried += 1
            if tried > ORDERS or trial.spent:
                return None
            cts = [
                np.asarray(new if k == r else c, y.dtype)
                for k, (c, y) in enumerate(zip(us, trial.target.centre, strict=True))
            ]
            gradient = modes.reverse(cts)[point]
            if np.all(np.isfinite(gradient)) and trial.holds(point, wide(gradient)):
                return Fault(kind, f"reads {name} {text}", wide(gradient))
    return None


def _typed(trial: Trial, us: Sequence[Array]) -> list[Array]:
    """Cotangents in the results' dtypes."""
    return [np.asarray(u, y.dtype) for u, y in zip(us, trial.target.centre, strict=True)]


def _orders(u: Array) -> Iterator[tuple[str, str, Array]]:
    if u.dtype.kind == "c":
        yield "conjugated", "conjugated", np.conj(u)
    if u.ndim >= 2 and u.shape[-1] == u.shape[-2]:
        yield "transposed", "transposed", np.swapaxes(u, -1, -2)
    elif u.ndim == 2:
        yield "transposed", "transposed", u.T.reshape(u.shape)
    for axis, n in enumerate(u.shape):
        if n > 1:
            of = f" along axis {axis}" if u.ndim > 1 else ""
            yield "reversed", f"reversed{of}", np.flip(u, axis)
            yield "shifted", f"shifted by 1{of}", np.roll(u, 1, axis)
            yield "shifted", f"shifted by -1{of}", np.roll(u, -1, axis)


def _jacobian(trial: Trial, modes: Modes, point: int) -> Fault | None:
    """The claim is `J u` where it should be `J^T u`: `J` may be square and given transposed."""
    assert modes.reverse is not None
    us, x, centre = trial.evidence.cotangents, trial.target.points[point], trial.target.centre
    if len(us) != 1 or us[0].size != x.size or not 1 < x.size <= LARGEST_TRANSPOSED:
        return None
    if "c" in (x.dtype.kind, us[0].dtype.kind):
        return None
    u = np.ravel(us[0])
    basis = np.eye(x.size, dtype=centre[0].dtype).reshape(x.size, *centre[0].shape)
    rows = np.stack([np.ravel(modes.reverse([b])[point]) for b in basis])
    claim, blur = np.ravel(trial.gradient[point]), constant("factor_sharp")
    if not np.allclose(u @ rows, claim, rtol=blur, atol=blur * float(np.max(np.abs(claim)))):
        return None  # not even linear
    if np.allclose(rows, rows.T, rtol=blur, atol=blur * float(np.max(np.abs(rows)))):
        return None  # nothing to transpose
    new = rows @ u
    if not np.all(np.isfinite(new)) or not trial.holds(point, new.reshape(x.shape)):
        return None
    return Fault("transposed", "is made with the transposed Jacobian", new.reshape(x.shape))


# --- float32 -------------------------------------------------------------------------------


def _narrow(trial: Trial, point: int) -> Fault | None:
    """Right where the same derivative runs at float64."""
    made = modes_of(trial.target, ("reverse",))
    if made.reverse is None:
        return None
    try:
        gradient = wide(made.reverse(_typed(trial, trial.evidence.cotangents))[point])
    except ModeError:  # a hand-written derivative that knows float32 alone
        return None
    if not np.all(np.isfinite(gradient)) or not trial.holds(point, gradient):
        return None
    return Fault("float32", "is off in narrow arithmetic only: at float64 it is right", gradient)
