"""`check_vmap`: vmap of a function, of any framework, against a loop over distinct rows."""

import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from autodiff import tree
from checks.gradients import framework as frameworks
from checks.gradients.report import PASS, UNDEFINED, Check
from checks.gradients.report import _plain as plain
from checks.properties import batches
from checks.properties.arguments import PropertyError, label
from checks.properties.batches import COUNT, RANK, Axes, Mapped, guarded, loop, nested
from checks.properties.vmapped import SURFACES

MOST = 81
SHOWN = 6


class VmapError(AssertionError):
    """A vmap check that failed; carries the `report`."""

    def __init__(self, report: "VmapReport") -> None:
        self.report = report
        super().__init__(str(report))


@dataclasses.dataclass(frozen=True)
class VmapReport:
    """The outcome of one vmap check.

    Arguments:
        name, framework: of the function.
        verdict: PASS, WRONG, WRONG_SHAPE, WRONG_DTYPE, RAISES (vmap raises where a loop does not)
            or NOT_DEFINED.
        ok: whether it is PASS.
        checks: every comparison made.
        evaluations: calls of the function, batched ones included.
    """

    name: str
    framework: str
    verdict: str
    ok: bool
    checks: tuple[Check, ...]
    evaluations: int = 0
    seconds: float = 0.0
    seed: int = 0
    reproduce: str = ""

    def __bool__(self) -> bool:
        return self.ok

    def raise_if_failed(self) -> "VmapReport":
        """Return the report where it is ok; else raise VmapError with its text."""
        if not self.ok:
            raise VmapError(self)
        return self

    def to_json(self, indent: int | None = None) -> str:
        """The report as JSON."""
        return json.dumps(plain(dataclasses.asdict(self)), indent=indent, allow_nan=False)

    def __str__(self) -> str:
        bad = [c for c in self.checks if c.verdict not in (PASS, UNDEFINED)]
        missing = [c for c in self.checks if c.verdict == UNDEFINED]
        total = len(self.checks)
        word = "mapping" if total == 1 else "mappings"
        count = f"{len(bad)} of {total} {word}" if bad else f"{total} {word}"
        lines = [f"{self.verdict} {self.name}[vmap] ({self.framework}), {count}"]
        last = ""
        for c in (bad or missing)[:SHOWN]:
            verdict = "" if c.verdict == self.verdict else f" {c.verdict}"
            detail = c.detail.split("\n") if c.detail != last else ["the same"]
            lines += [f"{'mapping':12}{c.name}{verdict}", *(f"{'':12}{d}" for d in detail)]
            last = c.detail
        more = len(bad or missing) - SHOWN
        lines += [f"{'':12}... and {more} more"] if more > 0 else []
        lines += [f"{'again':12}{self.reproduce}"] if self.reproduce and not self.ok else []
        return "\n".join([*lines, f"{'calls':12}{self.evaluations}, seed {self.seed}"])


def check_vmap(
    f: Callable[..., Any],
    *args: Any,
    in_axes: Any = None,
    out_axes: Sequence[int] = (0, -1),
    batch_sizes: Sequence[int] = (0, 1, 3),
    gradients: bool | None = None,
    surfaces: Sequence[str] | None = None,
    framework: str | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> VmapReport:
    """Hold vmap of `f` against a loop over distinct rows made of `args`.

    Args:
        f: a function of arrays in any containers: NumPy, JAX or PyTorch.
        args: its arguments for one example.
        in_axes: one axis or None for each argument; every combination of None, 0 and -1 by default
            (with many arguments: all, each alone, all but each).
        out_axes: axes at which results are batched.
        batch_sizes: of the batches of all arguments together.
        gradients: vmap of the gradient and gradient of vmap too; by default where there is one.
        surfaces: some of "vmap_loop", "vmap_sizes", "vmap_out_axes", "vmap_gradients",
            "vmap_nested".
        framework: "numpy", "jax" or "torch"; found from the arguments by default.
        seed: varies the random cotangents.
        name: what the report calls the function.

    Returns:
        A VmapReport.

    Raises:
        PropertyError: axes that do not fit the arguments.
    """
    start = time.perf_counter()
    chosen = frameworks.framework(framework) if framework else frameworks.detect(f, args)
    function, prepared = chosen.prepare(f, tuple(args))
    with chosen.scope(), np.errstate(all="ignore"):
        mapped = Mapped(name or label(f), chosen, function, tuple(prepared), seed or 0)
        if not mapped.leaves:
            raise PropertyError(
                f"{mapped.name} has no array to map", "in check_vmap", "pass arrays"
            )
        wanted = _wanted(mapped, gradients, surfaces)
        checks: list[Check] = []
        for kind in wanted:
            checks += _surface(mapped, kind, in_axes, out_axes, batch_sizes)
    main = min(checks, key=lambda c: RANK.index(c.verdict), default=Check("none", UNDEFINED))
    return VmapReport(
        name=mapped.name,
        framework=chosen.name,
        verdict=main.verdict,
        ok=main.verdict == PASS,
        checks=tuple(checks),
        evaluations=mapped.calls,
        seconds=time.perf_counter() - start,
        seed=seed or 0,
    )


def _wanted(
    mapped: Mapped, gradients: bool | None, surfaces: Sequence[str] | None
) -> tuple[str, ...]:
    if surfaces is not None:
        return tuple(surfaces)
    smooth = bool(mapped.smooth) if gradients is None else gradients
    return tuple(s for s in SURFACES if smooth or s != "vmap_gradients")


def _surface(
    mapped: Mapped, kind: str, in_axes: Any, out_axes: Sequence[int], sizes: Sequence[int]
) -> list[Check]:
    chosen = combinations(mapped, in_axes)
    first = chosen[0]
    if kind == "vmap_loop":
        return [guarded(mapped, f"in_axes {a}", loop, mapped.axes(a), COUNT, 0) for a in chosen]
    if kind == "vmap_sizes":
        return [
            guarded(mapped, f"batch of {n}, in_axes {first}", loop, mapped.axes(first), n, 0)
            for n in sizes
        ]
    if kind == "vmap_out_axes":
        return [
            guarded(mapped, f"out_axes {o}, in_axes {first}", loop, mapped.axes(first), COUNT, o)
            for o in out_axes
        ]
    if kind == "vmap_nested":
        return nested(mapped, mapped.axes(first))
    axes = mapped.axes(first)
    return [
        guarded(mapped, "vmap of gradient", batches.gradients, axes, True),
        guarded(mapped, "gradient of vmap", batches.gradients, axes, False),
    ]


# --- axes ----------------------------------------------------------------------------------


def combinations(mapped: Mapped, in_axes: Any) -> list[Axes]:
    """Axes of the arguments: those given, or all combinations, the plainest first."""
    counts = [tree.flatten(a)[0] for a in mapped.args]
    if in_axes is not None:
        return [_given_axes(mapped, in_axes)]
    options: list[tuple[int | None, ...]] = []
    for leaves in counts:
        deep = all(np.ndim(mapped.framework.numpy(x)) for x in leaves)
        options.append((0, -1, None) if deep and leaves else (0, None) if leaves else (None,))
    every = [c for c in _products(options) if any(a is not None for a in c)]
    return every


def _products(options: Sequence[tuple[int | None, ...]]) -> Iterator[Axes]:
    if np.prod([len(o) for o in options]) <= MOST:
        yield from itertools.product(*options)
        return
    seen: set[Axes] = set()
    for axis in (0, -1):
        full = tuple(axis if axis in o else o[0] for o in options)
        alone = [tuple(a if i == j else None for j, a in enumerate(full)) for i in range(len(full))]
        spared = [
            tuple(None if i == j else a for j, a in enumerate(full)) for i in range(len(full))
        ]
        for axes in (full, *alone, *spared):
            if axes not in seen:
                seen.add(axes)
                yield axes


def _given_axes(mapped: Mapped, in_axes: Any) -> Axes:
    count = len(mapped.args)
    axes = (in_axes,) * count if isinstance(in_axes, int) else in_axes
    fits = isinstance(axes, tuple | list) and len(axes) == count
    if not fits or not all(a is None or isinstance(a, int) for a in axes) or set(axes) == {None}:
        raise PropertyError(
            f"in_axes={in_axes!r} does not fit {mapped.name}, which has {count} array arguments",
            "in a vmap check",
            f"write one axis or None for each: in_axes=({', '.join('0' * count)},)",
        )
    for axis, argument in zip(axes, mapped.args, strict=True):
        for leaf in tree.flatten(argument)[0]:
            rank = np.ndim(mapped.framework.numpy(leaf)) + 1
            if axis is not None and not -rank <= axis < rank:
                raise PropertyError(
                    f"axis {axis} of in_axes={in_axes!r} does not exist",
                    f"a batch of {mapped.name}'s argument has {rank} axes",
                    f"use {-rank} to {rank - 1}, or None",
                )
    return tuple(axes)
