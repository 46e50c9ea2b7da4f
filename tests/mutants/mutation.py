"""Wrong rules put into the registry for a moment, and the sweep run on them."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

from autodiff.op import OPS, Op
from checks.results import Row
from checks.runner import Item, run_item
from checks.surfaces.base import SURFACES, surface


def clear_caches() -> None:
    """Forget every traced program: their equations hold Op records."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] not in ("autodiff", "catalogue", "checks"):
            continue
        for value in list(vars(module).values()):
            clear = getattr(value, "cache_clear", None)
            if callable(clear):
                clear()


@contextlib.contextmanager
def mutated(kind: str, **fields: Any) -> Iterator[Op]:
    """The op of that kind with other rules. Families and bodies bind by kind, so all see them."""
    with mock.patch.dict(OPS, {kind: dataclasses.replace(OPS[kind], **fields)}):
        clear_caches()
        try:
            yield OPS[kind]
        finally:
            clear_caches()


@contextlib.contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute of the engine replaced."""
    with mock.patch.object(owner, name, value):
        clear_caches()
        try:
            yield
        finally:
            clear_caches()


@contextlib.contextmanager
def patched_table(table: Any, key: str, value: Any) -> Iterator[None]:
    """One entry of a table of the engine replaced."""
    with mock.patch.dict(table, {key: value}):
        clear_caches()
        try:
            yield
        finally:
            clear_caches()


def sweep(op: str, surface_name: str) -> list[Row]:
    """The rows of one op on one surface, prepared alone: its neighbours are not mutated."""
    found = surface(surface_name)
    with mock.patch.dict(SURFACES, {surface_name: dataclasses.replace(found, chunk=0)}):
        return run_item(Item(op, surface_name))


def failures(op: str, surface_name: str) -> list[Row]:
    """The failing rows of one op on one surface; a surface that did not run is an error."""
    rows = sweep(op, surface_name)
    if all(r.status == "skipped" for r in rows) or any(r.missing for r in rows):
        raise AssertionError(f"{surface_name} did not run on {op}")
    return [r for r in rows if r.status == "fail"]
