"""What a block may do otherwise: its weights, its inputs or its program changed in one way each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, permutations, product
from typing import Any

import ml_dtypes
import numpy as np

from autodiff.forward import is_inexact
from checks.gates.blocks.block import Block
from checks.gates.blocks.border import Runner
from checks.gates.formats.stored import Array

EPSILONS = (0.0, *(float(f"1e-{n}") for n in (12, 8, 7, 6, 5, 4, 3)))  # in use in models
_LARGEST_EPS = 0.01
_BLOCK = 32  # entries that share a scale in ggml's q8_0
# How one library's parts of a recurrent cell stand in another's: a pair of orders each.
_LSTM, _GRU = "i, o, f, c (ONNX) against i, f, g, o", "z, r, h (ONNX) against r, z, n"
GATE_ORDERS = {(0, 2, 3, 1): _LSTM, (0, 3, 1, 2): _LSTM, (1, 0, 2): _GRU}
_LEVELS = 127.0  # of a signed byte, symmetric


@dataclass(frozen=True, slots=True)
class Trial:
    """One block with one thing changed.

    Arguments:
        name: of the cause, such as "transposed weight".
        text: what is changed, such as "the weight 'w' transposed".
        weights: instead of the block's; None where they stay.
        inputs: instead of the given ones, by place.
    """

    name: str
    text: str
    weights: Mapping[str, Any] | None = None
    inputs: Mapping[int, Array] | None = None

    def run(self, runner: Runner, inputs: Sequence[Array]) -> Array:
        """Return the changed block's output."""
        given = [(self.inputs or {}).get(n, x) for n, x in enumerate(inputs)]
        return runner.value(given, self.weights)


def likely(runner: Runner, blocks: Sequence[Block], inputs: Sequence[Array]) -> Iterator[Trial]:
    """Yield the changes of a block's weights and inputs that ports get wrong most.

    Arguments:
        runner: the block.
        blocks: all of them: two layers may have each other's weights.
        inputs: what it is called on.
    """
    weights = _arrays(runner)
    yield from _transposed(weights)
    yield from _exchanged(weights)
    yield from _of_other_layers(runner.block, blocks)
    yield from _scalars(runner.block.weights or {})
    yield from _gates(weights)
    yield from _inputs(runner.block, inputs)
    yield from _left_out(weights)


def further(
    runner: Runner, inputs: Sequence[Array], others: Mapping[str, Array]
) -> Iterator[Trial]:
    """Yield the other changes: biases counted twice, rounded weights, tensors that it may have been
    called on instead (by name), and axes of the weights in another order.
    """
    yield from _scaled(_arrays(runner))
    yield from _rounded(_arrays(runner))
    yield from _other_tensors(runner.block, inputs, others)
    yield from _permuted(_arrays(runner))


def _arrays(runner: Runner) -> dict[str, Array]:
    kind = runner.framework
    given = runner.block.weights or {}
    arrays = {k: np.asarray(kind.numpy(w)) for k, w in given.items() if kind.owns(w)}
    return {k: w for k, w in arrays.items() if w.size > 1}


# --- weights --------------------------------------------------------------------------------


def _transposed(weights: Mapping[str, Array]) -> Iterator[Trial]:
    for k, w in weights.items():
        for a, b in combinations(range(w.ndim), 2):
            if w.shape[a] == w.shape[b] > 1:
                axes = "" if w.ndim == 2 else f" (axes {a} and {b})"
                changed = np.ascontiguousarray(np.swapaxes(w, a, b))
                yield Trial("transposed weight", f"{k} transposed{axes}", {k: changed})


def _exchanged(weights: Mapping[str, Array]) -> Iterator[Trial]:
    for a, b in combinations(weights, 2):
        if weights[a].shape == weights[b].shape:
            changed = {a: weights[b], b: weights[a]}
            yield Trial("swapped weights", f"{a} and {b} exchanged", changed)


def _of_other_layers(block: Block, blocks: Sequence[Block]) -> Iterator[Trial]:
    """All weights of another block of the same shapes, in their order."""
    own = block.weights or {}
    shapes = [np.shape(w) for w in own.values()]
    for other in blocks:
        theirs = other.weights or {}
        if other.output == block.output or not own:
            continue
        if [np.shape(w) for w in theirs.values()] == shapes:
            changed = dict(zip(own, theirs.values(), strict=True))
            yield Trial("another layer's weights", f"the weights of {other.output}", changed)


def _gates(weights: Mapping[str, Array]) -> Iterator[Trial]:
    """A recurrent cell's weights with the parts of all of them in another order.

    A cell has two matrices or more of 4 h (LSTM) or 3 h (GRU) rows, one of them of h columns;
    biases have as many entries, or twice as many where both stand in one (ONNX).
    """
    matrices = [w.shape[-2:] for w in weights.values() if w.ndim > 1]
    for parts, axis in product((4, 3), (-2, -1)):
        sizes = [s[axis] for s in matrices]
        cells = {s[axis] for s in matrices if s[axis] == parts * s[-3 - axis]}
        for size in sorted(n for n in cells if sizes.count(n) > 1):
            held = {k: w for k, w in weights.items() if _has_gates(w, axis, size)}
            for order in islice(permutations(range(parts)), 1, None):
                changed = {k: _in_parts(w, axis, size, order) for k, w in held.items()}
                text = f"the {parts} gates of {', '.join(held)} in the order {order}"
                text += f": {known}" if (known := GATE_ORDERS.get(order)) else ""
                yield Trial("gate order", text, changed)


def _is_vector(w: Array) -> bool:
    return len([n for n in w.shape if n > 1]) == 1


def _has_gates(w: Array, axis: int, size: int) -> bool:
    if _is_vector(w):
        return bool(w.shape[-1] in (size, 2 * size))
    return bool(w.ndim > 1 and w.shape[axis] == size)


def _in_parts(w: Array, axis: int, size: int, order: Sequence[int]) -> Array:
    axis = -1 if _is_vector(w) else axis
    whole = np.arange(w.shape[axis]).reshape(-1, len(order), size // len(order))
    return np.take(w, whole[:, list(order)].reshape(-1), axis)


def _left_out(weights: Mapping[str, Array]) -> Iterator[Trial]:
    for k, w in weights.items():
        if not is_inexact(w.dtype):
            continue
        name = "missing bias" if w.ndim == 1 else "missing weight"
        yield Trial(name, f"{k} left out (zeros)", {k: np.zeros_like(w)})
        yield Trial("missing weight", f"{k} left out (ones)", {k: np.ones_like(w)})
        yield Trial("negated weight", f"{k} with its sign turned", {k: -w})
        if w.ndim == 1:
            for by in (1, -1):
                changed = (w + w.dtype.type(by)).astype(w.dtype)
                yield Trial("weight off by one", f"{k} {by:+d}", {k: changed})


def _scaled(weights: Mapping[str, Array]) -> Iterator[Trial]:
    """A bias counted twice, or half; of a matrix it may as well be a factor elsewhere."""
    for k, w in weights.items():
        if _is_vector(w) and is_inexact(w.dtype):
            yield Trial("scaled weight", f"{k} twice", {k: w + w})
            yield Trial("scaled weight", f"{k} halved", {k: w * w.dtype.type(0.5)})


def _scalars(weights: Mapping[str, Any]) -> Iterator[Trial]:
    """Numbers among the weights: an eps, an offset, a switch."""
    for k, w in weights.items():
        value = np.asarray(w)
        if value.size != 1 or value.dtype.kind not in "fiub":
            continue
        item = value.reshape(()).item()
        for name, other in scalar_choices(item):
            changed = type(w)(other) if isinstance(w, int | float) else np.full_like(value, other)
            yield Trial(name, f"{k} = {other!r} instead of {item!r}", {k: changed})


def scalar_choices(item: Any) -> list[tuple[str, Any]]:
    """Return (cause, value) of what a number may have been: another eps, one more or less."""
    if isinstance(item, bool):
        return [("switch", not item)]
    if isinstance(item, int):
        return [("off by one", item + by) for by in (1, -1)]
    if 0.0 <= item <= _LARGEST_EPS:
        return [("eps", eps) for eps in EPSILONS if eps != item]
    return []


def _rounded(weights: Mapping[str, Array]) -> Iterator[Trial]:
    floats = {k: w for k, w in weights.items() if w.dtype in (np.float32, np.float64)}
    for text, change in _ROUNDINGS:
        parts = {k: change(w).astype(w.dtype) for k, w in floats.items()}
        if floats:
            yield Trial("rounded weights", f"all weights {text}", parts)
        for k, w in parts.items():
            if len(parts) > 1:
                yield Trial("rounded weights", f"{k} {text}", {k: w})


def _quantised(w: Array, axis: int | None) -> Array:
    """Symmetric signed bytes with one scale for the tensor, or for each slice along an axis."""
    other = None if axis is None else tuple(n for n in range(w.ndim) if n != axis % w.ndim)
    scale = np.max(np.abs(w), axis=other, keepdims=True) / _LEVELS
    scale = np.where(scale == 0, 1.0, scale)
    return np.asarray(np.rint(w / scale) * scale)


def _in_blocks(w: Array) -> Array:
    """ggml's q8_0: 32 entries of the last axis share a float16 scale (ggml-common.h)."""
    if w.shape[-1] % _BLOCK:
        return w
    parts = w.reshape(-1, _BLOCK)
    scale = np.max(np.abs(parts), axis=1, keepdims=True) / _LEVELS
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale != 0)
    codes = np.rint(parts * inverse)
    return np.asarray(codes * scale.astype(np.float16)).reshape(w.shape)


_ROUNDINGS: tuple[tuple[str, Any], ...] = (
    ("rounded to bfloat16", lambda w: w.astype(ml_dtypes.bfloat16)),
    ("rounded to float16", lambda w: w.astype(np.float16)),
    ("in 8 bits, one scale a tensor", lambda w: _quantised(w, None)),
    ("in 8 bits, one scale a row", lambda w: _quantised(w, 0)),
    ("in 8 bits, one scale a column", lambda w: _quantised(w, -1)),
    ("in 8 bits, one scale for 32 entries (q8_0)", _in_blocks),
)


def _permuted(weights: Mapping[str, Array]) -> Iterator[Trial]:
    """An axis read in another order: thirds of a fused q, k, v; heads and parts; pairs of a rope.

    An axis of a b c entries with (a, b) turned to (b, a), also within each of h equal heads where
    a or b is 2.
    """
    for k, w in weights.items():
        for axis, n in enumerate(w.shape):
            orders: dict[bytes, tuple[str, Array]] = {}
            for text, order in _orders(n):
                orders.setdefault(order.tobytes(), (text, order))
            for text, order in orders.values():
                changed = np.take(w, order, axis)
                yield Trial("permuted weight", f"axis {axis} of {k} {text}", {k: changed})


def _orders(n: int) -> Iterator[tuple[str, Array]]:
    whole = np.arange(n)
    for parts in (2, 3):
        if n % parts == 0:
            for order in permutations(range(parts)):
                if list(order) != sorted(order):
                    text = "in halves, exchanged" if parts == 2 else f"in thirds, as {order}"
                    yield text, whole.reshape(parts, -1)[list(order)].reshape(-1)
    for heads in _divisors(n):
        width = n // heads
        for a in _divisors(width):
            for b in _divisors(width // a):
                if a > 1 and b > 1 and (heads == 1 or 2 in (a, b)):
                    shaped = whole.reshape(heads, a, b, -1).swapaxes(1, 2)
                    text = f"as ({a}, {b}) for ({b}, {a})"
                    text += f" within {heads} heads" if heads > 1 else ""
                    yield text, shaped.reshape(-1)
    yield "reversed", whole[::-1].copy()


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


# --- inputs ---------------------------------------------------------------------------------


def _inputs(block: Block, inputs: Sequence[Array]) -> Iterator[Trial]:
    for n, x in enumerate(inputs):
        name = block.inputs[n]
        if x.dtype.kind in "iu" and x.size:
            for by in (1, -1):
                changed = (x.astype(np.int64) + by).astype(x.dtype)
                yield Trial("positions off by one", f"{name} {by:+d}", inputs={n: changed})
        if x.dtype.kind == "b":
            for text, change in masks(x.shape):
                yield Trial("wrong mask", f"{name} {text}", inputs={n: change(x)})
            continue
        if len(inputs) > 1:
            yield Trial("input left out", f"{name} all zero", inputs={n: np.zeros_like(x)})
        if x.ndim >= 2 and x.shape[-1] == x.shape[-2] > 1:
            turned = np.ascontiguousarray(np.swapaxes(x, -1, -2))
            yield Trial("transposed input", f"{name} transposed", inputs={n: turned})
        yield from _shifted(name, n, x)
    for a, b in combinations(range(len(inputs)), 2):
        if inputs[a].shape == inputs[b].shape and inputs[a].dtype == inputs[b].dtype:
            names = f"{block.inputs[a]} and {block.inputs[b]}"
            both = {a: inputs[b], b: inputs[a]}
            yield Trial("swapped inputs", f"{names} exchanged", inputs=both)


def masks(shape: tuple[int, ...]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield (text, change) of a boolean mask: none, inverted, shifted, transposed, causal."""
    yield "all true", np.ones_like
    yield "inverted", np.logical_not
    if shape[-1] > 1:
        yield "shifted by +1", lambda m: np.roll(m, 1, -1)
        yield "shifted by -1", lambda m: np.roll(m, -1, -1)
    if len(shape) >= 2 and shape[-1] > 1:
        yield "with one key more", lambda m: m | _beside(m, 1)
        yield "with one key less", lambda m: m & _beside(m, -1)
    if len(shape) >= 2 and shape[-1] == shape[-2] > 1:
        yield "transposed", lambda m: np.swapaxes(m, -1, -2)
        for k, text in ((0, "causal"), (1, "causal, one key more"), (-1, "causal, one key less")):
            lower = np.tril(np.ones(shape[-2:], bool), k)
            yield text, _filled(np.broadcast_to(lower, shape).copy())


def _beside(mask: Any, by: int) -> Any:
    """What the key before (1) or behind (-1) each has; nothing beyond the ends."""
    none = np.zeros_like(mask[..., :1])
    parts = [none, mask[..., :-1]] if by > 0 else [mask[..., 1:], none]
    return np.concatenate(parts, -1)


def _filled(mask: Array) -> Callable[[Any], Any]:
    return lambda m: mask


def _shifted(name: str, n: int, x: Array) -> Iterator[Trial]:
    kind = "shifted input"
    for axis, length in enumerate(x.shape):
        for by in (1, -1) if length > 1 else ():
            rolled = np.roll(x, by, axis)
            yield Trial(kind, f"{name} shifted by {by:+d} along axis {axis}", inputs={n: rolled})
            cut = rolled.copy()
            np.moveaxis(cut, axis, 0)[0 if by > 0 else -1] = 0
            text = f"{name} shifted by {by:+d} along axis {axis}, zeros behind"
            yield Trial(kind, text, inputs={n: cut})


def _other_tensors(
    block: Block, inputs: Sequence[Array], others: Mapping[str, Array]
) -> Iterator[Trial]:
    for n, x in enumerate(inputs):
        for name, other in others.items():
            same = other.shape == x.shape and other.dtype == x.dtype
            if same and name not in block.inputs and not np.array_equal(other, x):
                text = f"{name} instead of {block.inputs[n]}"
                yield Trial("wrong input", text, inputs={n: other})
