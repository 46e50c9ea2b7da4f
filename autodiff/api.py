"""The transforms: jvp, vjp, linearize, grad, value_and_grad, hvp and vmap of Python functions."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.argnums import positions, require_scalar, split, wanted_leaves
from autodiff.errors import NotDifferentiableError, ShapeError, TreeError
from autodiff.forward import is_inexact, jvp_eval
from autodiff.program import Program, Spec
from autodiff.reverse import vjp_eval
from autodiff.trace import (
    as_value,
    bind,
    concrete_of,
    function_name,
    quoted,
    refuse_captures,
    require_callable,
    spec_of,
    trace_flat,
    user_line,
)
from autodiff.tracer import Tracer


def trace(f: Callable[..., Any], *args: Any) -> Program:
    """The program of `f` at the arguments' shapes and dtypes.

    Arguments: arrays, or `Spec`s where there is no value (a Python branch on a traced value then
    fails), in any containers. Returns a verified Program. Raises TracerError where the function
    leaves the traced world, or closes over a traced value of an outer transform.
    """
    require_callable(f, "trace")
    from autodiff.program import verify

    leaves, in_tree = tree.flatten(args)
    values = [leaf if isinstance(leaf, Spec) else as_value(leaf, "argument") for leaf in leaves]
    concretes = [None if isinstance(v, Spec) else concrete_of(v) for v in values]
    specs = [v if isinstance(v, Spec) else spec_of(v) for v in values]
    program, captured = trace_flat(f, specs, in_tree, concretes)
    refuse_captures(program.name, captured)
    return verify(program)


def _traced(
    f: Callable[..., Any], args: Sequence[Any]
) -> tuple[Program, list[Any], tuple[Tracer, ...]]:
    """Program of `f` at arguments, the flat argument values, and the captured outer values."""
    leaves, in_tree = tree.flatten(tuple(args))
    values = [as_value(leaf, "argument") for leaf in leaves]
    program, captured = trace_flat(
        f, [spec_of(v) for v in values], in_tree, [concrete_of(v) for v in values]
    )
    return program, values, captured


def owned_results(values: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Results as arrays that share no memory with inputs or one another."""
    owned: list[Any] = []
    for value in values:
        if not isinstance(value, Tracer):
            value = np.asarray(value)
            others = [v for v in (*inputs, *owned) if isinstance(v, np.ndarray)]
            if not value.flags.writeable or any(np.may_share_memory(value, o) for o in others):
                value = value.copy()
        owned.append(value)
    return owned


def _kept(values: Sequence[Any]) -> list[Any]:
    """Copies of arrays, for a map that is called later: the caller may overwrite the originals."""
    return [v.copy() if isinstance(v, np.ndarray) else v for v in values]


def instantiate(value: Any, spec: Spec) -> Any:
    """A symbolic zero as an array."""
    return np.zeros(spec.shape, spec.dtype) if value is None else value


def _tangent(value: Any, primal: Any, what: str) -> Any:
    """A tangent or cotangent fitted to its primal; None and integer primals give None."""
    spec = spec_of(primal)
    if value is None or not is_inexact(spec.dtype):
        return None
    value = as_value(value, what)
    given = spec_of(value)
    if given.shape != spec.shape:
        raise ShapeError(
            f"{what} has shape {given.shape}",
            f"its primal value has shape {spec.shape}",
            f"pass an array of shape {spec.shape}",
        )
    if given.dtype.kind == "c" and spec.dtype.kind != "c":
        raise ShapeError(
            f"{what} is complex",
            f"its primal value is {spec.dtype.name}",
            "pass real values, e.g. its real part np.real(t)",
        )
    return value if given.dtype == spec.dtype else bind("CAST", value, dtype=spec.dtype)


def jvp(f: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Value and directional derivative: `(f(x), f'(x) v)`.

    Arguments: `primals` and `tangents` are tuples of f's positional arguments and of tangents of
    the same containers and shapes; a tangent may be None (held fixed), and is ignored for integer
    and bool leaves. Returns output and output tangent in f's own containers (None for integer and
    bool outputs). Raises TreeError, ShapeError for tangents that do not match,
    NotDifferentiableError where no argument is floating or complex.
    """
    require_callable(f, "jvp")
    program, values, captured = _traced(f, _as_tuple(primals, "primals"))
    _require_inexact(values, "jvp", f)
    dots = _flat_tangents(tangents, program, values)
    outs, out_dots = jvp_eval(program, values, dots, captured)
    results = owned_results(
        [
            *outs,
            *(_output_tangent(d, a.spec) for d, a in zip(out_dots, program.outputs, strict=True)),
        ],
        values + dots,
    )
    n = len(outs)
    return (
        tree.unflatten(program.out_tree, results[:n]),
        _unflatten_none(program.out_tree, results[n:]),
    )


def _output_tangent(value: Any, spec: Spec) -> Any:
    return instantiate(value, spec) if is_inexact(spec.dtype) else None


def _unflatten_none(treedef: Any, leaves: Sequence[Any]) -> Any:
    clean = [None if _is_none(leaf) else leaf for leaf in leaves]
    return tree.unflatten(treedef, clean)


def _is_none(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _require_inexact(values: Sequence[Any], transform: str, f: Callable[..., Any]) -> None:
    """There must be something to differentiate: integers and bools are held fixed."""
    if not any(is_inexact(spec_of(v).dtype) for v in values):
        held = ", ".join(sorted({spec_of(v).dtype.name for v in values})) or "no arrays"
        raise NotDifferentiableError(
            f"{transform} of '{function_name(f)}' at arguments that hold {held} alone",
            quoted(user_line()),
            "integers and bools have no tangent space: convert with x.astype(float)",
        )


def _as_tuple(values: Any, what: str) -> tuple[Any, ...]:
    if not isinstance(values, tuple | list):
        raise TreeError(
            f"{what} is a {type(values).__name__}",
            quoted(user_line()),
            f"pass a tuple with one entry per argument: ({what[:-1]},)",
        )
    return tuple(values)


def _flat_tangents(tangents: Any, program: Program, values: Sequence[Any]) -> list[Any]:
    given = _as_tuple(tangents, "tangents")
    leaves = tree.flatten_up_to(given, program.in_tree, "tangents")
    return [
        _tangent(t, v, f"tangent {i}") for i, (t, v) in enumerate(zip(leaves, values, strict=True))
    ]


def linearize(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Value, and the linear function v -> f'(x) v with everything independent of v precomputed.

    Returns `(y, f_jvp)`; `f_jvp(*tangents)` takes tangents as `jvp` does. Use it for many
    directions at one point.
    """
    require_callable(f, "linearize")
    from autodiff.interpret import run

    program, values, captured = _traced(f, primals)
    _require_inexact(values, "linearize", f)
    values = _kept(values)
    leaves_tree = program.in_tree
    outs: list[Any] = []

    def tangent_map(*tangents: Any) -> Any:
        given = iter(tangents)
        dots = [next(given) if is_inexact(spec_of(v).dtype) else None for v in values]
        primal_outs, out_dots = jvp_eval(program, values, dots, captured)
        outs[:] = primal_outs
        return tuple(
            instantiate(d, a.spec) if is_inexact(a.spec.dtype) else 0
            for d, a in zip(out_dots, program.outputs, strict=True)
        )

    specs = [s for s in map(spec_of, values) if is_inexact(s.dtype)]
    flat_tree = tree.flatten((0,) * len(specs))[1]
    linear, known = trace_flat(tangent_map, specs, flat_tree, absorb=False, name="f_jvp")

    def f_jvp(*tangents: Any) -> Any:
        leaves = tree.flatten_up_to(tuple(tangents), leaves_tree, "tangents")
        dots = [
            instantiate(_tangent(t, v, f"tangent {i}"), spec_of(v))
            for i, (t, v) in enumerate(zip(leaves, values, strict=True))
            if is_inexact(spec_of(v).dtype)
        ]
        with np.errstate(all="ignore"):
            results = run(linear, dots, known)
        keep = [
            r if is_inexact(a.spec.dtype) else None
            for r, a in zip(owned_results(results, dots), program.outputs, strict=True)
        ]
        return tree.unflatten(program.out_tree, keep)

    return tree.unflatten(program.out_tree, owned_results(outs, (*values, *known))), f_jvp


def vjp(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """Value and pullback: `pullback(ct)` returns the cotangents of the positional arguments.

    The pullback keeps copies: primals and value may be written over before it is called.
    The cotangent has the output's containers (None entries are zero); integer and bool arguments
    get None. The pairing is `Re sum(u * v)` without conjugation, so for complex z = x + iy and a
    real output u the result for `ct = 1` is du/dx - i du/dy.
    Raises NotDifferentiableError where no argument is floating or complex.
    """
    require_callable(f, "vjp")
    program, values, captured = _traced(f, primals)
    _require_inexact(values, "vjp", f)
    values = _kept(values)
    outs, pull = vjp_eval(program, values, captured)
    # the pullback holds its outputs too: y written over must not change it (NVIDIA/warp#1350)
    result = tree.unflatten(program.out_tree, owned_results(outs, (*values, *outs)))

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        leaves = tree.flatten_up_to(cotangent, program.out_tree, "cotangent")
        cts = [
            None if ct is None or not is_inexact(a.spec.dtype) else _tangent(ct, a, "cotangent")
            for ct, a in zip(leaves, program.outputs, strict=True)
        ]
        pulled = pull(cts)[: len(values)]
        filled = [
            instantiate(p, spec_of(v)) if is_inexact(spec_of(v).dtype) else None
            for p, v in zip(pulled, values, strict=True)
        ]
        present = iter(owned_results([p for p in filled if p is not None], cts))
        grads = [None if p is None else next(present) for p in filled]
        return tuple(tree.unflatten(program.in_tree, grads))

    return result, pullback


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function returning `(f(x), gradient)`; see `grad`.

    With `has_aux`, `((f(x), aux), gradient)`.
    """
    require_callable(f, "value_and_grad")

    @functools.wraps(f)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        function = functools.partial(f, **kwargs) if kwargs else f
        nums = positions(argnums, len(args), function_name(f))
        program, values, captured = _traced(function, args)
        wanted, kept = wanted_leaves(args, nums, values, function_name(f))
        require_scalar(program, has_aux, function_name(f))
        outs, pull = vjp_eval(program, values, captured, wanted)
        seed = np.ones((), outs_dtype(program))
        pulled = pull([seed] + [None] * (len(outs) - 1))
        grads = [
            instantiate(pulled[i], spec_of(values[i]))
            if is_inexact(spec_of(values[i]).dtype)
            else None
            for i in kept
        ]
        n = len(outs)
        present = iter(owned_results([*outs, *(g for g in grads if g is not None)], values))
        results = [next(present) for _ in range(n)]
        filled = [None if g is None else next(present) for g in grads]
        return tree.unflatten(program.out_tree, results), split(filled, args, nums, argnums)

    return value_and_gradient


def outs_dtype(program: Program) -> np.dtype[Any]:
    """Dtype of the first output."""
    return program.outputs[0].spec.dtype


def grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function returning the gradient of a scalar function.

    Arguments: `argnums` names the positional arguments to differentiate (one gives a bare
    gradient, a tuple a tuple); integer and bool leaves inside get None. With `has_aux`, f returns
    (value, aux) and the result is (gradient, aux).
    Raises NotDifferentiableError for an argument without inexact leaves or a non-real output,
    ShapeError for an output that is not a scalar.
    For complex z = x + iy and real f, the gradient is df/dx - i df/dy.
    """
    require_callable(f, "grad")
    both = value_and_grad(f, argnums, has_aux)

    @functools.wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, g = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g

    return gradient


def hvp(f: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    """Hessian-vector product of a scalar function of its positional arguments, forward over
    reverse: for one argument `H(x) v`; for several, a tuple.
    """
    require_callable(f, "hvp")
    args = _as_tuple(primals, "primals")
    nums = tuple(
        i
        for i, a in enumerate(args)
        if any(is_inexact(spec_of(as_value(v, "primal")).dtype) for v in tree.flatten(a)[0])
    )
    if not nums:
        raise NotDifferentiableError(
            f"hvp of '{function_name(f)}' over integer arguments only",
            quoted(user_line()),
            "integers and bools have no tangent space: convert with x.astype(float)",
        )
    gradient = grad(f, argnums=nums if len(args) > 1 else 0)
    _, dots = jvp(gradient, args, tangents)
    if len(args) == 1:
        return dots
    full: list[Any] = [None] * len(args)
    for i, d in zip(nums, dots, strict=True):
        full[i] = d
    return tuple(full)
