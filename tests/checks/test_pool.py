"""The pool: which surfaces go together, and in what order."""

import concurrent.futures
import gc
from typing import Any

import pytest

from checks import pool
from checks.pool import PLAIN_CHUNK, chunks
from checks.runner import items
from checks.surfaces.base import HOST, load, surface


def test_host_surfaces_of_an_op_are_one_part() -> None:
    host = {name for name, s in load().items() if s.group == HOST}
    assert {"reverse", "second", "vmap", "exact", "execute"} <= host
    parts = [(set(names), ops) for names, ops in chunks(items())]
    for names, ops in parts:
        assert names == host if names & host else not names & host
        assert len(set(ops)) == len(ops)
    ran = sorted(op for names, ops in parts if names & host for op in ops)
    assert ran == sorted({i.op for i in items()})


def test_parts_that_prepare_come_first() -> None:
    prepares = [bool(surface(names[0]).chunk) for names, _ in chunks(items())]
    assert prepares == sorted(prepares, reverse=True) and not prepares[-1]
    assert max(len(ops) for names, ops in chunks(items()) if "vmap" in names) == PLAIN_CHUNK


class Workers:
    """Processes that run nothing: each part's name goes to its worker's list."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def submit(self, function: Any, part: pool.Part) -> concurrent.futures.Future[Any]:
        self.given.append(part)
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        if part[1] == ("FAILS",):
            future.set_exception(OSError("a process ended"))
        else:
            future.set_result([(part, [])])
        return future


def spread(count: int, parts: list[pool.Part]) -> list[list[pool.Part]]:
    """What each of `count` workers was given; all parts were run, each once."""
    workers = [Workers() for _ in range(count)]
    done = [part for part, _ in pool._spread(workers, parts)]  # type: ignore[arg-type]
    assert sorted(map(str, done)) == sorted(map(str, parts))
    return [w.given for w in workers]


@pytest.mark.parametrize(("count", "again"), [(1, 1.0), (2, 1.4), (4, 2.0)])
def test_a_worker_is_given_the_ops_it_knows(count: int, again: float) -> None:
    parts = chunks(items())
    given = spread(count, parts)
    assert min(map(len, given)) > len(parts) / (2 * count)
    ops = [{op for _, ops in mine for op in ops} for mine in given]
    assert sum(map(len, ops)) <= again * len({i.op for i in items()})  # `count` times by chance


def test_parts_that_prepare_are_run_first_by_each_worker() -> None:
    for count in (1, 3, 40):
        for mine in spread(count, chunks(items())):
            prepares = [bool(surface(names[0]).chunk) for names, _ in mine]
            assert prepares == sorted(prepares, reverse=True)


def test_a_part_that_fails_is_heard_of() -> None:
    with pytest.raises(OSError, match="a process ended"):
        spread(2, [(("vmap",), ("SIN",)), (("vmap",), ("FAILS",)), (("vmap",), ("COS",))])


def test_two_processes_run_what_one_runs() -> None:
    chosen = items(["SIN", "ADD", "SUM", "EXP", "COS"], ["forward", "shapes"])
    one, two = (
        sorted(
            (i.id, [(r.key, r.status, r.error) for r in rows]) for i, rows in pool.run(chosen, n)
        )
        for n in (0, 2)
    )
    assert one == two and len(one) == len(chosen)


def test_a_worker_collects_garbage_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_threshold()
    monkeypatch.setattr(pool, "prepare_worker", lambda: None)
    try:
        pool.start_worker()
        assert gc.get_threshold() == pool.COLLECTED and gc.get_freeze_count()
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
