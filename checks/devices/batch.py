"""Programs run on a device, many in one compiled module."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from autodiff.errors import AutodiffError
from autodiff.interpret import interpret_flat
from autodiff.lower.jax import flat_function, input_dtypes, needs_x64, settle
from autodiff.optional import available, require
from autodiff.profiles import DeviceProfile, profile
from autodiff.program import Program
from autodiff.rounding import cast
from checks.devices.environment import OPTIONS

Array = np.ndarray[Any, Any]
Case = tuple[Program, Sequence[Any]]
Outcome = tuple[Array, ...] | Exception
CHUNK = 50


class DeviceError(AutodiffError):
    """A device profile that nothing here can run on; carries `device` and `reason`."""


def run_batch(
    cases: Sequence[Case],
    device: str,
    precision: str,
    strict: bool = False,
    *,
    options: str = "default",
    chunk: int = CHUNK,
) -> list[Outcome]:
    """Run programs on a device; one result or exception each, in order.

    On a JAX device `chunk` programs are compiled as one module (26 ms alone, 1 to 4 ms each in a
    batch of 50). A program that cannot be lowered is left out; a module that fails to compile or
    to run is halved until the ones at fault are alone. An emulated device is the reference
    interpreter with the device's dot mode and convert folding.

    Args:
        cases: programs without captures, each with its flat arguments.
        device: a profile's name, such as "jax-cpu" or "emulated:gb10".
        precision: "float64", "float32", "bfloat16" or "float16".
        strict: forbid the device more precision than the types say
            (`xla_allow_excess_precision=false`): conversions are not folded.
        options: a key of `OPTIONS`: the XLA options to compile with.
        chunk: how many programs to compile together.

    Returns:
        For each case the flat NumPy results at that precision, or the exception it raised.

    Raises:
        DeviceError: the device is not usable here; the error says why.
        PrecisionError: unknown device or precision.
    """
    found = profile(device)
    reason = why_unavailable(device)
    if reason is not None:
        raise DeviceError(
            f"device {device!r} cannot be used: {reason}",
            "in checks.devices.run_batch",
            "gradsweep doctor lists the devices found",
            device=device,
            reason=reason,
        )
    if device.startswith("emulated:"):
        return [_outcome(partial(_emulate, c, found, precision, strict)) for c in cases]
    require("jax", "jax", f"device {device!r}")
    settings = dict(OPTIONS[options])
    if strict:
        settings["xla_allow_excess_precision"] = False
    runner = _Runner(device.removeprefix("jax-"), precision, settings)
    results: list[Outcome] = []
    for start in range(0, len(cases), chunk):
        results += runner.run(cases[start : start + chunk])
    return results


def why_unavailable(device: str) -> str | None:
    """None where a device can be used, else the reason why not."""
    kind = profile(device).name.partition("-")
    if device.startswith("emulated:"):
        return None
    if not available(kind[0]):
        return f"package '{kind[0]}' is not installed"
    if kind[0] != "jax":
        return f"programs are not lowered to '{kind[0]}' here"
    import jax

    try:
        jax.devices(kind[2])
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return None


def _outcome(run: Callable[[], tuple[Array, ...]]) -> Outcome:
    # A case's exception is its result: the caller judges it (an exclusion may expect it).
    try:
        return run()
    except Exception as error:
        return error


def _emulate(case: Case, found: DeviceProfile, precision: str, strict: bool) -> tuple[Array, ...]:
    program, args = case
    folds = found.folds_converts and not strict
    results = interpret_flat(program, *args, precision=precision, dot=found.dot, folds=folds)
    return tuple(np.asarray(r) for r in results)


class _Runner:
    """Compilation and runs of chunks on one JAX device, with one set of options."""

    def __init__(self, kind: str, precision: str, settings: dict[str, Any]) -> None:
        import jax

        self.device = jax.devices(kind)[0]
        self.precision, self.settings = precision, settings
        if kind != "cpu":
            self.settings = {k: v for k, v in settings.items() if not k.startswith("xla_cpu_")}

    def run(self, cases: Sequence[Case]) -> list[Outcome]:
        """Outcomes of cases compiled together; halved where that fails."""
        try:
            return self.together(cases)
        except Exception as error:  # any backend's error: bisection finds whose it is
            if len(cases) == 1:
                return [error]
        middle = len(cases) // 2
        return self.run(cases[:middle]) + self.run(cases[middle:])

    def together(self, cases: Sequence[Case]) -> list[Outcome]:
        """Outcomes of cases compiled as one module; a case that does not lower is left out."""
        import jax

        failed: dict[int, Exception] = {}

        def module(groups: Any) -> Any:
            results: list[Any] = []
            for i, ((program, _), args) in enumerate(zip(cases, groups, strict=True)):
                try:
                    results.append(flat_function(program, precision=self.precision)(*args))
                except Exception as error:
                    failed[i] = error
                    results.append(((), ([], [])))
            return results

        wide = any(needs_x64(p, self.precision) for p, _ in cases)
        with jax.enable_x64(wide or jax.config.jax_enable_x64), jax.default_device(self.device):
            groups = [self.arguments(case) for case in cases]
            compiled = self.compile(jax.jit(module, keep_unused=True).lower(groups))
            raw = compiled(groups)
            outcomes: list[Outcome] = []
            for i, (results, effects) in enumerate(raw):
                outcomes.append(failed[i] if i in failed else _settled(results, effects))
        return outcomes

    def compile(self, lowered: Any) -> Any:
        """Compile; an option that this version of XLA does not know is dropped for good."""
        while True:
            try:
                return lowered.compile(compiler_options=self.settings or None)
            except Exception as error:
                unknown = [
                    k for k in self.settings if f"No such compile option: '{k}'" in str(error)
                ]
                if not unknown or "xla_allow_excess_precision" in unknown:
                    raise
                del self.settings[unknown[0]]

    def arguments(self, case: Case) -> tuple[Any, ...]:
        """A case's arguments, rounded once to their dtypes at the precision."""
        program, args = case
        dtypes = input_dtypes(program, self.precision)
        return tuple(
            a if a.dtype == d else np.asarray(cast(a, d))
            for a, d in zip(map(np.asarray, args), dtypes, strict=True)
        )


def _settled(results: Any, effects: Any) -> Outcome:
    """Results on the host, or the GuardError of a Python branch that would go elsewhere."""

    def settled() -> tuple[Array, ...]:
        settle(effects)
        return tuple(np.asarray(r) for r in results)

    return _outcome(settled)
