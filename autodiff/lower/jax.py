"""Programs as JAX functions: every primitive through one call, composites through their bodies."""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from autodiff import taps, tree
from autodiff.errors import AutodiffError, ShapeError
from autodiff.interpret import Reference, base_width, evaluate_native, float_dtype
from autodiff.lower.options import lowering
from autodiff.lower.shared import shared
from autodiff.op import Op, body_program, get
from autodiff.optional import require
from autodiff.program import Equation, Literal, Program, Spec, Var, sub_programs
from autodiff.rounding import cast

DtypeMap = Callable[[np.dtype[Any]], np.dtype[Any]]
# Lists of {line: (value, expected)} of guards and {name: value} of taps. As the keys are part of a
# container's structure, they survive jit.
Effects = tuple[list[dict[str, Any]], list[dict[str, Any]]]
ROOTS = {"jnp": "jax.numpy", "lax": "jax.lax", "jax": "jax"}
# Composites of the library: ours are lowered through their own bodies.
_FORBIDDEN = ("jax.nn.", "jax.scipy.special.logsumexp", "jax.scipy.special.softmax")


class LoweringError(AutodiffError):
    """An op's lowering is missing or contradicts its spec rule."""


def lower_jax(
    program: Program, *, portable: bool = False, precision: str | None = None
) -> Callable[..., Any]:
    """A program as a function for JAX, usable inside and outside `jax.jit`.

    Outside a JAX transform the function is compiled on first use and run on JAX's default device,
    with 64-bit types enabled for the call alone where the program has any; inside one it is
    inlined. Every value has the dtype its spec states, never a weak one, and literals are exact.

    Python branches of the traced function (GUARD) are checked, and tapped values handed to open
    sinks, after each call on concrete arrays. Inside `jax.jit`, `jax.grad` or `jax.vmap` no value
    is known, and both are left out; so are they always inside loops and conditionals.

    Args:
        program: a program without captures, as `autodiff.trace` returns.
        portable: spell `algorithm="f32"` products `precision=HIGHEST` instead of as a dot
            algorithm preset, which some backends reject.
        precision: "float64", "float32", "bfloat16" or "float16" to give every floating value that
            width, as `autodiff.interpret` does; None keeps the program's own dtypes.

    Returns:
        A function that takes the traced function's containers, with NumPy or JAX arrays of the
        traced shapes (converted to the dtypes of the inputs), and returns its containers with
        JAX arrays.

    Raises:
        MissingPackageError: JAX is not installed.
        LoweringError: the program has captures; when called, an op has no lowering.
        ShapeError: when called, an argument has another shape than the one traced.
        GuardError: when called, a Python branch would be taken differently than when traced.
    """
    jax = require("jax", "jax", "autodiff.lower_jax")
    plain, tapped = (
        flat_function(program, portable=portable, precision=precision, with_taps=t)
        for t in (False, True)
    )
    compiled, compiled_tapped = jax.jit(plain), jax.jit(tapped)
    wide = needs_x64(program, precision)
    dtypes = input_dtypes(program, precision)

    def lowered(*args: Any) -> Any:
        leaves = _leaves(program, args)
        traced = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
        with jax.enable_x64(wide or jax.config.jax_enable_x64):
            arrays = [_argument(leaf, d) for leaf, d in zip(leaves, dtypes, strict=True)]
            if traced:
                outputs, _ = plain(*arrays)
            else:
                outputs, effects = compiled(*arrays)
                if taps.is_open():  # XLA fuses, and rounds, otherwise around a tapped value
                    effects = compiled_tapped(*arrays)[1]
                settle(effects)
        return outputs if program.out_tree is None else tree.unflatten(program.out_tree, outputs)

    lowered.__name__ = lowered.__qualname__ = program.name
    return lowered


def flat_function(
    program: Program,
    *,
    portable: bool = False,
    precision: str | None = None,
    with_taps: bool = False,
) -> Callable[..., tuple[tuple[Any, ...], Effects]]:
    """The program on flat JAX arrays of the dtypes `input_dtypes`: `(outputs, effects)`.

    `effects` holds the values of its GUARDs (and of its TAPs, `with_taps`), for `settle`. The
    function must be traced with 64-bit types enabled where `needs_x64` says so.
    """
    if program.captures:
        raise LoweringError(
            f"program '{program.name}' has {len(program.captures)} captured values",
            "in lower_jax",
            "trace a function that takes them as arguments",
        )
    import jax.numpy as jnp

    mode = _Lowering(dtype_map(program, precision), with_taps)

    def flat(*arrays: Any) -> tuple[tuple[Any, ...], Effects]:
        effects: Effects = ([], [])
        with lowering(portable):
            outputs = mode.run(program, [jnp.asarray(a) for a in arrays], effects)
        return outputs, effects

    name = "".join(c if c.isalnum() else "_" for c in program.name)
    flat.__name__ = flat.__qualname__ = name or "f"
    return flat


def dtype_map(program: Program, precision: str | None) -> DtypeMap:
    """The dtype that a value declared with a dtype has at a precision."""
    if precision is None:
        return lambda declared: declared
    return Reference(base_width(program), float_dtype(precision), "ieee", False).dtype


def input_dtypes(program: Program, precision: str | None = None) -> tuple[np.dtype[Any], ...]:
    """Dtypes of a program's inputs at a precision."""
    to = dtype_map(program, precision)
    return tuple(to(s.dtype) for s in program.in_specs)


def needs_x64(program: Program, precision: str | None = None) -> bool:
    """Whether any value of the program, its sub-programs and bodies has a 64-bit type."""
    to = dtype_map(program, precision)
    return any(_is_wide(to(d)) for d in _dtypes(program))


def _is_wide(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == (16 if dtype.kind == "c" else 8)


@functools.lru_cache(maxsize=1024)
def _dtypes(program: Program) -> frozenset[np.dtype[Any]]:
    found = {s.dtype for s in (*program.in_specs, *program.out_specs)}
    for eq in program.equations:
        found |= _equation_dtypes(eq)
        if eq.op.body is not None:
            found |= _dtypes(body_program(eq.op, tuple(a.spec for a in eq.inputs), eq.params))
    return frozenset(found)


def _equation_dtypes(eq: Equation) -> frozenset[np.dtype[Any]]:
    """Dtypes of an equation's values, those inside its sub-programs included."""
    own = frozenset(a.spec.dtype for a in (*eq.inputs, *eq.outputs))
    return own.union(*(_dtypes(sub) for sub in sub_programs(eq.params)))


class _Lowering:
    """One lowering: the evaluation of programs on JAX values at mapped dtypes."""

    def __init__(self, to: DtypeMap, with_taps: bool) -> None:
        self.to, self.with_taps = to, with_taps

    def run(self, program: Program, args: Sequence[Any], effects: Effects) -> tuple[Any, ...]:
        env: dict[Var, Any] = dict(zip(program.inputs, args, strict=True))
        for eq in program.equations:
            values = [self.read(a, env) for a in eq.inputs]
            if eq.op.kind == "GUARD":
                effects[0].append({str(eq.params["line"]): tuple(values)})
                continue
            if eq.op.kind == "TAP" and self.with_taps:
                effects[1].append({str(eq.params["name"]): values[0]})
            if eq.op.body is not None:
                body = body_program(eq.op, tuple(a.spec for a in eq.inputs), eq.params)
                results = self.run(body, values, effects)
            else:
                results = self.apply(eq, values, effects)
            env.update(zip(eq.outputs, results, strict=True))
        return tuple(self.read(a, env) for a in program.outputs)

    def read(self, atom: Var | Literal, env: Mapping[Var, Any]) -> Any:
        """The value of an operand; a literal is rounded once to its dtype here."""
        import jax.numpy as jnp

        if isinstance(atom, Var):
            return env[atom]
        dtype = self.to(atom.spec.dtype)
        same = dtype == atom.spec.dtype
        return jnp.asarray(atom.value if same else cast(atom.value, dtype))

    def apply(self, eq: Equation, values: list[Any], effects: Effects) -> tuple[Any, ...]:
        """Results of a primitive, with 64-bit types enabled where it has any.

        Elsewhere a Python scalar in a rule would become a float64 constant of the module.
        """
        from jax import enable_x64

        op = eq.op
        if op.kind == "TAP":
            return (values[0],)
        params = {k: self.to(v) if isinstance(v, np.dtype) else v for k, v in eq.params.items()}
        rule = shared(lowering_rule(op))
        given = (_Evaluate(self, effects), *values) if op.control else values
        with enable_x64(any(_is_wide(self.to(d)) for d in _equation_dtypes(eq))):
            result = rule(*given, **params)
            results = tuple(result) if op.multiple else (result,)
            return tuple(
                self.fitted(r, v.spec, op) for r, v in zip(results, eq.outputs, strict=True)
            )

    def fitted(self, value: Any, spec: Spec, op: Op) -> Any:
        """A result with exactly the dtype of its spec, and not a weak type."""
        from jax import lax
        from jax import numpy as jnp

        value = jnp.asarray(value)
        if value.shape != spec.shape:
            raise LoweringError(
                f"the jax lowering of {op.kind} returned shape {value.shape}",
                f"its spec rule gives {spec}",
                f"correct `jax={op.jax!r}` of op {op.kind}",
                kind=op.kind,
            )
        dtype = self.to(spec.dtype)
        if value.dtype == dtype and not value.weak_type:
            return value
        if value.dtype.kind == "c" and dtype.kind != "c":
            raise LoweringError(
                f"the jax lowering of {op.kind} returned {value.dtype.name}",
                f"its spec rule gives {dtype.name}",
                f"correct `jax={op.jax!r}` of op {op.kind}",
                kind=op.kind,
            )
        return lax.convert_element_type(value, dtype)


class _Evaluate:
    """The evaluator of sub-programs handed to the rules of control ops."""

    def __init__(self, mode: _Lowering, effects: Effects) -> None:
        self.mode, self.effects = mode, effects

    def __call__(self, program: Program, *args: Any) -> tuple[Any, ...]:
        """Results of a sub-program; what its guards and taps saw is dropped."""
        return self.mode.run(program, args, ([], []))

    def with_effects(self, program: Program, *args: Any) -> tuple[tuple[Any, ...], Effects]:
        """Results of a sub-program, and what its guards and taps saw."""
        effects: Effects = ([], [])
        return self.mode.run(program, args, effects), effects

    def keep(self, effects: Effects) -> None:
        """Hand the effects of an unconditional sub-program to the program around it."""
        self.effects[0].extend(effects[0])
        self.effects[1].extend(effects[1])


# --- rules ---------------------------------------------------------------------------------


@functools.cache
def rules() -> Mapping[str, Callable[..., Any]]:
    """Every function of the modules `autodiff.lower.rules_*`, by name; imports JAX."""
    from autodiff import lower

    found: dict[str, Callable[..., Any]] = {}
    for info in pkgutil.iter_modules(lower.__path__):
        if not info.name.startswith("rules_"):
            continue
        module = importlib.import_module(f"autodiff.lower.{info.name}")
        for name, value in vars(module).items():
            own = inspect.isfunction(value) and value.__module__ == module.__name__
            if not own or name.startswith("_"):
                continue
            if name in found:
                raise LoweringError(
                    f"two lowering rules are named '{name}'",
                    f"in {found[name].__module__} and {module.__name__}",
                    "rename one; a helper's name begins with an underscore",
                )
            found[name] = value
    return found


@functools.lru_cache(maxsize=1024)
def _resolve(name: str) -> Callable[..., Any] | None:
    from autodiff.lower.lean import DIRECT

    if name.startswith("rules:"):
        return rules().get(name.removeprefix("rules:"))
    if name in DIRECT:
        return DIRECT[name]
    root, *path = name.split(".")
    full = ".".join((ROOTS.get(root, root), *path))
    if root not in ROOTS or full.startswith(_FORBIDDEN):
        return None
    value: Any = importlib.import_module(ROOTS[root])
    for i, part in enumerate(path):
        if not hasattr(value, part) and inspect.ismodule(value) and i < len(path) - 1:
            value = importlib.import_module(f"{value.__name__}.{part}")
            continue
        value = getattr(value, part, None)
    return value if callable(value) else None


def lowering_rule(op: Op) -> Callable[..., Any]:
    """The function of JAX arrays that a primitive's `jax` field names.

    Raises:
        LoweringError: there is none, or it is a composite of the JAX library.
    """
    name = f"rules:control_{op.kind.lower()}" if op.control and op.jax is None else op.jax
    rule = None if name is None else _resolve(name)
    if rule is None:
        known = "no name is given" if name is None else f"`jax={name!r}` names nothing"
        raise LoweringError(
            f"op {op.kind} has no jax lowering",
            f"in its Op record: {known}",
            'name a function of jnp, lax or jax.scipy, or "rules:NAME" for one in '
            "autodiff/lower/rules_<topic>.py",
            kind=op.kind,
        )
    return rule


def missing_lowerings(ops: Iterable[Op]) -> tuple[str, ...]:
    """Kinds of the primitives among `ops` whose lowering cannot be resolved."""
    missing = []
    for op in ops:
        if op.impl is None or op.kind in ("GUARD", "TAP"):
            continue
        try:
            lowering_rule(op)
        except LoweringError:
            missing.append(op.kind)
    return tuple(missing)


# --- arguments and effects ------------------------------------------------------------------


def _leaves(program: Program, args: tuple[Any, ...]) -> list[Any]:
    """Flat arguments, NumPy or JAX arrays, of the traced shapes."""
    from autodiff.trace import as_value

    leaves = (
        list(args)
        if program.in_tree is None
        else tree.flatten_like(tuple(args), program.in_tree, "argument tuple")
    )
    if len(leaves) != len(program.inputs):
        raise ShapeError(
            f"program '{program.name}' takes {len(program.inputs)} arrays, got {len(leaves)}",
            "in the function that lower_jax returned",
            "pass one array per input of the program",
        )
    values = [v if hasattr(v, "aval") else as_value(v, "argument") for v in leaves]
    for i, (value, spec) in enumerate(zip(values, program.in_specs, strict=True)):
        if tuple(value.shape) != spec.shape:
            raise ShapeError(
                f"argument {i} of program '{program.name}' has shape {tuple(value.shape)}",
                f"it was traced at {spec}",
                "trace the function again at the new shape",
            )
    return values


def _argument(value: Any, dtype: np.dtype[Any]) -> Any:
    """An argument at the program's dtype: NumPy arrays are rounded once, and stay on the host.

    (`jnp.asarray` would compile a copy for every shape; a jitted function moves them itself.)
    """
    from jax import lax

    if hasattr(value, "aval"):
        return lax.convert_element_type(value, dtype)
    return value if value.dtype == dtype else cast(value, dtype)


def settle(effects: Effects) -> None:
    """Check guards and emit taps on the host, from a lowered function's concrete `effects`.

    Raises:
        GuardError: a value differs from the one a Python branch was traced with.
    """
    for guard in effects[0]:
        for line, (value, expected) in guard.items():
            evaluate_native(get("GUARD"), [np.asarray(value), np.asarray(expected)], {"line": line})
    for tap in effects[1]:
        for name, value in tap.items():
            taps.emit(name, np.asarray(value))
