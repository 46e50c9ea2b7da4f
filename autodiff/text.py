"""The text form of programs: `to_text` writes it, `autodiff.parse.parse` reads it back.

    program f(x0: float64[3,4], x1: float64[4]) {
      t0: float64[3,4] = MUL x0, x1  # model.py:12 in f
      t1: float64[3] = SUM t0 {axis=(1,), keepdims=False}  # model.py:13 in f
      return t1
    }

Inputs are `x0, x1, ...`, captures `c0, ...`, results `t0, ...` in the order of definition, so that
equal programs have equal texts. A comment is the user's source line. Constants are exact: numbers
in their shortest form that reads back, arrays of one value as `float64[3,4](fill 0.0)`, large ones
as base64 of their little-endian bytes.
"""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from autodiff.program import Atom, Equation, Literal, Program, Spec, Var, sub_programs

SMALL = 16


def to_text(program: Program, sources: bool = True) -> str:
    """The flat program as text that `parse` reads back, with source lines as comments.

    Rules of custom derivatives are written by their label, which `parse` finds again in the same
    process; values that have no text are shown as `<...>`, which `parse` refuses.
    """
    return "\n".join(_Writer(sources=sources, digests=False).program(program, ""))


def key(program: Program) -> str:
    """Text that is equal for equal programs: no source lines, large arrays by their digest."""
    cached: str | None = program.__dict__.get("_key")
    if cached is None:
        cached = "\n".join(_Writer(sources=False, digests=True).program(program, ""))
        object.__setattr__(program, "_key", cached)
    return cached


def literal_text(value: np.ndarray[Any, Any]) -> str:
    """A constant array as text, e.g. `float32[2](1.0, 0.5)`."""
    return _literal(value, digests=False)


class _Writer:
    """One rendering of a program and its sub-programs."""

    def __init__(self, sources: bool, digests: bool) -> None:
        self.sources, self.digests = sources, digests
        self.dtypes: dict[Any, str] = {}  # names of dtypes, which NumPy is slow to spell

    def spec(self, spec: Spec) -> str:
        dtype = spec.dtype
        name = self.dtypes.get(dtype)
        if name is None:
            name = self.dtypes[dtype] = dtype.name
        return f"{name}[{','.join(map(str, spec.shape))}]"

    def header(self, program: Program, names: Mapping[Var, str]) -> str:
        name = program.name if program.name.isidentifier() else repr(program.name)
        inputs = ", ".join([f"{names[v]}: {self.spec(v.spec)}" for v in program.inputs])
        captures = ", ".join([f"{names[v]}: {self.spec(v.spec)}" for v in program.captures])
        return f"program {name}({inputs}) " + (f"captures({captures}) {{" if captures else "{")

    def program(self, program: Program, indent: str) -> list[str]:
        names: dict[Var, str] = {}
        for prefix, group in (("x", program.inputs), ("c", program.captures)):
            names.update((v, f"{prefix}{i}") for i, v in enumerate(group))
        lines = [self.header(program, names)]
        inner = indent + "  "
        count = 0
        for eq in program.equations:
            for v in eq.outputs:
                names[v] = f"t{count}"
                count += 1
            lines.append(inner + self.equation(eq, names, inner))
        results = ", ".join(self.atom(a, names) for a in program.outputs)
        lines.append(f"{inner}return {results}".rstrip())
        lines.append(indent + "}")
        return lines

    def equation(self, eq: Equation, names: Mapping[Var, str], indent: str) -> str:
        text = eq.op.kind
        if eq.outputs:
            text = f"{', '.join([f'{names[v]}: {self.spec(v.spec)}' for v in eq.outputs])} = {text}"
        if eq.inputs:
            text += " " + ", ".join([self.atom(a, names) for a in eq.inputs])
        if eq.params:
            text += " " + self.params(eq.params, indent)
        if self.sources and eq.source:
            text += "  # " + " ".join(eq.source.splitlines())
        return text

    def atom(self, atom: Atom, names: Mapping[Var, str]) -> str:
        if isinstance(atom, Literal):
            return _literal(atom.value, self.digests)
        return names.get(atom, "undefined")

    def params(self, params: Mapping[str, Any], indent: str) -> str:
        inner = indent + "  "
        items = [f"{k}={self.param(params[k], inner)}" for k in sorted(params)]
        if not sub_programs(params):
            return "{" + ", ".join(items) + "}"
        return "{\n" + ",\n".join(inner + item for item in items) + f"\n{indent}}}"

    def param(self, value: Any, indent: str) -> str:
        if value is None or value is ... or isinstance(value, bool | np.bool_):
            return "..." if value is ... else str(value)
        if isinstance(value, int | float | np.integer | np.floating):
            return repr(value.item() if isinstance(value, np.generic) else value)
        if isinstance(value, str):
            return repr(value)
        if isinstance(value, tuple):
            inside = ", ".join(self.param(v, indent) for v in value)
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        return self.rare_param(value, indent)

    def rare_param(self, value: Any, indent: str) -> str:
        if isinstance(value, np.dtype):
            return value.name
        if isinstance(value, type) and issubclass(value, np.generic):
            return np.dtype(value).name
        if isinstance(value, Program):
            return "\n".join(self.program(value, indent))
        if isinstance(value, complex | np.complexfloating):
            return f"complex({float(value.real)!r}, {float(value.imag)!r})"
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return f"slice({', '.join(self.param(p, indent) for p in parts)})"
        if isinstance(value, Spec):
            return f"spec {value}"
        if isinstance(value, np.ndarray | np.generic):
            return _literal(np.asarray(value), self.digests)
        label = getattr(value, "label", None)
        if isinstance(label, str):  # a rule of a custom derivative
            return f"rule {label!r}"
        name = getattr(value, "__qualname__", type(value).__qualname__)
        name = name.replace("<", "").replace(">", "")
        return f"<{name} {id(value)}>" if self.digests else f"<{name}>"


# --- constants -----------------------------------------------------------------------------


def _literal(value: np.ndarray[Any, Any], digests: bool) -> str:
    spec = str(Spec(value.shape, value.dtype))
    if not value.ndim:
        return f"{spec.removesuffix('[]')}({_inside(value, digests)})"
    return f"{spec}({_inside(value, digests)})"


def _inside(value: np.ndarray[Any, Any], digests: bool) -> str:
    if value.size > 1 and uniform(value):
        return f"fill {_inside(value[(0,) * value.ndim], digests)}"
    if value.size <= SMALL:
        items = [_number(v) for v in value.reshape(-1)]
        if None not in items:
            return ", ".join(item for item in items if item is not None)
    data = little_endian(value).tobytes()
    if digests:
        return hashlib.blake2b(data, digest_size=16).hexdigest()
    return f'"{base64.b64encode(data).decode()}"'


def uniform(value: np.ndarray[Any, Any]) -> bool:
    """Whether all elements have the same bits."""
    if value.size == 0:
        return False
    if all(s == 0 or n == 1 for s, n in zip(value.strides, value.shape, strict=True)):
        return True
    bits = np.ascontiguousarray(value).reshape(-1, 1).view(np.uint8)
    return bool((bits == bits[0]).all())


def little_endian(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in C order and little-endian bytes."""
    order = value.dtype.newbyteorder("<") if value.dtype.isbuiltin != 2 else value.dtype
    return np.ascontiguousarray(value, dtype=order)


def _number(value: Any) -> str | None:
    """Shortest text that reads back to the same bits; None for NaNs with a payload."""
    kind = value.dtype.kind
    if kind == "b":
        return str(bool(value))
    if kind in "iu":
        return str(int(value))
    if kind == "c":
        parts = _number(value.real), _number(value.imag)
        return None if None in parts else f"complex({parts[0]}, {parts[1]})"
    number = float(value)
    if number != number:
        plain = np.asarray(np.nan).astype(value.dtype)
        return "nan" if value.tobytes() == plain.tobytes() else None
    if value.dtype.itemsize == 8:
        return repr(number)
    short = str(value) if kind == "f" else repr(number)
    return short if float(value.dtype.type(float(short))) == number else repr(number)
