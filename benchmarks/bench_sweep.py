"""Checks per second of the sweep, by surface, in one process on a part of the catalogue."""

import collections
import os
import time

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

OPS = ("EXP", "POW", "SOFTMAX", "MATMUL", "CUMPROD", "INDEX", "SOLVE", "SCAN")
SURFACES = ("shapes", "f32", "exact", "reverse", "forward", "second", "vmap", "render", "execute")


def main() -> None:
    from checks.runner import Item, run_item

    totals: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0.0])
    for op in OPS:
        for surface in SURFACES:
            start = time.perf_counter()
            rows = run_item(Item(op, surface))
            totals[surface][0] += len(rows)
            totals[surface][1] += time.perf_counter() - start
    print(f"{'surface':10} {'checks':>7} {'per second':>11}")
    for surface, (count, seconds) in totals.items():
        print(f"{surface:10} {count:7.0f} {count / seconds:11.0f}")


if __name__ == "__main__":
    main()
