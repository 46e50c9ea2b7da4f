"""Lines of Python for the equations of a program, at float64 precision."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from autodiff.naming import name_values
from autodiff.program import Atom, Equation, Literal, Program, Spec, Var
from autodiff.python_text import dtype_text, fill_text, held_dtype, param_text, primary
from autodiff.render_scope import Scope
from autodiff.widen import is_narrow

# Primitives that only rearrange: they keep the dtype and may return a view.
VIEWS = frozenset({"RESHAPE", "TRANSPOSE", "BROADCAST", "REVERSE", "SLICE", "SPLIT"})
REARRANGING = VIEWS | {"CONCAT", "STOP_GRADIENT"}
# Their printed call gives the declared dtype whatever the operands are.
KEEPING = frozenset({"COMPARE", "CAST"})
OWNING = KEEPING | {"WHERE", "SUM", "MATMUL", "CONCAT", "STOP_GRADIENT"}
COMPARE_SIGNS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}


class Writer:
    """Lines for the equations of one program, its sub-programs included."""

    def __init__(
        self,
        scope: Scope,
        names: Mapping[Var, str],
        program: Program,
        aliases: Mapping[Var, Atom],
    ) -> None:
        self.scope, self.library, self.namer = scope, scope.library, scope.namer
        self.program, self.aliases = program, aliases
        self.names: dict[Var, str] = dict(names)
        self.loose: set[Var] = set(names)  # may share memory with an argument or another value
        self.kernel_operands = {
            a
            for eq in (() if scope.native else program.equations)
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
        if eq.op.control or not eq.outputs:
            from autodiff.render_control import control_lines

            return control_lines(self, eq, indent)
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
            if not v.spec.shape and (self.scope.native or v in self.kernel_operands):
                lines = [f"{indent}{self.names[v]} = np.asarray({self.rounded(call, v.spec, eq)})"]
        if not self.owns(eq):
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

    @staticmethod
    def owns(eq: Equation) -> bool:
        """Whether the result is surely new memory."""
        return (
            isinstance(eq.op.impl, np.ufunc)
            or eq.op.kind in OWNING
            or (eq.op.kind == "SUM_TO" and eq.inputs[0].spec != eq.outputs[0].spec)
        )

    # --- calls ---

    def call(self, eq: Equation) -> str:
        """The expression of one primitive, before rounding."""
        plain = _PLAIN.get(eq.op.kind)
        if plain is not None:
            text = plain(self, eq)
            if text is not None:
                return text
        params = {
            k: self.scope.dtype(v) if isinstance(v, np.dtype) else param_text(v)
            for k, v in eq.params.items()
        }
        if self.scope.native and eq.op.effect:  # a tap, which shows its value to open sinks
            name = eq.op.kind.lower()
            self.scope.externals[name] = eq.op.impl
            given = [self.operand(a, eq) for a in eq.inputs]
            return f"{name}({', '.join([*given, *(f'{k}={v}' for k, v in params.items())])})"
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
            narrow = self.scope.native and is_narrow(atom.spec.dtype)
            widened = narrow and eq.op.kind not in REARRANGING
            return f"{self.names[atom]}.astype(np.float32)" if widened else self.names[atom]
        if self.scope.native and is_narrow(atom.spec.dtype):
            constant = self.scope.constant(atom.value)
            return constant if eq.op.kind in REARRANGING else f"{constant}.astype(np.float32)"
        number = fill_text(atom.value)
        if number is not None and self._weak(atom, eq):
            return number
        text = self.scope.array(atom.value) if number is not None or atom.spec.size <= 8 else ""
        return text if 0 < len(text) <= 60 else self.scope.constant(atom.value)

    def _weak(self, atom: Literal, eq: Equation) -> bool:
        """Whether a Python number in this place gives the same result as the array.

        A variable of the same dtype decides the result's, and where the constant has axes one of
        the result's shape decides that.
        """
        held = self.scope.held(atom.spec.dtype)
        partners = [a for a in eq.inputs if isinstance(a, Var)]
        same = any(self.scope.held(a.spec.dtype) == held for a in partners)
        full = any(a.spec.shape == v.spec.shape for a in partners for v in eq.outputs)
        ufunc = eq.op.template is not None or isinstance(eq.op.impl, np.ufunc)
        elementwise = eq.op.elementwise and (ufunc or eq.op.kind in ("WHERE", "COMPARE"))
        return elementwise and same and held.kind != "c" and (full or not atom.spec.shape)

    def rounded(self, call: str, spec: Spec, eq: Equation) -> str:
        """The expression with the conversion that gives the result its dtype here."""
        held = self.scope.held(spec.dtype)
        if self.scope.is_narrowed(spec.dtype) and eq.op.kind != "CAST":
            return self.scope.narrowed(call, spec.dtype)
        if self._keeps_dtype(spec, eq):
            return call
        if held.kind == "V":
            return f"{primary(call)}.astype({self.scope.dtype(held)})"
        return f"np.asarray({call}, dtype={self.scope.dtype(held)})"

    def _keeps_dtype(self, spec: Spec, eq: Equation) -> bool:
        """Whether the printed call surely gives the dtype that the result is held at."""
        if any(is_narrow(a.spec.dtype) for a in (*eq.inputs, *eq.outputs)) and self.scope.native:
            return eq.op.kind in REARRANGING or eq.op.kind == "CAST"
        if eq.op.kind in REARRANGING or eq.op.kind in KEEPING:
            return True
        if isinstance(eq.op.impl, np.ufunc):
            given = tuple([self.scope.held(a.spec.dtype) for a in eq.inputs])
            natural = natural_dtype(eq.op.impl, given)
            return natural is not None and natural == self.scope.held(spec.dtype)
        if self.scope.native or spec.dtype.kind not in "fcV":
            return False
        # a floating result of floating operands, unless the call is told a dtype
        told = any(isinstance(v, np.dtype) for v in eq.params.values())
        return not told and any(a.spec.dtype.kind in "fcV" for a in eq.inputs)

    # --- results ---

    def results(self) -> list[str]:
        """Expressions of the results: arrays that share no memory with anything else."""
        seen: set[Var] = set()
        found = []
        for atom in self.program.outputs:
            if isinstance(atom, Literal):
                found.append(self.final(f"np.array({self.scope.constant(atom.value)})", atom.spec))
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
        if not self.scope.is_narrowed(spec.dtype):
            return text
        narrow_dtype = np.dtype(np.float32) if spec.dtype.kind == "V" else spec.dtype
        return f"{primary(text)}.astype({dtype_text(narrow_dtype)})"


@functools.lru_cache(maxsize=2048)
def natural_dtype(ufunc: np.ufunc, given: tuple[np.dtype[Any], ...]) -> np.dtype[Any] | None:
    """The dtype of a ufunc's (last) result on operands of these dtypes; None where it has none."""
    try:
        found: np.dtype[Any] = ufunc.resolve_dtypes((*given, None))[-1]
    except TypeError:
        return None
    return found


# --- primitives with a plainer form than a call of their kernel ----------------------------


def _compare(writer: Writer, eq: Equation) -> str:
    x, y = (writer.operand(a, eq) for a in eq.inputs)
    return f"{x} {COMPARE_SIGNS[eq.params['direction']]} {y}"


def _cast(writer: Writer, eq: Equation) -> str:
    """Conversion: through the narrow dtype where the declared one is narrower than float64."""
    (x,), (out,) = eq.inputs, eq.outputs
    text, dtype = writer.operand(x, eq), out.spec.dtype
    if x.spec.dtype.kind == "c" and dtype.kind not in "cb":
        text = f"{text}.real"
    if not writer.scope.native and dtype != held_dtype(dtype):
        return writer.scope.narrowed(text, dtype)
    if dtype.kind == "V" and x.spec.dtype.itemsize > 4:  # ml_dtypes would round twice
        text = writer.scope.narrowed(text, dtype)
    return f"{primary(text)}.astype({writer.scope.dtype(dtype)})"


def sum_to_axes(full: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Axes that broadcasting `shape` to `full` adds or stretches."""
    extra = len(full) - len(shape)
    stretched = (extra + i for i, n in enumerate(shape) if n == 1 and full[extra + i] != 1)
    return (*range(extra), *stretched)


def _sum_to(writer: Writer, eq: Equation) -> str | None:
    (x,), shape = eq.inputs, eq.params["shape"]
    axes, extra = sum_to_axes(x.spec.shape, shape), len(x.spec.shape) - len(shape)
    if not axes:
        return writer.operand(x, eq)
    text = f"np.sum({writer.operand(x, eq)}, axis={axes}, keepdims=True)"
    return text if not extra else f"{text}.reshape({shape})"


def slice_text(eq: Equation) -> str:
    """`[1:3, ::2]` of a SLICE."""
    (x,) = eq.inputs
    params = (eq.params["start"], eq.params["stop"], eq.params["stride"])
    parts = []
    for n, start, stop, stride in zip(x.spec.shape, *params, strict=True):
        first, last = "" if start == 0 else str(start), "" if stop == n else str(stop)
        parts.append(f"{first}:{last}" + (f":{stride}" if stride != 1 else ""))
    return f"[{', '.join(parts) or '()'}]"


def _slice(writer: Writer, eq: Equation) -> str:
    return writer.operand(eq.inputs[0], eq) + slice_text(eq)


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
