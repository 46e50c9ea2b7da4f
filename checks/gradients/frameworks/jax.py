"""JAX functions: `jax.vjp`, `jax.jvp` and `jax.vmap`, with x64 on for the check alone."""

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.optional import require
from checks.gradients.framework import Flat, Framework
from checks.gradients.modes import ModeError, UndefinedModeError, first_line
from checks.gradients.report import NOT_DIFFERENTIABLE, WRONG_DTYPE, WRONG_SHAPE

jax = require("jax", "jax", "a gradient check of a JAX function")
require("jax.extend.core", "jax", "a gradient check of a JAX function")

Array = np.ndarray[Any, Any]
LOOPS = ("scan", "while", "cond")

# What JAX says of a function that lacks one transform; the other transforms may be defined.
_NO_SUCH_MODE = (
    "can't apply forward-mode",  # custom_vjp
    "Reverse-mode differentiation does not work",  # while_loop
    "do not support JVP",  # pure_callback, io_callback
    "callbacks do not support",
    "Linearization failed to produce known values",  # custom_vmap has no transpose
    "gradient with respect to",  # "... not supported": betainc and its like
)
_RULE_ERRORS = ("Custom VJP bwd rule must", "Custom JVP rule must")
_TYPES = re.compile(r"(\w+)\[([\d, ]*)\]")


def _owns(value: Any) -> bool:
    if isinstance(value, jax.Array):
        return not _is_extended(value)
    return isinstance(value, np.ndarray | np.generic) or type(value) in (float, complex)


def _is_extended(value: Any) -> bool:
    """Whether an array holds random keys, which have no numbers."""
    return bool(jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended))


def _native(values: Array, like: Any) -> Any:
    with jax.ensure_compile_time_eval():  # what a function holds fixed may be made while tracing
        return _placed(values, like)


def _placed(values: Array, like: Any) -> Any:
    if type(like) in (float, complex):  # weakly typed, as the user's own number
        if not values.shape:
            return jax.device_put(type(like)(values))
        return jax.numpy.full(values.shape, type(like)(0)).at[...].set(values)
    # a copy, for JAX may share NumPy's memory; jnp.array would compile one for every shape
    made = jax.device_put(np.array(values))
    if not isinstance(like, jax.Array) or isinstance(like, jax.core.Tracer):
        return made
    if like.shape == made.shape and len(like.devices()) > 1:
        return jax.device_put(made, like.sharding)
    home = next(iter(like.devices()))
    return made if home in made.devices() else jax.device_put(made, home)


def _alive(value: Any) -> bool:
    """Whether an array still holds its numbers: a jit that it was donated to deletes it."""
    return not isinstance(value, jax.Array) or not value.is_deleted()


def _numpy(value: Any) -> Array:
    if isinstance(value, jax.Array) and _is_extended(value):
        value = jax.random.key_data(value)
    return np.asarray(value)


def _listed(flat: Flat) -> Callable[..., list[Any]]:
    def function(*arrays: Any) -> list[Any]:
        return list(flat(list(arrays)))

    return function


@contextlib.contextmanager
def _translated(transform: str) -> Iterator[None]:
    """JAX's refusals as what they mean for a check; other exceptions pass."""
    try:
        yield
    except NotImplementedError as error:
        raise UndefinedModeError(first_line(error)) from error
    except jax.errors.TracerArrayConversionError as error:
        if transform == "vmap":
            raise UndefinedModeError(first_line(error)) from error
        text = "it turns its arguments into NumPy arrays, where JAX cannot follow"
        raise ModeError(NOT_DIFFERENTIABLE, text) from error
    except (jax.errors.ConcretizationTypeError, jax.errors.NonConcreteBooleanIndexError) as error:
        raise UndefinedModeError(first_line(error)) from error
    except (TypeError, ValueError) as error:
        text = str(error)
        if any(words in text for words in _NO_SUCH_MODE):
            raise UndefinedModeError(first_line(error)) from error
        if text.startswith(_RULE_ERRORS):
            raise ModeError(_rule_fault(text), first_line(error)) from error
        raise


def _rule_fault(text: str) -> str:
    """WRONG_DTYPE where the two types that JAX prints differ in nothing else."""
    found = [(dtype, shape) for dtype, shape in _TYPES.findall(text)]
    same_shape = len(found) > 1 and len({shape for _, shape in found}) == 1
    return WRONG_DTYPE if same_shape and len({dtype for dtype, _ in found}) > 1 else WRONG_SHAPE


def _known(value: Any) -> Any:
    """A derivative, or None where JAX has only the empty `float0` to say."""
    return None if getattr(value, "dtype", None) == jax.dtypes.float0 else value


def _vjp(
    flat: Flat, primals: Sequence[Any]
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    with _translated("vjp"):
        outs, pull = jax.vjp(_listed(flat), *primals)

    def pullback(cotangents: Sequence[Any]) -> list[Any]:
        with _translated("vjp"):
            return [_known(g) for g in pull(list(cotangents))]

    return outs, pullback


def _jvp(
    flat: Flat, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    dots = [
        jax.numpy.zeros_like(x) if t is None else t for x, t in zip(primals, tangents, strict=True)
    ]
    with _translated("jvp"):
        outs, out_dots = jax.jvp(_listed(flat), tuple(primals), tuple(dots))
    return outs, [_known(t) for t in out_dots]


def _vmap(flat: Flat, in_axes: Sequence[int | None]) -> Flat:
    mapped = jax.vmap(_listed(flat), in_axes=tuple(in_axes))

    def function(arrays: Sequence[Any]) -> list[Any]:
        with _translated("vmap"):
            return list(mapped(*arrays))

    return function


def _is_node(leaf: Any) -> bool:
    """Whether JAX knows containers of this type that the engine does not."""
    return not jax.tree_util.all_leaves([leaf])


def _opened(leaf: Any) -> Any:
    """A container that JAX alone knows as a dict of its leaves by their paths."""
    if not _is_node(leaf):
        return leaf
    found = jax.tree_util.tree_flatten_with_path(leaf)[0]
    return {jax.tree_util.keystr(path): value for path, value in found}


def _prepare(function: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Containers registered with JAX alone (arguments and results) as dicts of their leaves."""
    leaves, treedef = tree.flatten(args)
    inner = [
        (jax.tree_util.tree_structure(x), list(_opened(x))) if _is_node(x) else None for x in leaves
    ]

    @functools.wraps(function, updated=())
    def opened(*given: Any) -> Any:
        parts = tree.flatten_up_to(given, treedef, "the arguments")
        whole = [
            part if d is None else jax.tree_util.tree_unflatten(d[0], [part[k] for k in d[1]])
            for part, d in zip(parts, inner, strict=True)
        ]
        return tree.map_leaves(_opened, function(*tree.unflatten(treedef, whole)))

    return opened, tuple(tree.unflatten(treedef, [_opened(x) for x in leaves]))


@contextlib.contextmanager
def _scope() -> Iterator[None]:
    """float64 stays float64, and a probe outside the domain is ours to judge."""
    with jax.enable_x64(True), jax.debug_nans(False), jax.debug_infs(False):
        yield


def _replay(flat: Flat, arrays: Sequence[Any]) -> Flat:
    """The equations that JAX records of a function, run one by one: the same roundings without the
    tracing, and loops compiled once (a `lax.scan` over a new lambda is compiled at every call).
    A function whose Python looks at values comes back as it is.
    """
    try:
        closed = jax.make_jaxpr(_listed(flat))(*arrays)
    except Exception:  # whatever it raises where it is traced: it is called as it is
        return flat
    run = jax.extend.core.jaxpr_as_fun(closed)
    return lambda values: list(run(*values))


def has_loops(flat: Flat, arrays: Sequence[Any]) -> bool:
    """Whether JAX compiles a part of a function anew at every call: a loop that no jit holds."""
    try:
        closed = jax.make_jaxpr(_listed(flat))(*arrays)
    except Exception:  # whatever it raises where it is traced: it is called as it is
        return False
    return any(eqn.primitive.name in LOOPS for eqn in closed.jaxpr.eqns)


def _inside(flat: Flat, arrays: Sequence[Any]) -> set[str]:
    """The dtypes of what the recorded equations compute, those of inner functions included."""
    return _dtypes(jax.make_jaxpr(_listed(flat))(*arrays).jaxpr)


def _dtypes(jaxpr: Any) -> set[str]:
    found = set()
    for eqn in jaxpr.eqns:
        found |= {str(getattr(v.aval, "dtype", "")) for v in eqn.outvars}
        for inner in inner_jaxprs(eqn):
            found |= _dtypes(inner)
    return found


def inner_jaxprs(eqn: Any) -> list[Any]:
    """The functions that an equation holds: branches, loop bodies, what a jit calls."""
    held = []
    for value in eqn.params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                held.append(inner)
    return held


def compiled(flat: Flat) -> Flat:
    """The same flat function under `jax.jit`."""
    jitted = jax.jit(_listed(flat))

    def function(arrays: Sequence[Any]) -> list[Any]:
        with _translated("jit"):
            return list(jitted(*arrays))

    return function


FRAMEWORK = Framework(
    name="jax",
    owns=_owns,
    native=_native,
    numpy=_numpy,
    vjp=_vjp,
    jvp=_jvp,
    vmap=_vmap,
    prepare=_prepare,
    replay=_replay,
    inside=_inside,
    alive=_alive,
    scope=_scope,
)
