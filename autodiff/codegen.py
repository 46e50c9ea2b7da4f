"""Python source of the executor's plan: the workspace, the blocks and the function."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from autodiff.arena import Arena, plan_memory
from autodiff.errors import GuardError
from autodiff.fuse import Block, Item, fuse, is_sliced
from autodiff.kernels.memory import clear, own
from autodiff.naming import Namer, name_values
from autodiff.optimise import optimise
from autodiff.plan import plan
from autodiff.program import Atom, Program, Var
from autodiff.python_text import INDENT
from autodiff.render_lines import Writer
from autodiff.render_scope import Scope
from autodiff.steps import COPY, Lowering, Reduced, Step, Value, reduce_code


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

    def code(self) -> str:
        """What is executed: imports, kernels and the body; `namespace` holds the rest."""
        return "\n\n\n".join(
            ["\n".join(sorted(self.scope.library.imports)), *self.kernels(), self.body]
        )

    def namespace(self) -> dict[str, Any]:
        """Constants (not writeable), helpers and taps that the code names."""
        helpers = {"own": own, "clear": clear, "GuardError": GuardError}
        space: dict[str, Any] = {**helpers, **self.scope.externals}
        for name, value in self.scope.constants.values():
            fixed = value.view()
            fixed.flags.writeable = False
            space[name] = fixed
        return space


def generate(program: Program, name: str, hints: Sequence[str]) -> Source:
    """The source for a program; `hints` name its captures and inputs."""
    flat = plan(program)
    small = optimise(flat.program)
    namer = Namer((name, "workspace", "memory", "own", "clear", "tap", "rows", "start"))
    scope = Scope(namer, native=True)
    variables = (*small.captures, *small.inputs)
    given = {v: namer.fresh(h) for v, h in zip(variables, hints, strict=True)}
    names = name_values(small, namer, given, flat.aliases)
    writer = Writer(scope, names, small, flat.aliases)
    lowering = Lowering(small, names, writer)
    items = fuse(lowering.run())
    outputs = [lowering.operand(a) for a in small.outputs]
    printer = _Printer(name, items, outputs, small.outputs, scope)
    body = printer.text([given[v] for v in variables])
    return Source(name, body, scope, tuple(given[v] for v in variables), printer.arena.size)


class _Printer:
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
        self.source = ""

    def text(self, inputs: Sequence[str]) -> str:
        """Definitions of the workspace, the blocks and the function."""
        dense = _dense_inputs(self.items)
        lines = [line for v in dense for line in _densified(v)]
        for item in self.items:
            lines += self.block(item) if isinstance(item, Block) else self.step(item)
        lines += [line for v in self.outputs for line in self.needed(v)]
        returned = [self.returned(v) for v in self.outputs]
        tail = f"{INDENT}return ({', '.join(returned)}{',' if len(returned) == 1 else ''})"
        unpack = [f"{INDENT}({', '.join(v.name for v in self.fixed)},) = workspace"]
        head = [
            '@np.errstate(all="ignore")',
            f"def {self.name}({', '.join(['workspace', *inputs])}):",
            *(unpack if self.fixed else []),
        ]
        function = "\n".join([*head, *lines, tail])
        return "\n\n\n".join([self.workspace(), *self.blocks, function])

    def workspace(self) -> str:
        """The function that makes the buffers."""
        if not self.fixed:
            return f'def workspace():\n{INDENT}"""No buffers."""\n{INDENT}return ()'
        lines = [
            "def workspace():",
            f'{INDENT}"""Buffers of one call, {self.arena.size} bytes; values share places in '
            'turn."""',
            f"{INDENT}memory = np.empty({self.arena.size + 64}, np.uint8)",
            f"{INDENT}memory = memory[-memory.ctypes.data % 64 :]",
            *(f"{INDENT}{v.name} = {text}" for v, text in self.fixed.items()),
            f"{INDENT}return ({', '.join(v.name for v in self.fixed)},)",
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
        dtype = self.scope.dtype(value.spec.dtype)
        return [f"{INDENT}{value.name} = np.empty({value.spec.shape}, {dtype})"]

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
        plain = step.code.endswith(", out={o})") and "dtype=" not in step.code
        if out in self.results and out not in self.ready and plain and out.spec.shape:
            self.ready.add(out)
            code = step.code.removesuffix(", out={o})") + ")"
            return [f"{INDENT}{out.name} = {code.format(*names)}"]
        lines = self.needed(out)
        return [*lines, INDENT + step.code.format(*names, o=out.name)]

    def block(self, block: Block) -> list[str]:
        """The loop over a block's rows; its steps become a function of their own."""
        writer = _BlockWriter(self, block)
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


# Ufuncs whose results do not depend on how the operands lie in memory: NumPy computes others by
# vector instructions where elements follow each other, and by the C library where they do not.
_PLAIN = frozenset(
    f"np.{name}"
    for name in (
        "add subtract negative absolute equal not_equal less less_equal greater greater_equal "
        "maximum minimum bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_not "
        "copyto dot matmul concatenate sqrt floor ceil trunc rint sign"
    ).split()
)
_PLAIN_REAL = frozenset({"np.multiply", "np.divide", "np.square"})


def _dense_inputs(items: Sequence[Item]) -> list[Value]:
    """Inputs that are copied where they have gaps, so that results are the same bits."""
    found: dict[Value, None] = {}
    steps = (s for item in items for s in (item.steps if isinstance(item, Block) else [item]))
    for step in steps:
        name = step.code.partition("(")[0]
        for v in step.inputs:
            plain = name in _PLAIN or (name in _PLAIN_REAL and v.spec.dtype.kind != "c")
            plain = plain or step.reduced is not None
            inexact = v.root.spec.dtype.kind in "fc" and v.root.spec.shape
            if v.root.origin == "input" and inexact and not plain:
                found[v.root] = None
    return list(found)


def _densified(value: Value) -> list[str]:
    """Lines that copy an input unless it lies in C order."""
    shape, size = value.spec.shape, value.spec.dtype.itemsize
    strides = tuple(size * math.prod(max(1, n) for n in shape[a + 1 :]) for a in range(len(shape)))
    test = f"{INDENT}if {value.name}.strides != {strides}:"
    return [test, f'{INDENT * 2}{value.name} = np.array({value.name}, order="C")']


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


class _BlockWriter:
    """The loop and the function of one block."""

    def __init__(self, printer: _Printer, block: Block) -> None:
        self.printer, self.block = printer, block
        self.name = printer.scope.namer.fresh(f"{printer.name}_block", numbered=True)
        self.parameters: dict[Value, str] = {}  # values, and what is passed for a block of rows
        self.before: list[str] = []
        self.after: list[str] = []
        for step in block.steps:
            for v in step.inputs:
                self.parameter(v)
            if block.is_partial(step):
                self.partial(step)
            else:
                self.parameter(step.outputs[0], made=True)

    def parameter(self, value: Value, made: bool = False) -> None:
        """What the block's function receives for a value (`made`: it is written row by row)."""
        if value in self.parameters:
            return
        printer, rows = self.printer, self.block.rows
        if value.root in printer.arena.scratch:
            printer.fix(value)
            self.parameters[value] = "scratch"
            return
        self.before += printer.needed(value)
        sliced = made or is_sliced(value, self.block.loop, rows)
        trailing = len(self.block.loop) - rows.lead
        if sliced:
            shape = (rows.count, *value.spec.shape[rows.lead :])
            self.parameters[value] = f"{self.shaped(value, shape)}[rows]"
        else:  # the same for all rows; leading axes of extent 1 that the rows replace go
            shape = value.spec.shape[-trailing:] if trailing else ()
            lower = len(value.spec.shape) > trailing and rows.lead > 1
            self.parameters[value] = self.shaped(value, shape) if lower else value.name

    def shaped(self, value: Value, shape: tuple[int, ...]) -> str:
        """The name of a value with its leading axes made one, or dropped."""
        printer = self.printer
        if value.spec.shape == shape:
            return value.name
        text = f"{{0}}.reshape({shape})"
        if not value.contiguous:
            text = f"np.ascontiguousarray({{0}}).reshape({shape})"
        spec = value.spec.with_shape(shape)
        flat = Value(printer.scope.namer.fresh(f"{value.name}_flat"), spec, "view", value, text)
        self.before += printer.needed(flat)
        return flat.name

    def partial(self, step: Step) -> None:
        """A reduction over the rows: one result a round, combined after the loop."""
        assert step.reduced is not None
        printer, rows, axes = self.printer, self.block.rows, step.reduced.axes
        out = step.outputs[0]
        kept = tuple(n for a, n in enumerate(self.block.loop) if a not in axes)
        spec = out.spec.with_shape((-(-rows.count // rows.step), *kept))
        parts = Value(printer.scope.namer.fresh(f"{out.name}_parts"), spec, "buffer")
        printer.fixed[parts] = f"np.empty({spec.shape}, {printer.scope.dtype(spec.dtype)})"
        self.parameters[out] = f"{parts.name}[start // {rows.step}, ...]"
        self.after += printer.needed(out)
        target = out.name if out.spec.shape == kept else f"{out.name}.reshape({kept})"
        ufunc = step.reduced.ufunc
        self.after.append(f"{INDENT}{ufunc}.reduce({parts.name}, axis=0, out={target})")

    def function(self) -> str:
        """The steps on one block of rows."""
        names = list(dict.fromkeys(v.name for v in self.parameters))
        lines = [f"def {self.name}({', '.join(names)}):"]
        source = ""
        for step in self.block.steps:
            if self.printer.is_idle(step):
                continue
            code = self._code(step).format(*(v.name for v in step.inputs), o=step.outputs[0].name)
            comment = f"  # {step.comment}" if step.comment and step.comment != source else ""
            source = step.comment
            lines.append(INDENT + code + comment)
        return "\n".join(lines)

    def _code(self, step: Step) -> str:
        """A step's code, reductions with the axes the rows leave."""
        if step.reduced is None:
            return step.code
        lead, reduced = self.block.rows.lead, step.reduced
        inner = tuple(a - lead + 1 for a in reduced.axes if a >= lead)
        axes, kept = inner, reduced.keepdims
        if self.block.is_partial(step):
            axes, kept = (0, *inner), False
        return reduce_code(Reduced(reduced.ufunc, axes, kept))

    def lines(self) -> list[str]:
        """The loop in the function that runs the block."""
        rows = self.block.rows
        whole = rows.count - rows.count % rows.step
        scratch = {v.name: f"{v.name}[: {rows.count - whole}]" for v in self.parameters}
        calls = []
        for tail in (False, True):
            given = [
                (scratch[v.name] if tail else v.name) if text == "scratch" else text
                for v, text in self.parameters.items()
            ]
            calls.append(f"{self.name}({', '.join(given)})")
        loop = [
            f"{INDENT}for start in range(0, {whole}, {rows.step}):",
            f"{INDENT * 2}rows = slice(start, start + {rows.step})",
            f"{INDENT * 2}{calls[0]}",
        ]
        rest = [
            f"{INDENT}start, rows = {whole}, slice({whole}, {rows.count})",
            f"{INDENT}{calls[1]}",
        ]
        return [*self.before, *loop, *(rest if whole < rows.count else []), *self.after]
