"""Blocks of a model run by themselves: isolation, injection, bisection."""
