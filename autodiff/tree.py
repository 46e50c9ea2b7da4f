"""Containers of arrays (pytrees): tuples, lists, dicts, dataclasses and None, through optree."""

import dataclasses
from collections.abc import Callable
from typing import Any

import optree

from autodiff.errors import TreeError

NAMESPACE = "autodiff"
_registered: set[type] = set()
_plain: set[type] = set()  # types of leaves that are no dataclasses to be registered


def _register_dataclass(cls: type) -> None:
    names = tuple(f.name for f in dataclasses.fields(cls))

    def flatten(value: Any) -> tuple[tuple[Any, ...], None, tuple[str, ...]]:
        return tuple(getattr(value, n) for n in names), None, names

    def unflatten(_: Any, children: Any) -> Any:
        value: Any = object.__new__(cls)
        for name, child in zip(names, children, strict=True):
            object.__setattr__(value, name, child)
        return value

    optree.register_pytree_node(cls, flatten, unflatten, namespace=NAMESPACE)
    _registered.add(cls)


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """Leaves of a container in order, and the structure that `unflatten` takes."""
    leaves, treedef = optree.tree_flatten(tree, namespace=NAMESPACE)
    if _plain.issuperset(map(type, leaves)):
        return leaves, treedef
    new = {
        type(leaf)
        for leaf in leaves
        if dataclasses.is_dataclass(leaf)
        and not isinstance(leaf, type)
        and type(leaf) not in _registered
        and not hasattr(type(leaf), "__array__")
        and type(leaf).__module__.split(".")[0] != "autodiff"
    }
    if not new:
        _plain.update(map(type, leaves))
        return leaves, treedef
    for cls in new:
        _register_dataclass(cls)
    return flatten(tree)


def unflatten(treedef: Any, leaves: Any) -> Any:
    """Put leaves back into a structure returned by `flatten`."""
    return optree.tree_unflatten(treedef, list(leaves))


def children(tree: Any) -> dict[Any, Any] | None:
    """A container's parts by position, key or field; None for a leaf."""
    flatten(tree)  # registers dataclasses
    try:
        parts, _, keys, _ = optree.tree_flatten_one_level(tree, namespace=NAMESPACE)
    except ValueError:
        return None
    return dict(zip(keys, parts, strict=True))


def paths(tree: Any, root: str = "") -> list[str]:
    """A readable access path for each leaf, e.g. `[0]['w']`."""
    flatten(tree)
    accessors = optree.tree_accessors(tree, namespace=NAMESPACE)
    return [a.codify(root) if len(a) else root for a in accessors]


def map_leaves(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Apply `f` to matching leaves of one or more containers of the same structure."""
    leaves, treedef = flatten(tree)
    others = [flatten_like(r, treedef, "argument") for r in rest]
    return unflatten(treedef, [f(*xs) for xs in zip(leaves, *others, strict=True)])


def flatten_like(tree: Any, treedef: Any, what: str) -> list[Any]:
    """Leaves of `tree`, which must have the structure `treedef`; `what` names it in the error."""
    leaves, found = flatten(tree)
    if found != treedef:
        raise TreeError(
            f"{what} has the structure {describe(found)}",
            f"expected {describe(treedef)}, as in the primal values",
            "pass a container of the same structure, with one array per leaf",
        )
    return leaves


def flatten_up_to(tree: Any, treedef: Any, what: str) -> list[Any]:
    """Like `flatten_like`, but None and other sub-containers may stand in a leaf's place."""
    try:
        return list(treedef.flatten_up_to(tree))
    except ValueError:
        raise TreeError(
            f"{what} does not match the structure {describe(treedef)}",
            f"got {tree!r}"[:300],
            "pass a container of the same structure (None where there is nothing)",
        ) from None


def describe(treedef: Any) -> str:
    """The structure as text with `*` for leaves."""
    text = str(treedef)
    return (
        text.removeprefix("PyTreeSpec(")
        .removesuffix(f", namespace='{NAMESPACE}')")
        .removesuffix(")")
        if (text.startswith("PyTreeSpec("))
        else text
    )
