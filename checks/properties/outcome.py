"""What one surface of one property found."""

import dataclasses
from collections.abc import Mapping
from typing import Any

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one surface of one property found.

    Arguments:
        status: "passed", "failed" or "skipped".
        verdict: of the report; that of a row of the sweep otherwise.
        text: the report of a failure, the reason of a skip.
        numbers: what travels in a test's properties.
        report: of the check, where it makes one.
    """

    status: str
    verdict: str
    text: str
    numbers: Mapping[str, float | int] = dataclasses.field(default_factory=dict)
    report: Any = None
