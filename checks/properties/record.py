"""What the decorators attach to a function: its properties, each a few surfaces to run."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from autodiff.errors import nearest
from checks.gradients.naming import framework_of
from checks.gradients.report import ALLOWED, GradientReport
from checks.properties.arguments import (
    Call,
    PropertyError,
    by_name,
    by_position,
    label,
    parameters,
    where_is,
)
from checks.properties.outcome import Outcome
from checks.properties.surfaces import BY_DEFAULT, KNOWN, PARTS, run


@dataclasses.dataclass(frozen=True)
class GradientProperty:
    """The options of `gradient_check`, checked when built; `repeat` is the line that repeats it."""

    function: Callable[..., Any]
    args: Sequence[Any] | Mapping[str, Any] = ()
    order: int = 1
    modes: tuple[str, ...] = ("reverse", "forward")
    surfaces: tuple[str, ...] | None = None
    framework: str | None = None
    derivatives: Mapping[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)
    argnums: tuple[int | str, ...] | None = None
    symmetric: tuple[int | str, ...] = ()
    tolerance: float | None = None
    allow: tuple[str, ...] = ()
    full: bool | None = None
    seed: int | None = None
    examples: int | None = None
    repeat: str = ""
    marker = "gradcheck"

    def __post_init__(self) -> None:
        self._each("mode", self.modes, ("reverse", "forward"))
        self._each("surface", self.surfaces or (), KNOWN)
        self._each("allowance", self.allow, ALLOWED)
        if self.framework is not None:
            known = ("numpy", "autodiff", "jax", "torch", "pytorch")
            self._each("framework", (self.framework,), known)
        if self.order not in (1, 2, 3):
            raise self._wrong(f"order={self.order!r}: orders are 1, 2 and 3", "use order=2")
        if self.tolerance is not None and not self.tolerance > 0:
            raise self._wrong(f"tolerance={self.tolerance!r} is not positive", "leave it out")
        seed: Any = self.seed
        if seed is not None and (not isinstance(seed, int) or seed < 0):
            raise self._wrong(f"seed={self.seed!r} is not an integer >= 0", "use seed=1")
        for name, derivative in self.derivatives.items():
            if not callable(derivative):
                raise self._wrong(f"{name}={derivative!r} is no function", f"pass {name}=my_{name}")
        if not self.surfaces and self.surfaces is not None:
            raise self._wrong("surfaces=() checks nothing", "leave it out for all of them")
        self._possible()

    def _each(self, what: str, names: Collection[str], known: Collection[str]) -> None:
        for name in names:
            if name not in known:
                hint = nearest(str(name), known)
                raise self._wrong(
                    f"there is no {what} {name!r}{hint and f'; {hint}'}",
                    f"use some of {', '.join(known)}",
                )

    def _possible(self) -> None:
        """A surface asked for must be one that the other options leave."""
        for name in self.surfaces or ():
            if name in self._parts() or (name not in PARTS and not self.derivatives):
                continue
            needs = {"second": "order=2", "third": "order=3"}.get(name, f"{name!r} among modes=")
            why = "hand-written derivatives do not have it" if self.derivatives else f"add {needs}"
            raise self._wrong(f"surface {name!r} cannot be checked: {why}", "or leave it out")

    def _wrong(self, what: str, fix: str) -> PropertyError:
        return PropertyError(
            f"gradient_check of {label(self.function)}: {what}", where_is(self.function), fix
        )

    # --- surfaces -----------------------------------------------------------------------------

    def kinds(self, drawn: bool = False) -> tuple[str, ...]:
        """The surfaces of the function, one test item each.

        `drawn`: Hypothesis draws arguments; then only the parts of `check_gradients` are run
        unless others are named: devices compile anew for every shape.
        """
        if self.surfaces is not None:
            return self.surfaces
        parts = self._parts()
        return parts if drawn or self.derivatives else (*parts, *BY_DEFAULT[self.framework_name()])

    def _parts(self) -> tuple[str, ...]:
        """The parts of `check_gradients` that the options leave."""
        if self.derivatives:
            made = [("reverse", {"vjp", "gradient", "jac"}), ("forward", {"jvp", "jac"})]
            return tuple(m for m, by in made if by & set(self.derivatives) and m in self.modes)
        higher = [("second", 2), ("third", 3)]
        found = [m for m in ("reverse", "forward") if m in self.modes]
        return (*found, *(name for name, order in higher if self.order >= order), "vmap")

    def framework_name(self, values: Sequence[Any] = ()) -> str:
        """The framework named, or found from values and the function's own code."""
        named = {"autodiff": "numpy", "pytorch": "torch"}.get(self.framework or "", self.framework)
        if named is not None:
            return named
        seen = values or list(self.args.values() if isinstance(self.args, Mapping) else self.args)
        return framework_of(self.function, seen) or "numpy"

    def given(self, values: Mapping[str, Any]) -> "GradientProperty":
        """The same property with values by name over its own arguments."""
        return dataclasses.replace(self, args={**by_name(self.function, self.args), **values})

    # --- running ------------------------------------------------------------------------------

    def run(self, kind: str, call: Call, name: str, explain: bool = True) -> Outcome:
        """One surface at one call."""
        return run(self, kind, call, name, explain)

    def report(self, call: Call, name: str, **options: Any) -> GradientReport:
        """The report of `check_gradients` at a call; `options` over those of the decorator."""
        from checks.gradients.check import check_gradients

        chosen: dict[str, Any] = {
            "order": self.order,
            "modes": self.modes,
            "framework": self.framework_name(call.args),
            "argnums": self._numbers(self.argnums, call),
            "symmetric": (*call.symmetric, *(self._numbers(self.symmetric, call) or ())),
            "tolerance": self.tolerance,
            "allow": self.allow,
            "full": self.full,
            "seed": self.seed,
            "name": name,
            **self.derivatives,
        }
        found = check_gradients(call.function, *call.args, **(chosen | options))
        return dataclasses.replace(found, reproduce=self.repeat) if self.repeat else found

    def target(self, call: Call, name: str) -> Any:
        """The call as a Target of `check_gradients`."""
        from checks.gradients.framework import framework
        from checks.gradients.target import Manual, Target

        chosen = framework(self.framework_name(call.args))
        function, args = chosen.prepare(call.function, call.args)
        return Target(
            name=name,
            framework=chosen,
            function=function,
            args=tuple(args),
            argnums=self._numbers(self.argnums, call),
            symmetric=(*call.symmetric, *(self._numbers(self.symmetric, call) or ())),
            manual=Manual(**self.derivatives),
            seed=self.seed,
        )

    def _numbers(self, chosen: Sequence[int | str] | None, call: Call) -> tuple[int, ...] | None:
        """Positions among the call's arrays of arguments given by name, or by place among all."""
        if chosen is None:
            return None
        found = []
        for n in chosen:
            places = by_position(
                self.function, max(len(parameters(self.function)), len(call.names))
            )
            name = n if isinstance(n, str) else places[n] if -len(places) <= n < len(places) else ""
            if name not in call.names:
                what = f"argument {n!r} holds no array to differentiate"
                raise self._wrong(what, f"its arrays: {', '.join(call.names) or 'none'}")
            found.append(call.names.index(name))
        return tuple(found)
