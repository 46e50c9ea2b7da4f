"""The fast executor: `compile` turns a function into NumPy calls that reuse buffers."""

import builtins
import functools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.codegen import Source, generate
from autodiff.dispatch import MISS, make_attempt
from autodiff.errors import GuardError, ShapeError
from autodiff.program import Program, Spec, verify
from autodiff.render import input_leaves
from autodiff.trace import (
    as_value,
    concrete_of,
    function_name,
    require_callable,
    spec_of,
    trace_flat,
)
from autodiff.tracer import Tracer

Array = np.ndarray[Any, Any]
VARIANTS = 64  # programs kept for one spec, each for other decisions of the Python branches


class Executable:
    """One compiled program: a function of flat arrays and the workspaces it runs in.

    Each call takes a workspace of its own, so that threads and nested calls never share buffers.
    Results are new arrays, or large ones of earlier calls that nothing refers to any more.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        name = program.name if program.name.isidentifier() else "f"
        self.source: Source = generate(program, f"{name}_flat", _hints(program))
        space = self.source.namespace()
        head = self.source.head()
        if head:
            exec(_code(head, "<kernels>"), space)
        exec(_code(self.source.body, f"<compiled {name}>"), space)
        self.run: Callable[..., tuple[Array, ...]] = space[self.source.name]
        self.workspace: Callable[[], tuple[Array, ...]] = space["workspace"]
        self.pool: deque[tuple[Array, ...]] = deque()
        self._attempts: dict[tuple[type, ...], Callable[[tuple[Any, ...]], Any] | None] = {}

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Results for flat arrays of the program's specs, captures first."""
        try:
            buffers = self.pool.pop()
        except IndexError:
            buffers = self.workspace()
        try:
            return self.run(buffers, *arrays)
        finally:
            self.pool.append(buffers)

    def attempt(self, kinds: tuple[type, ...]) -> Callable[[tuple[Any, ...]], Any] | None:
        """The function of an argument tuple whose leaves are of these types (`make_attempt`)."""
        if kinds not in self._attempts:
            names = {"run": self.run, "workspace": self.workspace, "pool": self.pool}
            trees = (self.program.in_tree, self.program.out_tree)
            self._attempts[kinds] = make_attempt(*trees, self.program.in_specs, kinds, names)
        return self._attempts[kinds]


@functools.lru_cache(maxsize=256)
def _code(text: str, name: str) -> CodeType:
    """The code of a text; programs share kernels, and often differ in constants alone."""
    return builtins.compile(text, name, "exec")


def _hints(program: Program) -> list[str]:
    """Names of captures and inputs, from the parameters and keys they come from."""
    captured = [f"captured_{i}" for i in range(len(program.captures))]
    return captured + [leaf.name for leaf in input_leaves(program)]


def _native_order(value: Any) -> Any:
    """An array in the machine's byte order."""
    if isinstance(value, np.ndarray) and not value.dtype.isnative:
        return value.astype(value.dtype.newbyteorder("="))
    return value


def compile_program(program: Program) -> Callable[..., tuple[Array, ...]]:
    """A program as a fast function of flat arrays (captures first) to a tuple of new arrays.

    The function computes at the arrays' own dtypes, which are the program's; it raises ShapeError
    for arrays of other specs and GuardError where a traced Python branch decides otherwise.
    """
    executable = Executable(program)
    specs = tuple(v.spec for v in (*program.captures, *program.inputs))

    def run(*args: Any) -> tuple[Array, ...]:
        arrays = [_native_order(np.asarray(a)) for a in args]
        found = tuple(Spec(a.shape, a.dtype) for a in arrays)
        if found != specs:
            raise ShapeError(
                f"program '{program.name}' was called with {', '.join(map(str, found))}",
                f"it was compiled for {', '.join(map(str, specs))}",
                "compile it for these arrays: autodiff.compile does by itself",
            )
        return executable(*arrays)

    return run


class Compiled:
    """What `compile` returns: programs by the arguments' containers, shapes and dtypes."""

    def __init__(self, f: Callable[..., Any]) -> None:
        functools.update_wrapper(self, f)
        self._f = f
        self._lock = threading.RLock()  # f may call itself on constants
        self._variants: dict[tuple[Any, ...], list[Executable]] = {}
        self._recent: Callable[[tuple[Any, ...]], Any] | None = None
        self._last: Executable | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result; traced values are passed on to the function itself."""
        recent = self._recent
        if recent is not None and not kwargs:
            try:
                result = recent(args)
            except GuardError:
                result = MISS
            if result is not MISS:
                return result
        return self._call(args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    @property
    def executables(self) -> tuple[Executable, ...]:
        """The programs compiled so far."""
        return tuple(e for group in self._variants.values() for e in group)

    def text(self) -> str:
        """Source of the plan that ran last (`autodiff.render` prints it)."""
        from autodiff.render_compiled import module_text

        if self._last is None:
            raise ShapeError(
                f"'{function_name(self._f)}' has not been called yet",
                "a plan is made for the first arguments",
                "call the compiled function once, then render it",
            )
        return module_text(self._last.program, self._last.source)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        f, given = self._f, args
        if kwargs:
            f, given = _with_keywords(self._f), (args, kwargs)
        leaves, in_tree = tree.flatten(given)
        values = [_native_order(as_value(leaf, "argument")) for leaf in leaves]
        if any(isinstance(v, Tracer) for v in values):
            return self._f(*args, **kwargs)
        key = (in_tree, *(spec_of(v) for v in values))
        for executable in tuple(self._variants.get(key, ())):
            try:
                results = executable(*values)
            except GuardError:
                continue
            self._remember(executable, leaves, not kwargs)
            return tree.unflatten(executable.program.out_tree, results)
        with self._lock:
            made = self._trace(f, values, in_tree, key)
        if made is None:
            return self._f(*args, **kwargs)
        results = made(*values)
        self._remember(made, leaves, not kwargs)
        return tree.unflatten(made.program.out_tree, results)

    def _trace(
        self, f: Callable[..., Any], values: Sequence[Any], in_tree: Any, key: tuple[Any, ...]
    ) -> Executable | None:
        """A new program for these values; None where f closes over a traced value."""
        specs = [spec_of(v) for v in values]
        program, captured = trace_flat(f, specs, in_tree, [concrete_of(v) for v in values])
        if captured:
            return None
        executable = Executable(verify(program))
        variants = self._variants.setdefault(key, [])
        variants.insert(0, executable)
        del variants[VARIANTS:]
        return executable

    def _remember(self, executable: Executable, leaves: Sequence[Any], positional: bool) -> None:
        """Try this program first at the next call."""
        self._last = executable
        if positional:
            self._recent = executable.attempt(tuple(type(leaf) for leaf in leaves))


def _with_keywords(f: Callable[..., Any]) -> Callable[..., Any]:
    def with_keywords(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return f(*args, **kwargs)

    with_keywords.__name__ = function_name(f)
    return with_keywords


def compile(f: Callable[..., Any]) -> Compiled:
    """A function that runs `f` fast: traced once per containers, shapes and dtypes of arguments.

    Arguments: a function of arrays in any containers; it may be a transform, as
    `compile(value_and_grad(loss))`. Returns a callable with the same arguments and results, for
    which NumPy writes into reused buffers, chains of elementwise ops run block by block in the
    cache, and equal computations are done once. Values have their own dtypes (16-bit floats are
    computed in float32 and rounded after each op); float64 results equal the interpreter's bit for
    bit where nothing is summed. Results are new arrays (a large one may take the memory of an
    earlier result that nothing refers to any more); arguments are never modified.
    A Python branch on a value is decided anew at each call: where it goes another way the function
    is traced again, and both programs are kept. What f computes without its arguments, arrays it
    closes over above all, is constant. Called on traced values it calls `f`. Any number of threads
    may call it. `autodiff.render(compiled)` prints the plan that ran last.
    """
    require_callable(f, "compile")
    return Compiled(f)
