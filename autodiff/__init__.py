"""Reverse- and forward-mode automatic differentiation of plain NumPy functions, with vmap."""

from autodiff import ops
from autodiff.api import grad, hvp, jvp, linearize, trace, value_and_grad, vjp, vmap
from autodiff.interpret import interpret
from autodiff.program import Program, Spec

__all__ = ["Program", "Spec", "grad", "hvp", "interpret", "jvp", "linearize", "ops", "trace", "value_and_grad", "vjp", "vmap"]
