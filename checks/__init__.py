"""The checks: surfaces that compare two roads to one value, and judge by tolerances."""

import importlib
from typing import Any

_HOMES = {
    "assert_close": "checks.compare",
    "check_function": "checks.runner",
    "check_gradients": "checks.gradients.check",
    "GradientError": "checks.gradients.report",
    "GradientReport": "checks.gradients.report",
    "gradient_check": "checks.properties.decorators",
    "sweep": "checks.runner",
    "vmap_check": "checks.properties.decorators",
    "VmapReport": "checks.properties.mapping",
    "check_vmap": "checks.properties.mapping",
} | dict.fromkeys(
    """normal positive nonzero unit between integers distinct bools complexes probabilities spd
    symmetric orthogonal""".split(),
    "checks.domains",
)


def __getattr__(name: str) -> Any:
    """Public names, imported when first used: the pytest plugin must load nothing heavy."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'checks' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
