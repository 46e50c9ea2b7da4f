"""The gate inside a test: `gates.check(...)` asserts what `gradsweep gate compare` prints."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checks.gates.comparison.policy import Policy
from checks.gates.comparison.record import Result
from checks.gates.comparison.several import Comparison, compare_all
from checks.gates.comparison.verdict import compare
from checks.gates.errors import INVALID, PASSED


class GateFailure(AssertionError):
    """A candidate is wrong: what the command line prints, and the `result`."""

    def __init__(self, result: Result | Comparison) -> None:
        super().__init__(message(result))
        self.result = result


class GateInvalid(Exception):
    """No valid comparison is possible: what the command line prints, and the `result`.

    No AssertionError: nothing is known of the candidate, so that a test runner counts an error.
    """

    code = INVALID

    def __init__(self, result: Result | Comparison) -> None:
        super().__init__(message(result))
        self.result = result


def check(
    reference: str | Path,
    candidate: str | Path | Sequence[str | Path],
    tolerances: str | Path,
    *,
    names: str | Path | None = None,
    only: str | None = None,
    reference64: str | Path | None = None,
    policy: Policy | None = None,
) -> Result | Comparison:
    """Assert that a candidate's dump is within the tolerances of the reference's.

    Arguments: see `gates.compare`; several candidates as a list, as in `gates.compare_all`.

    Returns:
        The comparison, which passed.

    Raises:
        GateFailure: an AssertionError: a contract tensor is over its limits, or missing.
        GateInvalid: no valid comparison is possible.
        GateError: a file cannot be used.
    """
    __tracebackhide__ = True
    sides = reference, candidate, tolerances
    return asserted(judged(*sides, names, only, reference64, policy))


def judged(
    reference: str | Path,
    candidate: str | Path | Sequence[str | Path],
    tolerances: str | Path,
    names: str | Path | None,
    only: str | None,
    reference64: str | Path | None,
    policy: Policy | None = None,
) -> Result | Comparison:
    """Return a comparison with one candidate, or with several."""
    options: dict[str, Any] = {"names": names, "only": only, "reference64": reference64}
    options["policy"] = policy
    if isinstance(candidate, str | Path):
        return compare(reference, candidate, tolerances, **options)
    return compare_all(reference, candidate, tolerances, **options)


def asserted(result: Result | Comparison) -> Result | Comparison:
    """Return a comparison that passed; raise where it did not, as `check` does."""
    __tracebackhide__ = True
    if result.exit_code == INVALID:
        raise GateInvalid(result)
    if result.exit_code != PASSED:
        raise GateFailure(result)
    return result


def message(result: Result | Comparison) -> str:
    """Return what the command line prints, the verdict first: failing rows, problems, answers."""
    from checks.gates.reports.terminal import printer, show_rows, verdict, verdict_of_all

    stream = io.StringIO()
    show_rows(result, printer(stream), quiet=True)
    last = verdict(result) if isinstance(result, Result) else verdict_of_all(result)
    lines = stream.getvalue().rstrip().splitlines()
    several = (result,) if isinstance(result, Result) else result.results
    sides = " and ".join([several[0].reference, *(r.candidate for r in several)])
    where = f"  at {sides}, limits {several[0].contract}"
    return "\n".join([last, where, *(line for line in lines if line != last)])
