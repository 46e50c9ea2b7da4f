"""The arguments of a decorated function: domains drawn, names bound, settings set apart."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.errors import AutodiffError
from checks.domains import Domain, seeded

_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class PropertyError(AutodiffError, TypeError):
    """A decorator's arguments contradict themselves or the function."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A call ready to be checked: a function of its arrays alone.

    Arguments:
        function: takes `args` by position; settings (numbers of a parametrised test, strings,
            flags, `self`) are bound in it.
        args: arrays in any containers.
        names: of the parameters that `args` fill.
        symmetric: positions of arguments that are symmetric matrices.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    names: tuple[str, ...]
    symmetric: tuple[int, ...] = ()


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a function by name; none where it does not tell."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}


def label(function: Callable[..., Any]) -> str:
    """The name of a function."""
    return str(getattr(function, "__name__", type(function).__name__))


def by_name(
    function: Callable[..., Any], given: Sequence[Any] | Mapping[str, Any]
) -> dict[str, Any]:
    """The decorator's `args` by the names of the parameters they fill, in order.

    Arguments past the named ones go to `*args`, as "args[0]", ....
    Raises PropertyError where there are more than the function takes, or an unknown name.
    """
    known = parameters(function)
    if isinstance(given, Mapping):
        loose = any(p.kind is p.VAR_KEYWORD for p in known.values())
        starred = any(p.kind is p.VAR_POSITIONAL for p in known.values())
        for name in given:
            if name not in known and not loose and not (starred and str(name).endswith("]")):
                raise _usage(
                    function, f"has no argument {name!r}", f"its arguments: {_list(known)}"
                )
        return dict(given)
    names = [n for n, p in known.items() if p.kind in _KINDS]
    rest = [n for n, p in known.items() if p.kind is p.VAR_POSITIONAL]
    if len(given) > len(names) and not rest and known:
        word = "argument" if len(names) == 1 else "arguments"
        what = f"takes {len(names)} {word} by position, args= holds {len(given)}"
        raise _usage(function, what, f"its arguments: {_list(known) or 'none'}")
    star = rest[0] if rest else "args"
    names += [f"{star}[{i}]" for i in range(len(given) - len(names))]
    return dict(zip(names, given, strict=False))


def by_default(function: Callable[..., Any]) -> dict[str, Any]:
    """Arrays and domains that parameters have as their defaults."""
    found = {n: p.default for n, p in parameters(function).items() if p.default is not p.empty}
    return {n: v for n, v in found.items() if isinstance(v, Domain) or holds_arrays(v)}


def drawn(values: Mapping[str, Any], name: str, seed: int | None) -> dict[str, Any]:
    """Values with every domain in them, containers included, replaced by its draw."""

    def draw(value: Any, path: str) -> Any:
        if isinstance(value, Domain):
            return value.draw(seeded(name, path, seed))
        if type(value) is dict:
            return {k: draw(v, f"{path}[{k!r}]") for k, v in value.items()}
        if type(value) in (list, tuple):
            return type(value)(draw(v, f"{path}[{i}]") for i, v in enumerate(value))
        return value

    return {k: draw(v, k) for k, v in values.items()}


def call_of(
    function: Callable[..., Any],
    values: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    symmetric: Sequence[str] = (),
) -> Call:
    """A call of a function at values by name (`args[i]` for extra positional ones).

    Values that hold arrays or floats are arguments under check; everything else is bound, and so
    are numbers among `settings` (a fixture's or parameter's).
    Raises PropertyError where the function has arguments without a value.
    """
    settings = settings or {}
    merged = {**values, **settings}
    complete(function, merged)
    order = [n for n in parameters(function) if n in merged]
    order += [n for n in merged if n not in order]
    under = [
        n
        for n in order
        if holds_arrays(merged[n]) or (n not in settings and holds_floats(merged[n]))
    ]
    marked = tuple(i for i, n in enumerate(under) if n in symmetric)
    args = tuple(merged[n] for n in under)
    if order == under == list(by_position(function, len(under))):
        return Call(function, args, tuple(under), marked)
    fixed = {n: merged[n] for n in order if n not in under}
    return Call(_partial(function, under, fixed), args, tuple(under), marked)


def by_position(function: Callable[..., Any], count: int) -> list[str]:
    """The names that so many positional arguments fill."""
    known = parameters(function)
    names = [n for n, p in known.items() if p.kind in _KINDS]
    star = next((n for n, p in known.items() if p.kind is p.VAR_POSITIONAL), "args")
    return (names + [f"{star}[{i}]" for i in range(max(count - len(names), 0))])[:count]


def _partial(
    function: Callable[..., Any], under: Sequence[str], fixed: Mapping[str, Any]
) -> Callable[..., Any]:
    """The function of its arrays alone; its signature names them."""
    known = parameters(function)

    def call(*arrays: Any) -> Any:
        values = {**fixed, **dict(zip(under, arrays, strict=True))}
        first = [values.pop(n) for n, p in known.items() if _leads(p, values)]
        first += [values.pop(n) for n in list(values) if n.endswith("]")]
        return function(*first, **values)

    def _leads(parameter: inspect.Parameter, values: Mapping[str, Any]) -> bool:
        starred = any(n.endswith("]") for n in values)
        by_place = parameter.kind is parameter.POSITIONAL_ONLY
        return parameter.name in values and (by_place or (starred and parameter.kind in _KINDS))

    call.__name__ = label(function)
    call.__qualname__ = getattr(function, "__qualname__", call.__name__)
    kind = inspect.Parameter.POSITIONAL_ONLY
    plain = [n for n in under if n.isidentifier()]
    if len(plain) == len(under):
        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(n, kind) for n in under]
        )
    return call


def complete(function: Callable[..., Any], values: Mapping[str, Any]) -> None:
    """Raise PropertyError where an argument without a default has no value."""
    missing = [
        n
        for n, p in parameters(function).items()
        if p.default is p.empty
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        and n not in values
    ]
    if missing:
        word = "argument" if len(missing) == 1 else "arguments"
        raise _usage(
            function,
            f"is checked without a value for its {word} {', '.join(missing)}",
            "give one: @gradient_check(args=(normal(3, 4), ...)), a fixture, a parameter or @given",
        )


def _usage(function: Callable[..., Any], what: str, fix: str) -> PropertyError:
    return PropertyError(f"{label(function)} {what}", where_is(function), fix)


def where_is(function: Callable[..., Any]) -> str:
    """The file and line of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else label(function)


def _list(names: Mapping[str, Any]) -> str:
    return ", ".join(names)


# --- what is an argument under check -------------------------------------------------------


def holds_arrays(value: Any) -> bool:
    """Whether a value is, or contains, an array of NumPy, JAX or PyTorch."""
    return any(_is_array(leaf) for leaf in tree.flatten(value)[0])


def holds_floats(value: Any) -> bool:
    """Whether a value is, or contains, a Python float or complex number."""
    return any(isinstance(leaf, float | complex) for leaf in tree.flatten(value)[0])


def _is_array(leaf: Any) -> bool:
    root = type(leaf).__module__.split(".")[0]
    return isinstance(leaf, np.ndarray | np.generic) or root in ("jax", "jaxlib", "torch")
