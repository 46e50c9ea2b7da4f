"""Full Jacobians: every entry of every result against differences, compressed where sparse.

Columns that no result shares are moved together (Curtis, Powell and Reid, J. Inst. Math. Appl. 13,
1974); what is left is batched through vmap in chunks of bytes.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from checks.gradients.abrupt import agrees_nearby
from checks.gradients.evidence import Direction, Evidence, entries, moved_points
from checks.gradients.inside import stands
from checks.gradients.ladder import explained
from checks.gradients.locate import Place, kinked, locate, look, numbers, place_of
from checks.gradients.modes import Modes, UndefinedModeError, guarded
from checks.gradients.narrow import exactly, narrow_tolerance, noted, twin_of
from checks.gradients.report import INCONCLUSIVE, PASS, WRONG, Check, Worst
from checks.gradients.sparsity import colours_of
from checks.gradients.target import Target, TargetError, closer, wide
from checks.gradients.verdicts import bracket, result_cotangents
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
SMALL = 32
LARGEST = 50_000_000  # entries of the compressed Jacobian
CHUNK_BYTES = 1 << 19
Columns = list[Array]


@dataclasses.dataclass(frozen=True)
class Compressed:
    """Claims and differences `(m, groups)` along the groups' directions."""

    groups: Columns
    direction: Array
    claimed: Array
    value: Array
    allowed: Array


def is_small(target: Target) -> bool:
    """Whether the arguments hold so few numbers that each is looked at."""
    count = sum(x.size for x in target.points)
    results = sum(y.size for y in target.centre)
    real = all(a.dtype.kind != "c" for a in (*target.points, *target.centre))
    return count <= SMALL and results <= SMALL**2 and real and not target.symmetric_points


def full_jacobian(
    target: Target, modes: Modes, tolerance: float | None
) -> tuple[list[Check], list[Evidence]]:
    """Every entry of the Jacobian against differences; the worst is named, result and argument.

    Raises TargetError for complex or symmetric arguments, and where it would not fit in memory.
    """
    _possible(target)
    if modes.reverse is None and modes.forward is None:
        return [], []
    tolerance = constant("gradient_tolerance") if tolerance is None else tolerance
    broad = target.__dict__.get("broad")
    if broad is not None:  # float16 or bfloat16: at float64 first
        checks, failed = full_jacobian(broad.twin, broad.modes, exactly(tolerance))
        if any(c.verdict == WRONG for c in checks):
            return noted(target, broad, checks, target.notes), failed
    claims = functools.partial(_claims, target, modes)
    if target.unit > constant("narrow_unit"):  # differences of the float64 twin, where there is one
        tolerance = max(tolerance, narrow_tolerance(target))
        target = twin_of(target) or target
    count = sum(x.size for x in target.points)
    groups = colours_of(target) or [np.array([i]) for i in range(count)]
    moves = target.direction("jacobian")
    direction = np.concatenate([d.ravel() for d in closer(target, moves) or moves])
    claimed = claims(groups, direction)
    measure = _one_by_one if len(groups) <= 2 * SMALL else _batched
    value, allowed = measure(target, groups, direction)
    found = Compressed(groups, direction, claimed, value, allowed)
    return _verdict(target, modes, found, tolerance)


def _possible(target: Target) -> None:
    where = f"in check_gradients({target.name}, full=True)"
    if any(a.dtype.kind == "c" for a in (*target.points, *target.centre)):
        raise TargetError("full Jacobians are of real functions", where, "leave full= out")
    if target.symmetric_points:
        text = "full Jacobians move single entries, symmetric arguments cannot"
        raise TargetError(text, where, "leave full= or symmetric= out")
    count = sum(x.size for x in target.points) * sum(y.size for y in target.centre)
    if count > LARGEST:
        raise TargetError(
            f"the Jacobian has {count} entries", where, f"leave full= out above {LARGEST} entries"
        )


def unflatten(target: Target, flat: Array) -> Direction:
    """A vector of all entries as one array per point."""
    made, start = [], 0
    for x in target.points:
        made.append(flat[start : start + x.size].reshape(x.shape))
        start += x.size
    return made


def _along(direction: Array, group: Array) -> Array:
    moved = np.zeros_like(direction)
    moved[group] = direction[group]
    return moved


# --- claims --------------------------------------------------------------------------------


def _claims(target: Target, modes: Modes, groups: Columns, direction: Array) -> Array:
    """The derivative along each group `(m, groups)`, by the mode that needs fewer calls."""
    results = sum(y.size for y in target.centre)
    if modes.reverse is not None and (modes.forward is None or results <= len(groups)):
        rows = _rows(target, modes, results)
        if len(groups) == direction.size:  # each column alone
            return np.asarray(rows * direction)
        return np.stack([rows[:, g] @ direction[g] for g in groups], axis=1)
    assert modes.forward is not None
    return np.stack(
        [entries(modes.forward(unflatten(target, _along(direction, g)))) for g in groups], axis=1
    )


def _rows(target: Target, modes: Modes, results: int) -> Array:
    """The Jacobian `(m, n)` row by row; batched through vmap where the framework can."""
    basis = [result_cotangents(target.centre, i)[1] for i in range(results)]
    if results > 1 and not target.manual.given:
        try:
            with guarded(target):
                return _batched_rows(target, basis)
        except UndefinedModeError:
            pass  # a function without batching rules: one by one
    assert modes.reverse is not None
    return np.stack([_vector(modes.reverse(cts)) for cts in basis])


def _vector(gradients: Sequence[Array]) -> Array:
    return np.concatenate([np.ravel(g) for g in gradients])


def _batched_rows(target: Target, basis: Sequence[Sequence[Array]]) -> Array:
    target.tally.derivatives += 1
    original = target.originals[target.positions[0]]
    stacked = [
        target.framework.native(np.stack([b[k] for b in basis]).astype(y.dtype), original)
        for k, y in enumerate(target.centre)
    ]
    points = target.native(target.points)
    _, pull = target.framework.vjp(target.flat, points)

    def pulled(cotangents: Sequence[Any]) -> list[Any]:
        return [x * 0 if g is None else g for g, x in zip(pull(cotangents), points, strict=True)]

    rows = target.framework.vmap(pulled, [0] * len(stacked))(stacked)
    flat = [np.reshape(wide(target.to_numpy(r)), (len(basis), -1)) for r in rows]
    return np.concatenate(flat, axis=1)


# --- differences ---------------------------------------------------------------------------


def _evidence(target: Target) -> Evidence:
    return Evidence(target, [wide(u) for u in target.cotangents()], None, push=None)


def _one_by_one(target: Target, groups: Columns, direction: Array) -> tuple[Array, Array]:
    """A ladder for each group; results beyond the few are read through all their entries."""
    evidence = _evidence(target)
    values, allowed = [], []
    for group in groups:
        found = evidence.ladder(unflatten(target, _along(direction, group)))
        values.append(found.value[1:])
        allowed.append(found.allowed[1:])
    return np.stack(values, axis=1), np.stack(allowed, axis=1)


def _batched(target: Target, groups: Columns, direction: Array) -> tuple[Array, Array]:
    """One plain difference for each group, many at once; what it explains is its round-off and
    the truncation seen along a random direction.
    """
    evidence = _evidence(target)
    step, spread = _step_of(evidence)
    size = entries([wide(y) for y in target.centre])
    floor = constant("roundoff_floor_factor") * target.unit * np.abs(size) / step
    allowed = np.broadcast_to(explained(spread, floor)[:, None], (size.size, len(groups)))
    return _differences(target, groups, direction, step), allowed


def _step_of(evidence: Evidence) -> tuple[float, float]:
    direction = evidence.target.direction()
    found = evidence.ladder(direction)
    count = sum(x.size for x in evidence.target.points)
    return found.step, float(found.step_error[0]) / count**0.5


def _differences(target: Target, groups: Columns, direction: Array, step: float) -> Array:
    """Central differences `(m, groups)`, point by point so that the rest is not batched."""
    results = sum(y.size for y in target.centre)
    made = np.empty((results, len(groups)))
    lengths = np.array([len(g) for g in groups], int)
    flat = np.concatenate([*groups, np.zeros(0, int)])
    ends = np.cumsum(lengths)
    first_of, last_of = flat[ends - lengths], flat[ends - 1]
    start = 0
    for k, x in enumerate(target.points):
        within = start + x.size
        inside = np.flatnonzero((first_of >= start) & (first_of < within))
        alone = inside[last_of[inside] < within]
        rows = max(1, CHUNK_BYTES // max(x.nbytes + 8 * results, 1))
        evaluate = _evaluator(target, k, min(rows, len(alone)))
        many = np.repeat(wide(x).reshape(1, -1), min(rows, len(alone)), axis=0)
        for first in range(0, len(alone), rows):
            chunk = alone[first : first + rows]
            row = np.repeat(np.arange(len(chunk)), lengths[chunk])
            inner = np.arange(len(row)) - np.repeat(np.cumsum(lengths[chunk]), lengths[chunk])
            column = flat[np.repeat(ends[chunk], lengths[chunk]) + inner] - start
            move = direction[start:within], step
            made[:, chunk] = _chunk(target, many[: len(chunk)], k, (row, column), move, evaluate)
        for j in np.setdiff1d(inside, alone):
            made[:, j] = _apart(target, groups[j], direction, step)
        start = within
    return made


Evaluate = Callable[[Array], Array]


def _chunk(
    target: Target,
    many: Array,
    k: int,
    places: tuple[Array, Array],
    move: tuple[Array, float],
    evaluate: Evaluate,
) -> Array:
    """The differences of groups inside one point (row, entry), in one batched call where there is
    a vmap. `many` holds the point in each row, before and after: new memory would cost more.
    """
    (rows, columns), (direction, step) = places, move
    x, count = target.points[k], len(many)
    moved, sides = many[rows, columns], []
    for sign in (1.0, -1.0):
        many[rows, columns] = moved + sign * step * direction[columns]
        sides.append(evaluate(np.asarray(many.reshape(count, *x.shape), x.dtype)))
    many[rows, columns] = moved
    target.tally.calls += 2 * count
    return np.asarray((sides[0] - sides[1]).T / (2 * step))


def _evaluator(target: Target, k: int, rows: int) -> Evaluate:
    """Results `(rows, m)` at many values of point k: batched, or by a loop where there is no vmap.

    The last chunk, which is shorter, is filled up, so that one traced program serves them all.
    """
    natives = target.native(target.points)
    original = target.originals[target.positions[k]]
    axes = [0 if i == k else None for i in range(len(natives))]
    try:
        if rows < 2 or target.manual.given:
            raise UndefinedModeError
        with guarded(target):
            natives[k] = target.framework.native(np.stack([target.points[k]] * rows), original)
            hot = target.framework.hot or target.framework.replay
            batched = hot(target.framework.vmap(target.flat, axes), natives)
    except UndefinedModeError:
        return lambda many: _looped(target, k, many)

    def evaluate(many: Array) -> Array:
        count = len(many)
        if count < rows:
            many = np.concatenate([many, np.repeat(many[:1], rows - count, axis=0)])
        plain = isinstance(natives[k], np.ndarray)  # NumPy's own: no copy, nothing is written
        natives[k] = many if plain else target.framework.native(many, original)
        outs = [wide(target.to_numpy(y)).reshape(rows, -1) for y in batched(natives)]
        return np.concatenate(outs, axis=1)[:count]

    return evaluate


def _looped(target: Target, k: int, many: Array) -> Array:
    points = list(target.points)
    found = []
    for one in many:
        points[k] = one
        found.append(entries([wide(y) for y in target.outputs(points)]))
    target.tally.calls -= len(many)  # counted by the chunk
    return np.stack(found)


def _apart(target: Target, group: Array, direction: Array, step: float) -> Array:
    """The difference of a group that moves several points."""
    move = unflatten(target, _along(direction, group))
    up, down = (
        entries([wide(y) for y in target.outputs(moved_points(target, move, s * step))])
        for s in (1.0, -1.0)
    )
    return (up - down) / (2 * step)


# --- the verdict ---------------------------------------------------------------------------


def _blocks(sizes: Sequence[int]) -> list[slice]:
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return [slice(int(a), int(b)) for a, b in itertools.pairwise(starts)]


def _scales(target: Target, found: Compressed) -> Array:
    """Per entry the largest of its (result, argument) block, along the directions moved."""
    size = np.fmax(np.abs(found.claimed), np.abs(found.value))
    size = np.where(np.isfinite(size), size, 0.0)
    made = np.empty_like(size)
    owner = np.repeat(np.arange(len(target.points)), [x.size for x in target.points])
    of_group = np.array([owner[g[0]] for g in found.groups])
    for rows in _blocks([y.size for y in target.centre]):
        for k in range(len(target.points)):
            columns = np.flatnonzero(of_group == k)
            made[rows, columns] = np.max(size[rows][:, columns], initial=0.0)
    return np.where(made > 0, made, 1.0)


def _own_scales(target: Target, found: Compressed) -> Array:
    """The same by the Jacobian's own entries, times how far each group moves: entries of small
    arguments move little beside large ones.
    """
    moved = np.array([np.max(np.abs(found.direction[g]), initial=0.0) for g in found.groups])
    moved = np.where(moved > 0, moved, 1.0)
    alone = dataclasses.replace(found, claimed=found.claimed / moved, value=found.value / moved)
    return np.asarray(_scales(target, alone) * moved)


def _verdict(
    target: Target, modes: Modes, found: Compressed, tolerance: float
) -> tuple[list[Check], list[Evidence]]:
    scale = _scales(target, found)
    own = np.minimum(scale, _own_scales(target, found))
    allowed = np.maximum(found.allowed, tolerance * own)
    off = np.abs(found.claimed - found.value)
    shares, error = allowed / scale, off / scale
    share = float(np.max(shares, initial=0.0, where=np.isfinite(shares)))
    suspicious = np.argwhere(~(off <= allowed))
    suspicious = (
        suspicious[np.argsort(-error[tuple(suspicious.T)])] if len(suspicious) else suspicious
    )
    for row, column in suspicious[:SMALL]:
        at = (int(row), int(column))
        check, evidence, noise = _entry(target, modes, found, at, (share, scale, own), tolerance)
        if check is not None:
            return [check], [evidence]
        share = max(share, noise)
    for row, column in suspicious[SMALL:]:  # not looked at: they may be as wrong as they seem
        share = max(share, float(np.nan_to_num(error[row, column], nan=np.inf)))
    worst = float(np.max(np.where(off <= allowed, error, 0.0), initial=0.0))
    count = sum(len(g) for g in found.groups)
    how = f"{found.claimed.shape[0]} x {count} entries"
    how += f" in {len(found.groups)} differences" if len(found.groups) < count else ""
    verdict = INCONCLUSIVE if share > constant("meaningful") else PASS
    return [Check("jacobian", verdict, worst, share, share, how)], []


def _entry(
    target: Target,
    modes: Modes,
    found: Compressed,
    at: tuple[int, int],
    numbers_: tuple[float, Array, Array],
    tolerance: float,
) -> tuple[Check | None, Evidence, float]:
    """A suspicious entry under a ladder of its own: a check that failed, or None and the share
    of the scale that noise explains.
    """
    row, column = at
    share, scale, own = numbers_
    result, cotangents = result_cotangents(target.centre, row)
    evidence = Evidence(target, cotangents, None, push=modes.forward, tolerance=tolerance)
    if modes.reverse is not None:
        evidence.gradient = modes.reverse(cotangents)
    place = _place(evidence, found, column)
    if place is None:
        return None, evidence, 0.0
    entry = look(evidence, place, unflatten(target, found.direction), confirm=True)
    if not np.isfinite(entry.probe.error):  # the domain's end: first order judged it
        return None, evidence, 0.0
    if entry.probe.doubtful:
        return None, evidence, float(abs(entry.probe.residual) / scale[row, column])
    if not entry.probe.agrees and not (entry.is_kink and entry.is_inside):
        entry = kinked(evidence, entry)
    if entry.is_kink and entry.is_inside:
        return None, evidence, 0.0
    if entry.probe.agrees:
        return None, evidence, float(entry.probe.allowed / scale[row, column])
    if not stands(evidence, entry.probe) or agrees_nearby(evidence, entry.probe):
        return None, evidence, float(abs(entry.probe.residual) / scale[row, column])
    number = int(numbers(evidence)[place.point][place.index])
    step = float(found.direction[number])
    worst = Worst(
        target.point_paths[place.point],
        place.index,
        entry.probe.claimed / step,
        entry.probe.difference / step,
        entry.error,
        output=f"result {target.smooth[result[0]]}{bracket(result[1])}",
    )
    error = abs(entry.probe.residual) / own[row, column]
    text = f"derivative {worst.derivative:.9g}, difference {worst.difference:.9g}"
    return Check("jacobian", WRONG, float(error), share, share, text, worst), evidence, 0.0


def _place(evidence: Evidence, found: Compressed, column: int) -> Place | None:
    """The entry that a group of columns is wrong at; None where the group agrees after all."""
    group = found.groups[column]
    if len(group) == 1:
        return place_of(evidence, int(group[0]))
    direction = unflatten(evidence.target, _along(found.direction, group))
    probe, _ = evidence.confirmed(*evidence.careful(direction))
    if probe.agrees or probe.doubtful:
        return None
    return locate(evidence, probe) or place_of(evidence, int(group[0]))
