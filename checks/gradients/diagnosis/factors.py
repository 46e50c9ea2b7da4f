"""Names for a number by which a gradient is off: 2, 1/n, pi, a scalar argument."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np

from checks.gradients.target import Target
from checks.tolerances import constant

SMALL = 12
COARSE = 4
DIGITS = 15
DECIMALS = 4
LARGEST_EXPONENT = 50.0
CONSTANTS = {
    "pi": math.pi,
    "2 pi": 2 * math.pi,
    "4 pi": 4 * math.pi,
    "pi/2": math.pi / 2,
    "sqrt(pi)": math.sqrt(math.pi),
    "sqrt(2 pi)": math.sqrt(2 * math.pi),
    "sqrt(pi/2)": math.sqrt(math.pi / 2),
    "sqrt(2)": math.sqrt(2),
    "sqrt(3)": math.sqrt(3),
    "ln 2": math.log(2),
    "ln 10": math.log(10),
    "e": math.e,
    "180/pi": 180 / math.pi,
}


@dataclasses.dataclass(frozen=True)
class Factor:
    """A factor known to some digits, its name ("2", "1/20", "pi"; "" where it has none) and what
    the name stands for here ("20 is the size of x").
    """

    value: float
    name: str = ""
    note: str = ""
    error: float = 0.0

    @property
    def is_simple(self) -> bool:
        """Whether it has a name."""
        return bool(self.name)

    @property
    def is_told(self) -> bool:
        """Whether one entry alone shows it: it has a name, or is a round number such as 1.05 or
        1.000001 that an error as small as its own hits by chance once in thousands of times.
        """
        return self.is_simple or _is_round(self.value, self.error)

    @property
    def number(self) -> float:
        """The value to the digits that are known."""
        return rounded(self.value, self.error)

    @property
    def phrase(self) -> str:
        """What a gradient off by it is: "is 1/20 of the true one (20 is the size of x)"."""
        number = self.name or _shown(self.number)
        share = number.lstrip("-").startswith("1/") and "**" not in number
        text = f"is {number} of the true one" if share else f"is {number} times the true one"
        return f"{text} ({self.note})" if self.note else text


def named(target: Target, value: float, error: float) -> Factor:
    """The simplest name within an error of a factor.

    Arguments:
        target: whose sizes and scalar arguments are in play.
        value: claim over truth.
        error: of the value.
    """
    limit = max(error, constant("gradient_tolerance") * abs(value))
    if limit > constant("factor_blur") * abs(value):
        return Factor(value, _plain(value, limit, 2) if limit < abs(value) / 8 else "", "", error)

    def fits(candidate: float) -> bool:
        return abs(candidate - value) <= limit

    sizes = _sizes(target)
    many = [(n, t) for n, t in sizes if n > 2]  # 2 needs no reason
    notes = [f"{n} is {t}" for n, t in many if fits(n) or fits(1 / n) or fits(-n) or fits(-1 / n)]
    sharp = limit <= constant("factor_sharp") * abs(value)
    plain = _plain(value, limit, COARSE)
    if plain:
        return Factor(value, plain, notes[0] if notes else "")
    for n, text in sizes:
        for sign in (1, -1):
            if fits(sign * n):
                return Factor(value, f"{sign * n}", f"{n} is {text}")
            if fits(sign / n):
                return Factor(value, f"{sign}/{n}", f"{n} is {text}")
    for c, text, note in (*_of_scalars(target), *_others(target)) if sharp else ():
        if fits(c):
            return Factor(value, text, note)
    plain = _plain(value, limit, SMALL) if sharp else ""
    return Factor(value, plain, notes[0] if plain and notes else "", error)


def of_entry(value: float, error: float, name: str, x: float) -> str:
    """A power of an entry, or of its exponential, that a factor is: "1/exp(x[3])"; "" for none."""
    if not error <= constant("factor_sharp") * abs(value) or abs(x) in (0.0, 1.0):
        return ""
    bases = [(name, x)] + ([(f"exp({name})", math.exp(x))] if abs(x) < LARGEST_EXPONENT else [])
    for text, base in bases:
        for power in (1, 2, -1, -2):
            if abs(base**power - value) <= error:
                shown = text if abs(power) == 1 else f"{text}**2"
                return shown if power > 0 else f"1/{shown}"
    return ""


def rounded(value: float, error: float) -> float:
    """The number of the fewest digits within an error of a value."""
    for digits in range(1, DIGITS):
        found = float(f"{value:.{digits}g}")
        if abs(found - value) <= error:
            return found
    return value


def _shown(value: float) -> str:
    """Six digits, or as many as tell it from 1."""
    apart = abs(abs(value) - 1)
    if not apart or apart >= 10.0**-DECIMALS:
        return f"{value:.6g}"
    return f"{value:.{2 - math.floor(math.log10(apart))}f}".rstrip("0")


def _is_round(value: float, error: float) -> bool:
    """Whether few digits suffice for a value, or for what it is off 1, and many are known."""
    for number, most in ((value, 3), (value - 1, 2)):
        short = rounded(number, error)
        if not short:
            continue
        digits = f"{abs(short):.{DIGITS}e}".partition("e")[0].rstrip("0").replace(".", "")
        last = 10.0 ** (math.floor(math.log10(abs(short))) - len(digits) + 1)
        if len(digits) <= most and error <= constant("factor_chance") * last:
            return True
    return False


def _plain(value: float, limit: float, most: int) -> str:
    """A ratio of small integers: "-1", "2", "3/2"."""
    for q in range(1, most + 1):
        p = round(value * q)
        if p and abs(p) <= most and abs(p / q - value) <= limit and math.gcd(p, q) == 1:
            return str(p) if q == 1 else f"{p}/{q}"
    return ""


def _sizes(target: Target) -> list[tuple[int, str]]:
    """Lengths of axes and sizes of the arguments and results, larger than 1."""
    found: dict[int, str] = {}
    results = [
        ("the result" if len(target.centre) == 1 else f"result {i}", y.shape)
        for i, y in zip(target.smooth, target.centre, strict=True)
    ]
    given = [
        (path, leaf.shape)
        for path, leaf in zip(target.paths, _leaves(target), strict=True)
        if isinstance(leaf, np.ndarray)
    ]
    for name, shape in (*given, *results):
        for axis, n in enumerate(shape):
            if n > 1:
                found.setdefault(
                    n,
                    f"the length of axis {axis} of {name}"
                    if len(shape) > 1
                    else f"the length of {name}",
                )
    for name, shape in (*given, *results):
        n = math.prod(shape)
        if n > 1:
            found.setdefault(n, f"the size of {name}")
        for axes in itertools.combinations(range(len(shape)), 2):
            n = math.prod(shape[a] for a in axes)
            if len(shape) > 2 and n > 1:
                found.setdefault(n, f"axes {axes[0]} and {axes[1]} of {name}")
    return list(found.items())


def _others(target: Target) -> list[tuple[float, str, str]]:
    """Constants, and roots and neighbours of sizes, with their inverses."""
    made: list[tuple[float, str, str]] = []
    for n, text in _sizes(target):
        note, root = f"{n} is {text}", math.sqrt(n)
        made += [(root, f"sqrt({n})", note), (1 / root, f"1/sqrt({n})", note)]
        made += [((n - 1) / n, f"{n - 1}/{n}", note), (n / (n - 1), f"{n}/{n - 1}", note)]
        made += [(1 / (n - 1), f"1/{n - 1}", note), (2 / n, f"2/{n}", note)]
    for name, c in CONSTANTS.items():
        inverse = f"1/({name})" if " " in name else f"1/{name}"
        made += [(c, name, ""), (1 / c, inverse, "")]
        made += [(-c, f"-{name}", ""), (-1 / c, f"-{inverse}", "")]
    return made


def _of_scalars(target: Target) -> list[tuple[float, str, str]]:
    """Scalar arguments, their squares and inverses."""
    made: list[tuple[float, str, str]] = []
    for path, value in _scalars(target):
        note = f"{path} = {value:.6g}"
        made += [(value, path, note), (value * value, f"{path}**2", note)]
        made += [(1 / value, f"1/{path}", note), (1 / value**2, f"1/{path}**2", note)]
    return made


def _scalars(target: Target) -> list[tuple[str, float]]:
    """Real scalar arguments other than 0, 1 and -1."""
    found = []
    for path, leaf in zip(target.paths, _leaves(target), strict=True):
        value = np.asarray(leaf) if isinstance(leaf, np.ndarray | float | int) else None
        if value is not None and value.shape == () and value.dtype.kind in "fiu":
            number = float(value)
            if math.isfinite(number) and abs(number) not in (0.0, 1.0):
                found.append((path, number))
    return found


def _leaves(target: Target) -> list[Any]:
    """Arrays, and what else the arguments hold."""
    return list(target.leaves)
