"""Strong products: plain ones in which the zeros of one operand, a cotangent, win over inf and NaN.

Pullbacks upstream of a select use them (`autodiff.strong`); STRONG_MUL and STRONG_DIV are in
`autodiff.ops.elementwise`. Each derives its rules from those of the plain op, strong throughout.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from autodiff.families import add_tangents, batch_stacked, promote, real_dtype
from autodiff.op import Op, define, get
from autodiff.ops.conditional import cond
from autodiff.ops.convolution import conv
from autodiff.ops.elementwise import cast, where
from autodiff.ops.linalg import batch_system, solve, triangular_solve
from autodiff.ops.matmul import dot_general, matmul
from autodiff.ops.matrix_functions import expm_frechet
from autodiff.ops.signal import convolve
from autodiff.program import Program, Spec
from autodiff.strong import run_strong
from autodiff.trace import bind, program_of, spec_of
from autodiff.transposition import Undefined, strong_transpose
from autodiff.widen import is_narrow

__all__ = [
    "strong_cofactor_tangent",
    "strong_conv",
    "strong_convolve",
    "strong_dot_general",
    "strong_expm_frechet",
    "strong_matmul",
    "strong_solve",
    "strong_triangular_solve",
]

# --- sums of products ----------------------------------------------------------------------


def _product_body(kind: str) -> Any:
    def body(x: Any, y: Any, *, zeros: int, **params: Any) -> Any:
        def plain(a: Any, b: Any) -> Any:
            return bind(kind, *((a, b) if zeros == 0 else (b, a)), **params)

        ct, other = (x, y) if zeros == 0 else (y, x)
        z = plain(ct, other)
        # an infinite or NaN factor shows in every sum that it is part of
        return cond(np.all(np.isfinite(z)), lambda *_: z, _strongly(plain), ct, other)

    return body


def _strongly(plain: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Products of the finite factors, and what the others add where the cotangent is not 0."""

    def function(ct: Any, other: Any) -> Any:
        dtype = np.dtype(np.float32) if is_narrow(ct.dtype) else real_dtype(ct.dtype)
        z = plain(ct, where(np.isfinite(other), other, np.zeros((), other.dtype)))
        # counts are exact in any dot mode: factors 0 and +-1, sums in float32 at least
        met = plain(cast(ct != 0, dtype), cast(~np.isfinite(other), dtype))
        nan = np.asarray(np.nan, dtype)
        if ct.dtype.kind == "c":
            return where(met > 0, cast(nan, z.dtype), z)
        infinite = where(np.isinf(other), np.sign(other), np.zeros((), other.dtype))
        net = plain(cast(np.sign(ct), dtype), cast(infinite, dtype))
        # all of one sign, or NaN among them
        added = where(net == met, np.inf, where(net == -met, -np.inf, nan))
        return where(met > 0, cast(added, z.dtype), z)

    return function


def _split(x: Any) -> tuple[Any, Any]:
    """Two parts that sum to x, with 0 for the other: what is finite, and what is not."""
    finite, zero = np.isfinite(x), np.zeros((), x.dtype)
    return where(finite, x, zero), where(finite, zero, x)


def _bounded(x: Any) -> Any:
    """x, and 1 where it is not finite: what it multiplies is not finite or 0."""
    return where(np.isfinite(x), x, np.ones((), x.dtype))


def _strong_product(kind: str) -> None:
    """The strong twin of an op bilinear in two operands; param `zeros` names the cotangent."""
    base, twin = get(kind), f"STRONG_{kind}"

    def spec(x: Spec, y: Spec, *, zeros: int, **params: Any) -> Any:
        del zeros
        return base.spec(x, y, **params)

    def jvp(primals: Any, tangents: Any, z: Any, **params: Any) -> Any:
        del z
        (x, y), (tx, ty) = primals, tangents
        left = None if tx is None else bind(twin, tx, y, **params)
        return add_tangents(left, None if ty is None else bind(twin, x, ty, **params))

    def transpose(
        ct: Any, inputs: Any, *, zeros: int, strongly: bool = False, **params: Any
    ) -> tuple[Any, ...]:
        # linear in the cotangent: zeros of the new one win; in the factor: those of the old one,
        # and both where this product is upstream of a select again
        if isinstance(inputs[zeros], Undefined):
            return strong_transpose(base, ct, inputs, params)
        if not strongly:
            return strong_transpose(base, ct, inputs, params, zeros)
        old = inputs[zeros]
        finite, rest = _split(old)
        parts = []
        for x, c, winner in ((finite, ct, zeros), (rest, _bounded(ct), None)):
            given = (x, inputs[1]) if zeros == 0 else (inputs[0], x)
            parts.append(strong_transpose(base, c, given, params, winner))
        pairs = zip(*parts, strict=True)
        return tuple(None if a is None or b is None else add_tangents(a, b) for a, b in pairs)

    def batch(size: int, args: Any, batched: Any, *, zeros: int, **params: Any) -> Any:
        specs = tuple(map(spec_of, args))
        key = tuple(sorted(params.items()))
        program, flag = _batch_program(base, size, specs, tuple(batched), key)
        return run_strong(program, args, (zeros == 0, zeros == 1))[0], flag

    define(
        Op(
            twin,
            spec,
            body=_product_body(kind),
            jvp=jvp,
            transpose=transpose,
            batch=batch,
            doc=f"{kind} with terms of 0 where the operand `zeros` is 0, whatever the other is.",
        )
    )


@functools.lru_cache(maxsize=256)
def _batch_program(
    op: Op, size: int, specs: tuple[Spec, ...], batched: tuple[bool, ...], params: Any
) -> tuple[Program, bool]:
    """An op's batching rule as a program, and whether its result is batched."""
    flags: list[bool] = []

    def f(*args: Any) -> Any:
        assert op.batch is not None
        out, flag = op.batch(size, args, batched, **dict(params))
        flags.append(flag)
        return out

    return program_of(f, specs, f"vmap_{op.kind.lower()}"), flags[-1]


for _kind in ("MATMUL", "DOT_GENERAL", "CONV", "CONVOLVE"):
    _strong_product(_kind)

# --- linear maps that mix elements ---------------------------------------------------------


def _guarded(out: Any, ct: Any, axis: Any) -> Any:
    """The result, and 0 where all the elements of the cotangent it is made of are 0."""
    return where(np.any(ct != 0, axis=axis, keepdims=True), out, np.zeros((), out.dtype))


def _strong_map(kind: str, axis: Any, batch: Any) -> None:
    """The strong twin of an op linear in its second operand, which it mixes along axes."""
    base, twin = get(kind), f"STRONG_{kind}"

    def spec(a: Spec, t: Spec, **params: Any) -> Any:
        return base.spec(a, t, **params)

    def body(a: Any, t: Any, **params: Any) -> Any:
        return _guarded(bind(kind, a, t, **params), t, axis)

    def jvp(primals: Any, tangents: Any, out: Any, **params: Any) -> Any:
        (a, t), given = primals, tuple(x for x in tangents if x is not None)
        mask = tuple(x is not None for x in tangents)
        specs = tuple(map(spec_of, (a, t, out, *given)))
        program = _jvp_program(base, specs, mask, tuple(sorted(params.items())))
        flags = (False, True, True, *(i == 1 for i, m in enumerate(mask) if m))
        return run_strong(program, (a, t, out, *given), flags)[0]

    def transpose(ct: Any, inputs: Any, **params: Any) -> tuple[Any, ...]:
        return strong_transpose(base, ct, inputs, params)

    define(
        Op(
            twin,
            spec,
            body=body,
            jvp=jvp,
            transpose=transpose,
            batch=batch(twin),
            doc=f"{kind}, 0 where the second operand is 0 throughout, whatever the first one is.",
        )
    )


@functools.lru_cache(maxsize=256)
def _jvp_program(op: Op, specs: tuple[Spec, ...], mask: tuple[bool, ...], params: Any) -> Program:
    """The jvp of an op of two operands as a program (primals, output, tangents) -> tangent."""

    def f(a: Any, t: Any, out: Any, *given: Any) -> Any:
        rest = iter(given)
        assert op.jvp is not None
        return op.jvp((a, t), tuple(next(rest) if m else None for m in mask), out, **dict(params))

    return program_of(f, specs, f"jvp_{op.kind.lower()}")


_strong_map("SOLVE", -2, batch_system)
_strong_map("TRIANGULAR_SOLVE", -2, batch_system)
_strong_map("EXPM_FRECHET", (-2, -1), batch_stacked)


def _tangent_spec(*operands: Spec, zeros: int) -> Spec:
    del zeros
    spec: Spec = get("COFACTOR_TANGENT").spec(*operands)
    return spec


def _tangent_body(*operands: Any, zeros: int) -> Any:
    return _guarded(bind("COFACTOR_TANGENT", *operands), operands[zeros], (-2, -1))


def _tangent_jvp(primals: Any, tangents: Any, y: Any, *, zeros: int) -> Any:
    del y
    parts = []
    for i, t in enumerate(tangents):
        if t is not None:
            moved = (*primals, t) if i == 0 else (*primals[:i], t, *primals[i + 1 :])
            parts.append(bind("STRONG_COFACTOR_TANGENT", *moved, zeros=zeros))
    return add_tangents(*parts)


def _tangent_transpose(ct: Any, inputs: Any, *, zeros: int) -> tuple[Any, ...]:
    # symmetric in its directions and the cotangent, as COFACTOR_TANGENT
    exchanged = (ct if isinstance(x, Undefined) else x for x in inputs)
    out = bind("STRONG_COFACTOR_TANGENT", *exchanged, zeros=zeros)
    return tuple(out if isinstance(x, Undefined) else None for x in inputs)


define(
    Op(
        "STRONG_COFACTOR_TANGENT",
        _tangent_spec,
        body=_tangent_body,
        jvp=_tangent_jvp,
        transpose=_tangent_transpose,
        batch=batch_stacked("STRONG_COFACTOR_TANGENT"),
        doc="COFACTOR_TANGENT, 0 where the direction `zeros` is 0 throughout.",
    )
)

# --- public functions ----------------------------------------------------------------------


def _twin_of(function: Callable[..., Any], only: int | None = None) -> Callable[..., Any]:
    """A plain op's public function, strong in one operand (always `only`, if given)."""
    name = f"strong_{function.__name__}"

    def strong(x: Any, y: Any, *args: Any, zeros: int = only or 0, **kwargs: Any) -> Any:
        x, y = promote(x, y, inexact=True)
        specs = (spec_of(x), spec_of(y))
        program = program_of(lambda a, b: function(a, b, *args, **kwargs), specs, name)
        return run_strong(program, (x, y), (zeros == 0, zeros == 1))[0]

    strong.__name__ = strong.__qualname__ = name
    strong.__doc__ = (
        f"`{function.__name__}`, 0 where all of the second operand that enters is 0, whatever the "
        "first one is."
        if only
        else f"`{function.__name__}` in whose sums a term is 0 where the operand `zeros` (0 or 1) "
        "is 0, whatever the other factor is; an infinite one against an infinite factor gives NaN."
    )
    return strong


strong_matmul = _twin_of(matmul)
strong_dot_general = _twin_of(dot_general)
strong_conv = _twin_of(conv)
strong_convolve = _twin_of(convolve)
strong_solve = _twin_of(solve, 1)
strong_triangular_solve = _twin_of(triangular_solve, 1)
strong_expm_frechet = _twin_of(expm_frechet, 1)


def strong_cofactor_tangent(a: Any, *directions: Any, zeros: int = 1) -> Any:
    """`cofactor_tangent`, 0 where the direction number `zeros` is 0 throughout, whatever a is."""
    operands = promote(a, *directions, inexact=True)
    return bind("STRONG_COFACTOR_TANGENT", *operands, zeros=zeros)
