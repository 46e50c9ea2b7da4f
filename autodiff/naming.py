"""Readable names for the values of a program: the user's own where the source line tells them.

An equation that ends the run of its source line takes the name assigned on that line; a tangent is
`x_dot` and a cotangent `x_bar` of the value it belongs to; everything else is named after its op.
"""

import ast
import builtins
import functools
import keyword
import os
import sys
from collections.abc import Collection, Mapping, Sequence

from autodiff.program import Atom, Equation, Program, Var

MAX_LENGTH = 24
_RESERVED = frozenset(dir(builtins)) | frozenset(keyword.kwlist) | frozenset(keyword.softkwlist)


class Namer:
    """Hands out distinct Python identifiers."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        self.taken = {*_RESERVED, *taken}
        self.counts: dict[str, int] = {}

    def fresh(self, base: str, numbered: bool = False) -> str:
        """`base` itself if free (never, where `numbered`), else base_1, base_2, ..."""
        base = base if base.isidentifier() else "value"
        if not numbered and base not in self.taken:
            self.taken.add(base)
            return base
        start = 1 if numbered else 2
        number = self.counts.get(base, start)
        while f"{base}_{number}" in self.taken:
            number += 1
        self.counts[base] = number + 1
        self.taken.add(f"{base}_{number}")
        return f"{base}_{number}"


def name_values(
    program: Program,
    namer: Namer,
    given: Mapping[Var, str],
    aliases: Mapping[Var, Atom] | None = None,
) -> dict[Var, str]:
    """A name for every variable that the equations of a program without composites define.

    `given` are names decided already, of inputs above all; `aliases` what stands for a variable
    that is not in the program any more.
    """
    names = _Names(given)
    names.aliases = aliases or {}
    targets = _targets(program.equations)
    users = set(names)
    for eq in program.equations:
        assigned = targets.get(id(eq), ())
        for i, v in enumerate(eq.outputs):
            if v in names:
                continue
            if i < len(assigned):
                names[v] = namer.fresh(assigned[i])
                users.add(v)
                continue
            base = _role_name(v, names)
            if base is not None:
                names[v] = namer.fresh(base)
            else:
                names[v] = _kind_name(eq, names, users, namer)
    return names


class _Names(dict[Var, str]):
    """Names by variable; `aliases` lead from variables of inlined equations to their results."""

    aliases: Mapping[Var, Atom]

    def of(self, var: Var) -> str | None:
        found: Atom = var
        while isinstance(found, Var) and found not in self and found in self.aliases:
            found = self.aliases[found]
        return self.get(found) if isinstance(found, Var) else None


def _role_name(var: Var, names: _Names) -> str | None:
    """`x_bar` or `x_dot` where the variable is marked as one of a named value."""
    if var.role is None or var.role[1] is None:
        return None
    of = names.of(var.role[1])
    return None if of is None or len(of) > MAX_LENGTH else f"{of}_{var.role[0]}"


def _kind_name(eq: Equation, names: Mapping[Var, str], users: Collection[Var], namer: Namer) -> str:
    kind = eq.op.kind.lower()
    operands = [a for a in eq.inputs if isinstance(a, Var)]
    if len(operands) == len(eq.inputs) == 1 and operands[0] in users:
        name = f"{kind}_{names[operands[0]]}"
        if len(name) <= MAX_LENGTH:
            return namer.fresh(name)
    return namer.fresh(kind, numbered=True)


def _targets(equations: Sequence[Equation]) -> dict[int, tuple[str, ...]]:
    """Per equation (by id) that ends the run of its source line, the names assigned there."""
    found: dict[int, tuple[str, ...]] = {}
    for number, eq in enumerate(equations):
        if eq.source is None or not eq.outputs or eq.outputs[0].role is not None:
            continue
        after = equations[number + 1] if number + 1 < len(equations) else None
        last = after is None or after.source != eq.source or not after.outputs
        if last or (after is not None and after.outputs[0].role is not None):
            names = assigned_names(eq.source)
            if len(names) == len(eq.outputs):
                found[id(eq)] = names
    return found


# --- source lines --------------------------------------------------------------------------


def assigned_names(source: str) -> tuple[str, ...]:
    """Names that the statement at `file:line in function` assigns; () if none or not readable."""
    path, _, rest = source.partition(":")
    number = rest.split(" ")[0]
    found = locate(path)
    # a lambda's line may assign, but to the lambda or to what is made of it
    if found is None or not number.isdigit() or rest.endswith("<lambda>"):
        return ()
    return _assignments(found, os.stat(found).st_mtime_ns).get(int(number), ())


@functools.lru_cache(maxsize=256)
def locate(path: str) -> str | None:
    """The file a shortened path stands for: the path itself, or that of a loaded module."""
    if os.path.isfile(path):
        return path
    tail = os.sep + path
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(tail) and os.path.isfile(file):
            return file
    return None


@functools.lru_cache(maxsize=64)
def _assignments(path: str, changed: int) -> dict[int, tuple[str, ...]]:
    """Per line of a file the names its innermost statement assigns."""
    del changed  # a file edited meanwhile is read again
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return {}
    lines: dict[int, tuple[str, ...]] = {}
    for node in ast.walk(tree):  # breadth first: inner statements come later and replace outer ones
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            names = _assigned(node)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                lines[line] = names
    return lines


def _assigned(node: ast.stmt) -> tuple[str, ...]:
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        target = node.target
    else:
        return ()
    parts: Sequence[ast.expr] = (
        target.elts if isinstance(target, ast.Tuple | ast.List) else (target,)
    )
    names = tuple(p.id for p in parts if isinstance(p, ast.Name))
    return names if len(names) == len(parts) else ()
