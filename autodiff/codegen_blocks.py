"""Source of the executor's blocks: a function of a block of rows, and the loop that calls it."""

import dataclasses
import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autodiff.fuse import Block, Item, is_sliced
from autodiff.python_text import INDENT
from autodiff.steps import Step, Value, reduce_code

if TYPE_CHECKING:
    from autodiff.codegen import Printer


def wrapped(head: str, items: Sequence[str], tail: str) -> str:
    """`head a, b, c tail` on one line, or on lines of at most 100 columns; a `,` that begins the
    tail is for one item alone.
    """
    closing = tail if len(items) == 1 else tail.removeprefix(",")
    line = f"{head}{', '.join(items)}{closing}"
    if len(line) <= 100:
        return line
    indent = head[: len(head) - len(head.lstrip())]
    inside = textwrap.wrap(
        ", ".join(items) + ",",
        100,
        initial_indent=indent + INDENT,
        subsequent_indent=indent + INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join([head, *inside, indent + closing])


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


def dense_inputs(items: Sequence[Item]) -> list[Value]:
    """Inputs that are copied where they have gaps, so that results are the same bits."""
    found: dict[Value, None] = {}
    steps = (s for item in items for s in (item.steps if isinstance(item, Block) else [item]))
    for step in steps:
        for v in step.inputs:
            root = v.root
            if root.origin != "input" or root.spec.dtype.kind not in "fc" or not root.spec.shape:
                continue
            name = step.code.partition("(")[0]
            plain = name in _PLAIN or (name in _PLAIN_REAL and v.spec.dtype.kind != "c")
            if not plain and step.reduced is None:
                found[root] = None
    return list(found)


def densified(value: Value) -> list[str]:
    """Lines that copy an input unless it lies in C order."""
    shape, size = value.spec.shape, value.spec.dtype.itemsize
    strides = tuple(size * math.prod(max(1, n) for n in shape[a + 1 :]) for a in range(len(shape)))
    test = f"{INDENT}if {value.name}.strides != {strides}:"
    return [test, f'{INDENT * 2}{value.name} = np.array({value.name}, order="C")']


class BlockWriter:
    """The loop and the function of one block."""

    def __init__(self, printer: "Printer", block: Block) -> None:
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
        lines = [wrapped(f"def {self.name}(", names, "):")]
        source = ""
        for step in self.block.steps:
            if self.printer.is_idle(step):
                continue
            code = self._code(step).format(*(v.name for v in step.inputs), o=step.outputs[0].name)
            comment = f"  # {step.comment}" if step.comment and step.comment != source else ""
            source = step.comment
            first, *rest = textwrap.indent(code, INDENT).splitlines()
            lines += [first + comment, *rest]
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
        return reduce_code(dataclasses.replace(reduced, axes=axes, keepdims=kept))

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
            calls.append(wrapped(f"{INDENT * (1 if tail else 2)}{self.name}(", given, ")"))
        loop = [
            f"{INDENT}for start in range(0, {whole}, {rows.step}):",
            f"{INDENT * 2}rows = slice(start, start + {rows.step})",
            calls[0],
        ]
        rest = [f"{INDENT}start, rows = {whole}, slice({whole}, {rows.count})", calls[1]]
        return [*self.before, *loop, *(rest if whole < rows.count else []), *self.after]
