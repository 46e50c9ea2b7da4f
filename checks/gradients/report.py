"""What a gradient check found: verdicts, the worst entry, the report in text and JSON."""

import dataclasses
import json
import math
from typing import Any

PASS, WRONG, KINK, DOMAIN = "PASS", "WRONG", "KINK", "DOMAIN"
INCONCLUSIVE, NONDETERMINISTIC = "INCONCLUSIVE", "NONDETERMINISTIC"
MUTATES_INPUT, WRONG_SHAPE, WRONG_DTYPE = "MUTATES_INPUT", "WRONG_SHAPE", "WRONG_DTYPE"
NOT_DIFFERENTIABLE, VACUOUS, UNDEFINED = "NOT_DIFFERENTIABLE", "VACUOUS", "NOT_DEFINED"

PRECEDENCE = (
    NONDETERMINISTIC,
    MUTATES_INPUT,
    WRONG_SHAPE,
    WRONG_DTYPE,
    NOT_DIFFERENTIABLE,
    DOMAIN,
    WRONG,
    KINK,
    INCONCLUSIVE,
    VACUOUS,
    PASS,
    UNDEFINED,
)
ALLOWED = {
    "kinks": KINK,
    "inconclusive": INCONCLUSIVE,
    "vacuous": VACUOUS,
    "nondeterministic": NONDETERMINISTIC,
}


@dataclasses.dataclass(frozen=True)
class Worst:
    """The entry where a derivative and its difference disagree most.

    Arguments:
        argument: its path, such as `x` or `params['w']`.
        index: its index in that argument; () for a scalar.
        derivative, difference: the entry of the derivative under test and of the difference.
        error: the difference's own error estimate.
        output: path and index of the result, where one result is meant.
    """

    argument: str
    index: tuple[int, ...]
    derivative: complex | float
    difference: complex | float
    error: float
    output: str = ""
    left: float | None = None
    right: float | None = None

    @property
    def ratio(self) -> complex | float:
        """Derivative over difference; NaN where the difference is 0."""
        return self.derivative / self.difference if self.difference else math.nan


@dataclasses.dataclass(frozen=True)
class Check:
    """One comparison of a gradient check.

    Arguments:
        name: "reverse", "forward", "dot", "second: forward over reverse", "vmap", ...
        verdict: one of the verdicts; NOT_DEFINED where the mode does not exist for the function.
        error, allowed: of the largest entry.
        detectable: the smallest error, of the largest entry, that would have been caught.
        detail: one line with the numbers.
    """

    name: str
    verdict: str
    error: float = 0.0
    allowed: float = 0.0
    detectable: float = 0.0
    detail: str = ""
    worst: Worst | None = None


@dataclasses.dataclass(frozen=True)
class Cause:
    """A likely cause, verified by undoing it.

    Arguments:
        name: "sign", "factor", "zero", "transposed", ...; the word tests and JSON go by.
        text: one sentence with its numbers.
        where: the equation and source line at fault, where it was found.
    """

    name: str
    text: str
    where: str = ""


class GradientError(AssertionError):
    """A gradient check that failed; carries the `report`."""

    def __init__(self, report: "GradientReport") -> None:
        self.report = report
        super().__init__(str(report))


@dataclasses.dataclass(frozen=True)
class GradientReport:
    """The outcome of one gradient check.

    Arguments:
        name, framework: of the function.
        verdict: the first verdict of the checks in order of precedence.
        ok: whether it passes (PASS, or a verdict that the caller allowed).
        checks: every comparison made.
        worst: the worst entry; None where nothing is wrong.
        cause: the verified cause; None where none was.
        pattern: how many entries are wrong and where they lie.
        evaluations: calls of the function; `derivative_calls`: of its derivatives.
        detectable: the smallest error, of the largest entry, that every check would have caught.
        seed: of the random directions, 0 where only the name decides.
        diagnosis_calls: further calls of the function, made after the verdict to find the cause.
    """

    name: str
    framework: str
    verdict: str
    ok: bool
    checks: tuple[Check, ...]
    worst: Worst | None = None
    cause: Cause | None = None
    pattern: str = ""
    notes: tuple[str, ...] = ()
    evaluations: int = 0
    derivative_calls: int = 0
    seconds: float = 0.0
    detectable: float = math.nan
    seed: int = 0
    reproduce: str = ""
    advice: str = ""
    diagnosis_calls: int = 0

    def __bool__(self) -> bool:
        return self.ok

    def raise_if_failed(self) -> "GradientReport":
        """Return the report where it is ok; else raise GradientError with its text."""
        if not self.ok:
            raise GradientError(self)
        return self

    def to_json(self, indent: int | None = None) -> str:
        """The report as JSON; numbers that are not finite, and complex ones, become text."""
        return json.dumps(_plain(dataclasses.asdict(self)), indent=indent, allow_nan=False)

    def print(self) -> None:
        """Print the report, in colour where the terminal has it."""
        from checks.gradients.wording import show

        show(self)

    def __str__(self) -> str:
        from checks.gradients.wording import text

        return text(self)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value
