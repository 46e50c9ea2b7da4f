"""The pool: which surfaces go together, and in what order."""

import gc

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


def test_a_worker_collects_garbage_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_threshold()
    monkeypatch.setattr(pool, "prepare_worker", lambda: None)
    try:
        pool.start_worker()
        assert gc.get_threshold() == pool.COLLECTED and gc.get_freeze_count()
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
