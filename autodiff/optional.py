"""Optional packages: imported where they are used; where missing, named with their extra."""

import importlib
import importlib.util
from typing import Any

from autodiff.errors import AutodiffError


class MissingPackageError(AutodiffError, ImportError):
    """An optional package is not installed; carries `package` and `extra`."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed",
            f"in this environment; it belongs to the extra '{extra}'",
            f"pip install gradsweep[{extra}]",
            package=package,
            extra=extra,
        )


def available(package: str) -> bool:
    """Whether a top-level package can be imported; nothing is imported."""
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # a module put into sys.modules by hand, without a spec
        return True


def require(package: str, extra: str, purpose: str) -> Any:
    """Import an optional top-level package.

    Args:
        package: its import name.
        extra: the extra of this distribution that installs it.
        purpose: what needs it, as the subject of the error.

    Raises:
        MissingPackageError: it is not installed. An error inside an installed package is not
            caught.
    """
    if not available(package):
        raise MissingPackageError(package, extra, purpose)
    return importlib.import_module(package)
