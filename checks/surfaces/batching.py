"""The vmap surface: every mapping of axes against a loop, distinct rows, batches 0, 1 and 3."""

import itertools
from typing import Any

import numpy as np

import autodiff as ad
from autodiff import tree
from autodiff.batch import batch_eval, batch_program
from autodiff.native import quiet, replay
from autodiff.program import Program, sub_programs
from checks.judge import CheckError, Judge
from checks.modes import pulled
from checks.subject import Subject
from checks.surfaces.base import HOST, Surface, define, ordinary

Array = np.ndarray[Any, Any]
Axes = tuple[int | None, ...]
ROWS = 3


def rows(leaf: Array, count: int) -> list[Array]:
    """Distinct rows made of one leaf, inside its domain: floats scaled, each entry otherwise (a
    function that ignores scale tells rows apart too), vectors and integers rotated unless they
    are in order, single integers lowered, alternating bools.
    """
    if leaf.dtype.kind in "fc":
        uneven = np.linspace(0.5, 1.5, max(leaf.size, 1))[: leaf.size].reshape(leaf.shape)
        rotates = _may_rotate(leaf)
        scaled = [leaf * (1.0 + 0.01 * b * uneven) for b in range(count)]
        return [np.asarray(np.roll(x, b) if b and rotates else x) for b, x in enumerate(scaled)]
    if leaf.dtype.kind == "b":
        return [np.asarray(leaf ^ bool(b % 2)) for b in range(count)]
    if leaf.size == 1:
        return [np.asarray(np.maximum(leaf, b) - b, leaf.dtype) for b in range(count)]
    return [np.roll(leaf.ravel(), b).reshape(leaf.shape) for b in range(count)]


def _may_rotate(leaf: Array) -> bool:
    """Vectors may, except such as edges of bins, whose order means something."""
    return leaf.ndim == 1 and leaf.dtype.kind == "f" and not bool(np.all(np.diff(leaf) > 0))


def _check_vmap(subject: Subject, dtype: str, judge: Judge) -> None:
    """The batched program of each set of mapped leaves, run for every combination of axes.

    `ad.vmap` moves the mapped axes to the front and applies the batching rules: the rules depend
    on which leaves are mapped, not on where their axes were. So each set is batched once, and run
    on operands as each combination lays them out; `ad.vmap` itself is called with all mapped.
    """
    del dtype
    if subject.branches:
        return  # a Python branch is decided by one example
    leaves = subject.leaves
    for flags, combinations in _by_flags(subject).items():
        _compare_loops(subject, judge, flags, combinations)
    ones = (0,) * len(leaves)
    _compare_vmap(subject, judge, ones, 3, out_axis=-1)
    if subject.thorough:
        _compare_vmap(subject, judge, ones, 1, out_axis=0)
        _compare_vmap(subject, judge, ones, 0, out_axis=0)
    _compare_counts(subject)
    if subject.differentiable and not subject.tags & {"edge", "singular", "nonfinite"}:
        _compare_gradients(subject, judge)


def _combinations(subject: Subject) -> list[Axes]:
    """Mapped axes per leaf: all of (None, 0, -1) for thorough subjects, else all and each alone."""
    leaves = subject.leaves
    if subject.thorough and len(leaves) <= 3:
        options = [(None, 0, -1) if leaf.ndim else (None, 0) for leaf in leaves]
        return [c for c in itertools.product(*options) if any(a is not None for a in c)]
    alone: list[Axes] = []
    if 1 < len(leaves) <= 4:
        alone = [
            tuple(0 if i == j else None for j in range(len(leaves))) for i in range(len(leaves))
        ]
    return [tuple(0 for _ in leaves), *alone]


def _rows(subject: Subject, index: int) -> list[Array]:
    """The rows of one leaf, made once."""
    known: dict[int, list[Array]] = subject.notes.setdefault("rows", {})
    if index not in known:
        known[index] = rows(subject.leaves[index], ROWS)
    return known[index]


def _stacked(subject: Subject, index: int, axis: int, count: int) -> Array:
    """The first rows of one leaf along an axis."""
    leaf = subject.leaves[index]
    if not count:
        return np.moveaxis(np.zeros((0, *leaf.shape), leaf.dtype), 0, axis)
    return np.stack(_rows(subject, index)[:count], axis=axis)


def _by_flags(subject: Subject) -> dict[tuple[bool, ...], list[Axes]]:
    """The combinations by which leaves they map."""
    found: dict[tuple[bool, ...], list[Axes]] = {}
    for axes in _combinations(subject):
        found.setdefault(tuple(a is not None for a in axes), []).append(axes)
    return found


def _compare_loops(
    subject: Subject, judge: Judge, flags: tuple[bool, ...], combinations: list[Axes]
) -> None:
    """Three rows at once against the function on each row, for each layout of the operands."""
    wanted = _loop(subject, flags)
    for axes in combinations:
        moved = [
            x if a is None else np.moveaxis(_stacked(subject, i, a, ROWS), a, 0)
            for i, (x, a) in enumerate(zip(subject.leaves, axes, strict=True))
        ]
        if len(combinations) > 1 or all(flags):
            program, mapped = _batched(subject, subject.program, flags)
            outs = replay(program)(moved)
        else:
            outs, mapped = batch_eval(subject.program, ROWS, moved, flags)
        for i, (got, is_mapped, want) in enumerate(zip(outs, mapped, wanted, strict=True)):
            full = got if is_mapped else np.broadcast_to(got, (ROWS, *got.shape))
            label = f"batch {ROWS}, in_axes {axes}, result {i}"
            _judge_batch(subject, judge, label, full, want)


def _batched(
    subject: Subject, program: Program, flags: tuple[bool, ...]
) -> tuple[Program, tuple[bool, ...]]:
    """`batch_program` of one of the subject's programs over three rows, made once."""
    known: dict[Any, Any] = subject.notes.setdefault("vmap programs", {})
    at = id(program), flags  # the subject holds its programs
    if at not in known:
        known[at] = batch_program(program, ROWS, flags)
    found: tuple[Program, tuple[bool, ...]] = known[at]
    return found


def _compare_vmap(
    subject: Subject, judge: Judge, axes: tuple[int, ...], count: int, out_axis: int
) -> None:
    """`ad.vmap` of the function over `count` rows against the function on each row."""
    stacked = [_stacked(subject, i, a, count) for i, a in enumerate(axes)]
    with quiet():
        batched = ad.vmap(_flat_function(subject), axes, out_axis)(*stacked)
    wanted = _loop(subject, (True,) * len(axes))
    for i, (got, want) in enumerate(zip(batched, wanted, strict=True)):
        label = f"batch {count}, in_axes {axes}, out_axes {out_axis}, result {i}"
        _judge_batch(subject, judge, label, np.moveaxis(got, out_axis, 0), want[:count])


def _flat_function(subject: Subject) -> Any:
    return lambda *leaves: list(tree.flatten(subject.call_leaves(*leaves))[0])


def _loop(subject: Subject, flags: tuple[bool, ...]) -> list[Array]:
    """Per result, the function on each of the rows, stacked; leaves that are not mapped stay."""
    known: dict[tuple[bool, ...], list[Array]] = subject.notes.setdefault("vmap loop", {})
    if flags not in known:
        with quiet():
            found = [_at_row(subject, flags, b) for b in range(ROWS)]
        known[flags] = [np.stack(ys) for ys in zip(*found, strict=True)]
    return known[flags]


def _at_row(subject: Subject, flags: tuple[bool, ...], row: int) -> list[Array]:
    """The function on one row of the mapped leaves, called once for the same arguments: the first
    row of a leaf is mostly the leaf itself.
    """
    known: dict[tuple[int, ...], list[Array]] = subject.notes.setdefault("vmap rows", {})
    places = tuple(
        [row if f and (row or not _is_leaf(subject, i)) else -1 for i, f in enumerate(flags)]
    )
    if places not in known:
        leaves = [
            x if b < 0 else _rows(subject, i)[b]
            for (i, x), b in zip(enumerate(subject.leaves), places, strict=True)
        ]
        known[places] = [np.asarray(y) for y in _flat_function(subject)(*leaves)]
    return known[places]


def _is_leaf(subject: Subject, index: int) -> bool:
    """Whether the first row of a leaf is that leaf, bit by bit."""
    known: dict[int, bool] = subject.notes.setdefault("vmap leaves", {})
    if index not in known:
        row, leaf = _rows(subject, index)[0], subject.leaves[index]
        known[index] = row.dtype == leaf.dtype and row.tobytes() == leaf.tobytes()
    return known[index]


def _judge_batch(subject: Subject, judge: Judge, label: str, got: Array, want: Array) -> None:
    if got.dtype != want.dtype or got.shape != want.shape:
        raise CheckError(
            f"{label} is {got.dtype}{got.shape}, not {want.dtype}{want.shape} as a loop gives"
        )
    _compare(subject, judge, label, got, want)


def _compare(subject: Subject, judge: Judge, label: str, got: Array, want: Array) -> None:
    variant = "reducing" if subject.contracts or subject.gauge is not None else None
    judge.compare(label, got, want, variant=variant, equal_nan=True)


def _compare_counts(subject: Subject) -> None:
    """No rule loops over the batch: as many equations for 3 rows as for 300."""
    flags = (True,) * len(subject.leaves)
    small = _equations(_batched(subject, subject.program, flags)[0])
    large = _equations(batch_program(subject.program, 300, flags)[0])
    if small != large:
        raise CheckError(f"a batching rule loops: {small} equations for 3 rows, {large} for 300")


def _equations(program: Any) -> int:
    return sum(1 + sum(_equations(p) for p in sub_programs(eq.params)) for eq in program.equations)


def _compare_gradients(subject: Subject, judge: Judge) -> None:
    """vmap of the gradient against gradients of rows; gradient of a vmap likewise."""
    points, weights = subject.points, subject.cotangents("vmap")
    nums = range(len(points))
    stacks = [_stacked(subject, i, 0, ROWS) for i in subject.positions]
    smooth, gradient = subject.smooth_program, subject.pulling
    again, flags = replay(gradient), (True,) * len(points)
    one_by_one = [again([*_row(subject, stacks, b), *weights]) for b in range(ROWS)]
    given = [*_row(subject, stacks, slice(None)), *weights]
    whole = [i in subject.positions for i in range(len(given))]
    inside, mapped = batch_eval(gradient, ROWS, given, whole)
    inside = tuple(
        g if m else np.broadcast_to(g, (ROWS, *g.shape))
        for g, m in zip(inside, mapped, strict=True)
    )
    # the cotangent of each row is the same: the sum over the batch of <w, y> has it for gradient
    batched, mapped = _batched(subject, smooth, flags)
    if not all(mapped):
        batched, _ = batch_program(smooth, ROWS, flags, (True,) * len(weights))
    outside = pulled(batched, stacks, [np.broadcast_to(w, (ROWS, *w.shape)) for w in weights])
    for i in nums:
        want = np.stack([np.asarray(row[i]) for row in one_by_one])
        scale = _scale(want)
        for label, got in (("vmap of grad", inside[i]), ("grad of vmap", outside[i])):
            judge.compare(
                f"{label}, argument {i}",
                got,
                want,
                scale=scale,
                variant="reducing",
                equal_nan=bool(subject.tags),
            )


def _row(subject: Subject, stacks: list[Array], row: Any) -> list[Array]:
    """All leaves, the points at their row."""
    stacked = iter(stacks)
    return [
        next(stacked)[row] if i in subject.positions else leaf
        for i, leaf in enumerate(subject.leaves)
    ]


def _scale(want: Array) -> float:
    finite = np.abs(want[np.isfinite(want)])
    return max(1.0, float(finite.max(initial=0.0)))


def _claims(subject: Subject) -> bool:
    return ordinary(subject) and bool(subject.leaves)


define(
    Surface(
        "vmap",
        "vmap against a loop over distinct rows",
        ("float64",),
        _claims,
        _check_vmap,
        group=HOST,
    )
)

__all__ = ["rows"]
