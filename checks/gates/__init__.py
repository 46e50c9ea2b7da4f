"""The tensor gate: two dumps of one computation, tensor by tensor."""

import importlib
from typing import Any

_HOMES = {
    "Dump": "checks.gates.capture.dump",
    "GateError": "checks.gates.errors",
    "Result": "checks.gates.record",
    "compare": "checks.gates.verdict",
    "jax_jit": "checks.gates.capture.taps",
    "jax_tap": "checks.gates.capture.taps",
}


def __getattr__(name: str) -> Any:
    """Public names, imported when first used."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'checks.gates' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
