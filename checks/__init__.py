"""The checks: surfaces that compare two roads to one value, and judge by tolerances."""

import importlib
from typing import Any

_HOMES = {
    "assert_close": "checks.compare",
    "check_function": "checks.runner",
    "sweep": "checks.runner",
}


def __getattr__(name: str) -> Any:
    """Public names, imported when first used: the pytest plugin must load nothing heavy."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'checks' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
