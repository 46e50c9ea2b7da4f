"""One surface of one property of a function, its arguments found: what a test item does."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from checks.domains import Domain
from checks.properties import drawing
from checks.properties.arguments import (
    Call,
    PropertyError,
    by_default,
    by_name,
    call_of,
    drawn,
    where_is,
)
from checks.properties.outcome import FAILED, PASSED, Outcome

Run = Callable[[Call, bool], Outcome]


def inner(function: Any) -> Any:
    """The function itself, under a `@given`."""
    return function.hypothesis.inner_test if drawing.is_given(function) else function


def is_drawn(prop: Any, function: Any) -> bool:
    """Whether Hypothesis draws some of a property's arguments."""
    values = prop.args.values() if isinstance(prop.args, Mapping) else prop.args
    return drawing.is_given(function) or any(drawing.holds_strategy(v) for v in values)


def covered(prop: Any, function: Any) -> dict[str, Any]:
    """The arguments that the decorator's `args` or array defaults give, by name."""
    return {**by_default(function), **by_name(function, prop.args)}


def perform(
    prop: Any,
    function: Any,
    run: Run,
    *,
    name: str,
    key: str,
    settings: Mapping[str, Any] | None = None,
) -> Outcome:
    """Find all arguments and run a surface on them; drawn ones many times over.

    Arguments: the property; the function (bound, or under a `@given`); `run(call, explain)`; the
    `name` that domains are drawn from; a `key` for Hypothesis' database; `settings`, the values of
    fixtures and parameters by name, which stand over `args`.
    """
    given = dict(settings or {})
    values = {k: v for k, v in covered(prop, function).items() if k not in given}
    both = {**values, **given}
    symmetric = [k for k, v in both.items() if isinstance(v, Domain) and v.symmetric]
    under = set(values) | {k for k, v in given.items() if isinstance(v, Domain)}
    fixed = drawn(both, name, prop.seed)
    strategies = {
        k: drawing.as_strategy(fixed.pop(k)) for k, v in both.items() if drawing.holds_strategy(v)
    }
    plain = inner(function)

    def trial(found: Mapping[str, Any], explain: bool) -> Outcome:
        chosen = {**fixed, **found}
        loose = {k: v for k, v in chosen.items() if k in given and k not in under}
        rest = {k: v for k, v in chosen.items() if k not in loose}
        return run(call_of(plain, rest, loose, symmetric), explain)

    if strategies and drawing.is_given(function):
        raise PropertyError(
            f"{name} has strategies in args= and a @given",
            where_is(plain),
            "draw all arguments by one of them",
        )
    if strategies:
        options = {"name": name, "key": key, "seed": prop.seed, "examples": prop.examples}
        return drawing.over_strategies(strategies, trial, **options)
    if drawing.is_given(function):
        return drawing.over_given(function, fixed, trial, key)
    return trial({}, True)


def surface(
    prop: Any,
    kind: str,
    function: Any,
    *,
    name: str,
    key: str = "",
    settings: Mapping[str, Any] | None = None,
    repeat: str = "",
) -> Outcome:
    """One surface of a property, by its name; `repeat` is the line that runs it again."""
    own = dataclasses.replace(prop, function=inner(function), repeat=repeat)
    return perform(
        own,
        function,
        lambda call, explain: own.run(kind, call, name, explain),
        name=name,
        key=f"{key or name} {kind}",
        settings=settings,
    )


def whole(prop: Any, function: Any, *, name: str, settings: Mapping[str, Any]) -> Any:
    """The report of a property in one call, all its surfaces of `check_gradients` together."""
    own = dataclasses.replace(prop, function=inner(function))

    def run(call: Call, explain: bool) -> Outcome:
        report = own.report(call, name, explain=explain)
        if hasattr(report, "derivative_calls"):
            from checks.properties.surfaces import outcome

            return outcome(report)
        status = PASSED if report.ok else FAILED
        return Outcome(status, report.verdict, "" if report.ok else str(report), {}, report)

    return perform(own, function, run, name=name, key=name, settings=settings).report
