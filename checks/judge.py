"""Judging comparisons by the tolerance table: the worst one of a check becomes its finding."""

import dataclasses
import math
from typing import Any

import numpy as np

from checks import tolerances
from checks.comparison import Comparison, compare
from checks.tolerances import Tolerance

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Finding:
    """The worst comparison of one check."""

    label: str
    error: float
    allowed: float
    tolerance: Tolerance
    comparison: Comparison | None
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether the error is within what is allowed; NaN never is."""
        return self.error <= self.allowed

    @property
    def headroom(self) -> float:
        """Error over allowed; 0 where both are 0."""
        if math.isnan(self.error):
            return math.inf
        if not self.allowed:
            return math.inf if self.error else 0.0
        return self.error / self.allowed


class CheckError(Exception):
    """A check found something wrong that is not a difference of numbers."""


class Judge:
    """Collects the comparisons of one check of one subject at one dtype."""

    def __init__(self, surface: str, dtype: str, op: str | None, sample: str) -> None:
        self.surface, self.dtype, self.op, self.sample = surface, dtype, op, sample
        self.worst: Finding | None = None
        self.evaluations = 0

    def compare(
        self,
        label: str,
        actual: Any,
        expected: Any,
        *,
        scale: Any = None,
        variant: str | None = None,
        floor: float = 0.0,
        equal_nan: bool = False,
        dtype: Any = None,
        factor: float = 1.0,
        detail: str = "",
    ) -> None:
        """Judge one pair of arrays.

        `scale` is what errors are divided by (max(1, max|expected|) by default); `floor` an error
        the reference itself may have, in the same unit; `factor` an entry's condition factor.
        """
        actual, expected = np.asarray(actual), np.asarray(expected)
        if actual.shape != expected.shape:
            raise CheckError(f"{label} has shape {actual.shape}, expected {expected.shape}")
        judged = actual.dtype if dtype is None else np.dtype(dtype)
        tolerance = tolerances.lookup(self.surface, judged, self.op, self.sample, variant)
        found = compare(actual, expected, scale=scale, equal_nan=equal_nan, unit=tolerance.unit)
        error = found.error(tolerance.unit)
        allowed = max(tolerance.value * factor, floor)
        self.add(Finding(label, error, allowed, tolerance, found, detail))

    def number(
        self,
        label: str,
        error: float,
        *,
        variant: str | None = None,
        floor: float = 0.0,
        dtype: Any = np.float64,
        factor: float = 1.0,
        detail: str = "",
    ) -> None:
        """Judge one error already measured in the surface's unit."""
        tolerance = tolerances.lookup(self.surface, dtype, self.op, self.sample, variant)
        allowed = max(tolerance.value * factor, floor)
        self.add(Finding(label, float(error), allowed, tolerance, None, detail))

    def add(self, finding: Finding) -> None:
        """Keep the finding with the least headroom."""
        self.evaluations += 1
        if self.worst is None or finding.headroom > self.worst.headroom:
            self.worst = finding
