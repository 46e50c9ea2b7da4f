"""vmap of a function against loops: a batch, its gradient, a vmap in a vmap."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.errors import AutodiffError
from autodiff.forward import is_inexact
from checks.gradients.framework import Flat, Framework, Native
from checks.gradients.report import PASS, UNDEFINED, WRONG, WRONG_DTYPE, WRONG_SHAPE, Check
from checks.gradients.target import normal, unit_of, wide
from checks.surfaces import batching
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
Axes = tuple[int | None, ...]
RAISES = "RAISES"
RANK = (WRONG_SHAPE, WRONG_DTYPE, RAISES, WRONG, PASS, UNDEFINED)
COUNT = 3


@dataclasses.dataclass
class Mapped:
    """A function on all its arrays, flat, and rows of them.

    Arguments:
        leaves: the arrays of the arguments as NumPy; `originals` as given.
        flat: all results as a list of the framework's arrays.
        smooth: the leaves that have a gradient.
    """

    name: str
    framework: Framework
    function: Callable[..., Any]
    args: tuple[Any, ...]
    seed: int = 0
    calls: int = 0

    def __post_init__(self) -> None:
        self.originals, self.treedef = tree.flatten(self.args)
        self.leaves = [np.asarray(self.framework.numpy(x)) for x in self.originals]
        self.smooth = [i for i, x in enumerate(self.leaves) if is_inexact(x.dtype)]

    def flat(self, arrays: Sequence[Native]) -> list[Native]:
        """All results at arrays for all leaves."""
        self.calls += 1
        return list(tree.flatten(self.function(*tree.unflatten(self.treedef, list(arrays))))[0])

    def native(self, values: Sequence[Array]) -> list[Native]:
        """Arrays of the framework."""
        pairs = zip(values, self.originals, strict=True)
        return [self.framework.native(np.asarray(v), x) for v, x in pairs]

    def numpy(self, values: Sequence[Native]) -> list[Array]:
        """Results in NumPy."""
        return [np.asarray(self.framework.numpy(v)) for v in values]

    def axes(self, per_argument: Axes) -> Axes:
        """Axes of the leaves by those of the arguments."""
        counts = [len(tree.flatten(a)[0]) for a in self.args]
        return tuple(a for a, n in zip(per_argument, counts, strict=True) for _ in range(n))


# --- comparisons ---------------------------------------------------------------------------


def guarded(mapped: Mapped, name: str, check: Callable[..., Check], *rest: Any) -> Check:
    """A check under its name; what the framework does not define, or refuses, is a verdict."""
    try:
        return dataclasses.replace(check(mapped, *rest), name=name)
    except mapped.framework.undefined as error:
        return Check(name, UNDEFINED, detail=_first(error))
    except _Raises as error:
        return Check(name, RAISES, detail=f"vmap raises {_first(error.__cause__)}")


class _Raises(Exception):
    """vmap failed where the function by itself does not."""


def _first(error: BaseException | None) -> str:
    """Class and first line; all lines of the engine's own: where it is, and the way out."""
    lines = str(error).strip().splitlines() or [""]
    shown = lines if isinstance(error, AutodiffError) else lines[:1]
    return "\n".join([f"{type(error).__name__}: {shown[0]}", *shown[1:]])


def _batched(mapped: Mapped, run: Callable[[], list[Native]]) -> list[Native]:
    try:
        return run()
    except mapped.framework.undefined:
        raise
    except Exception as error:
        raise _Raises from error


def rows(leaf: Array, count: int) -> list[Array]:
    """Distinct rows made of one array, in its dtype."""
    return [np.asarray(r, leaf.dtype) for r in batching.rows(leaf, count)]


def made(mapped: Mapped, axes: Axes, count: int) -> tuple[list[list[Array]], list[Array]]:
    """Rows of each leaf (the leaf itself where it is not mapped), and the stacks."""
    each, stacked = [], []
    for leaf, axis in zip(mapped.leaves, axes, strict=True):
        own = rows(leaf, count) if axis is not None else [leaf] * count
        each.append(own)
        if axis is None:
            stacked.append(leaf)
        elif count:
            stacked.append(np.stack(own, axis=axis))
        else:
            stacked.append(np.moveaxis(np.zeros((0, *leaf.shape), leaf.dtype), 0, axis))
    return each, stacked


def loop(mapped: Mapped, axes: Axes, count: int, out_axis: int) -> Check:
    """A batch against a loop."""
    each, stacked = made(mapped, axes, count)
    singles = [mapped.flat(mapped.native([r[b] for r in each])) for b in range(count)]
    want_rows = [mapped.numpy(s) for s in singles] or [_one(mapped)]
    mapping = vmap_of(mapped, axes, out_axis)
    got = _batched(mapped, lambda: mapping(mapped.native(stacked)))
    return _same(mapped, got, want_rows, count, out_axis)


def _one(mapped: Mapped) -> list[Array]:
    return mapped.numpy(mapped.flat(mapped.native(mapped.leaves)))


def vmap_of(mapped: Mapped, axes: Axes, out_axis: int) -> Flat:
    """vmap of the flat function; results at an axis of their own by the framework's own vmap."""
    if out_axis == 0:
        return mapped.framework.vmap(mapped.flat, axes)

    def function(*arrays: Native) -> list[Native]:
        return mapped.flat(arrays)

    if mapped.framework.name == "jax":
        import jax

        whole = jax.vmap(function, axes, out_axis)
    elif mapped.framework.name == "torch":
        import torch

        whole = torch.func.vmap(function, axes, out_axis)
    else:
        import autodiff as ad

        whole = ad.vmap(function, axes, out_axis)
    return lambda arrays: list(whole(*arrays))


def _same(
    mapped: Mapped, got: Sequence[Native], want: Sequence[Sequence[Array]], count: int, axis: int
) -> Check:
    found = [
        compare(
            np.moveaxis(g, axis, 0) if g.ndim else g, [w[i] for w in want], count, f"result {i}"
        )
        for i, g in enumerate(mapped.numpy(got))
    ]
    return min(found, key=lambda c: (RANK.index(c.verdict), -c.error), default=Check("", PASS))


def compare(got: Array, loop: Sequence[Array], count: int, what: str) -> Check:
    """A batch along axis 0 against its rows; `loop` holds one row, for its shape, if none."""
    shape = (count, *loop[0].shape)
    if got.shape != shape:
        return Check("", WRONG_SHAPE, detail=f"{what} has shape {got.shape}, a loop gives {shape}")
    if got.dtype != loop[0].dtype:
        text = f"{what} is {got.dtype.name}, a loop gives {loop[0].dtype.name}"
        return Check("", WRONG_DTYPE, detail=text)
    if not got.size:
        return Check("", PASS, detail=f"{count} rows")
    want = np.stack(loop)
    equal = (got == want) | ((got != got) & (want != want))
    if not is_inexact(want.dtype):
        off, allowed = np.where(equal, 0.0, 1.0), 0.0
    else:
        finite = np.abs(wide(want)[np.isfinite(wide(want))])
        size = float(np.max(finite, initial=0.0)) or 1.0
        unit = unit_of(want.dtype)
        narrow = unit > constant("narrow_unit")
        allowed = constant("narrow_units") * unit if narrow else constant("vmap_tolerance")
        off = np.where(equal, 0.0, np.abs(wide(got) - wide(want)) / size)
    error = float(np.max(off, initial=0.0))
    if np.all(off <= allowed):
        return Check("", PASS, error, allowed, allowed, f"{count} rows")
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(off), np.inf, off))), off.shape)
    bad = sorted({int(b) for b in np.argwhere(~(off <= allowed))[:, 0]})
    place = ", ".join(str(int(k)) for k in at[1:])
    text = f"{what}[{place}]" if place else what
    text = f"row {int(at[0])}, {text}: vmap gives {got[at]:.9g}, a loop {want[at]:.9g}"
    return Check("", WRONG, error, allowed, allowed, f"{text}; wrong rows: {_listed(bad)}")


def _listed(numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers[:8]))
    return text + (", ..." if len(numbers) > 8 else "")


# --- gradients -----------------------------------------------------------------------------


def gradients(mapped: Mapped, axes: Axes, inside: bool) -> Check:
    """vmap of the gradient (`inside`), or the gradient of vmap, against gradients of rows.

    Leaves without a gradient, and those that are not mapped, are held fixed.
    """
    under = [i for i in mapped.smooth if axes[i] is not None]
    if not under:
        return Check("", UNDEFINED, detail="no mapped argument has a gradient")
    axes = tuple(None if a is None else 0 for a in axes)
    each, stacked = made(mapped, axes, COUNT)
    out = _one(mapped)
    smooth = [k for k, y in enumerate(out) if is_inexact(y.dtype)]
    rng = np.random.default_rng([mapped.seed, COUNT])
    cts = [
        np.stack([normal(rng, out[k]) for _ in range(COUNT)]).astype(out[k].dtype) for k in smooth
    ]
    fw, total = mapped.framework, len(mapped.leaves)

    def pulled(flat: Flat, arrays: Sequence[Native], ct: Sequence[Native]) -> list[Native]:
        def at(points: Sequence[Native]) -> list[Native]:
            full = list(arrays)
            for i, p in zip(under, points, strict=True):
                full[i] = p
            found = flat(full)
            return [found[k] for k in smooth]

        points = [arrays[i] for i in under]
        _, pull = fw.vjp(at, points)
        return [p * 0 if g is None else g for g, p in zip(pull(list(ct)), points, strict=True)]

    def one(everything: Sequence[Native]) -> list[Native]:
        return pulled(mapped.flat, everything[:total], everything[total:])

    like = mapped.originals[under[0]]
    ct_rows = [[fw.native(c[b], like) for c in cts] for b in range(COUNT)]
    singles = [
        mapped.numpy(one([*mapped.native([r[b] for r in each]), *ct_rows[b]])) for b in range(COUNT)
    ]
    whole, batch = [fw.native(c, like) for c in cts], mapped.native(stacked)
    if inside:
        mapping = fw.vmap(one, (*axes, *(0 for _ in cts)))
        got = _batched(mapped, lambda: mapping([*batch, *whole]))
    else:
        got = _batched(mapped, lambda: pulled(fw.vmap(mapped.flat, axes), batch, whole))
    found = [
        compare(g, [w[j] for w in singles], COUNT, f"gradient {j}")
        for j, g in enumerate(mapped.numpy(got))
    ]
    return min(found, key=lambda c: (RANK.index(c.verdict), -c.error))


# --- nested --------------------------------------------------------------------------------


def nested(mapped: Mapped, axes: Axes) -> list[Check]:
    """A vmap in a vmap: over the same arguments, and over the first inside, the rest outside."""
    both: Axes = tuple(None if a is None else 0 for a in axes)
    checks = [guarded(mapped, "nested, the same arguments", _two, both, both)]
    mapped_ones = [i for i, a in enumerate(both) if a is not None]
    if len(mapped_ones) > 1:
        first: Axes = tuple(0 if i == mapped_ones[0] else None for i in range(len(both)))
        rest: Axes = tuple(0 if i in mapped_ones[1:] else None for i in range(len(both)))
        checks.append(
            guarded(mapped, "nested, one argument inside, the rest outside", _two, rest, first)
        )
    return checks


def _two(mapped: Mapped, outer: Axes, inner: Axes) -> Check:
    """Two rows outside, three inside, against a double loop."""
    grids, stacked = [], []
    for leaf, o, i in zip(mapped.leaves, outer, inner, strict=True):
        wide_rows = rows(leaf, 2 * COUNT)
        grid = [
            [
                wide_rows[(COUNT * a if o is not None else 0) + (b if i is not None else 0)]
                for b in range(COUNT)
            ]
            for a in range(2)
        ]
        grids.append(grid)
        block = np.stack([np.stack(line) for line in grid])
        block = block if i is not None else block[:, 0]
        stacked.append(block if o is not None else block[0])
    fw = mapped.framework
    singles = [
        [mapped.numpy(mapped.flat(mapped.native([g[a][b] for g in grids]))) for b in range(COUNT)]
        for a in range(2)
    ]
    mapping = fw.vmap(fw.vmap(mapped.flat, inner), outer)
    got = _batched(mapped, lambda: mapping(mapped.native(stacked)))
    want = [[np.stack([row[k] for row in line]) for k in range(len(line[0]))] for line in singles]
    return _same(mapped, got, want, 2, 0)
