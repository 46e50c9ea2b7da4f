"""The executor's steps: NumPy calls that write into given memory, take views or make new arrays."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autodiff.program import Atom, Equation, Literal, Program, Spec, Var
from autodiff.python_text import dtype_text
from autodiff.render_lines import Writer, natural_dtype

Array = np.ndarray[Any, Any]
COPY = "np.copyto({o}, {0})"
LARGE = 1 << 15  # elements from which chains are run in blocks (`autodiff.fuse`)
# Dtypes at which NumPy itself computes, and the integers that hold the bits of those selected.
NATIVE = frozenset({"float64", "float32", "complex128", "complex64", "int64", "int32", "bool"})
BITS: Mapping[str, str] = {
    "float64": "int64",
    "float32": "int32",
    "int64": "int64",
    "int32": "int32",
}


@functools.cache
def is_native(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy computes with the dtype itself."""
    return dtype.name in NATIVE


@dataclasses.dataclass(eq=False)
class Value:
    """An array of the compiled function.

    Attributes:
      origin: "input", "constant", "buffer" (its memory is planned), "new" (made by a call) or
        "view" (of `base`, by the expression `view` in `{0}`).
      contiguous: whether the elements surely lie in C order without gaps.
      holds: values whose memory a "new" value may share.
      root: the value whose memory this one is.
    """

    name: str
    spec: Spec
    origin: str
    base: "Value | None" = None
    view: str = ""
    contiguous: bool = True
    holds: tuple["Value", ...] = ()

    def __post_init__(self) -> None:
        self.root: Value = self if self.base is None else self.base.root


@dataclasses.dataclass(frozen=True)
class Reduced:
    """A reduction by a ufunc over axes of its operand, in float64 if `wide`."""

    ufunc: str
    axes: tuple[int, ...]
    keepdims: bool
    wide: bool = False


@dataclasses.dataclass(eq=False)
class Step:
    """A statement: `code`, with `{0}`, `{1}`, ... for the inputs, writes into the output `{o}`.

    Where `code` is empty, `lines` assign the names of the outputs (a guard has none). `loop` is
    the shape of an elementwise step, or that of the operand of a reduction. A step that
    `updates` leaves a part of its output as it was; a copy into memory it shares is left out.
    """

    code: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    loop: tuple[int, ...] | None = None
    reduced: Reduced | None = None
    comment: str = ""
    lines: tuple[str, ...] = ()
    effect: bool = False
    updates: bool = False


class Lowering:
    """Equations of a program of primitives as steps; `values` are those of its variables."""

    def __init__(self, program: Program, names: Mapping[Var, str], writer: Writer) -> None:
        self.program, self.names, self.writer = program, names, writer
        self.values: dict[Var, Value] = {}
        self.steps: list[Step] = []
        self.comment = ""
        self._constants: dict[str, Value] = {}
        self._bits: dict[Value, Value] = {}
        self._masks: dict[tuple[Value, str, str], Value] = {}
        for v in (*program.captures, *program.inputs):
            self.values[v] = Value(names[v], v.spec, "input", contiguous=False)

    def run(self) -> list[Step]:
        """All steps, in order."""
        from autodiff.lowerings import LOWERINGS

        for eq in self.program.equations:
            self.comment = eq.source or ""
            native = all([is_native(a.spec.dtype) for a in (*eq.inputs, *eq.outputs)])
            result = None
            if native and not eq.op.control and len(eq.outputs) == 1:
                rule = LOWERINGS.get(eq.op.kind)
                result = rule(self, eq) if rule is not None else self.ufunc(eq)
            if result is None:
                self.call(eq)
            else:
                self.values[eq.outputs[0]] = result
        return self.steps

    # --- values ---

    def operand(self, atom: Atom) -> Value:
        """The value of a variable or constant."""
        return self.values[atom] if isinstance(atom, Var) else self.constant(atom.value)

    def constant(self, array: Array) -> Value:
        """A named constant."""
        name = self.writer.scope.constant(array)
        if name not in self._constants:
            spec, dense = Spec(array.shape, array.dtype), array.flags.c_contiguous
            self._constants[name] = Value(name, spec, "constant", contiguous=dense)
        return self._constants[name]

    def output(self, eq: Equation) -> Value:
        """The buffer of an equation's result."""
        (out,) = eq.outputs
        return Value(self.names[out], out.spec, "buffer")

    def temporary(self, base: str, spec: Spec) -> Value:
        """A buffer for an intermediate of one equation."""
        return Value(self.writer.namer.fresh(base), spec, "buffer")

    def view(self, eq: Equation, base: Value, text: str, contiguous: bool) -> Value:
        """An equation's result as a view: no step, its users read it."""
        (out,) = eq.outputs
        return Value(self.names[out], out.spec, "view", base, text, contiguous)

    def bits(self, atom: Atom | Value) -> Value:
        """The memory of a value as integers of its width."""
        if isinstance(atom, Literal):
            return self.constant(atom.value.view(BITS[atom.spec.dtype.name]))
        value = atom if isinstance(atom, Value) else self.values[atom]
        dtype = np.dtype(BITS[value.spec.dtype.name])
        if value.spec.dtype == dtype:
            return value
        if value not in self._bits:
            name = self.writer.namer.fresh(f"{value.name}_bits")
            text = f"{{0}}.view({dtype_text(dtype)})"
            spec = value.spec.with_dtype(dtype)
            self._bits[value] = Value(name, spec, "view", value, text, value.contiguous)
        return self._bits[value]

    def mask(self, condition: Value, width: str, inverted: bool = False) -> Value:
        """A condition as integers, all bits set where it holds (`inverted`: where it does not).

        For few elements it is made once; for many it is cheaper to make again in each block than
        to read, being eight times as large as the condition.
        """
        at = (condition, width, "not" if inverted else "")
        if at not in self._masks or condition.spec.size >= LARGE:
            spec = condition.spec.with_dtype(width)
            out = self.temporary(f"{'not' if inverted else 'mask'}_{condition.name}", spec)
            if inverted:
                one = self.constant(np.array(1, width))
                text = f"np.subtract({{0}}, {{1}}, out={{o}}, dtype=np.{width})"
                self._masks[at] = self.into(text, (condition, one), out)
            else:
                text = f"np.negative({{0}}, out={{o}}, dtype=np.{width})"
                self._masks[at] = self.into(text, (condition,), out)
        return self._masks[at]

    # --- steps ---

    def into(
        self,
        code: str,
        inputs: Sequence[Value],
        output: Value,
        elementwise: bool = True,
        updates: bool = False,
    ) -> Value:
        """Append a step that writes into the output, elementwise unless told otherwise."""
        loop = output.spec.shape if elementwise else None
        self.steps.append(
            Step(code, tuple(inputs), (output,), loop, comment=self.comment, updates=updates)
        )
        return output

    def copy(self, value: Value, output: Value) -> Value:
        """Append a copy of a value, which broadcasts, into the output."""
        return self.into(COPY, (value,), output)

    def reduction(self, reduced: Reduced, x: Value, output: Value) -> Value:
        """Append a reduction of x."""
        code = reduce_code(reduced)
        self.steps.append(Step(code, (x,), (output,), x.spec.shape, reduced, self.comment))
        return output

    def ufunc(self, eq: Equation, name: str | None = None) -> Value | None:
        """A ufunc of the operands written into a buffer; None where the op is no ufunc."""
        if name is None:
            if not isinstance(eq.op.impl, np.ufunc) or not _resolves(eq.op.impl, eq):
                return None
            name = self.writer.library.reference(eq.op.impl, eq.op.kind)
        inputs = [self.operand(a) for a in eq.inputs]
        places = ", ".join(f"{{{i}}}" for i in range(len(inputs)))
        return self.into(f"{name}({places}, out={{o}})", inputs, self.output(eq))

    def call(self, eq: Equation) -> None:
        """Any other op: the call that `render` prints makes new arrays."""
        atoms = [a for a in dict.fromkeys(eq.inputs) if isinstance(a, Var)]
        inputs = tuple(self.values[a] for a in atoms)
        lines = tuple(self.writer.equation(eq, ""))
        held = () if self.writer.owns(eq) else inputs
        outputs = tuple(
            Value(self.names[v], v.spec, "new", contiguous=False, holds=held) for v in eq.outputs
        )
        self.values.update(zip(eq.outputs, outputs, strict=True))
        self.steps.append(
            Step("", inputs, outputs, comment=self.comment, lines=lines, effect=eq.op.effect)
        )


def reduce_code(reduced: Reduced) -> str:
    """The call of a reduction."""
    axes = reduced.axes[0] if len(reduced.axes) == 1 else reduced.axes
    kept = ", keepdims=True" if reduced.keepdims else ""
    # `out=` is not last: without it the result would be float64
    wide = ", dtype=np.float64" if reduced.wide else ""
    return f"{reduced.ufunc}.reduce({{0}}, axis={axes}{kept}, out={{o}}{wide})"


def _resolves(ufunc: np.ufunc, eq: Equation) -> bool:
    """Whether the ufunc's own result dtype is the declared one."""
    if ufunc.nout != 1 or ufunc.nin != len(eq.inputs) or eq.params or ufunc.signature is not None:
        return False
    natural = natural_dtype(ufunc, tuple([a.spec.dtype for a in eq.inputs]))
    return natural is not None and natural == eq.outputs[0].spec.dtype
