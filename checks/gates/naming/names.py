"""names.toml: ordered rules that give a side's tensors their canonical names, and roles."""

import fnmatch
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from checks.gates.errors import GateError
from checks.gates.formats.manifest import ROLES, check_name, dtype_name, dtype_of
from checks.gates.formats.readers import Side, text_of
from checks.gates.formats.stored import Array, Stored

SIDES = ("reference", "candidate")
_KEYS = ("match", "name", "transpose", "slice", "split", "cast")


@dataclass(frozen=True, slots=True)
class Rule:
    r"""One rule: tensors whose whole name matches get another, and a declared change.

    Arguments:
        match: a regular expression.
        name: the canonical name; \1 is the first group. With `split` one name per part.
        transpose: the order of the axes.
        slice: "2:10, :" for each axis from the first.
        split: the axis cut into equal parts, one for each name.
        cast: the dtype it is rounded to.
    """

    match: re.Pattern[str]
    name: tuple[str, ...]
    transpose: tuple[int, ...] = ()
    slice: str = ""
    split: int | None = None
    cast: str = ""

    @property
    def changes(self) -> bool:
        """Whether the values are not taken as they are."""
        return bool(self.transpose or self.slice or self.cast or self.split is not None)


@dataclass(frozen=True, slots=True)
class Names:
    """A names.toml file: rules by side, and roles by pattern."""

    path: Path | None = None
    rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)

    def role(self, name: str, default: str) -> str:
        """Return the role of a canonical name: the first pattern of [roles] that matches."""
        for pattern, role in self.roles.items():
            if fnmatch.fnmatchcase(name, pattern):
                return role
        return default


def read_names(path: str | Path) -> Names:
    """Read names.toml: [[reference]] and [[candidate]] rules in order, and [roles].

    Raises:
        GateError: not TOML, an unknown key, a wrong expression, role or dtype.
    """
    file = Path(path)
    try:
        record = tomllib.loads(text_of(file))
    except tomllib.TOMLDecodeError as error:
        raise GateError(f"not TOML: {error}", str(file), "correct the file") from None
    _only(record, (*SIDES, "roles"), str(file))
    roles = record.get("roles", {})
    if not isinstance(roles, dict):
        raise GateError(f"roles is no table: {roles!r:.40}", str(file), "write [roles]")
    for side in SIDES:
        if not isinstance(record.get(side, []), list):
            what = f"{side} is no list of rules: {record[side]!r:.40}"
            raise GateError(what, str(file), f"write [[{side}]], in two brackets")
    for pattern, role in roles.items():
        if role not in ROLES:
            fix = "write gate, informational or debug"
            raise GateError(f"unknown role {role!r}", f"{file}: roles: {pattern}", fix)
    rules = {s: tuple(_rule(r, f"{file}: {s}") for r in record.get(s, [])) for s in SIDES}
    return Names(file, rules, roles)


def names_beside(tolerances: Path, path: str | Path | None = None) -> Names:
    """Read the rules that go with a tolerance file.

    Arguments:
        tolerances: <family>.json.
        path: the rules; where None, <family>.names.toml beside it, else the names.toml there, else
            none.
    """
    if path is not None:
        return read_names(path)
    for name in (f"{tolerances.stem}.names.toml", "names.toml"):
        if (beside := tolerances.parent / name).exists():
            return read_names(beside)
    return Names()


def _rule(entry: Any, where: str) -> Rule:
    if not isinstance(entry, dict) or not {"match", "name"} <= set(entry):
        fix = "write match = 'expression' and name = 'canonical.name'"
        raise GateError(f"no rule: {entry!r:.60}", where, fix)
    _only(entry, _KEYS, where)
    where = f"{where}: match = {entry['match']!r}"
    try:
        match = re.compile(entry["match"])
    except (re.error, TypeError) as error:
        raise GateError(f"no regular expression: {error}", where, "correct match") from None
    names = entry["name"] if isinstance(entry["name"], list) else [entry["name"]]
    split = entry.get("split")
    transpose = entry.get("transpose", [])
    for key, good, kind in (
        ("match", isinstance(entry["match"], str), "text"),
        ("name", bool(names) and all(isinstance(n, str) for n in names), "name"),
        ("transpose", _are_axes(transpose), "list of axes"),
        ("slice", isinstance(entry.get("slice", ""), str), "text"),
        ("split", split is None or _are_axes([split]), "axis"),
        ("cast", isinstance(entry.get("cast", ""), str), "text"),
    ):
        if not good:
            raise GateError(f"{key} is no {kind}: {entry[key]!r:.40}", where, f"correct {key}")
    if (len(names) > 1) != (split is not None):
        what = f"{len(names)} names and {'no split' if split is None else 'a split'}"
        raise GateError(what, where, "a split has one name for each part")
    cast = dtype_name(entry["cast"], where) if "cast" in entry else ""
    return Rule(match, tuple(names), tuple(transpose), entry.get("slice", ""), split, cast)


def _are_axes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int for n in value)


def renamed(side: Side, names: Names, which: str) -> Side:
    """Return a side under canonical names; tensors that no rule matches keep theirs.

    Raises:
        GateError: a rule matches nothing, or two tensors get one name.
    """
    rules = names.rules.get(which, ())
    used = [False] * len(rules)
    kept: dict[str, Stored] = {}
    origin: dict[str, str] = {}
    for key, stored in side.tensors.items():
        made = [stored]
        for n, rule in enumerate(rules):
            if found := rule.match.fullmatch(stored.tensor.name):
                used[n] = True
                made = _applied(stored, rule, found, str(names.path))
                break
        for new in made:
            if new.tensor.key in kept:
                what = f"two tensors are called {new.tensor.key!r}"
                where = f"{side.path}: {origin[new.tensor.key]} and {key}"
                raise GateError(what, where, f"correct the [[{which}]] rules")
            kept[new.tensor.key], origin[new.tensor.key] = new, key
    for rule, was in zip(rules, used, strict=True):
        if not was:
            where = f"{names.path}: {which}: match = {rule.match.pattern!r}"
            raise GateError(f"the rule matches no tensor of {side.path}", where, "remove it")
    return replace(side, tensors=kept)


def _applied(stored: Stored, rule: Rule, found: re.Match[str], path: str) -> list[Stored]:
    t = stored.tensor
    where = f"{path}: match = {rule.match.pattern!r}: {t.key}"
    try:
        names = [check_name(found.expand(n)) for n in rule.name]
    except (re.error, IndexError) as error:
        raise GateError(f"no name: {error}", where, "correct name") from None
    if not rule.changes:
        return [replace(stored, tensor=replace(t, name=names[0]))]
    dtype = rule.cast or t.dtype
    made = []
    for part, name in enumerate(names):
        change = _change(stored, rule, part, where)
        try:
            shape = _shaped(np.broadcast_to(np.zeros((), bool), t.shape), rule, part).shape
        except (ValueError, IndexError, TypeError) as error:
            raise GateError(f"the rule does not fit {list(t.shape)}: {error}", where,
                            "correct transpose, slice or split") from None  # fmt: skip
        new = replace(t, name=name, shape=shape, dtype=dtype, dims="", crc32=None, statistics=None)
        made.append(replace(stored, tensor=new, derived=change))
    return made


def _change(stored: Stored, rule: Rule, part: int, where: str) -> Any:
    def values() -> Array:
        changed: Array = _shaped(stored.load(), rule, part)
        return changed.astype(dtype_of(rule.cast)) if rule.cast else changed

    return values


def _shaped(array: Any, rule: Rule, part: int) -> Any:
    if rule.transpose:
        array = array.transpose(rule.transpose)
    if rule.slice:
        array = array[tuple(_slice(word) for word in rule.slice.split(","))]
    if rule.split is not None:
        array = np.split(array, len(rule.name), axis=rule.split)[part]
    return array


def _slice(word: str) -> slice:
    return slice(*(int(n) if n.strip() else None for n in word.split(":")))


def _only(record: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in record:
        if key not in known:
            raise GateError(f"unknown key {key!r}", where, f"known are {', '.join(known)}")
