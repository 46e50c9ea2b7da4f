"""Programs as readable Python source that runs with NumPy and SciPy alone.

`render` prints the reference plan: one line per primitive, composites inlined under a comment,
control flow as Python. The functions it prints compute what the float64 reference interpreter
computes, bit for bit.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff.interpret import base_width
from autodiff.kernel_source import Library
from autodiff.naming import Namer
from autodiff.plan import plan
from autodiff.program import Program, Var
from autodiff.python_text import (
    INDENT,
    array_text,
    build_text,
    dtype_text,
    held_dtype,
    leaves_of,
    record_text,
    records,
)
from autodiff.render_lines import Writer


def render(program: Any) -> str:
    """Python source of a program, or of the plan of a compiled function.

    Arguments: a Program (`autodiff.trace(f, x)`, of derivatives too: `trace(grad(f), x)`), or what
    `autodiff.compile` returned, after its first call. Returns the text of a module that imports
    NumPy and SciPy alone. Its last function takes and returns the traced function's own containers
    (dataclasses are read by attribute and returned as a plain class of the same name, named tuples
    as tuples); where there are any containers, a function `<name>_flat` of flat arrays stands
    before it. A program's function computes in float64 whatever it was traced at, as
    `interpret(precision="float64")`; results that the program itself narrowed to bfloat16, which
    NumPy does not have, are float32 arrays of bfloat16 values.
    Raises RenderError naming the op that has no source.
    """
    if not isinstance(program, Program):
        return str(program.source())
    return Module(program).text()


class Module:
    """The module a program is printed as."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.name = program.name if program.name.isidentifier() else "f"
        self.namer = Namer((self.name, f"{self.name}_flat", "argument"))
        self.library = Library(self.namer)
        self.base = base_width(program)
        self.constants: dict[tuple[Any, ...], tuple[str, str]] = {}
        self.plan = plan(program)
        self.inputs = self._name_inputs()

    def _name_inputs(self) -> dict[Var, str]:
        """Captures, then inputs, by the parameters and keys they come from."""
        names = {v: self.namer.fresh(f"captured_{i}") for i, v in enumerate(self.program.captures)}
        hints = [leaf.name for leaf in self._leaves()] or [
            f"x{i}" for i in range(len(self.program.inputs))
        ]
        names.update(
            (v, self.namer.fresh(h)) for v, h in zip(self.program.inputs, hints, strict=True)
        )
        return names

    def parameters(self) -> tuple[str, ...]:
        """Names of the function's positional parameters."""
        tree = self.program.in_tree
        count = tree.num_children
        known = self.program.arg_names
        return known if known is not None else tuple(f"x{i}" for i in range(count))

    def _leaves(self) -> list[Any]:
        if self.program.in_tree is None:
            return []
        return [
            leaf
            for name, child in zip(self.parameters(), self.program.in_tree.children(), strict=True)
            for leaf in leaves_of(child, name, name)
        ]

    # --- text ---

    def text(self) -> str:
        """Docstring, imports, constants, kernels and the function."""
        body = self.function()
        head = [
            f'"""{self.name}: NumPy calls written by autodiff.render, one line an equation."""',
            "\n".join(sorted(self.library.imports)),
        ]
        if self.constants:
            head.append("\n".join(f"{n} = {t}" for n, t in self.constants.values()))
        parts = ["\n\n".join(head)]
        trees = (self.program.in_tree, self.program.out_tree)
        if not self.is_flat():
            classes = records(trees[0]) | records(trees[1])
            parts += [record_text(name, fields) for name, fields in classes.items()]
        kernels = self.library.text()
        return "\n\n\n".join([*parts, ARGUMENT, *([kernels] if kernels else []), *body]) + "\n"

    def is_flat(self) -> bool:
        """Whether all arguments are bare arrays and the result one array or a tuple of them."""
        trees = (self.program.in_tree, self.program.out_tree)
        if trees[0] is None or trees[1] is None:
            return True
        out = trees[1]
        leaves = all(c.is_leaf() for c in trees[0].children())
        bare = out.is_leaf() or (out.type is tuple and all(c.is_leaf() for c in out.children()))
        return leaves and bare

    def function(self) -> list[str]:
        """The flat function, and the one with the traced function's containers around it."""
        variables = (*self.program.captures, *self.program.inputs)
        names = [self.inputs[v] for v in variables]
        writer = Writer(self, self.inputs, self.plan.program, self.plan.aliases)
        block = writer.block(self.plan.program, self.plan.labels, INDENT)
        results = writer.results()
        flat_name = self.name if self.is_flat() else f"{self.name}_flat"
        lines = [
            '@np.errstate(all="ignore")',
            f"def {flat_name}({', '.join(names)}):",
            f'{INDENT}"""{self.signature(flat_name, names)}"""',
            *(
                f"{INDENT}{n} = argument({n}, {v.spec.shape}, {dtype_text(held_dtype(v.spec.dtype))})"
                for n, v in zip(names, variables, strict=True)
            ),
            *block,
        ]
        out = self.program.out_tree
        if self.is_flat() and out is not None:
            returned = build_text(out, iter(results))
        else:
            returned = f"({results[0]},)" if len(results) == 1 else f"({', '.join(results)})"
        flat = "\n".join([*lines, f"{INDENT}return {returned}"])
        return [flat] if self.is_flat() else [flat, self._outer(flat_name, names)]

    def signature(self, name: str, names: Sequence[str]) -> str:
        """`f(x: float64[3], y: float64[3]) -> float64[]`."""
        variables = (*self.program.captures, *self.program.inputs)
        given = ", ".join(f"{n}: {v.spec}" for n, v in zip(names, variables, strict=True))
        results = ", ".join(str(a.spec) for a in self.program.outputs)
        return f"{name}({given}) -> {results or 'nothing'}"

    def _outer(self, flat_name: str, names: Sequence[str]) -> str:
        captured = names[: len(self.program.captures)]
        given = ", ".join([*captured, *self.parameters()])
        reads = ", ".join([*captured, *(leaf.read for leaf in self._leaves())])
        results = Namer((*captured, *self.parameters()))
        outs = [results.fresh("out", numbered=True) for _ in self.program.outputs]
        unpacked = f"{outs[0]}," if len(outs) == 1 else ", ".join(outs)
        call = f"{flat_name}({reads})"
        return "\n".join(
            [
                f"def {self.name}({given}):",
                f'{INDENT}"""{flat_name} on the containers of the traced function."""',
                f"{INDENT}{unpacked} = {call}" if outs else f"{INDENT}{call}",
                f"{INDENT}return {build_text(self.program.out_tree, iter(outs))}",
            ]
        )

    def constant(self, value: np.ndarray[Any, Any]) -> str:
        """The name of a module-level constant."""
        at = (value.dtype.str, value.shape, value.tobytes())
        if at not in self.constants:
            name = self.namer.fresh("CONSTANT", numbered=True)
            self.constants[at] = (name, array_text(value))
        return self.constants[at][0]


ARGUMENT = '''def argument(value, shape, dtype):
    """An argument as an array, which must have the shape the function was traced at."""
    array = np.asarray(value, dtype=dtype)
    if array.shape != shape:
        raise ValueError(f"an argument has shape {array.shape}, the program takes {shape}")
    return array'''
