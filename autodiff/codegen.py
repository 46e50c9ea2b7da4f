"""Python source of the executor's plan: the workspace, the blocks and the function."""

import dataclasses
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff.arena import Arena, plan_memory
from autodiff.codegen_blocks import BlockWriter, dense_inputs, densified, wrapped
from autodiff.errors import GuardError
from autodiff.fuse import Block, Item, fuse
from autodiff.kernels.memory import own, renew
from autodiff.kernels.strong import zeros_win, zeros_win_matmul
from autodiff.lowerings import is_kept
from autodiff.naming import Namer, name_values
from autodiff.optimise import optimise
from autodiff.plan import plan
from autodiff.program import Atom, Program, Var
from autodiff.python_text import INDENT
from autodiff.render_lines import Writer
from autodiff.render_scope import Scope
from autodiff.steps import COPY, Lowering, Step, Value

# What the code calls besides NumPy and kernels.
HELPERS = {
    "own": own,
    "renew": renew,
    "zeros_win": zeros_win,
    "zeros_win_matmul": zeros_win_matmul,
    "GuardError": GuardError,
}


@dataclasses.dataclass(frozen=True)
class Source:
    """A compiled program's text and what it needs.

    `body` defines `workspace()` and the function `name(workspace, *inputs)`; `scope` holds the
    imports, kernels and constants in front of it; `parameters` are the names of the inputs.
    """

    name: str
    body: str
    scope: Scope
    parameters: tuple[str, ...]
    bytes: int

    def kernels(self) -> list[str]:
        """Definitions of the kernels that the body calls."""
        text = self.scope.library.text()
        return [text] if text else []

    def head(self) -> str:
        """Imports and kernels, in front of the body; `namespace` holds the rest."""
        return "\n\n\n".join(["\n".join(sorted(self.scope.library.imports)), *self.kernels()])

    def namespace(self) -> dict[str, Any]:
        """Constants (not writeable), helpers and taps that the code names."""
        space: dict[str, Any] = {**HELPERS, **self.scope.externals}
        for name, value in self.scope.constants.values():
            fixed = value.view()
            fixed.flags.writeable = False
            space[name] = fixed
        return space


def generate(program: Program, name: str, hints: Sequence[str]) -> Source:
    """The source for a program; `hints` name its captures and inputs."""
    flat = plan(program, is_kept)
    small = optimise(flat.program)
    namer = Namer((name, "workspace", "memory", "kept", "tap", "rows", "start", *HELPERS))
    scope = Scope(namer, native=True)
    variables = (*small.captures, *small.inputs)
    given = {v: namer.fresh(h) for v, h in zip(variables, hints, strict=True)}
    names = name_values(small, namer, given, flat.aliases)
    writer = Writer(scope, names, small, flat.aliases)
    lowering = Lowering(small, names, writer)
    items = fuse(lowering.run())
    outputs = [lowering.operand(a) for a in small.outputs]
    printer = Printer(name, items, outputs, small.outputs, scope)
    body = _with_imports(printer.text([given[v] for v in variables]), scope)
    return Source(name, body, scope, tuple(given[v] for v in variables), printer.arena.size)


def _with_imports(body: str, scope: Scope) -> str:
    """The text with NumPy's functions called by their bare names, which Python finds faster."""
    found: set[str] = set()

    def bare(call: re.Match[str]) -> str:
        name = call[1]
        if name not in _IMPORTED or name in scope.namer.taken:
            return call[0]
        found.add(name)
        return name

    body = _CALL.sub(bare, body)
    if found:
        scope.library.imports.add(f"from numpy import {', '.join(sorted(found))}")
    return body


# the literal comes first, which Python's `re` looks for faster than for the edge of a word
_CALL = re.compile(r"np\.(?<!\wnp\.)(\w+)(?=\(|\.reduce\()")
_IMPORTED = {n for n in dir(np) if isinstance(getattr(np, n), np.ufunc)} | {
    "copyto",
    "putmask",
    "dot",
    "vdot",
    "concatenate",
}


class Printer:
    """The text of one plan."""

    def __init__(
        self,
        name: str,
        items: Sequence[Item],
        outputs: Sequence[Value],
        atoms: Sequence[Atom],
        scope: Scope,
    ) -> None:
        self.name, self.items, self.outputs, self.scope = name, items, outputs, scope
        self.claimed = _claimed(outputs, atoms)
        self.results = {v.root for v in self.claimed if v.root.origin == "buffer"}
        self.arena: Arena = plan_memory(items, self.results, outputs)
        self.fixed: dict[Value, str] = {}  # values of the workspace, with their definitions
        self.ready: set[Value] = set()  # values whose names are assigned in the function
        self.blocks: list[str] = []
        self.kept = 0  # large results, whose arrays the workspace remembers
        self.source = ""

    def text(self, inputs: Sequence[str]) -> str:
        """Definitions of the workspace, the blocks and the function."""
        dense = dense_inputs(self.items)
        lines = [line for v in dense for line in densified(v)]
        for item in self.items:
            lines += self.block(item) if isinstance(item, Block) else self.step(item)
        lines += [line for v in self.outputs for line in self.needed(v)]
        returned = [self.returned(v) for v in self.outputs]
        tail = wrapped(f"{INDENT}return (", returned, ",)")
        names = ["kept", *(v.name for v in self.fixed)]
        unpack = wrapped(f"{INDENT}(", names, ",) = workspace")
        head = [
            '@np.errstate(all="ignore")',
            wrapped(f"def {self.name}(", ["workspace", *inputs], "):"),
            unpack,
        ]
        function = "\n".join([*head, *lines, tail])
        return "\n\n\n".join([self.workspace(), *self.blocks, function])

    def workspace(self) -> str:
        """The function that makes the buffers."""
        memory = (
            f"{INDENT}memory = np.empty({self.arena.size + 64}, np.uint8)",
            f"{INDENT}memory = memory[-memory.ctypes.data % 64 :]",
        )
        lines = [
            "def workspace():",
            f'{INDENT}"""Buffers of one call, {self.arena.size} bytes; values share places in '
            'turn."""',
            *(memory if self.fixed else ()),
            f"{INDENT}kept = [None] * {self.kept}",
            *(f"{INDENT}{v.name} = {text}" for v, text in self.fixed.items()),
            wrapped(f"{INDENT}return (", ["kept", *(v.name for v in self.fixed)], ",)"),
        ]
        return "\n".join(lines)

    # --- values ---

    def is_planned(self, value: Value) -> bool:
        """Whether the value lives in the workspace."""
        return value.root in self.arena.offsets

    def fix(self, value: Value) -> None:
        """Add a value of the workspace, and those it is a view of."""
        if value in self.fixed:
            return
        if value.base is not None:
            self.fix(value.base)
            self.fixed[value] = value.view.format(value.base.name)
            return
        shape = self.arena.scratch.get(value, value.spec.shape)
        offset, dtype = self.arena.offsets[value], self.scope.dtype(value.spec.dtype)
        self.fixed[value] = f"np.ndarray({shape}, {dtype}, memory, {offset})"

    def needed(self, value: Value) -> list[str]:
        """Lines that make a value's name stand for it, before its use."""
        if self.is_planned(value):
            self.fix(value)
            return []
        if value in self.ready or value.origin in ("input", "constant", "new"):
            return []
        self.ready.add(value)
        if value.base is not None:
            made = self.needed(value.base)
            return [*made, f"{INDENT}{value.name} = {value.view.format(value.base.name)}"]
        given = f"{value.spec.shape}, {self.scope.dtype(value.spec.dtype)}"
        if not is_large(value):
            return [f"{INDENT}{value.name} = np.empty({given})"]
        self.kept += 1
        return [f"{INDENT}{value.name} = renew(kept, {self.kept - 1}, {given})"]

    # --- items ---

    def step(self, step: Step) -> list[str]:
        """Lines of a step outside blocks."""
        lines = [line for v in step.inputs for line in self.needed(v)]
        if not step.code:
            written = [INDENT + line for line in step.lines]
        elif self.is_idle(step):
            self.needed(step.outputs[0])
            return lines
        else:
            written = self.into(step)
        if step.comment and step.comment != self.source and written:
            written[-1 if step.code else 0] += f"  # {step.comment}"
        self.source = step.comment
        return lines + written

    def is_idle(self, step: Step) -> bool:
        """Whether the step copies a value to where it is."""
        if step.code != COPY:
            return False
        places = [self.arena.offsets.get(v) for v in (step.inputs[0], step.outputs[0])]
        same_life = places[0] is not None and places[0] == places[1]
        return same_life and step.inputs[0].spec == step.outputs[0].spec

    def into(self, step: Step) -> list[str]:
        """A call that writes into its output; a result is made by the call where it can be."""
        (out,) = step.outputs
        names = [v.name for v in step.inputs]
        tail = ", out={o})"
        plain = step.code.endswith(tail)
        plain = plain and bool(out.spec.shape) and not is_large(out)
        if out in self.results and out not in self.ready and plain:
            self.ready.add(out)
            code = step.code.removesuffix(tail) + ")"
            return [f"{INDENT}{out.name} = {code.format(*names)}"]
        lines = self.needed(out)
        return [*lines, textwrap.indent(step.code.format(*names, o=out.name), INDENT)]

    def block(self, block: Block) -> list[str]:
        """The loop over a block's rows; its steps become a function of their own."""
        writer = BlockWriter(self, block)
        lines = writer.lines()
        self.blocks.append(writer.function())
        self.source = ""
        return lines

    def returned(self, value: Value) -> str:
        """The expression of a result."""
        if value not in self.claimed:
            return f"np.array({value.name})"
        holds = value.root.holds
        if holds:
            given = ", ".join(dict.fromkeys(h.name for h in holds))
            return f"own({value.name}, {given})"
        return value.name


def is_large(value: Value) -> bool:
    """Whether a result is of at least a quarter of a megabyte."""
    return value.spec.size * value.spec.dtype.itemsize >= 1 << 18


def _claimed(outputs: Sequence[Value], atoms: Sequence[Atom]) -> set[Value]:
    """Results that may be returned as they are: their memory is new and nobody else's result."""
    taken: set[Value] = set()
    claimed: set[Value] = set()
    for value, atom in zip(outputs, atoms, strict=True):
        root = value.root
        fresh = isinstance(atom, Var) and root.origin in ("buffer", "new")
        if fresh and root not in taken and _keeps_all(value):
            taken.add(root)
            claimed.add(value)
    return claimed


def _keeps_all(value: Value) -> bool:
    """Whether a view shows all elements of its memory, once each."""
    if value.base is None:
        return True
    plain = ".reshape(" in value.view or ".T" in value.view or ".transpose(" in value.view
    return plain and _keeps_all(value.base)
