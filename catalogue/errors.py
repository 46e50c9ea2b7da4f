"""The error of catalogue records: what is wrong, the line that made the record, the way out."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autodiff.errors import AutodiffError

_RECORDS = {str(Path(__file__).with_name(f"{n}.py")) for n in ("entry", "domain", "errors")}
_RECORDS |= {str(dataclasses.__file__), "<string>"}  # the __init__ that dataclasses write


class CatalogueError(AutodiffError, ValueError):
    """A record of the catalogue contradicts itself or another."""


def caller() -> str:
    """`file:line` of the code that is making a record."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in _RECORDS:
        frame = frame.f_back
    return f"{_short(frame.f_code.co_filename)}:{frame.f_lineno}"


def written(function: Callable[..., Any]) -> str:
    """`file:line` of a function."""
    code = getattr(function, "__code__", None)
    return f"{_short(code.co_filename)}:{code.co_firstlineno}" if code else repr(function)


def _short(path: str) -> str:
    return "/".join(Path(path).parts[-2:])
