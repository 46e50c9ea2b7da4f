"""Gradient checks of any function of arrays: one call, one report, one verdict."""
