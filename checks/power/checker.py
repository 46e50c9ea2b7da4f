"""Wrong hand-written gradients, shown to `check_gradients` in its modes.

A fault is in one entry (sign, zero, doubled, 0.1 % off) or in the whole gradient (a factor, the
order of entries, two arguments exchanged); the check must say WRONG, and name the entry of the
former. The right gradients must pass.
"""

import dataclasses
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Gradients = tuple[Array, ...]
MODES = ("gradient", "vjp", "jvp")
SMALL, LARGE = "full Jacobian", "probes"
RIGHT = "none"


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A scalar function with its gradient, at arguments of one size."""

    name: str
    size: str
    function: Callable[..., Any]
    gradient: Callable[..., Gradients]
    args: Gradients


@dataclasses.dataclass(frozen=True)
class Fault:
    """One way of being wrong; `entry` says that one entry alone is, `change(gradients, index)`
    gives the wrong ones, or None where that is no change (a transpose of a vector).
    """

    name: str
    entry: bool
    change: Callable[[Gradients, int], Gradients | None]


@dataclasses.dataclass(frozen=True)
class CheckerOutcome:
    """Whether a wrong gradient was found wrong, and its entry named.

    Attributes:
      caught: the verdict is WRONG (for the right gradient: the check passes).
      named: the worst entry is the one changed; None where the fault has no one entry.
      evaluations: calls of the function.
    """

    case: str
    size: str
    mode: str
    fault: str
    caught: bool
    named: bool | None
    evaluations: int
    verdict: str

    @property
    def name(self) -> str:
        """All of it in a few words."""
        return f"{self.case} ({self.size}), {self.mode}=: {self.fault}"


# --- functions -----------------------------------------------------------------------------


def cases(size: str) -> list[Case]:
    """Functions of 12 or 1,000 numbers: sparse, dense, of two arguments, of a matrix."""
    n, k = (12, 3) if size == SMALL else (1000, 30)
    rng = np.random.default_rng(zlib.crc32(size.encode()))
    w, x, y = (rng.uniform(0.5, 2.0, n) for _ in range(3))
    shift = np.roll(np.eye(n), 1, axis=0) + np.diag(rng.normal(size=n))
    a, m = rng.normal(size=(k, k)) / np.sqrt(k), rng.normal(size=(k, k))
    return [
        Case("sines", size, lambda x: np.sum(w * np.sin(x)), lambda x: (w * np.cos(x),), (x,)),
        Case(
            "log_sum_exp",
            size,
            lambda x: np.log(np.sum(np.exp(x))),
            lambda x: (np.exp(x) / np.sum(np.exp(x)),),
            (x,),
        ),
        Case(
            "bilinear",
            size,
            lambda x, y: x @ (shift @ y),
            lambda x, y: (shift @ y, shift.T @ x),
            (x, y),
        ),
        Case(
            "squares",
            size,
            lambda m: np.sum((a @ m) ** 2) / 2,
            lambda m: (a.T @ (a @ m),),
            (m,),
        ),
    ]


# --- faults --------------------------------------------------------------------------------


def _at(factor: float) -> Callable[[Gradients, int], Gradients]:
    """One entry of the first gradient times a factor."""

    def change(gradients: Gradients, index: int) -> Gradients:
        wrong = gradients[0].copy()
        wrong.flat[index] *= factor
        return (wrong, *gradients[1:])

    return change


def _all(factor: float) -> Callable[[Gradients, int], Gradients]:
    return lambda gradients, index: tuple(g * factor for g in gradients)


def _transposed(gradients: Gradients, index: int) -> Gradients | None:
    return tuple(g.T for g in gradients) if gradients[0].ndim == 2 else None


def _exchanged(gradients: Gradients, index: int) -> Gradients | None:
    return gradients[::-1] if len(gradients) == 2 else None


FAULTS: tuple[Fault, ...] = (
    Fault("sign at one entry", True, _at(-1.0)),
    Fault("zero at one entry", True, _at(0.0)),
    Fault("doubled at one entry", True, _at(2.0)),
    Fault("0.1 % off at one entry", True, _at(1.001)),
    Fault("sign", False, _all(-1.0)),
    Fault("zero", False, _all(0.0)),
    Fault("doubled", False, _all(2.0)),
    Fault("0.1 % off", False, _all(1.001)),
    Fault("mean for sum", False, lambda g, index: tuple(v / v.size for v in g)),
    Fault("reversed", False, lambda g, index: tuple(v[::-1] for v in g)),
    Fault("rolled by one", False, lambda g, index: tuple(np.roll(v, 1, axis=0) for v in g)),
    Fault("transposed", False, _transposed),
    Fault("arguments exchanged", False, _exchanged),
    Fault(RIGHT, False, lambda g, index: g),
)

# --- the study -----------------------------------------------------------------------------


def study_checker(
    modes: Sequence[str] | None = None, sizes: Sequence[str] = (SMALL, LARGE)
) -> Iterator[CheckerOutcome]:
    """Yield the outcome of every fault of every function, in every mode and size."""
    for size in sizes:
        for case in cases(size):
            for fault in FAULTS:
                index = _entry(case, fault)
                if fault.change(case.gradient(*case.args), index) is not None:
                    for mode in modes or MODES:
                        yield check(case, fault, mode, index)


def _entry(case: Case, fault: Fault) -> int:
    """An entry of the first gradient, drawn among the larger half: one that can be told."""
    g = np.abs(case.gradient(*case.args)[0]).ravel()
    large = np.flatnonzero(g >= np.median(g))
    seed = zlib.crc32(f"{case.name}/{case.size}/{fault.name}".encode())
    return int(np.random.default_rng(seed).choice(large))


def check(case: Case, fault: Fault, mode: str, index: int) -> CheckerOutcome:
    """Show one wrong gradient to `check_gradients`."""
    from checks.gradients.check import check_gradients
    from checks.gradients.report import PASS, WRONG

    def gradient(*args: Any) -> Gradients:
        changed = fault.change(case.gradient(*args), index)
        assert changed is not None
        return changed

    written: dict[str, Any] = {mode: _written(gradient, mode, len(case.args))}
    report = check_gradients(
        case.function,
        *case.args,
        full=case.size == SMALL,
        vmap=False,
        name=f"{case.name}_{case.size}",
        **written,
    )
    expected = PASS if fault.name == RIGHT else WRONG
    named = None
    if fault.entry:
        at = np.unravel_index(index, case.args[0].shape)
        worst = report.worst
        named = worst is not None and tuple(map(int, worst.index)) == tuple(map(int, at))
    return CheckerOutcome(
        case.name,
        case.size,
        mode,
        fault.name,
        report.verdict == expected,
        named,
        report.evaluations,
        report.verdict,
    )


def _written(gradient: Callable[..., Gradients], mode: str, count: int) -> Callable[..., Any]:
    """The gradient as the user would hand it over."""
    if mode == "gradient":
        return gradient if count > 1 else lambda *args: gradient(*args)[0]
    if mode == "vjp":
        return lambda *args: tuple(args[-1] * g for g in gradient(*args[:-1]))
    return lambda args, tangents: sum(
        np.sum(g * t) for g, t in zip(gradient(*args), tangents, strict=True)
    )
