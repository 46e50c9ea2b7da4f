"""A sweep on several processes: chunks of items, longest surfaces first, rows as they come.

A process that has run some ops is given more of them: it holds their samples and programs already.
"""

import concurrent.futures
import gc
import os
from collections.abc import Generator, Iterator, Sequence

from checks.processes import executors, uninterrupted
from checks.results import Row
from checks.runner import Item, run_chunk
from checks.surfaces.base import surface

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Programs and modules are many small objects that live long: with Python's own thresholds a tenth
# of a sweep goes into looking through them.
COLLECTED = (1_000_000, 20, 20)
PLAIN_CHUNK = 2  # ops of a part without preparation: small, so that workers end together

Part = tuple[tuple[str, ...], tuple[str, ...]]


def chunks(found: Sequence[Item]) -> list[Part]:
    """(surfaces, ops) parts: surfaces of one group together, those that prepare many subjects at
    once in large parts and first.
    """
    ops_of: dict[str, list[str]] = {}
    for item in found:
        ops_of.setdefault(item.surface, []).append(item.op)
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, ops in ops_of.items():
        groups.setdefault((surface(name).group or name, tuple(ops)), []).append(name)
    parts: list[Part] = []
    for (_, kinds), names in groups.items():
        size = max(surface(n).chunk for n in names) or PLAIN_CHUNK
        parts += [(tuple(names), kinds[i : i + size]) for i in range(0, len(kinds), size)]
    return sorted(parts, key=lambda part: (not surface(part[0][0]).chunk, -len(part[0])))


def prepare_worker() -> None:
    """Settings of a worker, before numerical packages start their threads."""
    for name in THREADS:
        os.environ.setdefault(name, "1")
    from checks.devices import prepare_environment

    prepare_environment()


def start_worker() -> None:
    """What a process of the pool does first: its settings, and fewer collections of garbage."""
    prepare_worker()
    gc.freeze()
    gc.set_threshold(*COLLECTED)


def run(found: Sequence[Item], workers: int) -> Generator[tuple[Item, list[Row]], None, None]:
    """Yield each item with its rows as it finishes, on `workers` processes (0: in this one)."""
    from checks.devices.environment import xla_options

    xla_options()  # refused here: a worker that cannot start has no words
    parts = chunks(found)
    if workers <= 0:
        prepare_worker()
        for part in parts:
            yield from run_part(part)
        return
    with executors(min(workers, len(parts)), 1, start_worker) as processes:
        yield from _spread(processes, parts)


def _spread(
    processes: Sequence[concurrent.futures.Executor], parts: Sequence[Part]
) -> Iterator[tuple[Item, list[Row]]]:
    """Run parts on processes of one worker each; one that is done takes the next part at once."""
    left = list(parts)
    known: list[set[str]] = [set() for _ in processes]
    ops = sorted({op for _, ops in parts for op in ops})
    last = [ops[w * len(ops) // len(processes)] for w in range(len(processes))]
    running: dict[concurrent.futures.Future[list[tuple[Item, list[Row]]]], int] = {}

    def start(worker: int) -> None:
        if left:
            part = left.pop(choose(left, known, worker, last[worker]))
            known[worker].update(part[1])
            last[worker] = part[1][-1]
            running[processes[worker].submit(run_part, part)] = worker

    with uninterrupted():
        for worker in range(len(processes)):
            start(worker)
    while running:
        done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
        for future in done:
            start(running.pop(future))
        for future in done:
            yield from future.result()


def choose(left: Sequence[Part], known: Sequence[set[str]], worker: int, last: str) -> int:
    """Which part a worker takes: among those that prepare, while there are any, that of whose ops
    it has run the most and another worker the fewest; of equals the one that follows its last op.
    """

    def order(place: int) -> tuple[float, bool, str]:
        ops = left[place][1]
        shares = [len(seen.intersection(ops)) / len(ops) for seen in known]
        own = shares.pop(worker)
        return max(shares, default=0.0) - own, ops[0] < last, ops[0]

    prepares = sum(bool(surface(part[0][0]).chunk) for part in left)  # they stand first
    return min(range(prepares or len(left)), key=order)


def run_part(part: Part) -> list[tuple[Item, list[Row]]]:
    """The items of one part with their rows."""
    names, ops = part
    return [
        (Item(op, name), rows)
        for name in names
        for op, rows in zip(ops, run_chunk(name, ops), strict=True)
    ]
