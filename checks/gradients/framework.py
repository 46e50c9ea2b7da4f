"""What a gradient check needs of a framework: arrays in and out, and its transforms.

A framework is a record of functions on *flat* functions: `flat(arrays) -> arrays`, lists of the
framework's own arrays in and out. Its transforms nest, so higher orders need nothing more.
"""

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.errors import AutodiffError, nearest
from checks.gradients.naming import framework_of

Array = np.ndarray[Any, Any]
Native = Any
Flat = Callable[[Sequence[Native]], list[Native]]
Vjp = Callable[[Flat, Sequence[Native]], tuple[list[Native], Callable[[Sequence[Any]], list[Any]]]]
Jvp = Callable[[Flat, Sequence[Native], Sequence[Native]], tuple[list[Native], list[Native]]]
Vmap = Callable[[Flat, Sequence[int | None]], Flat]
Prepare = Callable[[Any, tuple[Any, ...]], tuple[Any, tuple[Any, ...]]]


class FrameworkError(AutodiffError, ValueError):
    """Arguments of no known framework, or of two; an unknown framework's name."""


@dataclasses.dataclass(frozen=True)
class Framework:
    """The functions of one framework.

    Arguments:
        name: "numpy", "jax" or "torch".
        owns: whether an array belongs to it.
        native: `native(values, like)`: a new array of `values` (NumPy), of the dtype of `values`,
            in memory of its own, placed where the user's own array `like` is.
        numpy: an array as NumPy (shared memory is allowed).
        vjp: `vjp(flat, primals) -> (outputs, pullback)`; `pullback(cotangents)` returns one
            gradient per primal, or None. The pairing is `Re sum(u * v)` without conjugation.
        jvp: `jvp(flat, primals, tangents) -> (outputs, tangents)`; a tangent may be None.
        vmap: `vmap(flat, in_axes) -> flat`, results batched along axis 0.
        prepare: `prepare(f, args, kwargs) -> (f, args)`: a function with hidden parameters
            becomes one that takes them; anything else comes back unchanged.
        replay: `replay(flat, arrays) -> flat`: the same function for arrays of these shapes, traced
            or compiled once where that is possible; used for derivatives, never for the user's own.
        hot: like `replay`, for thousands of calls: compiled, whatever that takes.
        scope: a context in which every call happens (x64, for one).
        undefined: exceptions that mean "this mode is not defined for this function".
        inside: `inside(flat, arrays)`: the names of the dtypes of arrays inside the function.
        alive: whether an array still holds its numbers; None where no call can take them away.
        reentrant: the pullback may be trusted to give the same twice (no user code runs in it).
    """

    name: str
    owns: Callable[[Any], bool]
    native: Callable[[Array, Native], Native]
    numpy: Callable[[Native], Array]
    vjp: Vjp
    jvp: Jvp
    vmap: Vmap
    prepare: Prepare = lambda function, args: (function, args)
    replay: Callable[[Flat, Sequence[Native]], Flat] = lambda flat, arrays: flat
    hot: Callable[[Flat, Sequence[Native]], Flat] | None = None
    scope: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    undefined: tuple[type[BaseException], ...] = ()
    inside: Callable[[Flat, Sequence[Native]], set[str]] = lambda flat, arrays: set()
    alive: Callable[[Native], bool] | None = None
    reentrant: bool = False

    def dead(self, value: Native) -> bool:
        """Whether a call took the numbers of an array away (a donated one of JAX)."""
        return self.alive is not None and not self.alive(value)


_HOMES = {
    "numpy": "checks.gradients.frameworks.numpy",
    "jax": "checks.gradients.frameworks.jax",
    "torch": "checks.gradients.frameworks.torch",
}


def framework(name: str) -> Framework:
    """The framework of that name ("autodiff" is "numpy").

    Raises FrameworkError for an unknown name, MissingPackageError where it is not installed.
    """
    name = {"autodiff": "numpy", "pytorch": "torch"}.get(name, name)
    if name not in _HOMES:
        raise FrameworkError(
            f"there is no framework {name!r}; {nearest(name, _HOMES)}".rstrip("; "),
            "in framework=",
            f"use one of {', '.join(_HOMES)}",
        )
    found = importlib.import_module(_HOMES[name]).FRAMEWORK
    assert isinstance(found, Framework)
    return found


def detect(function: Any, args: Sequence[Any], by_code: bool = True) -> Framework:
    """The framework of a function and its arguments: that of its arrays, else the one that its own
    code names (where `by_code`), else NumPy.

    Raises FrameworkError where arrays of two frameworks meet.
    """
    roots = {type(leaf).__module__.split(".")[0] for leaf in tree.flatten(tuple(args))[0]}
    roots |= {cls.__module__.split(".")[0] for cls in type(function).__mro__}
    present = []
    if roots & {"jax", "jaxlib"}:
        present.append("jax")
    if "torch" in roots:
        present.append("torch")
    if len(present) > 1:
        raise FrameworkError(
            "the arguments hold arrays of JAX and of PyTorch",
            f"in the arguments of {getattr(function, '__name__', function)!r}",
            "convert them to one framework, or name it: framework='jax'",
        )
    code = framework_of(function) if by_code and not present else None
    return framework(present[0] if present else code or "numpy")
