"""Timing of alternatives side by side, in turns, so that they meet the same disturbances."""

import time
from collections.abc import Callable, Mapping
from typing import Any


def best_times(
    candidates: Mapping[str, Callable[[], Any]], seconds: float = 2.0, batch: float = 2e-3
) -> dict[str, float]:
    """The shortest time of one call of each candidate, in seconds.

    The candidates take turns for `seconds` in all (three turns at least); in each turn every one is
    called for about `batch` seconds, once at least.
    """
    counts = {}
    for name, run in candidates.items():
        start = time.perf_counter()
        run()
        counts[name] = max(1, int(batch / max(1e-7, time.perf_counter() - start)))
    best = dict.fromkeys(candidates, float("inf"))
    end, turns = time.perf_counter() + seconds, 0
    while turns < 3 or time.perf_counter() < end:
        turns += 1
        for name, run in candidates.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                run()
            best[name] = min(best[name], (time.perf_counter() - start) / counts[name])
    return best


def table(title: str, times: Mapping[str, float], reference: str) -> str:
    """One line per candidate: its time, and its ratio to the reference."""
    lines = [title]
    for name, seconds in times.items():
        ratio = seconds / times[reference]
        lines.append(f"  {name:22} {seconds * 1e6:12.1f} us {ratio:8.2f} x {reference}")
    return "\n".join(lines)
