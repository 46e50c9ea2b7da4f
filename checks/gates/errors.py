"""What the tensor gate refuses: three lines and an exit code."""

from typing import Any

from autodiff.errors import AutodiffError

PASSED, WRONG, INVALID, UNUSABLE = 0, 1, 2, 3


class GateError(AutodiffError, ValueError):
    """Input that the gate cannot use.

    Arguments:
        what: what is wrong.
        where: the file, the line, the tensor.
        fix: what to do.
        code: the exit code: 2 where no valid comparison is possible, 3 for usage and files.
        data: further facts, kept in `data`.
    """

    def __init__(
        self, what: str, where: str, fix: str, *, code: int = UNUSABLE, **data: Any
    ) -> None:
        super().__init__(what, f"  at {where}", f"  {fix}", **data)
        self.code = code
