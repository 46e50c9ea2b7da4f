"""Native evaluation: ops and programs on concrete arrays, at their own dtypes."""

import contextvars
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autodiff.op import Op, body_program
from autodiff.program import Equation, Literal, Program, Spec, Var

Array = np.ndarray[Any, Any]
_is_quiet: contextvars.ContextVar[bool] = contextvars.ContextVar("quiet", default=False)


class quiet:
    """Floating-point warnings off, switched once for everything inside: NumPy's own switch costs
    more than a small op.
    """

    __slots__ = ("_errors", "_token")

    def __enter__(self) -> None:
        self._errors = None if _is_quiet.get() else np.errstate(all="ignore")
        if self._errors is not None:
            self._token = _is_quiet.set(True)
            self._errors.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self._errors is not None:
            self._errors.__exit__(*error)
            _is_quiet.reset(self._token)


def evaluate_native(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Evaluate one op on concrete arrays at their own dtypes (bf16 and f16 through float32)."""
    arrays = [a if type(a) is np.ndarray else np.asarray(a) for a in args]
    in_specs = tuple([Spec(a.shape, a.dtype) for a in arrays])
    specs = op.out_specs(in_specs, params)
    if op.body is not None:
        found = replay(body_program(op, in_specs, params))(arrays)
        return found if op.multiple else found[0]
    if _is_quiet.get():
        return _evaluate(op, arrays, specs, params)
    with quiet():
        return _evaluate(op, arrays, specs, params)


def _evaluate(op: Op, arrays: list[Array], specs: tuple[Spec, ...], params: dict[str, Any]) -> Any:
    assert op.impl is not None
    operands = arrays
    for a in arrays:
        if a.dtype.itemsize < 4:
            operands = [_widened(x) for x in arrays]
            break
    if op.control:
        result = op.impl(run_native, *arrays, **params)
    else:
        result = op.impl(*operands, **params)
    if not op.multiple:
        return _owned(result, specs[0], arrays)
    return tuple([_owned(v, s, arrays) for v, s in zip(result, specs, strict=True)])


def _widened(x: Array) -> Array:
    """16-bit and narrower floats as float32: they are stored narrow and computed in float32."""
    return x.astype(np.float32) if _is_narrow(x.dtype) else x


def _is_narrow(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize < 4 and dtype.kind in "fV"


def _owned(value: Any, spec: Spec, inputs: Sequence[Array]) -> Array:
    array = value if type(value) is np.ndarray else np.asarray(value)
    if array.dtype is not spec.dtype and array.dtype != spec.dtype:
        return array.astype(spec.dtype)
    # an array with memory of its own shares it with no operand but itself
    shares = operator.is_ if array.base is None else np.may_share_memory
    for a in inputs:
        if shares(array, a):
            return array.copy()
    return array


# --- programs ------------------------------------------------------------------------------

# what is called, slots of its operands, params, slots and dtypes of its results, whether it is one
Step = tuple[
    Callable[..., Any], tuple[int, ...], dict[str, Any], tuple[int, ...], tuple[Any, ...], bool
]


class Replay:
    """A program as a list of calls on numbered slots, composites inlined.

    What differs from applying its ops one by one: specs are not inferred anew, and only results
    get memory of their own.
    """

    def __init__(self, program: Program) -> None:
        parameters = (*program.captures, *program.inputs)
        self.specs = tuple(v.spec for v in parameters)
        self.constants: list[Any] = [None] * len(parameters)
        self.steps: list[Step] = []
        slots: dict[Var, int] = {v: i for i, v in enumerate(parameters)}
        self._add(program, slots)
        self.outputs = tuple(self._slot(a, slots) for a in program.outputs)

    def _slot(self, atom: Any, slots: dict[Var, int]) -> int:
        if not isinstance(atom, Literal):
            return slots[atom]
        self.constants.append(atom.value)
        return len(self.constants) - 1

    def _new(self) -> int:
        self.constants.append(None)
        return len(self.constants) - 1

    def _add(self, program: Program, slots: dict[Var, int]) -> None:
        for eq in program.equations:
            inputs = tuple([self._slot(a, slots) for a in eq.inputs])
            if eq.op.body is not None:
                body = body_program(eq.op, tuple([a.spec for a in eq.inputs]), eq.params)
                inner = dict(zip(body.inputs, inputs, strict=True))
                self._add(body, inner)
                for v, a in zip(eq.outputs, body.outputs, strict=True):
                    slots[v] = self._slot(a, inner)
                continue
            outputs = tuple([self._new() for _ in eq.outputs])
            slots.update(zip(eq.outputs, outputs, strict=True))
            dtypes = tuple([v.spec.dtype for v in eq.outputs])
            single = not eq.op.multiple
            self.steps.append((_callable(eq), inputs, dict(eq.params), outputs, dtypes, single))

    def takes(self, args: Sequence[Array]) -> bool:
        """Whether arrays have the shapes and dtypes the program was traced at."""
        return len(args) == len(self.specs) and all(
            [Spec(a.shape, a.dtype) is s for a, s in zip(args, self.specs, strict=True)]
        )

    def __call__(self, args: Sequence[Array]) -> tuple[Array, ...]:
        """Results for captures and inputs that `takes` accepts."""
        if _is_quiet.get():
            return self._run(args)
        with quiet():
            return self._run(args)

    def _run(self, args: Sequence[Array]) -> tuple[Array, ...]:
        env = self.constants.copy()
        env[: len(self.specs)] = args
        for call, inputs, params, outputs, dtypes, single in self.steps:
            count = len(inputs)
            if count == 2:  # most steps have two operands or one
                result = call(env[inputs[0]], env[inputs[1]], **params)
            elif count == 1:
                result = call(env[inputs[0]], **params)
            else:
                result = call(*[env[i] for i in inputs], **params)
            if single:
                if type(result) is not np.ndarray or result.dtype is not dtypes[0]:
                    result = np.asarray(result, dtypes[0])
                env[outputs[0]] = result
            else:
                for i, value, dtype in zip(outputs, result, dtypes, strict=True):
                    env[i] = np.asarray(value, dtype)
        return self._results(env, args)

    def _results(self, env: list[Any], args: Sequence[Any]) -> tuple[Array, ...]:
        """Results that share no memory with arguments, constants or one another."""
        found: list[Array] = []
        taken = set(map(id, args))
        for i in self.outputs:
            value = env[i]
            if value.base is not None or not value.flags.writeable or id(value) in taken:
                value = value.copy()
            taken.add(id(value))
            found.append(value)
        return tuple(found)


def _callable(eq: Equation) -> Callable[..., Any]:
    """The op's `impl`, with `run_native` for a control op and narrow floats widened."""
    impl = eq.op.impl
    assert impl is not None
    if eq.op.control:
        return lambda *values, **params: impl(run_native, *values, **params)
    for a in eq.inputs:
        if _is_narrow(a.spec.dtype):
            return lambda *values, **params: impl(*map(_widened, values), **params)
    return _DIRECT.get(impl, impl) if "axis" in eq.params else impl


# The loops that NumPy's reductions of an array along given axes run, without the way there.
_DIRECT: Mapping[Any, Callable[..., Any]] = {
    np.sum: np.add.reduce,
    np.prod: np.multiply.reduce,
    np.max: np.maximum.reduce,
    np.min: np.minimum.reduce,
}


def replay(program: Program) -> Replay:
    """The replay of a program, made once."""
    found: Replay | None = program.__dict__.get("_replay")
    if found is None:
        found = Replay(program)
        object.__setattr__(program, "_replay", found)
    return found


def run_native(program: Program, *args: Any) -> tuple[Array, ...]:
    """Apply a program to arrays: captures first, then inputs."""
    found = replay(program)
    return found(
        [
            a if type(a) is np.ndarray else np.asarray(a, s.dtype)
            for a, s in zip(args, found.specs, strict=True)
        ]
    )
