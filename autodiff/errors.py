"""Error classes of the engine: each carries its data and words itself in three lines."""

import difflib
from collections.abc import Iterable
from typing import Any


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint naming the closest known names, or the empty string."""
    matches = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(repr(m) for m in matches)}?" if matches else ""


class AutodiffError(Exception):
    """Base of all errors the engine raises at a user: what, where and the way out."""

    def __init__(self, what: str, where: str = "", fix: str = "", **data: Any) -> None:
        self.what, self.where, self.fix, self.data = what, where, fix, data
        super().__init__("\n".join(line for line in (what, where, fix) if line))

    def locate(self, line: str) -> None:
        """Add a source line to what the error says of the place, unless it names one."""
        if " at " not in f" {self.where}":
            self.where = f"{self.where}, {line}" if self.where else line
            self.args = ("\n".join(part for part in (self.what, self.where, self.fix) if part),)


class ProgramError(AutodiffError):
    """A program breaks the rules of the representation."""

    def __init__(self, what: str, *, program: str, equation: int | None, kind: str | None) -> None:
        at = f"in program '{program}'"
        at += "" if equation is None else f", equation {equation} ({kind})"
        super().__init__(
            what, at, "rebuild the program with autodiff.trace", program=program, equation=equation
        )


class ShapeError(AutodiffError, ValueError):
    """Operand shapes, axes or dtypes do not fit the op."""


class IndexingError(ShapeError, IndexError):
    """An index that NumPy would refuse with IndexError."""


class TracerError(AutodiffError, TypeError):
    """A traced value was used where a concrete array is needed."""


class GuardError(AutodiffError):
    """A program traced under one branch decision was run with values that decide otherwise."""


class MissingRuleError(AutodiffError, NotImplementedError):
    """An op has no rule for the transform asked for."""


class NotDifferentiableError(AutodiffError, TypeError):
    """A derivative was asked for where there is no tangent space (integer or bool values)."""


class TreeError(AutodiffError, TypeError):
    """Containers of arguments, tangents or cotangents do not match."""


class OpError(AutodiffError, ValueError):
    """An Op record contradicts itself, or an unknown op was named."""


class UnknownNameError(AutodiffError, AttributeError):
    """A module was asked for a name that it does not have."""
