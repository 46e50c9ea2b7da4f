"""What `vmap_check` attaches to a function: the surfaces of `check_vmap`, one test item each."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autodiff.errors import nearest
from checks.gradients.naming import framework_of
from checks.gradients.report import UNDEFINED
from checks.properties.arguments import Call, PropertyError, by_name, label, where_is
from checks.properties.outcome import FAILED, PASSED, SKIPPED, Outcome

SURFACES = ("vmap_loop", "vmap_sizes", "vmap_out_axes", "vmap_gradients", "vmap_nested")


@dataclasses.dataclass(frozen=True)
class VmapProperty:
    """The options of `vmap_check`, checked when built."""

    function: Callable[..., Any]
    args: Sequence[Any] | Mapping[str, Any] = ()
    in_axes: Any = None
    out_axes: tuple[int, ...] = (0, -1)
    batch_sizes: tuple[int, ...] = (0, 1, 3)
    gradients: bool | None = None
    surfaces: tuple[str, ...] | None = None
    framework: str | None = None
    seed: int | None = None
    examples: int | None = None
    repeat: str = ""
    marker = "vmapcheck"

    def __post_init__(self) -> None:
        for name in self.surfaces or ():
            if name not in SURFACES:
                hint = nearest(name, SURFACES)
                what = f"there is no surface {name!r}{hint and f'; {hint}'}"
                raise self._wrong(what, SURFACES)
        if self.surfaces is not None and not self.surfaces:
            raise self._wrong("surfaces=() checks nothing", SURFACES)
        known = ("numpy", "autodiff", "jax", "torch", "pytorch")
        if self.framework is not None and self.framework not in known:
            hint = nearest(self.framework, known)
            what = f"there is no framework {self.framework!r}{hint and f'; {hint}'}"
            raise self._wrong(what, known)
        for n in (*self.batch_sizes, *self.out_axes):
            if isinstance(n, bool) or not isinstance(n, int):
                raise self._wrong(f"{n!r} is no integer", ("batch_sizes=(0, 1, 3)", "out_axes=-1"))
        if any(n < 0 for n in self.batch_sizes):
            raise self._wrong("batch sizes are not negative", ("batch_sizes=(0, 1, 3)",))

    def _wrong(self, what: str, known: Sequence[str]) -> PropertyError:
        text = f"vmap_check of {label(self.function)}: {what}"
        return PropertyError(text, where_is(self.function), f"use some of {', '.join(known)}")

    def kinds(self, drawn: bool = False) -> tuple[str, ...]:
        """The surfaces of the function, one test item each."""
        del drawn
        if self.surfaces is not None:
            return self.surfaces
        return tuple(s for s in SURFACES if self.gradients is not False or s != "vmap_gradients")

    def given(self, values: Mapping[str, Any]) -> "VmapProperty":
        """The same property with values by name over its own arguments."""
        return dataclasses.replace(self, args={**by_name(self.function, self.args), **values})

    def report(
        self, call: Call, name: str, surfaces: Sequence[str] | None = None, explain: bool = True
    ) -> Any:
        """The VmapReport of `check_vmap` at a call."""
        from checks.properties.mapping import check_vmap

        del explain

        named = {"autodiff": "numpy", "pytorch": "torch"}.get(self.framework or "", self.framework)
        found = check_vmap(
            call.function,
            *call.args,
            in_axes=self.in_axes,
            out_axes=self.out_axes,
            batch_sizes=self.batch_sizes,
            gradients=self.gradients,
            surfaces=surfaces or self.surfaces,
            framework=named or framework_of(self.function, call.args),
            seed=self.seed,
            name=name,
        )
        return dataclasses.replace(found, reproduce=self.repeat) if self.repeat else found

    def run(self, kind: str, call: Call, name: str, explain: bool = True) -> Outcome:
        """One surface at one call."""
        del explain
        report = self.report(call, name, (kind,))
        worst = max((c.error for c in report.checks), default=0.0)
        numbers = {
            "evaluations": report.evaluations,
            "seed": report.seed,
            "checks": len(report.checks),
            "error": worst,
        }
        if report.verdict == UNDEFINED and kind == "vmap_gradients" and not self.gradients:
            why = report.checks[0].detail.replace("\n", "; ")
            text = f"{kind} is not defined for {name}: {why}"
            return Outcome(SKIPPED, UNDEFINED, text, numbers, report)
        status = PASSED if report.ok else FAILED
        return Outcome(status, report.verdict, "" if report.ok else str(report), numbers, report)
