"""Judging comparisons by the tolerance table: the worst one of a check becomes its finding."""

import dataclasses
import math
from typing import Any

import numpy as np

from checks import tolerances
from checks.comparison import Comparison, compare, error_of
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
        self.evaluations = 0
        self._worst: Finding | None = None
        self._pair: tuple[Array, Array, dict[str, Any]] | None = None  # what the worst compared
        self._tolerances: dict[tuple[Any, str | None], Tolerance] = {}

    @property
    def worst(self) -> Finding | None:
        """The finding with the least headroom, its comparison made when it is asked for."""
        if self._worst is not None and self._pair is not None:
            actual, expected, how = self._pair
            found = compare(actual, expected, **how)
            w, self._pair = self._worst, None
            self._worst = Finding(w.label, w.error, w.allowed, w.tolerance, found, w.detail)
        return self._worst

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
        tolerance = self._tolerance(judged, variant)
        how = {"scale": scale, "equal_nan": equal_nan, "unit": tolerance.unit}
        error = error_of(actual, expected, **how)
        allowed = max(tolerance.value * factor, floor)
        if self._add(Finding(label, error, allowed, tolerance, None, detail)):
            self._pair = actual, expected, how

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
        tolerance = self._tolerance(np.dtype(dtype), variant)
        allowed = max(tolerance.value * factor, floor)
        self._add(Finding(label, float(error), allowed, tolerance, None, detail))

    def _tolerance(self, dtype: np.dtype[Any], variant: str | None) -> Tolerance:
        at = dtype, variant
        if at not in self._tolerances:
            found = tolerances.lookup(self.surface, dtype, self.op, self.sample, variant)
            self._tolerances[at] = found
        return self._tolerances[at]

    def _add(self, finding: Finding) -> bool:
        """Keep the finding with the least headroom; whether it is this one."""
        self.evaluations += 1
        if self._worst is not None and not finding.headroom > self._worst.headroom:
            return False
        self._worst, self._pair = finding, None
        return True
