"""Programs as readable Python source that runs with NumPy and SciPy alone.

`render` prints the reference plan: one line per primitive, composites inlined under a comment,
control flow as Python. The functions it prints compute what the float64 reference interpreter
computes, bit for bit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from autodiff.interpret import base_width, width
from autodiff.kernel_source import Library, RenderError
from autodiff.kernels import narrow
from autodiff.naming import Namer, name_values
from autodiff.plan import plan
from autodiff.program import Atom, Equation, Literal, Program, Spec, Var
from autodiff.python_text import (
    array_text,
    build_text,
    dtype_text,
    held_dtype,
    leaves_of,
    number_text,
    param_text,
    record_text,
    records,
)
from autodiff.rounding import FORMATS

INDENT = "    "
# Primitives that only rearrange: they keep the dtype and may return a view.
VIEWS = frozenset({"RESHAPE", "TRANSPOSE", "BROADCAST", "REVERSE", "SLICE", "SPLIT", "SUM_TO"})
OWNING = frozenset({"WHERE", "SUM", "MATMUL", "COMPARE", "CONCAT", "CAST"})
_COMPARE = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}


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


class Writer:
    """Lines for the equations of one program, its sub-programs included."""

    def __init__(
        self,
        module: Module,
        names: Mapping[Var, str],
        program: Program,
        aliases: Mapping[Var, Atom],
    ) -> None:
        self.module, self.library, self.namer = module, module.library, module.namer
        self.program, self.aliases = program, aliases
        self.names: dict[Var, str] = dict(names)
        self.loose: set[Var] = set(names)  # may share memory with an argument or another value
        self.kernel_operands = {
            a
            for eq in program.equations
            if not self._takes_scalars(eq)
            for a in eq.inputs
            if isinstance(a, Var)
        }

    # --- blocks ---

    def block(
        self, program: Program, labels: Mapping[Var, tuple[str, ...]], indent: str
    ) -> list[str]:
        """One line per equation, under comments where a composite begins."""
        self.names = name_values(program, self.namer, self.names, self.aliases)
        lines: list[str] = []
        current: tuple[str, ...] = ()
        source: str | None = None
        for eq in program.equations:
            path = labels.get(eq.outputs[0], ()) if eq.outputs else ()
            if path and (path != current or eq.source != source):
                at = f", {eq.source}" if eq.source else ""
                lines.append(f"{indent}# {' > '.join(path)}{at}")
            current = path
            written = self.equation(eq, indent)
            if eq.source and not path and eq.source != source and written:
                written[0] += f"  # {eq.source}"
            source = eq.source
            lines += written
        return lines

    def equation(self, eq: Equation, indent: str) -> list[str]:
        """The lines of one equation."""
        special = _CONTROL.get(eq.op.kind)
        if special is not None:
            return special(self, eq, indent)
        if eq.op.control:
            raise RenderError(
                f"control op {eq.op.kind} has no Python source",
                f"at {eq.source}",
                "write it with scan, cond or while_loop",
                kind=eq.op.kind,
            )
        call = self.call(eq)
        if eq.op.multiple:
            names = ", ".join(self.names[v] for v in eq.outputs)
            lines = [f"{indent}{names}{',' if len(eq.outputs) == 1 else ''} = {call}"]
            for v in eq.outputs:
                rounded = self.rounded(self.names[v], v.spec, eq)
                if rounded != self.names[v]:
                    lines.append(f"{indent}{self.names[v]} = {rounded}")
        else:
            (v,) = eq.outputs
            lines = [f"{indent}{self.names[v]} = {self.rounded(call, v.spec, eq)}"]
            if not v.spec.shape and self._needs_array(v, eq):
                lines = [f"{indent}{self.names[v]} = np.asarray({self.rounded(call, v.spec, eq)})"]
        if not self._owns(eq):
            self.loose.update(eq.outputs)
        return lines

    def _takes_scalars(self, eq: Equation) -> bool:
        """Whether the printed call treats NumPy scalars as it treats 0-d arrays."""
        real = all(a.spec.dtype.kind != "c" for a in eq.inputs)
        return real and (
            eq.op.template is not None
            or eq.op.kind in _PLAIN
            or getattr(eq.op.impl, "__module__", "numpy") == "numpy"
        )

    def _needs_array(self, var: Var, eq: Equation) -> bool:
        return var in self.kernel_operands or eq.op.template is None and eq.op.kind == "STOP"

    @staticmethod
    def _owns(eq: Equation) -> bool:
        """Whether the result is surely new memory."""
        return (
            eq.op.template is not None
            or isinstance(eq.op.impl, np.ufunc)
            or (eq.op.kind in OWNING and eq.op.kind not in VIEWS)
        )

    # --- calls ---

    def call(self, eq: Equation) -> str:
        """The expression of one primitive, before rounding."""
        plain = _PLAIN.get(eq.op.kind)
        if plain is not None:
            text = plain(self, eq)
            if text is not None:
                return text
        params = {k: param_text(v) for k, v in eq.params.items()}
        if eq.op.template is not None:
            operands = [self.operand(a, eq) for a in eq.inputs]
            operands = [f"({o})" if o.startswith("-") else o for o in operands]
            return eq.op.template.format(*operands, **params)
        assert eq.op.impl is not None
        function = self.library.reference(eq.op.impl, eq.op.kind)
        given = [self.operand(a, eq) for a in eq.inputs]
        given += [f"{k}={v}" for k, v in params.items()]
        return f"{function}({', '.join(given)})"

    def operand(self, atom: Atom, eq: Equation) -> str:
        """A variable's name, or a constant: a plain number where NumPy treats it as an array."""
        if isinstance(atom, Var):
            return self.names[atom]
        if atom.spec.shape == () and self._weak(atom, eq):
            return number_text(atom.value[()])
        if eq.op.elementwise and self._fills(atom, eq):
            return number_text(atom.value[(0,) * atom.value.ndim])
        text = array_text(atom.value)
        return text if len(text) <= 60 else self.module.constant(atom.value)

    def _weak(self, atom: Literal, eq: Equation) -> bool:
        """Whether a Python number in this place gives the same result as a 0-d array."""
        held = held_dtype(atom.spec.dtype)
        partners = (a for a in eq.inputs if isinstance(a, Var))
        same = any(held_dtype(a.spec.dtype) == held for a in partners)
        elementwise = eq.op.template is not None or isinstance(eq.op.impl, np.ufunc)
        if not (elementwise or eq.op.kind in ("WHERE", "COMPARE")) or not same:
            return False
        return atom.spec.dtype.kind != "c" and array_text(atom.value).startswith("np.array(")

    def _fills(self, atom: Literal, eq: Equation) -> bool:
        """Whether a constant of equal elements may stand as a number: another operand has the
        result's shape."""
        text = array_text(atom.value) if atom.value.size > 1 else ""
        shape = eq.outputs[0].spec.shape
        full = any(isinstance(a, Var) and a.spec.shape == shape for a in eq.inputs)
        return full and text.startswith("np.full(") and self._weak(Literal(atom.value.flat[0]), eq)

    def rounded(self, call: str, spec: Spec, eq: Equation) -> str:
        """The expression with the rounding the interpreter applies to a result of this spec."""
        kind = spec.dtype.kind
        if kind not in "fcV":
            return call if _keeps_dtype(eq) else f"np.asarray({call}, dtype={dtype_text(spec.dtype)})"
        w = width(spec.dtype)
        if eq.op.kind == "CAST" or w >= self.module.base or w >= 8:
            made = _makes_float(eq)
            return f"np.asarray({call}, dtype={dtype_text(held_dtype(spec.dtype))})" if made else call
        return self.narrowed(call, spec.dtype)

    def narrowed(self, text: str, dtype: np.dtype[Any]) -> str:
        """Values rounded to a narrower dtype and held at double width."""
        if dtype.kind == "V":
            return self._format_call(text, dtype)
        through = f"np.asarray({text}).astype({dtype_text(dtype)})"
        return f"{through}.astype({dtype_text(held_dtype(dtype))})"

    def _format_call(self, text: str, dtype: np.dtype[Any]) -> str:
        form = FORMATS[dtype.name]
        function = self.library.reference(narrow.round_to_format, "CAST")
        numbers = (form.mantissa, form.min_exponent, form.max_exponent, form.largest, form.overflow)
        return f"{function}({text}, {', '.join(map(number_text, numbers))})"

    # --- results ---

    def results(self) -> list[str]:
        """Expressions of the results: arrays that share no memory with anything else."""
        seen: set[Var] = set()
        found = []
        for atom in self.program.outputs:
            if isinstance(atom, Literal):
                text = f"np.array({array_text(atom.value)})" if atom.spec.shape else array_text(atom.value)
                found.append(self.final(text, atom.spec))
                continue
            name = self.names[atom]
            if atom in self.loose or atom in seen:
                name = f"np.array({name})"
            elif not atom.spec.shape:
                name = f"np.asarray({name})"
            seen.add(atom)
            found.append(self.final(name, atom.spec))
        return found

    def final(self, text: str, spec: Spec) -> str:
        """A result at the dtype the interpreter returns."""
        w = width(spec.dtype)
        if not w or w >= self.module.base or w >= 8:
            return text
        narrow_dtype = np.dtype(np.float32) if spec.dtype.kind == "V" else spec.dtype
        return f"{text}.astype({dtype_text(narrow_dtype)})"


def _keeps_dtype(eq: Equation) -> bool:
    """Whether the printed call surely gives the declared integer or bool dtype."""
    if eq.op.kind in VIEWS - {"SUM_TO"} or eq.op.kind in ("COMPARE", "CAST", "CONCAT", "STOP_GRADIENT"):
        return True
    declared = eq.outputs[0].spec.dtype
    if isinstance(eq.op.impl, np.ufunc):
        given = tuple(a.spec.dtype for a in eq.inputs)
        try:
            return bool(eq.op.impl.resolve_dtypes((*given, None))[-1] == declared)
        except TypeError:
            return False
    return False


def _makes_float(eq: Equation) -> bool:
    """Whether a floating result comes from other values, at a dtype the call decides."""
    if eq.op.kind == "CAST":
        return False
    dtypes = any(isinstance(v, np.dtype) for v in eq.params.values())
    return dtypes or not any(a.spec.dtype.kind in "fcV" for a in eq.inputs)


# --- primitives with a plainer form than a call of their kernel ----------------------------


def _compare(writer: Writer, eq: Equation) -> str:
    x, y = (writer.operand(a, eq) for a in eq.inputs)
    return f"{x} {_COMPARE[eq.params['direction']]} {y}"


def _cast(writer: Writer, eq: Equation) -> str:
    """Conversion: through the narrow dtype where the declared one is narrower than float64."""
    (x,), (out,) = eq.inputs, eq.outputs
    text, dtype = writer.operand(x, eq), out.spec.dtype
    if x.spec.dtype.kind == "c" and dtype.kind not in "cb":
        text = f"{text}.real"
    if dtype.kind in "fcV" and dtype.itemsize < held_dtype(dtype).itemsize:
        return writer.narrowed(text, dtype)
    return f"np.asarray({text}).astype({dtype_text(dtype)})"


def _sum_to(writer: Writer, eq: Equation) -> str | None:
    (x,), shape = eq.inputs, eq.params["shape"]
    full = x.spec.shape
    extra = len(full) - len(shape)
    axes = (
        *range(extra),
        *(extra + i for i, n in enumerate(shape) if n == 1 and full[extra + i] != 1),
    )
    if not axes:
        return writer.operand(x, eq)
    text = f"np.sum({writer.operand(x, eq)}, axis={axes}, keepdims=True)"
    return text if not extra else f"{text}.reshape({shape})"


def _slice(writer: Writer, eq: Equation) -> str:
    (x,) = eq.inputs
    params = (eq.params["start"], eq.params["stop"], eq.params["stride"])
    parts = []
    for n, start, stop, stride in zip(x.spec.shape, *params, strict=True):
        first, last = "" if start == 0 else str(start), "" if stop == n else str(stop)
        parts.append(f"{first}:{last}" + (f":{stride}" if stride != 1 else ""))
    return f"{writer.operand(x, eq)}[{', '.join(parts) or '()'}]"


def _concat(writer: Writer, eq: Equation) -> str:
    arrays = ", ".join(writer.operand(a, eq) for a in eq.inputs)
    comma = "," if len(eq.inputs) == 1 else ""
    return f"np.concatenate(({arrays}{comma}), axis={eq.params['axis']})"


def _matmul(writer: Writer, eq: Equation) -> str | None:
    x, y = eq.inputs
    if len(y.spec.shape) == 2 and len(x.spec.shape) > 2:
        return None  # the kernel folds the leading axes
    return f"np.matmul({writer.operand(x, eq)}, {writer.operand(y, eq)})"


_PLAIN: Mapping[str, Callable[[Writer, Equation], str | None]] = {
    "COMPARE": _compare,
    "CAST": _cast,
    "SUM_TO": _sum_to,
    "SLICE": _slice,
    "CONCAT": _concat,
    "MATMUL": _matmul,
}


# --- control flow --------------------------------------------------------------------------


def _guard(writer: Writer, eq: Equation, indent: str) -> list[str]:
    value, expected = (writer.operand(a, eq) for a in eq.inputs)
    line = eq.params.get("line", eq.source)
    message = f"the Python branch at {line} was traced for {expected}"
    return [
        f"{indent}if not np.array_equal({value}, {expected}):",
        f"{indent}{INDENT}raise RuntimeError({message!r})",
    ]


def _assign(targets: Sequence[str], values: Sequence[str], indent: str) -> list[str]:
    """Simultaneous assignment of what is not in its place already."""
    pairs = [(t, v) for t, v in zip(targets, values, strict=True) if t != v]
    if not pairs:
        return []
    return [f"{indent}{', '.join(t for t, _ in pairs)} = {', '.join(v for _, v in pairs)}"]


def _sub_block(
    writer: Writer, program: Program, operands: Sequence[str], indent: str
) -> tuple[list[str], list[str]]:
    """Lines of a sub-program on named operands, and the expressions of its results."""
    inner_plan = plan(program)
    given = dict(zip(program.inputs, operands, strict=True))
    inner = Writer(writer.module, given, inner_plan.program, inner_plan.aliases)
    lines = inner.block(inner_plan.program, inner_plan.labels, indent)
    outs = [
        inner.names[a] if isinstance(a, Var) else inner.module.constant(a.value)
        for a in inner_plan.program.outputs
    ]
    return lines, outs


def _finish(writer: Writer, eq: Equation, indent: str) -> list[str]:
    """Rounding of a control op's results, which may share memory with its operands."""
    writer.loose.update(eq.outputs)
    lines = []
    for v in eq.outputs:
        name = writer.names[v]
        if v.spec.dtype.kind in "fcV" and width(v.spec.dtype) < min(writer.module.base, 8):
            lines.append(f"{indent}{name} = {writer.narrowed(name, v.spec.dtype)}")
        if not v.spec.shape and v in writer.kernel_operands:
            lines.append(f"{indent}{name} = np.asarray({name})")
    return lines


def _operands(writer: Writer, eq: Equation) -> list[str]:
    return [
        writer.names[a] if isinstance(a, Var) else writer.module.constant(a.value)
        for a in eq.inputs
    ]


def _if(writer: Writer, eq: Equation, indent: str) -> list[str]:
    predicate, *operands = _operands(writer, eq)
    names = [writer.names[v] for v in eq.outputs]
    lines = []
    for head, branch in zip((f"if {predicate}:", "else:"), eq.params["branches"], strict=True):
        body, outs = _sub_block(writer, branch, operands, indent + INDENT)
        body += _assign(names, outs, indent + INDENT)
        lines += [indent + head, *(body or [f"{indent}{INDENT}pass"])]
    return lines + _finish(writer, eq, indent)


def _while(writer: Writer, eq: Equation, indent: str) -> list[str]:
    operands = _operands(writer, eq)
    consts, steps = eq.params["consts"], eq.params["max_steps"]
    names = [writer.names[v] for v in eq.outputs]
    inner = indent + INDENT
    given = [*operands[:consts], *names]
    test, (going,) = _sub_block(writer, eq.params["cond"], given, inner)
    body, outs = _sub_block(writer, eq.params["body"], given, inner)
    head = "while True:" if steps is None else f"for {writer.namer.fresh('step')} in range({steps}):"
    return [
        *_assign(names, operands[consts:], indent),
        indent + head,
        *test,
        f"{inner}if not {going}:",
        f"{inner}{INDENT}break",
        *body,
        *_assign(names, outs, inner),
        *_finish(writer, eq, indent),
    ]


def _scan(writer: Writer, eq: Equation, indent: str) -> list[str]:
    operands = _operands(writer, eq)
    consts, carry, length = eq.params["consts"], eq.params["carry"], eq.params["length"]
    names = [writer.names[v] for v in eq.outputs]
    inner = indent + INDENT
    i = writer.namer.fresh("i")
    rows = [writer.namer.fresh(f"{n}_rows") for n in names[carry:]]
    body_program = eq.params["body"]
    given = [*operands[:consts], *names[:carry]]
    lines = []
    for x, v in zip(operands[consts + carry :], body_program.inputs[consts + carry :], strict=True):
        row = writer.namer.fresh(f"{x}_i" if x.isidentifier() else "row")
        wrap = not v.spec.shape
        lines.append(f"{inner}{row} = np.asarray({x}[{i}])" if wrap else f"{inner}{row} = {x}[{i}]")
        given.append(row)
    body, outs = _sub_block(writer, body_program, given, inner)
    order = f"range({length})" if not eq.params["reverse"] else f"reversed(range({length}))"
    stacked = []
    for name, row, v in zip(names[carry:], rows, eq.outputs[carry:], strict=True):
        empty = f"np.zeros({v.spec.shape}, dtype={dtype_text(held_dtype(v.spec.dtype))})"
        stacked.append(f"{indent}{name} = {f'np.stack({row})' if length else empty}")
    return [
        *_assign(names[:carry], operands[consts : consts + carry], indent),
        *(f"{indent}{r} = [None] * {length}" for r in rows),
        f"{indent}for {i} in {order}:",
        *lines,
        *body,
        *(f"{inner}{r}[{i}] = {o}" for r, o in zip(rows, outs[carry:], strict=True)),
        *(_assign(names[:carry], outs[:carry], inner)),
        *([f"{inner}pass"] if not (lines or body or rows or carry) else []),
        *stacked,
        *_finish(writer, eq, indent),
    ]


_CONTROL: Mapping[str, Callable[[Writer, Equation, str], list[str]]] = {
    "GUARD": _guard,
    "IF": _if,
    "WHILE": _while,
    "SCAN": _scan,
}


def flat_results(results: Iterator[str]) -> str:
    """A tuple display of expressions."""
    items = list(results)
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
