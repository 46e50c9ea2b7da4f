"""Rungs read together: Richardson tableaux, one-sided slopes, noise, the best single step."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from checks.gradients.line import Found, Line, Rung, first_step, smallest_step
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
STRAIGHT = 3  # steps at which a slope is seen


def moves_of(block: Sequence[Rung]) -> list[Array]:
    """How far the differences move from step to step."""
    return [np.abs(a.odd - b.odd) for a, b in itertools.pairwise(block)]


def noise_of(line: Line, blocks: Sequence[Sequence[Rung]]) -> Array:
    """The noise of each reading: what differences move by in a block, times its step, where they
    move more than in the block before and do not come to rest; 0 elsewhere.

    A last block in which nothing changes at all does not count as rest: the arithmetic inside is
    coarser than its steps.
    """
    count = line.size.shape
    known = [b for b in blocks if len(b) > 1 and all(r.finite for r in b)]
    grain = line.coarseness()
    if len(known) < 2:
        return np.where(_isjump_of(known), 0.0, grain) if known else grain
    flat = np.all([(r.odd == 0) & (r.even == 0) for r in known[-1]], axis=0)
    moves = [np.max(moves_of(b)[-2:], axis=0) for b in known]
    steps = [b[-1].step for b in known]
    noise = np.zeros(count)
    for k in range(1, len(known)):
        floor = constant("noise_factor") * line.floor(steps[k], np.zeros(count))
        grows = moves[k] > np.maximum(moves_of(known[k - 1])[-1], floor)
        rests = (moves[-1] < moves[k] / 4) & ~flat
        if len(known[k]) < len(known[-1]):  # steps too large were given up, smaller ones settle
            size = np.abs(known[-1][-1].odd)
            rests |= (moves[-1] < constant("far_too_large") * size) & ~flat
        noise = np.maximum(noise, np.where(grows & ~rests, moves[k] * steps[k], 0.0))
    lost = flat & flat[0]
    for block, move, step in zip(known[:-1], moves[:-1], steps[:-1], strict=True):
        moving = np.any([r.odd != 0 for r in block], axis=0) & ~_one_side(block)
        noise = np.where(lost & moving, np.maximum(noise, move * step), noise)
    noise = np.max([noise, grain, _lost_of(known)], axis=0)
    return np.where(_isjump_of(known), 0.0, noise)


def _one_side(block: Sequence[Rung]) -> Array:
    """Readings that move on one side alone at every step: a kink nearby, beside a flat piece."""
    gaps = [np.abs(np.abs(r.even) - np.abs(r.odd)) for r in block]
    same = [g <= constant("kink_slack") * np.abs(r.odd) for g, r in zip(gaps, block, strict=True)]
    return np.asarray(np.all(same, axis=0))


def _lost_of(blocks: Sequence[Sequence[Rung]]) -> Array:
    """What rounding the moved points hides: readings that have one slope at the coarse steps, the
    same on both sides, and do not change at all at the fine ones.
    """
    rungs = [r for block in blocks for r in block]
    odd, even = (np.abs([getattr(r, part) for r in rungs]) for part in ("odd", "even"))
    steps = np.array([r.step for r in rungs])[:, None]
    flat = (odd == 0) & (even == 0)
    straight = ~flat & (even < odd / 2)
    low = np.min(np.where(straight, odd, np.inf), axis=0)
    high = np.max(np.where(straight, odd, 0.0), axis=0)
    hides = np.max(np.where(flat, steps, 0.0), axis=0)
    finer = hides < np.min(np.where(straight, steps, np.inf), axis=0)
    lost = finer & flat[np.argmin(steps)] & (np.sum(straight, axis=0) >= STRAIGHT)
    return np.where(lost & (low > high / 2), high * hides, 0.0)


def _isjump_of(blocks: Sequence[Sequence[Rung]]) -> Array:
    """Readings whose parts, times the step, stay what they are at every step."""
    rungs = [r for block in blocks for r in block]
    stays = np.zeros(rungs[0].odd.shape, bool)
    for part in ("odd", "even"):
        heights = np.array([getattr(r, part) * r.step for r in rungs])
        low, high = np.min(heights, axis=0), np.max(heights, axis=0)
        one_sign, size = low * high > 0, np.abs(heights)
        stays |= one_sign & (np.max(size, axis=0) < 2 * np.min(size, axis=0))
    return stays


def tableau(line: Line, rungs: Sequence[Rung], noise: Array) -> Found:
    """The value that moved least in a tableau, how much it moved, and its round-off."""
    if np.any(noise):
        return _tableau(line, rungs, noise)
    steps = tuple([r.step for r in rungs])
    if steps not in line.known:
        line.known[steps] = _tableau(line, rungs, noise)
    return line.known[steps]


def _tableau(line: Line, rungs: Sequence[Rung], noise: Array) -> Found:
    column = [r.odd for r in rungs]
    floors = [line.floor(r.step, noise) + _of_points(line, r) for r in rungs]
    if len(rungs) == 2:  # a block given up
        return (
            column[1],
            constant("richardson_error_factor") * np.abs(column[1] - column[0]),
            floors[1],
        )
    best: Found = (column[-1], np.abs(column[-1] - column[-2]), floors[-1])
    for power in range(1, len(rungs)):
        weight = 4.0**power
        new = [(weight * b - a) / (weight - 1) for a, b in itertools.pairwise(column)]
        for i, v in enumerate(new):
            moved = np.maximum(np.abs(v - column[i + 1]), np.abs(v - column[i]))
            best = smaller(best, (v, moved, floors[i + power]))
        column = new
    # Where differences do not shrink as a power of the step (a kink between the steps, noise,
    # numbers that agree by chance) extrapolation means nothing.
    wild, moved = _irregular(rungs, floors)
    return (
        np.where(wild, rungs[-1].odd, best[0]),
        np.where(wild, moved, best[1]),
        np.where(wild, floors[-1], best[2]),
    )


def _of_points(line: Line, rung: Rung) -> Array:
    """What the rounding of the moved points makes of a difference, where it counts: at a step below
    the smallest, or along a direction much smaller than the points.
    """
    if rung.step >= smallest_step(line.unit) and line.clustered == 1.0:
        return np.zeros(line.size.shape)
    size = np.maximum(line.scale, np.where(np.isfinite(rung.odd), np.abs(rung.odd), 0.0))
    unit = line.unit * line.clustered
    return np.asarray(constant("roundoff_floor_factor") * unit * size / rung.step)


def _irregular(rungs: Sequence[Rung], floors: Sequence[Array]) -> tuple[Array, Array]:
    """Readings whose differences do not shrink from step to step, and the most they move."""
    moved = [np.abs(a.odd - b.odd) for a, b in itertools.pairwise(rungs)]
    shrink = constant("least_shrink")
    wild = np.zeros(moved[0].shape, bool)
    for (a, b), floor in zip(itertools.pairwise(moved), floors[2:], strict=True):
        wild |= b > shrink * a + 2 * floor
    return wild, np.max(moved, axis=0)


def smaller(old: Found, new: Found) -> Found:
    """The better of two estimates, reading by reading."""
    better = new[1] + new[2] < old[1] + old[2]
    value, moved, floor = (np.where(better, b, a) for a, b in zip(old, new, strict=True))
    return value, moved, floor


def best_block(line: Line, blocks: Sequence[list[Rung]], noise: Array) -> list[Rung]:
    """The block that settles best in reading 0."""

    def error(block: Sequence[Rung]) -> float:
        if len(block) < 2:
            return math.inf
        found = tableau(line, block, noise)
        return float(found[1][0] + found[2][0])

    known = [b for b in blocks if b]
    return known[0] if len(known) == 1 else min(known, key=error)


def single_step(
    line: Line, rungs: Sequence[Rung], value: Array, noise: Array
) -> tuple[float, Array]:
    """The step at which truncation, which falls as h^2, meets round-off, which grows as 1/h."""
    finest = rungs[-1]
    off, floor = np.abs(finest.odd - value), line.floor(finest.step, noise)
    gain = 1.0
    if off[0] > 0:
        gain = min(max(float(floor[0] / off[0]), constant("step_gain")), 1.0) ** (1 / 3)
    step = 2.0 ** math.floor(math.log2(finest.step * gain))
    gain = step / finest.step
    return step, off * gain**2 + floor / gain


def jump_of(line: Line, rungs: Sequence[Rung], noise: Array) -> tuple[Array, Array]:
    """Half the gap of the one-sided slopes as the step goes to 0, and whether they grow.

    The even part over the step is `J + a h + b h^3 + c h^5`: Richardson weights 2, 8, 32.
    """
    fine = sorted(rungs, key=lambda r: -r.step)
    last = [r for r in fine if r.step <= 8 * fine[-1].step]
    column = [r.even for r in last]
    floor = 2 * line.floor(last[-1].step, noise)
    value, error = column[-1], np.full(column[-1].shape, np.inf)
    for power in range(1, len(column)):
        weight = 2.0 ** (2 * power - 1)
        new = [(weight * b - a) / (weight - 1) for a, b in itertools.pairwise(column)]
        e = np.abs(new[-1] - column[-1]) + floor
        if len(new) > 1:
            e = np.maximum(e, np.abs(new[-1] - new[-2]))
        better = e < error
        value, error = np.where(better, new[-1], value), np.where(better, e, error)
        column = new
    grows = constant("divergence")
    sure = constant("richardson_error_factor") * floor
    diverges = np.zeros(value.shape, bool)
    for a, b in itertools.pairwise(last):
        ratio = grows ** math.log2(a.step / b.step)
        large = np.maximum(np.abs(b.even), np.abs(b.odd)) > sure
        both = np.maximum(np.abs(b.even), np.abs(b.odd)) > ratio * np.maximum(
            np.abs(a.even), np.abs(a.odd)
        )
        diverges = (diverges | (a is last[0])) & large & both
    # At a kink the odd part settles; noise moves it as much as the even one.
    rough = np.max([np.abs(a.odd - b.odd) for a, b in itertools.pairwise(last[-3:])] or [value], 0)
    slope = np.abs(last[-1].odd)
    slope[1:] = np.max(slope[1:], initial=0.0)
    least = np.maximum(sure, constant("kink_share") * slope)
    bent = np.abs(value) > np.maximum(constant("bend") * np.maximum(error, rough), least)
    bent &= ~_is_power(last)
    return np.where(bent, value, 0.0), diverges


def _is_power(rungs: Sequence[Rung]) -> Array:
    """Readings whose even part falls by one share at every halving, as a power of the step does
    (|x|^1.5 at 0): it comes to 0, if slowly. That of a kink comes to rest.
    """
    even = np.array([r.even for r in rungs])
    if len(rungs) < STRAIGHT + 1:
        return np.zeros(even.shape[1:], bool)
    with np.errstate(all="ignore"):
        falls = 1 - even[1:] / even[:-1]
        low, high = np.min(falls, axis=0), np.max(falls, axis=0)
        steady = (low > constant("power_falls")) & (low > constant("power_steady") * high)
    return np.asarray(steady & (high < 1))


def one_sided(line: Line, sign: float) -> tuple[Array, Array]:
    """Slopes from one side, extrapolated, with an error estimate `(m,)`; NaN outside the domain.

    `(f(h) - f(0)) / h` at four halvings; the Richardson weights are powers of two.
    """
    steps = [sign * first_step(line.unit) / 2.0 ** (6 + k) for k in range(4)]
    column = [
        line.readings([a - c for a, c in zip(line.at(h), line.centre, strict=True)]) / h
        for h in steps
    ]
    floor = line.floor(abs(steps[-1]), np.zeros_like(line.size))
    value, error = column[-1], np.abs(column[-1] - column[-2]) + floor
    for power in range(1, len(column)):
        weight = 2.0**power
        new = [(weight * b - a) / (weight - 1) for a, b in itertools.pairwise(column)]
        e = np.abs(new[-1] - column[-1]) + weight * floor
        better = e < error
        value, error = np.where(better, new[-1], value), np.where(better, e, error)
        column = new
    return value, error
