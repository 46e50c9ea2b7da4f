"""The tolerance file: which tensors must be there, and how far each may be off."""

import contextlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autodiff.errors import nearest
from checks.gates.errors import GateError
from checks.gates.formats.manifest import Statistics, check_name, parsed
from checks.gates.formats.readers import text_of
from checks.results import replace_text
from checks.tolerances import constant

LIMITS = ("max_abs", "mean_abs")
# A tensor of an output head: an infinite limit there would leave the result unchecked.
HEADS = ("logits", "head", "logits_raw", "lm_head")


@dataclass(frozen=True, slots=True)
class Limit:
    """How far one tensor may be off.

    Arguments:
        max_abs: the largest absolute difference.
        mean_abs: the mean absolute difference.
        comment: why.
    """

    max_abs: float
    mean_abs: float
    comment: tuple[str, ...] = ()

    def passes(self, max_abs: float, mean_abs: float) -> bool:
        """Return whether both are within; False where one is NaN."""
        return max_abs <= self.max_abs and mean_abs <= self.mean_abs


@dataclass(frozen=True, slots=True)
class Contract:
    """A tolerance file.

    Arguments:
        path: where it was read.
        limits: by canonical name, in the file's order.
        comment: of the file.
    """

    path: Path
    limits: Mapping[str, Limit]
    comment: tuple[str, ...] = field(default=())


def read_contract(path: str | Path) -> Contract:
    """Read a tolerance file: {"_comment": ..., "enc.out": {"max_abs": 0.5, "mean_abs": 0.01}}.

    Raises:
        GateError: not JSON, an unknown or absent key, a nested table, a limit that is negative or
            NaN, or infinite limits for an output head.
    """
    file = Path(path)
    record = parsed(text_of(file), str(file))
    comment = _comment(record.pop("_comment", []), str(file))
    limits = {}
    for name, entry in record.items():
        where = f"{file}: {name}"
        try:
            check_name(name)
        except GateError as error:
            raise GateError(error.what, str(file), error.fix.strip()) from None
        limits[name] = _limit(entry, where)
        if _head_without_limit(name, limits[name]):
            what = "an output head with infinite limits checks nothing"
            raise GateError(what, where, "give it finite limits")
    return Contract(file, limits, comment)


def _head_without_limit(name: str, limit: Limit) -> bool:
    """Whether a head's limits are both infinite; that of a head with raw logits beside it is its
    own tensor, and judged alone.
    """
    infinite = math.isinf(limit.max_abs) and math.isinf(limit.mean_abs)
    return infinite and any(word in HEADS for word in name.split("."))


def _limit(entry: Any, where: str) -> Limit:
    if not isinstance(entry, dict):
        fix = 'write {"max_abs": ..., "mean_abs": ...}'
        raise GateError(f"not a table of limits: {entry!r:.40}", where, fix)
    nested = [k for k, v in entry.items() if isinstance(v, dict)]
    if nested:
        fix = f"move the names under {where.rpartition(': ')[2]!r} to the top of the file"
        raise GateError(f"a table inside a table: {nested[0]!r}", where, fix)
    for key in entry:
        if key not in (*LIMITS, "_comment"):
            hint = nearest(key, LIMITS)
            raise GateError(f"unknown key {key!r}", where, hint or "keys are max_abs and mean_abs")
    for key in LIMITS:
        if key not in entry:
            raise GateError(f"{key} is absent", where, f'add "{key}": ...')
    largest, mean = (_number(entry[k], k, where) for k in LIMITS)
    return Limit(largest, mean, _comment(entry.get("_comment", []), where))


def _number(value: Any, key: str, where: str) -> float:
    if value == "inf":
        return math.inf
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        with contextlib.suppress(OverflowError):
            if math.isfinite(found := float(value)):  # not 1e999, which JSON reads as infinite
                return found
    what = f'{key} is no number >= 0, nor "inf": {value!r:.40}'
    raise GateError(what, where, f"correct {key}")


def _comment(value: Any, where: str) -> tuple[str, ...]:
    lines = [value] if isinstance(value, str) else value
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise GateError(f"_comment is no text: {value!r:.40}", where, '"_comment": ["..."]')
    return tuple(lines)


def provisional(figures: Iterable[Statistics]) -> Limit:
    """Return a first limit from the reference alone: the widest over its calls and runs."""
    floor = constant("gate_provisional_floor")
    largest = mean = floor
    for s in figures:
        largest = max(largest, constant("gate_provisional_max") * (s.p99_abs or 0.0))
        mean = max(mean, constant("gate_provisional_mean") * (s.rms or 0.0))
    return Limit(rounded_up(largest), rounded_up(mean))


def rounded_up(value: float) -> float:
    """Return `value` rounded up to two digits; 0 and inf as they are."""
    if value == 0 or not math.isfinite(value):
        return value
    digits, _, power = f"{value:.1e}".partition("e")
    near = float(f"{digits}e{power}")
    if near < value * (1 - 2.0**-40):
        near = float(f"{round(10 * float(digits)) + 1}e{int(power) - 1}")
    return near if math.isfinite(near) else value


def write_contract(path: str | Path, contract: Contract) -> Path:
    """Write a tolerance file; whole, or not at all.

    Raises:
        GateError: it cannot be written.
    """
    record: dict[str, Any] = {"_comment": list(contract.comment)}
    for name, limit in contract.limits.items():
        entry: dict[str, Any] = {k: _as_json(getattr(limit, k)) for k in LIMITS}
        record[name] = entry | ({"_comment": list(limit.comment)} if limit.comment else {})
    text = json.dumps(record, indent=2, allow_nan=False, ensure_ascii=False)
    try:
        return replace_text(Path(path), text + "\n")
    except OSError as error:
        reason = error.strerror or str(error)
        raise GateError(f"cannot be written: {reason}", str(path), "name another file") from None


def _as_json(value: float) -> float | str:
    return "inf" if math.isinf(value) else value
