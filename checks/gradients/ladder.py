"""Central differences along one direction: relative steps, Richardson, errors, noise, kinks.

Blocks of four halvings; each block gives a tableau (Ridders, Adv. Eng. Software 4(2), 1982). The
first block starts at about a tenth of the point's size; a block that does not settle is followed
by one 64 times finer, or, where noise is what it shows, by coarser steps. Noise is measured by
fourth differences at a tiny spacing (More and Wild, SIAM J. Sci. Comput. 33(3), 2011).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from checks.gradients.line import Estimate, Found, Line, Rung, explained, first_step, smallest_step
from checks.gradients.tableau import (
    best_block,
    jump_of,
    moves_of,
    noise_of,
    one_sided,
    single_step,
    smaller,
    tableau,
)
from checks.tolerances import constant

__all__ = [
    "Estimate",
    "Found",
    "Line",
    "Rung",
    "climb",
    "explained",
    "first_step",
    "one_sided",
    "short_ladder",
    "smallest_step",
]

Array = np.ndarray[Any, Any]
DEEP = 3
BLOCK = 4  # rungs of a block


def climb(
    line: Line, enough: Callable[[Found], bool] = lambda found: False, witness: Rung | None = None
) -> Estimate:
    """The best estimate along a line, with as few calls as settle it, or as are `enough`.

    Finer blocks follow while they help, and where they do not, coarser steps. A `witness`, one
    rung that contradicts an earlier ladder, asks for at least three blocks, so that what is not
    smooth between the steps shows; what still contradicts it is noise.
    """
    deep = witness is not None
    first = first_step(line.unit)
    none = np.zeros_like(line.size)
    blocks = [_block(line, line.rung(first))]
    best = _read(line, blocks[0], none)
    step = first / 64
    while (deep and len(blocks) < DEEP) or not line.is_good(best):
        shallow = not deep or len(blocks) >= DEEP
        if shallow and len(blocks[-1]) > 2 and enough(best):
            break
        if shallow and _at_floor(line, blocks[-1], best):
            blocks = _coarser(line, blocks)
            break
        if step < smallest_step(line.unit) and not _is_beyond(line, blocks, step):
            break
        new = line.rung(step)
        if shallow and len(blocks) > 1 and _is_noise(blocks, new):
            blocks = _coarser(line, blocks)
            break
        blocks.append(_block(line, new))
        best, step = smaller(best, _read(line, blocks[-1], none)), step / 64
    found = _summary(line, blocks)
    return found if witness is None else _witnessed(line, blocks, found, witness)


def _is_beyond(line: Line, blocks: Sequence[Sequence[Rung]], step: float) -> bool:
    """Whether only steps below the smallest can tell: all of the last block left the domain, or
    no block says anything, and the last moves less than the one before (a pole nearby).
    """
    if line.unit > constant("narrow_unit") or step < constant("gradient_finest_step"):
        return False
    if not any(r.finite for r in blocks[-1]):
        return True
    none = np.zeros_like(line.size)
    if len(blocks) < 2 or any(
        line.share(_read(line, b, none)) <= constant("meaningful") for b in blocks
    ):
        return False
    before, last = (
        abs(float(b[-1].odd[0] - b[-2].odd[0])) / (abs(float(b[-1].odd[0])) or 1.0)
        for b in blocks[-2:]
    )
    return last < before / 2 or not math.isfinite(before)


def _witnessed(line: Line, blocks: list[list[Rung]], found: Estimate, witness: Rung) -> Estimate:
    """The estimate, with what single rungs near the steps it used still contradict taken for
    noise.
    """
    if not found.rungs:
        return found
    share, finest = constant("witness_step"), found.rungs[-1]
    own = next(r for block in blocks for r in block if r.step == finest)
    explained_ = found.allowed + 2 * np.abs(own.odd - found.value)
    noise = np.zeros_like(line.size)
    fine = [witness] if witness.step <= finest else []
    for rung in (*fine, *(line.rung(finest * share**k) for k in (1, 2))):
        off = np.abs(rung.odd - found.value)
        noisy = (off > explained_ + line.floor(rung.step, found.noise)) & ~found.diverges
        noise = np.where(noisy & rung.finite, np.maximum(noise, off * rung.step), noise)
    return _summary(line, _coarser(line, blocks), noise) if np.any(noise) else found


def _coarser(line: Line, blocks: list[list[Rung]]) -> list[list[Rung]]:
    """The first block with three coarser steps before it, where it stays in the domain."""
    head = blocks[0]
    if not all(r.finite for r in head):
        return blocks
    coarse = [line.rung(head[0].step * 2.0**k) for k in (3, 2, 1)]
    return [[*coarse, *head], *blocks[1:]]


def _is_noise(blocks: Sequence[Sequence[Rung]], new: Rung) -> bool:
    """Whether reading 0 moves the more the finer the steps: over the last two blocks, and again
    at a new step.
    """
    before, last = ([float(m[0]) for m in moves_of(block)] for block in blocks[-2:])
    if not np.all(np.isfinite([*before, *last, new.odd[0]])):
        return False
    rough = max(last[-2:])
    return rough > before[-1] and abs(float(new.odd[0] - blocks[-1][-1].odd[0])) > 2 * rough


def _read(line: Line, block: Sequence[Rung], noise: Array) -> Found:
    """The tableau of a block's finite rungs; an infinite error where there are too few."""
    finite = [r for r in block if r.finite]
    if len(finite) < 2:
        count = line.size.shape
        return np.full(count, np.nan), np.full(count, np.inf), np.zeros(count)
    return tableau(line, finite, noise)


def short_ladder(line: Line, steps: Sequence[float]) -> Estimate:
    """The estimate of a few given steps, each half the one before."""
    return _summary(line, [[line.rung(h) for h in steps]])


def _steady(line: Line, block: Sequence[Rung]) -> Array:
    """The even part of readings where all of a block has the same, and the odd part stays as it is:
    no noise does that; 0 elsewhere.
    """
    even, odd = (np.array([getattr(r, part) for r in block]) for part in ("even", "odd"))
    size = np.max(np.abs(even), axis=0)
    moved = np.maximum(np.ptp(even, axis=0), np.ptp(odd, axis=0))
    floor = line.floor(block[-1].step, line.coarseness())
    least = np.maximum(constant("bend") * floor, constant("kink_share") * np.abs(odd[-1]))
    steady = (moved <= constant("confirmed") * size) & (size > least) & (len(block) >= BLOCK)
    return np.where(steady, even[-1], 0.0)


def _at_floor(line: Line, block: Sequence[Rung], best: Found) -> bool:
    """Whether round-off at the finest step is what keeps an estimate from being good."""
    floor = line.floor(block[-1].step, np.zeros_like(line.size))
    return bool(np.all(best[1] + best[2] <= constant("noise_factor") * floor))


def _block(line: Line, first: Rung) -> list[Rung]:
    """Four halvings; two where the second shows that the step is far too large."""
    rungs = [first, line.rung(first.step / 2)]
    if line.unit < constant("narrow_unit") and _hopeless(rungs, line):
        return rungs
    return [*rungs, line.rung(first.step / 4), line.rung(first.step / 8)]


def _hopeless(rungs: Sequence[Rung], line: Line) -> bool:
    if not all(r.finite for r in rungs):
        return True
    moved = np.abs(rungs[0].odd - rungs[1].odd)
    size = np.maximum(np.abs(rungs[1].odd), line.scale)
    floor = line.floor(rungs[1].step, np.zeros_like(line.size))
    return bool(np.any(moved > constant("far_too_large") * size + floor))


def _summary(
    line: Line, blocks: Sequence[Sequence[Rung]], least_noise: Array | float = 0.0
) -> Estimate:
    """The best entry of all tableaux, reading by reading.

    Finer blocks are believed where two contradict one another: a coarse one may jump over a kink.
    """
    noise, count = np.maximum(noise_of(line, blocks), least_noise), line.size.shape
    value, moved, floor = np.full(count, np.nan), np.full(count, np.inf), np.zeros(count)
    finite = [[r for r in block if r.finite] for block in blocks]
    alone: list[Found] = []
    for block in reversed(finite):
        if len(block) < 2:
            continue
        alone.append(tableau(line, block, noise))
        # one with coarser steps before it counts without them too: they may jump over a kink
        parts = [tableau(line, block[-BLOCK:], noise)] if len(block) > BLOCK else []
        for v, m, f in (*parts, alone[-1]):
            apart = np.abs(v - value) > constant("bend") * (m + moved + f + floor)
            better = (m + f < moved + floor) & ~apart
            value, moved, floor = (
                np.where(better, new, old)
                for new, old in zip((v, m, f), (value, moved, floor), strict=True)
            )
    rungs = [r for block in finite for r in block]
    if not rungs:
        nan, never = np.full(count, np.nan), np.zeros(count, bool)
        return Estimate(nan, moved, floor, nan, 0.0, nan, (), nan, (), noise, never, True)
    block = best_block(line, finite, noise)
    step, step_error = single_step(line, block, value, noise)
    jump, diverges = jump_of(line, rungs, noise)
    if noise[0] > 0 and jump[0] == 0 and not diverges[0]:  # it may be a kink near by
        near = _steady(line, block)[0]
        jump[0] = near if near else jump_of(line, block, noise)[0][0]
    steps = tuple(r.step for r in block[-3:])
    left = any(not r.finite for b in blocks for r in b)
    return Estimate(
        value=value,
        moved=moved,
        floor=floor,
        jump=jump,
        step=step,
        step_error=step_error,
        rungs=steps,
        last=np.abs(block[-1].odd - value),
        blocks=tuple(alone),
        noise=noise,
        diverges=diverges,
        left_domain=left,
    )
