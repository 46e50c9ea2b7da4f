"""The surfaces of `gradient_check`: parts of `check_gradients`, the sweep's, a framework's."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from checks.gradients.report import (
    ALLOWED,
    INCONCLUSIVE,
    PASS,
    PRECEDENCE,
    UNDEFINED,
    VACUOUS,
    Check,
    GradientReport,
)
from checks.properties.arguments import Call
from checks.properties.outcome import FAILED, PASSED, SKIPPED, Outcome

if TYPE_CHECKING:
    from checks.properties.record import GradientProperty

# Parts of `check_gradients`; surfaces of the sweep that speak about any NumPy function (tests hold
# them against the registry, which is not loaded to collect tests); surfaces of the others.
PARTS = ("reverse", "forward", "second", "third", "vmap")
SWEPT = (
    "shapes",
    "f32",
    "exact",
    "render",
    "execute",
    "emit_f32",
    "emit_f64",
    "device_f32",
    "device_f64",
    "device_self",
)
OF_FRAMEWORK = {"numpy": SWEPT, "jax": ("f32", "jit"), "torch": ("f32", "compile")}
# torch.compile builds a library for each function: seconds, and only where a compiler is there.
BY_DEFAULT = {"numpy": SWEPT, "jax": ("f32", "jit"), "torch": ("f32",)}
KNOWN = tuple(dict.fromkeys((*PARTS, *SWEPT, "jit", "compile")))


def run(prop: "GradientProperty", kind: str, call: Call, name: str, explain: bool) -> Outcome:
    """One surface at one call; `explain`: look for the cause of a failure."""
    if kind in PARTS:
        return _part(prop, kind, call, name, explain)
    framework = prop.framework_name(call.args)
    if kind not in OF_FRAMEWORK[framework]:
        text = f"{kind} says nothing about {framework} functions, and {name} is one"
        return Outcome(SKIPPED, "SKIPPED", text)
    if framework == "numpy":
        return _swept(prop, kind, call, name)
    return _of_framework(prop, kind, call, name)


def says_nothing(found: Outcome) -> bool:
    """Whether a drawn example decides nothing: all derivatives zero, or differences all noise."""
    return found.status == FAILED and found.verdict in (VACUOUS, INCONCLUSIVE)


# --- parts of check_gradients --------------------------------------------------------------


def _part(prop: "GradientProperty", kind: str, call: Call, name: str, explain: bool) -> Outcome:
    def report(**options: Any) -> GradientReport:
        chosen = {"order": 1, "vmap": False, "explain": explain} | options
        return prop.report(call, name, **chosen)

    if kind in ("reverse", "forward"):
        found = _mode(prop, kind, report)
    elif kind == "vmap":
        found = _only(report(vmap=True, full=False), kind)
    else:
        found = _only(report(order={"second": 2, "third": 3}[kind], full=False), kind)
    if found.verdict != UNDEFINED:
        return outcome(found)
    other = {"reverse": "forward", "forward": "reverse"}.get(kind)
    if other is not None and not prop.derivatives:
        if report(modes=(other,)).verdict == UNDEFINED:
            return outcome(found)  # it has neither: nothing would have been checked
    why = next((c.detail for c in found.checks if c.detail), "no such derivative")
    return Outcome(SKIPPED, UNDEFINED, f"{kind} is not defined for {name}: {why}", {}, found)


def _mode(
    prop: "GradientProperty", kind: str, report: Callable[..., GradientReport]
) -> GradientReport:
    """One mode; the dot test stands with forward mode, where reverse is right."""
    if kind == "forward" and "reverse" in prop.modes:
        both = report()
        found = {c.name: c.verdict for c in both.checks}
        if found.get("reverse", PASS) == PASS and found.get("forward") != UNDEFINED:
            return both
    return report(modes=(kind,))


def _only(report: GradientReport, prefix: str) -> GradientReport:
    """A report of the checks of one surface; of all where it got no so far."""
    kept = tuple(c for c in report.checks if c.name.startswith(prefix))
    if not kept:
        return report
    main = min(kept, key=lambda c: PRECEDENCE.index(c.verdict))
    if main.verdict == report.verdict:
        return dataclasses.replace(report, checks=kept)
    if main.verdict != PASS:
        return report
    return dataclasses.replace(report, checks=kept, verdict=main.verdict, ok=True, worst=None)


def outcome(report: GradientReport) -> Outcome:
    """What a report means for a test."""
    worst = max(report.checks, key=lambda c: c.error, default=None)
    numbers: dict[str, float | int] = {
        "evaluations": report.evaluations,
        "derivative_calls": report.derivative_calls,
        "detectable": report.detectable,
        "seed": report.seed,
    }
    if worst is not None:
        numbers |= {"error": worst.error, "allowed": worst.allowed}
    status = PASSED if report.ok else FAILED
    return Outcome(status, report.verdict, "" if report.ok else str(report), numbers, report)


# --- surfaces of the sweep, and of a framework ---------------------------------------------


def _swept(prop: "GradientProperty", kind: str, call: Call, name: str) -> Outcome:
    """A surface of the sweep at a call of a NumPy function."""
    from checks import results
    from checks.runner import check_function

    rows = check_function(call.function, *call.args, surfaces=(kind,), name=name)
    bad = [r for r in rows if r.status == results.FAIL]
    if bad:
        found = "\n".join(r.message for r in bad)
        text = f"FAIL {name}[{kind}] (numpy)\n{found}\n"
        text += f"{'again':12}{prop.repeat or bad[0].repro}"
        return Outcome(FAILED, "FAIL", text, _numbers(bad[0]), rows)
    done = [r for r in rows if r.status == results.PASS]
    if not done:
        reasons = [r.reason for r in rows if r.status == results.SKIPPED]
        text = reasons[0] if reasons else f"{kind} says nothing about {name}"
        return Outcome(SKIPPED, "SKIPPED", text, {}, rows)
    worst = max(done, key=lambda r: r.headroom or 0.0)
    return Outcome(PASSED, PASS, "", _numbers(worst), rows)


def _numbers(row: Any) -> dict[str, float | int]:
    found = {"error": row.error, "allowed": row.tolerance, "evaluations": row.evaluations}
    return {k: v for k, v in found.items() if v is not None}


def _of_framework(prop: "GradientProperty", kind: str, call: Call, name: str) -> Outcome:
    """float32 against float64, or compiled against eager, of a JAX or PyTorch function."""
    from checks.gradients.surfaces import compiled_check, narrow_check

    target = prop.target(call, name)
    with target.scope():
        check: Check = narrow_check(target) if kind == "f32" else compiled_check(target)
    if check.verdict == UNDEFINED:
        return Outcome(SKIPPED, UNDEFINED, f"{kind} is not defined for {name}: {check.detail}")
    allowed = {PASS, *(ALLOWED[word] for word in prop.allow)}
    report = GradientReport(
        name=name,
        framework=target.framework.name,
        verdict=check.verdict,
        ok=check.verdict in allowed,
        checks=(check,),
        worst=check.worst,
        evaluations=target.tally.calls,
        derivative_calls=target.tally.derivatives,
        detectable=check.detectable,
        seed=prop.seed or 0,
        reproduce=prop.repeat,
    )
    return outcome(report)
