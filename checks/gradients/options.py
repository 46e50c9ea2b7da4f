"""The options of `check_gradients`, held to what they may be before anything runs."""

import dataclasses
import math
import operator
from collections.abc import Collection, Sequence
from typing import Any

from autodiff.errors import nearest
from checks.gradients.report import ALLOWED
from checks.gradients.target import Manual, Target, TargetError

MODES = ("forward", "reverse")
SYNONYMS = {"backward": "reverse", "vjp": "reverse", "jvp": "forward"}


def modes_named(modes: Any, name: str) -> tuple[str, ...]:
    """The modes by name, one or several. Raises TargetError for others, and for none."""
    wanted = (modes,) if isinstance(modes, str) else modes
    where = f"in check_gradients({name}, modes={modes!r})"
    if not isinstance(wanted, Collection) or not wanted:
        raise TargetError("no mode was asked for", where, "use 'forward', 'reverse' or both")
    for mode in wanted:
        if mode not in MODES:
            word = SYNONYMS.get(mode, "") if isinstance(mode, str) else ""
            near = f"did you mean {word!r}?" if word else nearest(str(mode), MODES)
            text = f"there is no mode {mode!r}; {near}".rstrip("; ")
            raise TargetError(text, where, "use 'forward', 'reverse' or both")
    return tuple(wanted)


def places(option: str, value: Any, count: int, name: str) -> tuple[int, ...]:
    """Positions of arguments, counted from 0. Raises TargetError for what is none."""
    where = f"in check_gradients({name}, {option}={value!r})"
    fix = f"use positions of arguments: {option}=0, or {option}=(0, 1)"
    several = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    made = []
    for n in several:
        try:
            made.append(operator.index(n))
        except TypeError:
            raise TargetError(f"{option}={n!r} is not a position", where, fix) from None
        if isinstance(n, bool):
            raise TargetError(f"{option}={n!r} is not a position", where, fix)
        if not -count <= n < count:
            raise TargetError(
                f"{option}={n}, but {name} was given {count} argument{'s' if count != 1 else ''}",
                f"in check_gradients({name}, ...)",
                f"use {option} between 0 and {count - 1}" if count else "pass arguments",
            )
    return tuple(n % count for n in made)


def check_symmetric(target: Target) -> None:
    """Raise TargetError where an argument named symmetric is no stack of square matrices."""
    for k in sorted(target.symmetric_points):
        shape = target.points[k].shape
        if len(shape) < 2 or shape[-1] != shape[-2]:
            path = target.point_paths[k]
            raise TargetError(
                f"{path} has shape {shape}: only square matrices are symmetric",
                f"in check_gradients({target.name}, symmetric=...)",
                "name only arguments whose last two axes have one size, or leave symmetric= out",
            )


def check_numbers(tolerance: Any, seed: Any, name: str) -> None:
    """Raise TargetError for a tolerance that is no positive number, a seed that is no integer."""
    number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
    number = number or (hasattr(tolerance, "__float__") and not isinstance(tolerance, str))
    if tolerance is not None and not (number and 0 < float(tolerance) < math.inf):
        raise TargetError(
            f"tolerance={tolerance!r} is not a positive number",
            f"in check_gradients({name}, ...)",
            "leave it out, or give a share of the largest entry: tolerance=1e-6",
        )
    if seed is not None and not hasattr(seed, "__index__"):
        raise TargetError(
            f"seed={seed!r} is not an integer",
            f"in check_gradients({name}, ...)",
            "leave it out, or use seed=0",
        )


def check_claims(manual: Manual, name: str) -> None:
    """Raise TargetError for a hand-written derivative that is no function, and for two that claim
    the same mode, of which one would go unchecked.
    """
    where = f"in check_gradients({name}, ...)"
    given = {f.name: getattr(manual, f.name) for f in dataclasses.fields(manual)}
    given = {option: value for option, value in given.items() if value is not None}
    for option, value in given.items():
        if not callable(value):
            text = f"{option}={value!r:.60} is not a function"
            raise TargetError(text, where, f"pass the function that computes it: {option}=f")
    reverse = [option for option in ("vjp", "gradient") if option in given]
    if len(reverse) == 2:
        text = f"{' and '.join(f'{option}=' for option in reverse)} claim the same derivative"
        raise TargetError(text, where, "pass one of them, and check the other by a second call")
    if "jac" in given and reverse and "jvp" in given:
        text = f"jac=, {reverse[0]}= and jvp= claim the same derivatives"
        raise TargetError(text, where, "leave jac= out, and check it by a second call")


def allowed_verdicts(allow: Any) -> frozenset[str]:
    """The verdicts that pass all the same. Raises TargetError for unknown words."""
    words = list(allow) if isinstance(allow, Collection) and not isinstance(allow, str) else [allow]
    for word in words:
        if word not in ALLOWED:
            near = nearest(word, ALLOWED) if isinstance(word, str) else ""
            raise TargetError(
                f"allow={word!r} is not known; {near}".rstrip("; "),
                "in check_gradients(allow=...)",
                f"allow any of {', '.join(ALLOWED)}",
            )
    return frozenset(ALLOWED[w] for w in words)
