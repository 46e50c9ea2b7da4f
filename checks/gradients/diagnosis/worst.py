"""The worst entry as an entry of the Jacobian: of one result, not of a random combination."""

import dataclasses
from typing import Any

import numpy as np

from checks.gradients.diagnosis.pattern import place
from checks.gradients.evidence import FEW, Direction, Evidence, entries, moved_points
from checks.gradients.locate import Place, alone
from checks.gradients.modes import Modes
from checks.gradients.report import Worst
from checks.gradients.target import size_of, wide
from checks.gradients.verdicts import result_cotangents

Array = np.ndarray[Any, Any]
TRIED = 4
NEAR = 2.0**-16


def of_one_result(evidence: Evidence, modes: Modes, worst: Worst | None) -> Worst | None:
    """The worst entry for the first result that it is wrong for; no more than four vjp calls.

    Where no one result can be named, its `output` says that the numbers are of a combination.
    """
    target = evidence.target
    count = sum(y.size for y in target.centre)
    if worst is None or worst.output or worst.argument not in target.point_paths:
        return worst
    if count == 1 and target.centre[0].dtype.kind != "c":
        return worst
    what = "results" if modes.reverse is not None else "entries of the gradient"
    mixed = dataclasses.replace(worst, output=f"a random combination of {count:,} {what}")
    if any(a.dtype.kind == "c" for a in (*target.points, *target.centre)):
        return mixed
    k = target.point_paths.index(worst.argument)
    if modes.reverse is None or k in target.symmetric_points:
        return mixed
    single = alone(evidence, Place(k, worst.index), [size_of(x) for x in target.points])
    named = _among_few if count <= FEW else _most_moved
    found = named(evidence, modes, (k, worst.index), single, worst.left is not None)
    return mixed if found is None else found


def _among_few(
    evidence: Evidence,
    modes: Modes,
    entry: tuple[int, tuple[int, ...]],
    single: Direction,
    kink: bool,
) -> Worst | None:
    """The results read one by one from one ladder, those that weigh most first."""
    assert modes.reverse is not None
    k, index = entry
    step = float(single[k][index])
    found = evidence.ladder(single)
    column, jump = found.value[1:] / step, found.jump[1:] / step
    error, allowed = found.error[1:] / step, found.allowed[1:] / step
    weight = np.abs(entries(evidence.cotangents) * (jump if np.any(jump) else column))
    for r in map(int, np.argsort(-weight, kind="stable")[:TRIED]):
        name, cotangents = _basis(evidence, r)
        claimed = float(np.real(modes.reverse(cotangents)[k][index]))
        limit = max(float(allowed[r]), evidence.tolerance * abs(float(column[r])))
        if jump[r] or not abs(claimed - float(column[r])) <= limit:
            path = evidence.target.point_paths[k]
            value, half = float(column[r]), float(jump[r])
            sides = (value - half, value + half) if kink else (None, None)
            return Worst(path, index, claimed, value, float(error[r]), name, *sides)
    return None


def _most_moved(
    evidence: Evidence,
    modes: Modes,
    entry: tuple[int, tuple[int, ...]],
    single: Direction,
    kink: bool,
) -> Worst | None:
    """Of very many results the one that the entry moves most, by a ladder of its own."""
    if kink:
        return None
    assert modes.reverse is not None
    k, index = entry
    step = float(single[k][index])
    target = evidence.target
    sides = [
        entries([wide(y) for y in target.outputs(moved_points(target, single, h))])
        for h in (NEAR, -NEAR)
    ]
    weight = np.abs((sides[0] - sides[1]) * entries(evidence.cotangents))
    name, cotangents = _basis(evidence, int(np.argmax(weight)))
    claimed = float(np.real(modes.reverse(cotangents)[k][index]))
    alone_ = dataclasses.replace(evidence, cotangents=cotangents, probes=[])
    found = alone_.ladder(single)
    value, allowed = float(found.value[0]) / step, float(found.allowed[0]) / step
    if abs(claimed - value) <= max(allowed, evidence.tolerance * abs(value)):
        return None
    path = evidence.target.point_paths[k]
    return Worst(path, index, claimed, value, float(found.error[0]) / step, name)


def _basis(evidence: Evidence, number: int) -> tuple[str, list[Array]]:
    """The name of one result's entry and the cotangents that pick it."""
    (k, index), cotangents = result_cotangents(evidence.target.centre, number)
    one = len(evidence.target.centre) == 1
    name = "result" if one else f"result {evidence.target.smooth[k]}"
    return name + place(index), cotangents
