"""`check_gradients`: every probe, mode and order in one call, one report."""

import dataclasses
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from checks.gradients import framework as frameworks
from checks.gradients.batch import batch_checks
from checks.gradients.dense import full_jacobian, is_small
from checks.gradients.diagnosis.diagnose import Diagnosis, diagnose
from checks.gradients.evidence import Evidence
from checks.gradients.first import first_order
from checks.gradients.higher import check_order, higher_orders
from checks.gradients.modes import Modes, modes_of
from checks.gradients.options import (
    MODES,
    allowed_verdicts,
    check_claims,
    check_numbers,
    check_symmetric,
    modes_named,
    places,
)
from checks.gradients.probes import probe, recorded
from checks.gradients.report import (
    KINK,
    PASS,
    PRECEDENCE,
    UNDEFINED,
    VACUOUS,
    WRONG,
    Check,
    GradientReport,
)
from checks.gradients.surfaces import framework_checks
from checks.gradients.target import Manual, Target, TargetError
from checks.gradients.wording import again


def check_gradients(
    f: Callable[..., Any],
    *args: Any,
    order: int = 1,
    modes: str | Sequence[str] = ("forward", "reverse"),
    framework: str | None = None,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    gradient: Callable[..., Any] | None = None,
    jac: Callable[..., Any] | None = None,
    argnums: int | Sequence[int] | None = None,
    symmetric: int | Sequence[int] = (),
    tolerance: float | None = None,
    allow: Collection[str] = (),
    vmap: bool = True,
    surfaces: bool = False,
    full: bool | None = None,
    explain: bool = True,
    seed: int | None = None,
    name: str | None = None,
) -> GradientReport:
    """Hold the derivatives of `f` at `args` against differences of `f` and against one another.

    First the function itself: called twice alike, arguments left alone, finite. Then reverse and
    forward mode against central differences along a random direction (relative steps, Richardson
    extrapolation, an error estimate), against each other (`<u, Jv> = <J^T u, v>`), higher orders in
    every composition of modes, and vmap against a loop. A wrong entry is named.

    Args:
        f: a function of arrays in any containers: NumPy (differentiated by `autodiff`), JAX,
            PyTorch (modules too), or of any kind with a hand-written derivative.
        args: its positional arguments. Integer and bool arrays are held fixed.
        order: 1, 2 or 3.
        modes: "forward", "reverse" or both. A mode that the function does not have is reported as
            not defined.
        framework: "numpy" (or "autodiff"), "jax", "torch"; found from the arguments by default,
            else from the modules that the function's own code names.
        vjp: `vjp(*args, ct) -> tuple`, hand-written.
        jvp: `jvp(args, tangents) -> tangent`, hand-written.
        gradient: `gradient(*args) -> array or tuple` of a scalar function, hand-written.
        jac: `jac(*args) -> array or tuple`, output axes first, hand-written.
        argnums: the arguments to differentiate; all by default.
        symmetric: arguments of which one triangle is read: moved along symmetric directions.
        tolerance: of the largest entry of a (result, argument) block; 1e-9 by default, and never
            below what the difference's own error and round-off explain.
        allow: verdicts that pass all the same: "kinks", "inconclusive", "vacuous",
            "nondeterministic".
        vmap: hold vmap against a loop over distinct rows.
        surfaces: hold the compiled function (the executor, `jax.jit`, `torch.compile`) against the
            eager one, and float32 against float64.
        full: compare the full Jacobian (True), or only probes of it (False); by default where
            the arguments hold at most 32 numbers.
        explain: look for the cause of a failure.
        seed: varies the random directions; the name of the function decides them otherwise.
        name: what the report calls the function.

    Returns:
        A GradientReport; `report.raise_if_failed()` turns a failed one into an exception.

    Raises:
        TargetError: nothing to differentiate; options that are not what they may be; two claims of
            one derivative.
        FrameworkError: an unknown framework, or arrays of two.

    At a kink the derivative must lie between the one-sided slopes; the verdict is KINK.
    """
    start = time.perf_counter()
    if not callable(f):
        raise TargetError(
            f"{f!r:.60} is not a function",
            "in check_gradients(f, *args)",
            "pass the function first, then its arguments",
        )
    manual = Manual(vjp, jvp, gradient, jac)
    target = _target(f, args, framework, argnums, symmetric, manual, seed, name)
    allowed = allowed_verdicts(allow)
    check_symmetric(target)
    check_order(order, target.name)
    check_numbers(tolerance, seed, target.name)
    modes = modes_named(modes, target.name)
    notes: list[str] = []
    with target.scope():
        checks = probe(target, notes)
        failed: list[Evidence] = []
        diagnosis: Diagnosis = (None, "", None)
        if not checks:
            target = recorded(target)
            notes += _branches(target)
            found = modes_of(target, modes)
            checks, failed = _derivatives(target, found, (order, modes, tolerance), full, notes)
            checks += batch_checks(target) if vmap else []
            checks += framework_checks(target) if surfaces else []
            if failed and explain:
                diagnosis = diagnose(*_seen(target, found, failed), checks, failed, notes)
    notes = [*notes, *dict.fromkeys(target.notes), *_refused(target)]
    report = _report(target, checks, diagnosis, allowed, notes, start)
    changed = {
        "order": (order, 1),
        "modes": (modes, MODES),
        "framework": (framework, None),
        "tolerance": (tolerance, None),
        "allow": (allow, ()),
        "vmap": (vmap, True),
        "surfaces": (surfaces, False),
        "full": (full, None),
    }
    settings = {k: v for k, (v, usual) in changed.items() if v != usual}
    return dataclasses.replace(report, reproduce=again(target, settings))


def _derivatives(
    target: Target,
    modes: Modes,
    wanted: tuple[int, Sequence[str], float | None],
    full: bool | None,
    notes: list[str],
) -> tuple[list[Check], list[Evidence]]:
    order, names, tolerance = wanted
    checks, failed = first_order(target, modes, tolerance, notes)
    if all(c.verdict in (PASS, UNDEFINED) for c in checks):
        checks = [*checks, *_paths(target, modes)]
    dense = is_small(target) if full is None else full
    if dense and all(c.verdict in (PASS, UNDEFINED) for c in checks):
        more, wrong = full_jacobian(target, _defined(modes, checks), tolerance)
        checks, failed = [*checks, *more], [*failed, *wrong]
    if all(c.verdict in (PASS, UNDEFINED, VACUOUS) for c in checks):
        more, wrong = higher_orders(target, order, names, tolerance, notes)
        checks, failed = [*checks, *more], [*failed, *wrong]
    return checks, failed


def _refused(target: Target) -> list[str]:
    """A note of what the function raised at moved points."""
    what = target.tally.refused
    return [f"at some steps it raises {what}: taken for the end of its domain"] if what else []


def _branches(target: Target) -> list[str]:
    """Notes of the branches of a JAX function that did not run."""
    if target.framework.name != "jax" or target.manual.given:
        return []
    from checks.gradients.frameworks.jax_branches import branch_notes

    return branch_notes(target)


def _paths(target: Target, modes: Modes) -> list[Check]:
    """Other paths through backwards written by hand for PyTorch."""
    if modes.reverse is None or not target.__dict__.get("custom"):
        return []
    from checks.gradients.frameworks.torch_paths import path_checks

    return path_checks(target)


def _seen(target: Target, modes: Modes, failed: Sequence[Evidence]) -> tuple[Target, Modes]:
    """The function and modes that failed: those at float64, where a narrow one was judged there."""
    broad = target.__dict__.get("broad")
    if broad is not None and any(e.target is broad.twin for e in failed):
        return broad.twin, broad.modes
    return target, modes


def _defined(modes: Modes, checks: Sequence[Check]) -> Modes:
    """The modes without those that first order found not to exist."""
    missing = {c.name for c in checks if c.verdict == UNDEFINED}
    return Modes(
        None if "reverse" in missing else modes.reverse,
        None if "forward" in missing else modes.forward,
    )


def _target(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    named: str | None,
    argnums: int | Sequence[int] | None,
    symmetric: int | Sequence[int],
    manual: Manual,
    seed: int | None,
    name: str | None,
) -> Target:
    chosen = frameworks.framework(named) if named else frameworks.detect(f, args, not manual.given)
    function, prepared = chosen.prepare(f, tuple(args))
    label = name or str(getattr(function, "__name__", type(function).__name__))
    check_claims(manual, label)
    count = len(prepared)
    return Target(
        name=label,
        framework=chosen,
        function=function,
        args=tuple(prepared),
        argnums=None if argnums is None else places("argnums", argnums, count, label),
        symmetric=places("symmetric", symmetric, count, label),
        manual=manual,
        seed=seed,
    )


def _report(
    target: Target,
    checks: Sequence[Check],
    diagnosis: Diagnosis,
    allowed: frozenset[str],
    notes: Sequence[str],
    start: float,
) -> GradientReport:
    cause, pattern, worst = diagnosis
    rank = {v: i for i, v in enumerate(PRECEDENCE)}
    main = min(checks, key=lambda c: rank[c.verdict], default=Check("none", UNDEFINED))
    passing = allowed | {PASS}
    ok = main.verdict in passing and all(c.verdict in passing | {UNDEFINED} for c in checks)
    first = [c.detectable for c in checks if c.name in ("reverse", "forward", "jacobian")]
    return GradientReport(
        name=target.name,
        framework=target.framework.name,
        verdict=main.verdict,
        ok=ok,
        checks=tuple(checks),
        worst=worst if main.verdict in (WRONG, KINK) and worst is not None else main.worst,
        cause=cause,
        pattern=pattern,
        notes=tuple(notes),
        evaluations=target.tally.calls,
        derivative_calls=target.tally.derivatives,
        seconds=time.perf_counter() - start,
        detectable=max(first, default=float("nan")),
        seed=target.seed or 0,
        diagnosis_calls=target.tally.diagnosis,
    )
