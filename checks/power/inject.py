"""Wrong rules put in place for a moment: of an op, of the engine, of one of its tables."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

from autodiff.op import OPS, Op
from checks import kept

PACKAGES = ("autodiff", "catalogue", "checks")
KEPT = ("checks.tolerances", "checks.tolerance_file")  # what they cache holds no op

_known: tuple[tuple[int, ...], list[Any]] = ((), [])


def clear_caches() -> None:
    """Forget every traced program: their equations hold Op records."""
    for cached in _caches():
        cached.cache_clear()


def _caches() -> list[Any]:
    """Everything of the project's modules that can be cleared, found anew as modules come."""
    global _known
    names = [n for n in list(sys.modules) if n.split(".")[0] in PACKAGES and n not in KEPT]
    modules = tuple(id(sys.modules[n]) for n in names)  # a module may be imported anew
    if modules != _known[0]:
        found = {
            id(value): value
            for name in names
            for value in list(vars(sys.modules[name]).values())
            if callable(getattr(value, "cache_clear", None))
            and getattr(value, "__module__", "") not in KEPT
        }
        _known = modules, list(found.values())
    return _known[1]


@contextlib.contextmanager
def mutated(kind: str, **fields: Any) -> Iterator[Op]:
    """The op of that kind with other rules. Families and bodies bind by kind, so all see them."""
    with patched_table(OPS, kind, dataclasses.replace(OPS[kind], **fields)):
        yield OPS[kind]


@contextlib.contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute of the engine replaced."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    clear_caches()
    try:
        with kept.off():
            yield
    finally:
        setattr(owner, name, before)
        clear_caches()


@contextlib.contextmanager
def patched_table(table: Any, key: str, value: Any) -> Iterator[None]:
    """One entry of a table of the engine replaced."""
    before = table[key]
    table[key] = value
    clear_caches()
    try:
        with kept.off():
            yield
    finally:
        table[key] = before
        clear_caches()
