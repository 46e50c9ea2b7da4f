"""Sinks for values shown by `autodiff.tap`."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Sink = Callable[[str, np.ndarray[Any, Any]], None]
_sinks: contextvars.ContextVar[tuple[Sink, ...]] = contextvars.ContextVar("sinks", default=())


def emit(name: str, value: Any) -> None:
    """Hand a copy of a value to every open sink."""
    for sink in _sinks.get():
        sink(name, np.array(value))


def is_open() -> bool:
    """Whether any sink is open."""
    return bool(_sinks.get())


@contextlib.contextmanager
def collect(sink: Sink | None = None) -> Iterator[list[tuple[str, np.ndarray[Any, Any]]]]:
    """Open a sink: values tapped inside are passed to `sink` and listed as (name, array)."""
    seen: list[tuple[str, np.ndarray[Any, Any]]] = []

    def record(name: str, value: np.ndarray[Any, Any]) -> None:
        seen.append((name, value))
        if sink is not None:
            sink(name, value)

    token = _sinks.set((*_sinks.get(), record))
    try:
        yield seen
    finally:
        _sinks.reset(token)
