"""How the executor computes single primitives: into buffers, as views, by bit masks."""

from collections.abc import Callable, Mapping

from autodiff.program import Atom, Equation, Literal
from autodiff.render_lines import slice_text, sum_to_axes
from autodiff.steps import BITS, Lowering, Value

Rule = Callable[[Lowering, Equation], Value | None]
SMALL = 512  # elements below which np.where beats three passes over bits

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
    """Selection by masks of bits: on an irregular condition several times as fast as a branch."""
    condition, x, y = eq.inputs
    (out,) = eq.outputs
    width = BITS.get(out.spec.dtype.name)
    if width is None or not out.spec.shape or isinstance(condition, Literal):
        return None
    zeros = [_is_zero(a) for a in (x, y)]
    shared = low.selections.get(condition, 0) > 1
    if not any(zeros) and not shared and out.spec.size < SMALL:
        return None
    target = low.output(eq)
    bits, holds = low.bits(target), low.operand(condition)
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


def _is_zero(atom: Atom) -> bool:
    """Whether an operand is the constant whose bits are all 0 (so -0.0 is not)."""
    scalar = isinstance(atom, Literal) and atom.value.ndim == 0
    return scalar and isinstance(atom, Literal) and not any(atom.value.tobytes())


def _strong(name: str) -> Rule:
    def lower(low: Lowering, eq: Equation) -> Value | None:
        """The product (quotient), its bits cleared where the first operand is 0."""
        (out,) = eq.outputs
        width = BITS.get(out.spec.dtype.name)
        if width is None or not out.spec.shape:
            return None
        x, y = (low.operand(a) for a in eq.inputs)
        target, nonzero = low.output(eq), low.nonzero(x, width)
        bits = low.bits(target)
        low.into(f"{name}({{0}}, {{1}}, out={{o}})", (x, y), target)
        low.into("np.bitwise_and({0}, {1}, out={o})", (bits, nonzero), bits)
        return target

    return lower


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
        return low.reduction(name, low.operand(x), low.output(eq), axis, keepdims)

    return lower


_SUMMED = ("float64", "float32", "complex128", "complex64", "int64", "bool")


def _sum_to(low: Lowering, eq: Equation) -> Value | None:
    (x,), (out,) = eq.inputs, eq.outputs
    axes = sum_to_axes(x.spec.shape, out.spec.shape)
    extra = len(x.spec.shape) - len(out.spec.shape)
    if not axes or (extra and len(axes) > extra) or x.spec.dtype.kind not in "fc":
        return None
    return low.reduction("np.add", low.operand(x), low.output(eq), axes, not extra)


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
    "PROD": _reduction("np.multiply"),
    "MAX": _reduction("np.maximum"),
    "MIN": _reduction("np.minimum"),
    "ANY": _reduction("np.logical_or"),
    "ALL": _reduction("np.logical_and"),
    "SUM_TO": _sum_to,
    "MATMUL": _matmul,
    "CONCAT": _concat,
}
