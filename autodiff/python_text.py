"""Constants, parameters and containers as Python source."""

import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.kernel_source import RenderError
from autodiff.program import Spec
from autodiff.text import little_endian, uniform

INDENT = "    "
WRAP = 88
_PRIMARY = re.compile(r"[A-Za-z_][\w.]*(?:\(.*\)|\[.*\])?", re.DOTALL)


def number_text(value: Any) -> str:
    """A scalar as a Python expression with the same value, signed zeros included."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, complex | np.complexfloating):
        return f"complex({number_text(float(value.real))}, {number_text(float(value.imag))})"
    number = float(value)
    if number != number:
        return "np.nan"
    if number in (np.inf, -np.inf):
        return "np.inf" if number > 0 else "-np.inf"
    return repr(number)


@functools.lru_cache(maxsize=64)
def dtype_text(dtype: np.dtype[Any]) -> str:
    """`np.float32` and the like; a RenderError for dtypes NumPy alone does not have."""
    if dtype.kind == "V":
        raise RenderError(
            f"NumPy has no dtype {dtype.name}",
            "in a rendered program",
            "cast to float32 before the op that takes this dtype as a parameter",
        )
    return "np.bool_" if dtype.kind == "b" else f"np.{dtype.name}"


def param_text(value: Any) -> str:
    """A parameter of an op as a Python expression."""
    if isinstance(value, str) or value is None or value is ...:
        return repr(value) if isinstance(value, str) else str(value).replace("Ellipsis", "...")
    if isinstance(value, bool | int | float | complex | np.number | np.bool_):
        return number_text(value)
    if isinstance(value, tuple):
        inside = ", ".join(param_text(v) for v in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, np.dtype):
        return dtype_text(value)
    if isinstance(value, type) and issubclass(value, np.generic):
        return dtype_text(np.dtype(value))
    if isinstance(value, slice):
        return (
            f"slice({param_text(value.start)}, {param_text(value.stop)}, {param_text(value.step)})"
        )
    if isinstance(value, Spec):
        return f"({param_text(value.shape)}, {dtype_text(value.dtype)})"
    raise RenderError(
        f"a parameter of type {type(value).__name__} has no Python source",
        f"parameter {value!r}"[:200],
        "give ops numbers, strings, tuples, dtypes and slices as parameters",
    )


def primary(text: str) -> str:
    """The expression, in parentheses unless an attribute can follow it as it is."""
    return text if _PRIMARY.fullmatch(text) and _closes_last(text) else f"({text})"


def _closes_last(text: str) -> bool:
    """Whether the first bracket of the text is closed by its last character."""
    depth = 0
    for place, mark in enumerate(text):
        depth += (mark in "([{") - (mark in ")]}")
        if mark in ")]}" and depth == 0 and place < len(text) - 1:
            return False
    return True


def fill_text(value: np.ndarray[Any, Any]) -> str | None:
    """The number that all elements of a constant are, as a Python expression."""
    if not (value.ndim == 0 or uniform(value)) or _has_odd_nan(value.reshape(-1)[:1]):
        return None
    return number_text(value[(0,) * value.ndim])


def array_text(value: np.ndarray[Any, Any], held: np.dtype[Any], held_text: str) -> str:
    """A constant array as an expression of an array of the wider (or same) dtype `held`."""
    dtype = "" if held == np.float64 else f", dtype={held_text}"
    number = fill_text(value) if value.size > 1 else None
    if number is not None:
        return f"np.full({value.shape}, {number}{dtype})"
    wide = value.astype(held)
    if value.size <= 64 and not _has_odd_nan(wide):
        return (
            f"np.array({_nested(wide)}{dtype or (', dtype=np.float64' if not value.size else '')})"
            + (f".reshape({value.shape})" if not value.size else "")
        )
    stored = value if value.dtype.kind != "V" else wide
    data = little_endian(stored).tobytes().hex()
    code = stored.dtype.newbyteorder("<").str
    lines = [f'    "{data[i : i + WRAP]}"' for i in range(0, len(data), WRAP)]
    read = "np.frombuffer(bytes.fromhex(\n" + "\n".join(lines) + f"\n), {code!r})"
    cast = "" if stored.dtype == held else f".astype({held_text})"
    return f"{read}.reshape({value.shape}){cast}"


def held_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that holds a value at float64 precision."""
    if dtype.kind in "fV":
        return np.dtype(np.float64)
    return np.dtype(np.complex128) if dtype.kind == "c" else dtype


def _has_odd_nan(value: np.ndarray[Any, Any]) -> bool:
    """Whether some NaN is not the one that `np.nan` writes."""
    if value.dtype.kind not in "fcV":
        return False
    parts = np.ascontiguousarray(value.astype(held_dtype(value.dtype))).reshape(-1).view(np.float64)
    bits = parts[np.isnan(parts)].view(np.uint64)
    return bool(np.any(bits != np.float64(np.nan).view(np.uint64)))


def _nested(value: np.ndarray[Any, Any]) -> str:
    if not value.ndim:
        return number_text(value[()])
    return "[" + ", ".join(_nested(v) for v in value) + "]"


# --- containers ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Leaf:
    """An array inside a container: the expression that reads it and a name for it."""

    read: str
    name: str


def leaves_of(treedef: Any, read: str, name: str) -> Iterator[Leaf]:
    """The arrays inside a container that the expression `read` gives, in order."""
    if treedef.is_leaf():
        yield Leaf(read, name)
        return
    kind = treedef.type
    for entry, child in zip(treedef.entries(), treedef.children(), strict=True):
        if is_record(kind):
            access = f".{entry}"
        elif isinstance(entry, str | int):
            access = f"[{entry!r}]"
        else:
            raise RenderError(
                f"a container has the key {entry!r}, which has no Python source",
                f"in argument {read}",
                "use strings or integers as keys",
            )
        yield from leaves_of(child, read + access, f"{name}_{entry}")


def is_record(kind: Any) -> bool:
    """Whether containers of this type are read by attribute: dataclasses."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def build_text(treedef: Any, leaves: Iterator[str]) -> str:
    """The expression that puts arrays into a container (named tuples become plain ones)."""
    if treedef.is_leaf():
        return next(leaves)
    kind = treedef.type
    parts = [build_text(child, leaves) for child in treedef.children()]
    if kind is type(None):
        return "None"
    if is_record(kind):
        names = treedef.entries()
        return (
            f"{kind.__name__}({', '.join(f'{n}={p}' for n, p in zip(names, parts, strict=True))})"
        )
    if isinstance(kind, type) and issubclass(kind, dict):
        items = dict(zip(treedef.entries(), parts, strict=True))
        order = tree.unflatten(treedef, range(treedef.num_leaves))  # keys as they were inserted
        return "{" + ", ".join(f"{k!r}: {items[k]}" for k in order) + "}"
    if isinstance(kind, type) and issubclass(kind, tuple):
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if isinstance(kind, type) and issubclass(kind, list):
        return f"[{', '.join(parts)}]"
    raise RenderError(
        f"results are put into a {getattr(kind, '__name__', kind)}, which has no Python source",
        "in the result of a rendered program",
        "return tuples, lists, dicts or dataclasses",
    )


def records(treedef: Any) -> dict[str, tuple[str, ...]]:
    """Names and fields of the dataclasses in a container."""
    found: dict[str, tuple[str, ...]] = {}
    if treedef is None or treedef.is_leaf():
        return found
    if is_record(treedef.type):
        found[treedef.type.__name__] = tuple(treedef.entries())
    for child in treedef.children():
        found |= records(child)
    return found


def record_text(name: str, fields: Sequence[str]) -> str:
    """A plain class that stands for a dataclass of the traced function."""
    lines = [
        f"class {name}:",
        f'    """Stands for the dataclass {name} of the traced function."""',
        "",
        f"    def __init__(self, {', '.join(fields)}):",
        *(f"        self.{f} = {f}" for f in fields),
    ]
    return "\n".join(lines)
