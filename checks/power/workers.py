"""Jobs on several processes, or in this one, results as they come."""

import concurrent.futures
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from checks.pool import prepare_worker
from checks.processes import executors, uninterrupted

Job = TypeVar("Job")
Result = TypeVar("Result")


def each(function: Callable[[Job], Result], jobs: Sequence[Job], workers: int) -> Iterator[Result]:
    """Yield `function(job)` of each job as it is done, on `workers` processes (0: in this one)."""
    if workers <= 0:
        for job in jobs:
            yield function(job)
        return
    with executors(1, workers, prepare_worker) as (pool,):
        with uninterrupted():
            futures = [pool.submit(function, job) for job in jobs]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()
