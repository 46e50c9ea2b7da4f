"""Arguments drawn by Hypothesis: from strategies in `args`, or by a `@given` on the function."""

import contextlib
import dataclasses
import functools
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from checks.properties.arguments import label
from checks.properties.outcome import FAILED, Outcome
from checks.properties.surfaces import says_nothing

SHOWN = 24


class DrawnError(AssertionError):
    """A drawn example that failed: its values and outcome. One subclass a verdict, so that
    Hypothesis never shrinks one kind of failure into another.
    """

    def __init__(self, values: Mapping[str, Any], found: Outcome) -> None:
        self.values, self.found = dict(values), found
        super().__init__(found.verdict)


@functools.cache
def error_of(verdict: str) -> type[DrawnError]:
    """The exception of one verdict."""
    return type(f"DrawnError_{verdict}", (DrawnError,), {})


def is_given(function: Any) -> bool:
    """Whether `@given` was applied."""
    return bool(getattr(function, "is_hypothesis_test", False))


def is_strategy(value: Any) -> bool:
    """Whether a value is a Hypothesis strategy; Hypothesis is not imported to tell."""
    names = {f"{c.__module__}.{c.__name__}" for c in type(value).__mro__}
    return "hypothesis.strategies._internal.strategies.SearchStrategy" in names or any(
        n.startswith("hypothesis.") and n.endswith(".SearchStrategy") for n in names
    )


def holds_strategy(value: Any) -> bool:
    """Whether a value is, or contains, a Hypothesis strategy."""
    if type(value) in (list, tuple, dict):
        return any(map(holds_strategy, value.values() if type(value) is dict else value))
    return is_strategy(value)


def as_strategy(value: Any) -> Any:
    """A strategy of a value with strategies in its containers."""
    from hypothesis import strategies as st

    if is_strategy(value):
        return value
    if type(value) is dict:
        return st.fixed_dictionaries({k: as_strategy(v) for k, v in value.items()})
    if type(value) in (list, tuple):
        return st.tuples(*map(as_strategy, value)).map(type(value))
    return st.just(value)


Trial = Callable[[Mapping[str, Any], bool], Outcome]  # the bool: look for a failure's cause


def over_given(
    function: Callable[..., Any], fixed: Mapping[str, Any], trial: Trial, key: str
) -> Outcome:
    """Run `trial` on what a function's own `@given` draws, beside the fixed values."""
    import inspect

    handle = function.hypothesis  # type: ignore[attr-defined]
    original = handle.inner_test
    watch = _Watch(trial)

    def inner(*args: Any, **kwargs: Any) -> None:
        watch(dict(inspect.signature(original).bind(*args, **kwargs).arguments))

    # One key for each surface: an example saved for one must not be discarded by another.
    inner._hypothesis_internal_add_digest = key.encode()  # type: ignore[attr-defined]
    with _patched(handle, function, inner):
        return watch.outcome(functools.partial(function, **fixed), label(function))


@contextlib.contextmanager
def _patched(handle: Any, function: Any, inner: Any) -> Iterator[None]:
    """The check in place of the test's body, and no deadline: a first call compiles."""
    name = "_hypothesis_internal_use_settings"
    target = getattr(function, "__func__", function)
    before, body = getattr(target, name, None), handle.inner_test
    handle.inner_test = inner
    if before is not None:
        setattr(target, name, _quiet(before))
    try:
        yield
    finally:
        handle.inner_test = body
        if before is not None:
            setattr(target, name, before)


def _quiet(parent: Any) -> Any:
    """Settings without a deadline, and without what nobody reads: Hypothesis' own report."""
    from hypothesis import HealthCheck, Phase, Verbosity, settings

    return settings(
        parent=parent,
        deadline=None,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        phases=[p for p in parent.phases if p != Phase.explain],
        suppress_health_check=[
            *parent.suppress_health_check,
            HealthCheck.too_slow,
            HealthCheck.nested_given,
        ],
    )


def over_strategies(
    strategies: Mapping[str, Any],
    trial: Trial,
    *,
    name: str,
    key: str,
    seed: int | None,
    examples: int | None,
) -> Outcome:
    """Run `trial` on values of strategies by name."""
    import hypothesis
    from hypothesis import settings
    from hypothesis import strategies as st

    watch = _Watch(trial)

    def test(values: dict[str, Any]) -> None:
        watch(values)

    test._hypothesis_internal_add_digest = key.encode()  # type: ignore[attr-defined]
    chosen = _quiet(settings() if examples is None else settings(max_examples=examples))
    run = chosen(hypothesis.given(st.fixed_dictionaries(dict(strategies)))(test))
    if seed is not None:
        run = hypothesis.seed(zlib.crc32(f"{key} {seed}".encode()))(run)
    return watch.outcome(run, name)


class _Watch:
    """Runs a trial on each example; a failure is raised for Hypothesis to shrink."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.last: Outcome | None = None
        self.skip: Outcome | None = None
        self.empty: Outcome | None = None
        self.evaluations = self.count = 0

    def __call__(self, values: dict[str, Any]) -> None:
        found = self.trial(values, False)
        self.count += 1
        self.evaluations += int(found.numbers.get("evaluations", 0))
        if found.status == "skipped":
            self.skip = found
            return
        if says_nothing(found):
            self.empty = found  # zeros are drawn first; they are no failure beside others
            return
        if found.status == FAILED:
            raise error_of(found.verdict)(values, found)
        self.last = found

    def outcome(self, run: Callable[[], Any], name: str) -> Outcome:
        """Run all examples; the outcome of the smallest failing one, or of the last."""
        try:
            run()
        except DrawnError as error:
            return self._failed(error)
        done = self.last or self.empty or self.skip
        if done is None:
            return Outcome(FAILED, "VACUOUS", f"{name}: Hypothesis drew no example")
        numbers = {**done.numbers, "evaluations": self.evaluations, "examples": self.count}
        return dataclasses.replace(done, numbers=numbers)

    def _failed(self, error: DrawnError) -> Outcome:
        given = [f"{k} = {shown(v)}" for k, v in error.values.items()]
        head = f"the smallest failing one of {self.count} drawn by Hypothesis:"
        lines = [f"{'example' if i == 0 else '':12}{line}" for i, line in enumerate([head, *given])]
        found = self.trial(error.values, True)
        found = found if found.status == FAILED else error.found
        return dataclasses.replace(found, text="\n".join([found.text, *lines]))


def shown(value: Any) -> str:
    """A value as code where it is short, else its type, shape and dtype."""
    if isinstance(value, np.ndarray):
        kind = f"{value.dtype.name}{list(value.shape)}"
        if value.size > SHOWN:
            return f"{kind}, {value.size} entries"
        listed = np.array2string(value, separator=", ", threshold=SHOWN, floatmode="unique")
        return (
            f"np.array({' '.join(listed.split())}, dtype={value.dtype.name!r}), shape {value.shape}"
        )
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {shown(v)}" for k, v in value.items()) + "}"
    if type(value) in (list, tuple):
        inner = ", ".join(shown(v) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    text = repr(value)
    return text if len(text) <= 10 * SHOWN else f"{type(value).__name__} of {len(text)} characters"
