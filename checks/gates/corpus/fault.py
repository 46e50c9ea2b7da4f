"""A fault: one named mistake in one model, where it must show first and what may be said of it."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy as np

CAUSES = {
    1: "mel off by one",
    2: "window or filter bank",
    3: "padding at a boundary",
    4: "dtype mismatch",
    5: "accumulation order",
    6: "another formula",
    7: "reused buffer",
    8: "layout",
    9: "broadcast or stride",
    10: "another op",
    11: "residual",
    12: "head layout",
    13: "rotary pairing",
    14: "mask, length or position",
    15: "key-value cache",
    16: "tokens or prompt",
    17: "audio injection",
    18: "infinite log-softmax",
    19: "argmax within the tolerance",
    20: "meaning unknown",
    21: "blockwise attention",
    22: "one convolution",
    23: "magnitude before encoding",
    24: "zeros for the past",
    25: "constant or edge frames of the mel",
    26: "missing bias",
    27: "step or layer off by one",
    28: "fully masked row",
}

Named = tuple[str, Any]
Function = Callable[..., Any]


@dataclass(frozen=True)
class Run:
    """One run of a model, before it happens.

    Arguments:
        weights, config, inputs: what `forward` is called with.
        patches: what replaces functions, by "module.function" (of `checks.ports`): each takes the
            function in place and returns another. Applied in order.
        edits: change the list of (name, array) that the run shows, before it is dumped.
    """

    weights: Mapping[str, Any]
    config: Any
    inputs: tuple[Any, ...]
    patches: Sequence[tuple[str, Callable[[Function], Function]]] = ()
    edits: Sequence[Callable[[list[Named]], list[Named]]] = ()


@dataclass(frozen=True)
class Fault:
    """One mistake in one model.

    Arguments:
        name: unique in its model.
        cause: a number of `CAUSES`.
        model: which it is injected into.
        inject: the run with the mistake of a run without.
        first: the tensors of which the first divergence must be one; known by construction.
        causes: names of causes that describe it; empty where no two arrays can tell.
        structural: whether it must be caught; False where it is a matter of precision alone.
        explained: where tokens or the argmax change, whether the margin between the two largest
            logits is to explain that; None where neither need change.

    Raises:
        ValueError: the cause is unknown, or the first divergence is not stated.
    """

    name: str
    cause: int
    model: str
    inject: Callable[[Run], Run] = field(repr=False)
    first: tuple[str, ...]
    causes: tuple[str, ...] = ()
    structural: bool = True
    explained: bool | None = None

    def __post_init__(self) -> None:
        if self.cause not in CAUSES or not self.first:
            raise ValueError(f"a fault needs a cause and a first tensor: {self}")

    @property
    def label(self) -> str:
        """`model: name (cause)`."""
        return f"{self.model}: {self.name} ({self.cause} {CAUSES[self.cause]})"


def faults_of(model: str) -> Callable[..., Fault]:
    """Return what makes faults of one model: (name, cause, inject, first, *causes)."""

    def made(
        name: str,
        cause: int,
        inject: Callable[[Run], Run],
        first: str | tuple[str, ...],
        *causes: str,
        structural: bool = True,
        explained: bool | None = None,
    ) -> Fault:
        place = (first,) if isinstance(first, str) else first
        return Fault(name, cause, model, inject, place, causes, structural, explained)

    return made


# --- ways to inject ---


def held_in(dtype: Any) -> Function:
    """What holds values in a narrower dtype."""
    return lambda x: x.astype(dtype).astype(x.dtype)


def none(values: Any) -> Any:
    """Zeros in place of values."""
    return 0 * values


def patched(where: str, make: Callable[[Function], Function]) -> Callable[[Run], Run]:
    """Replace "module.function" by `make(function)`."""
    return lambda run: replace(run, patches=(*run.patches, (where, make)))


def instead(where: str, function: Function) -> Callable[[Run], Run]:
    """Replace "module.function" by a function."""
    return patched(where, lambda before: function)


def after(where: str, change: Function) -> Callable[[Run], Run]:
    """Change what "module.function" returns."""
    return patched(where, lambda before: lambda *a, **k: change(before(*a, **k)))


def weight(name: str, change: Function) -> Callable[[Run], Run]:
    """Change one weight; its dtype is kept."""

    def inject(run: Run) -> Run:
        old = run.weights[name]
        new = np.asarray(change(old.astype(np.float64))).astype(old.dtype)
        return replace(run, weights={**run.weights, name: new})

    return inject


def renamed(**names: str) -> Callable[[Run], Run]:
    """Exchange weights whose names start alike: old prefix = new prefix."""

    def inject(run: Run) -> Run:
        made = dict(run.weights)
        for old, new in names.items():
            for name in run.weights:
                if name.startswith(new):
                    made[old + name[len(new) :]] = run.weights[name]
        return replace(run, weights=made)

    return inject


def exchanged(a: str, b: str) -> Callable[[Run], Run]:
    """Exchange all weights under two prefixes."""

    def inject(run: Run) -> Run:
        made = dict(run.weights)
        for name in run.weights:
            for one, other in ((a, b), (b, a)):
                if name.startswith(one):
                    made[name] = run.weights[other + name[len(one) :]]
        return replace(run, weights=made)

    return inject


def configured(**changes: Any) -> Callable[[Run], Run]:
    """Change the configuration."""
    return lambda run: replace(run, config=replace(run.config, **changes))


def given(number: int, change: Function) -> Callable[[Run], Run]:
    """Change one input; its dtype is kept."""

    def inject(run: Run) -> Run:
        inputs = list(run.inputs)
        inputs[number] = np.asarray(change(inputs[number])).astype(inputs[number].dtype)
        return replace(run, inputs=tuple(inputs))

    return inject


def dumped(edit: Callable[[list[Named]], list[Named]]) -> Callable[[Run], Run]:
    """Change what is dumped."""
    return lambda run: replace(run, edits=(*run.edits, edit))


def stored(name: str, change: Function) -> Callable[[Run], Run]:
    """Change the tensor dumped under a name; `change` sees it and all others by name."""

    def edit(seen: list[Named]) -> list[Named]:
        table = dict(reversed(seen))
        return [(n, change(x, table) if n == name else x) for n, x in seen]

    return dumped(edit)


def both(*injections: Callable[[Run], Run]) -> Callable[[Run], Run]:
    """Several changes that are one mistake."""

    def inject(run: Run) -> Run:
        for one in injections:
            run = one(run)
        return run

    return inject


def home(where: str) -> tuple[ModuleType, str]:
    """The module of `checks.ports` and the function's name of "module.function"."""
    module, _, name = where.rpartition(".")
    return importlib.import_module(f"checks.ports.{module}"), name
