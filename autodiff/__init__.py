"""Reverse- and forward-mode automatic differentiation of plain NumPy functions, with vmap."""

from autodiff._guard import check_imports

check_imports()

from typing import NoReturn

from autodiff import ops, taps, tree
from autodiff.api import grad, hvp, jvp, linearize, trace, value_and_grad, vjp
from autodiff.errors import UnknownNameError, nearest
from autodiff.execute import compile
from autodiff.interpret import interpret
from autodiff.jacobian import hessian, jacfwd, jacrev
from autodiff.lower.jax import lower_jax
from autodiff.lower.stablehlo import lower_stablehlo
from autodiff.ops.conditional import cond
from autodiff.ops.control import checkpoint, stop_gradient, tap
from autodiff.ops.custom_jvp import custom_jvp
from autodiff.ops.custom_vjp import custom_vjp
from autodiff.ops.scan import scan
from autodiff.ops.while_loop import while_loop
from autodiff.program import Program, Spec, inline
from autodiff.render import render
from autodiff.trace import spec_of as trace_spec
from autodiff.vmap import vmap

__all__ = [
    "Program",
    "Spec",
    "checkpoint",
    "compile",
    "cond",
    "custom_jvp",
    "custom_vjp",
    "grad",
    "hessian",
    "hvp",
    "inline",
    "interpret",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "lower_jax",
    "lower_stablehlo",
    "ops",
    "render",
    "scan",
    "stop_gradient",
    "tap",
    "taps",
    "trace",
    "trace_spec",
    "tree",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]


def __getattr__(name: str) -> NoReturn:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    ours = nearest(name, __all__)
    if not ours and hasattr(ops, name):
        ours = f"it is an op: autodiff.ops.{name}"
    raise UnknownNameError(
        f"autodiff has no function {name!r}", "in autodiff", ours or "dir(autodiff) lists all"
    )
