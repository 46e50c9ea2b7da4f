"""Memory of the executor's buffers: places that values share when their lives do not overlap."""

import bisect
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from autodiff.fuse import Block, Item
from autodiff.steps import Step, Value

ALIGN = 64


@dataclasses.dataclass(frozen=True)
class Arena:
    """Places in one piece of memory.

    `offsets` in bytes of the planned buffers, the `size` of the whole, and the shapes of those
    that hold only a block of their value (`scratch`).
    """

    offsets: Mapping[Value, int]
    size: int
    scratch: Mapping[Value, tuple[int, ...]]


def plan_memory(items: Sequence[Item], results: Iterable[Value], outputs: Iterable[Value]) -> Arena:
    """Places for every buffer but the results, which are new arrays at each call.

    Buffers that other `outputs` are copied from live to the end.
    """
    own = set(results)
    lives, times = _lives(items, outputs)
    scratch = _scratch(items, own)
    merged = _in_place(items, lives, times, scratch, own)
    places: dict[Value, list[Value]] = {}
    for v in lives:
        if v.origin == "buffer" and v not in own:
            places.setdefault(_find(v, merged), []).append(v)
    slots = []
    for owner, values in places.items():
        begin = min(lives[v][0] for v in values)
        end = max(lives[v][1] for v in values)
        slots.append((_bytes(owner, scratch), begin, end, values))
    offsets, size = _pack(slots)
    return Arena(offsets, size, scratch)


def _bytes(value: Value, scratch: Mapping[Value, tuple[int, ...]]) -> int:
    count = 1
    for n in scratch.get(value, value.spec.shape):
        count *= n
    return max(1, count * value.spec.dtype.itemsize)


def _steps(items: Sequence[Item]) -> Iterator[tuple[Step, Block | None]]:
    for item in items:
        if isinstance(item, Block):
            yield from ((s, item) for s in item.steps)
        else:
            yield item, None


def _lives(
    items: Sequence[Item], outputs: Iterable[Value]
) -> tuple[dict[Value, list[int]], dict[Step, int]]:
    """First and last time at which each root is touched.

    Those a "new" value may share memory with live as long as it does.
    """
    lives: dict[Value, list[int]] = {}
    times: dict[Step, int] = {}
    held: list[tuple[Value, Value]] = []
    for time, (step, _) in enumerate(_steps(items)):
        times[step] = time
        for v in (*step.inputs, *step.outputs):
            lives.setdefault(v.root, [time, time])[1] = time
        held += [(v.root, h.root) for v in step.outputs for h in v.holds]
    for v in outputs:
        if v.root in lives:
            lives[v.root][1] = len(times)
    for v, h in reversed(held):
        if h in lives:
            lives[h][1] = max(lives[h][1], lives[v][1])
    _stretch(items, lives, times)
    return lives, times


def _stretch(
    items: Sequence[Item], lives: dict[Value, list[int]], times: Mapping[Step, int]
) -> None:
    """What a block shares with the outside lives through all its rounds."""
    for item in items:
        if not isinstance(item, Block):
            continue
        begin, end = times[item.steps[0]], times[item.steps[-1]]
        for step in item.steps:
            for v in (*step.inputs, *step.outputs):
                life = lives[v.root]
                if life[0] < begin or life[1] > end:
                    life[0], life[1] = min(life[0], begin), max(life[1], end)


def _scratch(items: Sequence[Item], own: set[Value]) -> dict[Value, tuple[int, ...]]:
    """Buffers that one block alone touches, row by row: only a block of them is kept."""
    if not any(isinstance(item, Block) for item in items):
        return {}
    homes: dict[Value, set[Block | None]] = {}
    plain: dict[Value, bool] = {}
    for step, block in _steps(items):
        for v in (*step.inputs, *step.outputs):
            homes.setdefault(v.root, set()).add(block)
            bits = v.base is None or (".view(" in v.view and v.base is v.root)
            plain[v.root] = plain.get(v.root, True) and bits
        if block is not None and block.is_partial(step):
            homes[step.outputs[0].root].add(None)
    found: dict[Value, tuple[int, ...]] = {}
    for v, blocks in homes.items():
        (block, *others) = blocks
        if v.origin == "buffer" and v not in own and block is not None and not others and plain[v]:
            rows = block.rows
            found[v] = (rows.step, *v.spec.shape[rows.lead :])
    return found


def _in_place(
    items: Sequence[Item],
    lives: Mapping[Value, Sequence[int]],
    times: Mapping[Step, int],
    scratch: Mapping[Value, tuple[int, ...]],
    own: set[Value],
) -> dict[Value, Value]:
    """Results of elementwise steps that take the memory of an operand which ends there."""
    merged: dict[Value, Value] = {}
    taken: set[Value] = set()
    for step, block in _steps(items):
        if step.loop is None or step.reduced is not None or step.updates:
            continue
        out, time = step.outputs[0].root, times[step]
        if out in own or out.origin != "buffer" or lives[out][0] != time:
            continue
        if block is not None and out not in scratch:
            continue
        for v in step.inputs:
            root = v.root
            fits = root.origin == "buffer" and root not in own and lives[root][1] == time
            fits = fits and (root in scratch) == (out in scratch) and root not in taken
            fits = fits and _same_place(v, step.outputs[0])
            fits = fits and all(_same_place(u, v) for u in step.inputs if u.root is root)
            if fits:
                merged[out] = root
                taken.add(root)
                break
    return merged


def _same_place(a: Value, b: Value) -> bool:
    """Whether equal indices of both are equal bytes, once they share their memory."""
    bits = all(v.base is None or (".view(" in v.view and v.base is v.root) for v in (a, b))
    same_size = a.spec.dtype.itemsize == b.spec.dtype.itemsize
    return bits and same_size and a.spec.shape == b.spec.shape


def _find(value: Value, merged: Mapping[Value, Value]) -> Value:
    while value in merged:
        value = merged[value]
    return value


def _pack(
    slots: Sequence[tuple[int, int, int, list[Value]]],
) -> tuple[dict[Value, int], int]:
    """Largest first, each at the lowest offset free of everything alive at the same time."""
    offsets: dict[Value, int] = {}
    placed: list[tuple[int, int, int, int]] = []
    total = 0
    for size, begin, end, values in sorted(slots, key=lambda s: (-s[0], s[1])):
        at = 0
        for low, high, first, last in placed:  # by offset
            if first <= end and begin <= last and low < at + size and at < high:
                at = -(-high // ALIGN) * ALIGN
        bisect.insort(placed, (at, at + size, begin, end))
        offsets.update(dict.fromkeys(values, at))
        total = max(total, at + size)
    return offsets, total
