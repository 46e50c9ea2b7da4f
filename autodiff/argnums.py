"""What `argnums` names, and the scalar that `grad` needs."""

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from autodiff import tree
from autodiff.errors import NotDifferentiableError, ShapeError, TreeError
from autodiff.forward import is_inexact
from autodiff.program import Program, Spec
from autodiff.trace import quoted, spec_of, user_line


def is_single(argnums: Any) -> bool:
    """Whether argnums names one argument, whose derivative comes bare, rather than a tuple."""
    return not isinstance(argnums, Iterable) or isinstance(argnums, str)


def positions(argnums: int | Sequence[int], count: int, name: str) -> tuple[int, ...]:
    """The positions that argnums names among `count` positional arguments, none negative."""
    try:
        given: Any = (argnums,) if is_single(argnums) else argnums
        nums = tuple(map(operator.index, given))
    except TypeError:
        raise TreeError(
            f"argnums={argnums!r} of '{name}' is no position",
            quoted(user_line()),
            "name positional arguments by an int, or by a tuple of ints",
        ) from None
    for n in nums:
        if not -count <= n < count:
            raise TreeError(
                f"argnums={n} but '{name}' was called with {count} positional arguments",
                quoted(user_line()),
                f"use argnums between 0 and {count - 1}",
            )
    return tuple(n % count for n in nums)


def wanted_leaves(
    args: Sequence[Any], nums: Sequence[int], values: Sequence[Any], name: str
) -> tuple[list[bool], list[int]]:
    """Per flat leaf whether a gradient is wanted, and the wanted leaves in argnums' order."""
    spans: list[range] = []
    start = 0
    for arg in args:
        count = len(tree.flatten(arg)[0])
        spans.append(range(start, start + count))
        start += count
    for n in nums:
        if not any(is_inexact(spec_of(values[i]).dtype) for i in spans[n]):
            kinds = sorted({spec_of(values[i]).dtype.name for i in spans[n]}) or ["no arrays"]
            raise NotDifferentiableError(
                f"gradient with respect to argument {n} of '{name}', "
                f"which holds {', '.join(kinds)}",
                quoted(user_line()),
                "integers and bools have no tangent space: convert with x.astype(float)",
            )
    kept = [i for n in nums for i in spans[n]]
    return [i in set(kept) for i in range(start)], kept


def split(leaves: list[Any], args: Sequence[Any], nums: Sequence[int], argnums: Any) -> Any:
    """Flat gradients in the containers of the arguments they are for."""
    results = []
    start = 0
    for n in nums:
        treedef = tree.flatten(args[n])[1]
        count = treedef.num_leaves
        results.append(tree.unflatten(treedef, leaves[start : start + count]))
        start += count
    return results[0] if is_single(argnums) else tuple(results)


def require_scalar(program: Program, has_aux: bool, name: str) -> None:
    """The function must return one real floating scalar, and with `has_aux` a pair."""
    out = tree.unflatten(program.out_tree, [a.spec for a in program.outputs])
    first = out[0] if has_aux and isinstance(out, tuple) and len(out) == 2 else out
    if has_aux and first is out:
        raise TreeError(
            f"'{name}' must return (value, aux) with has_aux=True",
            quoted(user_line()),
            "return a pair, or leave has_aux out",
        )
    if not isinstance(first, Spec) or first.shape != ():
        shown = str(first) if isinstance(first, Spec) else f"a {type(first).__name__}"
        raise ShapeError(
            f"grad needs a scalar output, '{name}' returns {shown}",
            quoted(user_line()),
            "reduce it (e.g. .sum()), or use autodiff.vjp or autodiff.jacrev",
        )
    if not is_inexact(first.dtype) or first.dtype.kind == "c":
        raise NotDifferentiableError(
            f"grad needs a real floating output, '{name}' returns {first}",
            quoted(user_line()),
            "take the real part or absolute value, or convert with astype(float)",
        )
