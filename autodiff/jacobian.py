"""Full derivatives: jacfwd, jacrev and hessian, through vmap over the standard basis."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.api import linearize, vjp
from autodiff.argnums import is_single, positions
from autodiff.errors import NotDifferentiableError
from autodiff.forward import is_inexact
from autodiff.program import Spec
from autodiff.trace import as_value, function_name, quoted, require_callable, spec_of, user_line
from autodiff.vmap import vmap

Function = Callable[..., Any]


def _basis(specs: Sequence[Spec]) -> list[Any]:
    """The standard basis of several arrays together: per array, (total size, *shape)."""
    total = sum(s.size for s in specs)
    blocks, row = [], 0
    for s in specs:
        block = np.zeros((total, s.size), s.dtype)
        block[row : row + s.size] = np.eye(s.size, dtype=s.dtype)
        blocks.append(block.reshape(total, *s.shape))
        row += s.size
    return blocks


def _real_leaves(values: Sequence[Any], what: str) -> list[Spec]:
    specs = [spec_of(v) for v in values]
    for s in specs:
        if not is_inexact(s.dtype) or s.dtype.kind == "c":
            raise NotDifferentiableError(
                f"{what} holds {s}",
                quoted(user_line()),
                "Jacobians are of real floating arrays: take real and imaginary parts, convert "
                "integers with astype(float), or use jvp and vjp",
            )
    return specs


def _selected(
    f: Function, args: Sequence[Any], kwargs: dict[str, Any], argnums: int | Sequence[int]
) -> Any:
    """f as a function of the differentiated arguments alone, and those arguments."""
    nums = positions(argnums, len(args), function_name(f))

    def partial(*chosen: Any) -> Any:
        full = list(args)
        for n, value in zip(nums, chosen, strict=True):
            full[n] = value
        return f(*full, **kwargs)

    partial.__name__ = function_name(f)
    return partial, tuple(args[n] for n in nums)


def jacfwd(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """A function returning the Jacobian by forward mode: best for few inputs.

    For an output leaf of shape (m...) and an input leaf of shape (n...) the block has shape
    (m..., n...); blocks are nested as output containers of argument containers.
    Raises NotDifferentiableError for integer or complex leaves.
    """
    require_callable(f, "jacfwd")

    @functools.wraps(f)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        g, chosen = _selected(f, args, kwargs, argnums)
        leaves, in_tree = tree.flatten(chosen)
        specs = _real_leaves([as_value(v, "argument") for v in leaves], f"argnums={argnums}")
        y, pushforward = linearize(g, *chosen)
        outs, out_tree = tree.flatten(y)
        rows = vmap(lambda *t: pushforward(*tree.unflatten(in_tree, t)))(*_basis(specs))
        columns = tree.flatten_up_to(rows, out_tree, "rows")
        blocks: list[Any] = []
        for column, out in zip(columns, outs, strict=True):
            if column is None:
                blocks.append(None)
                continue
            moved = np.moveaxis(column, 0, -1)
            parts, at = [], 0
            for s in specs:
                part = moved[..., at : at + s.size]
                parts.append(np.reshape(part, (*np.shape(out), *s.shape)))
                at += s.size
            blocks.append(_unwrap(tree.unflatten(in_tree, parts), argnums))
        return tree.unflatten(out_tree, blocks)

    return jacobian


def jacrev(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """A function returning the Jacobian by reverse mode: best for few outputs; see `jacfwd`."""
    require_callable(f, "jacrev")

    @functools.wraps(f)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        g, chosen = _selected(f, args, kwargs, argnums)
        leaves, in_tree = tree.flatten(chosen)
        in_specs = _real_leaves([as_value(v, "argument") for v in leaves], f"argnums={argnums}")
        y, pullback = vjp(g, *chosen)
        outs, out_tree = tree.flatten(y)
        specs = _real_leaves(outs, "the output")
        rows = vmap(lambda *ct: pullback(tree.unflatten(out_tree, ct)))(*_basis(specs))
        columns = tree.flatten_up_to(rows, in_tree, "columns")
        blocks, at = [], 0
        for s in specs:
            parts = [
                np.reshape(c[at : at + s.size], (*s.shape, *i.shape))
                for c, i in zip(columns, in_specs, strict=True)
            ]
            blocks.append(_unwrap(tree.unflatten(in_tree, parts), argnums))
            at += s.size
        return tree.unflatten(out_tree, blocks)

    return jacobian


def _unwrap(parts: Any, argnums: int | Sequence[int]) -> Any:
    return parts[0] if is_single(argnums) else parts


def hessian(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """A function returning second derivatives, forward over reverse: blocks (n..., n...) for a
    scalar function of an array of shape (n...).
    """
    require_callable(f, "hessian")
    return jacfwd(jacrev(f, argnums), argnums)
