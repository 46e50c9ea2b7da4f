"""Names another installed package that stands where `catalogue` or `checks` should be.

Both are top-level names, and `catalogue` is also that of a package many environments hold. Python
imports whichever comes first on the path and says nothing, so the mistake would show much later, as
an AttributeError far from its cause.
"""

import importlib.util
import sys
from pathlib import Path

SIBLINGS = ("catalogue", "checks")


class PackageClash(ImportError):
    """Another package bears the name of one of ours; carries `package`, `found`, `expected`."""

    def __init__(self, package: str, found: Path, expected: Path) -> None:
        self.package = package
        self.found = found
        self.expected = expected
        super().__init__(
            f"another package named '{package}' is installed at {found}\n"
            f"expected {expected}, beside autodiff\n"
            f"uninstall it or use a separate environment: pip uninstall {package}"
            " (a module of your own: rename it), then reinstall gradsweep",
            name=package,
            path=str(found),
        )

    def __reduce__(self) -> tuple[type["PackageClash"], tuple[str, Path, Path]]:
        return type(self), (self.package, self.found, self.expected)


def check_imports(home: Path | None = None) -> None:
    """Checks that `catalogue` and `checks` resolve inside the folder that holds `autodiff`.

    Nothing is imported. A sibling that cannot be found at all is left to the import that needs it:
    `autodiff` works alone.

    Args:
        home: the folder to expect the packages in; by default the one that holds `autodiff`.

    Raises:
        PackageClash: one of the two names belongs to another package.
    """
    home = (home or Path(__file__).parent.parent).resolve()
    for package in SIBLINGS:
        found = _location(package)
        if found is not None and found.parent.resolve() != home:
            raise PackageClash(package, found, home / package)


def _location(package: str) -> Path | None:
    """The folder or single file that `import package` would load, or has loaded."""
    loaded = sys.modules.get(package)
    spec = importlib.util.find_spec(package) if loaded is None else loaded.__spec__
    # A regular package has both; a namespace package folders alone; a plain module a file alone.
    folders = spec.submodule_search_locations if spec else getattr(loaded, "__path__", None)
    for folder in folders or ():
        return Path(folder)
    origin = spec.origin if spec else getattr(loaded, "__file__", None)
    return Path(origin) if origin else None
