"""The intermediate representation: specs, variables, equations, programs and their verifier."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from autodiff.errors import ProgramError

if TYPE_CHECKING:
    from autodiff.op import Op


_SPECS: dict[tuple[Any, Any], "Spec"] = {}


@dataclasses.dataclass(frozen=True, slots=True, eq=False, init=False)
class Spec:
    """Shape and dtype of an array value, e.g. `Spec((3, 4), np.dtype("float32"))`.

    There is one Spec of each shape and dtype, so that equality and hashing are those of identity.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __new__(cls, shape: Sequence[int], dtype: Any) -> "Spec":
        """The Spec of that shape and dtype."""
        try:
            return _SPECS[shape, dtype]
        except (KeyError, TypeError):  # TypeError: a shape given as a list
            return _new_spec(cls, shape, dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return Spec, (self.shape, self.dtype)

    def __copy__(self) -> "Spec":
        return self

    def __deepcopy__(self, memo: Any) -> "Spec":
        return self

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def with_shape(self, shape: tuple[int, ...]) -> "Spec":
        """The same dtype with another shape."""
        return Spec(shape, self.dtype)

    def with_dtype(self, dtype: Any) -> "Spec":
        """The same shape with another dtype."""
        return Spec(self.shape, np.dtype(dtype))

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


def _new_spec(cls: type[Spec], shape: Sequence[int], dtype: Any) -> Spec:
    """The one Spec of a shape and dtype; keys are kept for exact ints and dtypes alone."""
    key = tuple(int(n) for n in shape), np.dtype(dtype)
    made = object.__new__(cls)
    object.__setattr__(made, "shape", key[0])
    object.__setattr__(made, "dtype", key[1])
    return _SPECS.setdefault(key, made)


class Var:
    """A value computed or received by a program; compared by identity.

    `role` is for the reader of a printed program alone: ("bar", v) marks the cotangent of v,
    ("dot", v) its tangent (v None: a step towards one).
    """

    __slots__ = ("role", "spec")

    def __init__(self, spec: Spec, role: tuple[str, "Var | None"] | None = None) -> None:
        self.spec = spec
        self.role = role

    def __repr__(self) -> str:
        return f"Var({self.spec})"


class Literal:
    """A constant array inside a program (read-only)."""

    __slots__ = ("spec", "value")

    def __init__(self, value: Any) -> None:
        array = np.asarray(value)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if array.flags.writeable:
            array = array.copy()
            array.flags.writeable = False
        self.value: np.ndarray[Any, Any] = array
        self.spec = Spec(array.shape, array.dtype)

    def __repr__(self) -> str:
        return f"Literal({self.value!r})"


Atom = Var | Literal


_NO_PARAMS: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass(frozen=True, eq=False, slots=True, init=False)
class Equation:
    """One application of an op: `outputs = op(*inputs, **params)`, with the user's source line."""

    op: "Op"
    inputs: tuple[Atom, ...]
    params: Mapping[str, Any]
    outputs: tuple[Var, ...]
    source: str | None = None

    def __init__(
        self,
        op: "Op",
        inputs: tuple[Atom, ...],
        params: Mapping[str, Any],
        outputs: tuple[Var, ...],
        source: str | None = None,
    ) -> None:
        if type(params) is not MappingProxyType:
            params = MappingProxyType(dict(params)) if params else _NO_PARAMS
        _SET_OP(self, op)
        _SET_INPUTS(self, inputs)
        _SET_PARAMS(self, params)
        _SET_OUTPUTS(self, outputs)
        _SET_SOURCE(self, source)


# The slots themselves: an equation is made for each traced op, and a frozen class's own way takes
# three times as long.
_SET_OP, _SET_INPUTS, _SET_PARAMS, _SET_OUTPUTS, _SET_SOURCE = (
    getattr(Equation, f.name).__set__ for f in dataclasses.fields(Equation)
)


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A straight-line function of arrays.

    `inputs` are the flat arguments, `captures` the values closed over from an outer trace,
    `equations` run in order, `outputs` are the flat results; `in_tree` and `out_tree` (None for
    programs built by passes) restore the traced function's own containers; `arg_names` are the
    names of its positional parameters, where known.
    """

    inputs: tuple[Var, ...]
    captures: tuple[Var, ...]
    equations: tuple[Equation, ...]
    outputs: tuple[Atom, ...]
    in_tree: Any = None
    out_tree: Any = None
    name: str = "f"
    arg_names: tuple[str, ...] | None = None

    @property
    def in_specs(self) -> tuple[Spec, ...]:
        """Specs of the inputs."""
        return tuple(v.spec for v in self.inputs)

    @property
    def out_specs(self) -> tuple[Spec, ...]:
        """Specs of the outputs."""
        return tuple(a.spec for a in self.outputs)

    @property
    def text(self) -> str:
        """The text form of the flat program (`autodiff.text.parse` reads it back)."""
        from autodiff.text import to_text

        return to_text(self)

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        from autodiff.text import key

        return isinstance(other, Program) and (self is other or key(self) == key(other))

    def __hash__(self) -> int:
        # coarser than equality, whose text takes longer to write than most programs to compare
        found: int | None = self.__dict__.get("_hash")
        if found is None:
            kinds = tuple([eq.op.kind for eq in self.equations])
            specs = [a.spec for a in (*self.inputs, *self.outputs)]
            forms = [(s.shape, s.dtype.kind, s.dtype.itemsize) for s in specs]  # of any byte order
            found = hash((tuple(forms), kinds))
            object.__setattr__(self, "_hash", found)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what is derived from them is made again."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


def sub_programs(params: Mapping[str, Any]) -> tuple[Program, ...]:
    """The programs carried by a control-flow equation's params, tuples of programs included."""
    found: list[Program] = []
    for value in params.values():
        if isinstance(value, Program):
            found.append(value)
        elif isinstance(value, tuple):
            found.extend(v for v in value if isinstance(v, Program))
    return tuple(found)


def verify(program: Program) -> Program:
    """Check that every variable is defined once, before use, with the spec its op's rule gives.

    Returns the program. Raises ProgramError naming the equation; sub-programs are verified too
    and may not have captures: values from outside must be explicit operands.
    """
    if program.__dict__.get("_verified"):
        return program
    defined: set[Var] = set()
    for var in (*program.inputs, *program.captures):
        if var in defined:
            raise _invalid(program, None, f"input {var!r} is listed twice")
        defined.add(var)
    for number, eq in enumerate(program.equations):
        _verify_equation(program, number, eq, defined)
    for atom in program.outputs:
        if isinstance(atom, Var) and atom not in defined:
            raise _invalid(program, None, f"result {atom!r} is never computed")
    object.__setattr__(program, "_verified", True)  # it cannot change
    return program


def _verify_equation(program: Program, number: int, eq: Equation, defined: set[Var]) -> None:
    for atom in eq.inputs:
        if type(atom) is Var and atom not in defined:
            raise _invalid(program, number, f"operand {atom!r} is used before its definition")
    for sub in sub_programs(eq.params) if eq.params else ():
        if sub.captures:
            raise _invalid(program, number, "a sub-program has captures")
        verify(sub)
    specs = eq.op.out_specs(tuple([a.spec for a in eq.inputs]), eq.params)
    given = tuple([v.spec for v in eq.outputs])
    if specs != given:
        listed = ", ".join(map(str, given))
        ruled = ", ".join(map(str, specs))
        raise _invalid(program, number, f"outputs are {listed}, the spec rule gives {ruled}")
    for var in eq.outputs:
        if var in defined:
            raise _invalid(program, number, f"{var!r} is defined twice")
        defined.add(var)


def _invalid(program: Program, number: int | None, what: str) -> ProgramError:
    kind = None if number is None else program.equations[number].op.kind
    return ProgramError(what, program=program.name, equation=number, kind=kind)


def inline(program: Program, name: str | None = None) -> Program:
    """The same program with every composite replaced by the primitives of its body."""
    from autodiff.interpret import run
    from autodiff.trace import program_of

    def flat(*args: Any) -> Any:
        return run(
            program, args[len(program.captures) :], args[: len(program.captures)], lambda op: True
        )

    specs = tuple(v.spec for v in (*program.captures, *program.inputs))
    out = program_of(flat, specs, name=name or program.name)
    n = len(program.captures)
    return dataclasses.replace(
        out,
        captures=out.inputs[:n],
        inputs=out.inputs[n:],
        in_tree=program.in_tree,
        out_tree=program.out_tree,
    )
