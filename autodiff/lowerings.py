"""How the executor computes single primitives: into buffers, as views, by bit masks."""

from collections.abc import Callable, Mapping

import numpy as np

from autodiff.program import Atom, Equation, Literal, Spec
from autodiff.render_lines import slice_text, sum_to_axes
from autodiff.steps import BITS, Lowering, Reduced, Value

Rule = Callable[[Lowering, Equation], Value | None]
SMALL = 1024  # elements below which a masked copy beats passes over bits

# --- elementwise ---------------------------------------------------------------------------

_COMPARE = {
    "EQ": "np.equal",
    "NE": "np.not_equal",
    "LT": "np.less",
    "LE": "np.less_equal",
    "GT": "np.greater",
    "GE": "np.greater_equal",
}


def _compare(low: Lowering, eq: Equation) -> Value | None:
    return low.ufunc(eq, _COMPARE[eq.params["direction"]])


def _cast(low: Lowering, eq: Equation) -> Value | None:
    (x,), (out,) = eq.inputs, eq.outputs
    if x.spec.dtype.kind == "c" and out.spec.dtype.kind != "c":
        return None
    return low.into('np.copyto({o}, {0}, casting="unsafe")', (low.operand(x),), low.output(eq))


def _where(low: Lowering, eq: Equation) -> Value | None:
    """Selection: a masked copy for few elements, masks of bits for many.

    On an irregular condition a masked copy mispredicts a branch at every element; passes over
    bits do not.
    """
    condition, x, y = eq.inputs
    (out,) = eq.outputs
    width = BITS.get(out.spec.dtype.name)
    if width is None or not out.spec.shape or isinstance(condition, Literal):
        return None
    target, holds = low.output(eq), low.operand(condition)
    if out.spec.size < SMALL:
        low.copy(low.operand(y), target)
        return _masked_copy(low, low.operand(x), holds, target)
    bits, zeros = low.bits(target), [_is_zero(a) for a in (x, y)]
    if any(zeros):
        kept = low.bits(y if zeros[0] else x)
        mask = low.mask(holds, width, inverted=zeros[0])
        low.into("np.bitwise_and({0}, {1}, out={o})", (kept, mask), bits)
        return target
    mask = low.mask(holds, width)
    low.into("np.bitwise_xor({0}, {1}, out={o})", (low.bits(x), low.bits(y)), bits)
    low.into("np.bitwise_and({0}, {1}, out={o})", (bits, mask), bits)
    low.into("np.bitwise_xor({0}, {1}, out={o})", (bits, low.bits(y)), bits)
    return target


def _masked_copy(low: Lowering, value: Value, condition: Value, target: Value) -> Value:
    """The value put into the target where the condition holds."""
    shape = target.spec.shape
    same = condition.spec.shape == shape and value.spec.shape in ((), shape)
    code = "np.putmask({o}, {1}, {0})" if same else "np.copyto({o}, {0}, where={1})"
    return low.into(code, (value, condition), target, updates=True)


def _is_zero(atom: Atom) -> bool:
    """Whether an operand is the constant whose bits are all 0 (so -0.0 is not)."""
    scalar = isinstance(atom, Literal) and atom.value.ndim == 0
    return scalar and isinstance(atom, Literal) and not any(atom.value.tobytes())


def _strong(name: str) -> Rule:
    def lower(low: Lowering, eq: Equation) -> Value | None:
        """The product (quotient), where it is NaN 0 for a first operand of 0."""
        (out,) = eq.outputs
        if out.spec.dtype.name not in _TESTED or not out.spec.shape:
            return None
        x, y = (low.operand(a) for a in eq.inputs)
        target = low.into(f"{name}({{0}}, {{1}}, out={{o}})", (x, y), low.output(eq))
        return low.into(f"{_UNLESS_FINITE}zeros_win({{o}}, {{0}})", (x,), target, updates=True)

    return lower


# The sum of squares is finite only if every element is. Above 1e38, where it may overflow in
# float32, the function called looks again.
_UNLESS_FINITE = "if not np.vdot({o}, {o}) < 1e38:\n    "
_TESTED = ("float64", "float32")


def is_kept(eq: Equation) -> bool:
    """Whether the executor computes a composite by a rule of its own, not by its body."""
    if eq.op.kind != "STRONG_MATMUL":
        return False
    x, y = (a.spec for a in eq.inputs)
    return x.dtype.name in _TESTED and (x.ndim == 2 or y.ndim > 2)


def _strong_matmul(low: Lowering, eq: Equation) -> Value | None:
    """The product; its sums once more, strongly, where some are not finite."""
    target = _matmul(low, eq)
    assert target is not None
    given = [low.operand(a) for a in eq.inputs]
    code = f"{_UNLESS_FINITE}zeros_win_matmul({{o}}, {{0}}, {{1}}, {eq.params['zeros']})"
    return low.into(code, given, target, elementwise=False, updates=True)


# --- views ---------------------------------------------------------------------------------


def _reshape(low: Lowering, eq: Equation) -> Value | None:
    x, shape = low.operand(eq.inputs[0]), eq.params["shape"]
    if x.contiguous or x.origin in ("input", "new"):  # where an input has gaps this copies
        return low.view(eq, x, f"{{0}}.reshape({shape})", contiguous=x.contiguous)
    target = low.output(eq)
    name = low.writer.namer.fresh(f"{target.name}_from")
    before = Value(name, x.spec, "view", target, f"{{0}}.reshape({x.spec.shape})")
    low.into("np.copyto({o}, {0})", (x,), before, elementwise=False)
    return target


def _transpose(low: Lowering, eq: Equation) -> Value:
    x, axes = low.operand(eq.inputs[0]), eq.params["axes"]
    text = "{0}.T" if axes == tuple(range(len(axes)))[::-1] else f"{{0}}.transpose({axes})"
    return low.view(eq, x, text, contiguous=False)


def _broadcast(low: Lowering, eq: Equation) -> Value:
    text = f"np.broadcast_to({{0}}, {eq.params['shape']})"
    return low.view(eq, low.operand(eq.inputs[0]), text, contiguous=False)


def _slice(low: Lowering, eq: Equation) -> Value:
    return low.view(eq, low.operand(eq.inputs[0]), "{0}" + slice_text(eq), contiguous=False)


def _reverse(low: Lowering, eq: Equation) -> Value:
    text = f"np.flip({{0}}, {eq.params['axis']})"
    return low.view(eq, low.operand(eq.inputs[0]), text, contiguous=False)


# --- reductions, products, joins -----------------------------------------------------------


def _reduction(name: str) -> Rule:
    def lower(low: Lowering, eq: Equation) -> Value | None:
        (x,), (out,) = eq.inputs, eq.outputs
        axis, keepdims = tuple(eq.params["axis"]), eq.params["keepdims"]
        if x.spec.dtype != out.spec.dtype or x.spec.dtype.name not in _SUMMED or not axis:
            return None
        if name == "np.add" and _is_short(low.operand(x), axis):
            return _dot_sum(low, low.operand(x), low.output(eq), axis[0], keepdims)
        return low.reduction(Reduced(name, axis, keepdims), low.operand(x), low.output(eq))

    return lower


def _wide_sum(low: Lowering, eq: Equation) -> Value | None:
    (x,) = eq.inputs
    axis, name = tuple(eq.params["axis"]), x.spec.dtype.name
    # a sum over leading axes would be rounded once for each block of rows
    if name not in ("float64", "float32") or not axis or 0 in axis:
        return None
    reduced = Reduced("np.add", axis, eq.params["keepdims"], wide=name == "float32")
    return low.reduction(reduced, low.operand(x), low.output(eq))


_SUMMED = ("float64", "float32", "complex128", "complex64", "int64", "bool")


def _sum_to(low: Lowering, eq: Equation) -> Value | None:
    (x,), (out,) = eq.inputs, eq.outputs
    axes = sum_to_axes(x.spec.shape, out.spec.shape)
    extra = len(x.spec.shape) - len(out.spec.shape)
    if not axes or (extra and len(axes) > extra) or x.spec.dtype.kind not in "fc":
        return None
    if _is_short(low.operand(x), axes):
        return _dot_sum(low, low.operand(x), low.output(eq), axes[0], not extra)
    return low.reduction(Reduced("np.add", axes, not extra), low.operand(x), low.output(eq))


def _is_short(x: Value, axes: tuple[int, ...]) -> bool:
    """Whether sums over one axis of a small matrix are cheaper as a product with ones."""
    matrix = (
        len(x.spec.shape) == 2 and len(axes) == 1 and x.spec.dtype.name in ("float64", "float32")
    )
    # sums of at most 256 terms stay far within 1e-13 of the sum of their absolute values
    return matrix and 0 < x.spec.size < 4096 and x.spec.shape[axes[0]] <= 256 and x.contiguous


def _dot_sum(low: Lowering, x: Value, out: Value, axis: int, keepdims: bool) -> Value:
    """The sum as a product with ones."""
    n = x.spec.shape[axis]
    shape = ((1, n) if axis == 0 else (n, 1)) if keepdims else (n,)
    ones = low.constant(np.ones(shape, x.spec.dtype))
    inputs = (ones, x) if axis == 0 else (x, ones)
    return low.into("np.dot({0}, {1}, out={o})", inputs, out, elementwise=False)


def _matmul(low: Lowering, eq: Equation) -> Value | None:
    x, y = (low.operand(a) for a in eq.inputs)
    if x.spec.dtype.kind not in "fc" or (len(y.spec.shape) == 2 and len(x.spec.shape) > 2):
        return None
    # np.dot is the same BLAS call with less around it
    name = "np.dot" if len(x.spec.shape) == len(y.spec.shape) == 2 else "np.matmul"
    return low.into(f"{name}({{0}}, {{1}}, out={{o}})", (x, y), low.output(eq), elementwise=False)


def _concat(low: Lowering, eq: Equation) -> Value | None:
    inputs = [low.operand(a) for a in eq.inputs]
    places = "".join(f"{{{i}}}, " for i in range(len(inputs)))
    text = f"np.concatenate(({places}), axis={eq.params['axis']}, out={{o}})"
    return low.into(text, inputs, low.output(eq), elementwise=False)


# --- masks of rows -------------------------------------------------------------------------


def _argmax_mask(low: Lowering, eq: Equation) -> Value | None:
    """Along the last axis: the index of the first maximum, compared with all indices."""
    x = low.operand(eq.inputs[0])
    last = len(x.spec.shape) - 1
    if tuple(eq.params["axis"]) != (last,) or not x.spec.size:
        return None
    name = low.writer.namer
    first = Value(
        name.fresh(f"argmax_{x.name}"), Spec((*x.spec.shape[:-1], 1), np.dtype(np.int64)), "buffer"
    )
    code = f"{{0}}.argmax({last}, {{o}}, keepdims=True)"
    low.into(code, (x,), first, elementwise=False)
    index = low.constant(np.arange(x.spec.shape[-1]))
    return low.into("np.equal({0}, {1}, out={o})", (first, index), low.output(eq))


def _label_mask(low: Lowering, eq: Equation) -> Value | None:
    """Labels compared with all classes, along a new last axis."""
    labels = low.operand(eq.inputs[0])
    shape = labels.spec.shape
    if eq.params["axis"] != len(shape) or labels.spec.dtype != np.int64:
        return None
    column = Value(
        low.writer.namer.fresh(f"{labels.name}_column"),
        labels.spec.with_shape((*shape, 1)),
        "view",
        labels,
        "{0}[..., None]",
        contiguous=False,
    )
    index = low.constant(np.arange(eq.params["classes"]))
    return low.into("np.equal({0}, {1}, out={o})", (column, index), low.output(eq))


LOWERINGS: Mapping[str, Rule] = {
    "COMPARE": _compare,
    "CAST": _cast,
    "WHERE": _where,
    "STRONG_MUL": _strong("np.multiply"),
    "STRONG_DIV": _strong("np.divide"),
    "RESHAPE": _reshape,
    "TRANSPOSE": _transpose,
    "BROADCAST": _broadcast,
    "SLICE": _slice,
    "REVERSE": _reverse,
    "SUM": _reduction("np.add"),
    "WIDE_SUM": _wide_sum,
    "PROD": _reduction("np.multiply"),
    "MAX": _reduction("np.maximum"),
    "MIN": _reduction("np.minimum"),
    "ANY": _reduction("np.logical_or"),
    "ALL": _reduction("np.logical_and"),
    "SUM_TO": _sum_to,
    "MATMUL": _matmul,
    "STRONG_MATMUL": _strong_matmul,
    "CONCAT": _concat,
    "ARGMAX_MASK": _argmax_mask,
    "LABEL_MASK": _label_mask,
}
