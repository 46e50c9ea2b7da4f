"""The tensor gate: two dumps of one computation, tensor by tensor."""

import importlib
from typing import Any

_HOMES = {
    "Block": "checks.gates.blocks.block",
    "Comparison": "checks.gates.comparison.several",
    "Dump": "checks.gates.capture.dump",
    "GateError": "checks.gates.errors",
    "GateFailure": "checks.gates.assertion",
    "GateInvalid": "checks.gates.assertion",
    "Isolation": "checks.gates.blocks.isolated",
    "Policy": "checks.gates.comparison.policy",
    "Result": "checks.gates.comparison.record",
    "bisect": "checks.gates.blocks.bisection",
    "bisect_replaced": "checks.gates.blocks.replacing",
    "calibrate": "checks.gates.limits.calibration",
    "chain": "checks.gates.blocks.replacing",
    "check": "checks.gates.assertion",
    "compare": "checks.gates.comparison.verdict",
    "compare_all": "checks.gates.comparison.several",
    "inject": "checks.gates.capture.inject",
    "injected": "checks.gates.blocks.injection",
    "injecting": "checks.gates.capture.inject",
    "isolate": "checks.gates.blocks.isolation",
    "jax_jit": "checks.gates.capture.taps",
    "jax_tap": "checks.gates.capture.taps",
    "read_report": "checks.gates.reports.saved",
    "rejudge": "checks.gates.comparison.rejudging",
}


def __getattr__(name: str) -> Any:
    """Public names, imported when first used."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'checks.gates' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
