"""What every op promises: one entry for each, with its samples, domain and known failures."""

import importlib
import pkgutil

from catalogue.entry import ENTRIES, Entry, Exclusion, Sample, Special
from catalogue.exclusions import EXCLUSIONS

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"catalogue.{_module.name}")
del _module


def entry(kind: str) -> Entry:
    """The entry of an op kind; an unknown one suggests the nearest."""
    from autodiff.errors import OpError, nearest

    try:
        return ENTRIES[str(kind).upper()]
    except KeyError:
        hint = nearest(str(kind).upper(), ENTRIES) or "catalogue.ENTRIES lists all"
        raise OpError(f"unknown op {kind!r}", "in the catalogue", hint) from None


__all__ = ["ENTRIES", "EXCLUSIONS", "Entry", "Exclusion", "Sample", "Special", "entry"]
