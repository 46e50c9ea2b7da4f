"""A sweep on several processes: chunks of items, longest surfaces first, rows as they come."""

import concurrent.futures
import multiprocessing
import os
from collections.abc import Iterator, Sequence

from checks.results import Row
from checks.surfaces.base import surface
from checks.sweep import Item, run_chunk

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PLAIN_CHUNK = 8


def chunks(found: Sequence[Item]) -> list[tuple[str, tuple[str, ...]]]:
    """(surface, ops) groups: surfaces that prepare many subjects at once get large ones, first."""
    grouped: dict[str, list[str]] = {}
    for item in found:
        grouped.setdefault(item.surface, []).append(item.op)
    parts = []
    for name, ops in grouped.items():
        size = surface(name).chunk or PLAIN_CHUNK
        parts += [(name, tuple(ops[i : i + size])) for i in range(0, len(ops), size)]
    return sorted(parts, key=lambda part: (not surface(part[0]).chunk, -len(part[1])))


def prepare_worker() -> None:
    """Settings of a worker, before numerical packages start their threads."""
    for name in THREADS:
        os.environ.setdefault(name, "1")
    from checks.devices import prepare_environment

    prepare_environment()


def run(found: Sequence[Item], workers: int) -> Iterator[tuple[Item, list[Row]]]:
    """Yield each item with its rows as it finishes, on `workers` processes (0: in this one)."""
    parts = chunks(found)
    if workers <= 0:
        prepare_worker()
        for name, ops in parts:
            for op, rows in zip(ops, run_chunk(name, ops), strict=True):
                yield Item(op, name), rows
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        workers, mp_context=context, initializer=prepare_worker
    ) as pool:
        waiting = {pool.submit(run_chunk, name, ops): (name, ops) for name, ops in parts}
        for future in concurrent.futures.as_completed(waiting):
            name, ops = waiting[future]
            for op, rows in zip(ops, future.result(), strict=True):
                yield Item(op, name), rows
