"""Interpreters of programs: native evaluation, and the reference with one rounding per primitive.

The reference computes each primitive in float64 on operands of the given precision and rounds
once, so an F32 result is right to half an ulp per primitive whatever the machine.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff import precision as products
from autodiff import rounding
from autodiff.errors import ShapeError
from autodiff.native import evaluate_native, quiet, replay
from autodiff.op import Op, body_program
from autodiff.program import Atom, Equation, Literal, Program, Spec, Var
from autodiff.simplify import fold_converts as fold
from autodiff.trace import bind, mark_as, quoted, sourced

Array = np.ndarray[Any, Any]
PRECISIONS = ("float64", "float32", "bfloat16", "float16")
FLOAT64, FLOAT32 = np.dtype(np.float64), np.dtype(np.float32)

__all__ = ["Reference", "evaluate_native", "interpret", "interpret_flat", "run"]


def run(
    program: Program,
    args: Sequence[Any],
    captures: Sequence[Any] = (),
    expand: Callable[[Op], bool] | None = None,
) -> tuple[Any, ...]:
    """Apply a program's equations to values, traced or concrete; composites for which
    `expand(op)` holds are replaced by the equations of their bodies.
    """
    if expand is None:
        given = (*captures, *args)
        if all([type(v) is np.ndarray for v in given]):
            repeated = replay(program)
            if repeated.takes(given):
                return repeated(given)
    env: dict[Var, Any] = dict(zip(program.captures, captures, strict=True))
    env.update(zip(program.inputs, args, strict=True))
    for eq in program.equations:
        values = [env[a] if isinstance(a, Var) else a.value for a in eq.inputs]
        with sourced(eq.source):
            if expand is not None and eq.op.body is not None and expand(eq.op):
                body = body_program(eq.op, tuple(a.spec for a in eq.inputs), eq.params)
                result: Any = run(body, values, expand=expand)
            else:
                result = bind(eq.op, *values, **eq.params)
                result = result if eq.op.multiple else (result,)
        env.update(zip(eq.outputs, result, strict=True))
        mark_as(eq.outputs, result, env)
    return tuple(env[a] if isinstance(a, Var) else a.value for a in program.outputs)


def interpret(
    program: Program,
    *args: Any,
    precision: str = "float64",
    dot: str = "ieee",
    fold_converts: bool = False,
) -> Any:
    """Evaluate a program by the reference interpreter.

    Arguments: the traced function's own containers. `precision` is the width of every floating
    value (complex follows) except values the program itself casts narrower; `dot` the mode of
    products with `algorithm="default"`; `fold_converts` drops f32 -> bf16 -> f32 pairs as a GPU
    does.
    Returns the function's own containers at that precision.
    Raises PrecisionError for unknown names, ShapeError for arguments of other shapes, GuardError
    where a branch decides otherwise than when traced.
    """
    from autodiff import tree

    leaves = program_leaves(program, args)
    flat = interpret_flat(program, *leaves, precision=precision, dot=dot, folds=fold_converts)
    return flat if program.out_tree is None else tree.unflatten(program.out_tree, flat)


def interpret_flat(
    program: Program,
    *args: Any,
    precision: str = "float64",
    dot: str = "ieee",
    folds: bool = False,
) -> tuple[Array, ...]:
    """`interpret` on flat arrays (captures, where present, come first)."""
    mode = Reference(base_width(program), float_dtype(precision), dot, folds)
    values = [
        mode.enter(np.asarray(a), v.spec) for a, v in zip(args, _parameters(program), strict=True)
    ]
    with quiet():
        results = mode.run(program, *values)
        return tuple(
            rounding.cast(r, mode.dtype(a.spec.dtype))
            for r, a in zip(results, program.outputs, strict=True)
        )


def _parameters(program: Program) -> tuple[Var, ...]:
    return (*program.captures, *program.inputs)


def program_leaves(program: Program, args: Sequence[Any]) -> list[Any]:
    """Flat arrays for a program's inputs from the traced function's own arguments; checked."""
    from autodiff import tree
    from autodiff.trace import as_value

    if program.in_tree is not None:
        leaves = tree.flatten_like(tuple(args), program.in_tree, "argument tuple")
    else:
        leaves = list(args)
    values = [as_value(leaf, "argument") for leaf in leaves]
    if len(values) != len(program.inputs):
        raise ShapeError(
            f"program '{program.name}' takes {len(program.inputs)} arrays, got {len(values)}"
        )
    for i, (value, var) in enumerate(zip(values, program.inputs, strict=True)):
        if tuple(value.shape) != var.spec.shape:
            raise ShapeError(
                f"argument {i} of program '{program.name}' has shape {tuple(value.shape)}",
                f"it was traced at {var.spec}",
                "trace the function again at the new shape",
            )
    return values


def width(dtype: np.dtype[Any]) -> int:
    """Bytes of a floating dtype (of the component, for complex); 0 for others."""
    if dtype.kind == "c":
        return dtype.itemsize // 2
    return dtype.itemsize if dtype.kind in "fV" else 0


def float_dtype(name: str) -> np.dtype[Any]:
    """The dtype of a precision name: float64, float32, bfloat16 or float16."""
    return np.dtype(rounding.dtype_name(name, PRECISIONS))


def base_width(program: Program) -> int:
    """The widest floating input of a program (of any value, where it has no floating input):
    values declared narrower were narrowed by the program itself.
    """
    inputs = max((width(v.spec.dtype) for v in _parameters(program)), default=0)
    outputs = (width(v.spec.dtype) for eq in program.equations for v in eq.outputs)
    return inputs or max(outputs, default=0)


class Reference:
    """One mode of the reference interpreter; values are held as float64 or complex128."""

    def __init__(self, base: int, precision: np.dtype[Any], dot: str, folds: bool) -> None:
        self.base, self.precision, self.dot, self.folds = base, precision, dot, folds
        self._dtypes: dict[np.dtype[Any], np.dtype[Any]] = {}
        products.check_dot_mode(dot)

    def dtype(self, declared: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype a value of the declared dtype has in this mode."""
        found = self._dtypes.get(declared)
        if found is None:
            found = self._dtypes[declared] = self._dtype(declared)
        return found

    def _dtype(self, declared: np.dtype[Any]) -> np.dtype[Any]:
        w = width(declared)
        if not w:
            return declared
        narrowed = w < self.base and w <= self.precision.itemsize
        if declared.kind == "c":
            return np.dtype(
                np.complex128 if self.precision.itemsize == 8 and not narrowed else np.complex64
            )
        return declared if narrowed else self.precision

    def enter(self, value: Array, spec: Spec) -> Array:
        """An argument or constant, widened for storage and rounded to its dtype in this mode."""
        kind = spec.dtype.kind
        if kind not in "fVc":
            return value
        wide = value.astype(np.complex128 if kind == "c" else np.float64)
        return self.round(wide, spec.dtype)

    def round(self, value: Any, declared: np.dtype[Any]) -> Array:
        """Round a result once to the dtype its declared dtype has in this mode."""
        if type(value) is not np.ndarray:
            value = np.asarray(value)
        if declared.kind not in "fVc":
            return np.asarray(value, declared)
        to = self.dtype(declared)
        if value.dtype is FLOAT64:
            if to is FLOAT64:
                exact: Array = value
                return exact
            if to is FLOAT32:  # NumPy rounds it once itself
                return np.asarray(value.astype(FLOAT32).astype(FLOAT64))
        return np.asarray(rounding.round_to(value, to))

    def read(self, atom: Atom, env: dict[Var, Array]) -> Array:
        """The value of an operand."""
        return self.enter(atom.value, atom.spec) if isinstance(atom, Literal) else env[atom]

    def run(self, program: Program, *args: Array) -> tuple[Array, ...]:
        """Evaluate a program on values already in this mode's storage form."""
        if self.folds:
            program = fold(program)
        env: dict[Var, Array] = dict(zip(_parameters(program), args, strict=True))
        wide = self.dtype(FLOAT64) is FLOAT64
        for eq, body, dead in _steps(program):
            values = [env[a] if type(a) is Var else self.read(a, env) for a in eq.inputs]
            try:
                if body is not None:
                    results = self.run(body, *values)
                else:
                    results = self.apply(eq.op, values, eq)
            except ShapeError as error:
                raise ShapeError(error.what, quoted(eq.source), error.fix) from None
            for var, value in zip(eq.outputs, results, strict=True):
                declared = var.spec.dtype
                plain = wide and declared is FLOAT64 and type(value) is np.ndarray
                if not (plain and value.dtype is FLOAT64):  # else there is nothing to round
                    value = self.round(value, declared)
                env[var] = value
            for var in dead:
                env.pop(var, None)
        return tuple([self.read(a, env) for a in program.outputs])

    def apply(self, op: Op, values: list[Array], eq: Any) -> tuple[Any, ...]:
        """Evaluate one equation of a primitive: a control op through `run`."""
        assert op.impl is not None
        if op.control:
            result = op.impl(self.run, *values, **eq.params)
        elif op.product and self.dot != "ieee" and eq.params["algorithm"] == "default":
            result = products.product(op.impl, values, dict(eq.params), self.dot)
        else:
            result = op.impl(*values, **eq.params)
        return tuple(result) if op.multiple else (result,)


def _steps(program: Program) -> list[tuple[Equation, Program | None, list[Var]]]:
    """Per equation: itself, a composite's body, the variables that nobody reads afterwards."""
    found: list[tuple[Equation, Program | None, list[Var]]] | None
    found = program.__dict__.get("_steps")
    if found is None:
        bodies = [
            None
            if eq.op.body is None
            else body_program(eq.op, tuple([a.spec for a in eq.inputs]), eq.params)
            for eq in program.equations
        ]
        found = list(zip(program.equations, bodies, _last_uses(program), strict=True))
        object.__setattr__(program, "_steps", found)
    return found


def _last_uses(program: Program) -> list[list[Var]]:
    """Per equation, the variables nobody reads afterwards."""
    keep = {a for a in program.outputs if isinstance(a, Var)}
    seen: set[Var] = set()
    result: list[list[Var]] = []
    for eq in reversed(program.equations):
        dead = []
        for v in (*(a for a in eq.inputs if isinstance(a, Var)), *eq.outputs):
            if v not in seen and v not in keep:
                seen.add(v)
                dead.append(v)
        result.append(dead)
    return result[::-1]
