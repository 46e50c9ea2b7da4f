"""The way from a call's arguments to flat arrays and back, as generated code for one structure."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.kernel_source import RenderError
from autodiff.program import Spec
from autodiff.python_text import build_text, is_record, records

MISS = object()
_CONTAINERS = (tuple, list, dict)
_SCALARS = (bool, int, float, complex, np.generic)


def make_attempt(
    in_tree: Any,
    out_tree: Any,
    specs: Sequence[Spec],
    kinds: Sequence[type],
    names: dict[str, Any],
) -> Callable[[tuple[Any, ...]], Any] | None:
    """A function of the argument tuple that gives the call's result.

    It gives MISS where the arguments have other containers, shapes or dtypes than these.

    `names` holds the functions `run` (flat, with buffers), `workspace` and the list `pool` of
    workspaces not in use. None for containers other than tuples, lists, dicts and dataclasses,
    and for leaves other than arrays and numbers (`kinds` are their types).
    """
    space = {**names, "ndarray": np.ndarray, "MISS": MISS, "asarray": np.asarray}
    leaves = [f"x{i}" for i in range(len(specs))]
    lines = _unpack(in_tree, "args", iter(leaves), space)
    if lines is None or not all(k is np.ndarray or issubclass(k, _SCALARS) for k in kinds):
        return None
    lines += _leaf_checks(leaves, specs, kinds, space)
    results = [f"y{i}" for i in range(out_tree.num_leaves)]
    unpacked = ", ".join(results) + ("," if len(results) == 1 else "")
    body = [
        *lines,
        "try: buffers = pool.pop()",
        "except IndexError: buffers = workspace()",
        "try:",
        f"    {f'{unpacked} = ' if results else ''}run({', '.join(['buffers', *leaves])})",
        "finally: pool.append(buffers)",
        f"return {_pack(out_tree, results, space)}",
    ]
    text = "\n".join(["def attempt(args):", *("    " + line for line in body)])
    exec(compile(text, "<dispatch>", "exec"), space)
    attempt: Callable[[tuple[Any, ...]], Any] = space["attempt"]
    return attempt


def _leaf_checks(
    leaves: Sequence[str], specs: Sequence[Spec], kinds: Sequence[type], space: dict[str, Any]
) -> list[str]:
    """Lines that check types, shapes and dtypes, and make numbers arrays."""
    lines: list[str] = []
    for i, (leaf, spec, kind) in enumerate(zip(leaves, specs, kinds, strict=True)):
        space[f"d{i}"], space[f"k{i}"] = spec.dtype, kind
        if kind is np.ndarray:
            test = f"type({leaf}) is not ndarray or {leaf}.shape != {spec.shape}"
            lines.append(f"if {test} or {leaf}.dtype is not d{i}: return MISS")
        else:
            lines.append(f"if type({leaf}) is not k{i}: return MISS")
            lines.append(f"{leaf} = asarray({leaf})")
            lines.append(f"if {leaf}.dtype is not d{i}: return MISS")
    return lines


def _unpack(
    treedef: Any, name: str, leaves: Iterator[str], space: dict[str, Any]
) -> list[str] | None:
    """Lines that check a container and take it apart; None where it is of another kind."""
    kind, children = treedef.type, treedef.children()
    if kind is type(None):
        return [f"if {name} is not None: return MISS"]
    parts: list[str] = []
    inside: list[str] = []
    for i, child in enumerate(children):  # in order: leaves are numbered depth first
        parts.append(next(leaves) if child.is_leaf() else f"{name}_{i}")
        if not child.is_leaf():
            inner = _unpack(child, parts[-1], leaves, space)
            if inner is None:
                return None
            inside += inner
    targets = ", ".join(parts) + ("," if len(parts) == 1 else "")
    space[f"t_{name}"] = kind
    lines = [f"if type({name}) is not t_{name}: return MISS"]
    if kind in (tuple, list):
        lines.append(f"if len({name}) != {len(parts)}: return MISS")
        lines += [f"{targets} = {name}"] if parts else []
    elif kind is dict:
        keys = treedef.entries()
        space[f"k_{name}"] = tuple(keys)
        reads = ", ".join(f"{name}[k_{name}[{i}]]" for i in range(len(keys)))
        if all(isinstance(k, str | int) for k in keys):
            reads = ", ".join(f"{name}[{k!r}]" for k in keys)
        lines.append(f"if len({name}) != {len(parts)}: return MISS")
        lines += [f"try: {targets} = {reads},", "except KeyError: return MISS"] if parts else []
    elif is_record(kind):
        reads = ", ".join(f"{name}.{field}" for field in treedef.entries())
        lines += [f"{targets} = {reads},"] if parts else []
    else:
        return None
    return lines + inside


def _pack(treedef: Any, results: Sequence[str], space: dict[str, Any]) -> str:
    """The expression of the function's own result."""
    try:
        if not records(treedef) and _is_plain(treedef):
            return build_text(treedef, iter(results))
    except RenderError:
        pass
    space.update(unflatten=tree.unflatten, out_tree=treedef)
    return f"unflatten(out_tree, ({', '.join(results)}{',' if len(results) == 1 else ''}))"


def _is_plain(treedef: Any) -> bool:
    """Whether a structure is of tuples, lists, dicts (with plain keys) and None alone."""
    if treedef.is_leaf() or treedef.type is type(None):
        return True
    keys = treedef.entries() if treedef.type is dict else ()
    return (
        treedef.type in _CONTAINERS
        and all(isinstance(k, str | int) for k in keys)
        and all(_is_plain(c) for c in treedef.children())
    )
