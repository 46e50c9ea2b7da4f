"""Programs as readable Python source that runs with NumPy and SciPy alone.

`render` prints the reference plan: one line per primitive, composites inlined under a comment,
control flow as Python. The functions it prints compute what the float64 reference interpreter
computes, bit for bit.
"""

import textwrap
from collections.abc import Sequence
from typing import Any

from autodiff.interpret import base_width
from autodiff.naming import Namer
from autodiff.plan import plan
from autodiff.program import Program, Var
from autodiff.python_text import (
    INDENT,
    Leaf,
    build_text,
    dtype_text,
    held_dtype,
    leaves_of,
    record_text,
    records,
)
from autodiff.render_lines import Writer
from autodiff.render_scope import Scope


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
        return str(program.text())
    return Module(program).text()


class Module:
    """The module a program is printed as."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.name = program.name if program.name.isidentifier() else "f"
        self.namer = Namer((self.name, f"{self.name}_flat", "argument"))
        self.scope = Scope(self.namer, base_width(program))
        self.plan = plan(program)
        self.inputs = self._name_inputs()

    def _name_inputs(self) -> dict[Var, str]:
        """Captures, then inputs, by the parameters and keys they come from."""
        names = {v: self.namer.fresh(f"captured_{i}") for i, v in enumerate(self.program.captures)}
        hints = [leaf.name for leaf in input_leaves(self.program)]
        names.update(
            (v, self.namer.fresh(h)) for v, h in zip(self.program.inputs, hints, strict=True)
        )
        return names

    # --- text ---

    def text(self) -> str:
        """Docstring, imports, constants, kernels and the function."""
        body = self.function()
        doc = f'"""{self.name}: NumPy calls written by autodiff.render, one line an equation."""'
        kernels = self.scope.library.text()
        parts = [ARGUMENT, *([kernels] if kernels else []), *body]
        return assemble(doc, self.scope, None if is_flat(self.program) else self.program, parts)

    def function(self) -> list[str]:
        """The flat function, and the one with the traced function's containers around it."""
        variables = (*self.program.captures, *self.program.inputs)
        names = [self.inputs[v] for v in variables]
        writer = Writer(self.scope, self.inputs, self.plan.program, self.plan.aliases)
        block = writer.block(self.plan.program, self.plan.labels, INDENT)
        results = writer.results()
        flat_name = self.name if is_flat(self.program) else f"{self.name}_flat"
        lines = [
            '@np.errstate(all="ignore")',
            f"def {flat_name}({', '.join(names)}):",
            *self.docstring(flat_name, names),
            *(f"{INDENT}{n} = {_argument(n, v)}" for n, v in zip(names, variables, strict=True)),
            *block,
        ]
        out = self.program.out_tree
        if is_flat(self.program) and out is not None:
            returned = build_text(out, iter(results))
        else:
            returned = f"({results[0]},)" if len(results) == 1 else f"({', '.join(results)})"
        flat = "\n".join([*lines, f"{INDENT}return {returned}"])
        if is_flat(self.program):
            return [flat]
        return [flat, outer_function(self.program, self.name, flat_name)]

    def docstring(self, name: str, names: Sequence[str]) -> list[str]:
        """`f(x: float64[3], y: float64[3]) -> float64[]`, over several lines where it is long."""
        variables = (*self.program.captures, *self.program.inputs)
        given = [f"{n}: {v.spec}" for n, v in zip(names, variables, strict=True)]
        results = ", ".join(str(a.spec) for a in self.program.outputs) or "nothing"
        line = f'{INDENT}"""{name}({", ".join(given)}) -> {results}"""'
        if len(line) <= 100:
            return [line]
        parts = textwrap.wrap(f"Returns {results}.", 92)
        head = f'{INDENT}"""{name} of:'
        return [
            head,
            *(f"{INDENT * 2}{g}" for g in given),
            *(INDENT + p for p in parts),
            f'{INDENT}"""',
        ]


def assemble(doc: str, scope: Scope, containers: Program | None, parts: Sequence[str]) -> str:
    """A module's text: docstring, imports, constants, classes for dataclasses, and the parts."""
    head = [doc, "\n".join(sorted(scope.library.imports))]
    if scope.constants:
        head.append("\n".join(scope.constant_lines()))
    classes = {}
    if containers is not None:
        classes = records(containers.in_tree) | records(containers.out_tree)
    made = [record_text(name, fields) for name, fields in classes.items()]
    return "\n\n\n".join(["\n\n".join(head), *made, *parts]) + "\n"


def is_flat(program: Program) -> bool:
    """Whether all arguments are bare arrays and the result one array or a tuple of them."""
    if program.in_tree is None or program.out_tree is None:
        return True
    out = program.out_tree
    leaves = all(c.is_leaf() for c in program.in_tree.children())
    return leaves and (
        out.is_leaf() or (out.type is tuple and all(c.is_leaf() for c in out.children()))
    )


def parameter_names(program: Program) -> tuple[str, ...]:
    """Names of the traced function's positional parameters."""
    if program.in_tree is None:
        return ()
    count = program.in_tree.num_children
    return program.arg_names or tuple(f"x{i}" for i in range(count))


def input_leaves(program: Program) -> list[Leaf]:
    """How each input is read from the traced function's own arguments."""
    if program.in_tree is None:
        return [Leaf(f"x{i}", f"x{i}") for i in range(len(program.inputs))]
    children = program.in_tree.children()
    return [
        leaf
        for name, child in zip(parameter_names(program), children, strict=True)
        for leaf in leaves_of(child, name, name)
    ]


def outer_function(program: Program, name: str, flat: str, before: str = "") -> str:
    """The function of the traced function's own containers.

    It is put around the flat function `flat`, which takes `before` and then the arrays.
    """
    captured = [f"captured_{i}" for i in range(len(program.captures))]
    leaves = input_leaves(program)
    given = [*captured, *(parameter_names(program) or (leaf.name for leaf in leaves))]
    reads = ", ".join([*([before] if before else []), *captured, *(leaf.read for leaf in leaves)])
    namer = Namer(given)
    outs = [namer.fresh("out", numbered=True) for _ in program.outputs]
    unpacked = f"{', '.join(outs)}{',' if len(outs) == 1 else ''} = " if outs else ""
    packed = ", ".join(outs) + ("," if len(outs) == 1 else "")
    result = f"({packed})" if program.out_tree is None else build_text(program.out_tree, iter(outs))
    lines = [
        f"def {name}({', '.join(given)}):",
        f'{INDENT}"""{flat} on the containers of the traced function."""',
        f"{INDENT}{unpacked}{flat}({reads})",
        f"{INDENT}return {result}",
    ]
    return "\n".join(lines)


def _argument(name: str, var: Var) -> str:
    return f"argument({name}, {var.spec.shape}, {dtype_text(held_dtype(var.spec.dtype))})"


ARGUMENT = '''def argument(value, shape, dtype):
    """An argument as a dense array; it must have the shape the function was traced at."""
    array = np.array(value, dtype=dtype)
    if array.shape != shape:
        raise ValueError(f"an argument has shape {array.shape}, the program takes {shape}")
    return array'''
