"""The checks: surfaces that compare two roads to one value, and judge by tolerances."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors and type checkers: at run time names come when first used
    from checks.compare import assert_close as assert_close
    from checks.domains import between as between
    from checks.domains import bools as bools
    from checks.domains import complexes as complexes
    from checks.domains import distinct as distinct
    from checks.domains import integers as integers
    from checks.domains import nonzero as nonzero
    from checks.domains import normal as normal
    from checks.domains import orthogonal as orthogonal
    from checks.domains import positive as positive
    from checks.domains import probabilities as probabilities
    from checks.domains import spd as spd
    from checks.domains import symmetric as symmetric
    from checks.domains import unit as unit
    from checks.gradients.check import check_gradients as check_gradients
    from checks.gradients.report import GradientError as GradientError
    from checks.gradients.report import GradientReport as GradientReport
    from checks.properties.decorators import gradient_check as gradient_check
    from checks.properties.decorators import vmap_check as vmap_check
    from checks.properties.mapping import VmapReport as VmapReport
    from checks.properties.mapping import check_vmap as check_vmap
    from checks.runner import check_function as check_function
    from checks.runner import sweep as sweep

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
