"""The source of kernels, cut out of their modules for programs that run without the engine."""

import ast
import dataclasses
import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import scipy
import scipy.fft
import scipy.linalg
import scipy.special

from autodiff.errors import AutodiffError
from autodiff.naming import Namer

_HOMES = (
    ("np", np),
    ("np.linalg", np.linalg),
    ("np.fft", np.fft),
    ("scipy.special", scipy.special),
    ("scipy.linalg", scipy.linalg),
    ("scipy.fft", scipy.fft),
)
ALLOWED = ("numpy", "scipy")


class RenderError(AutodiffError, ValueError):
    """A program has no Python source of its own; carries the op's `kind`."""


@dataclasses.dataclass(frozen=True)
class Definition:
    """A top-level statement of a module: its text without annotations and the names it reads.

    `spans` are the places (offset, length) where each of these names, or its own, stands.
    """

    name: str
    text: str
    reads: frozenset[str]
    spans: tuple[tuple[int, str], ...]
    order: int


class Library:
    """Imports and kernel definitions that a rendered program needs, each of them once."""

    def __init__(self, namer: Namer) -> None:
        self.namer = namer
        self.imports: set[str] = {"import numpy as np"}
        self.names: dict[tuple[str, str], str] = {}
        self.texts: dict[tuple[str, str], tuple[str, int, str]] = {}
        namer.taken.update({"np", "scipy"})

    def reference(self, function: Callable[..., Any], kind: str) -> str:
        """The expression for a function: a dotted NumPy or SciPy name, or an embedded kernel."""
        dotted = dotted_name(function)
        if dotted is not None:
            root = dotted.rpartition(".")[0]
            if root.startswith("scipy"):
                self.imports.add(f"import {root}")
            return dotted
        name = getattr(function, "__name__", "")
        module = sys.modules.get(getattr(function, "__module__", ""))
        if module is None or getattr(module, name, None) is not function:
            raise RenderError(
                f"the implementation of {kind} has no source that stands alone",
                f"in op {kind}, implementation {function!r}",
                "write it as a function at the top level of a module in autodiff/kernels",
                kind=kind,
            )
        return self._define(module, name, kind)

    def _define(self, module: ModuleType, name: str, kind: str) -> str:
        at = (module.__name__, name)
        if at in self.names:
            return self.names[at]
        definition = definitions(module)[0].get(name)
        if definition is None:
            return self._imported(module, name, kind)
        base = name
        if name in self.namer.taken:  # the same name in two kernel modules
            base = f"{module.__name__.rpartition('.')[2]}_{name.lstrip('_')}"
        self.names[at] = self.namer.fresh(base)
        new = {name: self.names[at]}
        for read in sorted(definition.reads - {name}):
            new[read] = self._define(module, read, kind)
        self.texts[at] = (module.__name__, definition.order, _renamed(definition, new))
        return self.names[at]

    def _imported(self, module: ModuleType, name: str, kind: str) -> str:
        """A name that a kernel module imports: kept as it is, or another kernel's definition."""
        line, origin = definitions(module)[1][name]
        if origin.split(".")[0] in ALLOWED or origin.split(".")[0] in sys.stdlib_module_names:
            self.imports.add(line)
            self.namer.taken.add(name)
            return name
        value = getattr(module, name)
        home = sys.modules.get(getattr(value, "__module__", ""))
        if not callable(value) or home is None:
            raise RenderError(
                f"the kernel of {kind} uses {name} from {origin}",
                f"in op {kind}, module {module.__name__}",
                "a kernel may use NumPy, SciPy and other kernels",
                kind=kind,
            )
        return self._define(home, value.__name__, kind)

    def text(self) -> str:
        """All definitions, in the order of their modules."""
        return "\n\n\n".join(t for _, _, t in sorted(self.texts.values()))


@functools.lru_cache(maxsize=1024)
def dotted_name(function: Any) -> str | None:
    """`np.exp`, `scipy.special.erf`, ...; None for functions of other homes."""
    name = getattr(function, "__name__", None)
    if name is None:
        return None
    for prefix, home in _HOMES:
        if getattr(home, name, None) is function:
            return f"{prefix}.{name}"
    return None


@functools.lru_cache(maxsize=64)
def definitions(
    module: ModuleType,
) -> tuple[Mapping[str, Definition], Mapping[str, tuple[str, str]]]:
    """Top-level definitions of a module by name, and its imports as (line, origin)."""
    source = inspect.getsource(module)
    tree = ast.parse(source)
    imports: dict[str, tuple[str, str]] = {}
    owners: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                imports[alias.asname or alias.name.split(".")[0]] = _import_line(node, alias)
        for name in _defined(node):
            owners[name] = node
    text = _Text(source, frozenset({*owners, *imports}))
    found = {
        name: _definition(name, node, text, order)
        for order, (name, node) in enumerate(owners.items())
    }
    return found, imports


class _Text:
    """A module's source, the names it defines and imports, and where a place of `ast`'s is."""

    def __init__(self, source: str, known: frozenset[str]) -> None:
        self.source, self.known = source, known
        self.lines = source.splitlines(keepends=True)
        self.starts = [0, *itertools.accumulate(map(len, self.lines))]

    def offset(self, line: int, column: int) -> int:
        """The offset of a line and column: `ast` counts columns in UTF-8 bytes."""
        text = self.lines[line - 1]
        if not text.isascii():
            column = len(text.encode()[:column].decode())
        return self.starts[line - 1] + column


def _import_line(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> tuple[str, str]:
    suffix = f" as {alias.asname}" if alias.asname else ""
    if isinstance(node, ast.Import):
        return f"import {alias.name}{suffix}", alias.name
    return f"from {node.module} import {alias.name}{suffix}", node.module or ""


def _defined(node: ast.stmt) -> Iterable[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return (node.name,)
    if isinstance(node, ast.Assign):
        return tuple(t.id for t in node.targets if isinstance(t, ast.Name))
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return (node.target.id,)
    return ()


def _definition(name: str, node: ast.stmt, text: _Text, order: int) -> Definition:
    """The statement's text without annotations, decorators included, and the names it reads."""
    source, offset = text.source, text.offset
    nodes = list(ast.walk(node))
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(d.lineno for d in decorators)])
    begin, end = text.starts[first - 1], offset(node.end_lineno or 0, node.end_col_offset or 0)
    cuts = sorted(_annotations(nodes, source, offset))
    skipped = {id(n) for part in _annotation_nodes(nodes) for n in ast.walk(part)}
    places = [
        (offset(n.lineno, n.col_offset), n.id)
        for n in nodes
        if isinstance(n, ast.Name) and n.id in text.known and id(n) not in skipped
    ]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        places.append((source.index(name, offset(node.lineno, node.col_offset)), name))
    kept: list[str] = []
    at, shift, spans = begin, 0, []
    for a, b in [*cuts, (end, end)]:
        spans += [(p - begin - shift, n) for p, n in places if at <= p < a]
        kept.append(source[at:a])
        at, shift = b, shift + (b - a)
    reads = frozenset(n for _, n in spans)
    return Definition(name, "".join(kept), reads, tuple(sorted(spans)), order)


def _annotation_nodes(nodes: Iterable[ast.AST]) -> list[ast.expr]:
    found: list[ast.expr] = []
    for n in nodes:
        if isinstance(n, ast.arg | ast.AnnAssign) and n.annotation is not None:
            found.append(n.annotation)
        if isinstance(n, ast.FunctionDef) and n.returns is not None:
            found.append(n.returns)
    return found


def _annotations(
    nodes: Sequence[ast.AST], source: str, offset: Callable[[int, int], int]
) -> Iterable[tuple[int, int]]:
    """Ranges of the source to drop: `: T` of arguments and variables, `-> T` of functions.

    Class fields keep theirs: they are the fields of dataclasses.
    """
    fields = {id(n) for c in nodes if isinstance(c, ast.ClassDef) for n in c.body}
    for n in nodes:
        if isinstance(n, ast.arg | ast.AnnAssign) and n.annotation is not None:
            if id(n) in fields:
                continue
            stop = offset(n.annotation.end_lineno or 0, n.annotation.end_col_offset or 0)
            begin = offset(n.annotation.lineno, n.annotation.col_offset)
            yield source.rindex(":", 0, begin), stop
        if isinstance(n, ast.FunctionDef) and n.returns is not None:
            begin = offset(n.returns.lineno, n.returns.col_offset)
            arrow = source.rindex("->", 0, begin)
            start = len(source[:arrow].rstrip())
            yield start, offset(n.returns.end_lineno or 0, n.returns.end_col_offset or 0)


def _renamed(definition: Definition, new: Mapping[str, str]) -> str:
    """The definition's text with the names it reads replaced."""
    text, parts, at = definition.text, [], 0
    for place, name in definition.spans:
        parts += [text[at:place], new.get(name, name)]
        at = place + len(name)
    return "".join([*parts, text[at:]])
