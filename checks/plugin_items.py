"""Decorated functions as test items: one item a surface, with fixtures and parameters.

Loaded only where a decorator was used.
"""

import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autodiff.errors import AutodiffError
from checks.properties.arguments import parameters
from checks.properties.outcome import Outcome
from checks.properties.run import covered, is_drawn, surface

SURFACE = "gradsweep_surface"
KEY = pytest.StashKey[str]()


def items_of(collector: Any, name: str, found: Any) -> list[pytest.Item] | None:
    """The items of an object in a module or class; None where it is not decorated."""
    plain = found.__func__ if isinstance(found, staticmethod) else found
    properties = inspect.getattr_static(plain, "gradsweep", None)
    if not (isinstance(properties, tuple) and properties and callable(plain)):
        return None
    if not all(hasattr(type(p), "kinds") for p in properties):
        return None
    return _collect(collector, name, plain, isinstance(found, staticmethod))


def _collect(collector: Any, name: str, plain: Any, static: bool) -> list[pytest.Item]:
    """The items of a decorated function: its surfaces, times its own parameters."""
    method = isinstance(collector, pytest.Class) and not static
    try:
        stand_in = _stand_in(plain, collector, method)
    except AutodiffError as error:
        raise collector.CollectError(str(error)) from None
    # pytest's own generator: it applies fixtures, parametrize marks and pytest_generate_tests.
    items = list(collector._genfunctions(name, stand_in))
    for item in items:
        item.obj = stand_in
        item.stash[KEY] = name
    return items


def _stand_in(plain: Any, collector: Any, method: bool) -> Callable[..., None]:
    """What pytest calls in place of the function: its signature is the fixtures it needs."""
    function = types.MethodType(plain, collector.obj) if method else plain
    pairs = {
        kind: prop for prop in plain.gradsweep for kind in prop.kinds(is_drawn(prop, function))
    }
    taken = _parametrized(plain, collector)
    needed = set(_needed(function, taken))

    def run(*, request: pytest.FixtureRequest, **values: Any) -> None:
        kind = values.pop(SURFACE)
        if "request" in needed:
            values["request"] = request
        item = request.node
        bound = types.MethodType(plain, item.instance) if method else plain
        _run(item, pairs[kind], kind, bound, values)

    names = ["request", SURFACE, *sorted(needed - {"request"})]
    kind = inspect.Parameter
    first = [kind("self", kind.POSITIONAL_OR_KEYWORD)] if method else []  # pytest drops it
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*first, *(kind(n, kind.KEYWORD_ONLY) for n in names)]
    )
    run.__name__ = getattr(plain, "__name__", "function")
    run.__doc__ = plain.__doc__
    run.__wrapped__ = plain  # type: ignore[attr-defined]
    chosen = [
        pytest.param(kind, id=kind, marks=[_mark(prop.marker), _mark(kind)])
        for kind, prop in pairs.items()
    ]
    own = list(getattr(plain, "pytestmark", []))
    run.pytestmark = [pytest.mark.parametrize(SURFACE, chosen).mark, *own]  # type: ignore[attr-defined]
    return run


def _mark(name: str) -> pytest.MarkDecorator:
    return getattr(pytest.mark, name)  # type: ignore[no-any-return]


def _parametrized(function: Any, collector: Any) -> set[str]:
    """The names that parametrize marks of the function, its class and its module give."""
    marks = [m for m in getattr(function, "pytestmark", []) if m.name == "parametrize"]
    marks += list(collector.iter_markers("parametrize"))
    names: set[str] = set()
    for mark in marks:
        given = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        names |= set(given.replace(",", " ").split() if isinstance(given, str) else given)
    return names


def _needed(function: Any, taken: set[str]) -> list[str]:
    """The arguments that pytest is to find: parametrized ones, and those nothing else gives."""
    given: set[str] | None = None
    for prop in function.gradsweep:
        names = set(covered(prop, function))
        given = names if given is None else given & names
    known = parameters(function)
    loose = {
        n
        for n, p in known.items()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    return [n for n in known if n in taken or n in loose - (given or set())]


def _run(item: Any, prop: Any, kind: str, function: Any, values: dict[str, Any]) -> None:
    """One surface; its failure is its report alone."""
    settings = {k: v for k, v in values.items() if k in parameters(function)}
    # The id without the surface: all surfaces of one test see the same draws.
    rest = item.callspec.id.removeprefix(kind).removeprefix("-")
    name = f"{item.originalname}[{rest}]" if rest else str(item.originalname)
    path = item.nodeid.partition("::")[0]
    repeat = f'pytest "{item.nodeid}"'
    options: dict[str, Any] = {
        "name": name,
        "key": f"{path} {name}",
        "settings": settings,
        "repeat": repeat,
    }
    try:
        found = surface(prop, kind, function, **options)
    except AutodiffError as error:
        found = Outcome("failed", type(error).__name__, f"{error}\n{'again':12}{repeat}")
    except AttributeError as error:
        _say_framework(error)
        raise
    item.user_properties.append(("gradsweep_verdict", found.verdict))
    item.user_properties += [(f"gradsweep_{k}", v) for k, v in found.numbers.items()]
    if found.status == "failed":
        pytest.fail(found.text, pytrace=False)
    if found.status == "skipped":
        pytest.skip(found.text)


def _say_framework(error: AttributeError) -> None:
    """Where a NumPy array lacks a method, the function may be of a framework it does not name."""
    if type(error.obj) is np.ndarray:
        error.add_note(
            f"arguments are NumPy arrays here; one with .{error.name} is of another framework: "
            "name it by framework='jax' or framework='torch'"
        )


def missing_fixture(item: pytest.Item, report: pytest.TestReport, call: Any) -> None:
    """Say what to do about an argument that is neither given nor a fixture."""
    error = call.excinfo.value if call.excinfo is not None else None
    if not isinstance(error, pytest.FixtureLookupError) or item.stash.get(KEY, None) is None:
        return
    name = item.stash[KEY]
    report.longrepr = (
        f"{name} is checked without a value for its argument {error.argname}\n"
        f"{item.location[0]}:{(item.location[1] or 0) + 1}: no fixture or parameter has that name\n"
        f"give one: @gradient_check(args=(normal(3, 4), ...)) or args={{{error.argname!r}: ...}}"
    )
