"""The framework that a function's own code names: `jnp`, `torch`, objects and classes of theirs."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from autodiff import tree

OWN = ("numpy", "scipy", "autodiff", "catalogue")  # their code serves every framework


def framework_of(function: Callable[..., Any], values: Sequence[Any] = ()) -> str | None:
    """The framework by the arrays among `values`, else by the modules a function's own code names
    (`jnp`, `torch`); None where neither tells.
    """
    found = {type(leaf).__module__.split(".")[0] for v in values for leaf in tree.flatten(v)[0]}
    found = {"jax" if r == "jaxlib" else r for r in found} & {"jax", "torch"}
    if not found:
        found = _named_modules(function) & {"jax", "torch"}
    return found.pop() if len(found) == 1 else None


def _named_modules(function: Callable[..., Any]) -> set[str]:
    """Roots of the packages that a function's code names: modules, classes, objects and functions
    of theirs, also through functions of its own file.
    """
    roots, seen = set[str](), set[Any]()
    pending = [_plain(function)]
    while pending:
        plain = pending.pop()
        code, space = getattr(plain, "__code__", None), getattr(plain, "__globals__", {})
        root = str(getattr(plain, "__module__", "")).split(".")[0]
        if code is None or code in seen or root in OWN:
            continue
        seen.add(code)
        names = _names(code)
        roots |= {n.split(".")[0] for n in names}  # an import inside is among the names
        values = [space[n] for n in names if n in space]
        values += [c.cell_contents for c in plain.__closure__ or () if _filled(c)]
        for value in values:
            roots |= _origins(value)
            own = getattr(value, "__module__", None) == plain.__module__
            pending += [inspect.unwrap(value)] if own and inspect.isfunction(value) else []
    return roots


def _names(code: Any) -> set[str]:
    """All names in a code object and in those inside it."""
    inner = [_names(c) for c in code.co_consts if inspect.iscode(c)]
    return set(code.co_names).union(*inner)


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # its variable has no value yet
        return False
    return True


def _origins(value: Any) -> set[str]:
    """Roots of the packages a module, class, function or object comes from."""
    if inspect.ismodule(value):
        return {value.__name__.split(".")[0]}
    classes = value.__mro__ if inspect.isclass(value) else type(value).__mro__
    named = [c.__module__ for c in classes] + [getattr(value, "__module__", None)]
    return {n.split(".")[0] for n in named if isinstance(n, str)}


def _plain(function: Any) -> Any:
    """The function behind a partial, a method, a wrapper or an object that is called."""
    while isinstance(function, functools.partial):
        function = function.func
    plain = inspect.unwrap(getattr(function, "__func__", function))
    if hasattr(plain, "__code__"):
        return plain
    call = inspect.getattr_static(type(plain), "__call__", None)
    return call if hasattr(call, "__code__") else plain
