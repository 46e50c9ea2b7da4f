"""The Surface record and the registry."""

import dataclasses
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff.errors import OpError, nearest
from autodiff.native import quiet
from checks.judge import Judge
from checks.subject import Subject

Check = Callable[[Subject, str, Judge], None]
Prepare = Callable[[Sequence[Subject], str], None]


@dataclasses.dataclass(frozen=True)
class Surface:
    """One surface.

    Attributes:
      name: as in the tolerance table.
      compares: the two roads, in a few words.
      dtypes: the dtypes it is run at.
      claims(subject): whether the surface says anything about a subject.
      check(subject, dtype, judge): compares; raises where a road fails.
      prepare(subjects, dtype): does the work of many subjects at once (a device's modules); what it
        finds is kept for `check`.
      needs: packages without which the surface is skipped.
      chunk: how many ops one `prepare` should see together.
      group: surfaces of one group share what they prepare, and are run in one process.
    """

    name: str
    compares: str
    dtypes: tuple[str, ...]
    claims: Callable[[Subject], bool]
    check: Check
    prepare: Prepare | None = None
    needs: tuple[str, ...] = ()
    chunk: int = 0
    group: str = ""

    @property
    def missing(self) -> str:
        """The first package it needs that is not installed, or the empty string."""
        for package in self.needs:
            if importlib.util.find_spec(package) is None:
                return package
        return ""


SURFACES: dict[str, Surface] = {}
HOST = "host"  # the group of surfaces that use a subject's traced programs on the host


def define(found: Surface) -> Surface:
    """Add a surface to the registry."""
    SURFACES[found.name] = found
    return found


def surface(name: str) -> Surface:
    """The surface of that name; an unknown one suggests the nearest."""
    load()
    try:
        return SURFACES[name]
    except KeyError:
        hint = nearest(name, SURFACES) or f"there are {', '.join(SURFACES)}"
        raise OpError(f"unknown surface {name!r}", "in the sweep's registry", hint) from None


def load() -> dict[str, Surface]:
    """Every surface, in the order they are run and shown."""
    from checks.surfaces import batching, derivatives, devices, roads, values

    del batching, derivatives, devices, roads, values
    return SURFACES


def ordinary(subject: Subject) -> bool:
    """Samples and user functions; stated conventions belong to `special`."""
    return subject.special is None


def differentiable(subject: Subject) -> bool:
    """Ordinary subjects that have a derivative to judge."""
    return subject.special is None and subject.differentiable


def at_float32(subject: Subject) -> bool:
    """Whether every value of the arguments exists in float32 (1e200 does not)."""
    if subject.special is not None:
        return False
    known: bool | None = subject.notes.get("at float32")
    if known is None:
        known = subject.notes["at float32"] = not any(map(_leaves_float32, subject.leaves))
    return known


def _leaves_float32(leaf: np.ndarray[Any, Any]) -> bool:
    """Whether an element is beyond the range of float32, or not 0 and below it."""
    if leaf.dtype.kind not in "fc":
        return False
    with quiet():
        narrow = leaf.astype(np.complex64 if leaf.dtype.kind == "c" else np.float32)
    parts = (narrow.real, narrow.imag) if leaf.dtype.kind == "c" else (narrow,)
    wide = (leaf.real, leaf.imag) if leaf.dtype.kind == "c" else (leaf,)
    tiny = np.finfo(np.float32).tiny
    for a, b in zip(parts, wide, strict=True):
        lost = (np.abs(a) < tiny) & (b != 0)
        if lost.any() or (np.isinf(a) & np.isfinite(b)).any():
            return True
    return False


def rounded(arrays: Sequence[Any]) -> list[Any]:
    """Floating arrays rounded to float32, held in float64 (complex likewise)."""
    out = []
    for a in arrays:
        a = np.asarray(a)
        if a.dtype.kind == "f":
            with quiet():
                a = a.astype(np.float32).astype(np.float64)
        elif a.dtype.kind == "c":
            a = a.astype(np.complex64).astype(np.complex128)
        out.append(a)
    return out
