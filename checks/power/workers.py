"""Jobs on several processes, or in this one, results as they come."""

import concurrent.futures
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from checks.pool import prepare_worker

Job = TypeVar("Job")
Result = TypeVar("Result")


def each(function: Callable[[Job], Result], jobs: Sequence[Job], workers: int) -> Iterator[Result]:
    """Yield `function(job)` of each job as it is done, on `workers` processes (0: in this one)."""
    if workers <= 0:
        for job in jobs:
            yield function(job)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        workers, mp_context=context, initializer=prepare_worker
    ) as pool:
        for future in concurrent.futures.as_completed(pool.submit(function, j) for j in jobs):
            yield future.result()
