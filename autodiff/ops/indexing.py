"""Indexing: gather, scatter, slices and the NumPy index expressions."""

from typing import Any


def index(x: Any, index: Any) -> Any:
    """`x[index]` for any NumPy basic or advanced index."""
    raise NotImplementedError
