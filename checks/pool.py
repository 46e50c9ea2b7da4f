"""A sweep on several processes: chunks of items, longest surfaces first, rows as they come."""

import concurrent.futures
import gc
import multiprocessing
import os
from collections.abc import Iterator, Sequence

from checks.results import Row
from checks.runner import Item, run_chunk
from checks.surfaces.base import surface

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Programs and modules are many small objects that live long: with Python's own thresholds a tenth
# of a sweep goes into looking through them.
COLLECTED = (100_000, 20, 20)
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


def run(found: Sequence[Item], workers: int) -> Iterator[tuple[Item, list[Row]]]:
    """Yield each item with its rows as it finishes, on `workers` processes (0: in this one)."""
    from checks.devices.environment import xla_options

    xla_options()  # refused here: a worker that cannot start has no words
    parts = chunks(found)
    if workers <= 0:
        prepare_worker()
        for part in parts:
            yield from run_part(part)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        workers, mp_context=context, initializer=start_worker
    ) as pool:
        for future in concurrent.futures.as_completed(pool.submit(run_part, p) for p in parts):
            yield from future.result()


def run_part(part: Part) -> list[tuple[Item, list[Row]]]:
    """The items of one part with their rows."""
    names, ops = part
    return [
        (Item(op, name), rows)
        for name in names
        for op, rows in zip(ops, run_chunk(name, ops), strict=True)
    ]
