"""The surfaces: each holds two roads of a function against each other."""

from checks.surfaces.base import SURFACES, Surface, surface

__all__ = ["SURFACES", "Surface", "surface"]
