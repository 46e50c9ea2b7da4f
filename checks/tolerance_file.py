"""The file format of a tolerance table, and its validation."""

import difflib
import math
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

SURFACES = (
    "shapes",
    "f32",
    "exact",
    "reverse",
    "forward",
    "second",
    "vmap",
    "render",
    "execute",
    "emit_f32",
    "emit_f64",
    "device_f32",
    "device_f64",
    "device_self",
    "torch",
    "special",
)
RELATIVE, ULP, EXACT = "relative", "ulp", "exact"
UNITS = (RELATIVE, ULP, EXACT)
ANY = "any"
PARTS = ("defaults", "variants", "limits", "overrides", "constants")
OVERRIDE_KEYS = ("op", "sample", "variant", "dtype", "value", "reason")
WRITE_A_VALUE = 'write a number such as 2e-5, "4 ulp" or "exact"'
_ULPS = re.compile(r"\s*(\S+)\s+ulp\s*")


class ToleranceTableError(ValueError):
    """A tolerance table, or a look-up in one, is wrong.

    Arguments:
        what: what is wrong, in one sentence.
        file: the table's file.
        key: the dotted key at fault.
        value: the value found there.
        fix: what to do.
    """

    def __init__(self, what: str, file: Path, key: str, value: object, fix: str) -> None:
        super().__init__(f"{what}\n  at {key} in {file}\n  {fix}")
        self.what, self.file, self.key, self.value, self.fix = what, file, key, value, fix


@dataclass(frozen=True, slots=True)
class Bound:
    """A value with its unit."""

    value: float
    unit: str

    def __str__(self) -> str:
        if self.unit == EXACT:
            return EXACT
        return f"{self.value:g} ulp" if self.unit == ULP else f"{self.value:g}"


@dataclass(frozen=True, slots=True)
class Override:
    """One line of `[overrides]`: another bound for an op, or for one sample of it."""

    surface: str
    op: str
    sample: str | None
    variant: str | None
    dtype: str
    bound: Bound
    reason: str
    key: str

    @property
    def name(self) -> str:
        """The override as people say it: surface, op, sample, dtype."""
        parts = (self.surface, self.op, self.sample, self.variant, self.dtype)
        return "/".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Table:
    """A validated tolerance table."""

    path: Path
    defaults: Mapping[str, Mapping[str, Bound]]
    variants: Mapping[tuple[str, str], Mapping[str, Bound]]
    limits: Mapping[str, Mapping[str, float]]
    overrides: tuple[Override, ...]
    constants: Mapping[str, float]


def nearest(name: str, known: Collection[str]) -> str:
    """Return "; did you mean 'x'?" for the known name nearest to `name`, or ""."""
    folded = {item.casefold(): item for item in known}
    found = difflib.get_close_matches(name.casefold(), list(folded), n=1)
    return f"; did you mean {folded[found[0]]!r}?" if found else ""


def read_table(path: Path) -> Table:
    """Read and validate the table in `path`.

    Raises:
        ToleranceTableError: the file is absent or not TOML, a name is unknown, a value is not
            positive and finite, or an override has no reason or breaks its surface's limits.
    """
    return _Reader(path).table()


@dataclass(frozen=True, slots=True)
class _Reader:
    """The file in hand: every complaint names it."""

    path: Path

    def fail(self, what: str, key: str, value: object, fix: str) -> ToleranceTableError:
        return ToleranceTableError(what, self.path, key, value, fix)

    def document(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self.path.read_text(encoding="utf-8"))
        except OSError as error:
            fix = "name a file that can be read"
            raise self.fail(
                f"no tolerance table: {error.strerror}", "the file", None, fix
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            fix = "correct the syntax there (https://toml.io)"
            raise self.fail(f"not TOML: {error}", "the file", None, fix) from None

    def table(self) -> Table:
        document = self.document()
        self.known(document, PARTS, "the file", "part")
        defaults = self.by_surface(document, "defaults")
        for surface in SURFACES:
            if surface not in defaults:
                fix = f"add [defaults.{surface}]"
                raise self.fail(f"surface {surface} has no default", "defaults", None, fix)
        rows = {
            surface: self.bounds(rows, f"defaults.{surface}") for surface, rows in defaults.items()
        }
        variants = {
            (surface, name): self.bounds(inner, f"variants.{surface}.{name}")
            for surface, named in self.by_surface(document, "variants").items()
            for name, inner in self.mapping(named, f"variants.{surface}").items()
        }
        limits = {
            surface: self.limit(inner, f"limits.{surface}")
            for surface, inner in self.by_surface(document, "limits").items()
        }
        constants = {
            name: self.positive(value, f"constants.{name}")
            for name, value in self.mapping(document.get("constants", {}), "constants").items()
        }
        table = Table(self.path, rows, variants, limits, (), constants)
        return Table(self.path, rows, variants, limits, self.overrides(document, table), constants)

    def known(self, names: Collection[str], allowed: Collection[str], key: str, kind: str) -> None:
        for name in names:
            if name not in allowed:
                what = f"unknown {kind} {name!r}{nearest(name, allowed)}"
                raise self.fail(what, key, name, f"use one of {', '.join(allowed)}")

    def mapping(self, value: object, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.fail(f"{key} is not a table", key, value, f"write it as [{key}]")
        return value

    def by_surface(self, document: dict[str, Any], part: str) -> dict[str, Any]:
        tables = self.mapping(document.get(part, {}), part)
        self.known(tables, SURFACES, part, "surface")
        return tables

    def positive(self, value: object, key: str, fix: str = "write a number above 0") -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and value > 0):  # type: ignore[arg-type,operator]
            raise self.fail(f"not a positive finite number: {value!r}", key, value, fix)
        return float(value)  # type: ignore[arg-type]

    def bound(self, value: object, key: str) -> Bound:
        if value == EXACT:
            return Bound(0.0, EXACT)
        if isinstance(value, str):
            match = _ULPS.fullmatch(value)
            try:
                number = float(match[1]) if match else value
            except ValueError:
                number = value
            return Bound(self.positive(number, key, WRITE_A_VALUE), ULP)
        return Bound(self.positive(value, key, WRITE_A_VALUE), RELATIVE)

    def dtype(self, name: str, key: str) -> str:
        if name not in DTYPES:
            what = f"unknown dtype {name!r}{nearest(name, DTYPES)}"
            raise self.fail(what, key, name, f"use one of {', '.join(DTYPES)}")
        return name

    def bounds(self, rows: object, key: str) -> dict[str, Bound]:
        inner = self.mapping(rows, key)
        if not inner:
            raise self.fail(f"{key} is empty", key, rows, "add a row, such as float64 = 1e-10")
        return {
            self.dtype(name, key): self.bound(value, f"{key}.{name}")
            for name, value in inner.items()
        }

    def limit(self, rows: object, key: str) -> dict[str, float]:
        inner = self.mapping(rows, key)
        self.known(inner, ("tightest", "loosest"), key, "limit")
        return {name: self.positive(value, f"{key}.{name}") for name, value in inner.items()}

    def overrides(self, document: dict[str, Any], table: Table) -> tuple[Override, ...]:
        found: dict[tuple[object, ...], Override] = {}
        for surface, lines in self.by_surface(document, "overrides").items():
            if not isinstance(lines, list):
                fix = f'write {surface} = [ {{ op = "EXP", ... }}, ]'
                raise self.fail("not a list", f"overrides.{surface}", lines, fix)
            for place, line in enumerate(lines):
                row = self.override(surface, line, f"overrides.{surface}[{place}]", table)
                same = (surface, row.op, row.sample, row.variant, row.dtype)
                if same in found:
                    what = f"{row.name} is overridden twice, first at {found[same].key}"
                    raise self.fail(what, row.key, line, "keep one of the two")
                found[same] = row
        return tuple(found.values())

    def override(self, surface: str, line: object, key: str, table: Table) -> Override:
        inner = self.mapping(line, key)
        self.known(inner, OVERRIDE_KEYS, key, "key")
        for name in ("op", "dtype", "reason", *(n for n in ("sample", "variant") if n in inner)):
            text = inner.get(name)
            if not (isinstance(text, str) and text.strip()):
                fix = f'add {name} = "..." with something in it'
                raise self.fail(f"override without a {name}", f"{key}.{name}", text, fix)
        variant = inner.get("variant")
        if variant is not None:
            known = [name for s, name in table.variants if s == surface]
            self.known([variant], known or ["none here"], f"{key}.variant", "variant")
        dtype = self.dtype(inner["dtype"], f"{key}.dtype")
        row = Override(
            surface,
            inner["op"],
            inner.get("sample"),
            variant,
            dtype,
            self.bound(inner.get("value"), f"{key}.value"),
            inner["reason"].strip(),
            key,
        )
        self.fits(row, table)
        return row

    def fits(self, row: Override, table: Table) -> None:
        """Raise where `row` changes the unit of what it overrides, or breaks a limit."""
        rows = {
            **table.defaults[row.surface],
            **table.variants.get((row.surface, row.variant or ""), {}),
        }
        over = rows.get(row.dtype) or rows.get(ANY)
        key, value = f"{row.key}.value", str(row.bound)
        if over is None:
            what = f"surface {row.surface} has no default for {row.dtype} to override"
            fix = f"use one of {', '.join(rows)}, or add the default first"
            raise self.fail(what, f"{row.key}.dtype", row.dtype, fix)
        if over.unit not in (EXACT, row.bound.unit) and row.bound.unit != EXACT:
            what = (
                f"{row.bound} is {row.bound.unit}, the value it overrides ({over}) is {over.unit}"
            )
            raise self.fail(what, key, value, f"write it as {over.unit}, like {over}")
        limits = table.limits.get(row.surface, {})
        low, high = limits.get("tightest", 0.0), limits.get("loosest", math.inf)
        if row.bound.value < low:
            what = f"{row.name} is pinned to {row.bound}, tighter than {low:g}"
            fix = f"a right program fails there on another machine: {low:g} or more"
            raise self.fail(what, key, value, fix)
        if row.bound.unit == RELATIVE and row.bound.value > high:
            what = f"{row.name} is loosened to {row.bound}, looser than {high:g}"
            fix = f"{high:g} or less; move the sample or exclude it, with a reason"
            raise self.fail(what, key, value, fix)


def _dtype_names() -> tuple[str, ...]:
    """Return the dtypes that a row may name."""
    extended = (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4)
    plain = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
    names = [*plain.split(), "complex64", "complex128", *(np.dtype(d).name for d in extended)]
    return (*names, ANY)


DTYPES = _dtype_names()
