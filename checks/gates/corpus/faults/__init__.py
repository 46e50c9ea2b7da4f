"""The faults, by the part of a model that they are in."""
