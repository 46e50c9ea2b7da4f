"""Numbers of a report, with the digits that their error leaves."""

import math
from collections.abc import Sequence

from checks.gradients.report import Worst
from checks.tolerances import constant

DIGITS = 10


def aligned(values: Sequence[complex | float], error: float) -> list[str]:
    """Numbers with one count of decimals, as many as the error leaves, under one another."""
    if any(isinstance(v, complex) for v in values):
        return [_complex(complex(v), error) for v in values]
    real = [float(v) for v in values]  # type: ignore[arg-type]
    finite = [abs(v) for v in real if math.isfinite(v) and v]
    size = max(finite, default=1.0)
    top = math.floor(math.log10(size))
    digits = DIGITS
    if 0 < error < math.inf:
        digits = min(max(top - math.floor(math.log10(error)) + 1, 3), DIGITS)
    if -4 <= top < 7:
        decimals = max(digits - 1 - top, 0)
        shown = [_zero(f"{v:.{decimals}f}", v, decimals + (decimals > 0)) for v in real]
    else:
        shown = [_zero(f"{v:.{digits - 1}e}", v, 0) for v in real]
    width = max(map(len, shown))
    return [s.rjust(width).rstrip() for s in shown]


def _zero(shown: str, value: float, decimals: int) -> str:
    """A zero as one digit, in the column of the others' units; what rounds to it has no sign."""
    if value == 0:
        return "0" + " " * decimals
    return shown.removeprefix("-") if float(shown) == 0 else shown


def _complex(value: complex, error: float) -> str:
    """A complex number; a part that is zero to within the error is left out."""
    blur = max(4 * error, constant("gradient_tolerance") * abs(value))
    if not math.isfinite(abs(value)):
        return str(value)
    if abs(value.imag) <= blur:
        return f"{value.real:.9g}"
    if abs(value.real) <= blur:
        return f"{value.imag:.9g}i"
    return f"{value.real:.9g} {'-' if value.imag < 0 else '+'} {abs(value.imag):.9g}i"


def ratio_text(worst: Worst) -> str:
    """The ratio of a difference to a derivative, to the digits that the error leaves."""
    ratio = complex(worst.ratio)
    if not math.isfinite(abs(ratio)):
        return ""
    blur = worst.error / abs(worst.difference) if worst.difference else 0.0
    if isinstance(worst.ratio, complex):
        return _complex(ratio, blur)
    digits = min(max(int(-math.log10(blur)) if 0 < blur < 1 else 9, 2), 9)
    return f"{ratio.real + 0.0:.{digits}g}"
