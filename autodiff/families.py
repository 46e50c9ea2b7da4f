"""Constructors that fill an Op's fields from what its family cannot derive.

Each family states one shape rule, one batching rule and one way of writing derivatives:

  unary       elementwise of one operand; `deriv(x, y)` or `tangent(t, x, y)`
  binary      elementwise of two broadcasting operands; one `tangent` per operand
  linear      jvp is the op itself applied to the tangent
  nondiff     the result has no tangent space (bool, integer)
  composite   a body in other ops
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.op import Op, define
from autodiff.program import Spec
from autodiff.trace import bind, quoted, spec_of, user_line
from autodiff.tracer import Tracer

Rule = Callable[..., Any]


def _name_of(impl: Rule) -> str:
    return getattr(impl, "__name__", str(impl))


def numpy_jax(impl: Rule) -> str:
    """The jnp function of the same name as a NumPy function."""
    return f"jnp.{_name_of(impl)}"


# --- shapes and dtypes ---------------------------------------------------------------------


def broadcast_shapes(kind: str, *specs: Spec) -> tuple[int, ...]:
    """NumPy broadcasting of operand shapes; a mismatch names the op and the shapes."""
    first = specs[0].shape
    if all([s.shape == first for s in specs]):
        return first
    try:
        return np.broadcast_shapes(*(s.shape for s in specs))
    except ValueError:
        raise ShapeError(
            f"{kind} operands do not broadcast: {', '.join(str(s.shape) for s in specs)}",
            f"in op {kind}",
            "reshape an operand, or insert axes with x[:, None]",
        ) from None


def real_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The component dtype of a complex dtype; others unchanged."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def whole(value: Any, what: str) -> int:
    """An integer parameter as a plain int; a float is an error, never cut off."""
    try:
        return operator.index(value)
    except TypeError:
        where = quoted(user_line())
        raise ShapeError(f"{what} is {value!r}, not an integer", where, "pass an int") from None


def axis_tuple(axis: Any, ndim: int, kind: str) -> tuple[int, ...]:
    """Axes as a sorted tuple of non-negative ints; None is all axes."""
    if axis is None:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    result = []
    for a in axes:
        a = whole(a, f"axis of {kind}")
        if not -ndim <= a < ndim:
            raise ShapeError(
                f"axis {a} is out of bounds for {ndim} axes", f"in op {kind}", "pick a valid axis"
            )
        result.append(a % ndim)
    if len(set(result)) != len(result):
        raise ShapeError(f"axes {tuple(axes)} repeat an axis", f"in op {kind}", "name each once")
    return tuple(sorted(result))


def promote(*values: Any, inexact: bool = False) -> tuple[Any, ...]:
    """Operands converted to their common dtype by NumPy's rules; Python scalars are weak.

    `inexact`: integers become float64, as in NumPy's transcendental functions.
    """
    if all([isinstance(v, _ARRAYS) for v in values]):
        common = values[0].dtype
        if all([v.dtype == common for v in values]) and not (inexact and common.kind in "biu"):
            return values
    scalar = bool | int | float | complex
    arrays = [v if is_array(v) or isinstance(v, scalar) else np.asarray(v) for v in values]
    common = np.result_type(*(a.dtype if is_array(a) else a for a in arrays))
    if inexact and common.kind in "biu":
        common = np.dtype(np.float64)
    return tuple(
        np.asarray(a, common)
        if not is_array(a)
        else (a if a.dtype == common else bind("CAST", a, dtype=common))
        for a in arrays
    )


def is_array(value: Any) -> bool:
    """Whether a value is traced, an ndarray or a NumPy scalar."""
    return isinstance(value, _ARRAYS)


_ARRAYS = (np.ndarray, Tracer, np.generic)


def shape_of(value: Any) -> tuple[int, ...]:
    """`np.shape`, without NumPy's dispatch where the value knows its shape."""
    shape: tuple[int, ...] = value.shape if isinstance(value, _ARRAYS) else np.shape(value)
    return shape


# --- batching ------------------------------------------------------------------------------


def align(args: Sequence[Any], batched: Sequence[bool]) -> list[Any]:
    """Batched operands of a broadcasting op, with axes inserted after the batch axis so that
    ranks agree.
    """
    ranks = [len(shape_of(a)) - b for a, b in zip(args, batched, strict=True)]
    rank = max(ranks)
    out = []
    for a, b, r in zip(args, batched, ranks, strict=True):
        if b and r < rank:
            shape = shape_of(a)
            a = bind("RESHAPE", a, shape=(shape[0], *(1,) * (rank - r), *shape[1:]))
        out.append(a)
    return out


def batch_broadcasting(kind: str) -> Rule:
    """Batching rule of an elementwise op: the same op on aligned operands."""

    def batch(size: int, args: Any, batched: Any, **params: Any) -> tuple[Any, bool]:
        del size
        return bind(kind, *align(args, batched), **params), True

    return batch


def batch_leading(kind: str, shift: Sequence[str] = (), multiple: bool = False) -> Rule:
    """Batching rule of a one-operand op whose axis parameters named in `shift` (ints or tuples
    of ints, non-negative) move up by one.
    """

    def batch(size: int, args: Any, batched: Any, **params: Any) -> tuple[Any, Any]:
        del size, batched
        moved = {
            k: (tuple(a + 1 for a in v) if isinstance(v, tuple) else v + 1)
            if k in shift and v is not None
            else v
            for k, v in params.items()
        }
        out = bind(kind, *args, **moved)
        return out, (True,) * len(out) if multiple else True

    return batch


def batch_stacked(kind: str, multiple: bool = False) -> Rule:
    """Batching rule of an op that treats leading axes as a batch (linear algebra): operands
    without the axis are broadcast to carry it.
    """

    def batch(size: int, args: Any, batched: Any, **params: Any) -> tuple[Any, Any]:
        full = [
            a if b else np.broadcast_to(a, (size, *shape_of(a)))
            for a, b in zip(args, batched, strict=True)
        ]
        out = bind(kind, *full, **params)
        return out, (True,) * len(out) if multiple else True

    return batch


# --- tangents ------------------------------------------------------------------------------


def add_tangents(*tangents: Any) -> Any:
    """Sum of tangents, None standing for zero."""
    present = [t for t in tangents if t is not None]
    total = present[0] if present else None
    for t in present[1:]:
        total = bind("ADD", total, t)
    return total


def fit(tangent: Any, shape: tuple[int, ...]) -> Any:
    """A tangent broadcast to its output's shape."""
    if tangent is None or shape_of(tangent) == shape:
        return tangent
    return bind("BROADCAST", tangent, shape=shape)


def zeros_for(tangent: Any, primal: Any) -> Any:
    """The tangent itself, or zeros of the primal's spec where it is None."""
    if tangent is not None:
        return tangent
    spec = spec_of(primal)
    return np.broadcast_to(np.zeros((), spec.dtype), spec.shape)


def unbroadcast(ct: Any, shape: tuple[int, ...]) -> Any:
    """A cotangent summed over the axes that broadcasting added or stretched."""
    if ct is None or shape_of(ct) == tuple(shape):
        return ct
    return bind("SUM_TO", ct, shape=tuple(shape))


# --- families ------------------------------------------------------------------------------


def elementwise_function(kind: str, inexact: bool, arity: int, doc: str) -> Rule:
    """The public function of an elementwise op: promotes its operands and applies the op."""

    def function(*operands: Any) -> Any:
        if len(operands) != arity:
            raise TypeError(f"{kind.lower()}() takes {arity} arrays, got {len(operands)}")
        return bind(kind, *promote(*operands, inexact=inexact))

    function.__name__ = function.__qualname__ = kind.lower()
    function.__doc__ = doc
    return function


def _unary_spec(kind: str, kinds: str, out: str) -> Rule:
    def spec(x: Spec, **params: Any) -> Spec:
        del params
        if x.dtype.kind not in kinds:
            raise ShapeError(
                f"{kind} is not defined for {x.dtype.name}",
                f"in op {kind}, operand {x}",
                "convert with astype first",
            )
        if out == "bool":
            return x.with_dtype(np.bool_)
        return x.with_dtype(real_dtype(x.dtype)) if out == "real" else x

    return spec


def unary(
    kind: str,
    impl: Rule | None = None,
    *,
    deriv: Rule | None = None,
    tangent: Rule | None = None,
    body: Rule | None = None,
    derivative: str = "rule",
    kinds: str = "fcV",
    out: str = "same",
    jax: str | None = None,
    doc: str = "",
    **fields: Any,
) -> Rule:
    """An elementwise op of one operand; returns its public function.

    `deriv(x, y)` is dy/dx, or `tangent(t, x, y)` the whole tangent where the product with a
    derivative would lose digits. `kinds` are the accepted dtype kinds, `out` the result's dtype:
    "same", "bool" or "real".
    """

    def jvp(primals: Any, tangents: Any, y: Any, **params: Any) -> Any:
        (x,), (t,) = primals, tangents
        if tangent is not None:
            return tangent(t, x, y, **params)
        assert deriv is not None
        return t * deriv(x, y, **params)

    has_rule = tangent is not None or deriv is not None
    define(
        Op(
            kind,
            _unary_spec(kind, kinds, out),
            impl=impl,
            body=body,
            jvp=jvp if has_rule else None,
            batch=batch_broadcasting(kind),
            derivative=derivative,
            elementwise=True,
            jax=None if impl is None else (jax or numpy_jax(impl)),
            doc=doc,
            **fields,
        )
    )
    return elementwise_function(kind, kinds in ("fV", "fcV"), 1, doc)


def binary(
    kind: str,
    impl: Rule | None = None,
    *,
    tangents: tuple[Rule, Rule] | None = None,
    jvp: Rule | None = None,
    body: Rule | None = None,
    derivative: str = "rule",
    out: str = "same",
    kinds: str = "biufcV",
    jax: str | None = None,
    doc: str = "",
    **fields: Any,
) -> Rule:
    """An elementwise op of two operands of one dtype, which broadcast; returns its function.

    `tangents[i](t, x, y, out)` is the tangent through operand i; `jvp` replaces both.
    """

    def spec(x: Spec, y: Spec, **params: Any) -> Spec:
        del params
        shape = broadcast_shapes(kind, x, y)
        if x.dtype != y.dtype or x.dtype.kind not in kinds:
            raise ShapeError(
                f"{kind} is not defined for {x.dtype.name} and {y.dtype.name}",
                f"in op {kind}, operands {x} and {y}",
                "convert the operands to one floating dtype with astype",
            )
        return Spec(shape, np.dtype(np.bool_) if out == "bool" else x.dtype)

    def rule(primals: Any, dots: Any, z: Any, **params: Any) -> Any:
        assert tangents is not None
        parts = [
            fit(f(t, *primals, z, **params), shape_of(z))
            for f, t in zip(tangents, dots, strict=True)
            if t is not None
        ]
        return add_tangents(*parts)

    define(
        Op(
            kind,
            spec,
            impl=impl,
            body=body,
            jvp=jvp or (rule if tangents is not None else None),
            batch=batch_broadcasting(kind),
            derivative=derivative,
            elementwise=True,
            jax=None if impl is None else (jax or numpy_jax(impl)),
            doc=doc,
            **fields,
        )
    )
    return elementwise_function(kind, kinds in ("fV", "fcV"), 2, doc)


def linear(kind: str, impl: Rule, *, spec: Rule, transpose: Rule, batch: Rule, **fields: Any) -> Op:
    """An op linear in its first operand (others, if any, are integers): its jvp is itself."""

    def jvp(primals: Any, tangents: Any, y: Any, **params: Any) -> Any:
        del y
        return None if tangents[0] is None else bind(kind, tangents[0], *primals[1:], **params)

    return define(Op(kind, spec, impl=impl, jvp=jvp, transpose=transpose, batch=batch, **fields))


def nondiff(kind: str, impl: Rule, *, spec: Rule, batch: Rule, **fields: Any) -> Op:
    """An op whose result has no tangent space."""
    return define(Op(kind, spec, impl=impl, batch=batch, derivative="none", **fields))


def composite(kind: str, body: Rule, *, spec: Rule, **fields: Any) -> Op:
    """An op defined by its body in other ops."""
    return define(Op(kind, spec, body=body, **fields))
