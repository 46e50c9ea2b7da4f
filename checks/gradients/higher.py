"""Orders two and three: the same check applied to the derivative, in every composition of modes.

The function of order k is the gradient of `loss_k`; `loss_1` is a scalar of the results that is
linear in none of them, and `loss_(k+1) = <grad loss_k, v_k>`.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from checks.gradients.evidence import Evidence
from checks.gradients.first import first_order
from checks.gradients.framework import Flat, Native
from checks.gradients.inside import coarsest_inside
from checks.gradients.modes import ModeError, UndefinedModeError, guarded, modes_of
from checks.gradients.report import INCONCLUSIVE, PASS, UNDEFINED, VACUOUS, WRONG, Check
from checks.gradients.target import Tally, Target, TargetError, normal
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
ORDINALS = {2: "second", 3: "third"}
WORDS = {"f": "forward", "r": "reverse"}


def higher_orders(
    target: Target, order: int, modes: Sequence[str], tolerance: float | None, notes: list[str]
) -> tuple[list[Check], list[Evidence]]:
    """The checks of orders 2 to `order`, and the evidence of those that failed."""
    if order < 2:
        return [], []
    if target.manual.given:
        text = "a hand-written derivative says nothing of higher orders"
        return [Check("second", UNDEFINED, detail=text)], []
    if any(a.dtype.kind == "c" for a in (*target.points, *target.centre)):
        text = "higher orders are checked for real arguments and results"
        return [Check("second", UNDEFINED, detail=text)], []
    checks: list[Check] = []
    failed: list[Evidence] = []
    loss, directions = _loss(target), [_natives_of(target, f"order {k}") for k in range(order)]
    for k in range(2, order + 1):
        new, wrong = _one_order(target, loss, directions[: k - 1], k, modes, tolerance, notes)
        checks += new
        failed += wrong
        if any(c.verdict == WRONG for c in new):
            break
        checks += _compositions(target, loss, directions[:k], k, modes)
    return checks, failed


def _natives_of(target: Target, purpose: str) -> list[Native]:
    return target.native(target.direction(purpose))


def _loss(target: Target) -> Flat:
    """`<w, y> + <v, y * y> / 2` of the results over their size."""
    made = []
    original = target.originals[target.positions[0]]
    for i, y in enumerate(target.centre):
        size = max(float(np.max(np.abs(y), initial=0.0)), float(np.finfo(np.float32).tiny))
        w, v = (normal(target.rng(f"loss {i} {part}"), y) for part in "wv")
        weights = (w / size, v / size**2 / 2)
        made.append([target.framework.native(np.asarray(a, y.dtype), original) for a in weights])

    def loss(arrays: Sequence[Native]) -> list[Native]:
        total: Any = 0.0
        for y, (w, v) in zip(target.flat(arrays), made, strict=True):
            total = total + (y * w).sum() + (y * y * v).sum()
        return [total]

    return loss


def gradient_of(target: Target, scalar: Flat) -> Flat:
    """The gradient of a scalar flat function, as a flat function; None is zero."""

    def gradient(arrays: Sequence[Native]) -> list[Native]:
        outs, pull = target.framework.vjp(scalar, arrays)
        one = outs[0] * 0 + 1
        found = pull([one])
        return [a * 0 if g is None else g for g, a in zip(found, arrays, strict=True)]

    return gradient


def slope_of(target: Target, scalar: Flat, direction: Sequence[Native], mode: str) -> Flat:
    """The directional derivative of a scalar flat function by one mode, as a flat function."""
    if mode == "f":

        def forward(arrays: Sequence[Native]) -> list[Native]:
            return [target.framework.jvp(scalar, arrays, direction)[1][0]]

        return forward
    gradient = gradient_of(target, scalar)

    def reverse(arrays: Sequence[Native]) -> list[Native]:
        terms = [(g * t).sum() for g, t in zip(gradient(arrays), direction, strict=True)]
        return [sum(terms[1:], terms[0])]

    return reverse


def _one_order(
    target: Target,
    loss: Flat,
    directions: Sequence[Sequence[Native]],
    order: int,
    modes: Sequence[str],
    tolerance: float | None,
    notes: list[str],
) -> tuple[list[Check], list[Evidence]]:
    """The gradient of the order below, checked as a function of first order."""
    scalar = loss
    for direction in directions[: order - 2]:
        scalar = slope_of(target, scalar, direction, "r")
    name = ORDINALS[order]
    try:
        with guarded(target):
            derived = _derived(target, gradient_of(target, scalar), name)
            checks, failed = first_order(derived, modes_of(derived, modes), tolerance, notes)
    except (ModeError, UndefinedModeError) as error:
        verdict = error.verdict if isinstance(error, ModeError) else UNDEFINED
        return [Check(name, verdict, detail=str(error))], []
    target.tally.derivatives += derived.tally.calls + derived.tally.derivatives
    return [_renamed(c, name) for c in checks], failed


def _renamed(check: Check, name: str) -> Check:
    verdict = PASS if check.verdict == VACUOUS else check.verdict  # a linear function has none
    known = {"reverse": "reverse over reverse", "forward": "forward over reverse"}
    return dataclasses.replace(
        check, name=f"{name}: {known.get(check.name, check.name)}", verdict=verdict
    )


def _derived(target: Target, gradient: Flat, name: str) -> Target:
    """The gradient as a target of its own, replayed where the framework can."""
    arrays = target.native(target.points)
    replay = target.framework.replay(gradient, arrays)

    def function(*points: Native) -> list[Native]:
        return gradient(points)

    return Target(
        name=f"{target.name} ({name} order)",
        framework=target.framework,
        function=function,
        args=tuple(arrays),
        symmetric=tuple(sorted(target.symmetric_points)),
        seed=target.seed,
        tally=Tally(),
        names=tuple(target.point_paths),
        replay=replay,
    )


def _compositions(
    target: Target,
    loss: Flat,
    directions: Sequence[Sequence[Native]],
    order: int,
    modes: Sequence[str],
) -> list[Check]:
    """Every sequence of modes gives the same directional derivative of that order.

    Reverse throughout is left to `_one_order`, which holds it against differences and, by the dot
    test, against forward over reverse.
    """
    letters = [m[0] for m in ("forward", "reverse") if m in modes]
    found: dict[str, float] = {}
    checks: list[Check] = []
    for sequence in itertools.product(letters, repeat=order):
        if "f" in letters and "f" not in sequence:
            continue
        name = " over ".join(WORDS[m] for m in reversed(sequence))
        try:
            with guarded(target):
                found[name] = _composed(target, loss, directions, sequence)
        except (ModeError, UndefinedModeError) as error:
            checks.append(Check(f"{ORDINALS[order]}: {name}", UNDEFINED, detail=str(error)))
    return [*checks, *_agreement(target, found, ORDINALS[order])]


def _composed(
    target: Target, loss: Flat, directions: Sequence[Sequence[Native]], sequence: Sequence[str]
) -> float:
    scalar = loss
    for direction, mode in zip(directions, sequence, strict=True):
        scalar = slope_of(target, scalar, direction, mode)
    target.tally.derivatives += 1
    return float(target.to_numpy(scalar(target.native(target.points))[0]))


def _agreement(target: Target, found: dict[str, float], ordinal: str) -> list[Check]:
    """Each composition against the one most others agree with (of equals, the first)."""
    if len(found) < 2:
        return []
    size = max(abs(v) for v in found.values()) or 1.0
    allowed = constant("composition_tolerance")
    if target.unit > constant("narrow_unit"):
        allowed = max(allowed, constant("narrow_units") ** 2 * target.unit)

    def supporters(name: str) -> int:
        return sum(abs(v - found[name]) <= allowed * size for v in found.values())

    reference = max(found, key=supporters)
    value, checks = found[reference], []
    for name, other in found.items():
        if name == reference:
            continue
        error = abs(other - value) / size
        verdict = PASS if error <= allowed else WRONG
        text = f"{name} {other:.9g}, {reference} {value:.9g}"
        if verdict == WRONG and coarsest_inside(target)[0]:
            verdict, text = INCONCLUSIVE, f"{text}; narrow arithmetic inside"
        checks.append(Check(f"{ordinal}: {name}", verdict, error, allowed, allowed, text))
    return checks


def check_order(order: int, name: str) -> None:
    """Raise TargetError for an order that is not 1, 2 or 3."""
    if order not in (1, 2, 3):
        raise TargetError(
            f"order={order!r} is not checked",
            f"in check_gradients({name}, ...)",
            "use 1, 2 or 3",
        )


__all__ = ["check_order", "gradient_of", "higher_orders"]
