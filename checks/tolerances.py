"""The tolerance table: read, validated, looked up; overrides that are never needed are named."""

import math
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt

from checks.row import Row
from checks.tolerance_file import (
    EXACT,
    SURFACES,
    UNITS,
    Bound,
    Override,
    Table,
    ToleranceTableError,
    nearest,
    read_table,
)

__all__ = [
    "SURFACES",
    "Bound",
    "Override",
    "StaleOverride",
    "Table",
    "Tolerance",
    "ToleranceTableError",
    "check_override_names",
    "constant",
    "default_table",
    "lookup",
    "stale_overrides",
    "strict",
]

STRICT_VARIABLE = "GRADSWEEP_STRICT_TOLERANCES"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What one comparison may differ by, and where the number comes from.

    Arguments:
        value: the largest error that passes, in `unit`; 0.0 where `unit` is "exact".
        unit: "relative", "ulp" or "exact".
        source: "default", "variant NAME" or "override OP[/SAMPLE]".
        reason: the reason of an override, else "".
        default: the value without overrides, in `default_unit`.
        default_unit: the unit of `default`; differs from `unit` only where an exact default was
            overridden.
    """

    value: float
    unit: str
    source: str = "default"
    reason: str = ""
    default: float = 0.0
    default_unit: str = EXACT

    def __post_init__(self) -> None:
        right = self.value == 0 if self.unit == EXACT else 0 <= self.value < math.inf
        if self.unit not in UNITS or not right:
            raise ValueError(
                f"no tolerance: {self.value!r} {self.unit}\n  at source {self.source!r}\n"
                f"  a value >= 0 in {', '.join(UNITS)}; 0 where it is exact"
            )

    def __str__(self) -> str:
        return str(Bound(self.value, self.unit))


@dataclass(frozen=True, slots=True)
class StaleOverride:
    """An override that no result row needed.

    Arguments:
        override: the override.
        rows: how many rows it applied to; 0 where it matches nothing.
        worst: the largest error among them, in the override's unit; None where there is none.
    """

    override: Override
    rows: int
    worst: float | None

    def __str__(self) -> str:
        where = f"tolerance {self.override.name} ({self.override.bound})"
        if self.rows == 0:
            return f"{where} matches no result: remove it or correct its op, sample or dtype"
        return f"{where} is not needed: worst error {self.worst:.3g} passes the default; remove it"


@cache
def default_table() -> Table:
    """Return the table shipped as `checks/tolerances.toml`, read once."""
    return read_table(Path(__file__).with_name("tolerances.toml"))


def constant(name: str, *, table: Table | None = None) -> float:
    """Return the number called `name` in the table's `[constants]`.

    Raises:
        ToleranceTableError: there is no such constant; the nearest name is suggested.
    """
    table = table or default_table()
    if name not in table.constants:
        raise ToleranceTableError(
            f"there is no constant {name!r}{nearest(name, table.constants)}",
            table.path,
            f"constants.{name}",
            name,
            "add it under [constants], with a comment that says what it multiplies",
        )
    return table.constants[name]


def strict() -> bool:
    """Return whether GRADSWEEP_STRICT_TOLERANCES asks for the defaults alone.

    Raises:
        ToleranceTableError: the variable is neither 0, 1 nor empty.
    """
    value = os.environ.get(STRICT_VARIABLE, "")
    if value not in {"", "0", "1"}:
        raise ToleranceTableError(
            f"the environment variable {STRICT_VARIABLE} is neither 0 nor 1: {value!r}",
            Path("the environment"),
            STRICT_VARIABLE,
            value,
            f"{STRICT_VARIABLE}=1 ignores the overrides; unset it to use them",
        )
    return value == "1"


def lookup(
    surface: str,
    dtype: npt.DTypeLike,
    op: str | None = None,
    sample: str | None = None,
    variant: str | None = None,
    *,
    table: Table | None = None,
) -> Tolerance:
    """Return the tolerance of one comparison.

    An override by op and sample wins over one by op, that over the variant, that over the default.

    Arguments:
        surface: a name of SURFACES; "@device" may follow it and is ignored.
        dtype: the dtype of the result that is judged.
        op: the op's kind ("LOG_SOFTMAX"); None for a user's function.
        sample: the sample's name.
        variant: a variant of the surface ("products"); a dtype it does not list has the default.
        table: the table to look in, the shipped one where None.

    Raises:
        ToleranceTableError: unknown surface, dtype or variant, or no row for the dtype.
    """
    if table is None:
        if (surface.partition("@")[0], op) not in _shipped_overrides():
            op = sample = None  # one row for all of them
        return _looked_up(surface, np.dtype(dtype), op, sample, variant, strict())
    return _lookup(table, surface, dtype, op, sample, variant, strict())


@cache
def _shipped_overrides() -> dict[tuple[str, str | None], list[Override]]:
    """The overrides of the shipped table by surface and op."""
    found: dict[tuple[str, str | None], list[Override]] = {}
    for row in default_table().overrides:
        found.setdefault((row.surface, row.op), []).append(row)
    return found


@lru_cache(maxsize=1 << 14)
def _looked_up(
    surface: str,
    dtype: np.dtype[np.generic],
    op: str | None,
    sample: str | None,
    variant: str | None,
    defaults_alone: bool,
) -> Tolerance:
    return _lookup(default_table(), surface, dtype, op, sample, variant, defaults_alone)


def _lookup(
    table: Table,
    surface: str,
    dtype: npt.DTypeLike,
    op: str | None,
    sample: str | None,
    variant: str | None,
    defaults_alone: bool,
) -> Tolerance:
    surface = known_surface(surface, table)
    names = _fallbacks(dtype)
    source, base = _without_overrides(table, surface, names, variant)
    if op is not None and not defaults_alone:
        found = _override(table, surface, names, op, sample, variant)
        if found is not None:
            where = f"override {found.op}" + (f"/{found.sample}" if found.sample else "")
            bound = found.bound
            return Tolerance(bound.value, bound.unit, where, found.reason, base.value, base.unit)
    return Tolerance(base.value, base.unit, source, "", base.value, base.unit)


def known_surface(surface: str, table: Table | None = None) -> str:
    """Return `surface` without its "@device", or raise naming the nearest surface."""
    base = surface.partition("@")[0]
    if base in SURFACES:
        return base
    raise ToleranceTableError(
        f"there is no surface {base!r}{nearest(base, SURFACES)}",
        (table or default_table()).path,
        f"defaults.{base}",
        surface,
        f"use one of {', '.join(SURFACES)}",
    )


def _fallbacks(dtype: npt.DTypeLike) -> tuple[str, ...]:
    """Return the row names that serve `dtype`, nearest first: itself, its real part, any."""
    name = np.dtype(dtype).name
    real = {"complex64": "float32", "complex128": "float64"}.get(name)
    return (name, real, "any") if real else (name, "any")


def _is_whole(name: str) -> bool:
    """Return whether `name` is a dtype of whole numbers: int4, uint8, bool ..."""
    if np.dtype(name).kind in "biu":
        return True
    try:
        ml_dtypes.iinfo(name)  # type: ignore[no-untyped-call]
    except ValueError:
        return False
    return True


def _without_overrides(
    table: Table, surface: str, names: tuple[str, ...], variant: str | None
) -> tuple[str, Bound]:
    """Return the source and the bound of the variant, else of the default."""
    if variant is not None:
        rows = table.variants.get((surface, variant))
        if rows is None:
            known = [v for s, v in table.variants if s == surface]
            raise ToleranceTableError(
                f"surface {surface} has no variant {variant!r}{nearest(variant, known)}",
                table.path,
                f"variants.{surface}.{variant}",
                variant,
                f"its variants: {', '.join(known) or 'none'}; add [variants.{surface}.{variant}]",
            )
        for name in names:
            if name in rows:
                return f"variant {variant}", rows[name]
    for name in names:
        if name in table.defaults[surface]:
            return "default", table.defaults[surface][name]
    if _is_whole(names[0]):
        return "default", Bound(0.0, EXACT)
    raise ToleranceTableError(
        f"surface {surface} has no tolerance for {names[0]}",
        table.path,
        f"defaults.{surface}.{names[0]}",
        names[0],
        f"it has {', '.join(table.defaults[surface])}; add a row under [defaults.{surface}]",
    )


def _override(
    table: Table,
    surface: str,
    names: tuple[str, ...],
    op: str,
    sample: str | None,
    variant: str | None,
) -> Override | None:
    """Return the most specific override: sample before variant before nearness of the dtype."""
    shipped = table is default_table()
    found = [
        row
        for row in (_shipped_overrides().get((surface, op), []) if shipped else table.overrides)
        if row.surface == surface
        and row.op == op
        and row.dtype in names
        and row.sample in (None, sample)
        and row.variant in (None, variant)
    ]
    return min(
        found,
        key=lambda row: (row.sample is None, row.variant is None, names.index(row.dtype)),
        default=None,
    )


def stale_overrides(
    rows: Iterable[Row], *, table: Table | None = None, partial: bool = False
) -> list[StaleOverride]:
    """Return the overrides that no row needed.

    A looser override is needed by a row whose error is above the default (or NaN); a tighter one
    by any row that it judges. Rows without an error (skipped) show nothing.

    Arguments:
        rows: the results of a sweep.
        table: the table whose overrides are meant, the shipped one where None.
        partial: the rows are a selection, so that an override which matches none of them is
            not stale.
    """
    table = table or default_table()
    judged: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.error is not None:
            judged.setdefault((row.surface.partition("@")[0], row.op), []).append(row)
    stale = []
    for override in table.overrides:
        matching = [
            row
            for row in judged.get((override.surface, override.op), ())
            if override.dtype in _fallbacks(row.dtype) and override.sample in (None, row.sample)
        ]
        if (not matching and partial) or any(_needs(override, row) for row in matching):
            continue
        worst = max((row.error for row in matching if row.error is not None), default=None)
        stale.append(StaleOverride(override, len(matching), worst))
    return stale


def _needs(override: Override, row: Row) -> bool:
    """Return whether `row` would be judged otherwise without `override`."""
    default = row.default_tolerance or 0.0
    if override.bound.value < default:
        return True
    return row.error is not None and not row.error <= default


def check_override_names(
    samples: Mapping[str, Collection[str]], *, table: Table | None = None
) -> None:
    """Raise where an override names an op or a sample that does not exist.

    Arguments:
        samples: the sample names of every op, by its kind.
        table: the table to check, the shipped one where None.

    Raises:
        ToleranceTableError: an unknown op or sample; the nearest name is suggested.
    """
    table = table or default_table()
    known: Collection[str]
    for row in table.overrides:
        if row.op not in samples:
            what, key, value, known = "op", "op", row.op, list(samples)
        elif row.sample is not None and row.sample not in samples[row.op]:
            what, key, value, known = f"sample of {row.op}", "sample", row.sample, samples[row.op]
        else:
            continue
        raise ToleranceTableError(
            f"there is no {what} {value!r}{nearest(value, known)}",
            table.path,
            f"{row.key}.{key}",
            value,
            "correct the name, or remove the override",
        )
