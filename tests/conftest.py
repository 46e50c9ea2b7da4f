"""Hypothesis profiles: `quick` by default, `ci` where the variable CI is set, `deep` on request.

`pytest --hypothesis-profile=deep tests/properties` looks for new failures; the other two draw the
same examples each time, from the names of the tests. A failing example is printed as code.
"""

import importlib
import os
import pkgutil

from hypothesis import HealthCheck, settings

# a machine that is busy with other tests is slow: that is no fault of a test
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("quick", _COMMON, max_examples=20, derandomize=True)
settings.register_profile("ci", _COMMON, max_examples=50, derandomize=True, print_blob=True)
settings.register_profile("deep", _COMMON, max_examples=2000, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "quick")


def _import_everything() -> None:
    """Import the project before any test does: pytest's own `pytester` forgets what its runs
    import, and a module imported twice has two of each table and cache.
    """
    heavy = (
        *("autodiff.lower.rules_", "checks.gradients.frameworks."),
        "checks.gates.capture.torch_modules",
    )
    for package in ("autodiff", "catalogue", "checks"):
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            if not module.name.startswith(heavy) and not module.name.endswith("__main__"):
                importlib.import_module(module.name)


_import_everything()
