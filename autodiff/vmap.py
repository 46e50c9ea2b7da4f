"""vmap: a function written for one example, run for a batch."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.api import owned_results
from autodiff.batch import batch_eval, materialize
from autodiff.errors import ShapeError, TreeError
from autodiff.families import whole
from autodiff.program import Program
from autodiff.trace import (
    as_value,
    concrete_of,
    function_name,
    quoted,
    require_callable,
    spec_of,
    trace_flat,
    user_line,
)


def vmap(
    f: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_size: int | None = None,
) -> Callable[..., Any]:
    """A function over a batch: `f` written for one example, run for all without a loop.

    `in_axes`: for each positional argument the axis to map (negative counts from the end), None to
    share it, or a container of these matching the argument; `out_axes` likewise for the results.
    Keyword arguments are mapped along their first axis.
    `axis_size` is needed only where every in_axes is None. Batch sizes 0 and 1 work.
    Raises ShapeError where mapped extents differ, naming both arguments.
    """
    require_callable(f, "vmap")

    @functools.wraps(f)
    def batched(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            places = (*_per_argument(in_axes, len(args)), 0)
            return vmap(_with_keywords(f), places, out_axes, axis_size)(*args, kwargs)
        leaves, in_tree = tree.flatten(args)
        values = [as_value(leaf, "argument") for leaf in leaves]
        axes = _axes(in_axes, args, in_tree, values)
        size = _batch_size(values, axes, axis_size, args, function_name(f))
        moved = [
            v if a is None else np.moveaxis(v, a, 0) for v, a in zip(values, axes, strict=True)
        ]
        flags = [a is not None for a in axes]
        specs = [
            spec_of(m) if not b else spec_of(m).with_shape(np.shape(m)[1:])
            for m, b in zip(moved, flags, strict=True)
        ]
        concretes = [None if b else concrete_of(v) for v, b in zip(values, flags, strict=True)]
        program, captured = trace_flat(f, specs, in_tree, concretes)
        outs, out_flags = batch_eval(program, size, moved, flags, captured)
        placed = _place(outs, out_flags, size, out_axes, program)
        return tree.unflatten(program.out_tree, owned_results(placed, values))

    return batched


def _axes(in_axes: Any, args: Any, in_tree: Any, values: Sequence[Any]) -> list[int | None]:
    axes: list[int | None] = []
    for arg, axis in zip(args, _per_argument(in_axes, len(args)), strict=True):
        axes.extend(_spread(axis, arg, "in_axes"))
    return [
        None if a is None else _normal_axis(a, np.ndim(v), f"in_axes of argument leaf {i}")
        for i, (a, v) in enumerate(zip(axes, values, strict=True))
    ]


def _per_argument(in_axes: Any, count: int) -> tuple[Any, ...]:
    if not isinstance(in_axes, tuple | list):
        return (in_axes,) * count
    if len(in_axes) != count:
        raise TreeError(
            f"in_axes has {len(in_axes)} entries for {count} arguments",
            quoted(user_line()),
            "give one entry per positional argument",
        )
    return tuple(in_axes)


def _with_keywords(f: Callable[..., Any]) -> Callable[..., Any]:
    """f taking its keyword arguments as a last positional one, a dict."""

    @functools.wraps(f)
    def function(*args: Any) -> Any:
        return f(*args[:-1], **args[-1])

    return function


def _spread(axis: Any, value: Any, what: str) -> list[int | None]:
    """One axis per leaf of a value: an int or None covers all leaves below it."""
    axes = _spread_over(axis, tree.flatten(value)[1])
    if axes is None:
        raise TreeError(
            f"{what} {axis!r} does not match its value",
            quoted(user_line()),
            "use an int, None, or a container of the value's structure",
        )
    return axes


def _spread_over(axis: Any, treedef: Any) -> list[int | None] | None:
    """Axes for the leaves of a structure in its own order; None where they do not match it."""
    if axis is None or isinstance(axis, int | np.integer):
        return [None if axis is None else int(axis)] * treedef.num_leaves
    keys, children = treedef.entries(), treedef.children()
    parts = tree.children(axis)
    if treedef.is_leaf() or parts is None or len(parts) != len(children):
        return None
    if isinstance(axis, tuple | list) and issubclass(treedef.type, tuple | list):
        chosen = list(parts.values())
    elif set(parts) == set(keys):
        chosen = [parts[k] for k in keys]
    else:
        return None
    axes: list[int | None] = []
    for part, child in zip(chosen, children, strict=True):
        inner = _spread_over(part, child)
        if inner is None:
            return None
        axes += inner
    return axes


def _normal_axis(axis: int, ndim: int, what: str) -> int:
    if not -ndim <= axis < ndim:
        fix = f"use an axis from {-ndim} to {ndim - 1}" if ndim else "a scalar has none: use None"
        raise ShapeError(
            f"{what} is {axis}, out of bounds for an array with {ndim} axes",
            quoted(user_line()),
            fix,
        )
    return axis % ndim


def _batch_size(
    values: Sequence[Any], axes: Sequence[int | None], axis_size: int | None, args: Any, name: str
) -> int:
    sizes = {
        path: np.shape(v)[a]
        for path, v, a in zip(tree.paths(args, "args"), values, axes, strict=True)
        if a is not None
    }
    if axis_size is not None:
        sizes["axis_size"] = whole(axis_size, "axis_size")
        if sizes["axis_size"] < 0:
            raise ShapeError(
                f"axis_size is {axis_size}", quoted(user_line()), "a batch has 0 rows or more"
            )
    if not sizes:
        raise ShapeError(
            f"vmap of '{name}' maps no argument",
            quoted(user_line()),
            "map one with in_axes, or pass axis_size=n",
        )
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{k}: {v}" for k, v in sizes.items())
        raise ShapeError(
            f"vmap of '{name}' over axes of different sizes",
            f"{listed}; {quoted(user_line())}",
            "map axes of one size, or share an argument with in_axes=None",
        )
    return int(next(iter(sizes.values())))


def _place(
    outs: Sequence[Any], flags: Sequence[bool], size: int, out_axes: Any, program: Program
) -> list[Any]:
    """Results with the batch axis moved to out_axes (None: the result must not be batched)."""
    shaped = tree.unflatten(program.out_tree, list(outs))
    axes = _spread(out_axes, shaped, "out_axes")
    placed = []
    for i, (out, flag, axis) in enumerate(zip(outs, flags, axes, strict=True)):
        if axis is None:
            if flag:
                raise ShapeError(
                    f"out_axes of result {i} is None but the result depends on a mapped argument",
                    quoted(user_line()),
                    "give it an axis",
                )
            placed.append(out)
            continue
        full = out if flag else materialize(out, size)
        placed.append(
            np.moveaxis(full, 0, _normal_axis(axis, np.ndim(full), f"out_axes of result {i}"))
        )
    return placed
