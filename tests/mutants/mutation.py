"""The sweep of one op on one surface, while a rule is wrong."""

import dataclasses
from unittest import mock

from checks.results import Row
from checks.runner import Item, run_item
from checks.surfaces.base import SURFACES, surface


def sweep(op: str, surface_name: str) -> list[Row]:
    """The rows of one op on one surface, prepared alone: its neighbours are not mutated."""
    found = surface(surface_name)
    with mock.patch.dict(SURFACES, {surface_name: dataclasses.replace(found, chunk=0)}):
        return run_item(Item(op, surface_name))


def failures(op: str, surface_name: str) -> list[Row]:
    """The failing rows of one op on one surface; a surface that did not run is an error."""
    rows = sweep(op, surface_name)
    if all(r.status == "skipped" for r in rows) or any(r.missing for r in rows):
        raise AssertionError(f"{surface_name} did not run on {op}")
    return [r for r in rows if r.status == "fail"]
