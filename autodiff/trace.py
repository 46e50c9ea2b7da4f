"""Tracing: a Python function of arrays becomes a Program.

Dispatch is on context: an op applied to traced values is recorded in the innermost active trace,
and values of outer traces become captures of its program. An op applied to concrete arrays alone
is evaluated at once.
"""

import contextvars
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.errors import OpError, ShapeError, TracerError
from autodiff.leaves import as_value, concrete_of, plain_array, spec_of
from autodiff.native import evaluate_native
from autodiff.op import Op, check_names, get
from autodiff.program import Atom, Equation, Literal, Program, Spec, Var, verify
from autodiff.source import (
    current_role,
    equation_line,
    quoted,
    sourced,
    traceback_line,
    unsourced,
    user_line,
)
from autodiff.tracer import Tracer

__all__ = [
    "Trace",
    "active",
    "as_value",
    "bind",
    "concrete_of",
    "evaluate",
    "find_trace",
    "function_name",
    "mark",
    "mark_as",
    "parameter_names",
    "plain_array",
    "program_of",
    "quoted",
    "sourced",
    "spec_of",
    "trace_flat",
    "unsourced",
    "user_line",
]

_stack: contextvars.ContextVar[tuple["Trace", ...]] = contextvars.ContextVar("traces", default=())


class Trace:
    """A program being recorded.

    `absorb`: whether ops on values of outer traces alone are recorded here too (the default), or
    where those values live (partial evaluation, used by `linearize`).
    """

    def __init__(self, absorb: bool = True) -> None:
        self.absorb = absorb
        self.equations: list[Equation] = []
        self.producers: dict[Var, Equation] = {}
        self.concrete: dict[Var, Callable[[], Any] | np.ndarray[Any, Any]] = {}
        self.captured: dict[Var, tuple[Tracer, Var]] = {}

    def input(self, spec: Spec, concrete: Callable[[], Any] | None = None) -> Tracer:
        """A new input of the program; `concrete` computes its value if one is known."""
        var = Var(spec)
        if concrete is not None:
            self.concrete[var] = concrete
        return Tracer(self, var)

    def atom(self, value: Any) -> Atom:
        """The variable of a traced value (captured if from an outer trace), or a literal."""
        if not isinstance(value, Tracer):
            return Literal(plain_array(value, "an operand"))
        if value.owner is self:
            return value.ref
        # by variable, and on a handle of its own: a handle may be rebound (Tracer.__setitem__)
        if value.ref not in self.captured:
            outer, var = Tracer(value.owner, value.ref), Var(value.spec)
            if outer.owner.is_concrete(outer.ref):
                self.concrete[var] = lambda: outer.owner.evaluate(outer.ref)
            self.captured[outer.ref] = (outer, var)
        return self.captured[value.ref][1]

    def record(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Append an equation and return its traced outputs."""
        atoms = tuple(
            [a.ref if type(a) is Tracer and a.owner is self else self.atom(a) for a in args]
        )
        in_specs = tuple([a.spec for a in atoms])
        specs = op.known_specs(in_specs, params)
        if specs is None:
            _require_hashable(op, params)
            specs = op.out_specs(in_specs, params)
        role = current_role()
        part = (role, None) if role else None
        source = equation_line()
        if not op.multiple:
            var = Var(specs[0], part)
            self.add(Equation(op, atoms, params, (var,), source))
            return Tracer(self, var)
        outputs = tuple([Var(s, part) for s in specs])
        self.add(Equation(op, atoms, params, outputs, source))
        return tuple([Tracer(self, v) for v in outputs])

    def add(self, eq: Equation) -> None:
        """Append an equation."""
        self.equations.append(eq)
        for var in eq.outputs:
            self.producers[var] = eq

    def is_concrete(self, var: Var) -> bool:
        """Whether the value can be computed now: all inputs it depends on have known values."""
        return self._plan(var) is not None

    def _plan(self, var: Var) -> list[Equation] | None:
        """Equations to evaluate (in order) for a value, or None where an input has no value."""
        needed: dict[int, Equation] = {}
        todo = [var]
        while todo:
            v = todo.pop()
            if v in self.concrete:
                continue
            eq = self.producers.get(v)
            if eq is None:
                return None
            if id(eq) not in needed:
                needed[id(eq)] = eq
                todo.extend(a for a in eq.inputs if isinstance(a, Var))
        if not needed:
            return []
        return [eq for eq in self.equations if id(eq) in needed]

    def evaluate(self, var: Var) -> np.ndarray[Any, Any]:
        """The concrete value of a variable, computing only what is missing."""
        plan = self._plan(var)
        if plan is None:
            raise KeyError(var)
        for eq in plan:
            args = [a.value if isinstance(a, Literal) else self._value(a) for a in eq.inputs]
            result = evaluate(eq.op, args, dict(eq.params))
            values = result if eq.op.multiple else (result,)
            self.concrete.update(zip(eq.outputs, values, strict=True))
        return self._value(var)

    def _value(self, var: Var) -> np.ndarray[Any, Any]:
        value = self.concrete[var]
        if callable(value):
            value = self.concrete[var] = np.asarray(value())
        return value

    def finish(
        self, inputs: Sequence[Tracer], outputs: Sequence[Any], name: str = "f"
    ) -> tuple[Program, tuple[Tracer, ...]]:
        """The recorded program and the outer values of its captures."""
        atoms = tuple(self.atom(o) for o in outputs)
        captured = tuple(self.captured.values())
        program = Program(
            inputs=tuple(t.ref for t in inputs),
            captures=tuple(var for _, var in captured),
            equations=tuple(self.equations),
            outputs=atoms,
            name=name,
        )
        return program, tuple(t for t, _ in captured)


def _require_hashable(op: Op, params: dict[str, Any]) -> None:
    for name, value in params.items():
        if isinstance(value, Program):
            continue  # has a hash, which takes its text
        try:
            hash(value)
        except TypeError:
            raise OpError(
                f"parameter {name!r} of {op.kind} is not hashable: {value!r}"[:300],
                quoted(user_line()),
                "pass tuples instead of lists, and arrays as operands",
            ) from None


class active:
    """Make a trace the innermost one."""

    __slots__ = ("_token", "_trace")

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __enter__(self) -> Trace:
        self._token = _stack.set((*_stack.get(), self._trace))
        return self._trace

    def __exit__(self, *error: object) -> None:
        _stack.reset(self._token)


def mark(role: str, primal: Any, value: Any) -> None:
    """Note that a traced value is the tangent ("dot") or cotangent ("bar") of another."""
    if isinstance(value, Tracer) and isinstance(primal, Tracer):
        var = value.ref
        if var.role is None or var.role[1] is None:
            var.role = (role, primal.ref)


def mark_as(old: Sequence[Var], new: Sequence[Any], env: Mapping[Var, Any]) -> None:
    """Give values computed for `old` variables in another trace the same roles there."""
    for var, value in zip(old, new, strict=True):
        if var.role is None:
            continue
        role, primal = var.role
        if primal is not None:
            mark(role, env.get(primal), value)
        elif isinstance(value, Tracer) and value.ref.role is None:
            value.ref.role = var.role


def find_trace(args: Sequence[Any]) -> Trace | None:
    """The trace an op on these arguments is recorded in; None for concrete arguments."""
    stack: tuple[Trace, ...] | None = None
    top = -1
    for a in args:
        if type(a) is not Tracer:
            continue
        if stack is None:
            stack = _stack.get()
        owner = a.owner
        if stack and owner is stack[-1]:
            top = len(stack) - 1
            continue
        for level in range(len(stack) - 1, -1, -1):
            if stack[level] is owner:
                top = max(top, level)
                break
        else:
            raise TracerError(
                f"a traced value ({a.spec}) is used after its transform has ended",
                quoted(user_line()),
                "return values from the function instead of storing them outside",
            )
    if stack is None:
        return None
    for level in range(len(stack) - 1, top, -1):
        if stack[level].absorb:
            return stack[level]
    return stack[top]


def bind(op: Op | str, *args: Any, **params: Any) -> Any:
    """Apply an op: recorded where an argument is traced, evaluated otherwise."""
    op = get(op) if isinstance(op, str) else op
    trace = find_trace(args)
    try:
        if trace is None:
            return evaluate(op, args, params)
        return trace.record(op, args, params)
    except TypeError:
        check_names(op, params)
        raise


def evaluate(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Evaluate an op on concrete arrays at their own dtypes."""
    return evaluate_native(op, args, params)


def program_of(f: Callable[..., Any], specs: Sequence[Spec], name: str = "f") -> Program:
    """Trace a flat function (arrays in, array or sequence of arrays out) at specs; no captures."""
    from autodiff.simplify import dead_code

    trace = Trace()
    inputs = [trace.input(s) for s in specs]
    with active(trace):
        result = f(*inputs)
        outputs = result if isinstance(result, tuple | list) else (result,)
        program, captured = trace.finish(inputs, outputs, name)
    refuse_captures(name, captured)
    return verify(dead_code(program))


def refuse_captures(name: str, captured: Sequence[Tracer]) -> None:
    """Raise TracerError where a program of its own would need values of an outer transform."""
    if captured:
        raise TracerError(
            f"'{name}' closes over a traced value ({captured[0].spec})",
            quoted(user_line()),
            "pass it as an argument",
        )


def trace_flat(
    f: Callable[..., Any],
    specs: Sequence[Spec],
    in_tree: Any,
    concretes: Sequence[Callable[[], Any] | None] | None = None,
    name: str | None = None,
    absorb: bool = True,
) -> tuple[Program, tuple[Tracer, ...]]:
    """Trace `f(*unflatten(in_tree))` at flat specs; returns the program and captured values.

    `concretes` holds, per input, a function giving its concrete value, or None.
    """
    trace = Trace(absorb)
    known = concretes if concretes is not None else [None] * len(specs)
    inputs = [trace.input(s, c) for s, c in zip(specs, known, strict=True)]
    with active(trace):
        result = _called(f, tree.unflatten(in_tree, [Tracer(trace, t.ref) for t in inputs]))
        leaves, out_tree = tree.flatten(result)
        outputs = [as_value(leaf, "result") for leaf in leaves]
        program, captured = trace.finish(inputs, outputs, name or function_name(f))
    object.__setattr__(program, "in_tree", in_tree)
    object.__setattr__(program, "out_tree", out_tree)
    object.__setattr__(program, "arg_names", parameter_names(f, in_tree.num_children))
    return program, captured


def _called(f: Callable[..., Any], args: Sequence[Any]) -> Any:
    """The user's function called. Errors of ops get its line, and NumPy's own words for
    `a[i] = traced` are made ours.
    """
    try:
        return f(*args)
    except ShapeError as error:
        error.locate(quoted(traceback_line(error.__traceback__)))
        raise
    except TypeError as error:
        if not str(error).startswith("Multiple namespaces for array inputs"):
            raise
        raise TracerError(
            "a SciPy function was given traced values and NumPy arrays together, which its array "
            "API (SCIPY_ARRAY_API) does not mix",
            quoted(traceback_line(error.__traceback__)),
            "call the function of autodiff.ops instead, e.g. autodiff.ops.xlogy(a, x)",
        ) from error
    except ValueError as error:
        if not isinstance(error.__cause__, TracerError) or "setting an array" not in str(error):
            raise
        raise TracerError(
            "a traced value was written into an element of a NumPy array",
            error.__cause__.where,
            "build the array with np.stack / np.concatenate, or use "
            "a = autodiff.ops.index_update(a, index, value)",
        ) from error


def require_callable(f: Any, taker: str) -> None:
    """Raise unless f can be called; `taker` is the function that it was handed to."""
    if not callable(f):
        raise TracerError(
            f"{taker} takes a function, got {shortened(f)} of type {type(f).__name__}",
            quoted(user_line()),
            f"pass a function of arrays: {taker}(lambda x: ...)",
        )


def shortened(value: Any) -> str:
    """A value on one line of an error."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:37]}..."


def function_name(f: Callable[..., Any]) -> str:
    """A name for error messages and printed programs."""
    return getattr(f, "__name__", None) or type(f).__name__


def parameter_names(f: Callable[..., Any], count: int) -> tuple[str, ...] | None:
    """Names of the first positional parameters of a function, seen through its wrappers."""
    skip = 0
    while True:
        if isinstance(f, functools.partial):
            skip, f = skip + len(f.args), f.func
        elif hasattr(f, "__wrapped__"):
            f = f.__wrapped__
        elif hasattr(f, "__func__"):
            skip, f = skip + 1, f.__func__
        else:
            break
    code = getattr(f, "__code__", None)
    if code is None:
        return None
    names = code.co_varnames[skip : code.co_argcount]
    if len(names) < count and code.co_flags & inspect.CO_VARARGS:
        rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
        names = (*names, *(f"{rest}_{i}" for i in range(count - len(names))))
    return names[:count] if len(names) >= count else None
