"""Control flow as Python: guards, conditionals, while loops and scans."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autodiff.kernel_source import RenderError
from autodiff.plan import plan
from autodiff.program import Equation, Literal, Program, Var
from autodiff.python_text import INDENT, number_text
from autodiff.render_lines import Writer


def _guard(writer: Writer, eq: Equation, indent: str) -> list[str]:
    value, known = writer.operand(eq.inputs[0], eq), eq.inputs[1]
    expected = _operands(writer, eq)[1]
    test = f"not np.array_equal({value}, {expected})"
    if isinstance(known, Literal) and known.value.ndim == 0:
        expected = number_text(known.value[()])
        test = f"{value} != {expected}"
    line = eq.params.get("line", eq.source)
    error = "GuardError" if writer.scope.native else "RuntimeError"
    shown = np.array2string(known.value, threshold=8) if isinstance(known, Literal) else expected
    message = f"the Python branch at {line} was traced for {shown}"
    return [f"{indent}if {test}:", f"{indent}{INDENT}raise {error}({message!r})"]


def _assign(targets: Sequence[str], values: Sequence[str], indent: str) -> list[str]:
    """Simultaneous assignment of what is not in its place already."""
    pairs = [(t, v) for t, v in zip(targets, values, strict=True) if t != v]
    if not pairs:
        return []
    return [f"{indent}{', '.join(t for t, _ in pairs)} = {', '.join(v for _, v in pairs)}"]


def _sub_block(
    writer: Writer,
    program: Program,
    operands: Sequence[str],
    indent: str,
    wanted: Sequence[str] = (),
) -> tuple[list[str], list[str]]:
    """Lines of a sub-program on named operands, and the expressions of its results.

    Results computed there take the names `wanted`.
    """
    inner_plan = plan(program)
    given = dict(zip(program.inputs, operands, strict=True))
    for name, atom in zip(wanted, inner_plan.program.outputs, strict=False):
        if isinstance(atom, Var) and atom not in given:
            given[atom] = name
    inner = Writer(writer.scope, given, inner_plan.program, inner_plan.aliases)
    lines = inner.block(inner_plan.program, inner_plan.labels, indent)
    outs = []
    for a in inner_plan.program.outputs:
        text = inner.names[a] if isinstance(a, Var) else inner.scope.constant(a.value)
        scalar = a.spec.shape == () and a.spec.dtype.kind != "b"
        outs.append(f"np.asarray({text})" if scalar else text)
    return lines, outs


def _finish(writer: Writer, eq: Equation, indent: str) -> list[str]:
    """Rounding of a control op's results, which may share memory with its operands."""
    writer.loose.update(eq.outputs)
    lines = []
    for v in eq.outputs:
        name = writer.names[v]
        if writer.scope.is_narrowed(v.spec.dtype):
            lines.append(f"{indent}{name} = {writer.scope.narrowed(name, v.spec.dtype)}")
        if not v.spec.shape and v in writer.kernel_operands:
            lines.append(f"{indent}{name} = np.asarray({name})")
    return lines


def _operands(writer: Writer, eq: Equation) -> list[str]:
    return [
        writer.names[a] if isinstance(a, Var) else writer.scope.constant(a.value) for a in eq.inputs
    ]


def _if(writer: Writer, eq: Equation, indent: str) -> list[str]:
    predicate, *operands = _operands(writer, eq)
    names = [writer.names[v] for v in eq.outputs]
    lines = []
    for head, branch in zip((f"if {predicate}:", "else:"), eq.params["branches"], strict=True):
        body, outs = _sub_block(writer, branch, operands, indent + INDENT, names)
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
    head = (
        "while True:" if steps is None else f"for {writer.namer.fresh('step')} in range({steps}):"
    )
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
        empty = (
            f"np.zeros({v.spec.shape}, dtype={writer.scope.dtype(writer.scope.held(v.spec.dtype))})"
        )
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


def control_lines(writer: Writer, eq: Equation, indent: str) -> list[str]:
    """The lines of a control op or guard."""
    write = _CONTROL.get(eq.op.kind)
    if write is None:
        raise RenderError(
            f"control op {eq.op.kind} has no Python source",
            f"at {eq.source}",
            "write it with scan, cond or while_loop",
            kind=eq.op.kind,
        )
    return write(writer, eq, indent)


_CONTROL: Mapping[str, Callable[[Writer, Equation, str], list[str]]] = {
    "GUARD": _guard,
    "IF": _if,
    "WHILE": _while,
    "SCAN": _scan,
}
